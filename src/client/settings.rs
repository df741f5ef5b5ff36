//! Modifiers: return a client with one changed setting. The last call wins.

use super::{Client, Consistency, DeleteParams, Error, Result};
use crate::object::ObjectKey;
use form_urlencoded::Serializer;
use std::sync::Arc;

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent modifier of the client"
)]
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
    pub(super) without_lock: bool,
    pub(super) delete_params: DeleteParams,
}

/// Handling of unknown and duplicate fields by the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Validation {
    /// Rejects the request.
    Strict,
    /// Drops the fields and adds a warning header. Default of the API server.
    Warn,
    /// Drops the fields without a warning.
    Ignore,
}

impl Client {
    pub(super) fn with(&self, change: impl FnOnce(&mut Settings)) -> Self {
        let mut client = self.clone();
        change(&mut Arc::make_mut(&mut client.0).settings);
        client
    }

    /// Reads from the API server instead of the cache.
    ///
    /// Use it if the latest state is required, or for kinds that are not cached.
    #[must_use]
    pub fn live(&self) -> Self {
        self.with(|settings| settings.live = true)
    }

    /// Writes only the status, like [`subresource`](Self::subresource) with that name.
    #[must_use]
    pub fn status(&self) -> Self {
        self.subresource("status")
    }

    /// Reads and writes a subresource that has the type of the object.
    ///
    /// Examples are `status`, `ephemeralcontainers` and `resize`. Reads are live. For a subresource
    /// of another type, such as `scale`, use [`subresource_of`](Self::subresource_of). Calls fail
    /// with [`BadSubresource`](Error::BadSubresource) if `name` is not a valid path segment.
    #[must_use]
    pub fn subresource(&self, name: &str) -> Self {
        self.with(|settings| settings.subresource = Some(name.into()))
    }

    /// Validates writes without persisting them, including defaults and admission.
    #[must_use]
    pub fn dry_run(&self) -> Self {
        self.with(|settings| settings.dry_run = true)
    }

    /// Sets the field manager. Server-side apply requires one.
    ///
    /// Default: the API server derives it from the user agent.
    #[must_use]
    pub fn field_owner(&self, name: &str) -> Self {
        self.with(|settings| settings.field_owner = Some(name.into()))
    }

    /// Takes over the fields of other managers in an apply, instead of a conflict.
    ///
    /// Controllers usually set it. Default: false.
    #[must_use]
    pub fn force(&self) -> Self {
        self.with(|settings| settings.force = true)
    }

    /// Restricts the client to a namespace.
    ///
    /// The namespace is the default for objects without one, and the scope of lists and collection
    /// deletions. Objects in another namespace are an error. Cluster-scoped kinds are not affected.
    /// Calls fail with [`BadName`](Error::BadName) if it is not a valid path segment.
    #[must_use]
    pub fn namespace(&self, namespace: &str) -> Self {
        self.with(|settings| {
            settings.namespace = Some(namespace.into()).filter(|name: &Arc<str>| !name.is_empty());
        })
    }

    /// Sets the validation of unknown fields. Default: that of the API server.
    #[must_use]
    pub fn validation(&self, validation: Validation) -> Self {
        self.with(|settings| settings.validation = Some(validation))
    }

    /// Sets the options of deletions.
    ///
    /// They apply to [`delete`](Self::delete) and [`delete_collection`](Self::delete_collection).
    /// [`delete_only`](super::delete_only) creates options for one object that was read. Default:
    /// no preconditions, and the propagation and grace period of the kind.
    #[must_use]
    pub fn delete_params(&self, params: DeleteParams) -> Self {
        self.with(|settings| settings.delete_params = params)
    }

    /// Sets whether [`patch_from`](Self::patch_from) fails if its base is outdated.
    ///
    /// Without the lock, the patch is what Go's `client.MergeFrom` sends: changes of other clients
    /// to other fields stay, and a list that both changed is the one that was written last.
    /// Default: `true`.
    #[must_use]
    pub fn optimistic_lock(&self, lock: bool) -> Self {
        self.with(|settings| settings.without_lock = !lock)
    }
}

impl Settings {
    /// Validates a key, whose name may be empty, and adds the default namespace.
    pub(super) fn key(&self, kind: &str, namespaced: bool, key: &ObjectKey) -> Result<ObjectKey> {
        let bad = |key: ObjectKey| {
            Err(Error::BadName {
                kind: kind.into(),
                key,
            })
        };
        if !is_part_of_a_path(key.namespace().unwrap_or_default()) || !is_part_of_a_path(key.name())
        {
            return bad(key.clone());
        }
        match (key.namespace(), &self.namespace) {
            (None, _) if !namespaced => Ok(key.clone()),
            _ if !namespaced => Ok(ObjectKey::cluster_scoped(key.name())),
            (Some(requested), Some(own)) if requested != &**own => Err(Error::OtherNamespace {
                kind: kind.into(),
                key: key.clone(),
                namespace: (&**own).into(),
            }),
            (Some(_), _) => Ok(key.clone()),
            (None, Some(own)) if !is_part_of_a_path(own) => bad(ObjectKey::new(own, key.name())),
            (None, Some(own)) => Ok(ObjectKey::new(own, key.name())),
            (None, None) => Err(Error::NoNamespace {
                kind: kind.into(),
                key: key.clone(),
            }),
        }
    }

    /// Validates the key of an object, whose name must not be empty.
    pub(super) fn named(&self, kind: &str, namespaced: bool, key: &ObjectKey) -> Result<ObjectKey> {
        if key.name().is_empty() {
            return Err(Error::NoName { kind: kind.into() });
        }
        self.key(kind, namespaced, key)
    }

    /// Returns the key of a collection, without a namespace for all namespaces.
    pub(super) fn collection(
        &self,
        kind: &str,
        namespaced: bool,
        namespace: Option<&str>,
    ) -> Result<ObjectKey> {
        let key = ObjectKey::new(namespace.unwrap_or_default(), "");
        if key.namespace().is_none() && self.namespace.is_none() {
            Ok(key)
        } else {
            self.key(kind, namespaced, &key)
        }
    }

    /// Returns the query parameters of a write.
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

/// Returns whether a name is a valid path segment.
pub(super) fn is_part_of_a_path(name: &str) -> bool {
    !name.contains(['/', '%']) && name != "." && name != ".."
}
