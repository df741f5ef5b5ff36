//! Embedded resources: values with apiVersion, kind and metadata inside a custom resource.

use super::{Additional, Node, Schema, path::Path};
use crate::{
    crd, meta,
    status::{FieldError, FieldErrors, StrictErrors},
};
use serde_json::{Map, Value};

impl Schema {
    /// Removes unknown metadata of embedded resources and returns its sorted paths.
    ///
    /// Errors: apiVersion, kind or a field of the metadata has the wrong type.
    pub(crate) fn decode_embedded(&self, object: &mut Value) -> Result<StrictErrors, String> {
        let mut unknown = StrictErrors::new();
        if self.has_embedded {
            self.decode_resources(self.root(), object, &Path::ROOT, &mut unknown)?;
            unknown.sort();
        }
        Ok(unknown)
    }

    fn decode_resources(
        &self,
        node: &Node,
        value: &mut Value,
        path: &Path<'_>,
        unknown: &mut StrictErrors,
    ) -> Result<(), String> {
        if node.embedded && value.is_object() {
            unknown.extend(decode_resource(value, path)?);
        }
        match value {
            Value::Object(map) => map.iter_mut().try_for_each(|(key, value)| {
                let Some(id) = node.field(key) else {
                    return Ok(());
                };
                self.decode_resources(self.node(id), value, &path.field(key), unknown)
            }),
            Value::Array(list) => {
                let Some(id) = node.items else { return Ok(()) };
                list.iter_mut().enumerate().try_for_each(|(index, value)| {
                    self.decode_resources(self.node(id), value, &path.index(index), unknown)
                })
            }
            _ => Ok(()),
        }
    }

    /// Validates the embedded resources of an object. As on the real server, an update validates
    /// unchanged ones, too.
    pub(super) fn check_embedded(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        if self.has_embedded {
            self.check_resources(self.root(), object, &Path::ROOT, &mut errors);
        }
        errors
    }

    /// Validates the embedded resources in a value that belongs to `node`.
    pub(super) fn check_resources(
        &self,
        node: &Node,
        value: &Value,
        path: &Path<'_>,
        errors: &mut FieldErrors,
    ) {
        match value {
            Value::Object(map) => {
                if node.embedded {
                    check_resource(map, value, path, errors);
                }
                for (key, value) in map {
                    match (node.named(key), node.additional) {
                        (Some(id), _) => {
                            self.check_resources(self.node(id), value, &path.field(key), errors);
                        }
                        (None, Additional::Each(id)) => {
                            self.check_resources(self.node(id), value, &path.key(key), errors);
                        }
                        _ => {}
                    }
                }
            }
            Value::Array(list) => {
                let Some(id) = node.items else { return };
                for (index, value) in list.iter().enumerate() {
                    self.check_resources(self.node(id), value, &path.index(index), errors);
                }
            }
            _ => {}
        }
    }
}

fn decode_resource(resource: &mut Value, path: &Path<'_>) -> Result<StrictErrors, String> {
    let mut unknown = StrictErrors::new();
    let invalid = |field: &str, reason: &str| {
        let path = path.field(field).to_string();
        Err(FieldError::invalid(path, &resource[field], reason).to_string())
    };
    for field in ["apiVersion", "kind"] {
        if resource.get(field).is_some_and(|value| !value.is_string()) {
            return invalid(field, "must be a string");
        }
    }
    if resource.get("metadata").is_none() {
        return Ok(unknown);
    }
    if let Err(reason) = meta::types::check_types(resource) {
        return invalid("metadata", &reason);
    }
    for field in &*meta::types::normalize(resource) {
        let field = field.trim_start_matches("metadata.");
        unknown.push(path.field("metadata").field(field).to_string());
    }
    Ok(unknown)
}

