//! Deletion: immediately, or by a deletion timestamp while finalizers or a grace period remain.

use super::{
    ResourceRequest, ResponseObject, bump_generation, finalizers, grace_seconds, is_deleting,
    is_removable, meta_mut, meta_text,
};
use crate::{
    admission::{Operation, Review},
    catalog::{DEFINITIONS, NAMESPACES},
    clock::format_timestamp,
    http::query::Query,
    object::Object,
    status::{Failure, FieldError, Result},
    store::WriteError,
    warnings::Warnings,
};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

/// Finalizer that keeps an owner until its dependents are deleted.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer that keeps an owner until its dependents no longer refer to it.
pub(crate) const ORPHAN: &str = "orphan";
/// Finalizer that keeps a CRD until its objects are deleted.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Options of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeleteOptions {
    grace: Option<u64>,
    policy: Option<Policy>,
    uid: Option<String>,
    resource_version: Option<String>,
    pub(crate) dry_run: bool,
    /// The request has `orphanDependents: false`. It is answered with 202 unless the object is
    /// gone.
    pub(crate) reports_pending: bool,
    /// Deletes the object only if it cannot be decoded. Objects of this server always can.
    only_unreadable: bool,
}

/// Options in a body. A value of the wrong type is an error, so that a condition is never ignored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeleteOptionsBody {
    api_version: Option<String>,
    kind: Option<String>,
    grace_period_seconds: Option<i64>,
    propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
    dry_run: Option<Vec<String>>,
    preconditions: Option<Preconditions>,
    #[serde(rename = "ignoreStoreReadErrorWithClusterBreakingPotential")]
    ignore_store_read_error: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

/// Propagation of a deletion to dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Background,
    Foreground,
    Orphan,
}

impl DeleteOptions {
    /// Parses the body, or the query if there is none. The two are not combined.
    pub(crate) fn parse(body: Option<&Value>, query: &Query) -> Result<Self> {
        let Some(body) = body else {
            return Self::parse_query(query);
        };
        if !body.is_object() {
            return Err(Failure::bad_request(
                "couldn't get version/kind; json parse error: not an object",
            ));
        }
        let body = DeleteOptionsBody::deserialize(body).map_err(|error| {
            Failure::bad_request(format!("json: cannot unmarshal DeleteOptions: {error}"))
        })?;
        if let Some(kind) = body
            .kind
            .as_deref()
            .filter(|kind| !matches!(*kind, "" | "DeleteOptions"))
        {
            let version = body.api_version.as_deref().unwrap_or_default();
            return Err(Failure::bad_request(format!(
                "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\""
            )));
        }
        let dry_run = body.dry_run.unwrap_or_default();
        let dry_run: Vec<&str> = dry_run.iter().map(String::as_str).collect();
        let only_unreadable = body.ignore_store_read_error == Some(true);
        let options = Self::build(
            body.grace_period_seconds,
            body.propagation_policy.as_deref(),
            body.orphan_dependents,
            &dry_run,
            only_unreadable,
            body.preconditions.is_some(),
        )?;
        let expected = body.preconditions.unwrap_or_default();
        Ok(Self {
            uid: expected.uid,
            resource_version: expected.resource_version,
            ..options
        })
    }

    fn parse_query(query: &Query) -> Result<Self> {
        let precondition = |field: &str| {
            query
                .get(field)
                .filter(|value| !value.is_empty())
                .map(String::from)
        };
        let uid = precondition("uid");
        let resource_version = precondition("resourceVersion");
        let options = Self::build(
            query
                .get("gracePeriodSeconds")
                .map(|seconds| parse_integer(seconds, "gracePeriodSeconds"))
                .transpose()?,
            query.get("propagationPolicy"),
            query.flag("orphanDependents"),
            &query.all("dryRun").collect::<Vec<_>>(),
            query.flag(IGNORE_READ_ERROR).unwrap_or(false),
            uid.is_some() || resource_version.is_some(),
        )?;
        Ok(Self {
            uid,
            resource_version,
            ..options
        })
    }

    /// Checks that the options are valid for all objects of a collection.
    pub(crate) fn check_collection(&self) -> Result<()> {
        if !self.only_unreadable {
            return Ok(());
        }
        let reason = "is not allowed with DELETECOLLECTION, try again after removing the option";
        let error = FieldError::invalid(IGNORE_READ_ERROR, &true.into(), reason);
        Err(invalid_options(vec![error]))
    }

