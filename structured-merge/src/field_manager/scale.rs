//! Managed fields of the subresource `scale`.

use crate::{
    managed::{DecodeError, Entry, ManagedFields, VersionedSet},
    path::Path,
    set::Set,
};
use std::collections::BTreeMap;

/// Version of `Scale` objects.
const SCALE: &str = "autoscaling/v1";

/// Translates managed fields between an object and its subresource `scale`.
///
/// A `Scale` has the replicas of the object at another path. An apply to `/scale` runs with the
/// entries of [`ScaleHandler::to_subresource`] as managed fields of the `Scale`, and stores
/// [`ScaleHandler::to_parent`] of the result in the object.
#[derive(Debug)]
pub struct ScaleHandler {
    parent: ManagedFields,
    api_version: String,
    /// Path of the replicas in the object, by version. `None`: the version has no `scale`.
    replicas: BTreeMap<String, Option<Path>>,
}

impl ScaleHandler {
    /// Creates the handler of an object with the managed fields `parent`.
    ///
    /// `api_version` is the version of the request. `replicas` has the path of the replicas in the
    /// object for each version, or `None` for a version without `scale`.
    pub fn new(
        parent: impl IntoIterator<Item = Entry>,
        api_version: impl Into<String>,
        replicas: BTreeMap<String, Option<Path>>,
    ) -> Result<Self, DecodeError> {
        Ok(Self {
            parent: ManagedFields::from_entries(parent)?,
            api_version: api_version.into(),
            replicas,
        })
    }

    /// Returns the managed fields of the `Scale`: the managers that own the replicas.
    pub fn to_subresource(&self) -> Vec<Entry> {
        let mut scale = ManagedFields::default();
        for (key, owned) in &self.parent.managers {
            let replicas = self
                .replicas
                .get(&owned.api_version)
                .and_then(Option::as_ref);
            if replicas.is_some_and(|path| owned.set.contains(&path.0)) {
                let owned = VersionedSet {
                    set: replicas_of_scale(),
                    api_version: SCALE.to_owned(),
                };
                scale.managers.insert(key.clone(), owned);
                if let Some(time) = self.parent.times.get(key) {
                    scale.times.insert(key.clone(), *time);
                }
            }
        }
        scale.to_entries()
    }

    /// Returns the managed fields of the object after a request.
    ///
    /// `scale` has the managed fields of the `Scale` that the request returned.
    pub fn to_parent(
        &self,
        scale: impl IntoIterator<Item = Entry>,
    ) -> Result<Vec<Entry>, DecodeError> {
        let mut scale = ManagedFields::from_entries(scale)?;
        let mut parent = ManagedFields::default();
        for (key, owned) in &self.parent.managers {
            let Some(path) = self.replicas.get(&owned.api_version) else {
                continue;
            };
            let mut owned = owned.clone();
            if let Some(path) = path
                && owned.set.contains(&path.0)
                && scale.managers.remove(key).is_none()
            {
                // Another manager took the replicas over.
                owned.set = owned.set.difference(&[path].into_iter().collect());
                if owned.set.is_empty() {
                    continue;
                }
            }
            if let Some(time) = self.parent.times.get(key) {
                parent.times.insert(key.clone(), *time);
            }
            parent.managers.insert(key.clone(), owned);
        }
        let path = self
            .replicas
            .get(&self.api_version)
            .and_then(Option::as_ref);
        for (key, owned) in scale.managers {
            if owned.set.intersection(&replicas_of_scale()).is_empty() {
                continue;
            }
            let owned = VersionedSet {
                set: path.into_iter().collect(),
                api_version: self.api_version.clone(),
            };
            if let Some(time) = self.parent.times.get(&key) {
                parent.times.insert(key.clone(), *time);
            }
            parent.managers.insert(key, owned);
        }
        Ok(parent.to_entries())
    }
}

fn replicas_of_scale() -> Set {
    [Path::fields(["spec", "replicas"])].into_iter().collect()
}
