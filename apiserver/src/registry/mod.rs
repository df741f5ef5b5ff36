//! The way of a request to the store: the same steps, in the same order, for every type.
//!
//! A write is decoded and fitted to its schema (unknown fields are dropped, defaults filled in), admitted by those who may change
//! it, validated, admitted by those who may refuse it, and stored, if it changes anything. What types do differently is data: the
//! [`Strategy`](crate::resource::Strategy) of a resource.
//!
//! All of that runs without the store's lock, on the object as it was when the request looked. If somebody else was faster, the
//! store refuses, and an update starts anew from the object as it is then: a patch never conflicts unless it says what it expects.

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
    catalog::Served,
    http::query::write::WriteOptions,
    meta,
    object::{Content, Key, Object},
    server::Core,
    status::{Failure, FieldErrors, Result},
    store::Refused,
    warnings::Warnings,
};
use serde_json::{Map, Value};
use std::sync::Arc;

/// What part of an object a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    Status,
    Scale,
    /// The finalizers in a namespace's spec.
    Finalize,
}

impl Part {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Whole => "",
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Finalize => "finalize",
        }
    }
}

/// A request on one resource.
pub(crate) struct Call<'a> {
    pub(crate) core: &'a Core,
    pub(crate) served: &'a Served,
    /// Empty for cluster-scoped resources, and for all namespaces at once.
    pub(crate) namespace: &'a str,
    pub(crate) part: Part,
    pub(crate) identity: &'a Identity,
    pub(crate) options: &'a WriteOptions,
    /// For the answer's `Warning` headers.
    pub(crate) warnings: Warnings,
}

/// What a request is answered with.
#[derive(Debug)]
pub(crate) enum Answer {
    /// An object as it is stored.
    Stored(Arc<Object>),
    /// Something that is not stored, or not like that.
    Value(Value),
}

