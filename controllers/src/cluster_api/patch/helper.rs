//! The patch helper.

use super::{
    error::{ConditionsError, PatchError, PatchStepError},
    merge::ConditionChanges,
};
use crate::cluster_api::conditions::Conditions;
use kube::core::Status;
use rand::RngExt;
use serde_json::{Map, Value};
use std::{sync::Arc, time::Duration};
use steersman::{
    client::{self, Client},
    object::{KubeObject, ObjectKey, StaticKind},
    prelude::GroupVersionKind,
};
use tokio::time::sleep;

/// Number of attempts to patch conditions.
const ATTEMPTS: usize = 5;
/// Shortest wait between two attempts. The longest one is twice as long.
const WAIT: Duration = Duration::from_millis(100);

/// Options of [`PatchHelper::patch`].
#[derive(Clone, Copy, Debug, Default)]
pub struct PatchOptions<'a> {
    /// Types of conditions that only this controller changes. Its state wins a conflict.
    pub owned: &'a [&'a str],
    /// Types of deprecated conditions that only this controller changes.
    pub owned_deprecated: &'a [&'a str],
    /// Lets the state of this controller win every conflict of conditions.
    ///
    /// Use it only in the controller that reconciles the kind.
    pub force_overwrite: bool,
    /// Sets `status.observedGeneration` to the generation of the object, if it changed at all.
    pub observed_generation: bool,
    /// Sends the other fields of the status in the patch of the conditions, if both changed.
    ///
    /// Readers then never see a condition without the fields that it is about. Use it only in the
    /// controller that alone writes the status: its fields overwrite the latest ones.
    pub joined_status: bool,
}

/// Snapshot of an object, and the client to write its changes with.
///
/// Create it before the object is changed. See the [module](super) for what is sent.
#[derive(Clone)]
pub struct PatchHelper<K> {
    client: Client,
    before: K,
}

/// Kind and key of a snapshot, for errors.
#[derive(Clone)]
struct Target {
    kind: String,
    key: ObjectKey,
}

impl Target {
    fn encode(&self) -> impl Fn(serde_json::Error) -> PatchError {
        move |source| PatchError::Encode {
            kind: self.kind.clone(),
            key: self.key.clone(),
            source,
        }
    }
}

impl<K: KubeObject> PatchHelper<K> {
    /// Takes a snapshot of an object.
    pub fn new(client: &Client, object: &K) -> Self {
        Self {
            client: client.clone(),
            before: object.clone(),
        }
    }

    /// Sends the changes of an object whose kind has no [`Conditions`], such as a dynamic object.
    ///
    /// Conditions are a part of the status then.
    pub async fn patch_plain(&self, object: &K) -> Result<(), PatchError> {
        let Some(target) = self.target(object)? else {
            return Ok(());
        };
        let mut errors = Vec::new();
        errors.extend(self.patch_spec(&target, object).await?);
        errors.extend(self.patch_status(&target, object).await?);
        combine(target, errors)
    }

    /// Returns what is patched; `None` if nothing changed.
    fn target(&self, object: &K) -> Result<Option<Target>, PatchError> {
        let (before, after) = (self.before.gvk(), object.gvk());
        let target = Target {
            kind: after
                .as_ref()
                .map(|gvk| gvk.kind.clone())
                .unwrap_or_default(),
            key: ObjectKey::of(&self.before),
        };
        let values = [&self.before, object].map(serde_json::to_value);
        let [old, new] = values.map(|value| value.map_err(target.encode()));
        if old? == new? {
            return Ok(None);
        }
        if before != after {
            let text = |gvk: Option<GroupVersionKind>| {
                gvk.map(|gvk| format!("{}, Kind={}", gvk.api_version(), gvk.kind))
                    .unwrap_or_default()
            };
            return Err(PatchError::Kind {
                kind: target.kind,
                key: target.key,
                expected: text(after),
                got: text(before),
            });
        }
        Ok(Some(target))
    }

    /// Patches everything but the status.
    async fn patch_spec(
        &self,
        target: &Target,
        object: &K,
    ) -> Result<Option<PatchStepError>, PatchError> {
        let before = serde_json::to_value(&self.before).map_err(target.encode())?;
        let mut after = serde_json::to_value(object).map_err(target.encode())?;
        // Takes the old status, so that the two do not differ in it.
        set_or_remove(&mut after, "status", before.get("status"));
        let after: K = serde_json::from_value(after).map_err(target.encode())?;
        let client = self.client.optimistic_lock(false);
        let result = client.patch_from(&self.before, &after).await;
        Ok(result.err().map(PatchStepError::SpecAndMetadata))
    }

