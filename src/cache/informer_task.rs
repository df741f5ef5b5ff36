//! Task of one informer: discovers the resource of its kind and runs reflectors.
//!
//! Invariant: discovery alone decides that a kind is missing. It runs before the first list of a
//! kind that is known by name only, after a list that fails with 404, and after a reflector has
//! ended. If it does not find the kind, the objects are dropped. No reflector runs while the kind
//! is missing, nor while namespaces of a cluster-scoped kind are selected.

use super::{
    CacheError, Informer,
    core::Condition,
    crd_watch::CrdWatch,
    discover::{Discovery, discover},
    erased::ErasedCore,
    plan::Plan,
    refcount::{InformerRef, RefCount, race},
    reflector::Backoff,
    reflector_tasks::{ReflectorTasks, Target},
    scope::Scope,
    select::Resource,
};
use crate::{client::CountedClient, object::Metadata};
use k8s_openapi::api::core::v1::Namespace;
use kube_core::GroupVersionKind;
use std::{
    sync::{Arc, OnceLock},
    time::SystemTime,
};
use tokio::time::sleep;

/// A declared informer: its plan, its core and the references to it.
pub(super) struct DeclaredInformer {
    pub(super) gvk: GroupVersionKind,
    pub(super) plan: Plan,
    pub(super) core: Arc<dyn ErasedCore>,
    pub(super) refs: Arc<RefCount>,
    /// Informer of the namespaces, if the scope selects them by label.
    pub(super) namespaces: Option<Informer<Metadata<Namespace>>>,
    /// Keeps the informer running if a lazy read declared it.
    pub(super) lazy_ref: OnceLock<InformerRef>,
}

impl DeclaredInformer {
    /// Returns whether a declaration of the same kind with `plan` shares the informer.
    ///
    /// Compares the scopes of a namespaced kind, the selectors of a cluster-scoped one, and both
    /// until discovery reports which of the two it is. Selecting namespaces of a cluster-scoped
    /// kind is an error; a correct declaration does not share the informer of such a plan.
    pub(super) fn matches(&self, plan: &Plan) -> bool {
        let same_scope = || self.plan.scope == plan.scope;
        let same_selectors = || self.plan.cluster_selectors == plan.cluster_selectors;
        self.plan.scope.internal == plan.scope.internal
            && match (self.namespaced(), plan.namespaced()) {
                (Some(served), Some(declared)) if served != declared => false,
                (Some(true), _) | (_, Some(true)) => same_scope(),
                (Some(false), _) | (_, Some(false)) => {
                    same_selectors() && (plan.names_namespaces || !self.plan.names_namespaces)
                }
                (None, None) => {
                    same_scope()
                        && same_selectors()
                        && plan.names_namespaces == self.plan.names_namespaces
                }
            }
    }

    /// Returns whether the kind is namespaced, by discovery or else by the Rust type.
    fn namespaced(&self) -> Option<bool> {
        self.refs.namespaced().or(self.plan.namespaced())
    }

    /// Returns an error if the plan selects namespaces and the kind is cluster-scoped.
    pub(super) fn check_namespaces(&self, plan: &Plan) -> Result<(), CacheError> {
        if plan.names_namespaces && self.namespaced() == Some(false) {
            return Err(CacheError::NotNamespaced {
                kind: self.gvk.kind.clone(),
            });
        }
        Ok(())
    }

    /// Returns the scope as text for reports and metrics.
    pub(super) fn describe_scope(&self) -> String {
        if self.namespaced() == Some(false) {
            let selectors = Scope::from(self.plan.cluster_selectors.clone()).to_string();
            // Distinguishes it from a declared informer with the same selector.
            return if self.plan.scope.internal {
                format!("{selectors}; for the cache itself")
            } else {
                selectors
            };
        }
        self.plan.scope.to_string()
    }

