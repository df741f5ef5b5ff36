//! Updates and patches of objects.

use super::{
    ResourceRequest, ResponseObject, Subresource, accept::check_name, bump_generation,
    is_removable, meta_mut, meta_text,
};
use crate::{
    admission::Operation,
    builtin::{self, Dependencies},
    meta,
    object::Object,
    patch::Patch,
    resource::Generation,
    status::{Failure, FieldError, Reason, Result, StrictErrors},
    store::WriteError,
};
use serde_json::Value;

/// Requested change of an object.
pub(crate) enum Input {
    /// Replaces the object by one that [`ResourceRequest::accept`] returned.
    Replace(Value),
    /// Applies a patch. The errors are those of decoding it.
    Patch(Patch, StrictErrors),
}

/// Metadata that always keeps its value.
const IMMUTABLE: [&str; 2] = ["creationTimestamp", "generation"];

/// Metadata that keeps its value once set. Validation rejects an update that sets it.
const IMMUTABLE_ONCE_SET: [&str; 2] = ["deletionTimestamp", "deletionGracePeriodSeconds"];

impl ResourceRequest<'_> {
    /// Changes an object. Returns `true` if that created it.
    pub(crate) fn update(&mut self, name: &str, input: &Input) -> Result<(ResponseObject, bool)> {
        loop {
            let Some(existing) = self.find(name) else {
                match input {
                    Input::Replace(object)
                        if self.served.strategy().create_on_update
                            && self.subresource == Subresource::None =>
                    {
                        match self.create_by_update(name, object.clone()) {
                            // Another request created it.
                            Err(failure) if failure.reason == Some(Reason::AlreadyExists) => {
                                continue;
                            }
                            created => return created.map(|answer| (answer, true)),
                        }
                    }
                    _ => return Err(self.not_found(name)),
                }
            };
            if let Some(answer) = self.try_update(name, input, &existing)? {
                return Ok((answer, false));
            }
        }
    }

    /// Creates the object of an update. Its resource version is ignored, but a uid is a conflict.
    fn create_by_update(&mut self, name: &str, mut object: Value) -> Result<ResponseObject> {
        check_name(name, &object)?;
        let uid = meta_text(&object, "uid");
        if !uid.is_empty() {
            self.check_uid(name, uid, &Value::Null)?;
        }
        meta_mut(&mut object).remove("resourceVersion");
        self.create(object)
    }

    /// Returns `None` after a conflict with another write.
    fn try_update(
        &mut self,
        name: &str,
        input: &Input,
        existing: &std::sync::Arc<Object>,
    ) -> Result<Option<ResponseObject>> {
        let old = self.served.decode(existing);
        let mut new = self.requested_object(name, input, &old)?;
        self.check_preconditions(name, input, &new, &old)?;
        self.keep_other_fields(&mut new, &old);
        self.mutate(Operation::Update, name, &mut new, Some(&old))?;
        let patched = matches!(input, Input::Patch(..));
        self.warnings
            .extend(meta::dedupe_owner_references(&mut new, patched));
        self.prepare_update(&mut new, &old);
        let core = self.core;
        let _allocating = (self.served.strategy().dependencies == Dependencies::Addresses)
            .then(|| core.allocation.lock());
        if self.subresource == Subresource::None {
            self.fill_from_other_objects(name, &mut new, Some(&old))?;
        }
        self.validate(name, &new, Some(&old))?;
        self.warn(&new, Some(&old));
        self.core.admission.run_validating(
            &self.review(Operation::Update, name, Some(&old)),
            Some(&new),
        )?;
        let gone = is_removable(&new) && !is_removable(&old);
        let content = self.encode(&new)?;
        if content == *existing.content() && !gone {
            return Ok(Some(ResponseObject::Stored(existing.clone())));
        }
        if self.options.dry_run {
            return Ok(Some(ResponseObject::Value(new)));
        }
        let content = (!gone).then_some(content);
        match self.core.store.write(
            &self.served.table,
            &existing.key,
            Some(existing.revision),
            content,
        ) {
            // The update removed the last finalizer and so the object. The response shows it as
            // updated.
            Ok(_) if gone => Ok(Some(ResponseObject::Value(new))),
            Ok(change) => Ok(change.after.clone().map(ResponseObject::Stored)),
            Err(WriteError::Conflict) => Ok(None),
            Err(error) => Err(self.write_failure(name, &error)),
        }
    }

    /// Returns the object with the requested change.
    fn requested_object(&mut self, name: &str, input: &Input, old: &Value) -> Result<Value> {
        match input {
            Input::Replace(object) => {
                check_name(name, object)?;
                Ok(object.clone())
            }
            Input::Patch(patch, errors) => {
                let patched = || {
                    let mut object = old.clone();
                    patch.apply(&mut object).map(|()| object)
                };
                let object = self
                    .accept_patched(patched()?, errors.clone(), || patched().unwrap_or_default())?;
                check_name(name, &object)?;
                Ok(object)
            }
        }
    }

    /// Compares the resource version and the uid of the request with those of the object.
    fn check_preconditions(
        &self,
        name: &str,
        input: &Input,
        new: &Value,
        old: &Value,
    ) -> Result<()> {
        let uid = meta_text(new, "uid");
        if matches!(input, Input::Replace(_)) && !uid.is_empty() {
            self.check_uid(name, uid, old)?;
        }
        let seen = meta_text(new, "resourceVersion");
        let seen = if seen.is_empty() { 0 } else { revision(seen)? };
        if seen == 0 {
            if !self.served.strategy().unconditional_update {
                let error = FieldError::invalid(
                    "metadata.resourceVersion",
                    &0.into(),
                    "must be specified for an update",
                );
                // Here kube-apiserver names the resource instead of the kind.
                let resource = &self.served.resource;
                return Err(Failure::invalid(
                    &resource.group,
                    &resource.plural,
                    name,
                    vec![error],
                ));
            }
        } else if seen != revision(meta_text(old, "resourceVersion"))? {
            return Err(self.conflict(name, super::CHANGED_MEANWHILE));
        }
        Ok(())
    }

    pub(super) fn check_uid(&self, name: &str, expected: &str, object: &Value) -> Result<()> {
        let found = meta_text(object, "uid");
        if expected == found {
            return Ok(());
        }
        let cause = format!(
            "Precondition failed: UID in precondition: {expected}, UID in object meta: {found}"
        );
        Err(self.conflict(name, cause))
    }

    /// Restores the fields that a request for this subresource must not change.
    fn keep_other_fields(&self, new: &mut Value, old: &Value) {
        match self.subresource {
            Subresource::None | Subresource::Scale => {
                if self.served.strategy().status.is_some() {
                    copy(old, new, "status");
                }
            }
            Subresource::Status => {
                let mut kept = old.clone();
                copy(new, &mut kept, "status");
                let rule = self.served.strategy().status.unwrap_or_default();
                let also = [
                    ("labels", rule.labels),
                    ("annotations", rule.annotations),
                    ("finalizers", rule.finalizers),
                ];
                for (field, _) in also.iter().filter(|(_, writable)| *writable) {
                    copy(&new["metadata"], &mut kept["metadata"], field);
                }
                *new = kept;
                if &*self.served.table == crate::catalog::DEFINITIONS {
                    crate::crd::status::restore_stored_versions(new);
                }
            }
            Subresource::Finalize => copy(old, new, "status"),
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        let old_meta = old.get("metadata").cloned().unwrap_or_default();
        let meta = meta_mut(new);
        for field in IMMUTABLE {
            match old_meta.get(field) {
                Some(value) => meta.insert(field.into(), value.clone()),
                None => meta.remove(field),
            };
        }
        for field in IMMUTABLE_ONCE_SET {
            if let Some(value) = old_meta.get(field) {
                meta.insert(field.into(), value.clone());
            }
        }
        for field in ["uid", "resourceVersion"] {
            if meta
                .get(field)
                .and_then(Value::as_str)
                .is_none_or(str::is_empty)
                && let Some(value) = old_meta.get(field)
            {
                meta.insert(field.into(), value.clone());
            }
        }
        match self.subresource {
            Subresource::None => self.prepare(new, Some(old)),
            Subresource::Finalize => builtin::prepare_finalize(new),
            Subresource::Status | Subresource::Scale => {}
        }
        if self.increments_generation(new, old) {
            bump_generation(new);
        }
    }

    /// Returns whether the update changes a field that counts as desired state: one other than
    /// metadata and status, or metadata of which the kind says so.
    fn increments_generation(&self, new: &Value, old: &Value) -> bool {
        let strategy = self.served.strategy();
        let is_desired_state = |name: &str| {
            !matches!(name, "apiVersion" | "kind" | "metadata")
                && (strategy.status.is_none() || name != "status")
        };
        let differs = |one: &Value, other: &Value| {
            let fields = one.as_object().into_iter().flatten();
            fields
                .filter(|(name, _)| is_desired_state(name))
                .any(|(name, value)| other.get(name) != Some(value))
        };
        let tracked = match strategy.generation {
            Generation::None | Generation::Deletion => return false,
            Generation::SpecAnd(field) if self.subresource == Subresource::None => Some(field),
            Generation::Spec | Generation::SpecAnd(_) => None,
        };
        differs(new, old)
            || differs(old, new)
            || tracked.is_some_and(|field| new["metadata"].get(field) != old["metadata"].get(field))
    }
}

/// Parses a resource version.
pub(crate) fn revision(text: &str) -> Result<u64> {
    text.parse().map_err(|_| {
        let message = format!(
            "strconv.ParseUint: parsing {}: invalid syntax",
            Value::from(text)
        );
        Failure::new(500, None::<Reason>, message)
    })
}

/// Copies a field from `from` to `to`, or removes it if `from` does not have it.
fn copy(from: &Value, to: &mut Value, field: &str) {
    let Some(to) = to.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => to.insert(field.into(), value.clone()),
        None => to.remove(field),
    };
}
