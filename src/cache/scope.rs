//! Resolves the scope of an informer: its namespaces and their selectors.
//!
//! There are three layers: the declaration, the entry of the kind in [`CacheOptions::kinds`], and
//! the defaults of the cache. Within a layer the settings of a namespace have priority over those
//! of all objects. The first layer that sets a value counts.
//!
//! Label and field selectors are resolved independently. The set of namespaces is that of the first
//! layer that has one; settings of later layers still apply to namespaces of this set that they
//! name.
//!
//! Namespace names are validated, because they are inserted into URL paths. A list that has only
//! empty names selects no namespace, as with a flag that is not set. An empty name beside others is
//! an error, because it is ambiguous: controller-runtime uses it for all other namespaces.
//!
//! [`CacheOptions::kinds`]: super::CacheOptions::kinds

use super::{
    CacheError, Namespaces,
    fields::FieldSelector,
    namespaces::{NamespaceScope, Selectors},
    settings::Settings,
};
use crate::object::Selector;
use std::{collections::BTreeMap, fmt};

/// Namespaces, selectors and settings of one layer.
#[derive(Clone, Copy)]
pub(super) struct Layer<'a> {
    pub(super) namespaces: Option<&'a Namespaces>,
    pub(super) selectors: &'a Selectors,
    pub(super) settings: &'a Settings,
}

impl<'a> Layer<'a> {
    pub(super) fn listed(self) -> &'a [NamespaceScope] {
        match self.namespaces {
            Some(Namespaces::List(listed)) => listed,
            _ => &[],
        }
    }

    /// Checks all parts of the layer, including those that another layer overrides.
    pub(super) fn check(self, kind: &str) -> Result<(), CacheError> {
        if let Some(Namespaces::Labelled(selector)) = self.namespaces {
            Selector::parse(selector)?;
        }
        check_names(kind, self.listed())?;
        for selectors in self
            .listed()
            .iter()
            .map(|entry| &entry.selectors)
            .chain([self.selectors])
        {
            first_set([selectors].into_iter())?;
        }
        Ok(())
    }

    /// Returns the entry of a namespace, or that of unlisted namespaces for `None`.
    pub(super) fn of(self, namespace: Option<&str>) -> Option<&'a NamespaceScope> {
        self.listed()
            .iter()
            .find(|entry| entry.name.as_deref() == namespace)
    }
}

/// Normalized scope of an informer. Equivalent declarations have equal scopes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Scope {
    /// Label selector of the namespaces, if they are selected by label.
    pub(super) labelled: Option<String>,
    /// Selectors by namespace. `None` is the entry of all namespaces that are not listed.
    pub(super) parts: BTreeMap<Option<String>, Selectors>,
    /// Whether this is an internal informer of the cache. Declarations do not share it.
    pub(super) internal: bool,
}

