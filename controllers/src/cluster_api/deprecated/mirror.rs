//! Deprecated conditions that repeat the `Ready` condition of another object.

use super::{DeprecatedCondition, READY, find_in, set};
use crate::cluster_api::conditions::Conditions;
use k8s_openapi::jiff::Timestamp;

/// Returns a condition of type `target` with the state and time of `Ready` in `source`.
///
/// If the source has no `Ready`, the result is `fallback` under the type `target`. Without a
/// fallback there is none.
pub fn mirror(
    source: &[DeprecatedCondition],
    target: &str,
    fallback: Option<DeprecatedCondition>,
) -> Option<DeprecatedCondition> {
    let condition = find_in(source, READY).cloned().or(fallback)?;
    Some(DeprecatedCondition {
        type_: target.into(),
        ..condition
    })
}

/// Sets the result of [`mirror`], if there is one.
///
/// ```
/// use steersman::reconcile::Context;
/// use steersman_controllers::cluster_api::{deprecated::{self, DeprecatedCondition, Severity}, Cluster};
///
/// # let cx = Context::default();
/// # let mut cluster: Cluster = serde_json::from_value(serde_json::json!({"metadata": {}, "spec": {}}))?;
/// let fallback = DeprecatedCondition::unmet("", "WaitingForInfrastructure", Severity::Info, "");
/// deprecated::set_mirror(&mut cluster, "InfrastructureReady", &[], Some(fallback), cx.now());
/// assert!(deprecated::is_false(&cluster, "InfrastructureReady"));
/// # Ok::<_, serde_json::Error>(())
/// ```
pub fn set_mirror(
    object: &mut impl Conditions,
    target: &str,
    source: &[DeprecatedCondition],
    fallback: Option<DeprecatedCondition>,
    now: Timestamp,
) {
    if let Some(condition) = mirror(source, target, fallback) {
        set(object, condition, now);
    }
}
