//! Description of a resource. Built-in ones are rows of a table, custom ones come from their CRDs.

use crate::{
    builtin::{Dependencies, Warn},
    schema::Schema,
    status::FieldErrors,
};
use serde_json::Value;
use std::{
    ops::Deref,
    sync::{Arc, OnceLock},
};

/// A resource in one version, served at one path.
#[derive(Debug)]
pub(crate) struct Resource {
    /// API group. Empty for the core group.
    pub(crate) group: Arc<str>,
    /// API version, such as `v1`.
    pub(crate) version: Arc<str>,
    /// Kind, such as `ConfigMap`.
    pub(crate) kind: Arc<str>,
    /// Kind of lists, such as `ConfigMapList`.
    pub(crate) list_kind: Arc<str>,
    /// Plural name, as in the path: `configmaps`.
    pub(crate) plural: Arc<str>,
    /// Singular name: `configmap`.
    pub(crate) singular: Arc<str>,
    /// Short names: `cm`.
    pub(crate) short_names: Vec<Arc<str>>,
    /// Categories: `all`.
    pub(crate) categories: Vec<Arc<str>>,
    pub(crate) namespaced: bool,
    /// Served verbs, in the order of the discovery document:
    /// `create, delete, deletecollection, get, list, patch, update, watch`.
    pub(crate) verbs: &'static [&'static str],
    /// Behaviour that differs between types.
    pub(crate) strategy: Strategy,
    /// Schema of the object without its metadata.
    pub(crate) schema: ResourceSchema,
    /// Columns that `kubectl get` prints after the name.
    pub(crate) columns: Vec<Column>,
    /// Fields that field selectors support besides `metadata.name` and `metadata.namespace`.
    pub(crate) selectable: Vec<Selectable>,
    /// Warning for clients of a deprecated version.
    pub(crate) deprecation: Option<Arc<str>>,
    /// Version in which objects are stored.
    pub(crate) storage: Arc<str>,
}

/// The schema of a resource.
#[derive(Debug)]
pub(crate) enum ResourceSchema {
    /// Built-in type, by name. Looked up on first use, so that a server starts quickly.
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

/// Behaviour of a resource's objects where types differ.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a way in which types differ"
)]
pub(crate) struct Strategy {
    /// Defined by a CRD.
    pub(crate) custom: bool,
    /// When `metadata.generation` increases.
    pub(crate) generation: Generation,
    /// A PUT without resourceVersion is accepted.
    pub(crate) unconditional_update: bool,
    /// A PUT of an object that does not exist creates it.
    pub(crate) create_on_update: bool,
    /// DELETE returns the object instead of a `Status`.
    pub(crate) returns_deleted: bool,
    /// Returns the grace period of a deletion in seconds. `None` if the type has no graceful
    /// deletion.
    pub(crate) grace: Option<fn(&Value) -> u64>,
    /// Set if `/status` is served: fields that it can change besides `status`.
    pub(crate) status: Option<StatusRule>,
    /// Set if `/scale` is served: paths of its fields.
    pub(crate) scale: Option<Scale>,
    /// Grammar of object names.
    pub(crate) name: NameRule,
    /// Changes a new object before validation. The second argument is the object that it replaces.
    pub(crate) prepare: fn(&mut Value, Option<&Value>),
    /// Validates an object beyond schema and metadata. The second argument is the object that it
    /// replaces.
    pub(crate) validate: fn(&Value, Option<&Value>) -> FieldErrors,
    /// Validates a status written to `/status`.
    pub(crate) validate_status: fn(&Value) -> FieldErrors,
    /// Data that the object takes from other objects.
    pub(crate) dependencies: Dependencies,
    /// Returns warnings about accepted objects.
    pub(crate) warn: Warn,
}

/// When `metadata.generation` increases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// The type has no generation.
    None,
    /// Starts at 1 and increases only when deletion begins.
    Deletion,
    /// Increases with every change of `spec`. For custom resources: with every change outside of
    /// metadata and, if `/status` is served, outside of `status`.
    Spec,
    /// Increases as with `Spec`, and with every change of this field of the metadata.
    SpecAnd(&'static str),
}

/// Fields besides `status` that a status update can change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatusRule {
    /// `metadata.labels`.
    pub(crate) labels: bool,
    /// `metadata.annotations`.
    pub(crate) annotations: bool,
    /// `metadata.finalizers`.
    pub(crate) finalizers: bool,
}

/// Paths of the fields of `/scale`, as keys from the object's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    /// `spec.replicas`.
    pub(crate) spec_replicas: Vec<String>,
    /// `status.replicas`.
    pub(crate) status_replicas: Vec<String>,
    /// Path of the selector: text for custom resources, a label selector for built-in ones.
    pub(crate) selector: Option<Vec<String>>,
}

/// Grammar of object names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// DNS subdomain of at most 253 characters, such as `a.b-c.d`. Most types.
    Subdomain,
    /// DNS label of at most 63 characters, such as `a-b`. Namespaces and services.
    Label,
    /// Any text that is one segment of a path. RBAC.
    PathSegment,
}

/// A column of `kubectl get`.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// Heading.
    pub(crate) name: String,
    /// Type: `string`, `integer`, `number`, `boolean` or `date`.
    pub(crate) kind: String,
    /// Format, such as `int64`. Usually empty.
    pub(crate) format: String,
    /// Description.
    pub(crate) description: String,
    /// 0 if always printed, higher if printed only with `-o wide`.
    pub(crate) priority: i32,
    pub(crate) cell: Cell,
}

/// Computes the value of a cell.
#[derive(Clone)]
pub(crate) enum Cell {
    /// JSON path of the printer column of a CRD.
    Path(String),
    /// Function, for built-in types.
    Code(fn(&Value, &crate::clock::Clock) -> Value),
}

/// A field that field selectors support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selectable {
    /// Name in a selector: `spec.nodeName`.
    pub(crate) name: String,
    /// Keys from the object's root to the field.
    pub(crate) path: Vec<String>,
}

impl Resource {
    /// Returns `group/version`, or `v1` for the core group.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
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
