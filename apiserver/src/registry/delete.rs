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
    warnings::Warnings,
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
    /// It was said in the old way that dependents go, too: who says so wants to know whether the object is gone already.
    pub(crate) asks_whether_gone: bool,
}

/// Options as a body has them. Those of another type are refused: an object must not go because nobody understood when not to.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Given {
    api_version: Option<String>,
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
    /// From the body, or if there is none from the query: never from both.
    pub(crate) fn parse(body: Option<&Value>, query: &Query) -> Result<Self> {
        let Some(body) = body else {
            return Self::build(
                query.get("gracePeriodSeconds").map(|seconds| number(seconds, "gracePeriodSeconds")).transpose()?,
                query.get("propagationPolicy"),
                query.flag("orphanDependents"),
                &query.all("dryRun").collect::<Vec<_>>(),
            );
        };
        if !body.is_object() {
            return Err(Failure::bad_request("couldn't get version/kind; json parse error: not an object"));
        }
        let body = Given::deserialize(body)
            .map_err(|error| Failure::bad_request(format!("json: cannot unmarshal DeleteOptions: {error}")))?;
        if let Some(kind) = body.kind.as_deref().filter(|kind| !matches!(*kind, "" | "DeleteOptions")) {
            let version = body.api_version.as_deref().unwrap_or_default();
            return Err(Failure::bad_request(format!(
                "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\""
            )));
        }
        let dry_run = body.dry_run.unwrap_or_default();
        let dry_run: Vec<&str> = dry_run.iter().map(String::as_str).collect();
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
        let mut errors = Vec::new();
        if policy.is_some() && orphan.is_some() {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid("propagationPolicy", &policy.into(), why));
        }
        let policy = match policy {
            None => orphan.map(|orphan| if orphan { Policy::Orphan } else { Policy::Background }),
            Some("Background") => Some(Policy::Background),
            Some("Foreground") => Some(Policy::Foreground),
            Some("Orphan") => Some(Policy::Orphan),
            Some(other) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported("propagationPolicy", &other.into(), supported));
                None
            }
        };
        if dry_run.iter().any(|value| *value != "All") {
            errors.push(FieldError::not_supported("dryRun", &dry_run.into(), ["All"]));
        }
        if !errors.is_empty() {
            return Err(Failure::invalid("meta.k8s.io", "DeleteOptions", "", errors));
        }
        Ok(Self {
            // A negative grace counts as one second, as in the real server.
            grace: grace.map(|seconds| u64::try_from(seconds).unwrap_or(1)),
            policy,
            dry_run: !dry_run.is_empty(),
            asks_whether_gone: orphan == Some(false),
            ..Self::default()
        })
    }
}

/// The rest of a namespace's status stays.
fn put_phase(object: &mut Value, phase: &str) {
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    object["status"]["phase"] = phase.into();
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
    /// Delete an object: now, which is then true, or once nothing holds it back.
    pub(crate) fn delete(&mut self, name: &str, options: &DeleteOptions) -> Result<(Answer, bool)> {
        loop {
            if let Some(answer) = self.try_delete(name, options)? {
                return Ok(answer);
            }
        }
    }

    /// `None` if somebody else was faster.
    fn try_delete(&mut self, name: &str, options: &DeleteOptions) -> Result<Option<(Answer, bool)>> {
        let mut existing = self.find(name).ok_or_else(|| self.not_found(name))?;
        let old = self.served.decode(&existing);
        self.check_delete_preconditions(name, options, &old)?;
        self.check_deletable(name)?;
        let dry_run = options.dry_run || self.options.dry_run;
        let review = Review { dry_run, ..self.review(Operation::Delete, name, Some(&old)) };
        self.core.admission.run_validating(&review, None)?;
        let new = self.marked(&old, options);
        let gone = may_go(&new);
        let graceful = self.served.strategy().grace.is_some();
        let last = if graceful { &new } else { &old };
        if dry_run {
            let answer = if gone { self.deleted(name, last.clone(), None) } else { Answer::Value(new) };
            return Ok(Some((answer, gone)));
        }
        let write = |existing: &Object, content| {
            let seen = Some(existing.revision);
            match self.core.store.write(&self.served.table, &existing.key, seen, content) {
                Ok(change) => Ok(Some(change)),
                Err(Refused::Moved) => Ok(None),
                Err(refused) => Err(self.refused(name, &refused)),
            }
        };
        // Those that are given time are marked even if that is none: who watches them sees it.
        if !gone || graceful {
            let content = self.encode(&new)?;
            if content != *existing.content() {
                let Some(change) = write(&existing, Some(content))? else { return Ok(None) };
                let Some(marked) = change.after.clone() else { return Ok(None) };
                existing = marked;
            }
        }
        if !gone {
            return Ok(Some((Answer::Stored(existing), false)));
        }
        let Some(change) = write(&existing, None)? else { return Ok(None) };
        Ok(Some((self.deleted(name, last.clone(), Some(change.revision)), true)))
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
        if &*self.served.table == DEFINITIONS {
            // Not an ordinary deletion: nothing but a time, and a condition in the same write.
            let now = self.core.clock.timestamp();
            crate::crd::status::await_deletion(&mut new["status"], &now);
            meta_mut(&mut new).insert("deletionTimestamp".into(), now.into());
            return new;
        }
        set_deletion(&mut new, self.core.clock.now(), wanted);
        bump_generation(&mut new);
        if &*self.served.table == NAMESPACES {
            // They are told apart from all others: nobody waits for them, but for what is in them.
            meta_mut(&mut new).remove("deletionGracePeriodSeconds");
            put_phase(&mut new, "Terminating");
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

    /// Most types answer with a `Status`, some with the object, as of the revision at which it went.
    fn deleted(&self, name: &str, mut object: Value, revision: Option<u64>) -> Answer {
        let resource = &self.served.resource;
        if resource.strategy.returns_deleted {
            if let Some(revision) = revision {
                meta_mut(&mut object).insert("resourceVersion".into(), revision.to_string().into());
            }
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
        let wanted = [
            ("UID", &options.uid, meta_text(object, "uid"), "deleted and then recreated"),
            ("ResourceVersion", &options.resource_version, meta_text(object, "resourceVersion"), "modified"),
        ];
        for (what, wanted, found, happened) in wanted {
            let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != found) else { continue };
            if &*self.served.table == NAMESPACES {
                let said =
                    format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}");
                return Err(self.conflict(name, said));
            }
            let said = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object \
                 might have been {happened}"
            );
            // Here, unlike elsewhere, it is the kind that is named.
            return Err(Failure::conflict(&resource.group, &resource.kind, name, said));
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
            let mut call = Call { namespace: object.key.namespace(), warnings: Warnings::default(), ..*self };
            match call.delete(object.key.name(), options) {
                Err(failure) if failure.code != 404 => return Err(failure),
                _ => {}
            }
        }
        Ok(())
    }
}
