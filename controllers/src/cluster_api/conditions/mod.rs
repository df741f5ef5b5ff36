//! Conditions of Cluster API objects: `metav1.Condition` in `status.conditions`.
//!
//! The functions have the rules of Cluster API on top of those of [`steersman::conditions`]:
//! [`set`] fills `observedGeneration`, cuts the time to whole seconds, and sorts the list. A
//! missing condition counts as `Unknown`.
//!
//! | for | use |
//! |---|---|
//! | setting a condition | [`set`], [`remove`] |
//! | reading a condition | [`find`], [`is_true`], [`is_false`], [`is_unknown`] |
//! | showing the condition of another object | [`mirror`], after [`reported`] for a dynamic object |
//! | summarizing conditions of the same object | [`summary`] |
//! | writing conditions | [`PatchHelper`](super::PatchHelper) |
//!
//! ```
//! use steersman::{conditions::{new, Status}, reconcile::Context};
//! use steersman_controllers::cluster_api::{conditions::{self, INFRASTRUCTURE_READY, PAUSED}, Cluster};
//!
//! # let cx = Context::default();
//! let mut cluster: Cluster = serde_json::from_value(serde_json::json!({
//!     "metadata": {"name": "shop", "generation": 3}, "spec": {"paused": false},
//! }))?;
//! conditions::set(&mut cluster, new(PAUSED, Status::False, "NotPaused", "", cx.now()));
//! conditions::set(&mut cluster, new(INFRASTRUCTURE_READY, Status::True, "Ready", "", cx.now()));
//! let conditions = &cluster.status.as_ref().unwrap().conditions;
//! assert_eq!([&*conditions[0].type_, &*conditions[1].type_], [INFRASTRUCTURE_READY, PAUSED]);
//! assert_eq!(conditions[0].observed_generation, Some(3));
//! # Ok::<_, serde_json::Error>(())
//! ```

mod mirror;
mod order;
mod reported;
mod summary;

pub use self::{
    mirror::{Fallback, NOT_YET_REPORTED, mirror},
    order::sort,
    reported::{InvalidCondition, NO_REASON_REPORTED, reported},
    summary::{SummaryOptions, SummaryReasons, summary},
};
use super::DeprecatedCondition;
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use steersman::{conditions, object::KubeObject};

/// Type of the condition that summarizes whether an object is available.
pub const AVAILABLE: &str = "Available";
/// Type of the condition that summarizes whether an object is ready.
pub const READY: &str = "Ready";
/// Type of the condition that mirrors the readiness of the infrastructure.
pub const INFRASTRUCTURE_READY: &str = "InfrastructureReady";
/// Type of the condition that reports whether the control plane accepted requests once.
pub const CONTROL_PLANE_INITIALIZED: &str = "ControlPlaneInitialized";
/// Type of the condition that mirrors the availability of the control plane.
pub const CONTROL_PLANE_AVAILABLE: &str = "ControlPlaneAvailable";
/// Type of the condition that reports whether reconciliation is paused.
pub const PAUSED: &str = "Paused";
/// Type of the condition that reports the progress of a deletion.
pub const DELETING: &str = "Deleting";

/// Object with conditions, in the current and possibly in the deprecated format.
///
/// Implement it for a kind to set its conditions with the functions of this module and of
/// [`deprecated`](super::deprecated), and to write them with the
/// [`PatchHelper`](super::PatchHelper). The implementation decides where in the object the lists
/// are.
pub trait Conditions {
    /// Returns the conditions.
    fn conditions(&self) -> &[Condition];

    /// Returns the conditions, and creates the status if necessary.
    fn conditions_mut(&mut self) -> &mut Vec<Condition>;

    /// Returns the deprecated conditions. Default: none.
    fn deprecated_conditions(&self) -> &[DeprecatedCondition] {
        &[]
    }

    /// Returns the deprecated conditions, and creates their parents if necessary.
    ///
    /// `None` if the kind has no such list, which is the default.
    fn deprecated_conditions_mut(&mut self) -> Option<&mut Vec<DeprecatedCondition>> {
        None
    }
}

/// Adds a condition, or updates the one of its type. Returns whether anything changed.
///
/// `observedGeneration` becomes the generation of the object. The time of a condition whose status
/// does not change is kept, also if `condition` has another one. The list is sorted if anything
/// changed.
pub fn set(object: &mut (impl KubeObject + Conditions), condition: Condition) -> bool {
    let observed_generation = object
        .meta()
        .generation
        .filter(|generation| *generation != 0);
    let condition = Condition {
        observed_generation,
        ..condition
    };
    let list = object.conditions_mut();
    let changed = set_in(list, condition);
    if changed {
        sort(list);
    }
    changed
}

/// Adds or updates a condition. Cuts its time to whole seconds, as the API server stores it.
pub(super) fn set_in(list: &mut Vec<Condition>, condition: Condition) -> bool {
    let Time(time) = condition.last_transition_time;
    let condition = Condition {
        last_transition_time: Time(whole_seconds(time)),
        ..condition
    };
    conditions::set(list, condition)
}

/// Returns the time without its fraction of a second.
pub(super) fn whole_seconds(time: Timestamp) -> Timestamp {
    // Cannot fail: the seconds are those of a valid time.
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Removes the condition of a type. Returns whether there was one.
pub fn remove(object: &mut impl Conditions, type_: &str) -> bool {
    find(object, type_).is_some() && conditions::remove(object.conditions_mut(), type_)
}

/// Returns the condition of a type.
pub fn find<'a>(object: &'a impl Conditions, type_: &str) -> Option<&'a Condition> {
    conditions::find(object.conditions(), type_)
}

/// Returns whether the condition of a type exists and is `True`.
pub fn is_true(object: &impl Conditions, type_: &str) -> bool {
    conditions::is_true(object.conditions(), type_)
}

/// Returns whether the condition of a type exists and is `False`.
pub fn is_false(object: &impl Conditions, type_: &str) -> bool {
    conditions::is_false(object.conditions(), type_)
}

/// Returns whether the condition of a type is `Unknown` or does not exist.
pub fn is_unknown(object: &impl Conditions, type_: &str) -> bool {
    find(object, type_).is_none_or(|condition| condition.status == "Unknown")
}

/// Returns whether two conditions differ at most in their time.
pub fn has_same_state(one: &Condition, other: &Condition) -> bool {
    has_same_state_except_generation(one, other)
        && one.observed_generation.unwrap_or_default()
            == other.observed_generation.unwrap_or_default()
}

/// Returns whether two conditions differ at most in their time and observed generation.
pub fn has_same_state_except_generation(one: &Condition, other: &Condition) -> bool {
    one.type_ == other.type_
        && one.status == other.status
        && one.reason == other.reason
        && one.message == other.message
}
