//! Structural schemas: what an object's fields may be, what is dropped from it, filled into it and wrong with it.
//!
//! A schema is a flat table of nodes that refer to each other by index, so that recursive types need nothing special
//! and all built-in types share one table.

mod builtin;
mod compile;
mod decode;
mod default;
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
    root: Id,
    /// The object is one of Kubernetes' own types, which Go decodes.
    builtin: bool,
    /// There are rules in CEL, which are checked only on objects that are otherwise in order.
    has_rules: bool,
    /// There are lists that are sets or maps.
    has_lists: bool,
}

/// A node's place in its table.
pub(crate) type Id = u32;

/// What one value may be.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a keyword of schemas")]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) nullable: bool,
    /// Fields that are not mentioned are kept.
    pub(crate) preserve: bool,
    /// A whole object with apiVersion, kind and metadata.
    pub(crate) embedded: bool,
    pub(crate) default: Option<Value>,
    /// By name, sorted.
    pub(crate) fields: Vec<(Box<str>, Id)>,
    pub(crate) additional: Additional,
    pub(crate) items: Option<Id>,
    pub(crate) list: List,
    /// The map is replaced as a whole.
    pub(crate) atomic: bool,
    pub(crate) format: Option<Format>,
    pub(crate) rules: Option<Box<Rules>>,
    /// The Go type, for built-ins: `v1.PodSpec`.
    pub(crate) go: Option<Box<str>>,
    /// The fields that Go writes even if they are empty, for types of which nothing more is known.
    written_empty: Vec<Box<str>>,
    /// The fields that Go leaves out when they are zero, for built-ins.
    zero: Vec<Box<str>>,
    /// What fields become that are not given, for built-ins: their default, or what Go writes of them anyway.
    filled: Vec<(Box<str>, Value)>,
    /// Fills in what depends on other fields, for built-ins.
    rule: Option<Rule>,
}

/// Fills in fields of an object that depend on others.
pub(crate) type Rule = fn(&mut Map<String, Value>);

/// The types that a value may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
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

/// What fields an object may have besides those named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Additional {
    /// Nothing is said: they are unknown.
    #[default]
    None,
    /// `false`: they are refused.
    Refused,
    /// `true`: they may be there, but what is inside them is unknown.
    Open,
    /// They all look like this.
    Each(Id),
}

/// How a list's items are told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum List {
    #[default]
    Atomic,
    Set,
    /// By these fields.
    Map(Vec<String>),
}

/// The format of a string or number.
#[derive(Clone, Debug)]
pub(crate) enum Format {
    Int32,
    Int64,
    Float,
    Double,
    /// Of a string: the name, and what tells whether a text has it.
    Text(Box<str>, fn(&str) -> bool),
    /// RFC 3339.
    Time,
    /// RFC 3339 with exactly six fractional digits.
    MicroTime,
    Quantity,
    /// Base64.
    Byte,
}

/// What is asked of a value beyond its type. Few nodes ask anything.
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
    all_of: Vec<Id>,
    any_of: Vec<Id>,
    one_of: Vec<Id>,
    not: Option<Id>,
}

/// The end of a range.
#[derive(Clone, Copy, Debug)]
struct Bound {
    at: f64,
    /// The end itself is outside.
    exclusive: bool,
}

/// A regular expression, with the text that it was written as.
#[derive(Debug)]
struct Pattern {
    text: String,
    regex: Regex,
}

impl Schema {
    /// A schema that keeps and accepts everything.
    pub(crate) fn any() -> Self {
        let keep = Node { preserve: true, ..Node::default() };
        Self { nodes: Arc::new([keep]), root: 0, builtin: false, has_rules: false, has_lists: false }
    }

    /// The schema of a custom resource's version: its `openAPIV3Schema`, which stands at `path` of the definition.
    pub(crate) fn from_crd(schema: &Value, preserve_unknown_fields: bool, path: &str) -> Result<Self, FieldErrors> {
        let (mut errors, others) = structural::check(schema, path);
        if !errors.is_empty() {
            errors.extend(others);
            return Err(errors);
        }
        let compiled = compile::compile(schema, preserve_unknown_fields);
        errors.extend(compiled.check_defaults(schema, path));
        errors.extend(others);
        if errors.is_empty() { Ok(compiled) } else { Err(errors) }
    }

    /// The schema of one of Kubernetes' own types, such as `io.k8s.api.core.v1.ConfigMap`.
    ///
    /// # Panics
    ///
    /// If there is no such type: the names are the server's own.
    pub(crate) fn builtin(definition: &'static str) -> Self {
        builtin::schema(definition).unwrap_or_else(|| panic!("no built-in type is called {definition}"))
    }

    /// What stands at the root of an object.
    pub(crate) fn root(&self) -> &Node {
        self.node(self.root)
    }

    /// The node that another one refers to.
    pub(crate) fn node(&self, id: Id) -> &Node {
        &self.nodes[id as usize]
    }

    /// The node that describes a field of `node`'s value.
    pub(crate) fn field(&self, node: &Node, name: &str) -> Option<&Node> {
        node.field(name).map(|id| self.node(id))
    }
}

impl Node {
    /// Which node describes a field: its own, or the one that all further fields share.
    fn field(&self, name: &str) -> Option<Id> {
        match (self.named(name), self.additional) {
            (Some(id), _) | (None, Additional::Each(id)) => Some(id),
            _ => None,
        }
    }

    fn named(&self, name: &str) -> Option<Id> {
        let at = self.fields.binary_search_by(|(field, _)| (**field).cmp(name)).ok()?;
        Some(self.fields[at].1)
    }
}

impl fmt::Debug for Schema {
    /// Short: a schema may have thousands of nodes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema").field("nodes", &self.nodes.len()).finish_non_exhaustive()
    }
}

/// What Go says of a text that is no time; nothing if it is one.
pub(crate) fn time_error(text: &str) -> Option<String> {
    gotime::parse(text, false).err()
}

/// Fields that every object has, and that are not its schema's business.
fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

/// What JSON calls a value's type.
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