    /// Runs the informer until `stop` resolves. No reflector is left afterwards.
    pub(super) async fn run(
        &self,
        client: &CountedClient,
        crd_watch: &CrdWatch,
        stop: impl Future,
    ) {
        let mut tasks = ReflectorTasks::default();
        let keep = async {
            self.core.set_condition(Condition::Starting);
            let mut backoff = Backoff::default();
            let mut resource = match &self.plan.resource {
                Some(resource) => resource.clone(),
                None => {
                    self.wait_until_served(client, crd_watch, None, &mut backoff)
                        .await
                }
            };
            loop {
                self.refs.set_namespaced(resource.namespaced);
                let failure = match self.check_namespaces(&self.plan) {
                    Ok(()) => tasks
                        .run(&Target {
                            informer: self,
                            client,
                            resource: &resource,
                        })
                        .await
                        .to_string(),
                    Err(error) => error.to_string(),
                };
                tasks.stop().await;
                let served = self
                    .wait_until_served(client, crd_watch, Some(failure), &mut backoff)
                    .await;
                if served != resource {
                    // Another resource has other objects.
                    self.core.clear();
                }
                resource = served;
            }
        };
        race(stop, keep).await;
        tasks.stop().await;
    }

    /// Waits until the kind is served, and returns its resource.
    ///
    /// The Rust type's resource has priority over that of discovery. `failure` is the error that
    /// ended the reflectors. If the kind is served nevertheless, they are restarted with backoff.
    async fn wait_until_served(
        &self,
        client: &CountedClient,
        crd_watch: &CrdWatch,
        failure: Option<String>,
        backoff: &mut Backoff,
    ) -> Resource {
        let mut waiter = None;
        loop {
            match discover(client, &self.gvk).await {
                Ok(Discovery::Served(served)) => {
                    match failure {
                        Some(failure) if waiter.is_none() => {
                            self.set_degraded(
                                format!("{failure}{}", self.type_mismatch(&served)),
                                true,
                            );
                            sleep(backoff.next_delay(None)).await;
                        }
                        _ => self.core.set_condition(Condition::Starting),
                    }
                    return self.plan.resource.clone().unwrap_or(served);
                }
                Ok(Discovery::NotFound(error)) => {
                    self.core.clear();
                    let Some(waiter) = &mut waiter else {
                        // Discover once more after registering, so that no CRD event is missed.
                        waiter = Some(crd_watch.register(&self.gvk.group));
                        continue;
                    };
                    self.core.set_condition(Condition::KindNotFound {
                        error: format!("{error}; {}", waiter.describe()),
                    });
                    waiter.wait().await;
                }
                Err(error) => {
                    self.set_degraded(error, false);
                    sleep(backoff.next_delay(None)).await;
                }
            }
        }
    }

    /// Checks that the kind is still served as `resource`.
    ///
    /// Returns `None` if it is not, and otherwise a description of the differences between the API
    /// server and the Rust type, which may be empty. Returns a message if discovery fails.
    pub(super) async fn confirm_served(
        &self,
        client: &CountedClient,
        resource: &Resource,
    ) -> Result<Option<String>, String> {
        match discover(client, &self.gvk).await? {
            Discovery::Served(served) => {
                let mismatch = self.type_mismatch(&served);
                let is_there = self.plan.resource.as_ref().unwrap_or(&served) == resource;
                Ok(is_there.then_some(mismatch))
            }
            Discovery::NotFound(_) => Ok(None),
        }
    }

    /// Describes the difference between the discovered and the declared resource.
    ///
    /// Empty if they agree.
    fn type_mismatch(&self, served: &Resource) -> String {
        let describe = |resource: &Resource| {
            let scope = if resource.namespaced {
                "in namespaces"
            } else {
                "cluster-scoped"
            };
            format!("`{}` {scope}", resource.api.plural)
        };
        match self.plan.resource.as_ref().map(describe) {
            Some(declared) if declared != describe(served) => {
                let (kind, served) = (&self.gvk.kind, describe(served));
                format!(
                    "; the API server serves {kind} as {served}, but its type declares {declared}; make \
                     the CRD and the type agree"
                )
            }
            _ => String::new(),
        }
    }

    fn set_degraded(&self, error: String, rejected: bool) {
        let since = match self.core.condition() {
            Condition::Degraded { since, .. } => since,
            _ => SystemTime::now(),
        };
        self.core.set_condition(Condition::Degraded {
            since,
            error,
            rejected,
        });
    }
}
