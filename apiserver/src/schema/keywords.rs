//! Keywords of JSON Schema that CRDs must not use.

use super::structural::{Checker, NodeContext, entries, is_set};
use crate::status::FieldError;
use serde_json::{Value, json};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

impl Checker {
    /// Rejects unsupported keywords.
    pub(super) fn keywords(&mut self, schema: &Value, path: &str, context: &NodeContext<'_>) {
        let kind = &schema["type"];
        if kind
            .as_str()
            .is_some_and(|kind| !kind.is_empty() && !TYPES.contains(&kind))
        {
            self.errors.push(FieldError::not_supported(
                format!("{path}.type"),
                kind,
                TYPES,
            ));
        }
        if kind == "null" {
            let detail = "type cannot be set to null, use nullable as an alternative";
            self.forbidden(format!("{path}.type"), detail);
        }
        if !schema["default"].is_null()
            && let Some(reason) = context.no_default
        {
            self.forbidden(
                format!("{path}.default"),
                &format!("must not be set {reason}"),
            );
        }
        for key in [
            "id",
            "additionalItems",
            "patternProperties",
            "definitions",
            "dependencies",
            "$ref",
        ] {
            if !schema[key].is_null() {
                self.forbidden(format!("{path}.{key}"), &format!("{key} is not supported"));
            }
        }
        if schema["items"].is_array() {
            self.forbidden(
                format!("{path}.items"),
                "items must be a schema object and not an array",
            );
        }
        if schema["uniqueItems"] == true {
            let detail =
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.forbidden(format!("{path}.uniqueItems"), detail);
        }
        let additional = &schema["additionalProperties"];
        if entries(&schema["properties"]).next().is_some()
            && (additional == false || additional.is_object())
        {
            let detail = "additionalProperties and properties are mutual exclusive";
            self.forbidden(format!("{path}.additionalProperties"), detail);
        }
        if schema["x-kubernetes-preserve-unknown-fields"] == false {
            let at = format!("{path}.x-kubernetes-preserve-unknown-fields");
            self.invalid(at, &json!(false), "must be true or undefined");
        }
        if context.meta && is_set(schema, "x-kubernetes-embedded-resource") {
            let at = format!("{path}.x-kubernetes-embedded-resource");
            self.forbidden(at, "must not be used inside of resource meta");
        }
    }
}
