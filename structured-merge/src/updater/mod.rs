//! Apply and update of typed values with field ownership.
//!
//! - `converter`: conversion to the versions at which managers own fields
//! - `prune`: removal of fields that a manager does not apply any more

mod converter;
mod error;
mod prune;

pub use converter::{ConvertError, Converter};
pub use error::UpdateError;

use crate::{
    conflict::{Conflict, Conflicts},
    filter::Filter,
    managed::{ManagerKey, Managers, VersionedSet},
    path::Path,
    set::Set,
    typed::TypedValue,
    value,
};
use error::during;
use std::collections::{BTreeMap, btree_map::Entry};

/// Merges applied configurations and tracks which manager owns which fields.
#[derive(Debug)]
pub struct Updater<C> {
    converter: C,
    /// Fields to track, by version. A version without a filter tracks all fields.
    filters: BTreeMap<String, Filter>,
}

/// Fields in which two objects differ.
#[derive(Default)]
struct Difference {
    /// Fields that the new object adds or modifies.
    changed: Set,
    removed: Set,
}

impl<C: Converter> Updater<C> {
    /// Creates an updater that tracks all fields.
    pub fn new(converter: C) -> Self {
        Self {
            converter,
            filters: BTreeMap::new(),
        }
    }

    /// Tracks only fields of `api_version` that pass the filter.
    #[must_use]
    pub fn with_filter(mut self, api_version: impl Into<String>, filter: Filter) -> Self {
        self.filters.insert(api_version.into(), filter);
        self
    }

    /// Returns the converter.
    pub fn converter(&self) -> &C {
        &self.converter
    }

    /// Records that `manager` changed the object from `live` to `new` without apply.
    ///
    /// The manager takes over all fields that changed. `live` is empty for a create.
    pub fn update(
        &self,
        live: &TypedValue<'_>,
        new: &TypedValue<'_>,
        api_version: &str,
        managers: Managers,
        manager: &ManagerKey,
    ) -> Result<Managers, UpdateError> {
        let managers = self.reconcile(live, managers)?;
        let (mut managers, difference) =
            self.change(live, new, api_version, managers, manager, true)?;
        let mut set = managers
            .remove(manager)
            .map(|owned| owned.set)
            .unwrap_or_default();
        set.subtract(&difference.removed);
        set.extend(difference.changed);
        let set = self.filtered(api_version, set);
        if !set.is_empty() {
            let api_version = api_version.to_owned();
            managers.insert(manager.clone(), VersionedSet { set, api_version });
        }
        Ok(managers)
    }

    /// Merges the configuration that `manager` applies into `live`.
    ///
    /// Removes fields that the manager applied before and does not apply any more, unless another
    /// manager owns them. Returns `None` instead of an object that equals `live`.
    ///
    /// Errors: [`UpdateError::Conflicts`] if the apply changes fields of other managers. With
    /// `force`, it takes over these fields instead.
    pub fn apply(
        &self,
        live: &TypedValue<'_>,
        config: &TypedValue<'_>,
        api_version: &str,
        managers: Managers,
        manager: &ManagerKey,
        force: bool,
    ) -> Result<(Option<TypedValue<'static>>, Managers), UpdateError> {
        let mut managers = self.reconcile(live, managers)?;
        let merged = live
            .merge(config)
            .map_err(during("failed to merge config"))?;
        let set = config
            .field_set()
            .map_err(during("failed to get field set"))?;
        let applied = VersionedSet {
            set: self.filtered(api_version, set),
            api_version: api_version.to_owned(),
        };
        let last = managers.insert(manager.clone(), applied);
        let new = match last {
            Some(last) if !last.set.is_empty() => self
                .prune(merged, &managers, api_version, &last)
                .map_err(during("failed to prune fields"))?,
            _ => merged,
        };
        let (managers, _) = self.change(live, &new, api_version, managers, manager, force)?;
        let new = (!value::equal(live.value(), new.value())).then_some(new);
        Ok((new, managers))
    }