    fn build(
        grace: Option<i64>,
        policy: Option<&str>,
        orphan: Option<bool>,
        dry_run: &[&str],
        only_unreadable: bool,
        preconditions: bool,
    ) -> Result<Self> {
        let mut errors = Vec::new();
        let conditions = [
            ("propagationPolicy", policy.is_some()),
            ("orphanDependents", orphan.is_some()),
            ("gracePeriodSeconds", grace.is_some()),
            ("preconditions", preconditions),
        ];
        for (field, _) in conditions.iter().filter(|(_, set)| *set && only_unreadable) {
            errors.push(incompatible_with_read_errors(field));
        }
        if policy.is_some() && orphan.is_some() {
            let reason = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid(
                "propagationPolicy",
                &policy.into(),
                reason,
            ));
        }
        let policy = match policy {
            None => orphan.map(|orphan| {
                if orphan {
                    Policy::Orphan
                } else {
                    Policy::Background
                }
            }),
            Some("Background") => Some(Policy::Background),
            Some("Foreground") => Some(Policy::Foreground),
            Some("Orphan") => Some(Policy::Orphan),
            Some(other) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported(
                    "propagationPolicy",
                    &other.into(),
                    supported,
                ));
                None
            }
        };
        if dry_run.iter().any(|value| *value != "All") {
            errors.push(FieldError::not_supported(
                "dryRun",
                &dry_run.into(),
                ["All"],
            ));
        }
        if !errors.is_empty() {
            return Err(invalid_options(errors));
        }
        Ok(Self {
            only_unreadable,
            // A negative grace period counts as one second, as in kube-apiserver.
            grace: grace.map(|seconds| u64::try_from(seconds).unwrap_or(1)),
            policy,
            dry_run: !dry_run.is_empty(),
            reports_pending: orphan == Some(false),
            ..Self::default()
        })
    }
}

const IGNORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

fn invalid_options(errors: Vec<FieldError>) -> Box<Failure> {
    Failure::invalid("meta.k8s.io", "DeleteOptions", "", errors)
}

fn incompatible_with_read_errors(field: &str) -> FieldError {
    let reason = format!("cannot be set together with .{field}");
    FieldError::invalid(IGNORE_READ_ERROR, &true.into(), reason)
}

/// Sets the phase of a namespace.
fn set_phase(object: &mut Value, phase: &str) {
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    object["status"]["phase"] = phase.into();
}

fn parse_integer(text: &str, field: &str) -> Result<i64> {
    text.parse().map_err(|_| {
        Failure::bad_request(format!("strconv.ParseInt: {field} is not a whole number"))
    })
}

/// Sets the deletion timestamp and the grace period of a deletion that began at `began`.
fn set_deletion(object: &mut Value, began: Timestamp, grace: u64) {
    // Limited so that `began` can be computed back from the timestamp.
    let grace = grace.min(
        Timestamp::MAX
            .duration_since(began)
            .unsigned_abs()
            .as_secs(),
    );
    let end = began
        .saturating_add(Duration::from_secs(grace))
        .unwrap_or(Timestamp::MAX);
    let meta = meta_mut(object);
    meta.insert("deletionTimestamp".into(), format_timestamp(end).into());
    meta.insert("deletionGracePeriodSeconds".into(), grace.into());
}