fn check_resource(
    fields: &Map<String, Value>,
    resource: &Value,
    path: &Path<'_>,
    errors: &mut FieldErrors,
) {
    for name in ["apiVersion", "kind"] {
        let field = path.field(name).to_string();
        let Some(value) = fields.get(name) else {
            errors.push(FieldError::required(field, ""));
            continue;
        };
        let problem = match value.as_str() {
            None => Some("must be a string".into()),
            Some("") => Some("must not be empty".into()),
            Some(version) if name == "apiVersion" => (version.matches('/').count() > 1)
                .then(|| format!("unexpected GroupVersion string: {version}")),
            Some(kind) => crd::label(&kind.to_lowercase()).map(|problem| {
                format!("may have mixed case, but should otherwise match: {problem}")
            }),
        };
        if let Some(problem) = problem {
            errors.push(FieldError::invalid(field, value, problem));
        }
    }
    let metadata = path.field("metadata").to_string();
    for error in meta::validate_embedded(&resource["metadata"]) {
        let inner = error.field.strip_prefix("metadata").unwrap_or_default();
        errors.push(FieldError {
            field: format!("{metadata}{inner}"),
            ..error
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Schema {
        let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true});
        let schema = json!({"type": "object", "properties": {
            "one": embedded,
            "list": {"type": "array", "items": embedded},
            "map": {"type": "object", "additionalProperties": embedded},
        }});
        Schema::from_crd(&schema, false, "").unwrap()
    }

    #[test]
    fn unknown_metadata_of_embedded_resources_is_removed_and_reported() {
        let resource = json!({"apiVersion": "v1", "kind": "P", "metadata": {"name": "a", "x": 1}, "spec": {"y": 1}});
        let mut object = json!({"one": resource, "list": [{}, resource], "map": {"k": resource}});
        let unknown = schema().decode_embedded(&mut object).unwrap();
        assert_eq!(
            *unknown,
            ["list[1].metadata.x", "map.k.metadata.x", "one.metadata.x"]
        );
        assert_eq!(
            object["one"],
            json!({"apiVersion": "v1", "kind": "P", "metadata": {"name": "a"}, "spec": {"y": 1}})
        );
        assert_eq!(object["list"][0], json!({}));
    }

    #[test]
    fn wrong_types_in_embedded_resources_are_errors() {
        for (resource, error) in [
            (
                json!({"kind": 5}),
                "one.kind: Invalid value: 5: must be a string",
            ),
            (
                json!({"kind": "P", "metadata": {"name": 5}}),
                "one.metadata: Invalid value: {\"name\":5}: json: cannot unmarshal number into Go struct field \
                 ObjectMeta.metadata.name of type string",
            ),
        ] {
            let decoded = schema().decode_embedded(&mut json!({"one": resource}));
            assert_eq!(decoded.unwrap_err(), error);
        }
    }

    #[test]
    fn embedded_resources_are_validated_like_resources() {
        let object = json!({
            "one": {"apiVersion": "a/b/c", "kind": "", "metadata": {"labels": {"-": "x"}}},
            "list": [{"apiVersion": "v1", "kind": "Pod"}, {}],
            "map": {"k": {"apiVersion": "", "kind": "a b", "metadata": {"name": "a/b"}}},
        });
        let errors: Vec<_> = schema()
            .check_embedded(&object)
            .into_iter()
            .map(|error| error.to_string())
            .collect();
        let begins = [
            "list[1].apiVersion: Required value",
            "list[1].kind: Required value",
            "map[k].apiVersion: Invalid value: \"\": must not be empty",
            "map[k].kind: Invalid value: \"a b\": may have mixed case, but should otherwise match: a DNS-1035 label",
            "map[k].metadata.name: Invalid value: \"a/b\": may not contain '/'",
            "one.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
            "one.kind: Invalid value: \"\": must not be empty",
            "one.metadata.labels: Invalid value: \"-\": name part must consist of",
        ];
        assert_eq!(errors.len(), begins.len(), "{errors:#?}");
        for (error, begin) in errors.iter().zip(begins) {
            assert!(error.starts_with(begin), "{error}");
        }
    }
}
