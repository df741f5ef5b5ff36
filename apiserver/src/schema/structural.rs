//! Whether a definition's schema is structural: every field has a type of its own, and junctors only say what values
//! may be. The rules and texts are the real server's.

use super::{compile::JUNCTORS, pattern};
use crate::status::{FieldError, FieldErrors};
use serde_json::{Value, json};

/// Deeper than any schema in use, shallow enough for every stack.
const MAX_DEPTH: usize = 100;

/// What is wrong with a schema, sorted: what keeps it from being structural, and what else is.
pub(super) fn check(schema: &Value, path: &str) -> (FieldErrors, FieldErrors) {
    let mut checker = Checker { errors: FieldErrors::new(), others: FieldErrors::new() };
    if schema["nullable"] == true {
        checker.forbidden(format!("{path}.nullable"), "nullable cannot be true at the root");
    }
    checker.node(schema, path, &Place { level: Level::Root, depth: 0, meta: false, no_default: None });
    let Checker { mut errors, mut others } = checker;
    errors.sort_by_field();
    others.sort_by_field();
    (errors, others)
}

pub(super) struct Checker {
    pub(super) errors: FieldErrors,
    /// What does not keep a schema from being structural.
    others: FieldErrors,
}

/// Where a node stands.
pub(super) struct Place<'a> {
    level: Level,
    depth: usize,
    /// Inside apiVersion, kind or metadata.
    pub(super) meta: bool,
    /// Why there may be no default here.
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

    /// A node that says what is there.
    fn node(&mut self, schema: &Value, path: &str, place: &Place<'_>) {
        if place.depth > MAX_DEPTH {
            return self.forbidden(path.into(), "must not be nested this deep");
        }
        let structural = self.errors.mark();
        self.keywords(schema, path, place);
        self.list_and_map(schema, path);
        self.others.extend(self.errors.split_off(structural));
        self.kind(schema, path, place.level);
        self.meta(schema, path, place.level);
        let given = (place.level == Level::Root).then_some(Given { schema, path });
        self.values(schema, given, path, place, true);
        let below = |level| Place { level, depth: place.depth + 1, ..*place };
        if schema["items"].is_object() {
            self.node(&schema["items"], &format!("{path}.items"), &below(Level::Item));
        }
        if schema["additionalProperties"].is_object() {
            let no_default = place.meta.then_some("inside additionalProperties applying to object metadata");
            let below = Place { no_default: no_default.or(place.no_default), ..below(Level::Field) };
            self.node(&schema["additionalProperties"], &format!("{path}.additionalProperties"), &below);
        }
        for (name, property) in entries(&schema["properties"]) {
            let whole = place.level == Level::Root || is_set(schema, "x-kubernetes-embedded-resource");
            let meta = whole && super::is_meta(name);
            let reason = format!("in top-level {name}");
            let no_default = (meta && place.level == Level::Root).then_some(reason.as_str());
            let below =
                Place { meta: place.meta || meta, no_default: no_default.or(place.no_default), ..below(Level::Field) };
            self.node(property, &format!("{path}.properties[{name}]"), &below);
        }
    }

    /// The type, and what goes with it.
    fn kind(&mut self, schema: &Value, path: &str, level: Level) {
        let kind = schema["type"].as_str().unwrap_or_default();
        let int_or_string = is_set(schema, "x-kubernetes-int-or-string");
        let preserve = is_set(schema, "x-kubernetes-preserve-unknown-fields");
        let embedded = is_set(schema, "x-kubernetes-embedded-resource");
        if kind == "array" && schema["items"].is_null() {
            self.required(format!("{path}.items"), "must be specified");
        }
        if level == Level::Root && !schema["additionalProperties"].is_null() {
            self.forbidden(format!("{path}.additionalProperties"), "must not be used at the root");
        }
        for (key, clash) in [("preserve-unknown-fields", preserve), ("embedded-resource", embedded)] {
            if int_or_string && clash {
                let detail = "must be false if x-kubernetes-int-or-string is true";
                self.invalid(format!("{path}.x-kubernetes-{key}"), &json!(true), detail);
            }
        }
        let at = format!("{path}.type");
        if embedded && kind != "object" {
            let detail = "must be object if x-kubernetes-embedded-resource is true";
            if kind.is_empty() { self.required(at, detail) } else { self.invalid(at, &json!(kind), detail) }
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

    /// apiVersion, kind and metadata are given: schemas may say little of them.
    fn meta(&mut self, schema: &Value, path: &str, level: Level) {
        let properties = &schema["properties"];
        let whole = level == Level::Root || is_set(schema, "x-kubernetes-embedded-resource");
        for (name, kind) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
            if whole && properties[name].is_object() && properties[name]["type"] != kind {
                let found = json!(properties[name]["type"].as_str().unwrap_or_default());
                self.invalid(format!("{path}.properties[{name}].type"), &found, &format!("must be {kind}"));
            }
        }
        let metadata = &properties["metadata"];
        if level == Level::Root && metadata.is_object() {
            let plain = entries(metadata).all(|(key, value)| match key.as_str() {
                "properties" => entries(value).all(|(name, _)| name == "name" || name == "generateName"),
                "type" | "default" => true,
                _ => false,
            });
            if !plain {
                let detail = "must not specify anything other than name and generateName, but metadata is \
                              implicitly specified";
                self.forbidden(format!("{path}.properties[metadata]"), detail);
            }
        }
    }

    /// What is asked of values. `types` allows the one place where junctors may name types: what int-or-string is
    /// spelled out as.
    fn values(&mut self, schema: &Value, given: Option<Given<'_>>, path: &str, place: &Place<'_>, types: bool) {
        if let Some(text) = schema["pattern"].as_str()
            && let Err(error) = pattern::regex(text)
        {
            let detail = format!("must be a valid regular expression, but isn't: {error}");
            self.invalid(format!("{path}.pattern"), &schema["pattern"], &detail);
        }
        for key in JUNCTORS {
            if key == "anyOf" && types && schema[key] == json!([{"type": "integer"}, {"type": "string"}]) {
                continue;
            }
            for (index, nested) in schema[key].as_array().into_iter().flatten().enumerate() {
                let types = types && key == "allOf" && index == 0;
                self.nested(nested, given, &format!("{path}.{key}[{index}]"), place, types);
            }
        }
        if schema["not"].is_object() {
            self.nested(&schema["not"], given, &format!("{path}.not"), place, false);
        }
    }

    /// A node that only says what values may be.
    fn nested(&mut self, schema: &Value, given: Option<Given<'_>>, path: &str, place: &Place<'_>, types: bool) {
        let place = &Place { depth: place.depth + 1, ..*place };
        if place.depth > MAX_DEPTH {
            return self.forbidden(path.into(), "must not be nested this deep");
        }
        let structural = self.errors.mark();
        self.keywords(schema, path, place);
        self.others.extend(self.errors.split_off(structural));
        self.values(schema, given, path, place, types);
        for (key, must) in UNSTRUCTURAL {
            let empty = match &schema[*key] {
                Value::Null => true,
                Value::Bool(set) => !set,
                Value::String(text) => text.is_empty(),
                Value::Array(list) => list.is_empty(),
                _ => false,
            };
            if !empty {
                self.forbidden(format!("{path}.{key}"), &format!("must be {must} to be structural"));
            }
        }
        if schema["items"].is_object() {
            self.below(&schema["items"], given, |given| &given["items"], ".items", path, place);
        }
        for (name, property) in entries(&schema["properties"]) {
            let step = format!(".properties[{name}]");
            self.below(property, given, |given| &given["properties"][name], &step, path, place);
        }
    }

    /// One step below a node in a junctor: what it speaks of has to be there outside of junctors too.
    fn below(
        &mut self,
        schema: &Value,
        given: Option<Given<'_>>,
        find: impl Fn(&Value) -> &Value,
        step: &str,
        path: &str,
        place: &Place<'_>,
    ) {
        let path = format!("{path}{step}");
        let Some(given) = given else { return self.nested(schema, None, &path, place, false) };
        let at = format!("{}{step}", given.path);
        let found = find(given.schema);
        if found.is_object() {
            self.nested(schema, Some(Given { schema: found, path: &at }), &path, place, false);
        } else {
            self.required(at, &format!("because it is defined in {path}"));
            self.nested(schema, None, &path, place, false);
        }
    }
}

