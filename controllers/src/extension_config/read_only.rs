//! Read-only mode: checks that another process has discovered the handlers in the status.

use super::{ExtensionConfig, discovered::DISCOVERED};
use crate::cluster_api::conditions::{self, PAUSED};

/// Reason why an `ExtensionConfig` is not registered.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotDiscovered {
    #[error("caBundle is not set on ExtensionConfig {0}")]
    NoCaBundle(String),
    #[error("Discovered condition not yet set on ExtensionConfig {0}")]
    NoCondition(String),
    #[error(
        "Discovered condition on ExtensionConfig {name} must have status: True (instead it has: {status})"
    )]
    Status { name: String, status: String },
    #[error(
        "Discovered condition on ExtensionConfig {name} must have observedGeneration: {generation} \
         (instead it has: {observed})"
    )]
    Generation {
        name: String,
        generation: i64,
        observed: i64,
    },
}

/// Returns whether the process that discovers extensions has reported a pause.
///
/// Ignores the annotation, because that process may not have observed it yet.
pub(super) fn is_paused(config: &ExtensionConfig) -> bool {
    conditions::is_true(config, PAUSED)
}

/// Checks that the handlers in the status were discovered for the current spec.
pub(super) fn validate(config: &ExtensionConfig) -> Result<(), NotDiscovered> {
    let name = config.metadata.name.clone().unwrap_or_default();
    let ca_bundle = config.spec.client_config.ca_bundle.as_ref();
    if ca_bundle.is_none_or(|it| it.0.is_empty()) {
        return Err(NotDiscovered::NoCaBundle(name));
    }
    let Some(condition) = conditions::find(config, DISCOVERED) else {
        return Err(NotDiscovered::NoCondition(name));
    };
    if condition.status != "True" {
        let status = condition.status.clone();
        return Err(NotDiscovered::Status { name, status });
    }
    let generation = config.metadata.generation.unwrap_or_default();
    let observed = condition.observed_generation.unwrap_or_default();
    if observed != generation {
        return Err(NotDiscovered::Generation {
            name,
            generation,
            observed,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn config(ca_bundle: Option<&str>, conditions: Value) -> ExtensionConfig {
        let config = json!({
            "metadata": {"name": "mine", "generation": 3},
            "spec": {"clientConfig": {"url": "https://example.com", "caBundle": ca_bundle}},
            "status": {"conditions": conditions},
        });
        serde_json::from_value(config).expect("a valid object")
    }

    fn discovered(status: &str, generation: i64) -> Value {
        json!([{
            "type": DISCOVERED, "status": status, "observedGeneration": generation, "reason": "Discovered",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }])
    }

    #[test]
    fn handlers_of_another_generation_or_without_a_discovery_are_rejected() {
        let error = |config: &ExtensionConfig| validate(config).unwrap_err().to_string();
        assert_eq!(
            error(&config(None, discovered("True", 3))),
            "caBundle is not set on ExtensionConfig mine"
        );
        assert_eq!(
            error(&config(Some("YQ=="), json!([]))),
            "Discovered condition not yet set on ExtensionConfig mine"
        );
        assert_eq!(
            error(&config(Some("YQ=="), discovered("False", 3))),
            "Discovered condition on ExtensionConfig mine must have status: True (instead it has: False)"
        );
        assert_eq!(
            error(&config(Some("YQ=="), discovered("True", 2))),
            "Discovered condition on ExtensionConfig mine must have observedGeneration: 3 (instead it has: 2)"
        );
        assert_eq!(
            validate(&config(Some("YQ=="), discovered("True", 3))),
            Ok(())
        );
    }
}
