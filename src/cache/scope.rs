//! What is kept of a kind, made out of all that was said: of the declaration, of the kind, and of everything.
//!
//! What is said first counts, in this order: where each layer is a declaration, what [`CacheOptions::kinds`] has for the kind, and the cache's
//! defaults:
//! 1. of a namespace, 2. of all objects, 3. as the next layer says.
//!
//! Each selector by itself: labels may be said here, and fields there. The namespaces are those of the first layer that says some; what other layers say of
//! the same namespace by name counts where it is its turn. What can be no namespace is refused: names go into paths as they are. The empty name alone is no namespace at all, as from
//! a flag that is not set, and beside others it is refused: it might stand for nothing, or for all others, as it does in controller-runtime.
//!
//! [`CacheOptions::kinds`]: super::CacheOptions::kinds

use super::{
    CacheError, Namespaces,
    fields::FieldSelector,
    namespaces::{InNamespace, Selectors},
    settings::Settings,
};
use crate::object::Selector;
use std::{collections::BTreeMap, fmt};

/// One who has said something.
#[derive(Clone, Copy)]
pub(super) struct Layer<'a> {
    pub(super) namespaces: Option<&'a Namespaces>,
    pub(super) selectors: &'a Selectors,
    pub(super) settings: &'a Settings,
}

impl<'a> Layer<'a> {
    pub(super) fn these(self) -> &'a [InNamespace] {
        match self.namespaces {
            Some(Namespaces::These(these)) => these,
            _ => &[],
        }
    }

    /// Whether all that it says can be, also what does not count because somebody else has said more.
    pub(super) fn check(self, kind: &str) -> Result<(), CacheError> {
        if let Some(Namespaces::Labelled(selector)) = self.namespaces {
            Selector::parse(selector)?;
        }
        check_names(kind, self.these())?;
        for selectors in self.these().iter().map(|one| &one.selectors).chain([self.selectors]) {
            first_said([selectors].into_iter())?;
        }
        Ok(())
    }

    /// What it says of a namespace, or of those that it does not name.
    pub(super) fn of(self, namespace: Option<&str>) -> Option<&'a InNamespace> {
        self.these().iter().find(|one| one.name.as_deref() == namespace)
    }
}

/// What tells informers of one kind apart: however it was written, the same is the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Scope {
    /// Only in the namespaces that these labels select.
    pub(super) labelled: Option<String>,
    /// By namespace; none is all those that are not there by name.
    pub(super) parts: BTreeMap<Option<String>, Selectors>,
    /// Of the cache itself, which shares it with nobody: nobody has to keep it as the cache does.
    pub(super) own: bool,
}

