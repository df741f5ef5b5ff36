//! What a workspace and its secret say about the endpoint. Nothing here asks anybody.

use super::address::{Address, AddressError};
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;
use std::fmt;
use steersman::object::ObjectKey;

/// The output, and the entry of the secret.
const NAME: &str = "cluster_endpoint";

/// Where an endpoint is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// `status.atProvider.outputs` of the workspace.
    Outputs,
    /// The workspace's connection secret.
    Secret,
}

impl Origin {
    /// As metrics have it.
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
            Self::Outputs => "the workspace's outputs",
            Self::Secret => "the workspace's connection secret",
        })
    }
}

/// What a source says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Nothing: ask the next one.
    Nothing,
    Endpoint(Address),
    /// Something that has to be mended. Its words have nothing of it.
    Invalid(String),
}

impl Said {
    fn of(address: Result<Address, AddressError>) -> Self {
        match address {
            Ok(address) => Self::Endpoint(address),
            Err(error) => Self::Invalid(format!("{NAME}: {error}")),
        }
    }
}

/// The first source. An empty text and what is no text count as nothing.
pub(crate) fn outputs(workspace: &Value) -> Said {
    match &workspace["status"]["atProvider"]["outputs"] {
        Value::Null => Said::Nothing,
        Value::Object(outputs) => match outputs.get(NAME) {
            Some(Value::String(text)) if !text.trim().is_empty() => Said::of(text.parse()),
            Some(Value::String(_) | Value::Null) | None => Said::Nothing,
            Some(_) => {
                tracing::warn!("the output {NAME} is no text, and is taken for absent");
                Said::Nothing
            }
        },
        _ => Said::Invalid("status.atProvider.outputs is no object".into()),
    }
}

/// The secret to ask next, if the workspace names one. One without a name or a namespace has to be mended.
pub(crate) fn secret_of(workspace: &Value) -> Result<Option<ObjectKey>, String> {
    let reference = match &workspace["spec"]["writeConnectionSecretToRef"] {
        Value::Null => return Ok(None),
        Value::Object(reference) => reference,
        _ => return Err("spec.writeConnectionSecretToRef is no object".into()),
    };
    let part = |name: &str| match reference.get(name) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.as_str()),
        _ => Err(format!("spec.writeConnectionSecretToRef has no {name}")),
    };
    Ok(Some(ObjectKey::new(part("namespace")?, part("name")?)))
}

/// The second source.
pub(crate) fn secret(secret: &Secret) -> Said {
    match secret.data.as_ref().and_then(|data| data.get(NAME)) {
        Some(bytes) if !bytes.0.trim_ascii().is_empty() => Said::of(Address::from_secret(&bytes.0)),
        _ => Said::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with_outputs(outputs: Value) -> Said {
        super::outputs(&json!({"status": {"atProvider": {"outputs": outputs}}}))
    }

    fn host(text: &str) -> Said {
        Said::Endpoint(text.parse().expect(text))
    }

    #[test]
    fn an_output_is_an_endpoint() {
        assert_eq!(with_outputs(json!({NAME: "https://host:6443", "vpc_id": "vpc-1"})), host("host:6443"));
    }

    #[test]
    fn what_is_not_there_not_yet_or_no_text_is_nothing() {
        for workspace in [json!({}), json!({"status": {}}), json!({"status": {"atProvider": "?"}})] {
            assert_eq!(super::outputs(&workspace), Said::Nothing, "{workspace}");
        }
        for outputs in
            [json!(null), json!({}), json!({NAME: null}), json!({NAME: " "}), json!({NAME: 7}), json!({NAME: {}})]
        {
            assert_eq!(with_outputs(outputs.clone()), Said::Nothing, "{outputs}");
        }
    }

    #[test]
    fn what_cannot_be_one_is_invalid_and_not_repeated() {
        let Said::Invalid(words) = with_outputs(json!({NAME: "http://hunter2"})) else { panic!("no https") };
        assert!(words.contains("scheme") && !words.contains("hunter2"), "{words}");
        assert!(matches!(with_outputs(json!("all")), Said::Invalid(_)));
        assert!(matches!(with_outputs(json!([])), Said::Invalid(_)));
    }

    #[test]
    fn a_secret_is_named_whole_or_not_at_all() {
        let reference = |reference: Value| secret_of(&json!({"spec": {"writeConnectionSecretToRef": reference}}));
        assert_eq!(secret_of(&json!({"spec": {}})), Ok(None));
        assert_eq!(reference(json!({"namespace": "shop", "name": "it"})), Ok(Some(ObjectKey::new("shop", "it"))));
        for (bad, word) in
            [(json!({"name": "it"}), "namespace"), (json!({"namespace": "shop"}), "name"), (json!("it"), "object")]
        {
            assert!(reference(bad.clone()).is_err_and(|words| words.contains(word)), "{bad}");
        }
    }

    #[test]
    fn a_secret_without_it_says_nothing_and_with_something_else_is_invalid() {
        let secret = |data: Value| super::secret(&serde_json::from_value(json!({"data": data})).expect("a secret"));
        assert_eq!(secret(json!({})), Said::Nothing);
        assert_eq!(secret(json!({NAME: ""})), Said::Nothing);
        assert_eq!(secret(json!({NAME: "aHR0cHM6Ly9ob3N0"})), host("host"));
        assert!(matches!(secret(json!({NAME: "/w=="})), Said::Invalid(_)));
    }
}
