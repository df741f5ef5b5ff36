//! How a client does what it does: each modifier gives another client that differs in one thing. What is said last, nearest to the call, counts.

use super::{Client, Consistency, Deleting, Error, Result};
use crate::object::ObjectKey;
use form_urlencoded::Serializer;
use std::sync::Arc;

#[derive(Clone, Default)]
pub(super) struct Settings {
    pub(super) live: bool,
    pub(super) consistency: Consistency,
    pub(super) subresource: Option<Arc<str>>,
    pub(super) dry_run: bool,
    pub(super) field_owner: Option<Arc<str>>,
    pub(super) force: bool,
    pub(super) namespace: Option<Arc<str>>,
    pub(super) validation: Option<Validation>,
    pub(super) deleting: Deleting,
}

/// What the server does about fields that a kind does not have, or that are there twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Validation {
    /// Refuse them.
    Strict,
    /// Drop them, and say so in a header of the answer: what servers do by default.
    Warn,
    /// Drop them in silence.
    Ignore,
}

impl Client {
    pub(super) fn with(&self, change: impl FnOnce(&mut Settings)) -> Self {
        let mut client = self.clone();
        change(&mut Arc::make_mut(&mut client.0).settings);
        client
    }

    /// Read from the server: for what must be as new as can be, or is read too seldom to be kept.
    #[must_use]
    pub fn live(&self) -> Self {
        self.with(|settings| settings.live = true)
    }

    /// Write `status`, and nothing else: [`subresource`](Self::subresource) of that name.
    #[must_use]
    pub fn status(&self) -> Self {
        self.subresource("status")
    }

    /// Get, update, patch and apply a part of an object, which the server takes as the whole object: `status`, `ephemeralcontainers`, `resize`. Reads are
    /// live. A part that is a kind of its own, as `scale` is, is asked for with [`subresource_of`](Self::subresource_of).
    /// What cannot be a part of a path is [`BadSubresource`](Error::BadSubresource) when it is used.
    #[must_use]
    pub fn subresource(&self, name: &str) -> Self {
        self.with(|settings| settings.subresource = Some(name.into()))
    }

    /// Let the server do everything to a write but keep it: checks, defaults and admission.
    #[must_use]
    pub fn dry_run(&self) -> Self {
        self.with(|settings| settings.dry_run = true)
    }

    /// Who owns the fields that are written. Needed to apply; otherwise the server takes the name of the program.
    #[must_use]
    pub fn field_owner(&self, name: &str) -> Self {
        self.with(|settings| settings.field_owner = Some(name.into()))
    }

    /// Take fields from their owners when applying, where it would be a conflict otherwise: what controllers do.
    #[must_use]
    pub fn force(&self) -> Self {
        self.with(|settings| settings.force = true)
    }

    /// Only this namespace: it is meant where none is named, another one is an error, and lists and deletions of many are of it alone. Kinds without
    /// namespaces are as ever. What cannot be a part of a path is [`BadName`](Error::BadName) when it is used.
    #[must_use]
    pub fn namespace(&self, namespace: &str) -> Self {
        self.with(|settings| settings.namespace = Some(namespace.into()).filter(|name: &Arc<str>| !name.is_empty()))
    }

    /// What to do about unknown fields of what is written; what the server does by default, otherwise.
    #[must_use]
    pub fn validation(&self, validation: Validation) -> Self {
        self.with(|settings| settings.validation = Some(validation))
    }

    /// How [`delete`](Self::delete) and [`delete_collection`](Self::delete_collection) do it.
    #[must_use]
    pub fn deleting(&self, deleting: Deleting) -> Self {
        self.with(|settings| settings.deleting = deleting)
    }
}

impl Settings {
    /// The key that is meant; the name may be empty.
    pub(super) fn key(&self, kind: &str, namespaced: bool, key: &ObjectKey) -> Result<ObjectKey> {
        let bad = |key: ObjectKey| Err(Error::BadName { kind: kind.into(), key });
        if !is_part_of_a_path(key.namespace().unwrap_or_default()) || !is_part_of_a_path(key.name()) {
            return bad(key.clone());
        }
        match (key.namespace(), &self.namespace) {
            (None, _) if !namespaced => Ok(key.clone()),
            _ if !namespaced => Ok(ObjectKey::cluster_scoped(key.name())),
            (Some(asked), Some(own)) if asked != &**own => {
                Err(Error::OtherNamespace { kind: kind.into(), key: key.clone(), namespace: (&**own).into() })
            }
            (Some(_), _) => Ok(key.clone()),
            (None, Some(own)) if !is_part_of_a_path(own) => bad(ObjectKey::new(own, key.name())),
            (None, Some(own)) => Ok(ObjectKey::new(own, key.name())),
            (None, None) => Err(Error::NoNamespace { kind: kind.into(), key: key.clone() }),
        }
    }

    /// The same of an object that is to be read: it has a name.
    pub(super) fn named(&self, kind: &str, namespaced: bool, key: &ObjectKey) -> Result<ObjectKey> {
        if key.name().is_empty() {
            return Err(Error::NoName { kind: kind.into() });
        }
        self.key(kind, namespaced, key)
    }

    /// The same of a collection, whose key has no name: without a namespace it is all of them.
    pub(super) fn collection(&self, kind: &str, namespaced: bool, namespace: Option<&str>) -> Result<ObjectKey> {
        let key = ObjectKey::new(namespace.unwrap_or_default(), "");
        if key.namespace().is_none() && self.namespace.is_none() { Ok(key) } else { self.key(kind, namespaced, &key) }
    }

    /// What the server is told of a write.
    pub(super) fn writing(&self, force: bool) -> Serializer<'static, String> {
        let mut query = Serializer::new(String::new());
        if self.dry_run {
            query.append_pair("dryRun", "All");
        }
        if let Some(owner) = &self.field_owner {
            query.append_pair("fieldManager", owner);
        }
        if let Some(validation) = self.validation {
            query.append_pair("fieldValidation", &format!("{validation:?}"));
        }
        if force && self.force {
            query.append_pair("force", "true");
        }
        query
    }
}

/// What servers want of every name: that no other path can be made with it.
pub(super) fn is_part_of_a_path(name: &str) -> bool {
    !name.contains(['/', '%']) && name != "." && name != ".."
}
