//! Resolves selectors, options and defaults into the configuration of one informer.
//!
//! See [`scope`](super::scope) for the priorities.

use super::{
    CacheError, CacheOptions, Namespaces, Representation, Select,
    core::Core,
    erased::ErasedCore,
    namespaces::Selectors,
    resync::Periods,
    scope::{self, Layer, Scope},
    select::{Declaration, Resource, StoredType},
    settings::Settings,
};
use crate::object::{ByNamespace, Compact, Decoder, Metadata, MetadataOnly, Transform};
use k8s_openapi::api::core::v1::Namespace;
use kube_core::{GroupVersionKind, TypeMeta};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Plan {
    /// Resource that the Rust type declares. `None` if discovery has to find it.
    pub(super) resource: Option<Resource>,
    /// Whether namespaces were selected for this kind, not only by the cache.
    pub(super) names_namespaces: bool,
    pub(super) scope: Scope,
    /// Selectors that apply if discovery reports a cluster-scoped kind.
    pub(super) cluster_selectors: Selectors,
    pub(super) representation: Representation,
    settings: ByNamespace<Settings>,
    stored_type: StoredType,
    managed_fields: bool,
}

/// Selectors and settings of the options that apply to all kinds.
struct Defaults(Selectors, Settings);

impl Defaults {
    fn of(options: &CacheOptions) -> Self {
        let selectors = Selectors {
            labels: options.labels.clone(),
            fields: options.fields.clone(),
        };
        let transform = options.transform.clone().map(|transform| transform.0);
        Self(
            selectors,
            Settings {
                transform,
                resync: options.resync,
                page_size: Some(options.page_size),
            },
        )
    }

    fn layer<'a>(&'a self, options: &'a CacheOptions) -> Layer<'a> {
        Layer {
            namespaces: Some(&options.namespaces),
            selectors: &self.0,
            settings: &self.1,
        }
    }
}

impl Plan {
    pub(super) fn new(
        declaration: &Declaration,
        options: &CacheOptions,
    ) -> Result<Self, CacheError> {
        let of_kind = options
            .kinds
            .iter()
            .map(Select::declaration)
            .find(|of_kind| of_kind.gvk == declaration.gvk);
        let declarations = || [Some(declaration), of_kind].into_iter().flatten();
        let defaults = Defaults::of(options);
        let layers: Vec<_> = declarations()
            .map(Declaration::layer)
            .chain([defaults.layer(options)])
            .collect();
        for declaration in declarations() {
            let mut namespace_transforms = declaration
                .layer()
                .listed()
                .iter()
                .filter_map(|scope| scope.settings.transform.as_ref());
            if namespace_transforms.any(|transform| !transform.is_of(declaration.stored_type.id)) {
                let (kind, cached) = (declaration.gvk.kind.clone(), declaration.representation());
                return Err(CacheError::TransformTypeMismatch { kind, cached });
            }
        }

        let resource = declarations().find_map(|declaration| declaration.resource.clone());
        let in_namespaces = declarations()
            .filter_map(|declaration| declaration.namespaces.as_ref())
            .any(Namespaces::is_limited);
        let scope = if resource.as_ref().is_none_or(|resource| resource.namespaced) {
            Scope::of(&declaration.gvk.kind, &layers)?
        } else if in_namespaces {
            return Err(CacheError::NotNamespaced {
                kind: declaration.gvk.kind.clone(),
            });
        } else {
            Scope::cluster_scoped(&layers)?
        };
        let base = of_kind.unwrap_or(declaration);
        Ok(Self {
            resource,
            names_namespaces: in_namespaces,
            scope,
            cluster_selectors: scope::cluster_selectors(&layers)?,
            representation: declaration.representation.unwrap_or(base.representation()),
            settings: Settings::resolve(&layers),
            stored_type: base.stored_type,
            managed_fields: declarations().any(|declaration| declaration.managed_fields),
        })
    }

    /// Returns whether the Rust type declares the kind as namespaced.
    pub(super) fn namespaced(&self) -> Option<bool> {
        self.resource.as_ref().map(|resource| resource.namespaced)
    }

    /// Checks the options as far as possible before a kind is declared.
    ///
    /// An empty list of namespaces is accepted, because each declaration can override it.
    pub(super) fn check(options: &CacheOptions) -> Result<(), CacheError> {
        let defaults = Defaults::of(options);
        let defaults = defaults.layer(options);
        defaults.check("every kind")?;
        let mut namespace_transforms = defaults
            .listed()
            .iter()
            .filter_map(|scope| scope.settings.transform.as_ref());
        if namespace_transforms.any(|transform| !transform.is_of_all()) {
            return Err(CacheError::TransformNotForAllKinds);
        }
        for declaration in options.kinds.iter().map(Select::declaration) {
            declaration.layer().check(&declaration.gvk.kind)?;
            Self::new(declaration, options)?;
        }
        Ok(())
    }

