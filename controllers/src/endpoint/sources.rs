//! Parses the endpoint from a workspace and its Secret. Sends no requests.

use super::{
    address::{Address, AddressError},
    source_cache::SourceValues,
};
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;
use std::fmt;
use steersman::object::ObjectKey;

/// Name of the output and of the key in the Secret.
const NAME: &str = "cluster_endpoint";

/// Output and key with the CA certificates of the control plane, as base64 of PEM.
const AUTHORITY: &str = "cluster_certificate_authority_data";

/// Source of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// `status.atProvider.outputs` of the workspace.
    Outputs,
    /// Connection Secret of the workspace.
    Secret,
}

impl Origin {
    /// Returns the label for metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Outputs => "outputs",
            Self::Secret => "secret",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outputs => "the outputs of the workspace",
            Self::Secret => "the connection Secret of the workspace",
        })
    }
}

/// Endpoint as read from a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EndpointValue {
    /// The source has no value: read the next one.
    Missing,
    Endpoint(Address),
    /// The value is invalid. The message does not contain it.
    Invalid(String),
}

impl EndpointValue {
    fn of(address: Result<Address, AddressError>) -> Self {
        match address {
            Ok(address) => Self::Endpoint(address),
            Err(error) => Self::Invalid(format!("{NAME}: {error}")),
        }
    }
}

/// Parses the outputs.
///
/// Empty values and values that are not strings count as missing.
pub(crate) fn outputs(workspace: &Value) -> SourceValues {
    let outputs = all_outputs(workspace);
    let text = |name| {
        outputs[name]
            .as_str()
            .filter(|text| !text.trim().is_empty())
    };
    let endpoint = match outputs {
        Value::Null | Value::Object(_) => text(NAME).map_or(EndpointValue::Missing, |text| {
            EndpointValue::of(text.parse())
        }),
        _ => EndpointValue::Invalid("status.atProvider.outputs is not an object".into()),
    };
    SourceValues {
        endpoint,
        authority: text(AUTHORITY).map(|text| text.as_bytes().into()),
    }
}

/// Returns whether the output exists but is not a string.
pub(crate) fn is_not_a_string(workspace: &Value) -> bool {
    !matches!(all_outputs(workspace)[NAME], Value::Null | Value::String(_))
}

fn all_outputs(workspace: &Value) -> &Value {
    &workspace["status"]["atProvider"]["outputs"]
}

/// Returns the Secret that the workspace names.
///
/// Fails if name or namespace is missing.
pub(crate) fn secret_of(workspace: &Value) -> Result<Option<ObjectKey>, String> {
    let reference = match &workspace["spec"]["writeConnectionSecretToRef"] {
        Value::Null => return Ok(None),
        Value::Object(reference) => reference,
        _ => return Err("spec.writeConnectionSecretToRef is not an object".into()),
    };
    let part = |name: &str| match reference.get(name) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.as_str()),
        _ => Err(format!("spec.writeConnectionSecretToRef has no {name}")),
    };
    Ok(Some(ObjectKey::new(part("namespace")?, part("name")?)))
}

/// Parses the connection Secret.
pub(crate) fn secret(secret: &Secret) -> SourceValues {
    let entry = |name| {
        let bytes: &[u8] = &secret.data.as_ref()?.get(name)?.0;
        (!bytes.trim_ascii().is_empty()).then_some(bytes)
    };
    let endpoint = entry(NAME).map_or(EndpointValue::Missing, |bytes| {
        EndpointValue::of(Address::from_secret(bytes))
    });
    SourceValues {
        endpoint,
        authority: entry(AUTHORITY).map(Into::into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with_outputs(outputs: Value) -> EndpointValue {
        super::outputs(&json!({"status": {"atProvider": {"outputs": outputs}}})).endpoint
    }

    fn host(text: &str) -> EndpointValue {
        EndpointValue::Endpoint(text.parse().expect(text))
    }

    #[test]
    fn an_output_is_an_endpoint() {
        assert_eq!(
            with_outputs(json!({NAME: "https://host:6443", "vpc_id": "vpc-1"})),
            host("host:6443")
        );
    }

    #[test]
    fn missing_empty_and_non_string_outputs_count_as_missing() {
        for workspace in [
            json!({}),
            json!({"status": {}}),
            json!({"status": {"atProvider": "?"}}),
        ] {
            assert_eq!(
                super::outputs(&workspace).endpoint,
                EndpointValue::Missing,
                "{workspace}"
            );
        }
        for outputs in [
            json!(null),
            json!({}),
            json!({NAME: null}),
            json!({NAME: " "}),
            json!({NAME: 7}),
            json!({NAME: {}}),
        ] {
            assert_eq!(
                with_outputs(outputs.clone()),
                EndpointValue::Missing,
                "{outputs}"
            );
        }
    }

    #[test]
    fn an_invalid_output_is_reported_without_its_value() {
        let EndpointValue::Invalid(words) = with_outputs(json!({NAME: "http://hunter2"})) else {
            panic!("no https")
        };
        assert!(
            words.contains("scheme") && !words.contains("hunter2"),
            "{words}"
        );
        assert!(matches!(
            with_outputs(json!("all")),
            EndpointValue::Invalid(_)
        ));
        assert!(matches!(with_outputs(json!([])), EndpointValue::Invalid(_)));
    }

    #[test]
    fn a_secret_reference_requires_name_and_namespace() {
        let reference = |reference: Value| {
            secret_of(&json!({"spec": {"writeConnectionSecretToRef": reference}}))
        };
        assert_eq!(secret_of(&json!({"spec": {}})), Ok(None));
        assert_eq!(
            reference(json!({"namespace": "shop", "name": "it"})),
            Ok(Some(ObjectKey::new("shop", "it")))
        );
        for (bad, word) in [
            (json!({"name": "it"}), "namespace"),
            (json!({"namespace": "shop"}), "name"),
            (json!("it"), "object"),
        ] {
            assert!(
                reference(bad.clone()).is_err_and(|words| words.contains(word)),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_secret_without_an_endpoint_is_missing_and_with_another_value_invalid() {
        let secret = |data: Value| {
            super::secret(&serde_json::from_value(json!({"data": data})).expect("a secret"))
                .endpoint
        };
        assert_eq!(secret(json!({})), EndpointValue::Missing);
        assert_eq!(secret(json!({NAME: ""})), EndpointValue::Missing);
        assert_eq!(secret(json!({NAME: "aHR0cHM6Ly9ob3N0"})), host("host"));
        assert!(matches!(
            secret(json!({NAME: "/w=="})),
            EndpointValue::Invalid(_)
        ));
    }

    #[test]
    fn only_an_output_that_is_not_a_string_causes_a_warning() {
        let warned = |outputs: Value| {
            super::is_not_a_string(&json!({"status": {"atProvider": {"outputs": {NAME: outputs}}}}))
        };
        assert!(warned(json!(7)) && warned(json!({})) && warned(json!([])) && warned(json!(false)));
        assert!(!warned(json!(null)) && !warned(json!("")) && !super::is_not_a_string(&json!({})));
    }

    #[test]
    fn the_authority_is_returned_unchanged() {
        let data = json!({AUTHORITY: "T1VS"});
        assert_eq!(
            super::outputs(&json!({"status": {"atProvider": {"outputs": data}}}))
                .authority
                .as_deref(),
            Some(b"T1VS".as_slice())
        );
        let secret = serde_json::from_value(json!({"data": data})).expect("a secret");
        assert_eq!(
            super::secret(&secret).authority.as_deref(),
            Some(b"OUR".as_slice())
        );
        assert_eq!(super::outputs(&json!({})).authority, None);
    }
}
