//! Limit of the number of update managers.

use super::{ManagedFields, ManagerKey, Operation};
use std::collections::{BTreeMap, btree_map::Entry};

/// Name of the manager into which the oldest update managers are merged.
const BUCKET: &str = "ancient-changes";

/// Merges the oldest update managers into one per version, until `limit` remain.
pub(crate) fn cap_update_managers(managed: &mut ManagedFields, limit: usize) {
    let mut updaters: Vec<ManagerKey> = managed
        .managers
        .keys()
        .filter(|key| key.operation == Operation::Update)
        .cloned()
        .collect();
    if updaters.len() <= limit {
        return;
    }
    updaters.sort_by_cached_key(|key| {
        let seconds = managed.times.get(key).map_or(0, |time| time.seconds());
        (seconds, key.identifier())
    });
    let mut remaining = updaters.len();
    let mut first_of_version: BTreeMap<String, ManagerKey> = BTreeMap::new();
    for key in updaters {
        if remaining <= limit {
            return;
        }
        let Some(versioned) = managed.managers.get(&key).cloned() else {
            continue;
        };
        let first = match first_of_version.entry(versioned.api_version.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(key);
                continue;
            }
            Entry::Occupied(entry) => entry.into_mut(),
        };
        let bucket = ManagerKey::update(BUCKET, versioned.api_version.clone(), "");
        if !managed.managers.contains_key(&bucket)
            && let Some(oldest) = managed.managers.remove(first)
        {
            managed.managers.insert(bucket.clone(), oldest);
        }
        let mut merged = versioned;
        if let Some(existing) = managed.managers.get(&bucket) {
            merged.set = merged.set.union(&existing.set);
        }
        managed.managers.insert(bucket.clone(), merged);
        managed.managers.remove(&key);
        remaining -= 1;
        // A merged manager has the time of the newest manager in it.
        match managed.times.get(&key).copied() {
            Some(time) => managed.times.insert(bucket, time),
            None => managed.times.remove(&bucket),
        };
    }
}
