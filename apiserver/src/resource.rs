//! What the server needs to know of a resource: built-ins are rows of a table, custom ones come from their definitions.

use crate::{
    builtin::{Needs, Warn},
    schema::Schema,
    status::FieldErrors,
};
use serde_json::Value;
use std::{
    ops::Deref,
    sync::{Arc, OnceLock},
};

/// One resource in one version, as it is served at one path.
#[derive(Debug)]
pub(crate) struct Resource {
    /// Empty for the core group.
    pub(crate) group: Arc<str>,
    /// Such as `v1`.
    pub(crate) version: Arc<str>,
    /// Such as `ConfigMap`.
    pub(crate) kind: Arc<str>,
    /// Such as `ConfigMapList`.
    pub(crate) list_kind: Arc<str>,
    /// As in the path: `configmaps`.
    pub(crate) plural: Arc<str>,
    /// `configmap`.
    pub(crate) singular: Arc<str>,
    /// `cm`.
    pub(crate) short_names: Vec<Arc<str>>,
    /// `all`.
    pub(crate) categories: Vec<Arc<str>>,
    /// Objects live in namespaces.
    pub(crate) namespaced: bool,
    /// What is served, in the order discovery shows: `create, delete, deletecollection, get, list, patch, update, watch`.
    pub(crate) verbs: &'static [&'static str],
    /// How its objects behave.
    pub(crate) strategy: Strategy,
    /// Of the whole object; metadata is not its business.
    pub(crate) schema: ResourceSchema,
    /// What `kubectl get` shows after the name.
    pub(crate) columns: Vec<Column>,
    /// Field selectors beyond `metadata.name` and `metadata.namespace`: name and path.
    pub(crate) selectable: Vec<Selectable>,
    /// What its users are warned of.
    pub(crate) deprecation: Option<Arc<str>>,
    /// The version that its objects are stored in.
    pub(crate) storage: Arc<str>,
}

/// The schema of a resource.
#[derive(Debug)]
pub(crate) enum ResourceSchema {
    /// By the name of a built-in's type: looked up when it is first needed, so that a server is ready at once.
    Builtin(&'static str, OnceLock<Schema>),
    Custom(Arc<Schema>),
}

impl ResourceSchema {
    pub(crate) fn builtin(definition: &'static str) -> Self {
        Self::Builtin(definition, OnceLock::new())
    }
}

impl Deref for ResourceSchema {
    type Target = Schema;
    fn deref(&self) -> &Schema {
        match self {
            Self::Builtin(definition, schema) => schema.get_or_init(|| Schema::builtin(definition)),
            Self::Custom(schema) => schema,
        }
    }
}

/// How the objects of a resource behave where types differ.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a way in which types differ")]
pub(crate) struct Strategy {
    /// Defined by a `CustomResourceDefinition`.
    pub(crate) custom: bool,
    /// When `metadata.generation` counts.
    pub(crate) generation: Generation,
    /// A PUT without resourceVersion is accepted.
    pub(crate) unconditional_update: bool,
    /// A PUT to a name that is not there creates it.
    pub(crate) create_on_update: bool,
    /// DELETE answers with the object, not with a `Status`.
    pub(crate) returns_deleted: bool,
    /// How long an object is given to go, if deletion is graceful for its type.
    pub(crate) grace: Option<fn(&Value) -> u64>,
    /// `/status` is served, and takes these besides `status`.
    pub(crate) status: Option<StatusRule>,
    /// `/scale` is served.
    pub(crate) scale: Option<Scale>,
    /// What names may look like.
    pub(crate) name: NameRule,
    /// Changes an object before it is validated, given the one it replaces: what types do beyond schema and metadata.
    pub(crate) prepare: fn(&mut Value, Option<&Value>),
    /// What is wrong with an object, given the one it replaces, beyond schema and metadata.
    pub(crate) validate: fn(&Value, Option<&Value>) -> FieldErrors,
    /// What is wrong with a status that is reported.
    pub(crate) validate_status: fn(&Value) -> FieldErrors,
    /// What it takes from other objects.
    pub(crate) needs: Needs,
    /// What is said of what is taken nevertheless.
    pub(crate) warn: Warn,
}

/// When `metadata.generation` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// The type has none.
    None,
    /// It is 1, and counts only when deletion begins.
    Deletion,
    /// With every change of `spec` (custom resources: of anything but metadata and a status of its own).
    Spec,
}

/// What a status update takes besides `status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatusRule {
    /// `metadata.labels`.
    pub(crate) labels: bool,
    /// `metadata.annotations`.
    pub(crate) annotations: bool,
    /// `metadata.finalizers`.
    pub(crate) finalizers: bool,
}

/// Where `/scale` finds its numbers, as keys from the object's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    /// `spec.replicas`.
    pub(crate) spec_replicas: Vec<String>,
    /// `status.replicas`.
    pub(crate) status_replicas: Vec<String>,
    /// A selector as text, or (built-ins) a label selector.
    pub(crate) selector: Option<Vec<String>>,
}

/// What names may look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// `a.b-c.d`, at most 253: most types.
    Subdomain,
    /// `a-b`, at most 63, starting with a letter or digit: namespaces and services.
    Label,
    /// Anything that can stand in a path: RBAC.
    PathSegment,
}

/// A column of `kubectl get`.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// Its heading.
    pub(crate) name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub(crate) kind: String,
    /// Such as `int64`; mostly empty.
    pub(crate) format: String,
    /// What it means.
    pub(crate) description: String,
    /// 0 is always shown, more only with `-o wide`.
    pub(crate) priority: i32,
    /// How its cell is made.
    pub(crate) cell: Cell,
}

/// How a cell is made.
#[derive(Clone)]
pub(crate) enum Cell {
    /// By the JSON path of a definition's printer column.
    Path(String),
    /// By code: for built-ins.
    Code(fn(&Value, &crate::clock::Clock) -> Value),
}

/// A field that can be selected by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selectable {
    /// As it is written in a selector: `spec.nodeName`.
    pub(crate) name: String,
    /// The keys that lead to it, from the object's root.
    pub(crate) path: Vec<String>,
}

impl Resource {
    /// `group/version`, or `v1` for the core group.
    pub(crate) fn api_version(&self) -> String {
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
