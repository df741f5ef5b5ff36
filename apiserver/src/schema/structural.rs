//! Checks that the schema of a CRD is structural: every field has a type of its own, and junctors
//! only restrict values. Rules and errors are the real server's.

use super::{compile::JUNCTORS, pattern};
use crate::status::{FieldError, FieldErrors};
use serde_json::{Value, json};

/// Maximum depth of a schema. Deeper than schemas in use, and safe for the stack.
const MAX_DEPTH: usize = 100;

/// Returns the sorted errors of a schema: those because of which it is not structural, and others.
pub(super) fn check(schema: &Value, path: &str) -> (FieldErrors, FieldErrors) {
    let mut checker = Checker {
        errors: FieldErrors::new(),
        others: FieldErrors::new(),
    };
    if schema["nullable"] == true {
        checker.forbidden(
            format!("{path}.nullable"),
            "nullable cannot be true at the root",
        );
    }
    checker.node(
        schema,
        path,
        &NodeContext {
            level: Level::Root,
            depth: 0,
            meta: false,
            no_default: None,
        },
    );
    let Checker {
        mut errors,
        mut others,
    } = checker;
    errors.sort_by_field();
    others.sort_by_field();
    (errors, others)
}

pub(super) struct Checker {
    pub(super) errors: FieldErrors,
    /// Errors of schemas that are structural nevertheless.
    others: FieldErrors,
}

/// Position of a node in the schema.
pub(super) struct NodeContext<'a> {
    level: Level,
    depth: usize,
    /// The node is inside of apiVersion, kind or metadata.
    pub(super) meta: bool,
    /// Reason why a default is forbidden here.
    pub(super) no_default: Option<&'a str>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

impl Checker {
    pub(super) fn invalid(&mut self, field: String, value: &Value, detail: &str) {
        self.errors.push(FieldError::invalid(field, value, detail));
    }

    pub(super) fn required(&mut self, field: String, detail: &str) {
        self.errors.push(FieldError::required(field, detail));
    }

    pub(super) fn forbidden(&mut self, field: String, detail: &str) {
        self.errors.push(FieldError::forbidden(field, detail));
    }

    /// Checks a node outside of junctors.
    fn node(&mut self, schema: &Value, path: &str, context: &NodeContext<'_>) {
        if context.depth > MAX_DEPTH {
            return self.forbidden(path.into(), "must not be nested this deep");
        }
        let structural = self.errors.mark();
        self.keywords(schema, path, context);
        self.list_and_map(schema, path);
        self.others.extend(self.errors.split_off(structural));
        self.kind(schema, path, context.level);
        self.meta(schema, path, context.level);
        let outer = (context.level == Level::Root).then_some(OuterNode { schema, path });
        self.values(schema, outer, path, context, true);
        let below = |level| NodeContext {
            level,
            depth: context.depth + 1,
            ..*context
        };
        if schema["items"].is_object() {
            self.node(
                &schema["items"],
                &format!("{path}.items"),
                &below(Level::Item),
            );
        }
        if schema["additionalProperties"].is_object() {
            let no_default = context
                .meta
                .then_some("inside additionalProperties applying to object metadata");
            let below = NodeContext {
                no_default: no_default.or(context.no_default),
                ..below(Level::Field)
            };
            self.node(
                &schema["additionalProperties"],
                &format!("{path}.additionalProperties"),
                &below,
            );
        }
        for (name, property) in entries(&schema["properties"]) {
            let is_resource =
                context.level == Level::Root || is_set(schema, "x-kubernetes-embedded-resource");
            let meta = is_resource && super::is_meta(name);
            let reason = format!("in top-level {name}");
            let no_default = (meta && context.level == Level::Root).then_some(reason.as_str());
            let below = NodeContext {
                meta: context.meta || meta,
                no_default: no_default.or(context.no_default),
                ..below(Level::Field)
            };
            self.node(property, &format!("{path}.properties[{name}]"), &below);
        }
    }

