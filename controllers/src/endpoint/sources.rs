//! What a workspace and its secret say about the endpoint. Nothing here asks anybody.

use super::{
    address::{Address, AddressError},
    memo::Read,
};
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;
use std::fmt;
use steersman::object::ObjectKey;

/// The output, and the entry of the secret.
const NAME: &str = "cluster_endpoint";

/// Likewise, of the certificates by which the control plane is known: PEM, encoded once more.
const AUTHORITY: &str = "cluster_certificate_authority_data";

/// Where an endpoint is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Origin {
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
pub(crate) fn outputs(workspace: &Value) -> Read {
    let outputs = all_outputs(workspace);
    let text = |name| outputs[name].as_str().filter(|text| !text.trim().is_empty());
    let endpoint = match outputs {
        Value::Null | Value::Object(_) => text(NAME).map_or(Said::Nothing, |text| Said::of(text.parse())),
        _ => Said::Invalid("status.atProvider.outputs is no object".into()),
    };
    Read { endpoint, authority: text(AUTHORITY).map(|text| text.as_bytes().into()) }
}

/// There is such an output, but it can be no endpoint at all: a number, an object.
pub(crate) fn is_no_text(workspace: &Value) -> bool {
    !matches!(all_outputs(workspace)[NAME], Value::Null | Value::String(_))
}

fn all_outputs(workspace: &Value) -> &Value {
    &workspace["status"]["atProvider"]["outputs"]
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
pub(crate) fn secret(secret: &Secret) -> Read {
    let entry = |name| {
        let bytes: &[u8] = &secret.data.as_ref()?.get(name)?.0;
        (!bytes.trim_ascii().is_empty()).then_some(bytes)
    };
    let endpoint = entry(NAME).map_or(Said::Nothing, |bytes| Said::of(Address::from_secret(bytes)));
    Read { endpoint, authority: entry(AUTHORITY).map(Into::into) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with_outputs(outputs: Value) -> Said {
        super::outputs(&json!({"status": {"atProvider": {"outputs": outputs}}})).endpoint
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
            assert_eq!(super::outputs(&workspace).endpoint, Said::Nothing, "{workspace}");
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
        let secret =
            |data: Value| super::secret(&serde_json::from_value(json!({"data": data})).expect("a secret")).endpoint;
        assert_eq!(secret(json!({})), Said::Nothing);
        assert_eq!(secret(json!({NAME: ""})), Said::Nothing);
        assert_eq!(secret(json!({NAME: "aHR0cHM6Ly9ob3N0"})), host("host"));
        assert!(matches!(secret(json!({NAME: "/w=="})), Said::Invalid(_)));
    }

    #[test]
    fn only_what_is_there_and_no_text_is_worth_a_warning() {
        let warned =
            |outputs: Value| super::is_no_text(&json!({"status": {"atProvider": {"outputs": {NAME: outputs}}}}));
        assert!(warned(json!(7)) && warned(json!({})) && warned(json!([])) && warned(json!(false)));
        assert!(!warned(json!(null)) && !warned(json!("")) && !super::is_no_text(&json!({})));
    }

    #[test]
    fn the_authority_is_given_as_it_stands() {
        let data = json!({AUTHORITY: "T1VS"});
        assert_eq!(
            super::outputs(&json!({"status": {"atProvider": {"outputs": data}}})).authority.as_deref(),
            Some(b"T1VS".as_slice())
        );
        let secret = serde_json::from_value(json!({"data": data})).expect("a secret");
        assert_eq!(super::secret(&secret).authority.as_deref(), Some(b"OUR".as_slice()));
        assert_eq!(super::outputs(&json!({})).authority, None);
    }
}
