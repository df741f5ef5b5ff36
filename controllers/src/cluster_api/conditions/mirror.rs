//! Conditions that repeat the condition of another object.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use steersman::conditions::{self, Status};

/// Reason of a mirrored condition that the other object does not have.
pub const NOT_YET_REPORTED: &str = "NotYetReported";

/// State of a mirrored condition that the other object does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// Status of the condition.
    pub status: Status,
    /// Reason of the condition.
    pub reason: String,
    /// Message of the condition.
    pub message: String,
}

/// Returns a condition of type `target` with the state of the condition `type_` in `source`.
///
/// The time is that of the source. If the source does not have the condition, the result has the
/// state of `fallback`, or without one is `Unknown` with the reason [`NOT_YET_REPORTED`], both with
/// the time `now`.
///
/// ```
/// use steersman::{conditions::{new, Status}, reconcile::Context};
/// use steersman_controllers::cluster_api::conditions::{mirror, INFRASTRUCTURE_READY, READY};
///
/// # let cx = Context::default();
/// let source = [new(READY, Status::True, "Created", "3 networks", cx.now())];
/// let mirrored = mirror(&source, READY, INFRASTRUCTURE_READY, None, cx.now());
/// assert_eq!((&*mirrored.status, &*mirrored.reason), ("True", "Created"));
/// let missing = mirror(&[], READY, INFRASTRUCTURE_READY, None, cx.now());
/// assert_eq!(missing.message, "Condition Ready not yet reported");
/// ```
pub fn mirror(
    source: &[Condition],
    type_: &str,
    target: &str,
    fallback: Option<Fallback>,
    now: Timestamp,
) -> Condition {
    if let Some(condition) = conditions::find(source, type_) {
        return Condition {
            type_: target.into(),
            // `set` fills in the generation of the target.
            observed_generation: None,
            ..condition.clone()
        };
    }
    let fallback = fallback.unwrap_or_else(|| Fallback {
        status: Status::Unknown,
        reason: NOT_YET_REPORTED.into(),
        message: format!("Condition {type_} not yet reported"),
    });
    conditions::new(
        target,
        fallback.status,
        fallback.reason,
        fallback.message,
        now,
    )
}
