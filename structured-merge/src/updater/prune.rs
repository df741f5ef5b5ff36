//! Removal of fields that a manager does not apply any more.
//!
//! The removal has three steps: remove all fields of the last apply, restore those that a manager
//! owns now, and restore those that the last apply did not own.

use super::{Converter, UpdateError, Updater, converter::Conversion, error::during};
use crate::{
    managed::{Managers, VersionedSet},
    schema::Type,
    set::Set,
    typed::TypedValue,
};
use std::{borrow::Cow, collections::BTreeMap};

impl<C: Converter> Updater<C> {
    /// Removes the fields of the manager's last apply that no manager owns now.
    pub(super) fn prune(
        &self,
        merged: TypedValue<'static>,
        managers: &Managers,
        api_version: &str,
        last: &VersionedSet,
    ) -> Result<TypedValue<'static>, UpdateError> {
        if last_apply_is_still_owned(&merged, managers, api_version, last) {
            return Ok(merged);
        }
        let pruned = {
            let converted = self.at(&merged, &last.api_version).map_err(during(
                "failed to convert merged object to last applied version",
            ))?;
            let Some(merged) = converted else {
                return Ok(merged);
            };
            let last_set = declared(&last.set, merged.r#type());
            let pruned = merged.remove_items(&last_set);
            let pruned = self
                .restore_owned(&merged, pruned, &last.api_version, managers)
                .map_err(during("failed add back owned items"))?;
            self.restore_unowned(&merged, pruned, &last.api_version, &last_set)
                .map_err(during("failed add back dangling items"))?
        };
        match self.at(&pruned, api_version)? {
            Some(pruned) => Ok(own(pruned)),
            None => Ok(pruned),
        }
    }

    /// Restores the fields that a manager owns at any version. `managers` contains this apply.
    fn restore_owned(
        &self,
        merged: &TypedValue<'_>,
        pruned: TypedValue<'static>,
        last_version: &str,
        managers: &Managers,
    ) -> Result<TypedValue<'static>, UpdateError> {
        let mut by_version: BTreeMap<&str, Set> = BTreeMap::new();
        for owned in managers.values() {
            let set = by_version.entry(&owned.api_version).or_default();
            *set = set.union(&owned.set);
        }
        let mut merged = Cow::Borrowed(merged);
        let mut pruned = pruned;
        // Starts with the last version: conversions to other versions may need its fields.
        let first = by_version.remove_entry(last_version);
        for (version, managed) in first.into_iter().chain(by_version) {
            let at_version = |what: &str| {
                let step = format!("failed to {what} object at version {version}");
                move |error: UpdateError| error.during(&step)
            };
            match self
                .convert(&merged, version)
                .map_err(at_version("convert merged"))?
            {
                Conversion::Same => {}
                Conversion::Converted(converted) => merged = Cow::Owned(converted),
                Conversion::Missing => continue,
            }
            match self
                .convert(&pruned, version)
                .map_err(at_version("convert pruned"))?
            {
                Conversion::Same => {}
                Conversion::Converted(converted) => pruned = converted,
                Conversion::Missing => continue,
            }
            let all =
                declared_fields(&merged).map_err(at_version("create field set from merged"))?;
            let kept = declared_fields(&pruned)
                .map_err(at_version("create field set from pruned"))?
                .union(&declared(&managed, merged.r#type()));
            let removed = all.difference(&kept);
            pruned = merged.remove_items(&removed);
        }
        Ok(pruned)
    }

    /// Restores the fields that are not in the last apply.
    fn restore_unowned(
        &self,
        merged: &TypedValue<'_>,
        pruned: TypedValue<'static>,
        last_version: &str,
        last: &Set,
    ) -> Result<TypedValue<'static>, UpdateError> {
        let converted = self.at(&pruned, last_version).map_err(during(
            "failed to convert pruned object to last applied version",
        ))?;
        let Some(pruned) = converted else {
            return Ok(own(Cow::Borrowed(merged)));
        };
        let kept = declared_fields(&pruned).map_err(during(
            "failed to create field set from pruned object in last applied version",
        ))?;
        let all = declared_fields(merged).map_err(during(
            "failed to create field set from merged object in last applied version",
        ))?;
        let removed = all.difference(&kept);
        Ok(merged.remove_items(&removed.intersection(last)))
    }
}

/// Returns whether a manager owns all fields of the last apply, so that there is nothing to remove.
///
/// Returns `false` in two cases in which the full removal can have another result: if managers have
/// different versions, or if an owned field is inside of an item without an owner.
fn last_apply_is_still_owned(
    merged: &TypedValue<'_>,
    managers: &Managers,
    api_version: &str,
    last: &VersionedSet,
) -> bool {
    let same_version = |owned: &VersionedSet| owned.api_version == api_version;
    same_version(last)
        && managers.values().all(same_version)
        && managers
            .values()
            .any(|owned| last.set.difference(&owned.set).is_empty())
        && declared(&last.set, merged.r#type()).is_closed()
}

fn declared(set: &Set, r#type: &Type) -> Set {
    set.with_declared_fields(&r#type.schema, &r#type.type_ref)
}

/// Returns the fields of an object, and the declared fields that have fields below them.
fn declared_fields(object: &TypedValue<'_>) -> Result<Set, UpdateError> {
    let set = object.field_set()?;
    Ok(declared(&set, object.r#type()))
}

fn own(object: Cow<'_, TypedValue<'_>>) -> TypedValue<'static> {
    object.into_owned().into_static()
}
