//! Predicate that drops the events of the controller's own failure reports.
//!
//! A failure can have another message each time, because the message contains texts from the
//! extension. If the event of this status write caused a reconcile, the controller would call the
//! extension again without the delay of a retry.

use super::{ExtensionConfig, discovered::DISCOVERED};
use crate::cluster_api::conditions::{self, PAUSED};
use steersman::{event::Event, predicate::Predicate};

/// Predicate that drops updates which only report a failed discovery.
///
/// Resyncs pass. Objects that cannot be decoded also pass, because an unnecessary reconcile is
/// harmless.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotFailureReport;

impl Predicate<ExtensionConfig> for NotFailureReport {
    fn accepts(&self, event: &Event<ExtensionConfig>) -> bool {
        let Event::Update { old, new } = event else {
            return true;
        };
        match (old.decode(), new.decode()) {
            (Ok(old), Ok(new)) => !is_failure_report(&old, &new),
            _ => true,
        }
    }
}

/// Returns whether `new` reports a failure, and has no other change that requires a reconcile.
fn is_failure_report(old: &ExtensionConfig, new: &ExtensionConfig) -> bool {
    let (before, after) = (&old.metadata, &new.metadata);
    let is_status_write = before.resource_version != after.resource_version
        && before.uid == after.uid
        && before.generation == after.generation
        && before.labels == after.labels
        && before.annotations == after.annotations
        && before.deletion_timestamp == after.deletion_timestamp;
    let status = |config, kind| conditions::find(config, kind).map(|it| it.status.clone());
    is_status_write
        && status(new, DISCOVERED).as_deref() == Some("False")
        && status(old, PAUSED) == status(new, PAUSED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn config(version: &str, discovered: &str, changes: &Value) -> ExtensionConfig {
        let condition = |kind: &str, status: &str, message: &str| {
            json!({
                "type": kind, "status": status, "reason": "Tested", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let mut config = json!({
            "metadata": {"name": "mine", "uid": "1", "generation": 1, "resourceVersion": version},
            "spec": {"clientConfig": {"url": "https://example.com"}},
            "status": {"conditions": [
                condition(DISCOVERED, discovered, version),
                condition(PAUSED, "False", ""),
            ]},
        });
        for (path, value) in changes.as_object().into_iter().flatten() {
            *config.pointer_mut(path).expect("a field") = value.clone();
        }
        serde_json::from_value(config).expect("a valid object")
    }

    fn passes(new: ExtensionConfig) -> bool {
        let old = config("1", "True", &json!({}));
        NotFailureReport.accepts(&Event::update(old, new))
    }

    #[test]
    fn only_the_report_of_a_failure_is_dropped() {
        assert!(!passes(config("2", "False", &json!({}))));
        assert!(passes(config("2", "True", &json!({}))), "a success");
        assert!(passes(config("1", "False", &json!({}))), "a resync");
        let metadata = |change: Value| {
            let mut metadata = json!({
                "name": "mine", "uid": "1", "generation": 1, "resourceVersion": "2",
            });
            for (key, value) in change.as_object().into_iter().flatten() {
                metadata[key] = value.clone();
            }
            json!({"/metadata": metadata})
        };
        for change in [
            json!({"uid": "2"}),
            json!({"generation": 2}),
            json!({"labels": {"a": "b"}}),
            json!({"annotations": {"a": "b"}}),
            json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        ] {
            assert!(
                passes(config("2", "False", &metadata(change.clone()))),
                "{change}"
            );
        }
        let paused = json!({"/status/conditions/1/status": "True"});
        assert!(passes(config("2", "False", &paused)), "a pause");
    }

    #[test]
    fn creations_and_deletions_pass() {
        let failed = || config("2", "False", &json!({}));
        assert!(NotFailureReport.accepts(&Event::create(failed())));
        assert!(NotFailureReport.accepts(&Event::delete(failed())));
    }
}
