//! Changes of objects: a replacement, or a patch of what is there.

use super::{Answer, Call, Part, accept::check_name, bump_generation, may_go, meta_mut, meta_text};
use crate::{
    admission::Operation,
    builtin::{self, Needs},
    meta,
    object::Object,
    patch::Patch,
    resource::Generation,
    status::{Failure, FieldError, Reason, Result, StrictErrors},
    store::Refused,
};
use serde_json::Value;

/// How an object is to change.
pub(crate) enum Input {
    /// Into this, as [`Call::accept`] gave it.
    Replace(Value),
    /// By this, of which this is doubtful.
    Patch(Patch, StrictErrors),
}

/// What only the server may change, once an object is there.
const KEPT: [&str; 2] = ["creationTimestamp", "generation"];

/// What only the server may change too; but somebody who begins a deletion by an update is told so.
const KEPT_ONCE_THERE: [&str; 2] = ["deletionTimestamp", "deletionGracePeriodSeconds"];

impl Call<'_> {
    /// Change an object; true if it was created by that.
    pub(crate) fn update(&mut self, name: &str, input: &Input) -> Result<(Answer, bool)> {
        loop {
            let Some(existing) = self.find(name) else {
                match input {
                    Input::Replace(object) if self.served.strategy().create_on_update && self.part == Part::Whole => {
                        match self.create_by_update(name, object.clone()) {
                            // Somebody else was faster.
                            Err(failure) if failure.reason == Some(Reason::AlreadyExists) => continue,
                            made => return made.map(|answer| (answer, true)),
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

    /// A revision in it says nothing, but a uid is of an object that is gone.
    fn create_by_update(&mut self, name: &str, mut object: Value) -> Result<Answer> {
        check_name(name, &object)?;
        let uid = meta_text(&object, "uid");
        if !uid.is_empty() {
            self.check_uid(name, uid, &Value::Null)?;
        }
        meta_mut(&mut object).remove("resourceVersion");
        self.create(object)
    }

    /// `None` if somebody else was faster.
    fn try_update(&mut self, name: &str, input: &Input, existing: &std::sync::Arc<Object>) -> Result<Option<Answer>> {
        let old = self.served.decode(existing);
        let mut new = self.changed(name, input, &old)?;
        self.check_preconditions(name, input, &new, &old)?;
        self.keep_other_parts(&mut new, &old);
        self.mutate(Operation::Update, name, &mut new, Some(&old))?;
        let patched = matches!(input, Input::Patch(..));
        self.warnings.extend(meta::dedupe_owner_references(&mut new, patched));
        self.prepare_update(&mut new, &old);
        let core = self.core;
        let _allocating = (self.served.strategy().needs == Needs::Addresses).then(|| core.allocation.lock());
        if self.part == Part::Whole {
            self.settle(name, &mut new, Some(&old))?;
        }
        self.validate(name, &new, Some(&old))?;
        if self.served.strategy().custom {
            self.warnings.extend(meta::finalizer_warnings(&new, Some(&old)));
        }
        self.warnings.extend((self.served.strategy().warn)(&new));
        self.core.admission.run_validating(&self.review(Operation::Update, name, Some(&old)), Some(&new))?;
        let gone = may_go(&new) && !may_go(&old);
        let content = self.encode(&new)?;
        if content == *existing.content() && !gone {
            return Ok(Some(Answer::Stored(existing.clone())));
        }
        if self.options.dry_run {
            return Ok(Some(Answer::Value(new)));
        }
        let content = (!gone).then_some(content);
        match self.core.store.write(&self.served.table, &existing.key, Some(existing.revision), content) {
            // The last finalizer is gone, and the object with it: what is shown is what it would have become.
            Ok(_) if gone => Ok(Some(Answer::Value(new))),
            Ok(change) => Ok(change.after.clone().map(Answer::Stored)),
            Err(Refused::Moved) => Ok(None),
            Err(refused) => Err(self.refused(name, &refused)),
        }
    }

    /// What the object is to become, before anything else is looked at.
    fn changed(&mut self, name: &str, input: &Input, old: &Value) -> Result<Value> {
        match input {
            Input::Replace(object) => {
                check_name(name, object)?;
                Ok(object.clone())
            }
            Input::Patch(patch, faults) => {
                let patched = || {
                    let mut object = old.clone();
                    patch.apply(&mut object).map(|()| object)
                };
                let object = self.accept_patched(patched()?, faults.clone(), || patched().unwrap_or_default())?;
                check_name(name, &object)?;
                Ok(object)
            }
        }
    }

    /// The resourceVersion and uid that a request carries are what it expects.
    fn check_preconditions(&self, name: &str, input: &Input, new: &Value, old: &Value) -> Result<()> {
        let uid = meta_text(new, "uid");
        if matches!(input, Input::Replace(_)) && !uid.is_empty() {
            self.check_uid(name, uid, old)?;
        }
        let seen = meta_text(new, "resourceVersion");
        let seen = if seen.is_empty() { 0 } else { revision(seen)? };
        if seen == 0 {
            if !self.served.strategy().unconditional_update {
                let error =
                    FieldError::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
                // The real server names the resource here, not the kind.
                let resource = &self.served.resource;
                return Err(Failure::invalid(&resource.group, &resource.plural, name, vec![error]));
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
        let cause = format!("Precondition failed: UID in precondition: {expected}, UID in object meta: {found}");
        Err(self.conflict(name, cause))
    }

    /// A request on a part of an object leaves the others as they are.
    fn keep_other_parts(&self, new: &mut Value, old: &Value) {
        match self.part {
            Part::Whole | Part::Scale => {
                if self.served.strategy().status.is_some() {
                    copy(old, new, "status");
                }
            }
            Part::Status => {
                let mut kept = old.clone();
                copy(new, &mut kept, "status");
                let rule = self.served.strategy().status.unwrap_or_default();
                let also =
                    [("labels", rule.labels), ("annotations", rule.annotations), ("finalizers", rule.finalizers)];
                for (field, _) in also.iter().filter(|(_, taken)| *taken) {
                    copy(&new["metadata"], &mut kept["metadata"], field);
                }
                *new = kept;
                if &*self.served.table == crate::catalog::DEFINITIONS {
                    crate::crd::status::keep_stored(new);
                }
            }
            Part::Finalize => copy(old, new, "status"),
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        let old_meta = old.get("metadata").cloned().unwrap_or_default();
        let meta = meta_mut(new);
        for field in KEPT {
            match old_meta.get(field) {
                Some(value) => meta.insert(field.into(), value.clone()),
                None => meta.remove(field),
            };
        }
        for field in KEPT_ONCE_THERE {
            if let Some(value) = old_meta.get(field) {
                meta.insert(field.into(), value.clone());
            }
        }
        for field in ["uid", "resourceVersion"] {
            if meta.get(field).and_then(Value::as_str).is_none_or(str::is_empty)
                && let Some(value) = old_meta.get(field)
            {
                meta.insert(field.into(), value.clone());
            }
        }
        match self.part {
            Part::Whole => self.prepare(new, Some(old)),
            Part::Finalize => builtin::prepare_finalize(new),
            Part::Status | Part::Scale => {}
        }
        if self.served.strategy().generation == Generation::Spec && self.counts(new, old) {
            bump_generation(new);
        }
    }

    /// Whether a change is one of what is wanted, not only of what is.
    fn counts(&self, new: &Value, old: &Value) -> bool {
        let strategy = self.served.strategy();
        let wanted = |name: &str| {
            !matches!(name, "apiVersion" | "kind" | "metadata") && (strategy.status.is_none() || name != "status")
        };
        let more = |one: &Value, other: &Value| {
            let fields = one.as_object().into_iter().flatten();
            fields.filter(|(name, _)| wanted(name)).any(|(name, value)| other.get(name) != Some(value))
        };
        more(new, old) || more(old, new)
    }
}

/// The revision in a `resourceVersion`.
pub(crate) fn revision(text: &str) -> Result<u64> {
    text.parse().map_err(|_| {
        let message = format!("strconv.ParseUint: parsing {}: invalid syntax", Value::from(text));
        Failure::new(500, None::<Reason>, message)
    })
}

/// Make a field of `to` what it is in `from`.
fn copy(from: &Value, to: &mut Value, field: &str) {
    let Some(to) = to.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => to.insert(field.into(), value.clone()),
        None => to.remove(field),
    };
}
