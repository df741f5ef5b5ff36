//! Cells of CRDs, cron jobs, autoscalers, quotas and CSI drivers.

use super::cells::{self, NONE, items, text};
use crate::{clock::Clock, crd};
use serde_json::Value;

/// Returns the served versions, with the storage version marked.
pub(super) fn served_versions(object: &Value, _: &Clock) -> Value {
    let served = items(object, "/spec/versions")
        .iter()
        .filter(|version| version["served"] == true);
    let cells: Vec<_> = served
        .map(|version| {
            let mark = if version["storage"] == true {
                "(storage)"
            } else {
                ""
            };
            format!("{}{mark}", text(version, "/name"))
        })
        .collect();
    cells.join(",").into()
}

pub(super) fn short_names(object: &Value, _: &Clock) -> Value {
    let names: Vec<_> = items(object, "/spec/names/shortNames")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    names.join(",").into()
}

pub(super) fn is_established(object: &Value, _: &Clock) -> Value {
    crd::status::is_established(object).into()
}

/// Returns the job template of a cron job.
fn job_template(object: &Value) -> &Value {
    &object["spec"]["jobTemplate"]
}

pub(super) fn cron_containers(object: &Value, clock: &Clock) -> Value {
    cells::containers(job_template(object), clock)
}

pub(super) fn cron_images(object: &Value, clock: &Clock) -> Value {
    cells::images(job_template(object), clock)
}

pub(super) fn cron_selector(object: &Value, clock: &Clock) -> Value {
    cells::selector(job_template(object), clock)
}

/// Returns the targets of an autoscaler. Current values are unknown, since no metrics server runs.
pub(super) fn scaler_targets(object: &Value, _: &Clock) -> Value {
    let target = |metric: &Value| {
        let (name, target) = (
            text(metric, "/resource/name"),
            &metric["resource"]["target"],
        );
        match (
            target["averageUtilization"].as_i64(),
            text(target, "/averageValue"),
        ) {
            (Some(percent), _) => format!("{name}: <unknown>/{percent}%"),
            (_, "") => "<unknown>".into(),
            (_, value) => format!("{name}: <unknown>/{value}"),
        }
    };
    let targets: Vec<_> = items(object, "/spec/metrics").iter().map(target).collect();
    if targets.is_empty() {
        NONE.into()
    } else {
        targets.join(", ").into()
    }
}

pub(super) fn scaler_min_pods(object: &Value, _: &Clock) -> Value {
    object["spec"]["minReplicas"]
        .as_i64()
        .map_or_else(|| "<unset>".into(), |count| count.to_string().into())
}

pub(super) fn scaler_max_pods(object: &Value, _: &Clock) -> Value {
    object["spec"]["maxReplicas"].clone()
}

/// Returns the used and total amounts, either of limits or of everything else.
fn quota(object: &Value, limits: bool) -> Value {
    let hard = object["status"]["hard"].as_object().into_iter().flatten();
    let cells = hard
        .filter(|(name, _)| name.starts_with("limits.") == limits)
        .map(|(name, hard)| {
            let used = object["status"]["used"][name].as_str().unwrap_or("0");
            format!("{name}: {used}/{}", hard.as_str().unwrap_or_default())
        });
    cells.collect::<Vec<_>>().join(", ").into()
}

pub(super) fn quota_requests(object: &Value, _: &Clock) -> Value {
    quota(object, false)
}

pub(super) fn quota_limits(object: &Value, _: &Clock) -> Value {
    quota(object, true)
}

pub(super) fn token_requests(object: &Value, _: &Clock) -> Value {
    let audiences: Vec<_> = items(object, "/spec/tokenRequests")
        .iter()
        .map(|it| text(it, "/audience"))
        .collect();
    if audiences.is_empty() {
        "<unset>".into()
    } else {
        audiences.join(",").into()
    }
}

pub(super) fn requires_republish(object: &Value, _: &Clock) -> Value {
    (object["spec"]["requiresRepublish"] == true).into()
}

pub(super) fn lifecycle_modes(object: &Value, _: &Clock) -> Value {
    let modes: Vec<_> = items(object, "/spec/volumeLifecycleModes")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    if modes.is_empty() {
        NONE.into()
    } else {
        modes.join(",").into()
    }
}
