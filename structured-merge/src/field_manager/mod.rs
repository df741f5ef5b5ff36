//! Apply and update of Kubernetes objects with `metadata.managedFields`.
//!
//! - `versions`: types and conversions of a kind, which the caller provides
//! - `metadata`: access to `metadata` of objects
//! - `last_applied`: migration from the client-side apply of kubectl
//! - `scale`: managed fields of `/scale`
//! - `extract`: extraction of the configuration that a manager applied
//! - `equality`: equality without timestamps

mod equality;
mod error;
mod extract;
mod last_applied;
mod metadata;
mod scale;
mod versions;

pub use equality::equal_ignoring_timestamps;
pub use error::ApplyError;
pub use extract::{ExtractError, extract};
pub use scale::ScaleHandler;
pub use versions::{GroupVersionKind, Versions};

use crate::{
    filter::Filter,
    managed::{ManagedFields, ManagerKey, Time, cap_update_managers},
    path::Path,
    set::Set,
    typed::{Duplicates, TypedValue},
    updater::{UpdateError, Updater},
};
use error::{Step, describe};
use serde_json::Value;
use std::{borrow::Cow, collections::BTreeMap};
use versions::TypedVersions;

/// Largest number of update managers. Beyond it, the oldest ones are merged.
const MAX_UPDATE_MANAGERS: usize = 10;