    /// Compares `live` and `new`, and takes changed fields from all managers but `actor`.
    fn change(
        &self,
        live: &TypedValue<'_>,
        new: &TypedValue<'_>,
        api_version: &str,
        mut managers: Managers,
        actor: &ManagerKey,
        force: bool,
    ) -> Result<(Managers, Difference), UpdateError> {
        // Differences by version. `None` for a version that does not exist.
        let mut by_version: BTreeMap<String, Option<Difference>> = BTreeMap::new();
        let difference = self.compare(live, new, api_version)?;
        by_version.insert(api_version.to_owned(), Some(difference));
        let mut conflicts = Vec::new();
        let mut lost: BTreeMap<ManagerKey, Set> = BTreeMap::new();
        for (key, owned) in managers.iter().filter(|(key, _)| *key != actor) {
            let difference = match by_version.entry(owned.api_version.clone()) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    entry.insert(self.compare_at(live, new, &owned.api_version)?)
                }
            };
            let Some(difference) = difference else {
                continue;
            };
            let changed = owned.set.intersection(&difference.changed);
            if !force {
                changed.for_each(|path| {
                    conflicts.push(Conflict {
                        manager: key.clone(),
                        path: Path(path.to_vec()),
                    });
                });
            }
            lost.insert(key.clone(), changed);
        }
        if let Some(conflicts) = Conflicts::new(conflicts) {
            return Err(conflicts.into());
        }
        managers.retain(|key, owned| {
            if key != actor {
                let Some(Some(difference)) = by_version.get(&owned.api_version) else {
                    return false;
                };
                if let Some(changed) = lost.get(key) {
                    owned.set.subtract(changed);
                }
                owned.set.subtract(&difference.removed);
            }
            !owned.set.is_empty()
        });
        let difference = by_version.remove(api_version).flatten().unwrap_or_default();
        Ok((managers, difference))
    }

    fn compare(
        &self,
        live: &TypedValue<'_>,
        new: &TypedValue<'_>,
        api_version: &str,
    ) -> Result<Difference, UpdateError> {
        let mut comparison = live
            .compare(new)
            .map_err(during("failed to compare objects"))?;
        if let Some(filter) = self.filters.get(api_version) {
            comparison = comparison.filter(filter);
        }
        let mut changed = comparison.modified;
        changed.extend(comparison.added);
        Ok(Difference {
            changed,
            removed: comparison.removed,
        })
    }

    /// Compares both objects at another version. Returns `None` if the version does not exist.
    fn compare_at(
        &self,
        live: &TypedValue<'_>,
        new: &TypedValue<'_>,
        api_version: &str,
    ) -> Result<Option<Difference>, UpdateError> {
        let Some(live) = self
            .at(live, api_version)
            .map_err(during("failed to convert old object"))?
        else {
            return Ok(None);
        };
        let Some(new) = self
            .at(new, api_version)
            .map_err(during("failed to convert new object"))?
        else {
            return Ok(None);
        };
        self.compare(&live, &new, api_version).map(Some)
    }

    /// Adapts the managers' sets to the current schema, and drops managers of versions that do not
    /// exist.
    fn reconcile(
        &self,
        live: &TypedValue<'_>,
        managers: Managers,
    ) -> Result<Managers, UpdateError> {
        let mut reconciled = Managers::new();
        for (key, mut owned) in managers {
            let Some(live) = self.at(live, &owned.api_version)? else {
                continue;
            };
            if let Some(set) = live.reconcile_field_set(&owned.set)? {
                owned.set = set;
            }
            reconciled.insert(key, owned);
        }
        Ok(reconciled)
    }

    fn filtered(&self, api_version: &str, set: Set) -> Set {
        match self.filters.get(api_version) {
            Some(filter) => filter.apply(set),
            None => set,
        }
    }
}
