//! Conditions in the format of v1beta1, which later API versions will not have.
//!
//! They have a severity, and their time changes with any change of the condition. `Ready` comes
//! first, the others are sorted by type.
//!
//! ```
//! use steersman::reconcile::Context;
//! use steersman_controllers::cluster_api::{deprecated::{self, Severity}, Cluster};
//!
//! # let cx = Context::default();
//! let mut cluster: Cluster = serde_json::from_value(serde_json::json!({
//!     "metadata": {"name": "shop"}, "spec": {"paused": false},
//! }))?;
//! let reason = "WaitingForInfrastructure";
//! deprecated::mark_false(&mut cluster, "InfrastructureReady", reason, Severity::Info, "", cx.now());
//! deprecated::mark_true(&mut cluster, "ControlPlaneReady", cx.now());
//! let types = ["ControlPlaneReady", "InfrastructureReady"];
//! deprecated::set_summary(&mut cluster, &deprecated::Summary { types: Some(&types), ..Default::default() }, cx.now());
//! let ready = deprecated::find(&cluster, "Ready").expect("the summary");
//! assert_eq!((&*ready.status, &*ready.reason), ("False", reason));
//! # Ok::<_, serde_json::Error>(())
//! ```

mod mirror;
mod reported;
mod summary;

pub use self::{
    mirror::{mirror, set_mirror},
    reported::reported,
    summary::{Summary, set_summary, summary},
};
use super::conditions::{Conditions, whole_seconds};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use steersman::conditions::Status;

/// Type of the condition that summarizes the others.
pub const READY: &str = "Ready";

/// Condition in the format of v1beta1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeprecatedCondition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// Status: `True`, `False` or `Unknown`.
    pub status: String,
    /// Severity, if the status is False.
    #[serde(skip_serializing_if = "Severity::is_none")]
    pub severity: Severity,
    /// Time of the last change of another field. [`set`] fills it in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Reason in CamelCase.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Message for users.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Severity of a deprecated condition whose status is False.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Severity {
    /// The status is not False, or its severity is not known.
    #[default]
    #[serde(rename = "")]
    None,
    /// Informative.
    Info,
    /// Warning.
    Warning,
    /// Error.
    Error,
    /// Severity that Cluster API does not define.
    #[serde(untagged)]
    Other(String),
}

impl Severity {
    fn is_none(&self) -> bool {
        *self == Self::None
    }
}

impl DeprecatedCondition {
    /// Creates a condition with the status True.
    pub fn met(type_: impl Into<String>) -> Self {
        Self::with_status(type_, Status::True)
    }

    /// Creates a condition with the status False.
    pub fn unmet(
        type_: impl Into<String>,
        reason: impl Into<String>,
        severity: Severity,
        message: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            reason: reason.into(),
            message: message.into(),
            ..Self::with_status(type_, Status::False)
        }
    }

    /// Creates a condition with the status Unknown.
    pub fn unknown(
        type_: impl Into<String>,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            reason: reason.into(),
            message: message.into(),
            ..Self::with_status(type_, Status::Unknown)
        }
    }

    fn with_status(type_: impl Into<String>, status: Status) -> Self {
        Self {
            type_: type_.into(),
            status: status.as_str().into(),
            ..Self::default()
        }
    }
}

/// Adds a condition, or updates the one of its type. Does nothing if the kind has no list.
///
/// The time becomes `now` if anything else changes, and is kept otherwise. A condition of a new
/// type keeps the time that it has.
pub fn set(object: &mut impl Conditions, condition: DeprecatedCondition, now: Timestamp) {
    if let Some(list) = object.deprecated_conditions_mut() {
        set_in(list, condition, Some(Time(whole_seconds(now))));
    }
}

pub(super) fn set_in(
    list: &mut Vec<DeprecatedCondition>,
    condition: DeprecatedCondition,
    now: Option<Time>,
) {
    let existing = list
        .iter_mut()
        .find(|existing| existing.type_ == condition.type_);
    match existing {
        Some(existing) if has_same_state(existing, &condition) => {}
        Some(existing) => {
            *existing = DeprecatedCondition {
                last_transition_time: now,
                ..condition
            };
        }
        None => list.push(DeprecatedCondition {
            last_transition_time: condition.last_transition_time.clone().or(now),
            ..condition
        }),
    }
    sort(list);
}

/// Sets a condition to True.
pub fn mark_true(object: &mut impl Conditions, type_: &str, now: Timestamp) {
    set(object, DeprecatedCondition::met(type_), now);
}

/// Sets a condition to False.
pub fn mark_false(
    object: &mut impl Conditions,
    type_: &str,
    reason: &str,
    severity: Severity,
    message: impl Into<String>,
    now: Timestamp,
) {
    let condition = DeprecatedCondition::unmet(type_, reason, severity, message);
    set(object, condition, now);
}

/// Sets a condition to Unknown.
pub fn mark_unknown(
    object: &mut impl Conditions,
    type_: &str,
    reason: &str,
    message: impl Into<String>,
    now: Timestamp,
) {
    set(
        object,
        DeprecatedCondition::unknown(type_, reason, message),
        now,
    );
}

/// Removes the condition of a type. Returns whether there was one.
pub fn remove(object: &mut impl Conditions, type_: &str) -> bool {
    if find(object, type_).is_none() {
        return false;
    }
    if let Some(list) = object.deprecated_conditions_mut() {
        list.retain(|condition| condition.type_ != type_);
    }
    true
}

/// Returns the condition of a type.
pub fn find<'a>(object: &'a impl Conditions, type_: &str) -> Option<&'a DeprecatedCondition> {
    find_in(object.deprecated_conditions(), type_)
}

fn find_in<'a>(list: &'a [DeprecatedCondition], type_: &str) -> Option<&'a DeprecatedCondition> {
    list.iter().find(|condition| condition.type_ == type_)
}

/// Returns whether the condition of a type exists and is True.
pub fn is_true(object: &impl Conditions, type_: &str) -> bool {
    find(object, type_).is_some_and(|condition| condition.status == "True")
}

/// Returns whether the condition of a type exists and is False.
pub fn is_false(object: &impl Conditions, type_: &str) -> bool {
    find(object, type_).is_some_and(|condition| condition.status == "False")
}

/// Returns whether the condition of a type is Unknown or does not exist.
pub fn is_unknown(object: &impl Conditions, type_: &str) -> bool {
    find(object, type_).is_none_or(|condition| condition.status == "Unknown")
}

/// Returns whether two conditions differ at most in their time.
pub fn has_same_state(one: &DeprecatedCondition, other: &DeprecatedCondition) -> bool {
    one.type_ == other.type_
        && one.status == other.status
        && one.severity == other.severity
        && one.reason == other.reason
        && one.message == other.message
}

/// Sorts conditions: `Ready` first, the others by type.
pub fn sort(conditions: &mut [DeprecatedCondition]) {
    conditions.sort_by(|one, other| compare(&one.type_, &other.type_));
}

fn compare(one: &str, other: &str) -> Ordering {
    let key = |type_: &str| type_ != READY;
    key(one).cmp(&key(other)).then_with(|| one.cmp(other))
}