impl Scope {
    /// Resolves the scope of a namespaced kind, or of one whose scope is not known yet.
    pub(super) fn of(kind: &str, layers: &[Layer<'_>]) -> Result<Self, CacheError> {
        layers
            .iter()
            .try_for_each(|layer| check_names(kind, layer.listed()))?;
        let mut scope = Self {
            labelled: None,
            parts: BTreeMap::new(),
            internal: false,
        };
        match namespaces(layers) {
            Namespaces::All => drop(scope.parts.insert(None, cluster_selectors(layers)?)),
            Namespaces::List(listed) => {
                let named = listed.iter().map(|entry| entry.name.as_deref());
                for namespace in named.filter(|name| *name != Some("")) {
                    scope.parts.insert(
                        namespace.map(Into::into),
                        namespace_selectors(layers, namespace)?,
                    );
                }
                if scope.parts.is_empty() {
                    return Err(CacheError::NoNamespace {
                        kind: kind.to_owned(),
                    });
                }
                scope.exclude_named()?;
            }
            Namespaces::Labelled(selector) => {
                scope.labelled = Some(Selector::parse(selector)?.to_string());
                let any = cluster_selectors(layers)?;
                let named = layers
                    .iter()
                    .flat_map(|layer| layer.listed())
                    .filter_map(|entry| entry.name.as_deref());
                for namespace in named {
                    let selectors = namespace_selectors(layers, Some(namespace))?;
                    if selectors != any {
                        scope.parts.insert(Some(namespace.into()), selectors);
                    }
                }
                scope.parts.insert(None, any);
            }
        }
        Ok(scope)
    }

    /// Resolves the scope of a cluster-scoped kind.
    pub(super) fn cluster_scoped(layers: &[Layer<'_>]) -> Result<Self, CacheError> {
        Ok(cluster_selectors(layers)?.into())
    }

    /// Returns the selectors of a namespace. `None` if it is not in scope.
    pub(super) fn selectors(&self, namespace: &str) -> Option<&Selectors> {
        self.parts
            .get(&Some(namespace.to_owned()))
            .or_else(|| self.parts.get(&None))
    }

    /// Excludes the listed namespaces from the entry of all others.
    fn exclude_named(&mut self) -> Result<(), CacheError> {
        let named: Vec<_> = self
            .parts
            .keys()
            .flatten()
            .map(|name| format!("metadata.namespace!={name}"))
            .collect();
        if let Some(others) = self.parts.get_mut(&None).filter(|_| !named.is_empty()) {
            let all: Vec<_> = named.into_iter().chain(others.fields.take()).collect();
            others.fields = Some(FieldSelector::parse(&all.join(","))?.to_string());
        }
        Ok(())
    }
}

/// Scope without namespaces: all objects that match the selectors.
impl From<Selectors> for Scope {
    fn from(selectors: Selectors) -> Self {
        Self {
            labelled: None,
            parts: [(None, selectors)].into(),
            internal: false,
        }
    }
}

/// Describes the scope for logs and reports.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut alike: Vec<(&Selectors, Vec<&str>)> = Vec::new();
        for (namespace, selectors) in self.parts.iter().rev() {
            let name =
                namespace
                    .as_deref()
                    .unwrap_or(if self.parts.len() > 1 { "others" } else { "" });
            match alike.iter_mut().find(|(entry, _)| *entry == selectors) {
                Some((_, names)) => names.insert(0, name),
                None => alike.insert(0, (selectors, vec![name])),
            }
        }
        let describe = |(selectors, names): (&Selectors, Vec<&str>)| {
            let names = Some(names.join(", "))
                .filter(|names| !names.is_empty())
                .map(|names| format!("in {names}"));
            let labels = selectors
                .labels
                .as_ref()
                .map(|labels| format!("labelled {labels}"));
            let fields = selectors
                .fields
                .as_ref()
                .map(|fields| format!("with {fields}"));
            [names, labels, fields]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(", ")
        };
        let namespaces = self
            .labelled
            .as_ref()
            .map(|labels| format!("in namespaces labelled {labels}"));
        let parts = alike
            .into_iter()
            .map(describe)
            .filter(|describe| !describe.is_empty());
        f.write_str(
            &namespaces
                .into_iter()
                .chain(parts)
                .collect::<Vec<_>>()
                .join("; "),
        )
    }
}

/// Checks the namespace names of one layer.
fn check_names(kind: &str, listed: &[NamespaceScope]) -> Result<(), CacheError> {
    let are_none = listed.iter().all(|entry| entry.name.as_deref() == Some(""));
    let mut named = listed
        .iter()
        .filter(|_| !are_none)
        .filter_map(|entry| entry.name.as_deref());
    match named.find(|name| !is_valid_name(name)) {
        Some(name) => Err(CacheError::InvalidNamespace {
            kind: kind.to_owned(),
            namespace: name.to_owned(),
        }),
        None => Ok(()),
    }
}

/// Returns whether `name` is a valid DNS label.
fn is_valid_name(name: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(inside)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Returns the namespaces of the first layer that has some.
pub(super) fn namespaces<'a>(layers: &[Layer<'a>]) -> &'a Namespaces {
    layers
        .iter()
        .find_map(|layer| layer.namespaces)
        .unwrap_or(&Namespaces::All)
}

/// Resolves the selectors of one namespace.
fn namespace_selectors(
    layers: &[Layer<'_>],
    namespace: Option<&str>,
) -> Result<Selectors, CacheError> {
    let layers = layers.iter().flat_map(|layer| {
        let here = layer.of(namespace).map(|entry| &entry.selectors);
        here.into_iter().chain([layer.selectors])
    });
    first_set(layers)
}

/// Resolves the selectors that do not depend on the namespace.
pub(super) fn cluster_selectors(layers: &[Layer<'_>]) -> Result<Selectors, CacheError> {
    first_set(layers.iter().map(|layer| layer.selectors))
}

fn first_set<'a>(
    layers: impl Iterator<Item = &'a Selectors> + Clone,
) -> Result<Selectors, CacheError> {
    let labels = layers
        .clone()
        .find_map(|layers| layers.labels.as_deref())
        .unwrap_or_default();
    let labels = Selector::parse(labels)?.to_string();
    let fields = layers
        .clone()
        .find_map(|layers| layers.fields.as_deref())
        .unwrap_or_default();
    let layers = |selector: String| (!selector.is_empty()).then_some(selector);
    Ok(Selectors {
        labels: layers(labels),
        fields: layers(FieldSelector::parse(fields)?.to_string()),
    })
}
