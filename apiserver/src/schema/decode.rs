//! Errors of Go's decoder for objects that do not match their built-in type.

use super::{Additional, Node, Schema, ValueFormat, ValueType, gotime, path::Path, quantity};
use base64::{DecodeError, Engine, engine::general_purpose::STANDARD};
use serde_json::Value;
use std::fmt::Write;

impl Schema {
    /// Returns the first error of decoding an object into its Go type. Custom resources have no Go
    /// type.
    pub(crate) fn decode_error(&self, object: &Value) -> Option<String> {
        let root = Decoder {
            schema: self,
            within: None,
        };
        if self.builtin {
            root.decode(self.root(), object, &Path::ROOT).err()
        } else {
            None
        }
    }
}

#[derive(Clone, Copy)]
struct Decoder<'a> {
    schema: &'a Schema,
    /// Go type of the struct whose field is decoded: `v1.PodSpec`.
    within: Option<&'a str>,
}

impl<'a> Decoder<'a> {
    /// `path` has only fields, since Go's messages omit map keys and list indexes.
    fn decode(self, node: &'a Node, value: &Value, path: &Path<'_>) -> Result<(), String> {
        match (node.kind, value) {
            (_, Value::Null)
            | (ValueType::Boolean, Value::Bool(_))
            | (ValueType::Number, Value::Number(_))
            | (ValueType::IntOrString, Value::String(_)) => Ok(()),
            (ValueType::String, _) if matches!(node.format, Some(ValueFormat::Quantity)) => {
                check_quantity(value)
            }
            (ValueType::String, Value::String(text)) => check_format(node, text),
            (ValueType::Integer | ValueType::IntOrString, Value::Number(number)) => {
                let fits = match node.format {
                    Some(ValueFormat::Int64) => number.as_i64().is_some(),
                    _ => number
                        .as_i64()
                        .is_some_and(|number| i32::try_from(number).is_ok()),
                };
                if fits {
                    Ok(())
                } else {
                    Err(self.mismatch(node, path, &format!("number {number}")))
                }
            }
            (ValueType::Array, Value::Array(list)) => match node.items {
                Some(items) => list
                    .iter()
                    .try_for_each(|item| self.decode(self.schema.node(items), item, path)),
                None => Ok(()),
            },
            (ValueType::Object | ValueType::Any, Value::Object(map)) => {
                let inner = Self {
                    within: node.go.as_deref().or(self.within),
                    ..self
                };
                map.iter()
                    .try_for_each(|(key, value)| match (node.named(key), node.additional) {
                        (Some(id), _) => {
                            inner.decode(self.schema.node(id), value, &path.field(key))
                        }
                        (None, Additional::Each(id)) => {
                            inner.decode(self.schema.node(id), value, path)
                        }
                        _ => Ok(()),
                    })
            }
            (ValueType::Any, _) => Ok(()),
            (_, value) => Err(self.mismatch(node, path, go_name(value))),
        }
    }

    fn mismatch(self, node: &Node, path: &Path<'_>, found: &str) -> String {
        let mut text = format!("json: cannot unmarshal {found} into Go ");
        match self.within {
            Some(within) => {
                let name = within.rsplit_once('.').map_or(within, |(_, name)| name);
                let _ = write!(text, "struct field {name}.{path}");
            }
            None => text.push_str("value"),
        }
        text + " of type " + &self.go_type(node)
    }

    fn go_type(self, node: &Node) -> String {
        match (node.kind, &node.format) {
            (ValueType::String, Some(ValueFormat::Byte)) => "[]uint8".into(),
            (ValueType::String, _) => "string".into(),
            (ValueType::Boolean, _) => "bool".into(),
            (ValueType::Number, _) => "float64".into(),
            (ValueType::Integer, Some(ValueFormat::Int64)) => "int64".into(),
            (ValueType::Integer | ValueType::IntOrString, _) => "int32".into(),
            (ValueType::Array, _) => match node.items {
                Some(items) => format!("[]{}", self.go_type(self.schema.node(items))),
                None => "[]interface {}".into(),
            },
            (ValueType::Object | ValueType::Any, _) => match (&node.go, node.additional) {
                (Some(go), _) => go.to_string(),
                (None, Additional::Each(id)) => {
                    format!("map[string]{}", self.go_type(self.schema.node(id)))
                }
                _ => "map[string]interface {}".into(),
            },
        }
    }
}

