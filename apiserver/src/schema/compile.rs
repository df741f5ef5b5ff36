//! Compilation of a structural `openAPIV3Schema` to a table of nodes.

use super::{
    Additional, Bound, ListType, Node, NodeId, Pattern, Rules, Schema, ValueFormat, ValueType,
    formats, path::Path, pattern, validate::NO_FIELD,
};
use crate::status::{FieldError, FieldErrors};
use serde_json::{Map, Value};

/// Logical junctors: keywords with lists of schemas.
pub(super) const JUNCTORS: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Compiles a structural schema without its CEL rules. Returns also whether it has any.
pub(super) fn compile(schema: &Value, preserve: bool) -> (Schema, bool) {
    let mut compiler = Compiler {
        nodes: Vec::new(),
        has_rules: false,
    };
    let root = compiler.add(schema);
    let Compiler {
        mut nodes,
        has_rules,
    } = compiler;
    nodes[root as usize].preserve |= preserve;
    let has_embedded = nodes.iter().any(|node| node.embedded);
    let has_lists = nodes.iter().any(|node| node.list != ListType::Atomic);
    let schema = Schema {
        nodes: nodes.into(),
        root,
        builtin: false,
        rules: None,
        has_embedded,
        has_lists,
    };
    (schema, has_rules)
}

struct Compiler {
    nodes: Vec<Node>,
    has_rules: bool,
}

impl Compiler {
    fn add(&mut self, schema: &Value) -> NodeId {
        let mut fields: Vec<(Box<str>, NodeId)> = schema["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, schema)| (name.as_str().into(), self.add(schema)))
            .collect();
        fields.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let additional = match &schema["additionalProperties"] {
            Value::Bool(true) => Additional::Open,
            Value::Bool(false) => Additional::Forbidden,
            each @ Value::Object(_) => Additional::Each(self.add(each)),
            _ => Additional::None,
        };
        let items = schema["items"]
            .is_object()
            .then(|| self.add(&schema["items"]));
        let kind = kind(schema);
        self.has_rules |= schema["x-kubernetes-validations"]
            .as_array()
            .is_some_and(|rules| !rules.is_empty());
        let node = Node {
            kind,
            nullable: flag(schema, "nullable"),
            preserve: flag(schema, "x-kubernetes-preserve-unknown-fields"),
            embedded: flag(schema, "x-kubernetes-embedded-resource"),
            default: Some(&schema["default"])
                .filter(|value| !value.is_null())
                .cloned(),
            fields,
            additional,
            items,
            list: list(schema),
            atomic: schema["x-kubernetes-map-type"] == "atomic",
            format: schema["format"]
                .as_str()
                .and_then(|name| format(kind, name)),
            rules: schema.as_object().and_then(|schema| self.rules(schema)),
            go: None,
            written_empty: Vec::new(),
            zero: Vec::new(),
            filled: Vec::new(),
            rule: None,
        };
        self.nodes.push(node);
        // A CRD has at most a few MB, so its nodes are far fewer than 2^32.
        (self.nodes.len() - 1) as NodeId
    }

    /// Returns `None` if there are no validations, so that validation can skip the node.
    fn rules(&mut self, schema: &Map<String, Value>) -> Option<Box<Rules>> {
        let count = |key: &str| {
            schema
                .get(key)
                .and_then(Value::as_u64)
                .map(|count| count as usize)
        };
        let bound = |key: &str, exclusive: &str| {
            let exclusive = schema
                .get(exclusive)
                .and_then(Value::as_bool)
                .unwrap_or(false);
            schema
                .get(key)
                .and_then(Value::as_f64)
                .map(|at| Bound { at, exclusive })
        };
        let list = |key: &str| {
            schema
                .get(key)
                .and_then(Value::as_array)
                .map(Vec::as_slice)
                .unwrap_or_default()
        };
        let pattern = schema
            .get("pattern")
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty());
        let [all_of, any_of, one_of] = JUNCTORS.map(|key| {
            list(key)
                .iter()
                .map(|schema| self.add(schema))
                .collect::<Vec<_>>()
        });
        let rules = Rules {
            maximum: bound("maximum", "exclusiveMaximum"),
            minimum: bound("minimum", "exclusiveMinimum"),
            multiple_of: schema.get("multipleOf").and_then(Value::as_f64),
            max_length: count("maxLength"),
            min_length: count("minLength"),
            pattern: pattern.and_then(|text| {
                Some(Pattern {
                    text: text.into(),
                    regex: pattern::regex(text).ok()?,
                })
            }),
            max_items: count("maxItems"),
            min_items: count("minItems"),
            max_properties: count("maxProperties"),
            min_properties: count("minProperties"),
            required: strings(list("required")),
            one_of_values: list("enum").to_vec(),
            all_of,
            any_of,
            one_of,
            not: schema
                .get("not")
                .filter(|not| not.is_object())
                .map(|not| self.add(not)),
        };
        (!rules.is_empty()).then(|| Box::new(rules))
    }
}

