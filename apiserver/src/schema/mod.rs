//! Structural schemas: pruning, defaulting and validation of objects.
//!
//! A schema is a flat table of nodes that refer to each other by index, so that recursive types
//! need no special case and all built-in types share one table.

mod builtin;
pub(crate) mod cel;
mod checksums;
mod compile;
mod decode;
mod default;
mod embedded;
mod formats;
mod gotime;
mod keywords;
mod listtype;
mod path;
mod pattern;
#[cfg(test)]
mod properties;
mod prune;
pub(crate) mod quantity;
mod structural;
#[cfg(test)]
mod tests;
mod validate;

use crate::status::FieldErrors;
use regex::Regex;
use serde_json::{Map, Value};
use std::{fmt, sync::Arc};

/// The schema of a resource.
pub(crate) struct Schema {
    nodes: Arc<[Node]>,
    root: NodeId,
    /// The schema is that of a built-in type, which Go decodes.
    builtin: bool,
    /// CEL rules. `None` if there are none.
    rules: Option<cel::Rules>,
    /// Some values are resources with apiVersion, kind and metadata.
    has_embedded: bool,
    /// Some lists are sets or maps.
    has_lists: bool,
}

/// Index of a node in its table.
pub(crate) type NodeId = u32;

/// Schema of one value.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a keyword of schemas"
)]
pub(crate) struct Node {
    pub(crate) kind: ValueType,
    pub(crate) nullable: bool,
    /// Unknown fields are kept.
    pub(crate) preserve: bool,
    /// The value is a resource with apiVersion, kind and metadata.
    pub(crate) embedded: bool,
    pub(crate) default: Option<Value>,
    /// Fields, sorted by name.
    pub(crate) fields: Vec<(Box<str>, NodeId)>,
    pub(crate) additional: Additional,
    pub(crate) items: Option<NodeId>,
    pub(crate) list: ListType,
    /// The map is atomic.
    pub(crate) atomic: bool,
    pub(crate) format: Option<ValueFormat>,
    pub(crate) rules: Option<Box<Rules>>,
    /// Go type of a built-in type: `v1.PodSpec`.
    pub(crate) go: Option<Box<str>>,
    /// Fields that Go writes even if they are empty, for types without `filled`.
    written_empty: Vec<Box<str>>,
    /// Fields that Go omits if they are zero, for built-in types.
    zero: Vec<Box<str>>,
    /// Values of missing fields, for built-in types: their default, or the zero value that Go
    /// writes.
    filled: Vec<(Box<str>, Value)>,
    /// Sets fields that depend on other fields, for built-in types.
    rule: Option<DefaultRule>,
}

/// Function that sets fields of an object depending on others.
pub(crate) type DefaultRule = fn(&mut Map<String, Value>);

/// Type of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ValueType {
    #[default]
    Any,
    Array,
    Boolean,
    Integer,
    IntOrString,
    Number,
    Object,
    String,
}

/// Schema of fields that are not listed in `properties`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Additional {
    /// The schema has no `additionalProperties`: such fields are unknown.
    #[default]
    None,
    /// `false`: such fields are forbidden.
    Forbidden,
    /// `true`: such fields are allowed, but their content is unknown.
    Open,
    /// Schema of all such fields.
    Each(NodeId),
}

/// Identity of a list's items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    #[default]
    Atomic,
    Set,
    /// Items are identified by these fields.
    Map(Vec<String>),
}

/// Format of a string or number.
#[derive(Clone, Debug)]
pub(crate) enum ValueFormat {
    Int32,
    Int64,
    Float,
    Double,
    /// Format of a string: its name, and the function that checks it.
    Text(Box<str>, fn(&str) -> bool),
    /// RFC 3339 timestamp.
    Time,
    /// RFC 3339 timestamp with exactly six fractional digits.
    MicroTime,
    Quantity,
    /// Base64 text.
    Byte,
}