/// Checks a text that must be a time or base64.
fn check_format(node: &Node, text: &str) -> Result<(), String> {
    match node.format {
        Some(ValueFormat::Time) => gotime::parse(text, false),
        Some(ValueFormat::MicroTime) => gotime::parse(text, true),
        Some(ValueFormat::Byte) => match STANDARD.decode(text) {
            Ok(_) => Ok(()),
            Err(
                DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol { offset: at, .. },
            ) => Err(format!("illegal base64 data at input byte {at}")),
            Err(_) => Err(format!(
                "illegal base64 data at input byte {}",
                text.len() / 4 * 4
            )),
        },
        _ => Ok(()),
    }
}

fn go_name(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        other => super::type_name(other),
    }
}

/// Checks a quantity, which can also be a number.
fn check_quantity(value: &Value) -> Result<(), String> {
    let parsed = match value {
        Value::Number(number) => quantity::parse(&quantity::number_text(number)),
        Value::String(text) => quantity::parse(text),
        _ => Err(quantity::ParseError::Syntax),
    };
    parsed.map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use crate::schema::Schema;
    use serde_json::{Value, json};

    fn error(definition: &'static str, object: &Value) -> String {
        Schema::builtin(definition)
            .decode_error(object)
            .unwrap_or_default()
    }

    #[test]
    fn a_type_error_contains_the_struct_the_path_and_the_type() {
        let map = "io.k8s.api.core.v1.ConfigMap";
        let text =
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string";
        assert_eq!(error(map, &json!({"data": {"a": 1}})), text);
        let text = "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string";
        assert_eq!(error(map, &json!({"data": []})), text);
        let text = "json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.labels of type string";
        assert_eq!(
            error(map, &json!({"metadata": {"labels": {"a": true}}})),
            text
        );
        assert_eq!(
            error(map, &json!([])),
            "json: cannot unmarshal array into Go value of type v1.ConfigMap"
        );
    }

    #[test]
    fn a_type_error_contains_the_innermost_struct() {
        let deployment = "io.k8s.api.apps.v1.Deployment";
        let text = "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32";
        assert_eq!(error(deployment, &json!({"spec": {"replicas": "3"}})), text);
        let text = "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32";
        assert_eq!(error(deployment, &json!({"spec": {"replicas": 1.5}})), text);
        let text = "json: cannot unmarshal string into Go struct field PodSpec.spec.template.spec.containers of \
                    type []v1.Container";
        assert_eq!(
            error(
                deployment,
                &json!({"spec": {"template": {"spec": {"containers": "x"}}}})
            ),
            text
        );
        let text = "json: cannot unmarshal number into Go struct field Container.spec.template.spec.containers.name \
                    of type string";
        assert_eq!(
            error(
                deployment,
                &json!({"spec": {"template": {"spec": {"containers": [{"name": 1}]}}}})
            ),
            text
        );
    }

    #[test]
    fn values_that_go_accepts_are_accepted() {
        let service = json!({"spec": {"ports": [{"port": 80, "targetPort": "http"}, {"port": 81, "targetPort": 81}]}});
        assert_eq!(error("io.k8s.api.core.v1.Service", &service), "");
        let pod = json!({"metadata": {"creationTimestamp": null}, "spec": {"containers": [
            {"name": "a", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}},
        ]}});
        assert_eq!(error("io.k8s.api.core.v1.Pod", &pod), "");
        assert_eq!(
            error("io.k8s.api.core.v1.Secret", &json!({"data": {"a": "aGk="}})),
            ""
        );
        assert_eq!(Schema::any().decode_error(&json!({"data": 1})), None);
    }

    #[test]
    fn quantities_and_base64_are_checked() {
        let limits =
            |cpu: &str| json!({"spec": {"containers": [{"resources": {"limits": {"cpu": cpu}}}]}});
        assert!(
            error("io.k8s.api.core.v1.Pod", &limits("one")).starts_with("quantities must match")
        );
        let text = "illegal base64 data at input byte 1";
        assert_eq!(
            error("io.k8s.api.core.v1.Secret", &json!({"data": {"a": "a!=="}})),
            text
        );
    }

    #[test]
    fn a_micro_time_has_six_fractional_digits() {
        let lease = |at: &str| {
            error(
                "io.k8s.api.coordination.v1.Lease",
                &json!({"spec": {"renewTime": at}}),
            )
        };
        assert_eq!(lease("2026-01-02T03:04:05.123456Z"), "");
        assert_eq!(
            lease("2026-01-02T03:04:05Z"),
            r#"parsing time "2026-01-02T03:04:05Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#
        );
        assert_ne!(lease("2026-01-02T03:04:05.5Z"), "");
        assert_ne!(lease("2026-01-02T03:04:05.123456789Z"), "");
    }
}