/// The node outside of junctors that says what is there. As in the real server only junctors at the root are held
/// against it.
#[derive(Clone, Copy)]
struct Given<'a> {
    schema: &'a Value,
    path: &'a str,
}

/// What may not stand inside junctors, and what it has to be.
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

/// The entries of a JSON object; none of anything else.
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
        let strip = |text: String| text.replace("s.properties[spec]", "").trim_start_matches('.').to_owned();
        check(&schema, "s").iter().map(|error| strip(error.to_string())).collect()
    }

    #[test]
    fn every_node_needs_a_type_unless_it_says_otherwise() {
        assert_eq!(errors(json!({})), ["type: Required value: must not be empty for specified object fields"]);
        assert_eq!(
            errors(json!({"type": "array", "items": {}})),
            ["items.type: Required value: must not be empty for specified array items"]
        );
        assert_eq!(errors(json!({"type": "array"})), ["items: Required value: must be specified"]);
        assert!(errors(json!({"x-kubernetes-int-or-string": true})).is_empty());
        assert!(errors(json!({"x-kubernetes-preserve-unknown-fields": true})).is_empty());
        let root: Vec<_> = check(&json!({"type": "string"}), "s").iter().map(ToString::to_string).collect();
        assert_eq!(root, ["s.type: Invalid value: \"string\": must be object at the root"]);
    }

    #[test]
    fn junctors_say_only_what_values_may_be() {
        assert_eq!(
            errors(json!({"type": "string", "anyOf": [{"type": "string"}, {"default": "x"}]})),
            [
                "anyOf[0].type: Forbidden: must be empty to be structural",
                "anyOf[1].default: Forbidden: must be undefined to be structural",
            ]
        );
        assert!(errors(json!({"type": "string", "anyOf": [{"minLength": 1}], "not": {"pattern": "a"}})).is_empty());
        let spelled = json!([{"type": "integer"}, {"type": "string"}]);
        assert!(errors(json!({"x-kubernetes-int-or-string": true, "anyOf": spelled})).is_empty());
        assert!(errors(json!({"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": spelled}]})).is_empty());
        assert!(!errors(json!({"x-kubernetes-int-or-string": true, "oneOf": spelled})).is_empty());
    }

    #[test]
    fn junctors_at_the_root_speak_only_of_fields_that_are_there() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}},
            "anyOf": [{"properties": {"a": {"minLength": 1}, "b": {"minLength": 1}}}]});
        let found: Vec<_> = check(&schema, "s").iter().map(ToString::to_string).collect();
        assert_eq!(found, ["s.properties[b]: Required value: because it is defined in s.anyOf[0].properties[b]"]);
    }

    #[test]
    fn keywords_that_are_not_served_are_refused() {
        assert_eq!(
            errors(json!({"type": "object", "properties": {"a": {"type": "string"}},
                "additionalProperties": {"type": "string"}, "uniqueItems": true, "$ref": "#", "pattern": "("}))
            .len(),
            4
        );
        assert_eq!(
            errors(json!({"type": "text"})),
            ["type: Unsupported value: \"text\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \
              \"object\", \"string\""]
        );
    }

    #[test]
    fn metadata_is_given_and_has_no_defaults() {
        let schema = json!({"type": "object", "properties": {
            "kind": {"type": "string", "default": "x"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}, "labels": {"type": "object"}}},
        }});
        let found: Vec<_> = check(&schema, "s").iter().map(ToString::to_string).collect();
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
    fn a_schema_that_is_nested_too_deep_is_refused_and_not_walked() {
        let mut schema = json!({"type": "string"});
        for _ in 0..150 {
            schema = json!({"type": "object", "properties": {"a": schema}});
        }
        let found = check(&schema, "s");
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().ends_with("Forbidden: must not be nested this deep"));
    }
}