/// Validations of a value besides its type. Few nodes have any.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    maximum: Option<Bound>,
    minimum: Option<Bound>,
    multiple_of: Option<f64>,
    max_length: Option<usize>,
    min_length: Option<usize>,
    pattern: Option<Pattern>,
    max_items: Option<usize>,
    min_items: Option<usize>,
    max_properties: Option<usize>,
    min_properties: Option<usize>,
    required: Vec<String>,
    one_of_values: Vec<Value>,
    all_of: Vec<NodeId>,
    any_of: Vec<NodeId>,
    one_of: Vec<NodeId>,
    not: Option<NodeId>,
}

/// Limit of a number.
#[derive(Clone, Copy, Debug)]
struct Bound {
    at: f64,
    /// The limit itself is invalid.
    exclusive: bool,
}

/// A regular expression and its source text.
#[derive(Debug)]
struct Pattern {
    text: String,
    regex: Regex,
}

impl Schema {
    /// Returns a schema that keeps and accepts everything.
    pub(crate) fn any() -> Self {
        let keep = Node {
            preserve: true,
            ..Node::default()
        };
        Self {
            nodes: Arc::new([keep]),
            root: 0,
            builtin: false,
            rules: None,
            has_embedded: false,
            has_lists: false,
        }
    }

    /// Compiles the `openAPIV3Schema` of a CRD's version. `path` is its path in the CRD.
    pub(crate) fn from_crd(
        schema: &Value,
        preserve_unknown_fields: bool,
        path: &str,
    ) -> Result<Self, FieldErrors> {
        let (mut errors, others) = structural::check(schema, path);
        if !errors.is_empty() {
            errors.extend(others);
            return Err(errors);
        }
        let (mut compiled, has_rules) = compile::compile(schema, preserve_unknown_fields);
        errors.extend(compiled.check_defaults(schema, path));
        errors.extend(others);
        if has_rules {
            let (rules, found) = cel::compile(schema, path, errors.is_empty());
            compiled.rules = rules;
            errors.extend(found);
        }
        if errors.is_empty() {
            Ok(compiled)
        } else {
            Err(errors)
        }
    }

    /// Returns the schema of a built-in type, such as `io.k8s.api.core.v1.ConfigMap`.
    ///
    /// # Panics
    ///
    /// Panics if there is no such type. All callers pass constants.
    pub(crate) fn builtin(definition: &'static str) -> Self {
        builtin::schema(definition)
            .unwrap_or_else(|| panic!("no built-in type has the name {definition}"))
    }

    /// Returns the root node.
    pub(crate) fn root(&self) -> &Node {
        self.node(self.root)
    }

    /// Returns a node by its index.
    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    /// Returns the node of a field of `node`.
    pub(crate) fn field(&self, node: &Node, name: &str) -> Option<&Node> {
        node.field(name).map(|id| self.node(id))
    }
}

impl Node {
    /// Returns the index of the node of a field: its own, or that of all additional fields.
    fn field(&self, name: &str) -> Option<NodeId> {
        match (self.named(name), self.additional) {
            (Some(id), _) | (None, Additional::Each(id)) => Some(id),
            _ => None,
        }
    }

    fn named(&self, name: &str) -> Option<NodeId> {
        let at = self
            .fields
            .binary_search_by(|(field, _)| (**field).cmp(name))
            .ok()?;
        Some(self.fields[at].1)
    }
}

/// Reports whether values of this type are checked for this format. An empty type is that of a
/// string.
pub(crate) fn is_known_format(kind: &str, format: &str) -> bool {
    match kind {
        "" | "string" => formats::check(format).is_some(),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}

impl fmt::Debug for Schema {
    /// Prints only the number of nodes, which can be thousands.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema")
            .field("nodes", &self.nodes.len())
            .finish_non_exhaustive()
    }
}

/// Returns Go's error of parsing a time.
pub(crate) fn time_error(text: &str) -> Option<String> {
    gotime::parse(text, false).err()
}

/// Reports whether the field belongs to every object and not to its schema.
fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

/// Returns the JSON type of a value.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
