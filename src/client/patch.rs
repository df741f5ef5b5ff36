//! Patches, and how to delete.

use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

/// What to change, and in which of the server's four ways. Anything that can be written as JSON will do: an object of a type, `serde_json::json!`.
///
/// To send what differs between two objects, [`Client::patch_from`](super::Client::patch_from) is simpler.
///
/// ```
/// use serde_json::json;
/// use steersman::client::Patch;
///
/// let label = Patch::Merge(json!({"metadata": {"labels": {"tier": "web", "old": null}}}));
/// let first = Patch::Json(json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "web:2"}]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patch<T> {
    /// Fields to set; null removes. Lists are replaced as a whole. Every kind has it: the one to use, if in doubt.
    Merge(T),
    /// A list of operations, in order, which may test what is there.
    Json(T),
    /// As [`Client::apply`](super::Client::apply): fields to own.
    Apply(T),
    /// As `Merge`, with lists merged as their kind says. Only built-in kinds have it.
    Strategic(T),
}

impl<T> Patch<T> {
    pub(super) fn content_type(&self) -> &'static str {
        match self {
            Self::Merge(_) => "application/merge-patch+json",
            Self::Json(_) => "application/json-patch+json",
            Self::Apply(_) => "application/apply-patch+yaml",
            Self::Strategic(_) => "application/strategic-merge-patch+json",
        }
    }

    pub(super) fn body(&self) -> &T {
        let (Self::Merge(body) | Self::Json(body) | Self::Apply(body) | Self::Strategic(body)) = self;
        body
    }
}

/// How to delete, for [`Client::deleting`](super::Client::deleting). By default: whatever is there, as its kind does.
///
/// ```
/// use k8s_openapi::api::apps::v1::Deployment;
/// use steersman::client::{Deleting, Propagation};
///
/// # let deployment = Deployment::default();
/// let this_one = Deleting { propagation: Some(Propagation::Foreground), ..Deleting::only(&deployment) };
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deleting {
    /// Only if it is this one, and not another that has its name by now. Otherwise it is a conflict. No object has an empty one: with that, nothing is sent, and
    /// it is [`NoUid`](super::Error::NoUid).
    pub uid: Option<String>,
    /// Only if it has not changed since. Otherwise it is a conflict.
    pub resource_version: Option<String>,
    /// What becomes of what it owns; by default what its kind does, which mostly is [`Background`](Propagation::Background).
    pub propagation: Option<Propagation>,
    /// How long it has to end, of kinds that need time, as pods do; by default as it says itself. In full seconds.
    pub grace_period: Option<Duration>,
}

impl Deleting {
    /// This one, whatever it has become: as it was read, with its uid. Without one it cannot be told from another of its name, and the delete is
    /// [`NoUid`](super::Error::NoUid).
    pub fn only(object: &impl kube_core::Resource) -> Self {
        Self { uid: Some(object.meta().uid.clone().unwrap_or_default()), ..Self::default() }
    }

    /// `DeleteOptions`.
    pub(super) fn options(&self, dry_run: bool) -> Value {
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if dry_run {
            options["dryRun"] = json!(["All"]);
        }
        if let Some(uid) = &self.uid {
            options["preconditions"]["uid"] = json!(uid);
        }
        if let Some(version) = &self.resource_version {
            options["preconditions"]["resourceVersion"] = json!(version);
        }
        if let Some(propagation) = self.propagation {
            options["propagationPolicy"] = json!(propagation);
        }
        if let Some(grace) = self.grace_period {
            options["gracePeriodSeconds"] = json!(grace.as_secs());
        }
        options
    }
}

/// What becomes of what an object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum Propagation {
    /// It is deleted afterwards.
    Background,
    /// It is deleted before.
    Foreground,
    /// It stays, and belongs to nobody.
    Orphan,
}
