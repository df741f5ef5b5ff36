//! Status conditions: `metav1.Condition` in a list with one entry per type.
//!
//! The functions follow the rules of `meta.SetStatusCondition` and its neighbours in Go: the time
//! of the last transition changes only when the status of the condition changes.
//!
//! ```
//! use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
//! use steersman::{
//!     conditions::{self, Status},
//!     reconcile::Context,
//! };
//!
//! fn mark_ready(conditions: &mut Vec<Condition>, generation: Option<i64>, cx: &Context) -> bool {
//!     let ready = conditions::new("Ready", Status::True, "Deployed", "all replicas run", cx.now());
//!     conditions::set(conditions, Condition { observed_generation: generation, ..ready })
//! }
//!
//! let mut conditions = Vec::new();
//! assert!(mark_ready(&mut conditions, Some(1), &Context::default()));
//! assert!(!mark_ready(&mut conditions, Some(1), &Context::default()), "nothing to write");
//! assert!(conditions::is_true(&conditions, "Ready"));
//! ```

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use std::fmt;

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The controller cannot tell whether the condition holds.
    Unknown,
}

impl Status {
    /// Returns the text that the API uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Status {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Creates a condition whose status changed at `now`, without an observed generation.
///
/// Pass [`Context::now`](crate::reconcile::Context::now) as `now`, so that tests on a paused clock
/// see the times they expect. The API server requires a `reason` in CamelCase.
pub fn new(
    type_: impl Into<String>,
    status: impl Into<Status>,
    reason: impl Into<String>,
    message: impl Into<String>,
    now: Timestamp,
) -> Condition {
    Condition {
        type_: type_.into(),
        status: status.into().as_str().into(),
        reason: reason.into(),
        message: message.into(),
        last_transition_time: Time(now),
        observed_generation: None,
    }
}

/// Adds a condition, or updates the one of its type. Returns whether anything changed.
///
/// The existing `lastTransitionTime` stays unless the status changes. It does not count as a change
/// by itself, so a reconciler that writes only when this function returns `true` does not write the
/// same status again.
pub fn set(conditions: &mut Vec<Condition>, condition: Condition) -> bool {
    let existing = conditions
        .iter_mut()
        .find(|existing| existing.type_ == condition.type_);
    let Some(existing) = existing else {
        conditions.push(condition);
        return true;
    };
    let last_transition_time = if existing.status == condition.status {
        existing.last_transition_time.clone()
    } else {
        condition.last_transition_time.clone()
    };
    let updated = Condition {
        last_transition_time,
        ..condition
    };
    let changed = *existing != updated;
    *existing = updated;
    changed
}

/// Returns the condition of a type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Removes the condition of a type. Returns whether there was one.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.len() < before
}

/// Returns whether the condition of a type exists and is `True`.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    has_status(conditions, type_, Status::True)
}

/// Returns whether the condition of a type exists and is `False`.
pub fn is_false(conditions: &[Condition], type_: &str) -> bool {
    has_status(conditions, type_, Status::False)
}

fn has_status(conditions: &[Condition], type_: &str, status: Status) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == status.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a valid timestamp")
    }

    fn ready(status: Status, reason: &str, second: i64) -> Condition {
        new("Ready", status, reason, "a message", at(second))
    }

    #[test]
    fn a_condition_of_a_new_type_is_appended() {
        let mut conditions = vec![new("Paused", false, "Running", "", at(1))];
        assert!(set(&mut conditions, ready(Status::True, "Deployed", 2)));
        assert_eq!(conditions.len(), 2);
        assert_eq!(conditions[1].last_transition_time.0, at(2));
    }

    #[test]
    fn the_transition_time_changes_with_the_status_only() {
        let mut conditions = vec![ready(Status::True, "Deployed", 1)];

        assert!(set(&mut conditions, ready(Status::True, "Scaled", 2)));
        assert_eq!(conditions[0].reason, "Scaled");
        assert_eq!(conditions[0].last_transition_time.0, at(1));

        assert!(set(&mut conditions, ready(Status::False, "Scaled", 3)));
        assert_eq!(conditions[0].status, "False");
        assert_eq!(conditions[0].last_transition_time.0, at(3));
        assert_eq!(conditions.len(), 1);
    }

    #[test]
    fn a_later_time_alone_is_not_a_change() {
        let mut conditions = vec![ready(Status::True, "Deployed", 1)];
        let before = conditions.clone();
        assert!(!set(&mut conditions, ready(Status::True, "Deployed", 9)));
        assert_eq!(conditions, before);
    }

    #[test]
    fn the_message_and_the_observed_generation_count_as_changes() {
        let mut conditions = vec![ready(Status::True, "Deployed", 1)];
        let message = Condition {
            message: "another".into(),
            ..ready(Status::True, "Deployed", 2)
        };
        assert!(set(&mut conditions, message.clone()));
        let generation = Condition {
            observed_generation: Some(7),
            ..message
        };
        assert!(set(&mut conditions, generation));
        assert_eq!(conditions[0].observed_generation, Some(7));
        assert_eq!(conditions[0].last_transition_time.0, at(1));
    }

    #[test]
    fn a_removed_condition_is_not_found() {
        let mut conditions = vec![ready(Status::Unknown, "Waiting", 1)];
        assert!(!is_true(&conditions, "Ready") && !is_false(&conditions, "Ready"));
        assert!(!remove(&mut conditions, "Paused"));
        assert!(remove(&mut conditions, "Ready"));
        assert_eq!(find(&conditions, "Ready"), None);
    }
}
