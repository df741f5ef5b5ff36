//! One informer's task: finds where its kind is, keeps the loops running, and ends when nobody uses it any more.
//!
//! Invariant: discovery alone decides that a kind is missing. It runs before the first list of a kind that is known by name only, after a list that fails with 404, and
//! after a loop has ended. If it does not find the kind, the informer is absent and its objects are dropped. No loop runs while the informer is absent, nor while it is
//! declared for some namespaces of a cluster-scoped kind.

use super::{
    CacheError, Informer,
    arrivals::Arrivals,
    core::Condition,
    discover::{Found, discover},
    erased::Informing,
    life::{Lease, Life, first},
    loops::{Loops, Site},
    plan::Plan,
    reflect::Pace,
    scope::Scope,
    select::Resource,
};
use crate::{client::Link, object::Metadata};
use k8s_openapi::api::core::v1::Namespace;
use kube_core::GroupVersionKind;
use std::{
    sync::{Arc, OnceLock},
    time::SystemTime,
};
use tokio::time::sleep;

/// An informer that was declared, whatever it keeps.
pub(super) struct Declared {
    pub(super) gvk: GroupVersionKind,
    pub(super) plan: Plan,
    pub(super) core: Arc<dyn Informing>,
    pub(super) life: Arc<Life>,
    /// Those that it keeps objects of, if they come and go.
    pub(super) namespaces: Option<Informer<Metadata<Namespace>>>,
    /// Of one that a read has declared: it lives as long as this is in the cache.
    pub(super) held: OnceLock<Lease>,
}

impl Declared {
    /// Whether this is the informer that a plan of the same kind is of. What is said of namespaces counts if there are some, and what is said of all objects if
    /// there are none; while neither knows, both. One that waits for a kind to have namespaces is only for those who want the same.
    pub(super) fn is_of(&self, plan: &Plan) -> bool {
        let same_scope = || self.plan.scope == plan.scope;
        let same_whole = || self.plan.whole == plan.whole;
        self.plan.scope.own == plan.scope.own
            && match (self.namespaced(), plan.namespaced()) {
                (Some(found), Some(said)) if found != said => false,
                (Some(true), _) | (_, Some(true)) => same_scope(),
                (Some(false), _) | (_, Some(false)) => same_whole() && (plan.in_namespaces || !self.plan.in_namespaces),
                (None, None) => same_scope() && same_whole() && plan.in_namespaces == self.plan.in_namespaces,
            }
    }

    /// As it was found, or else as its type says.
    fn namespaced(&self) -> Option<bool> {
        self.life.namespaced().or(self.plan.namespaced())
    }

    /// An error of a plan for some namespaces of this kind, if it is known to have none.
    pub(super) fn check_namespaces(&self, plan: &Plan) -> Result<(), CacheError> {
        if plan.in_namespaces && self.namespaced() == Some(false) {
            return Err(CacheError::NotNamespaced { kind: self.gvk.kind.clone() });
        }
        Ok(())
    }

    /// What is kept, for people.
    pub(super) fn words(&self) -> String {
        if self.namespaced() == Some(false) {
            let whole = Scope::from(self.plan.whole.clone()).to_string();
            // Who reads of it beside his own of the same selector sees why there are two.
            return if self.plan.scope.own { format!("{whole}; for the cache itself") } else { whole };
        }
        self.plan.scope.to_string()
    }

    /// Keep it up to date until it is `over`; afterwards none of its tasks is left.
    pub(super) async fn tend(&self, client: &Link, arrivals: &Arrivals, over: impl Future) {
        let mut loops = Loops::default();
        let keep = async {
            self.core.set_condition(Condition::Starting);
            let mut pace = Pace::default();
            let mut resource = match &self.plan.resource {
                Some(resource) => resource.clone(),
                None => self.find(client, arrivals, None, &mut pace).await,
            };
            loop {
                self.life.found(resource.namespaced);
                let refused = match self.check_namespaces(&self.plan) {
                    Ok(()) => loops.keep(&Site { informer: self, client, resource: &resource }).await.to_string(),
                    Err(error) => error.to_string(),
                };
                loops.stop().await;
                let found = self.find(client, arrivals, Some(refused), &mut pace).await;
                if found != resource {
                    // As good as another kind, even if it was never seen to be gone.
                    self.core.clear();
                }
                resource = found;
            }
        };
        first(over, keep).await;
        loops.stop().await;
    }

    /// Where the kind is, as its type says or else the server; waits for as long as the server has no such kind. Of what was `refused` although the kind
    /// is there the loops try again, later and later.
    async fn find(&self, client: &Link, arrivals: &Arrivals, refused: Option<String>, pace: &mut Pace) -> Resource {
        let mut waiting = None;
        loop {
            match discover(client, &self.gvk).await {
                Ok(Found::At(found)) => {
                    match refused {
                        Some(refused) if waiting.is_none() => {
                            self.degraded(format!("{refused}{}", self.mismatch(&found)), true);
                            sleep(pace.failed(None)).await;
                        }
                        _ => self.core.set_condition(Condition::Starting),
                    }
                    return self.plan.resource.clone().unwrap_or(found);
                }
                Ok(Found::Nowhere(error)) => {
                    self.core.clear();
                    let Some(waiting) = &mut waiting else {
                        // Asked once more, now that nothing is missed.
                        waiting = Some(arrivals.wait_for(&self.gvk.group));
                        continue;
                    };
                    self.core.set_condition(Condition::Absent { error: format!("{error}; {}", waiting.how()) });
                    waiting.pause().await;
                }
                Err(error) => {
                    self.degraded(error, false);
                    sleep(pace.failed(None)).await;
                }
            }
        }
    }

    /// Whether the kind is where the loops ask for it: then what the server has otherwise than the type says, in words. An error if it does not say.
    pub(super) async fn is_at(&self, client: &Link, resource: &Resource) -> Result<Option<String>, String> {
        match discover(client, &self.gvk).await? {
            Found::At(found) => {
                let words = self.mismatch(&found);
                let is_there = self.plan.resource.as_ref().unwrap_or(&found) == resource;
                Ok(is_there.then_some(words))
            }
            Found::Nowhere(_) => Ok(None),
        }
    }

    /// What the server has of the kind, if the type says otherwise: in words.
    fn mismatch(&self, found: &Resource) -> String {
        let words = |resource: &Resource| {
            let scope = if resource.namespaced { "in namespaces" } else { "cluster-scoped" };
            format!("`{}` {scope}", resource.api.plural)
        };
        match self.plan.resource.as_ref().map(words) {
            Some(said) if said != words(found) => {
                let (kind, found) = (&self.gvk.kind, words(found));
                format!(
                    ": the server has {kind} as {found}, its type says {said}: make the definition and the type agree"
                )
            }
            _ => String::new(),
        }
    }

    fn degraded(&self, error: String, refused: bool) {
        let since = match self.core.condition() {
            Condition::Degraded { since, .. } => since,
            _ => SystemTime::now(),
        };
        self.core.set_condition(Condition::Degraded { since, error, refused });
    }
}
