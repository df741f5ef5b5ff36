//! Deletion: at once, or marked and held back by finalizers and grace.

use super::{Answer, Call, bump_generation, finalizers, grace_seconds, is_deleting, may_go, meta_mut, meta_text};
use crate::{
    admission::{Operation, Review},
    catalog::{DEFINITIONS, NAMESPACES},
    clock::timestamp,
    http::query::Query,
    object::Object,
    status::{Failure, FieldError, Result},
    store::Refused,
};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

/// Holds an owner until its dependents are gone.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// Holds an owner until its dependents have let go of it.
pub(crate) const ORPHAN: &str = "orphan";
/// Holds a definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// How an object is to be deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeleteOptions {
    grace: Option<u64>,
    policy: Option<Policy>,
    uid: Option<String>,
    resource_version: Option<String>,
    pub(crate) dry_run: bool,
}

/// Options as a body has them. Those of another type are refused: an object must not go because nobody understood when not to.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Given {
    kind: Option<String>,
    grace_period_seconds: Option<i64>,
    propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
    dry_run: Option<Vec<String>>,
    preconditions: Option<Preconditions>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

/// What becomes of the objects that it owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Background,
    Foreground,
    Orphan,
}

impl DeleteOptions {
    /// From the body, or if that is empty from the query.
    pub(crate) fn parse(body: Option<&Value>, query: &Query) -> Result<Self> {
        let Some(body) = body else {
            return Self::build(
                query.get("gracePeriodSeconds").map(|seconds| number(seconds, "gracePeriodSeconds")).transpose()?,
                query.get("propagationPolicy"),
                query.flag("orphanDependents"),
                &query.all("dryRun").collect::<Vec<_>>(),
            );
        };
        let body = Given::deserialize(body).map_err(|error| Failure::bad_request(format!("DeleteOptions: {error}")))?;
        if body.kind.as_deref().is_some_and(|kind| !matches!(kind, "" | "DeleteOptions")) {
            return Err(Failure::bad_request("decoded object cannot be converted to DeleteOptions"));
        }
        let dry_run = body.dry_run.unwrap_or_default();
        let mut dry_run: Vec<&str> = dry_run.iter().map(String::as_str).collect();
        if dry_run.is_empty() {
            dry_run.extend(query.all("dryRun"));
        }
        let options = Self::build(
            body.grace_period_seconds,
            body.propagation_policy.as_deref(),
            body.orphan_dependents,
            &dry_run,
        )?;
        let expected = body.preconditions.unwrap_or_default();
        Ok(Self { uid: expected.uid, resource_version: expected.resource_version, ..options })
    }

    fn build(grace: Option<i64>, policy: Option<&str>, orphan: Option<bool>, dry_run: &[&str]) -> Result<Self> {
        let invalid = |error| Failure::invalid("meta.k8s.io", "DeleteOptions", "", vec![error]);
        if let Some(other) = dry_run.iter().find(|value| **value != "All") {
            return Err(invalid(FieldError::not_supported("dryRun", &(*other).into(), ["All"])));
        }
        if policy.is_some() && orphan.is_some() {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            return Err(invalid(FieldError::invalid("propagationPolicy", &policy.into(), why)));
        }
        let policy = match policy {
            None => orphan.map(|orphan| if orphan { Policy::Orphan } else { Policy::Background }),
            Some("Background") => Some(Policy::Background),
            Some("Foreground") => Some(Policy::Foreground),
            Some("Orphan") => Some(Policy::Orphan),
            Some(other) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                return Err(invalid(FieldError::not_supported("propagationPolicy", &other.into(), supported)));
            }
        };
        // A negative grace counts as one second, as in the real server.
        let grace = grace.map(|seconds| u64::try_from(seconds).unwrap_or(1));
        Ok(Self { grace, policy, uid: None, resource_version: None, dry_run: !dry_run.is_empty() })
    }
}

fn number(text: &str, field: &str) -> Result<i64> {
    text.parse().map_err(|_| Failure::bad_request(format!("strconv.ParseInt: {field} is not a whole number")))
}

/// Deletion began then, and is given so many seconds.
fn set_deletion(object: &mut Value, began: Timestamp, grace: u64) {
    // No longer than there are times: a later deletion has to find its way back from the end to the beginning.
    let grace = grace.min(Timestamp::MAX.duration_since(began).unsigned_abs().as_secs());
    let end = began.saturating_add(Duration::from_secs(grace)).unwrap_or(Timestamp::MAX);
    let meta = meta_mut(object);
    meta.insert("deletionTimestamp".into(), timestamp(end).into());
    meta.insert("deletionGracePeriodSeconds".into(), grace.into());
}