impl Rules {
    fn is_empty(&self) -> bool {
        let counts = [
            self.max_length,
            self.min_length,
            self.max_items,
            self.min_items,
            self.max_properties,
            self.min_properties,
        ];
        self.maximum.is_none()
            && self.minimum.is_none()
            && self.multiple_of.is_none()
            && self.pattern.is_none()
            && self.not.is_none()
            && self.required.is_empty()
            && self.one_of_values.is_empty()
            && counts.iter().all(Option::is_none)
            && [&self.all_of, &self.any_of, &self.one_of]
                .iter()
                .all(|of| of.is_empty())
    }
}

fn kind(schema: &Value) -> ValueType {
    if flag(schema, "x-kubernetes-int-or-string") {
        return ValueType::IntOrString;
    }
    match schema["type"].as_str().unwrap_or_default() {
        "array" => ValueType::Array,
        "boolean" => ValueType::Boolean,
        "integer" => ValueType::Integer,
        "number" => ValueType::Number,
        "object" => ValueType::Object,
        "string" => ValueType::String,
        _ => ValueType::Any,
    }
}

/// Formats of other types and unknown formats are ignored.
fn format(kind: ValueType, name: &str) -> Option<ValueFormat> {
    match (kind, name) {
        (ValueType::Integer, "int32") => Some(ValueFormat::Int32),
        (ValueType::Integer, "int64") => Some(ValueFormat::Int64),
        (ValueType::Number, "float") => Some(ValueFormat::Float),
        (ValueType::Number, "double") => Some(ValueFormat::Double),
        (ValueType::String | ValueType::Any, _) => {
            Some(ValueFormat::Text(name.into(), formats::check(name)?))
        }
        _ => None,
    }
}

pub(super) fn list(schema: &Value) -> ListType {
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(strings(
            schema["x-kubernetes-list-map-keys"]
                .as_array()
                .map_or(&[], Vec::as_slice),
        )),
        _ => ListType::Atomic,
    }
}

fn flag(schema: &Value, key: &str) -> bool {
    schema[key].as_bool().unwrap_or(false)
}

fn strings(list: &[Value]) -> Vec<String> {
    list.iter()
        .filter_map(Value::as_str)
        .map(String::from)
        .collect()
}

impl Schema {
    /// Checks that each default is valid and unchanged by pruning.
    pub(super) fn check_defaults(&self, schema: &Value, path: &str) -> FieldErrors {
        let mut errors = FieldErrors::new();
        self.check_defaults_below(self.root, schema, path, &mut errors);
        errors
    }

    /// Checks the defaults at and below `id`, which was compiled from `schema`.
    fn check_defaults_below(
        &self,
        id: NodeId,
        schema: &Value,
        path: &str,
        errors: &mut FieldErrors,
    ) {
        let node = self.node(id);
        if let Some(default) = &node.default {
            let at = format!("{path}.default");
            let mut pruned = default.clone();
            if self.prune_at(id, &mut pruned) {
                errors.push(FieldError::invalid(
                    &at,
                    default,
                    "must not have unknown fields",
                ));
            }
            let mut found = FieldErrors::new();
            self.check(id, default, None, &Path::ROOT, &mut found);
            self.check_resources(node, default, &Path::ROOT, &mut found);
            errors.extend(found.into_iter().map(|error| {
                let is_root = error.field.is_empty() || error.field == NO_FIELD;
                let field = if is_root {
                    at.clone()
                } else {
                    format!("{at}.{}", error.field)
                };
                FieldError { field, ..error }
            }));
        }
        if let Some(items) = node.items {
            self.check_defaults_below(items, &schema["items"], &format!("{path}.items"), errors);
        }
        for (name, id) in &node.fields {
            let schema = &schema["properties"][&**name];
            self.check_defaults_below(*id, schema, &format!("{path}.properties[{name}]"), errors);
        }
    }
}