/// Manager of the fields that an object had before its managed fields were tracked.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Paths of the metadata that no manager owns.
const UNTRACKED: [&[&str]; 12] = [
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

/// Applies and updates objects of one kind at one version through one endpoint.
///
/// An endpoint is the object itself or a subresource such as `status`. Use one field manager for
/// each version and endpoint.
///
/// ```
/// use serde_json::{Value, json};
/// use structured_merge::{
///     ApplyError, ConvertError, FieldManager, GroupVersionKind, Time, Versions, schema::Type,
/// };
///
/// /// Kind with one version and without a schema.
/// struct Widgets;
///
/// impl Versions for Widgets {
///     fn type_of(&self, api_version: &str, _kind: &str) -> Option<Type> {
///         (api_version == "example.com/v1").then(Type::deduced)
///     }
///     fn convert(&self, _: &Value, api_version: &str) -> Result<Value, ConvertError> {
///         Err(ConvertError::MissingVersion(api_version.to_owned()))
///     }
/// }
///
/// let kind = GroupVersionKind::new("example.com", "v1", "Widget");
/// let manager = FieldManager::new(Widgets, kind, "");
/// let now = Time::from_seconds(1_700_000_000);
/// let config = |color: &str| json!({
///     "apiVersion": "example.com/v1",
///     "kind": "Widget",
///     "metadata": {"name": "w"},
///     "spec": {"color": color},
/// });
///
/// // An apply to an object that does not exist creates it.
/// let live = manager.apply(&manager.empty_object(), &config("red"), "m1", false, now)?;
/// let error = manager.apply(&live, &config("blue"), "m2", false, now).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     r#"Apply failed with 1 conflict: conflict with "m1": .spec.color"#
/// );
/// # Ok::<(), ApplyError>(())
/// ```
#[derive(Debug)]
pub struct FieldManager<V> {
    kind: GroupVersionKind,
    subresource: String,
    updater: Updater<TypedVersions<V>>,
    untracked: Set,
}

impl<V: Versions> FieldManager<V> {
    /// Creates the field manager of an endpoint. `subresource` is empty for the object itself.
    pub fn new(versions: V, kind: GroupVersionKind, subresource: impl Into<String>) -> Self {
        Self {
            kind,
            subresource: subresource.into(),
            updater: Updater::new(TypedVersions(versions)),
            untracked: UNTRACKED
                .iter()
                .map(|path| Path::fields(path.iter().copied()))
                .collect(),
        }
    }

    /// Excludes fields that the endpoint resets, such as `status` outside of `/status`.
    ///
    /// `filters` has one filter per version, such as `apps/v1`. Default: all fields are tracked.
    #[must_use]
    pub fn with_reset_fields(mut self, filters: BTreeMap<String, Filter>) -> Self {
        for (api_version, filter) in filters {
            self.updater = self.updater.with_filter(api_version, filter);
        }
        self
    }

    /// Returns the object to pass as `live` for a create.
    pub fn empty_object(&self) -> Value {
        self.versions()
            .empty_object(&self.kind.api_version(), &self.kind.kind)
    }

    /// Records a create, update or patch by `manager`, and returns `new` with its managed fields.
    ///
    /// `live` is [`FieldManager::empty_object`] for a create. A request to the object itself may
    /// change the managed fields, and a request to a subresource may not. An empty list, or a list
    /// of one empty entry, removes all managers.
    ///
    /// Errors: an object does not fit the schema. An API server must not reject a request for this
    /// reason: it uses [`FieldManager::update_or_keep`].
    pub fn update(
        &self,
        live: &Value,
        new: Value,
        manager: &str,
        now: Time,
    ) -> Result<Value, ApplyError> {
        let mut new = new;
        self.update_in_place(live, &mut new, manager, now)?;
        Ok(new)
    }

    /// Records an update, or keeps the managed fields of `live` if [`FieldManager::update`] fails.
    pub fn update_or_keep(&self, live: &Value, new: Value, manager: &str, now: Time) -> Value {
        let mut new = new;
        if self.update_in_place(live, &mut new, manager, now).is_err() {
            metadata::copy_managed_fields(live, &mut new);
        }
        new
    }

    /// Applies the configuration of `manager` to `live`, and returns the object at the version of
    /// this field manager with its managed fields.
    ///
    /// `live` is [`FieldManager::empty_object`] if the object does not exist.
    ///
    /// Errors: [`ApplyError::Conflicts`] if the apply changes fields that other managers own. With
    /// `force`, it takes over these fields instead.
    pub fn apply(
        &self,
        live: &Value,
        config: &Value,
        manager: &str,
        force: bool,
        now: Time,
    ) -> Result<Value, ApplyError> {
        let managed = metadata::managed_fields(live).map_err(ApplyError::ManagedFields)?;
        let kind = GroupVersionKind::of(config);
        if kind != self.kind {
            return Err(ApplyError::BadRequest(format!(
                "invalid object type: {kind}"
            )));
        }
        let mut applied = self.apply_tracked(live, config, managed.clone(), manager, force, now);
        if let Err(ApplyError::Conflicts(conflicts)) = &applied
            && manager == last_applied::KUBECTL
            && let Some(allowed) = self.fields_of_last_applied(live)
        {
            applied = match last_applied::remaining_conflicts(conflicts, &allowed) {
                Some(remaining) => Err(remaining.into()),
                None => self.apply_tracked(live, config, managed, manager, true, now),
            };
        }
        let (mut object, managed) = applied?;
        if manager == last_applied::KUBECTL {
            last_applied::refresh(&mut object, config);
        }
        metadata::set_managed_fields(&mut object, &managed);
        Ok(object)
    }

    fn update_in_place(
        &self,
        live: &Value,
        new: &mut Value,
        manager: &str,
        now: Time,
    ) -> Result<(), ApplyError> {
        let mut managed = self.decode_request(live, new);
        metadata::remove_managed_fields(new);
        // An object without managers is not tracked until its first apply.
        if !managed.managers.is_empty() || !metadata::has_uid(live) {
            self.track_update(live, new, &mut managed, manager, now)?;
        }
        metadata::set_managed_fields(new, &managed);
        Ok(())
    }

    fn versions(&self) -> &V {
        &self.updater.converter().0
    }

    /// Returns the managers before an update: those in the request, or else in the live object.
    fn decode_request(&self, live: &Value, new: &Value) -> ManagedFields {
        let of_live = || metadata::managed_fields(live).unwrap_or_default();
        // A request to a subresource cannot change the managers.
        if !self.subresource.is_empty() {
            return of_live();
        }
        let Some(requested) = metadata::entries(new) else {
            return of_live();
        };
        if metadata::resets_managed_fields(&requested) {
            return ManagedFields::default();
        }
        match ManagedFields::from_entries(requested) {
            Ok(managed) if !managed.managers.is_empty() => managed,
            _ => of_live(),
        }
    }

    fn track_update(
        &self,
        live: &Value,
        new: &Value,
        managed: &mut ManagedFields,
        manager: &str,
        now: Time,
    ) -> Result<(), ApplyError> {
        let api_version = self.kind.api_version();
        let new = self.versioned(new, Step::ConvertNew)?;
        let live = self.versioned(live, Step::ConvertLive)?;
        let new = self.typed(new, Duplicates::Allowed, Step::TypeNew)?;
        let live = self.typed(live, Duplicates::Allowed, Step::TypeLive)?;
        // A temporary manager collects the fields that this request changes.
        let request = ManagerKey::update("current-operation", "", "");
        let managers = std::mem::take(&mut managed.managers);
        managed.managers = self
            .updater
            .update(&live, &new, &api_version, managers, &request)
            .map_err(|error| ApplyError::update(error, new.value()))?;
        if let Some(mut changed) = managed.managers.remove(&request) {
            changed.set.subtract(&self.untracked);
            if !changed.set.is_empty() {
                let key = ManagerKey::update(
                    manager_or_unknown(manager),
                    api_version,
                    &*self.subresource,
                );
                if let Some(previous) = managed.managers.get(&key) {
                    changed.set.extend(previous.set.clone());
                }
                managed.managers.insert(key.clone(), changed);
                managed.times.insert(key, now);
            }
        }
        cap_update_managers(managed, MAX_UPDATE_MANAGERS);
        Ok(())
    }

    /// Applies `config`. Returns the object and its managed fields separately.
    fn apply_tracked(
        &self,
        live: &Value,
        config: &Value,
        mut managed: ManagedFields,
        manager: &str,
        force: bool,
        now: Time,
    ) -> Result<(Value, ManagedFields), ApplyError> {
        let api_version = self.kind.api_version();
        if managed.managers.is_empty() {
            let empty = self.empty_object();
            self.track_update(&empty, live, &mut managed, BEFORE_FIRST_APPLY, now)
                .map_err(ApplyError::of_existing_fields)?;
        }
        if metadata::declares_managed_fields(config) {
            let message = "metadata.managedFields must be nil".to_owned();
            return Err(ApplyError::BadRequest(message));
        }
        let live_versioned = self.versioned(live, Step::ConvertLive)?;
        let config = Cow::Borrowed(config);
        let config = self.typed(config, Duplicates::Rejected, Step::TypePatch)?;
        let live_typed = self.typed(live_versioned, Duplicates::Allowed, Step::TypeLivePatch)?;
        let key = ManagerKey::apply(manager_or_unknown(manager), &*self.subresource);
        let managers = std::mem::take(&mut managed.managers);
        let (object, managers) = self
            .updater
            .apply(&live_typed, &config, &api_version, managers, &key, force)
            .map_err(|error| match error {
                UpdateError::Conflicts(conflicts) => conflicts.into(),
                error => ApplyError::Internal(error.to_string()),
            })?;
        managed.managers = managers;
        if let Some(mut owned) = managed.managers.remove(&key) {
            owned.set.subtract(&self.untracked);
            if !owned.set.is_empty() {
                managed.managers.insert(key.clone(), owned);
            }
        }
        let mut object = match object {
            Some(object) => {
                managed.times.insert(key, now);
                let mut object = object.into_value();
                self.versions().apply_defaults(&mut object);
                object
            }
            // An apply that changes nothing keeps the time of its manager.
            None => live_typed.into_value(),
        };
        metadata::remove_managed_fields(&mut object);
        Ok((object, managed))
    }

    /// Converts an object to the version of this field manager.
    fn versioned<'o>(&self, object: &'o Value, step: Step) -> Result<Cow<'o, Value>, ApplyError> {
        let api_version = self.kind.api_version();
        if metadata::api_version(object) == api_version {
            return Ok(Cow::Borrowed(object));
        }
        self.versions()
            .convert(object, &api_version)
            .map(Cow::Owned)
            .map_err(|error| step.error(object, &api_version, &error))
    }

    fn typed<'o>(
        &self,
        object: Cow<'o, Value>,
        duplicates: Duplicates,
        step: Step,
    ) -> Result<TypedValue<'o>, ApplyError> {
        let api_version = self.kind.api_version();
        let Some(r#type) = self.versions().type_of(&api_version, &self.kind.kind) else {
            let error = format!("no corresponding type for {}", self.kind);
            return Err(step.error(&object, &api_version, &error));
        };
        let description = describe(&object);
        TypedValue::new(object, &r#type, duplicates)
            .map_err(|error| step.error_of(&description, &api_version, &error))
    }
}

/// Returns the manager, or `unknown` if the request does not name one.
fn manager_or_unknown(manager: &str) -> &str {
    if manager.is_empty() {
        "unknown"
    } else {
        manager
    }
}