    /// Returns the page size for a namespace, or for all that are not named.
    ///
    /// `namespaced` is the scope of the kind that discovery has reported.
    pub(super) fn page_size(&self, namespace: Option<&str>, namespaced: bool) -> u32 {
        let settings = if namespace.is_none() && namespaced {
            &self.settings.others
        } else {
            self.settings.of(namespace)
        };
        settings.page_size.unwrap_or_default()
    }

    /// Returns the resync periods of this declaration. They are not shared with others.
    pub(super) fn resync_periods(&self) -> Periods {
        Arc::new(
            self.settings
                .map(|settings| settings.resync.unwrap_or_default()),
        )
    }

    fn transforms(&self) -> ByNamespace<Option<Transform>> {
        self.settings.map(|settings| settings.transform.clone())
    }

    /// Returns the selection of the namespaces that the scope depends on.
    ///
    /// Ignores the options of the cache for that kind.
    pub(super) fn namespace_selection(&self) -> Option<(Declaration, Self)> {
        let select = Select::<Metadata<Namespace>>::new().labels(self.scope.labelled.as_deref()?);
        let mut plan = Self::new(select.declaration(), &CacheOptions::default())
            .expect("a selector that was read before");
        plan.scope.internal = true;
        Some((select.declaration().clone(), plan))
    }

    /// Creates the core of the informer. No reflector runs yet.
    pub(super) fn core(&self, gvk: &GroupVersionKind) -> Arc<dyn ErasedCore> {
        let types = TypeMeta {
            api_version: gvk.api_version(),
            kind: gvk.kind.clone(),
        };
        let decoder = Decoder::new(types)
            .managed_fields(self.managed_fields)
            .transform(self.transforms());
        match self.representation {
            Representation::Typed => (self.stored_type.core)(decoder),
            Representation::Compact => Arc::new(Core::<Compact>::new(decoder)),
            Representation::Metadata => Arc::new(Core::<MetadataOnly>::new(decoder)),
        }
    }

    /// Checks whether an informer of this plan serves a declaration with plan `other`.
    pub(super) fn check_serves(
        &self,
        declaration: &Declaration,
        other: &Self,
    ) -> Result<(), CacheError> {
        self.check_stored_type(declaration)?;
        let namespace_transforms = declaration
            .layer()
            .listed()
            .iter()
            .any(|scope| scope.settings.transform.is_some());
        if !namespace_transforms && declaration.settings.transform.is_none() {
            return Ok(());
        }
        let fits = |transform: &Transform| match self.representation {
            Representation::Typed => transform.is_of(self.stored_type.id),
            Representation::Compact => true,
            Representation::Metadata => transform.is_of_metadata(),
        };
        let (kind, cached, wanted) = (
            declaration.gvk.kind.clone(),
            self.representation,
            other.transforms(),
        );
        if !wanted.iter().flatten().all(fits) {
            return Err(CacheError::TransformTypeMismatch { kind, cached });
        }
        let mut transforms = self.transforms();
        if self.namespaced().or(other.namespaced()) == Some(true) {
            // No object of a namespaced kind uses the settings for cluster-scoped objects.
            transforms.cluster_scoped.clone_from(&wanted.cluster_scoped);
        }
        if wanted == transforms {
            Ok(())
        } else {
            Err(CacheError::TransformMismatch { kind })
        }
    }

    /// Checks representation, type and managed fields, but not the transform.
    pub(super) fn check_stored_type(&self, declaration: &Declaration) -> Result<(), CacheError> {
        let (cached, want, kind) = (self.representation, declaration.representation(), || {
            declaration.gvk.kind.clone()
        });
        match (cached, want) {
            (Representation::Typed, Representation::Typed)
                if self.stored_type.id != declaration.stored_type.id =>
            {
                return Err(CacheError::TypeMismatch { kind: kind() });
            }
            (Representation::Compact, _) | (Representation::Typed, Representation::Metadata) => {}
            _ if cached == want => {}
            _ => {
                return Err(CacheError::RepresentationMismatch {
                    kind: kind(),
                    cached,
                    requested: want,
                });
            }
        }
        if declaration.managed_fields && !self.managed_fields {
            return Err(CacheError::ManagedFieldsDropped { kind: kind() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
