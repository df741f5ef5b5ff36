//! What the server needs to know of a resource: built-ins are rows of a table, custom ones come from their definitions.

use crate::{schema::Schema, status::FieldError};
use serde_json::Value;
use std::sync::Arc;

/// One resource in one version, as it is served at one path.
#[derive(Debug)]
pub struct Resource {
    /// Empty for the core group.
    pub group: Arc<str>,
    /// Such as `v1`.
    pub version: Arc<str>,
    /// Such as `ConfigMap`.
    pub kind: Arc<str>,
    /// Such as `ConfigMapList`.
    pub list_kind: Arc<str>,
    /// As in the path: `configmaps`.
    pub plural: Arc<str>,
    /// `configmap`.
    pub singular: Arc<str>,
    /// `cm`.
    pub short_names: Vec<Arc<str>>,
    /// `all`.
    pub categories: Vec<Arc<str>>,
    /// Objects live in namespaces.
    pub namespaced: bool,
    /// What is served, in the order discovery shows: `create, delete, deletecollection, get, list, patch, update, watch`.
    pub verbs: &'static [&'static str],
    /// How its objects behave.
    pub strategy: Strategy,
    /// Of the whole object; metadata is not its business.
    pub schema: Arc<Schema>,
    /// What `kubectl get` shows after the name.
    pub columns: Vec<Column>,
    /// Field selectors beyond `metadata.name` and `metadata.namespace`: name and path.
    pub selectable: Vec<Selectable>,
}

/// How the objects of a resource behave where types differ.
#[derive(Clone, Debug)]
pub struct Strategy {
    /// Defined by a `CustomResourceDefinition`.
    pub custom: bool,
    /// When `metadata.generation` counts.
    pub generation: Generation,
    /// A PUT without resourceVersion is accepted.
    pub unconditional_update: bool,
    /// A PUT to a name that is not there creates it.
    pub create_on_update: bool,
    /// DELETE answers with the object, not with a `Status`.
    pub returns_deleted: bool,
    /// How long an object is given to go, if deletion is graceful for its type.
    pub grace: Option<fn(&Value) -> u64>,
    /// `/status` is served, and takes these besides `status`.
    pub status: Option<StatusRule>,
    /// `/scale` is served.
    pub scale: Option<Scale>,
    /// What names may look like.
    pub name: NameRule,
    /// Changes an object before it is validated, given the one it replaces: what types do beyond schema and metadata.
    pub prepare: fn(&mut Value, Option<&Value>),
    /// What is wrong with an object, given the one it replaces, beyond schema and metadata.
    pub validate: fn(&Value, Option<&Value>) -> Vec<FieldError>,
}

/// When `metadata.generation` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// The type has none.
    None,
    /// With every change of `spec` (custom resources: of anything but metadata and a status of its own).
    Spec,
    /// It is 1, and counts only when deletion begins: pods.
    Deletion,
}

/// What a status update takes besides `status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusRule {
    /// `metadata.labels`.
    pub labels: bool,
    /// `metadata.annotations`.
    pub annotations: bool,
    /// `metadata.finalizers`.
    pub finalizers: bool,
}

/// Where `/scale` finds its numbers, as keys from the object's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// `spec.replicas`.
    pub spec_replicas: Vec<String>,
    /// `status.replicas`.
    pub status_replicas: Vec<String>,
    /// A selector as text, or (built-ins) a label selector.
    pub selector: Option<Vec<String>>,
}

/// What names may look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// `a.b-c.d`, at most 253: most types.
    Subdomain,
    /// `a-b`, at most 63, starting with a letter or digit: namespaces.
    Label,
    /// `a-b`, at most 63, starting with a letter: services.
    Label1035,
    /// Anything that can stand in a path: RBAC.
    PathSegment,
}

/// A column of `kubectl get`.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its heading.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    /// Such as `int64`; mostly empty.
    pub format: String,
    /// What it means.
    pub description: String,
    /// 0 is always shown, more only with `-o wide`.
    pub priority: i32,
    /// How its cell is made.
    pub cell: Cell,
}

/// How a cell is made.
#[derive(Clone)]
pub enum Cell {
    /// By the JSON path of a definition's printer column.
    Path(String),
    /// By code: for built-ins.
    Code(fn(&Value, &crate::clock::Clock) -> Value),
}

/// A field that can be selected by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selectable {
    /// As it is written in a selector: `spec.nodeName`.
    pub name: String,
    /// The keys that lead to it, from the object's root.
    pub path: Vec<String>,
}

impl Resource {
    /// `group/version`, or `v1` for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }
}

impl std::fmt::Debug for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(path) => f.debug_tuple("Path").field(path).finish(),
            Self::Code(_) => f.write_str("Code"),
        }
    }
}
