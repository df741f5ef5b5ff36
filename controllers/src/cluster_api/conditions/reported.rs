//! Conditions of objects whose type is not known.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kube::core::DynamicObject;
use serde_json::{Map, Value};

/// Reason of a condition that was reported without one.
pub const NO_REASON_REPORTED: &str = "NoReasonReported";

/// Error of [`reported`]: an entry of the list is not a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to convert {path} from {kind} to []metav1.Condition: {reason}")]
pub struct InvalidCondition {
    path: &'static str,
    kind: String,
    reason: String,
}

/// Returns the conditions of an object, whichever API version of Cluster API it follows.
///
/// They are read from `status.v1beta2.conditions` if that is a list, else from `status.conditions`.
/// Entries of the deprecated format are converted. An entry that is not a map is skipped, a missing
/// reason becomes [`NO_REASON_REPORTED`], and a missing time becomes `now`.
///
/// # Errors
/// If an entry has no valid type, status or time.
pub fn reported(
    object: &DynamicObject,
    now: Timestamp,
) -> Result<Vec<Condition>, InvalidCondition> {
    let places = [
        ("status.v1beta2.conditions", "/status/v1beta2/conditions"),
        ("status.conditions", "/status/conditions"),
    ];
    for (path, pointer) in places {
        let Some(Value::Array(entries)) = object.data.pointer(pointer) else {
            continue;
        };
        let conditions = entries.iter().filter_map(Value::as_object);
        let conditions: Result<_, String> = conditions.map(|entry| condition(entry, now)).collect();
        return conditions.map_err(|reason| InvalidCondition {
            path,
            kind: kind(object),
            reason,
        });
    }
    Ok(Vec::new())
}

fn kind(object: &DynamicObject) -> String {
    let types = object.types.as_ref();
    types.map(|types| types.kind.clone()).unwrap_or_default()
}

fn condition(entry: &Map<String, Value>, now: Timestamp) -> Result<Condition, String> {
    let type_ = text(entry, "type")?;
    if type_.is_empty() {
        return Err("type must be set for all conditions".into());
    }
    let status = text(entry, "status")?;
    if status.is_empty() {
        return Err(format!("status must be set for the {type_} condition"));
    }
    if !["True", "False", "Unknown"].contains(&status) {
        return Err(format!(
            "status for the {type_} condition must be one of True, False, Unknown"
        ));
    }
    let time = match text(entry, "lastTransitionTime")? {
        "" | "null" => now,
        time => time.parse().map_err(|error| {
            format!("failed to unmarshal lastTransitionTime value: {time}: {error}")
        })?,
    };
    let reason = match text(entry, "reason")? {
        "" => NO_REASON_REPORTED,
        reason => reason,
    };
    Ok(Condition {
        type_: type_.into(),
        status: status.into(),
        observed_generation: entry.get("observedGeneration").and_then(Value::as_i64),
        last_transition_time: Time(time),
        reason: reason.into(),
        message: text(entry, "message")?.into(),
    })
}

/// Returns the text of a field; empty if it is missing or null.
fn text<'a>(entry: &'a Map<String, Value>, field: &str) -> Result<&'a str, String> {
    match entry.get(field) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(format!(
            "{field} must be a string for all conditions, found {other}"
        )),
    }
}