impl Call<'_> {
    /// Delete an object: now, or once nothing holds it back.
    pub(crate) fn delete(&mut self, name: &str, options: &DeleteOptions) -> Result<Answer> {
        loop {
            if let Some(answer) = self.try_delete(name, options)? {
                return Ok(answer);
            }
        }
    }

    /// `None` if somebody else was faster.
    fn try_delete(&mut self, name: &str, options: &DeleteOptions) -> Result<Option<Answer>> {
        let existing = self.find(name).ok_or_else(|| self.not_found(name))?;
        let old = self.served.decode(&existing);
        self.check_delete_preconditions(name, options, &old)?;
        self.check_deletable(name)?;
        let dry_run = options.dry_run || self.options.dry_run;
        let review = Review { dry_run, ..self.review(Operation::Delete, name, Some(&old)) };
        self.core.admission.run_validating(&review, None)?;
        let new = self.marked(&old, options);
        let gone = may_go(&new);
        let written = if dry_run {
            None
        } else if gone {
            Some(self.core.store.write(&self.served.table, &existing.key, Some(existing.revision), None))
        } else {
            let content = self.encode(&new);
            if content == *existing.content() {
                return Ok(Some(Answer::Stored(existing)));
            }
            Some(self.core.store.write(&self.served.table, &existing.key, Some(existing.revision), Some(content)))
        };
        match written {
            Some(Err(Refused::Moved)) => Ok(None),
            Some(Err(refused)) => Err(self.refused(name, &refused)),
            Some(Ok(change)) if gone => {
                // What is shown is the object as it was, at the revision at which it went.
                let mut old = old;
                meta_mut(&mut old).insert("resourceVersion".into(), change.revision.to_string().into());
                Ok(Some(self.deleted(name, old)))
            }
            None if gone => Ok(Some(self.deleted(name, old))),
            Some(Ok(change)) => Ok(change.after.clone().map(Answer::Stored)),
            None => Ok(Some(Answer::Value(new))),
        }
    }

    /// The object as its deletion leaves it: marked, with the finalizers that the policy asks for.
    fn marked(&self, old: &Value, options: &DeleteOptions) -> Value {
        let mut new = old.clone();
        self.set_policy_finalizers(&mut new, options.policy);
        let strategy = self.served.strategy();
        let graceful = strategy.grace.map(|grace| grace(old));
        let wanted = match graceful {
            Some(0) | None => 0,
            Some(default) => options.grace.unwrap_or(default),
        };
        if is_deleting(old) {
            // A later deletion may only shorten the time, which counts from the first one.
            let given = grace_seconds(old).unwrap_or(0);
            let end = meta_text(old, "deletionTimestamp").parse::<Timestamp>();
            if let Ok(end) = end
                && options.grace.is_some()
                && wanted < given
            {
                let began = end.saturating_sub(Duration::from_secs(given)).unwrap_or(end);
                set_deletion(&mut new, began, wanted);
            }
            return new;
        }
        set_deletion(&mut new, self.core.clock.now(), wanted);
        bump_generation(&mut new);
        if &*self.served.table == NAMESPACES {
            meta_mut(&mut new).remove("deletionGracePeriodSeconds");
            new["status"] = json!({"phase": "Terminating"});
        }
        new
    }

    /// The garbage collector sees by them what to do with the dependents, and takes them away.
    fn set_policy_finalizers(&self, object: &mut Value, policy: Option<Policy>) {
        let mut wanted: Vec<String> = finalizers(object).map(str::to_owned).collect();
        let before = wanted.len();
        if let Some(policy) = policy {
            let mut set = |name: &str, on: bool| match wanted.iter().position(|finalizer| finalizer == name) {
                Some(at) if !on => drop(wanted.remove(at)),
                None if on => wanted.push(name.into()),
                _ => {}
            };
            set(ORPHAN, policy == Policy::Orphan);
            set(FOREGROUND, policy == Policy::Foreground);
        }
        if &*self.served.table == DEFINITIONS
            && !is_deleting(object)
            && !wanted.iter().any(|finalizer| finalizer == CLEANUP)
        {
            wanted.push(CLEANUP.into());
        }
        if wanted.is_empty() && before == 0 {
            return;
        }
        let meta = meta_mut(object);
        if wanted.is_empty() {
            meta.remove("finalizers");
        } else {
            meta.insert("finalizers".into(), wanted.into());
        }
    }

    /// Most types answer with a `Status`, some with the object.
    fn deleted(&self, name: &str, object: Value) -> Answer {
        let resource = &self.served.resource;
        if resource.strategy.returns_deleted {
            return Answer::Value(object);
        }
        let mut details = json!({"name": name, "kind": &*resource.plural, "uid": meta_text(&object, "uid")});
        if !resource.group.is_empty() {
            details["group"] = (&*resource.group).into();
        }
        Answer::Value(json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
        }))
    }

    fn check_delete_preconditions(&self, name: &str, options: &DeleteOptions, object: &Value) -> Result<()> {
        let resource = &self.served.resource;
        let conflict = |cause: String| {
            // Here, unlike elsewhere, the details name the kind.
            let mut failure = self.conflict(name, cause);
            if let Some(details) = &mut failure.details {
                details.kind = resource.kind.to_string();
            }
            failure
        };
        let found = meta_text(object, "uid");
        if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != found) {
            return Err(conflict(format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {found}"
            )));
        }
        let found = meta_text(object, "resourceVersion");
        if let Some(version) = options.resource_version.as_deref().filter(|version| *version != found) {
            return Err(conflict(format!(
                "Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in object meta: {found}"
            )));
        }
        Ok(())
    }

    fn check_deletable(&self, name: &str) -> Result<()> {
        let immortal = ["default", "kube-system", "kube-public"];
        if &*self.served.table == NAMESPACES && immortal.contains(&name) {
            return Err(Failure::forbidden("", "namespaces", name, "this namespace may not be deleted"));
        }
        Ok(())
    }

    /// Delete what a list has, each by itself; what is gone already does not matter.
    pub(crate) fn delete_all(&self, objects: &[Arc<Object>], options: &DeleteOptions) -> Result<()> {
        for object in objects {
            let mut call = Call { namespace: object.key.namespace(), warnings: Vec::new(), ..*self };
            match call.delete(object.key.name(), options) {
                Err(failure) if failure.code != 404 => return Err(failure),
                _ => {}
            }
        }
        Ok(())
    }
}
