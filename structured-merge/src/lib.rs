//! Kubernetes server-side apply: field sets, schema-aware merge, conflicts and `managedFields`.
//!
//! This crate is a Rust counterpart of Go's `sigs.k8s.io/structured-merge-diff` and of the
//! `managedfields` package of `k8s.io/apimachinery`. It does no I/O: objects are
//! [`serde_json::Value`]s, and the caller passes the time. Results, conflicts and messages equal
//! those of the API server. The tests compare them with recordings of the Go packages.
//!
//! | to do this | use |
//! |---|---|
//! | apply and update objects with `managedFields`, as an API server does | [`FieldManager`] |
//! | read or write `metadata.managedFields` | [`ManagedFields`] |
//! | compute with sets of fields | [`Set`] |
//! | merge, compare and validate values by schema | [`TypedValue`] |
//! | merge without the conventions of Kubernetes objects | [`Updater`] |
//! | describe how a kind merges | [`schema`] |
//!
//! An apply passes three steps. [`FieldManager`] decodes the live object's managed fields
//! and pairs each object with its [`schema::Type`]. [`Updater`] merges the values, compares the
//! result with the live object, and turns changes of fields that other managers own into conflicts
//! or transfers of ownership. [`FieldManager`] encodes the managed fields into the result.
//!
//! Recursion is bounded by [`MAX_DEPTH`]. No JSON input causes a panic.

mod conflict;
mod field_manager;
mod fields_v1;
mod filter;
mod go_text;
mod managed;
mod path;
pub mod schema;
mod set;
mod typed;
mod updater;
mod value;

pub use conflict::{Conflict, Conflicts};
pub use field_manager::{
    ApplyError, ExtractError, FieldManager, GroupVersionKind, ScaleHandler, Versions,
    equal_ignoring_timestamps, extract,
};
pub use filter::{Filter, Pattern};
pub use managed::{
    DecodeError, Entry, ManagedFields, ManagerKey, Managers, Operation, Time, TimeError,
    VersionedSet,
};
pub use path::{Path, PathElement, PathError};
pub use set::Set;
pub use typed::{Comparison, Duplicates, TypedValue, ValidationError, ValidationErrors};
pub use updater::{ConvertError, Converter, UpdateError, Updater};

/// Maximum nesting of objects, schemas and managed fields.
///
/// It is the limit of the parser of `serde_json`.
pub const MAX_DEPTH: usize = 128;
