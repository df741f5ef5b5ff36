//! The condition `Paused`.

use super::{
    Cluster, PatchHelper, PatchOptions, annotations,
    conditions::{self, Conditions, PAUSED},
    patch::PatchError,
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use steersman::{
    client::Client,
    conditions::{Status, new},
    object::{KubeObject, StaticKind},
};
use tracing::debug;

/// Reason of the condition `Paused` of a paused object.
pub const PAUSED_REASON: &str = "Paused";
/// Reason of the condition `Paused` of an object that is not paused.
pub const NOT_PAUSED_REASON: &str = "NotPaused";

/// Result of [`ensure_paused`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paused {
    /// Whether the object must not be reconciled.
    pub is_paused: bool,
    /// Whether the condition was written, so that an event of the object follows.
    pub was_written: bool,
}

impl Paused {
    /// Returns whether the reconciler returns now, because the object is paused or was written.
    pub fn ends_reconcile(self) -> bool {
        self.is_paused || self.was_written
    }
}

/// Returns whether the Cluster is paused by its spec, or the object by its annotation.
pub fn is_paused(cluster: Option<&Cluster>, object: &impl KubeObject) -> bool {
    cluster.is_some_and(|cluster| cluster.spec.is_paused()) || has_annotation(object)
}

/// Sets the condition `Paused` of an object, and writes it if it changed.
///
/// Call it at the start of a reconcile, with the Cluster that the object belongs to, and return if
/// [`Paused::ends_reconcile`]. If only the generation changed and the object is not paused, the
/// condition is changed in memory only, and is written with the object's next change.
///
/// ```no_run
/// # use steersman::{prelude::*, reconcile::{Context, Result}};
/// use steersman_controllers::cluster_api::{ensure_paused, Cluster};
///
/// # async fn example(client: Client, mut cluster: Cluster, cx: &Context) -> Result<Outcome> {
/// let of = cluster.clone();
/// if ensure_paused(&client, Some(&of), &mut cluster, cx.now()).await?.ends_reconcile() {
///     return Ok(Outcome::done());
/// }
/// # Ok(Outcome::done())
/// # }
/// ```
pub async fn ensure_paused<K: StaticKind + Conditions>(
    client: &Client,
    cluster: Option<&Cluster>,
    object: &mut K,
    now: Timestamp,
) -> Result<Paused, PatchError> {
    let condition = condition(cluster, object, now);
    let is_paused = condition.status == Status::True.as_str();
    let unwritten = Paused {
        is_paused,
        was_written: false,
    };
    let old = conditions::find(object, PAUSED);
    if old.is_none_or(|old| old.status != condition.status) {
        let (kind, meta) = (K::kind(&()), object.meta());
        let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
        debug!(%kind, namespace, name, is_paused, "pause of reconciliation changed");
    }
    if let Some(old) = old {
        if conditions::has_same_state(old, &condition) {
            return Ok(unwritten);
        }
        if !is_paused && conditions::has_same_state_except_generation(old, &condition) {
            conditions::set(object, condition);
            return Ok(unwritten);
        }
    }
    let helper = PatchHelper::new(client, object);
    conditions::set(object, condition);
    let options = PatchOptions {
        owned: &[PAUSED],
        ..PatchOptions::default()
    };
    helper.patch(object, &options).await?;
    Ok(Paused {
        is_paused,
        was_written: true,
    })
}

fn condition<K: StaticKind>(cluster: Option<&Cluster>, object: &K, now: Timestamp) -> Condition {
    let mut messages = Vec::new();
    if cluster.is_some_and(|cluster| cluster.spec.is_paused()) {
        messages.push("Cluster spec.paused is set to true".to_owned());
    }
    if has_annotation(object) {
        let (kind, annotation) = (K::kind(&()), annotations::PAUSED);
        messages.push(format!("{kind} has the {annotation} annotation"));
    }
    let condition = if messages.is_empty() {
        new(PAUSED, Status::False, NOT_PAUSED_REASON, "", now)
    } else {
        new(
            PAUSED,
            Status::True,
            PAUSED_REASON,
            messages.join(", "),
            now,
        )
    };
    Condition {
        observed_generation: object.meta().generation,
        ..condition
    }
}

fn has_annotation(object: &impl KubeObject) -> bool {
    let annotations = object.meta().annotations.as_ref();
    annotations.is_some_and(|annotations| annotations.contains_key(annotations::PAUSED))
}
