//! Fields of the status that all external objects have.

use super::{
    Error, Failed,
    field::{FieldError, boolean, text},
    group_kind::{parse_gvk, print_gvk},
};
use kube::core::DynamicObject;
use std::{sync::Arc, time::Duration};

/// Returns `status.failureReason` and `status.failureMessage`, empty if they are missing.
///
/// # Errors
/// One of them is not a string, or the status is not a map.
pub fn failures_from(object: &DynamicObject) -> Result<(String, String), Error> {
    let read = |field| {
        text(object, &["status", field])
            .map(|text| text.unwrap_or_default().to_owned())
            .map_err(|error| {
                let (kind, name) = describe(object);
                undetermined(
                    format!("failed to determine {field} on {kind} {name}"),
                    error,
                )
            })
    };
    Ok((read("failureReason")?, read("failureMessage")?))
}

/// Returns whether `status.ready` is true. A missing field counts as false.
///
/// # Errors
/// The field is not a boolean, or the status is not a map.
pub fn is_ready(object: &DynamicObject) -> Result<bool, Error> {
    let ready = boolean(object, &["status", "ready"]).map_err(|error| {
        let (kind, name) = describe(object);
        undetermined(
            format!("failed to determine {kind} {name} readiness"),
            error,
        )
    })?;
    Ok(ready.unwrap_or_default())
}

fn undetermined(context: String, error: FieldError) -> Error {
    Error::Field(Failed::new(context, error))
}

/// Returns group, version, kind and the quoted name of an object.
pub(super) fn describe(object: &DynamicObject) -> (String, String) {
    let types = object.types.clone().unwrap_or_default();
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let kind = parse_gvk(&types.api_version, &types.kind);
    (print_gvk(&kind), format!("{name:?}"))
}

/// Result of the reconciliation of an external object.
///
/// ```
/// use std::time::Duration;
/// use steersman::prelude::*;
/// use steersman_controllers::external::ReconcileOutput;
///
/// let waits = ReconcileOutput { requeue_after: Duration::from_secs(30), result: None };
/// assert_eq!(Outcome::from(&waits), Outcome::requeue_after(Duration::from_secs(30)));
/// assert_eq!(Outcome::from(&ReconcileOutput::default()), Outcome::done());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReconcileOutput {
    /// Time after which to reconcile again. Zero: not before the next event.
    pub requeue_after: Duration,
    /// The object, if it exists.
    pub result: Option<Arc<DynamicObject>>,
}

impl From<&ReconcileOutput> for steersman::reconcile::Outcome {
    fn from(output: &ReconcileOutput) -> Self {
        if output.requeue_after.is_zero() {
            Self::done()
        } else {
            Self::requeue_after(output.requeue_after)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object(content: Value) -> DynamicObject {
        let mut object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"},
        }))
        .expect("an object");
        object.data = content;
        object
    }

    #[test]
    fn failures_of_an_object_without_them_are_empty() {
        for content in [json!({}), json!({"status": {}}), json!({"status": null})] {
            let failures = failures_from(&object(content)).expect("no failures");
            assert_eq!(failures, (String::new(), String::new()));
        }
        let failed =
            json!({"status": {"failureReason": "Broken", "failureMessage": "no \"disk\""}});
        let failures = failures_from(&object(failed)).expect("failures");
        assert_eq!(failures, ("Broken".to_owned(), "no \"disk\"".to_owned()));
    }

    #[test]
    fn a_failure_that_is_not_a_string_is_an_error() {
        let text = |status| {
            let error = failures_from(&object(json!({ "status": status })));
            error.expect_err("an invalid status").to_string()
        };
        assert_eq!(
            text(json!({"failureReason": 7})),
            "failed to determine failureReason on example.com/v1, Kind=Thing \"a\": \
             .status.failureReason accessor error: 7 is of the type int64, expected string"
        );
        assert_eq!(
            text(json!({"failureMessage": {"a": true}})),
            "failed to determine failureMessage on example.com/v1, Kind=Thing \"a\": \
             .status.failureMessage accessor error: map[a:true] is of the type map[string]interface \
             {}, expected string"
        );
        assert_eq!(
            text(json!([])),
            "failed to determine failureReason on example.com/v1, Kind=Thing \"a\": \
             .status.failureReason accessor error: [] is of the type []interface {}, expected \
             map[string]interface{}"
        );
    }

    #[test]
    fn an_object_is_ready_if_the_field_is_true() {
        let ready = |content| is_ready(&object(content)).expect("a valid status");
        assert!(ready(json!({"status": {"ready": true}})));
        assert!(!ready(json!({"status": {"ready": false}})));
        assert!(!ready(json!({"status": {}})) && !ready(json!({})));
        assert!(!ready(json!({"status": null})));
    }

    #[test]
    fn a_readiness_that_is_not_a_boolean_is_an_error() {
        let text = |content| {
            is_ready(&content)
                .expect_err("an invalid status")
                .to_string()
        };
        assert_eq!(
            text(object(json!({"status": {"ready": "true"}}))),
            "failed to determine example.com/v1, Kind=Thing \"a\" readiness: .status.ready accessor \
             error: true is of the type string, expected bool"
        );
        let mut untyped = object(json!({"status": "up"}));
        untyped.types = None;
        untyped.metadata.name = None;
        assert_eq!(
            text(untyped),
            "failed to determine /, Kind= \"\" readiness: .status.ready accessor error: up is of \
             the type string, expected map[string]interface{}"
        );
    }
}