impl Call<'_> {
    /// 404 for a name.
    pub(crate) fn not_found(&self, name: &str) -> Box<Failure> {
        Failure::not_found(&self.served.resource.group, &self.served.resource.plural, name)
    }

    fn invalid(&self, name: &str, errors: FieldErrors) -> Box<Failure> {
        let resource = &self.served.resource;
        let (group, _) = builtin::storage_of(&resource.group, &resource.plural);
        Failure::invalid(group, &resource.kind, name, errors)
    }

    fn conflict(&self, name: &str, cause: impl std::fmt::Display) -> Box<Failure> {
        Failure::conflict(&self.served.resource.group, &self.served.resource.plural, name, cause)
    }

    fn key(&self, name: &str) -> Key {
        Key::new(self.namespace, name)
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<Object>> {
        self.core.store.get(&self.served.table, self.key(name).as_str())
    }

    /// Let those who may change the object do so. `old` is what it replaces.
    fn mutate(&mut self, operation: Operation, name: &str, object: &mut Value, old: Option<&Value>) -> Result<()> {
        if self.core.admission.is_mutating() {
            self.core.admission.run_mutating(&self.review(operation, name, old), object)?;
            self.served.resource.schema.default(object);
        }
        Ok(())
    }

    fn review<'b>(&'b self, operation: Operation, name: &'b str, old: Option<&'b Value>) -> Review<'b> {
        let resource = &self.served.resource;
        Review {
            operation,
            group: &resource.group,
            version: &resource.version,
            resource: &resource.plural,
            subresource: self.part.name(),
            namespace: self.namespace,
            name,
            dry_run: self.options.dry_run,
            identity: self.identity,
            old,
        }
    }

    /// What the type does to its objects before they are validated.
    fn prepare(&self, object: &mut Value, old: Option<&Value>) {
        let prepare = self.served.strategy().prepare;
        if !self.served.is_converted() {
            return prepare(object, old);
        }
        let mut stored = self.served.to_stored(std::mem::take(object));
        prepare(&mut stored, old.map(|old| self.served.to_stored(old.clone())).as_ref());
        *object = self.served.shown(stored);
    }

    /// What the type takes of other objects.
    fn settle(&self, name: &str, object: &mut Value, old: Option<&Value>) -> Result<()> {
        builtin::settle(self.core, self.served.strategy().needs, name, object, old)
    }

    /// All that is wrong with an object.
    fn validate(&self, name: &str, object: &Value, old: Option<&Value>) -> Result<()> {
        let resource = &self.served.resource;
        let mut errors = match old {
            None => meta::validate_create(resource, object),
            Some(old) => meta::validate_update(resource, object, old),
        };
        if resource.strategy.custom {
            // The real server looks at these twice, and the second time as if they were new.
            if old.is_some() {
                errors.extend(errors.clone());
                errors.extend(meta::validate_create(resource, object));
            }
            errors.extend(match (self.part, old) {
                (Part::Status, Some(old)) => resource.schema.validate_status(object, old),
                _ => resource.schema.validate(object, old),
            });
            errors.extend(resource.strategy.scale.iter().flat_map(|scale| scale::errors(scale, object)));
        }
        // What types ask beyond that is about what a status update leaves as it is.
        if self.part == Part::Status {
            errors.extend((resource.strategy.validate_status)(object));
        } else {
            errors.extend(self.type_errors(object, old));
        }
        if errors.is_empty() { Ok(()) } else { Err(self.invalid(name, errors)) }
    }

    fn type_errors(&self, object: &Value, old: Option<&Value>) -> FieldErrors {
        let validate = self.served.strategy().validate;
        if !self.served.is_converted() {
            return validate(object, old);
        }
        let stored = |object: &Value| self.served.to_stored(object.clone());
        validate(&stored(object), old.map(stored).as_ref())
    }

    /// The object as the storage version has it, encoded; refused if it is larger than the real server's store takes.
    fn encode(&self, object: &Value) -> Result<Content> {
        let mut stored;
        let mut object = object;
        if self.served.is_converted() || self.served.storage_schema.is_some() || self.core.admission.is_mutating() {
            stored = object.clone();
            // What a closure added is pruned here, after everyone has seen it.
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

    /// A refusal that trying again does not help against.
    fn refused(&self, name: &str, refused: &Refused) -> Box<Failure> {
        match refused {
            Refused::Moved | Refused::Guard => self.conflict(name, CHANGED_MEANWHILE),
            Refused::NoTable => self.not_found(name),
            Refused::Log(error) => Failure::internal(format!("the change could not be made durable: {error}")),
        }
    }
}

/// The longest request that etcd takes, in bytes.
const MAX_STORED: usize = 3 << 19;

const CHANGED_MEANWHILE: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// An object's metadata; made if it has none.
pub(crate) fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let meta =
        object.as_object_mut().expect("just made one").entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if !meta.is_object() {
        *meta = Value::Object(Map::new());
    }
    meta.as_object_mut().expect("just made one")
}

/// A text of an object's metadata, empty if there is none.
pub(crate) fn meta_text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|meta| meta.get(field)).and_then(Value::as_str).unwrap_or_default()
}

/// An object's finalizers.
pub(crate) fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    let finalizers = object.get("metadata").and_then(|meta| meta.get("finalizers"));
    finalizers.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Deletion has begun.
pub(crate) fn is_deleting(object: &Value) -> bool {
    !meta_text(object, "deletionTimestamp").is_empty()
}

fn grace_seconds(object: &Value) -> Option<u64> {
    object.get("metadata")?.get("deletionGracePeriodSeconds")?.as_u64()
}

/// Nothing holds an object back any longer: it was deleted, its time is over and its finalizers are gone.
fn may_go(object: &Value) -> bool {
    let spec_finalizers = object.get("spec").and_then(|spec| spec.get("finalizers")).and_then(Value::as_array);
    let held_by_spec = meta_kind(object) == "Namespace" && spec_finalizers.is_some_and(|list| !list.is_empty());
    is_deleting(object)
        && finalizers(object).next().is_none()
        && grace_seconds(object).unwrap_or(0) == 0
        && !held_by_spec
}

fn meta_kind(object: &Value) -> &str {
    object.get("kind").and_then(Value::as_str).unwrap_or_default()
}

/// Deletion begins, or another change that counts: the generation, if the type has one, goes up.
fn bump_generation(object: &mut Value) {
    let meta = meta_mut(object);
    if let Some(generation) = meta.get("generation").and_then(Value::as_u64).filter(|generation| *generation > 0) {
        meta.insert("generation".into(), (generation + 1).into());
    }
}