    /// Patches the status of `object`, whose conditions are not different.
    async fn patch_status(
        &self,
        target: &Target,
        object: &K,
    ) -> Result<Option<PatchStepError>, PatchError> {
        let values = [&self.before, object].map(serde_json::to_value);
        let [before, after] = values.map(|value| value.map_err(target.encode()));
        // A patch of empty objects, such as `{"status":{"deprecated":{"v1beta1":{}}}}`, would be
        // sent again and again: it remains when the conditions before and after are left out.
        if without_empty(&before?["status"]) == without_empty(&after?["status"]) {
            return Ok(None);
        }
        let client = self.client.optimistic_lock(false).status();
        let Err(error) = client.patch_from(&self.before, object).await else {
            return Ok(None);
        };
        let meta = object.meta();
        let is_gone = meta.deletion_timestamp.is_some()
            && meta.finalizers.as_deref().unwrap_or_default().is_empty();
        let ignored = error.is_not_found() && is_gone;
        Ok((!ignored).then_some(PatchStepError::Status(error)))
    }
}

impl<K: StaticKind + Conditions> PatchHelper<K> {
    /// Sends the changes of an object.
    ///
    /// `object` is not updated with the response. All patches are sent, also after one has failed.
    /// Waits of 100 to 200 ms between the attempts to patch the conditions are on tokio's clock.
    ///
    /// # Errors
    /// If the object has another kind than the snapshot, or a patch failed.
    pub async fn patch(&self, object: &K, options: &PatchOptions<'_>) -> Result<(), PatchError> {
        let Some(target) = self.target(object)? else {
            return Ok(());
        };
        let mut rest = self.without_conditions(object);
        if options.observed_generation {
            rest = observed(&rest).map_err(target.encode())?;
        }
        let joined = if options.joined_status {
            Some(StatusChanges::between(&self.before, &rest).map_err(target.encode())?)
        } else {
            None
        };
        let mut errors = Vec::new();
        let conditions = self
            .patch_conditions(object, joined.as_ref(), options)
            .await;
        let is_joined = joined.is_some() && !matches!(conditions, Ok(false));
        errors.extend(conditions.err().map(PatchStepError::Conditions));
        errors.extend(self.patch_spec(&target, object).await?);
        if !is_joined {
            errors.extend(self.patch_status(&target, &rest).await?);
        }
        combine(target, errors)
    }

    /// Returns `object` with the conditions of the snapshot.
    fn without_conditions(&self, object: &K) -> K {
        let mut rest = object.clone();
        if rest.conditions() != self.before.conditions() {
            *rest.conditions_mut() = self.before.conditions().to_vec();
        }
        let before = self.before.deprecated_conditions();
        if rest.deprecated_conditions() != before
            && let Some(conditions) = rest.deprecated_conditions_mut()
        {
            *conditions = before.to_vec();
        }
        rest
    }

    /// Merges the changes of the conditions, and `joined`, into the latest state of the object.
    ///
    /// Returns false, without a request, if no condition changed.
    async fn patch_conditions(
        &self,
        object: &K,
        joined: Option<&StatusChanges>,
        options: &PatchOptions<'_>,
    ) -> Result<bool, ConditionsError> {
        let before = &self.before;
        let changes = ConditionChanges::between(before.conditions(), object.conditions());
        let deprecated = ConditionChanges::between(
            before.deprecated_conditions(),
            object.deprecated_conditions(),
        );
        if changes.is_empty() && deprecated.is_empty() {
            return Ok(false);
        }
        let wins = |type_: &str| options.force_overwrite || options.owned.contains(&type_);
        let wins_deprecated =
            |type_: &str| options.force_overwrite || options.owned_deprecated.contains(&type_);
        let key = ObjectKey::of(object);
        let mut attempt = 1;
        loop {
            let latest = self.latest(&key, attempt == 1).await?;
            let mut merged = (*latest).clone();
            let mut result = Ok(());
            if !deprecated.is_empty()
                && let Some(list) = merged.deprecated_conditions_mut()
            {
                result = deprecated.apply(list, wins_deprecated);
            }
            if !changes.is_empty() {
                result = result.and_then(|()| changes.apply(merged.conditions_mut(), wins));
            }
            match result {
                Ok(()) => {}
                // The cache may be behind.
                Err(_) if attempt == 1 => {
                    attempt += 1;
                    continue;
                }
                Err(conflict) => return Err(ConditionsError::Conflict(conflict)),
            }
            if let Some(joined) = joined {
                merged = joined.apply(&merged).map_err(ConditionsError::Encode)?;
            }
            match self.client.status().patch_from(&*latest, &merged).await {
                Ok(_) => return Ok(true),
                Err(error) if !error.is_conflict() => return Err(ConditionsError::Client(error)),
                Err(error) if attempt == ATTEMPTS => return Err(ConditionsError::Attempts(error)),
                Err(_) => {}
            }
            attempt += 1;
            let jitter = rand::rng().random_range(1.0..2.0);
            sleep(WAIT.mul_f64(jitter)).await;
        }
    }

