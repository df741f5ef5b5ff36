//! The read and write pipeline between HTTP and the store, which is the same for all resources.
//!
//! A write is decoded and fitted to the schema (unknown fields are dropped, defaults are set),
//! passed to the mutating admission closures, validated, passed to the validating ones, and stored
//! if it changes the object. Differences between resources are data: the
//! [`Strategy`](crate::resource::Strategy) of a resource.
//!
//! All of this runs without the store's lock, on the object as it was when the request started. If
//! the object has changed meanwhile, the store rejects the write and the update is repeated on the
//! new object. A patch therefore conflicts only if it contains a resource version.

mod accept;
mod create;
mod delete;
mod read;
mod scale;
mod update;

pub(crate) use accept::unrecognized;
pub(crate) use delete::{CLEANUP, DeleteOptions, FOREGROUND, ORPHAN};
pub(crate) use read::{Filter, List};
pub(crate) use scale::ScaleInput;
pub(crate) use update::Input;

use crate::{
    admission::{Operation, Review},
    auth::Identity,
    builtin,
    catalog::{DEFINITIONS, Served},
    crd,
    http::query::write::WriteOptions,
    meta,
    object::{Content, Key, Object},
    server::Core,
    status::{Failure, FieldErrors, Result},
    store::WriteError,
    warnings::Warnings,
};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Subresource that a request addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subresource {
    /// The object itself.
    None,
    Status,
    Scale,
    /// The finalizers in a namespace's spec.
    Finalize,
}

impl Subresource {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Finalize => "finalize",
        }
    }
}

/// A request for objects of one resource.
pub(crate) struct ResourceRequest<'a> {
    pub(crate) core: &'a Core,
    pub(crate) served: &'a Served,
    /// Namespace of the request. Empty for cluster-scoped resources and for all namespaces.
    pub(crate) namespace: &'a str,
    pub(crate) subresource: Subresource,
    pub(crate) identity: &'a Identity,
    pub(crate) options: &'a WriteOptions,
    /// Texts for the `Warning` headers of the response.
    pub(crate) warnings: Warnings,
}

/// Object in a response.
#[derive(Debug)]
pub(crate) enum ResponseObject {
    /// An object as it is stored.
    Stored(Arc<Object>),
    /// An object that is not stored, or not in this form.
    Value(Value),
}

