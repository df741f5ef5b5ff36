//! One informer's task: finds where its kind is, keeps the loops running, and ends when nobody uses it any more.
//!
//! What holds: an informer is absent, and what it had is gone, only if a list was refused because there is no such kind *and* discovery says the same. While it is
//! absent none of its loops runs.

use super::{
    arrivals::Arrivals,
    core::Condition,
    discover::{Found, discover},
    erased::{Informing, Places},
    life::{Life, first},
    reflect::{Failure, Pace, Place},
    select::{Representation, Resource, Scope},
};
use kube_client::Client;
use kube_core::{DynamicObject, GroupVersionKind, Resource as _};
use std::{future::pending, sync::Arc, time::SystemTime};
use tokio::{task::JoinSet, time::sleep};

/// An informer that was declared, whatever it keeps.
pub(super) struct Declared {
    pub(super) gvk: GroupVersionKind,
    pub(super) resource: Option<Resource>,
    pub(super) scope: Scope,
    pub(super) representation: Representation,
    pub(super) managed_fields: bool,
    pub(super) page_size: u32,
    pub(super) core: Arc<dyn Informing>,
    pub(super) life: Arc<Life>,
}

impl Declared {
    /// Keep it up to date until it is `over`; afterwards none of its tasks is left.
    pub(super) async fn tend(&self, client: &Client, arrivals: &Arrivals, over: impl Future) {
        let mut loops = JoinSet::new();
        let keep = async {
            self.core.set_condition(Condition::Starting);
            let mut pace = Pace::default();
            let mut resource = match &self.resource {
                Some(resource) => resource.clone(),
                None => self.find(client, arrivals, None, &mut pace).await,
            };
            loop {
                for running in self.core.clone().loops(client, self.places(&resource), self.page_size) {
                    loops.spawn(running);
                }
                let refused = self.refused(&mut loops).await;
                loops.shutdown().await;
                let found = self.find(client, arrivals, Some(refused), &mut pace).await;
                if found != resource {
                    // As good as another kind, even if it was never seen to be gone.
                    self.core.clear();
                }
                resource = found;
            }
        };
        first(over, keep).await;
        loops.shutdown().await;
    }

    /// Until a list is refused because there is no such kind.
    async fn refused(&self, loops: &mut JoinSet<Failure>) -> Failure {
        while let Some(ended) = loops.join_next().await {
            match ended {
                Ok(refused) => return refused,
                // One has panicked, most likely where the type is decoded.
                Err(error) => self.degraded(format!("a watch has ended for good: {error}")),
            }
        }
        pending().await
    }

    /// Where the kind is, as its type says or else the server; waits for as long as the server has no such kind. Of what was `refused` although the kind
    /// is there the loops try again, later and later.
    async fn find(&self, client: &Client, arrivals: &Arrivals, refused: Option<Failure>, pace: &mut Pace) -> Resource {
        let mut waiting = None;
        loop {
            match discover(client, &self.gvk).await {
                Ok(Found::At(found)) => {
                    match refused {
                        Some(refused) if waiting.is_none() => {
                            self.degraded(refused.to_string());
                            sleep(pace.failed(None)).await;
                        }
                        _ => self.core.set_condition(Condition::Starting),
                    }
                    return self.resource.clone().unwrap_or(found);
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
                    self.degraded(error);
                    sleep(pace.failed(None)).await;
                }
            }
        }
    }

    fn degraded(&self, error: String) {
        let since = match self.core.condition() {
            Condition::Degraded { since, .. } => since,
            _ => SystemTime::now(),
        };
        self.core.set_condition(Condition::Degraded { since, error });
    }

    fn places(&self, resource: &Resource) -> Places {
        let place = |namespace: Option<&String>| {
            let place = Place {
                path: DynamicObject::url_path(&resource.api, namespace.map(String::as_str)),
                labels: self.scope.labels.clone(),
                fields: self.scope.fields.clone(),
                metadata_only: self.representation == Representation::Metadata,
            };
            (namespace.cloned(), place)
        };
        match &*self.scope.namespaces {
            these @ [_, ..] if resource.namespaced => these.iter().map(|namespace| place(Some(namespace))).collect(),
            _ => vec![place(None)],
        }
    }
}
