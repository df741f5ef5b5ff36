//! How an informer is to be, made out of all that was said. See [`scope`](super::scope) for who counts before whom.

use super::{
    CacheError, CacheOptions, Namespaces, Representation, Select,
    core::Core,
    erased::Informing,
    namespaces::Selectors,
    resync::Periods,
    scope::{self, Layer, Scope},
    select::{Form, Resource, Said},
    settings::Settings,
};
use crate::object::{ByNamespace, Compact, Decoder, Metadata, MetadataOnly, Transform};
use k8s_openapi::api::core::v1::Namespace;
use kube_core::{GroupVersionKind, TypeMeta};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Plan {
    /// Of a type; others are looked for on the server.
    pub(super) resource: Option<Resource>,
    /// Whether some namespaces were said for this kind, and not for all.
    pub(super) in_namespaces: bool,
    pub(super) scope: Scope,
    /// What is kept of a kind that turns out to have no namespaces.
    pub(super) whole: Selectors,
    pub(super) representation: Representation,
    settings: ByNamespace<Settings>,
    form: Form,
    managed_fields: bool,
}

/// What the options say of everything.
struct Defaults(Selectors, Settings);

impl Defaults {
    fn of(options: &CacheOptions) -> Self {
        let selectors = Selectors { labels: options.labels.clone(), fields: options.fields.clone() };
        let transform = options.transform.clone().map(|transform| transform.0);
        Self(selectors, Settings { transform, resync: options.resync, page_size: Some(options.page_size) })
    }

    fn layer<'a>(&'a self, options: &'a CacheOptions) -> Layer<'a> {
        Layer { namespaces: Some(&options.namespaces), selectors: &self.0, settings: &self.1 }
    }
}

impl Plan {
    pub(super) fn new(said: &Said, options: &CacheOptions) -> Result<Self, CacheError> {
        let of_kind = options.kinds.iter().map(Select::said).find(|of_kind| of_kind.gvk == said.gvk);
        let said_of_kind = || [Some(said), of_kind].into_iter().flatten();
        let defaults = Defaults::of(options);
        let layers: Vec<_> = said_of_kind().map(Said::layer).chain([defaults.layer(options)]).collect();
        for said in said_of_kind() {
            let mut here = said.layer().these().iter().filter_map(|one| one.settings.transform.as_ref());
            if here.any(|transform| !transform.is_of(said.form.id)) {
                let (kind, have) = (said.gvk.kind.clone(), said.representation());
                return Err(CacheError::TransformType { kind, have });
            }
        }

        let resource = said_of_kind().find_map(|said| said.resource.clone());
        let in_namespaces = said_of_kind().filter_map(|said| said.namespaces.as_ref()).any(Namespaces::is_some);
        let scope = if resource.as_ref().is_none_or(|resource| resource.namespaced) {
            Scope::of(&said.gvk.kind, &layers)?
        } else if in_namespaces {
            return Err(CacheError::NotNamespaced { kind: said.gvk.kind.clone() });
        } else {
            Scope::whole(&layers)?
        };
        let kept = of_kind.unwrap_or(said);
        Ok(Self {
            resource,
            in_namespaces,
            scope,
            whole: scope::whole(&layers)?,
            representation: said.representation.unwrap_or(kept.representation()),
            settings: Settings::made_out(&layers),
            form: kept.form,
            managed_fields: said_of_kind().any(|said| said.managed_fields),
        })
    }

    /// Whether the kind has namespaces, if its type says so.
    pub(super) fn namespaced(&self) -> Option<bool> {
        self.resource.as_ref().map(|resource| resource.namespaced)
    }

    /// What is wrong with the options, as far as that is known before a kind is declared: no namespace at all may still be mended by each declaration.
    pub(super) fn check(options: &CacheOptions) -> Result<(), CacheError> {
        let defaults = Defaults::of(options);
        let defaults = defaults.layer(options);
        defaults.check("every kind")?;
        let mut here = defaults.these().iter().filter_map(|one| one.settings.transform.as_ref());
        if here.any(|transform| !transform.is_of_all()) {
            return Err(CacheError::TransformOfAll);
        }
        for said in options.kinds.iter().map(Select::said) {
            said.layer().check(&said.gvk.kind)?;
            Self::new(said, options)?;
        }
        Ok(())
    }

    /// In a part of the informer: of a namespace, or of everything else there is of a kind that has namespaces, or has none.
    pub(super) fn page_size(&self, namespace: Option<&str>, namespaced: bool) -> u32 {
        let settings =
            if namespace.is_none() && namespaced { &self.settings.others } else { self.settings.of(namespace) };
        settings.page_size.unwrap_or_default()
    }

    /// Of who declares it now: each has its own.
    pub(super) fn periods(&self) -> Periods {
        Arc::new(self.settings.map(|settings| settings.resync.unwrap_or_default()))
    }

    fn transforms(&self) -> ByNamespace<Option<Transform>> {
        self.settings.map(|settings| settings.transform.clone())
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
        let decoder = Decoder::new(types).managed_fields(self.managed_fields).transform(self.transforms());
        match self.representation {
            Representation::Typed => (self.form.core)(decoder),
            Representation::Compact => Arc::new(Core::<Compact>::new(decoder)),
            Representation::Metadata => Arc::new(Core::<MetadataOnly>::new(decoder)),
        }
    }

    /// Whether it has what this declaration, of the same kind, is for, of which its own plan was made.
    pub(super) fn check_serves(&self, said: &Said, its: &Self) -> Result<(), CacheError> {
        self.check_form(said)?;
        let here = said.layer().these().iter().any(|one| one.settings.transform.is_some());
        if !here && said.settings.transform.is_none() {
            return Ok(());
        }
        let fits = |transform: &Transform| match self.representation {
            Representation::Typed => transform.is_of(self.form.id),
            Representation::Compact => true,
            Representation::Metadata => transform.is_of_metadata(),
        };
        let (kind, have, wanted) = (said.gvk.kind.clone(), self.representation, its.transforms());
        if !wanted.iter().flatten().all(fits) {
            return Err(CacheError::TransformType { kind, have });
        }
        let mut have = self.transforms();
        if self.namespaced().or(its.namespaced()) == Some(true) {
            // Nothing is in no namespace, so that what is said of that does not count.
            have.whole.clone_from(&wanted.whole);
        }
        if wanted == have { Ok(()) } else { Err(CacheError::OtherTransform { kind }) }
    }

    /// The same of one that says no transform.
    pub(super) fn check_form(&self, said: &Said) -> Result<(), CacheError> {
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
        Ok(())
    }
}

#[cfg(test)]
mod tests;
