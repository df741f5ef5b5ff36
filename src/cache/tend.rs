//! One informer's task: finds where its kind is, keeps the loops running, and ends when nobody uses it any more.

use super::{
    Informer,
    core::Condition,
    erased::Informing,
    life::{Life, first},
    loops::{Loops, Site},
    plan::Plan,
    reflect::Pace,
    select::Resource,
};
use crate::object::Metadata;
use k8s_openapi::api::core::v1::Namespace;
use kube_client::{
    Client, Error,
    discovery::{self, pinned_kind},
};
use kube_core::GroupVersionKind;
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::time::{sleep, timeout};

/// How long discovery may take.
const ANSWER: Duration = Duration::from_mins(1);

/// An informer that was declared, whatever it keeps.
pub(super) struct Declared {
    pub(super) gvk: GroupVersionKind,
    pub(super) plan: Plan,
    pub(super) core: Arc<dyn Informing>,
    pub(super) life: Arc<Life>,
    /// Those that it keeps objects of, if they come and go.
    pub(super) namespaces: Option<Informer<Metadata<Namespace>>>,
}

impl Declared {
    /// Keep it up to date until it is `over`; afterwards none of its tasks is left.
    pub(super) async fn tend(&self, client: &Client, over: impl Future) {
        let mut loops = Loops::default();
        let keep = async {
            self.core.set_condition(Condition::Starting);
            let resource = self.resource(client).await;
            loops.keep(&Site { informer: self, client, resource }).await;
        };
        first(over, keep).await;
        loops.stop().await;
        self.core.end();
    }

    /// As its type says, or as the server does: asked until it knows the kind.
    async fn resource(&self, client: &Client) -> Resource {
        if let Some(resource) = &self.plan.resource {
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
