//! New objects.

use super::{Answer, Call, meta_mut, meta_text};
use crate::{
    admission::Operation,
    builtin::Needs,
    catalog::NAMESPACES,
    meta,
    object::{Head, Object},
    resource::Generation,
    status::{Cause, Failure, Result},
    store::{Guard, Refused},
};
use serde_json::Value;
use std::sync::Arc;

/// So often a generated name may be taken.
const NAME_ATTEMPTS: usize = 8;

/// What only the server may say of an object.
const OWNED: [&str; 5] =
    ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"];

impl Call<'_> {
    /// Store a new object.
    pub(crate) fn create(&mut self, mut object: Value) -> Result<Answer> {
        // What is no number is none.
        if meta_text(&object, "resourceVersion").parse().is_ok_and(|version: u64| version > 0) {
            return Err(Failure::new(500, None, "resourceVersion should not be set on objects to be created"));
        }
        let mut namespace = self.open_namespace(&object)?;
        let meta = meta_mut(&mut object);
        for field in OWNED {
            meta.remove(field);
        }
        // A type without generations leaves what it is told.
        if self.served.strategy().generation != Generation::None || meta.get("generation") == Some(&0.into()) {
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
        self.warnings.extend(meta::dedupe_owner_references(&mut object, false));
        self.prepare_create(&mut object);
        let core = self.core;
        let _allocating = (self.served.strategy().needs == Needs::Addresses).then(|| core.allocation.lock());
        self.settle(&name, &mut object, None)?;
        self.validate(&name, &object, None)?;
        if self.served.strategy().custom {
            self.warnings.extend(meta::finalizer_warnings(&object, None));
        }
        self.warnings.extend((self.served.strategy().warn)(&object));
        self.core.admission.run_validating(&self.review(Operation::Create, &name, None), Some(&object))?;
        if self.options.dry_run {
            return match self.find(&name) {
                Some(_) => Err(self.taken(&name)),
                None => Ok(Answer::Value(object)),
            };
        }
        let mut attempts = 0;
        while attempts < NAME_ATTEMPTS {
            let name = meta_text(&object, "name");
            let (key, content) = (self.key(name), Some(self.encode(&object)?));
            let guard = namespace.as_deref().map(|object| Guard { table: NAMESPACES, object });
            match self.core.store.write_guarded(&self.served.table, &key, None, content, guard) {
                Ok(change) => return Ok(change.after.clone().map_or(Answer::Value(object), Answer::Stored)),
                // Something happened to the namespace: is it still there to stay?
                Err(Refused::Guard) => namespace = self.open_namespace(&object)?,
                Err(Refused::Moved) if generated => {
                    attempts += 1;
                    self.generate_name(&mut object, &base);
                }
                Err(Refused::Moved) => return Err(self.taken(name)),
                Err(refused) => return Err(self.refused(name, &refused)),
            }
        }
        let mut failure = self.taken(meta_text(&object, "name"));
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
        meta.insert("creationTimestamp".into(), self.core.clock.timestamp().into());
        if strategy.generation != Generation::None {
            meta.insert("generation".into(), 1.into());
        }
        self.prepare(object, None);
    }

    fn taken(&self, name: &str) -> Box<Failure> {
        let resource = &self.served.resource;
        let mut failure = Failure::already_exists(&resource.group, &resource.plural, name);
        let existing = self.find(name).map(|object| self.served.decode(&object));
        if existing.is_some_and(|object| super::is_deleting(&object)) {
            failure.message = format!("object is being deleted: {}", failure.message);
        }
        failure
    }

    /// The namespace of a new object: one that is there, and is to stay. `None` if the object has none.
    fn open_namespace(&self, object: &Value) -> Result<Option<Arc<Object>>> {
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
        let why =
            format!("unable to create new content in namespace {} because it is being terminated", self.namespace);
        let names = ["name", "generateName"].map(|field| meta_text(object, field));
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown");
        let mut failure = Failure::forbidden(&resource.group, &resource.plural, name, why);
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

fn is_terminating(namespace: &Object) -> bool {
    namespace.mentions(b"\"deletionTimestamp\"") && super::is_deleting(&Value::Object(namespace.decode(&Head::bare())))
}