    /// Checks the type and related keywords.
    fn kind(&mut self, schema: &Value, path: &str, level: Level) {
        let kind = schema["type"].as_str().unwrap_or_default();
        let int_or_string = is_set(schema, "x-kubernetes-int-or-string");
        let preserve = is_set(schema, "x-kubernetes-preserve-unknown-fields");
        let embedded = is_set(schema, "x-kubernetes-embedded-resource");
        if kind == "array" && schema["items"].is_null() {
            self.required(format!("{path}.items"), "must be specified");
        }
        if level == Level::Root && !schema["additionalProperties"].is_null() {
            self.forbidden(
                format!("{path}.additionalProperties"),
                "must not be used at the root",
            );
        }
        for (key, clash) in [
            ("preserve-unknown-fields", preserve),
            ("embedded-resource", embedded),
        ] {
            if int_or_string && clash {
                let detail = "must be false if x-kubernetes-int-or-string is true";
                self.invalid(format!("{path}.x-kubernetes-{key}"), &json!(true), detail);
            }
        }
        let at = format!("{path}.type");
        if embedded && kind != "object" {
            let detail = "must be object if x-kubernetes-embedded-resource is true";
            if kind.is_empty() {
                self.required(at, detail);
            } else {
                self.invalid(at, &json!(kind), detail);
            }
        } else if kind.is_empty() && !int_or_string && !preserve {
            let detail = match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            };
            self.required(at, detail);
        } else if level == Level::Root && !kind.is_empty() && kind != "object" {
            self.invalid(at, &json!(kind), "must be object at the root");
        }
        if embedded && !schema["additionalProperties"].is_null() {
            let detail = "must not be used if x-kubernetes-embedded-resource is set";
            self.forbidden(format!("{path}.additionalProperties"), detail);
        }
        if embedded && !preserve && entries(&schema["properties"]).next().is_none() {
            let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                          x-kubernetes-preserve-unknown-fields";
            self.required(format!("{path}.properties"), detail);
        }
    }

    /// Checks that the schema specifies little of apiVersion, kind and metadata, which are
    /// implicit.
    fn meta(&mut self, schema: &Value, path: &str, level: Level) {
        let properties = &schema["properties"];
        let is_resource = level == Level::Root || is_set(schema, "x-kubernetes-embedded-resource");
        for (name, kind) in [
            ("kind", "string"),
            ("apiVersion", "string"),
            ("metadata", "object"),
        ] {
            if is_resource && properties[name].is_object() && properties[name]["type"] != kind {
                let found = json!(properties[name]["type"].as_str().unwrap_or_default());
                self.invalid(
                    format!("{path}.properties[{name}].type"),
                    &found,
                    &format!("must be {kind}"),
                );
            }
        }
        let metadata = &properties["metadata"];
        if level == Level::Root && metadata.is_object() {
            let is_allowed = entries(metadata).all(|(key, value)| match key.as_str() {
                "properties" => {
                    entries(value).all(|(name, _)| name == "name" || name == "generateName")
                }
                "type" | "default" => true,
                _ => false,
            });
            if !is_allowed {
                let detail = "must not specify anything other than name and generateName, but metadata is \
                              implicitly specified";
                self.forbidden(format!("{path}.properties[metadata]"), detail);
            }
        }
    }

    /// Checks the validations of values. `types` allows `anyOf` with the types of int-or-string,
    /// the only junctor with types.
    fn values(
        &mut self,
        schema: &Value,
        outer: Option<OuterNode<'_>>,
        path: &str,
        context: &NodeContext<'_>,
        types: bool,
    ) {
        if let Some(text) = schema["pattern"].as_str()
            && let Err(error) = pattern::regex(text)
        {
            let detail = format!("must be a valid regular expression, but isn't: {error}");
            self.invalid(format!("{path}.pattern"), &schema["pattern"], &detail);
        }
        for key in JUNCTORS {
            if key == "anyOf"
                && types
                && schema[key] == json!([{"type": "integer"}, {"type": "string"}])
            {
                continue;
            }
            for (index, nested) in schema[key].as_array().into_iter().flatten().enumerate() {
                let types = types && key == "allOf" && index == 0;
                self.nested(
                    nested,
                    outer,
                    &format!("{path}.{key}[{index}]"),
                    context,
                    types,
                );
            }
        }
        if schema["not"].is_object() {
            self.nested(
                &schema["not"],
                outer,
                &format!("{path}.not"),
                context,
                false,
            );
        }
    }

    /// Checks a node inside of a junctor.
    fn nested(
        &mut self,
        schema: &Value,
        outer: Option<OuterNode<'_>>,
        path: &str,
        context: &NodeContext<'_>,
        types: bool,
    ) {
        let context = &NodeContext {
            depth: context.depth + 1,
            ..*context
        };
        if context.depth > MAX_DEPTH {
            return self.forbidden(path.into(), "must not be nested this deep");
        }
        let structural = self.errors.mark();
        self.keywords(schema, path, context);
        self.others.extend(self.errors.split_off(structural));
        self.values(schema, outer, path, context, types);
        for (key, must) in UNSTRUCTURAL {
            let empty = match &schema[*key] {
                Value::Null => true,
                Value::Bool(set) => !set,
                Value::String(text) => text.is_empty(),
                Value::Array(list) => list.is_empty(),
                _ => false,
            };
            if !empty {
                self.forbidden(
                    format!("{path}.{key}"),
                    &format!("must be {must} to be structural"),
                );
            }
        }
        if schema["items"].is_object() {
            self.below(
                &schema["items"],
                outer,
                |outer| &outer["items"],
                ".items",
                path,
                context,
            );
        }
        for (name, property) in entries(&schema["properties"]) {
            let suffix = format!(".properties[{name}]");
            self.below(
                property,
                outer,
                |outer| &outer["properties"][name],
                &suffix,
                path,
                context,
            );
        }
    }

    /// Checks a child of a node in a junctor. The field that it describes must also exist outside
    /// of junctors.
    fn below(
        &mut self,
        schema: &Value,
        outer: Option<OuterNode<'_>>,
        find: impl Fn(&Value) -> &Value,
        suffix: &str,
        path: &str,
        context: &NodeContext<'_>,
    ) {
        let path = format!("{path}{suffix}");
        let Some(outer) = outer else {
            return self.nested(schema, None, &path, context, false);
        };
        let at = format!("{}{suffix}", outer.path);
        let found = find(outer.schema);
        if found.is_object() {
            self.nested(
                schema,
                Some(OuterNode {
                    schema: found,
                    path: &at,
                }),
                &path,
                context,
                false,
            );
        } else {
            self.required(at, &format!("because it is defined in {path}"));
            self.nested(schema, None, &path, context, false);
        }
    }
}