impl ResourceRequest<'_> {
    /// Returns a 404 for the object `name`.
    pub(crate) fn not_found(&self, name: &str) -> Box<Failure> {
        Failure::not_found(
            &self.served.resource.group,
            &self.served.resource.plural,
            name,
        )
    }

    fn invalid(&self, name: &str, errors: FieldErrors) -> Box<Failure> {
        let resource = &self.served.resource;
        let (group, _) = builtin::storage_of(&resource.group, &resource.plural);
        Failure::invalid(group, &resource.kind, name, errors)
    }

    fn conflict(&self, name: &str, cause: impl std::fmt::Display) -> Box<Failure> {
        Failure::conflict(
            &self.served.resource.group,
            &self.served.resource.plural,
            name,
            cause,
        )
    }

    fn key(&self, name: &str) -> Key {
        Key::new(self.namespace, name)
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<Object>> {
        self.core
            .store
            .get(&self.served.table, self.key(name).as_str())
    }

    /// Runs the mutating admission closures. `old` is the object that is replaced.
    fn mutate(
        &mut self,
        operation: Operation,
        name: &str,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<()> {
        if self.core.admission.is_mutating() {
            self.core
                .admission
                .run_mutating(&self.review(operation, name, old), object)?;
            self.served.resource.schema.default(object);
        }
        Ok(())
    }

    fn review<'b>(
        &'b self,
        operation: Operation,
        name: &'b str,
        old: Option<&'b Value>,
    ) -> Review<'b> {
        let resource = &self.served.resource;
        Review {
            operation,
            group: &resource.group,
            version: &resource.version,
            resource: &resource.plural,
            subresource: self.subresource.name(),
            namespace: self.namespace,
            name,
            dry_run: self.options.dry_run,
            identity: self.identity,
            old,
        }
    }

    /// Prepares an object for validation as its kind requires.
    fn prepare(&self, object: &mut Value, old: Option<&Value>) {
        let prepare = self.served.strategy().prepare;
        if !self.served.is_converted() {
            return prepare(object, old);
        }
        let mut stored = self.served.to_stored(std::mem::take(object));
        prepare(
            &mut stored,
            old.map(|old| self.served.to_stored(old.clone())).as_ref(),
        );
        *object = self.served.to_served(stored);
    }

    /// Sets fields that depend on other objects, such as allocated addresses.
    fn fill_from_other_objects(
        &self,
        name: &str,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<()> {
        builtin::resolve_dependencies(
            self.core,
            self.served.strategy().dependencies,
            name,
            object,
            old,
        )
    }

    /// Validates an object and reports all errors.
    fn validate(&mut self, name: &str, object: &Value, old: Option<&Value>) -> Result<()> {
        let resource = &self.served.resource;
        let mut errors = match old {
            None => meta::validate_create(resource, object),
            Some(old) => meta::validate_update(resource, object, old),
        };
        if resource.strategy.custom {
            // As in kube-apiserver, which validates custom resources twice on update, the second
            // time as on create.
            if old.is_some() {
                errors.extend(errors.clone());
                errors.extend(meta::validate_create(resource, object));
            }
            let found = match (self.subresource, old) {
                (Subresource::Status, Some(old)) => resource.schema.validate_status(object, old),
                _ => resource.schema.validate(object, old),
            };
            errors.extend(found.errors);
            self.warnings.extend(found.warnings);
            errors.extend(
                resource
                    .strategy
                    .scale
                    .iter()
                    .flat_map(|scale| scale::errors(scale, object)),
            );
        }
        // The further checks of a kind concern fields that a status update cannot change.
        if self.subresource == Subresource::Status {
            errors.extend((resource.strategy.validate_status)(object));
        } else {
            errors.extend(self.type_errors(object, old));
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(self.invalid(name, errors))
        }
    }

    fn type_errors(&self, object: &Value, old: Option<&Value>) -> FieldErrors {
        let validate = self.served.strategy().validate;
        if !self.served.is_converted() {
            return validate(object, old);
        }
        let stored = |object: &Value| self.served.to_stored(object.clone());
        validate(&stored(object), old.map(stored).as_ref())
    }

    /// Adds the warnings about an accepted object.
    fn warn(&mut self, object: &Value, old: Option<&Value>) {
        let strategy = self.served.strategy();
        if strategy.custom {
            self.warnings.extend(meta::finalizer_warnings(object, old));
        }
        self.warnings.extend((strategy.warn)(object));
        if &*self.served.table == DEFINITIONS && self.subresource == Subresource::None {
            self.warnings.extend(crd::warnings(object, old));
        }
    }

    /// Encodes the object in the storage version.
    ///
    /// Errors: the object is larger than etcd accepts.
    fn encode(&self, object: &Value) -> Result<Content> {
        let mut stored;
        let mut object = object;
        if self.served.is_converted()
            || self.served.storage_schema.is_some()
            || self.core.admission.is_mutating()
        {
            stored = object.clone();
            // Fields that an admission closure added are pruned only after all closures have run.
            self.served.resource.schema.prune(&mut stored);
            stored = self.served.to_stored(stored);
            if let Some(schema) = &self.served.storage_schema {
                schema.prune(&mut stored);
                schema.default(&mut stored);
            }
            object = &stored;
        }
        let content = Content::encode(object.as_object().unwrap_or(&Map::new()));
        if content.tail().len() > MAX_STORED {
            return Err(Failure::new(500, None, "etcdserver: request is too large"));
        }
        Ok(content)
    }

    /// Converts an error of the store that a retry cannot resolve into a failure.
    fn write_failure(&self, name: &str, error: &WriteError) -> Box<Failure> {
        match error {
            WriteError::Conflict | WriteError::PreconditionFailed => {
                self.conflict(name, CHANGED_MEANWHILE)
            }
            WriteError::NoTable => self.not_found(name),
            WriteError::Log(error) => Failure::internal(format!(
                "cannot write the change to the data directory: {error}"
            )),
        }
    }
}

/// Maximum size of a request to etcd, in bytes.
const MAX_STORED: usize = 3 << 19;

const CHANGED_MEANWHILE: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// Returns the metadata of an object, and inserts it if necessary.
pub(crate) fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let meta = object
        .as_object_mut()
        .expect("an object")
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    if !meta.is_object() {
        *meta = Value::Object(Map::new());
    }
    meta.as_object_mut().expect("an object")
}

/// Returns a string of the metadata, empty if it is missing.
pub(crate) fn meta_text<'a>(object: &'a Value, field: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(|meta| meta.get(field))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Returns the finalizers of an object.
pub(crate) fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    let finalizers = object
        .get("metadata")
        .and_then(|meta| meta.get("finalizers"));
    finalizers
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// Returns whether the object has a deletion timestamp.
pub(crate) fn is_deleting(object: &Value) -> bool {
    !meta_text(object, "deletionTimestamp").is_empty()
}

fn grace_seconds(object: &Value) -> Option<u64> {
    object
        .get("metadata")?
        .get("deletionGracePeriodSeconds")?
        .as_u64()
}

/// Returns whether a deleted object can be removed: no grace period and no finalizer is left.
fn is_removable(object: &Value) -> bool {
    let spec_finalizers = object
        .get("spec")
        .and_then(|spec| spec.get("finalizers"))
        .and_then(Value::as_array);
    let has_spec_finalizers =
        meta_kind(object) == "Namespace" && spec_finalizers.is_some_and(|list| !list.is_empty());
    is_deleting(object)
        && finalizers(object).next().is_none()
        && grace_seconds(object).unwrap_or(0) == 0
        && !has_spec_finalizers
}

fn meta_kind(object: &Value) -> &str {
    object
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Increments the generation, if the object has one.
fn bump_generation(object: &mut Value) {
    let meta = meta_mut(object);
    if let Some(generation) = meta
        .get("generation")
        .and_then(Value::as_u64)
        .filter(|generation| *generation > 0)
    {
        meta.insert("generation".into(), (generation + 1).into());
    }
}