impl Scope {
    /// Of a kind that has namespaces, or may turn out to.
    pub(super) fn of(kind: &str, layers: &[Layer<'_>]) -> Result<Self, CacheError> {
        layers.iter().try_for_each(|layer| check_names(kind, layer.these()))?;
        let mut scope = Self { labelled: None, parts: BTreeMap::new(), own: false };
        match namespaces(layers) {
            Namespaces::All => drop(scope.parts.insert(None, whole(layers)?)),
            Namespaces::These(these) => {
                let named = these.iter().map(|one| one.name.as_deref());
                for namespace in named.filter(|name| *name != Some("")) {
                    scope.parts.insert(namespace.map(Into::into), part(layers, namespace)?);
                }
                if scope.parts.is_empty() {
                    return Err(CacheError::NoNamespace { kind: kind.to_owned() });
                }
                scope.exclude_named()?;
            }
            Namespaces::Labelled(selector) => {
                scope.labelled = Some(Selector::parse(selector)?.to_string());
                let any = whole(layers)?;
                let named = layers.iter().flat_map(|layer| layer.these()).filter_map(|one| one.name.as_deref());
                for namespace in named {
                    let selectors = part(layers, Some(namespace))?;
                    if selectors != any {
                        scope.parts.insert(Some(namespace.into()), selectors);
                    }
                }
                scope.parts.insert(None, any);
            }
        }
        Ok(scope)
    }

    /// Of a kind that has no namespaces.
    pub(super) fn whole(layers: &[Layer<'_>]) -> Result<Self, CacheError> {
        Ok(whole(layers)?.into())
    }

    /// What is kept of one namespace.
    pub(super) fn selectors(&self, namespace: &str) -> Option<&Selectors> {
        self.parts.get(&Some(namespace.to_owned())).or_else(|| self.parts.get(&None))
    }

    /// What is kept of all other namespaces is nothing of those.
    fn exclude_named(&mut self) -> Result<(), CacheError> {
        let named: Vec<_> = self.parts.keys().flatten().map(|name| format!("metadata.namespace!={name}")).collect();
        if let Some(others) = self.parts.get_mut(&None).filter(|_| !named.is_empty()) {
            let all: Vec<_> = named.into_iter().chain(others.fields.take()).collect();
            others.fields = Some(FieldSelector::parse(&all.join(","))?.to_string());
        }
        Ok(())
    }
}

/// Everything that they select, wherever it is.
impl From<Selectors> for Scope {
    fn from(selectors: Selectors) -> Self {
        Self { labelled: None, parts: [(None, selectors)].into(), own: false }
    }
}

/// For people.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut alike: Vec<(&Selectors, Vec<&str>)> = Vec::new();
        for (namespace, selectors) in self.parts.iter().rev() {
            let name = namespace.as_deref().unwrap_or(if self.parts.len() > 1 { "others" } else { "" });
            match alike.iter_mut().find(|(one, _)| *one == selectors) {
                Some((_, names)) => names.insert(0, name),
                None => alike.insert(0, (selectors, vec![name])),
            }
        }
        let words = |(selectors, names): (&Selectors, Vec<&str>)| {
            let names = Some(names.join(", ")).filter(|names| !names.is_empty()).map(|names| format!("in {names}"));
            let labels = selectors.labels.as_ref().map(|labels| format!("labelled {labels}"));
            let fields = selectors.fields.as_ref().map(|fields| format!("with {fields}"));
            [names, labels, fields].into_iter().flatten().collect::<Vec<_>>().join(", ")
        };
        let namespaces = self.labelled.as_ref().map(|labels| format!("in namespaces labelled {labels}"));
        let parts = alike.into_iter().map(words).filter(|words| !words.is_empty());
        f.write_str(&namespaces.into_iter().chain(parts).collect::<Vec<_>>().join("; "))
    }
}

/// Of one who says them.
fn check_names(kind: &str, these: &[InNamespace]) -> Result<(), CacheError> {
    let are_none = these.iter().all(|one| one.name.as_deref() == Some(""));
    let mut named = these.iter().filter(|_| !are_none).filter_map(|one| one.name.as_deref());
    match named.find(|name| !is_name(name)) {
        Some(name) => Err(CacheError::NamespaceName { kind: kind.to_owned(), namespace: name.to_owned() }),
        None => Ok(()),
    }
}

/// Whether a namespace can have this name: that of a DNS label.
fn is_name(name: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(inside) && !name.starts_with('-') && !name.ends_with('-')
}

/// Those of the first who says some.
pub(super) fn namespaces<'a>(layers: &[Layer<'a>]) -> &'a Namespaces {
    layers.iter().find_map(|layer| layer.namespaces).unwrap_or(&Namespaces::All)
}

/// What is kept of a namespace.
fn part(layers: &[Layer<'_>], namespace: Option<&str>) -> Result<Selectors, CacheError> {
    let said = layers.iter().flat_map(|layer| {
        let here = layer.of(namespace).map(|one| &one.selectors);
        here.into_iter().chain([layer.selectors])
    });
    first_said(said)
}

/// What is kept of a kind whatever the namespace.
pub(super) fn whole(layers: &[Layer<'_>]) -> Result<Selectors, CacheError> {
    first_said(layers.iter().map(|layer| layer.selectors))
}

fn first_said<'a>(said: impl Iterator<Item = &'a Selectors> + Clone) -> Result<Selectors, CacheError> {
    let labels = said.clone().find_map(|said| said.labels.as_deref()).unwrap_or_default();
    let labels = Selector::parse(labels)?.to_string();
    let fields = said.clone().find_map(|said| said.fields.as_deref()).unwrap_or_default();
    let said = |selector: String| (!selector.is_empty()).then_some(selector);
    Ok(Selectors { labels: said(labels), fields: said(FieldSelector::parse(fields)?.to_string()) })
}