/// Node outside of junctors that corresponds to a node in a junctor. As on the real server, only
/// junctors at the root are compared with it.
#[derive(Clone, Copy)]
struct OuterNode<'a> {
    schema: &'a Value,
    path: &'a str,
}

/// Keywords that are forbidden inside of junctors, and the value that they must have.
const UNSTRUCTURAL: &[(&str, &str)] = &[
    ("type", "empty"),
    ("additionalProperties", "undefined"),
    ("default", "undefined"),
    ("title", "empty"),
    ("description", "empty"),
    ("nullable", "false"),
    ("x-kubernetes-preserve-unknown-fields", "false"),
    ("x-kubernetes-embedded-resource", "false"),
    ("x-kubernetes-int-or-string", "false"),
    ("x-kubernetes-list-map-keys", "empty"),
    ("x-kubernetes-list-type", "undefined"),
    ("x-kubernetes-map-type", "undefined"),
    ("x-kubernetes-validations", "empty"),
];

/// Returns the entries of a JSON object; none of other values.
pub(super) fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

pub(super) fn is_set(schema: &Value, key: &str) -> bool {
    schema[key] == true
}

#[cfg(test)]
mod tests {
    use crate::status::FieldErrors;
    use serde_json::{Value, json};

    fn check(schema: &Value, path: &str) -> FieldErrors {
        let (mut errors, others) = super::check(schema, path);
        errors.extend(others);
        errors
    }

