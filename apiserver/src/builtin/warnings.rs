//! Warnings about valid objects.

use super::cells::{items, text};
use crate::schema::quantity;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

/// Returns the warnings about an object that is created or changed.
pub(crate) type Warn = fn(&Value) -> Vec<String>;

/// Warns about a TLS secret without a PEM certificate.
pub(super) fn secret(object: &Value) -> Vec<String> {
    if text(object, "/type") != "kubernetes.io/tls" {
        return Vec::new();
    }
    let certificate = object["data"]["tls.crt"]
        .as_str()
        .and_then(|it| STANDARD.decode(it).ok())
        .unwrap_or_default();
    let is_pem = String::from_utf8_lossy(&certificate).contains("-----BEGIN");
    if is_pem {
        Vec::new()
    } else {
        vec!["tls: failed to find any PEM data in certificate input".into()]
    }
}

pub(super) fn pod(object: &Value) -> Vec<String> {
    fractional_bytes(object, "/spec", "spec")
}

pub(super) fn workload(object: &Value) -> Vec<String> {
    fractional_bytes(object, "/spec/template/spec", "spec.template.spec")
}

/// Warns about amounts of memory and storage that are not whole bytes.
fn fractional_bytes(object: &Value, pointer: &str, path: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    for (index, container) in items(object, &format!("{pointer}/containers"))
        .iter()
        .enumerate()
    {
        for (list, name) in ["limits", "requests"]
            .iter()
            .flat_map(|list| [(list, "memory"), (list, "ephemeral-storage")])
        {
            let amount = &container["resources"][list][name];
            if quantity::from_value(amount).is_some_and(|amount| !amount.is_whole()) {
                let at = format!("{path}.containers[{index}].resources.{list}[{name}]");
                let amount = amount.as_str().unwrap_or_default();
                warnings.push(format!(
                    "{at}: fractional byte value \"{amount}\" is invalid, must be an integer"
                ));
            }
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fractional_bytes_and_empty_certificates_cause_warnings() {
        let resources = json!({"requests": {"memory": "102400m", "cpu": "100m"}});
        let warning = "spec.containers[0].resources.requests[memory]: \
                    fractional byte value \"102400m\" is invalid, must be an integer";
        assert_eq!(
            pod(&json!({"spec": {"containers": [{"resources": resources}]}})),
            [warning]
        );
        assert_eq!(
            secret(&json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}})).len(),
            1
        );
        assert!(secret(&json!({"type": "Opaque"})).is_empty());
    }
}
