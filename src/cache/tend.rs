//! One informer's task: finds where its kind is, keeps the loops running, and ends when nobody uses it any more.

use super::{
    core::Condition,
    erased::{Informing, Places},
    life::{Lease, Life, first},
    reflect::{Pace, Place},
    select::{Representation, Resource, Scope},
};
use kube_client::{
    Client, Error,
    discovery::{self, pinned_kind},
};
use kube_core::{DynamicObject, GroupVersionKind, Resource as _};
use std::{
    future::pending,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

/// How long discovery may take.
const ANSWER: Duration = Duration::from_mins(1);

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
    /// Of one that a read has declared: it lives as long as this is in the cache.
    pub(super) held: OnceLock<Lease>,
}

impl Declared {
    /// Keep it up to date until it is `over`; afterwards none of its tasks is left.
    pub(super) async fn tend(&self, client: &Client, over: impl Future) {
        let mut loops = JoinSet::new();
        let keep = async {
            self.core.set_condition(Condition::Starting);
            let places = self.places(&self.resource(client).await);
            for running in self.core.clone().loops(client, places, self.page_size) {
                loops.spawn(running);
            }
            while let Some(ended) = loops.join_next().await {
                // They never end by themselves: one has panicked, most likely where the type is decoded.
                if let Err(error) = ended {
                    let error = format!("a watch has ended for good: {error}");
                    self.core.set_condition(Condition::Degraded { since: SystemTime::now(), error });
                }
            }
            pending::<()>().await;
        };
        first(over, keep).await;
        loops.shutdown().await;
        self.core.end();
    }

    /// As its type says, or as the server does: asked until it knows the kind.
    async fn resource(&self, client: &Client) -> Resource {
        if let Some(resource) = &self.resource {
            return resource.clone();
        }
        let mut pace = Pace::default();
        loop {
            let condition = match timeout(ANSWER, pinned_kind(client, &self.gvk)).await {
                Ok(Ok((api, capabilities))) => {
                    self.core.set_condition(Condition::Starting);
                    let namespaced = capabilities.scope == discovery::Scope::Namespaced;
                    return Resource { api, namespaced };
                }
                Ok(Err(error)) if is_absent(&error) => Condition::Absent { error: error.to_string() },
                Ok(Err(error)) => degraded(self.core.condition(), error.to_string()),
                Err(_) => degraded(self.core.condition(), format!("no answer within {} s", ANSWER.as_secs())),
            };
            self.core.set_condition(condition);
            sleep(pace.failed(None)).await;
        }
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

/// The server knows no such group, version or kind.
fn is_absent(error: &Error) -> bool {
    match error {
        Error::Api(status) => status.code == 404,
        Error::Discovery(_) => true,
        _ => false,
    }
}

fn degraded(before: Condition, error: String) -> Condition {
    let since = if let Condition::Degraded { since, .. } = before { since } else { SystemTime::now() };
    Condition::Degraded { since, error }
}
