//! How an informer is to be, made out of all that was said. See [`scope`](super::scope) for who counts before whom.

use super::{
    CacheError, CacheOptions, Namespaces, Representation, Select,
    core::Core,
    erased::Informing,
    namespaces::Selectors,
    scope::{self, Layer, Scope},
    select::{Form, Resource, Said},
};
use crate::object::{Compact, Decoder, Metadata, MetadataOnly, Transform};
use k8s_openapi::api::core::v1::Namespace;
use kube_core::{GroupVersionKind, TypeMeta};
use std::{sync::Arc, time::Duration};

#[derive(Debug)]
pub(super) struct Plan {
    /// Of a type; others are looked for on the server.
    pub(super) resource: Option<Resource>,
    pub(super) scope: Scope,
    /// What is kept of a kind that turns out to have no namespaces.
    pub(super) whole: Selectors,
    pub(super) representation: Representation,
    pub(super) page_size: u32,
    /// Of who declares it now: each has its own.
    pub(super) resync: Option<Duration>,
    form: Form,
    managed_fields: bool,
    transform: Option<Transform>,
}

impl Plan {
    pub(super) fn new(said: &Said, options: &CacheOptions) -> Result<Self, CacheError> {
        let of_kind = options.kinds.iter().map(Select::said).find(|of_kind| of_kind.gvk == said.gvk);
        let said_of_kind = || [Some(said), of_kind].into_iter().flatten();
        let defaults = Selectors { labels: options.labels.clone(), fields: options.fields.clone() };
        let defaults = Layer { namespaces: Some(&options.namespaces), selectors: &defaults };
        let layers: Vec<_> = said_of_kind().map(Said::layer).chain([defaults]).collect();

        let resource = said_of_kind().find_map(|said| said.resource.clone());
        let scope = if resource.as_ref().is_none_or(|resource| resource.namespaced) {
            Scope::of(&said.gvk.kind, &layers)?
        } else if said_of_kind().filter_map(|said| said.namespaces.as_ref()).any(Namespaces::is_some) {
            return Err(CacheError::NotNamespaced { kind: said.gvk.kind.clone() });
        } else {
            Scope::whole(&layers)?
        };
        let kept = of_kind.unwrap_or(said);
        Ok(Self {
            resource,
            scope,
            whole: scope::whole(&layers)?,
            representation: said.representation.unwrap_or(kept.representation()),
            page_size: said_of_kind().find_map(|said| said.page_size).unwrap_or(options.page_size),
            resync: said_of_kind().find_map(|said| said.resync).or(options.resync),
            form: kept.form,
            managed_fields: said_of_kind().any(|said| said.managed_fields),
            transform: said_of_kind().find_map(|said| said.transform.clone()),
        })
    }

    /// Whether the kind has namespaces, if its type says so.
    pub(super) fn namespaced(&self) -> Option<bool> {
        self.resource.as_ref().map(|resource| resource.namespaced)
    }

    /// What is wrong with the options, as far as that is known before a kind is declared: no namespace at all may still be mended by each declaration.
    pub(super) fn check(options: &CacheOptions) -> Result<(), CacheError> {
        let defaults = Selectors { labels: options.labels.clone(), fields: options.fields.clone() };
        Layer { namespaces: Some(&options.namespaces), selectors: &defaults }.check("every kind")?;
        for said in options.kinds.iter().map(Select::said) {
            said.layer().check(&said.gvk.kind)?;
            Self::new(said, options)?;
        }
        Ok(())
    }

    /// The namespaces that it depends on, whatever is said of that kind.
    pub(super) fn of_namespaces(&self) -> Option<(Said, Self)> {
        let select = Select::<Metadata<Namespace>>::new().labels(self.scope.labelled.as_deref()?);
        let mut plan = Self::new(select.said(), &CacheOptions::default()).expect("a selector that was read before");
        plan.scope.own = true;
        Some((select.said().clone(), plan))
    }

    /// An informer of this kind that nobody keeps up to date yet.
    pub(super) fn core(&self, gvk: &GroupVersionKind) -> Arc<dyn Informing> {
        let types = TypeMeta { api_version: gvk.api_version(), kind: gvk.kind.clone() };
        let decoder = Decoder::new(types).managed_fields(self.managed_fields).transform(self.transform.clone());
        match self.representation {
            Representation::Typed => (self.form.core)(decoder),
            Representation::Compact => Arc::new(Core::<Compact>::new(decoder)),
            Representation::Metadata => Arc::new(Core::<MetadataOnly>::new(decoder)),
        }
    }

    /// Whether it has what this declaration, of the same kind, is for.
    pub(super) fn check_serves(&self, said: &Said) -> Result<(), CacheError> {
        let (have, want, kind) = (self.representation, said.representation(), || said.gvk.kind.clone());
        match (have, want) {
            (Representation::Typed, Representation::Typed) if self.form.id != said.form.id => {
                return Err(CacheError::OtherType { kind: kind() });
            }
            (Representation::Compact, _) | (Representation::Typed, Representation::Metadata) => {}
            _ if have == want => {}
            _ => return Err(CacheError::Representation { kind: kind(), have, want }),
        }
        if said.managed_fields && !self.managed_fields {
            return Err(CacheError::ManagedFields { kind: kind() });
        }
        let Some(transform) = &said.transform else { return Ok(()) };
        let fits = match have {
            Representation::Typed => transform.is_of(self.form.id),
            Representation::Compact => true,
            Representation::Metadata => transform.is_of_metadata(),
        };
        match &self.transform {
            _ if !fits => Err(CacheError::TransformType { kind: kind(), have }),
            Some(mine) if mine.is_same(transform) => Ok(()),
            _ => Err(CacheError::OtherTransform { kind: kind() }),
        }
    }
}

#[cfg(test)]
mod tests;