impl ResourceRequest<'_> {
    /// Deletes an object. Returns `true` if it is gone, `false` if finalizers or a grace period
    /// remain.
    pub(crate) fn delete(
        &mut self,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<(ResponseObject, bool)> {
        loop {
            if let Some(answer) = self.try_delete(name, options)? {
                return Ok(answer);
            }
        }
    }

    /// Returns `None` after a conflict with another write.
    fn try_delete(
        &mut self,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Option<(ResponseObject, bool)>> {
        let mut existing = self.find(name).ok_or_else(|| self.not_found(name))?;
        if options.only_unreadable {
            let cause =
                "unsafe deletion is not allowed because the object is decodable from storage";
            return Err(self.conflict(name, cause));
        }
        let old = self.served.decode(&existing);
        self.check_delete_preconditions(name, options, &old)?;
        self.check_deletable(name)?;
        let dry_run = options.dry_run || self.options.dry_run;
        let review = Review {
            dry_run,
            ..self.review(Operation::Delete, name, Some(&old))
        };
        self.core.admission.run_validating(&review, None)?;
        let new = self.with_deletion_mark(&old, options);
        let gone = is_removable(&new);
        let graceful = self.served.strategy().grace.is_some();
        let last = if graceful { &new } else { &old };
        if dry_run {
            let answer = if gone {
                self.deleted(name, last.clone(), None)
            } else {
                ResponseObject::Value(new)
            };
            return Ok(Some((answer, gone)));
        }
        let write = |existing: &Object, content| {
            let seen = Some(existing.revision);
            match self
                .core
                .store
                .write(&self.served.table, &existing.key, seen, content)
            {
                Ok(change) => Ok(Some(change)),
                Err(WriteError::Conflict) => Ok(None),
                Err(error) => Err(self.write_failure(name, &error)),
            }
        };
        // Kinds with a grace period get a deletion timestamp even if the period is zero, so watches
        // show it.
        if !gone || graceful {
            let content = self.encode(&new)?;
            if content != *existing.content() {
                let Some(change) = write(&existing, Some(content))? else {
                    return Ok(None);
                };
                let Some(marked) = change.after.clone() else {
                    return Ok(None);
                };
                existing = marked;
            }
        }
        if !gone {
            return Ok(Some((ResponseObject::Stored(existing), false)));
        }
        let Some(change) = write(&existing, None)? else {
            return Ok(None);
        };
        Ok(Some((
            self.deleted(name, last.clone(), Some(change.revision)),
            true,
        )))
    }

    /// Returns the object with a deletion timestamp and the finalizers of the propagation policy.
    fn with_deletion_mark(&self, old: &Value, options: &DeleteOptions) -> Value {
        let mut new = old.clone();
        self.set_policy_finalizers(&mut new, options.policy);
        let strategy = self.served.strategy();
        let graceful = strategy.grace.map(|grace| grace(old));
        let wanted = match graceful {
            Some(0) | None => 0,
            Some(default) => options.grace.unwrap_or(default),
        };
        if is_deleting(old) {
            // A later deletion can only shorten the grace period, which counts from the first
            // deletion.
            let given = grace_seconds(old).unwrap_or(0);
            let end = meta_text(old, "deletionTimestamp").parse::<Timestamp>();
            if let Ok(end) = end
                && options.grace.is_some()
                && wanted < given
            {
                let began = end
                    .saturating_sub(Duration::from_secs(given))
                    .unwrap_or(end);
                set_deletion(&mut new, began, wanted);
            }
            return new;
        }
        if &*self.served.table == DEFINITIONS {
            // CRDs get only a deletion timestamp, and a condition in the same write.
            let now = self.core.clock.timestamp();
            crate::crd::status::await_deletion(&mut new["status"], &now);
            meta_mut(&mut new).insert("deletionTimestamp".into(), now.into());
            return new;
        }
        set_deletion(&mut new, self.core.clock.now(), wanted);
        bump_generation(&mut new);
        if &*self.served.table == NAMESPACES {
            // Namespaces have no grace period: they wait for the objects in them.
            meta_mut(&mut new).remove("deletionGracePeriodSeconds");
            set_phase(&mut new, "Terminating");
        }
        new
    }

    /// Sets the finalizers that the garbage collector acts on and removes.
    fn set_policy_finalizers(&self, object: &mut Value, policy: Option<Policy>) {
        let mut wanted: Vec<String> = finalizers(object).map(str::to_owned).collect();
        let before = wanted.len();
        if let Some(policy) = policy {
            let mut set = |name: &str, on: bool| match wanted
                .iter()
                .position(|finalizer| finalizer == name)
            {
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

    /// Returns the response of a completed deletion: a `Status`, or for some kinds the object at
    /// the revision of its removal.
    fn deleted(&self, name: &str, mut object: Value, revision: Option<u64>) -> ResponseObject {
        let resource = &self.served.resource;
        if resource.strategy.returns_deleted {
            if let Some(revision) = revision {
                meta_mut(&mut object).insert("resourceVersion".into(), revision.to_string().into());
            }
            return ResponseObject::Value(object);
        }
        let mut details =
            json!({"name": name, "kind": &*resource.plural, "uid": meta_text(&object, "uid")});
        if !resource.group.is_empty() {
            details["group"] = (&*resource.group).into();
        }
        ResponseObject::Value(json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
        }))
    }

    fn check_delete_preconditions(
        &self,
        name: &str,
        options: &DeleteOptions,
        object: &Value,
    ) -> Result<()> {
        let resource = &self.served.resource;
        let wanted = [
            (
                "UID",
                &options.uid,
                meta_text(object, "uid"),
                "deleted and then recreated",
            ),
            (
                "ResourceVersion",
                &options.resource_version,
                meta_text(object, "resourceVersion"),
                "modified",
            ),
        ];
        for (what, wanted, found, happened) in wanted {
            let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != found) else {
                continue;
            };
            if &*self.served.table == NAMESPACES {
                let cause = format!(
                    "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
                );
                return Err(self.conflict(name, cause));
            }
            let cause = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object \
                 might have been {happened}"
            );
            // Here kube-apiserver names the kind instead of the resource.
            return Err(Failure::conflict(
                &resource.group,
                &resource.kind,
                name,
                cause,
            ));
        }
        Ok(())
    }

    fn check_deletable(&self, name: &str) -> Result<()> {
        let undeletable = ["default", "kube-system", "kube-public"];
        if &*self.served.table == NAMESPACES && undeletable.contains(&name) {
            return Err(Failure::forbidden(
                "",
                "namespaces",
                name,
                "this namespace may not be deleted",
            ));
        }
        Ok(())
    }

    /// Deletes each of the objects. Those that are already gone are skipped.
    pub(crate) fn delete_all(
        &self,
        objects: &[Arc<Object>],
        options: &DeleteOptions,
    ) -> Result<()> {
        for object in objects {
            let mut call = ResourceRequest {
                namespace: object.key.namespace(),
                warnings: Warnings::default(),
                ..*self
            };
            match call.delete(object.key.name(), options) {
                Err(failure) if failure.code != 404 => return Err(failure),
                _ => {}
            }
        }
        Ok(())
    }
}