    fn errors(spec: Value) -> Vec<String> {
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        let strip = |text: String| {
            text.replace("s.properties[spec]", "")
                .trim_start_matches('.')
                .to_owned()
        };
        check(&schema, "s")
            .iter()
            .map(|error| strip(error.to_string()))
            .collect()
    }

    #[test]
    fn every_node_requires_a_type_with_few_exceptions() {
        assert_eq!(
            errors(json!({})),
            ["type: Required value: must not be empty for specified object fields"]
        );
        assert_eq!(
            errors(json!({"type": "array", "items": {}})),
            ["items.type: Required value: must not be empty for specified array items"]
        );
        assert_eq!(
            errors(json!({"type": "array"})),
            ["items: Required value: must be specified"]
        );
        assert!(errors(json!({"x-kubernetes-int-or-string": true})).is_empty());
        assert!(errors(json!({"x-kubernetes-preserve-unknown-fields": true})).is_empty());
        let root: Vec<_> = check(&json!({"type": "string"}), "s")
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            root,
            ["s.type: Invalid value: \"string\": must be object at the root"]
        );
    }

    #[test]
    fn junctors_only_restrict_values() {
        assert_eq!(
            errors(json!({"type": "string", "anyOf": [{"type": "string"}, {"default": "x"}]})),
            [
                "anyOf[0].type: Forbidden: must be empty to be structural",
                "anyOf[1].default: Forbidden: must be undefined to be structural",
            ]
        );
        assert!(
            errors(json!({"type": "string", "anyOf": [{"minLength": 1}], "not": {"pattern": "a"}}))
                .is_empty()
        );
        let int_or_string = json!([{"type": "integer"}, {"type": "string"}]);
        assert!(
            errors(json!({"x-kubernetes-int-or-string": true, "anyOf": int_or_string})).is_empty()
        );
        assert!(
            errors(
                json!({"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": int_or_string}]})
            )
            .is_empty()
        );
        assert!(
            !errors(json!({"x-kubernetes-int-or-string": true, "oneOf": int_or_string})).is_empty()
        );
    }

    #[test]
    fn junctors_at_the_root_describe_only_existing_fields() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}},
            "anyOf": [{"properties": {"a": {"minLength": 1}, "b": {"minLength": 1}}}]});
        let found: Vec<_> = check(&schema, "s")
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            found,
            ["s.properties[b]: Required value: because it is defined in s.anyOf[0].properties[b]"]
        );
    }

    #[test]
    fn unsupported_keywords_are_rejected() {
        assert_eq!(
            errors(json!({"type": "object", "properties": {"a": {"type": "string"}},
                "additionalProperties": {"type": "string"}, "uniqueItems": true, "$ref": "#", "pattern": "("}))
            .len(),
            4
        );
        assert_eq!(
            errors(json!({"type": "text"})),
            [
                "type: Unsupported value: \"text\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \
              \"object\", \"string\""
            ]
        );
    }

    #[test]
    fn metadata_is_implicit_and_has_no_defaults() {
        let schema = json!({"type": "object", "properties": {
            "kind": {"type": "string", "default": "x"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}, "labels": {"type": "object"}}},
        }});
        let found: Vec<_> = check(&schema, "s")
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            found,
            [
                "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but \
                 metadata is implicitly specified",
                "s.properties[kind].default: Forbidden: must not be set in top-level kind",
            ]
        );
    }

    #[test]
    fn a_schema_that_is_nested_too_deep_is_rejected() {
        let mut schema = json!({"type": "string"});
        for _ in 0..150 {
            schema = json!({"type": "object", "properties": {"a": schema}});
        }
        let found = check(&schema, "s");
        assert_eq!(found.len(), 1);
        assert!(
            found[0]
                .to_string()
                .ends_with("Forbidden: must not be nested this deep")
        );
    }
}