    /// Reads the object, from the cache if that is wanted and the cache has it.
    async fn latest(&self, key: &ObjectKey, cached: bool) -> Result<Arc<K>, ConditionsError> {
        if cached && let Ok(Some(latest)) = self.client.get::<K>(key).await {
            return Ok(latest);
        }
        let live = self.client.live().get::<K>(key).await;
        let latest = live.map_err(ConditionsError::Client)?;
        latest.ok_or_else(|| ConditionsError::Client(not_found::<K>(key)))
    }
}

/// Returns the error that the API server has for a missing object.
fn not_found<K: StaticKind>(key: &ObjectKey) -> client::Error {
    let resource = format!("{}.{}", K::plural(&()), K::group(&()));
    let message = format!("{resource} {:?} not found", key.name());
    Status::failure(&message, "NotFound").with_code(404).into()
}

/// Returns the object with `status.observedGeneration`.
fn observed<K: KubeObject>(object: &K) -> Result<K, serde_json::Error> {
    let mut value = serde_json::to_value(object)?;
    if let Some(generation) = object.meta().generation {
        value["status"]["observedGeneration"] = generation.into();
    }
    serde_json::from_value(value)
}

/// Changes of a status, as a merge patch.
struct StatusChanges(Option<Value>);

impl StatusChanges {
    fn between<K: KubeObject>(before: &K, after: &K) -> Result<Self, serde_json::Error> {
        let (before, after) = (serde_json::to_value(before)?, serde_json::to_value(after)?);
        Ok(Self(difference(&before["status"], &after["status"])))
    }

    fn apply<K: KubeObject>(&self, object: &K) -> Result<K, serde_json::Error> {
        let mut object = serde_json::to_value(object)?;
        if let Some(changes) = &self.0 {
            apply(&mut object["status"], changes);
        }
        serde_json::from_value(object)
    }
}

/// Returns a merge patch; `None` if nothing but empty objects changed.
fn difference(before: &Value, after: &Value) -> Option<Value> {
    let Value::Object(after) = after else {
        return (before != after).then(|| after.clone());
    };
    let empty = Map::new();
    let before = before.as_object().unwrap_or(&empty);
    let removed = before.keys().filter(|name| !after.contains_key(*name));
    let mut patch: Map<_, _> = removed.map(|name| (name.clone(), Value::Null)).collect();
    for (name, value) in after {
        let changed = difference(before.get(name).unwrap_or(&Value::Null), value);
        patch.extend(changed.map(|value| (name.clone(), value)));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Applies a merge patch.
fn apply(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (name, value) in patch {
        if value.is_null() {
            set_or_remove(target, name, None);
        } else {
            apply(&mut target[name.as_str()], value);
        }
    }
}

/// Sets a field of an object, or removes it.
fn set_or_remove(object: &mut Value, field: &str, value: Option<&Value>) {
    let Value::Object(fields) = object else {
        return;
    };
    match value {
        Some(value) => fields.insert(field.into(), value.clone()),
        None => fields.remove(field),
    };
}

/// Returns the value without fields that are null or, after this, empty objects.
fn without_empty(value: &Value) -> Value {
    let Value::Object(fields) = value else {
        return value.clone();
    };
    let fields = fields
        .iter()
        .map(|(name, value)| (name.clone(), without_empty(value)));
    let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    let fields: Map<_, _> = fields
        .filter(|(_, value)| !value.is_null() && !is_empty(value))
        .collect();
    if fields.is_empty() {
        return Value::Null;
    }
    Value::Object(fields)
}

/// Returns an error of the failed steps.
fn combine(target: Target, mut errors: Vec<PatchStepError>) -> Result<(), PatchError> {
    let Target { kind, key } = target;
    if errors.len() < 2 {
        let Some(source) = errors.pop() else {
            return Ok(());
        };
        let source = Box::new(source);
        return Err(PatchError::Step { kind, key, source });
    }
    let source = errors.into_iter().map(anyhow::Error::from).collect();
    Err(PatchError::Steps { kind, key, source })
}
