//! Creation of objects.

use super::{ResourceRequest, ResponseObject, meta_mut, meta_text};
use crate::{
    admission::Operation,
    builtin::Dependencies,
    catalog::NAMESPACES,
    meta,
    object::{Head, Object},
    resource::Generation,
    status::{Cause, Failure, Result},
    store::{Precondition, WriteError},
};
use serde_json::Value;
use std::sync::Arc;

/// Maximum number of attempts to generate a name that does not exist.
const NAME_ATTEMPTS: usize = 8;

/// Metadata that only the server sets.
const SERVER_SET: [&str; 4] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

impl ResourceRequest<'_> {
    /// Creates an object.
    pub(crate) fn create(&mut self, mut object: Value) -> Result<ResponseObject> {
        let mut namespace = self.active_namespace(&object)?;
        let meta = meta_mut(&mut object);
        for field in SERVER_SET {
            meta.remove(field);
        }
        // Kinds without generations keep the value of the request.
        if self.served.strategy().generation != Generation::None
            || meta.get("generation") == Some(&0.into())
        {
            meta.remove("generation");
        }
        let name = meta_text(&object, "name").to_owned();
        self.mutate(Operation::Create, &name, &mut object, None)?;
        let base = meta_text(&object, "generateName").to_owned();
        let generated = meta_text(&object, "name").is_empty() && !base.is_empty();
        if generated {
            self.generate_name(&mut object, &base);
        }
        let name = meta_text(&object, "name").to_owned();
        self.warnings
            .extend(meta::dedupe_owner_references(&mut object, false));
        self.prepare_create(&mut object);
        let core = self.core;
        let _allocating = (self.served.strategy().dependencies == Dependencies::Addresses)
            .then(|| core.allocation.lock());
        self.fill_from_other_objects(&name, &mut object, None)?;
        self.validate(&name, &object, None)?;
        self.warn(&object, None);
        self.core
            .admission
            .run_validating(&self.review(Operation::Create, &name, None), Some(&object))?;
        if self.options.dry_run {
            return match self.find(&name) {
                Some(_) => Err(self.already_exists(&name)),
                None => Ok(ResponseObject::Value(object)),
            };
        }
        check_resource_version(&object)?;
        meta_mut(&mut object).remove("resourceVersion");
        let mut attempts = 0;
        while attempts < NAME_ATTEMPTS {
            let name = meta_text(&object, "name");
            let key = self.key(name);
            let content = Some(self.encode(&object)?);
            let precondition = namespace.as_deref().map(|object| Precondition {
                table: NAMESPACES,
                object,
            });
            match self.core.store.write_with_precondition(
                &self.served.table,
                &key,
                None,
                content,
                precondition,
            ) {
                Ok(change) => {
                    return Ok(change
                        .after
                        .clone()
                        .map_or(ResponseObject::Value(object), ResponseObject::Stored));
                }
                // The namespace has changed, so check again that it is not terminating.
                Err(WriteError::PreconditionFailed) => {
                    namespace = self.active_namespace(&object)?;
                }
                Err(WriteError::Conflict) if generated => {
                    attempts += 1;
                    self.generate_name(&mut object, &base);
                }
                Err(WriteError::Conflict) => return Err(self.already_exists(name)),
                Err(error) => return Err(self.write_failure(name, &error)),
            }
        }
        let mut failure = self.already_exists(meta_text(&object, "name"));
        if let Some(details) = &mut failure.details {
            details.retry_after_seconds = Some(1);
        }
        Err(failure)
    }

    fn generate_name(&self, object: &mut Value, base: &str) {
        let name = self.core.random(|random| meta::generate_name(base, random));
        meta_mut(object).insert("name".into(), name.into());
    }

    fn prepare_create(&self, object: &mut Value) {
        let strategy = self.served.strategy();
        if strategy.status.is_some()
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
            self.served.resource.schema.default_field(object, "status");
        }
        let meta = meta_mut(object);
        meta.insert("uid".into(), self.core.uid().into());
        meta.insert(
            "creationTimestamp".into(),
            self.core.clock.timestamp().into(),
        );
        if strategy.generation != Generation::None {
            meta.insert("generation".into(), 1.into());
        }
        self.prepare(object, None);
    }

    fn already_exists(&self, name: &str) -> Box<Failure> {
        let resource = &self.served.resource;
        let mut failure = Failure::already_exists(&resource.group, &resource.plural, name);
        let existing = self.find(name).map(|object| self.served.decode(&object));
        if existing.is_some_and(|object| super::is_deleting(&object)) {
            failure.message = format!("object is being deleted: {}", failure.message);
        }
        failure
    }

    /// Returns the namespace of a new object, `None` for a cluster-scoped one.
    ///
    /// Errors: the namespace does not exist or is terminating.
    fn active_namespace(&self, object: &Value) -> Result<Option<Arc<Object>>> {
        if self.namespace.is_empty() {
            return Ok(None);
        }
        let Some(namespace) = self.core.store.get(NAMESPACES, self.namespace) else {
            return Err(Failure::not_found("", "namespaces", self.namespace));
        };
        if !is_terminating(&namespace) {
            return Ok(Some(namespace));
        }
        let resource = &self.served.resource;
        let reason = format!(
            "unable to create new content in namespace {} because it is being terminated",
            self.namespace
        );
        let names = ["name", "generateName"].map(|field| meta_text(object, field));
        let name = names
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or("Unknown");
        let mut failure = Failure::forbidden(&resource.group, &resource.plural, name, reason);
        let cause = Cause {
            reason: "NamespaceTerminating",
            message: format!("namespace {} is being terminated", self.namespace),
            field: "metadata.namespace".into(),
        };
        if let Some(details) = &mut failure.details {
            details.causes.push(cause);
        }
        Err(failure)
    }
}

/// Checks that the request has no resource version. kube-apiserver does so when it stores the
/// object: after validation, and not in a dry run.
fn check_resource_version(object: &Value) -> Result<()> {
    // As in kube-apiserver, a value that is not a number is ignored.
    let version = meta_text(object, "resourceVersion").parse();
    if version.is_ok_and(|version: u64| version > 0) {
        return Err(Failure::new(
            500,
            None,
            "resourceVersion should not be set on objects to be created",
        ));
    }
    Ok(())
}

fn is_terminating(namespace: &Object) -> bool {
    namespace.mentions(b"\"deletionTimestamp\"")
        && super::is_deleting(&Value::Object(namespace.decode(&Head::bare())))
}
