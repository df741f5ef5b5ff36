//! Reflector tasks of one informer.
//!
//! The plan lists them, or there is one for each namespace that a label selector matches.
//!
//! Invariant: a namespace has at most one reflector, and its objects are dropped only after that
//! has ended. A panic in a reflector is a failure of its part (see
//! [`reflector`](super::reflector)). If a reflector task ends nevertheless, all are restarted. A
//! list that fails with 404 is a failure of its part only, as long as discovery finds the kind; the
//! other reflectors continue.

use super::{
    core::Condition,
    erased::{ErasedCore, SubscriptionItem},
    informer_task::DeclaredInformer,
    namespaces::Selectors,
    refcount::race,
    reflector::{Failure, KindCheck, KindChecks, ListWatch},
    select::{Representation, Resource},
};
use crate::{client::CountedClient, event::Event, panic_message::panic_message};
use hashbrown::HashMap;
use kube_core::{DynamicObject, Resource as _};
use std::{
    convert::Infallible,
    future::{pending, poll_fn},
    iter,
    sync::Arc,
    task::{Context, Poll},
    time::SystemTime,
};
use tokio::{
    sync::mpsc::UnboundedReceiver,
    task::{AbortHandle, JoinError, JoinSet},
};

#[derive(Default)]
pub(super) struct ReflectorTasks {
    tasks: JoinSet<Failure>,
    /// Reflectors by namespace, if the namespaces are selected by label.
    namespaces: HashMap<String, AbortHandle>,
    /// Channel on which reflectors ask whether the kind is missing.
    kind_checks: Option<KindChecks>,
}

/// Informer of the reflectors, and the resource that they list and watch.
pub(super) struct Target<'a> {
    pub(super) informer: &'a DeclaredInformer,
    pub(super) client: &'a CountedClient,
    pub(super) resource: &'a Resource,
}

impl ReflectorTasks {
    /// Runs the reflectors until the kind is missing or has moved, or one ends.
    pub(super) async fn run(&mut self, target: &Target<'_>) -> Failure {
        let (kind_checks, receiver) = KindChecks::new();
        self.kind_checks = Some(kind_checks);
        let (mut missing, mut ended) = (None, None);
        let settle = async { missing = Some(target.answer_kind_checks(receiver).await) };
        race(settle, async {
            ended = Some(self.run_until_ended(target).await);
        })
        .await;
        missing.or(ended).expect("race returns when one is done")
    }

    /// Runs the reflectors until one of them ends.
    async fn run_until_ended(&mut self, target: &Target<'_>) -> Failure {
        target.informer.core.restart();
        match &target.informer.namespaces {
            Some(set) if target.resource.namespaced => {
                let mut ended = None;
                let follow =
                    async { ended = Some(self.follow_namespaces(target, &set.core).await) };
                race(target.mirror_condition(&*set.core), follow).await;
                ended.expect("mirroring never ends")
            }
            _ => {
                for (namespace, selectors) in target.selectors() {
                    self.start(target, namespace, selectors);
                }
                target.informer.core.namespaces_complete();
                target
                    .informer
                    .core
                    .set_namespaces_condition(Condition::Synced);
                poll_fn(|cx| self.poll_ended(cx)).await
            }
        }
    }

    /// Stops all reflectors, and waits until they have ended.
    pub(super) async fn stop(&mut self) {
        self.namespaces.clear();
        self.tasks.shutdown().await;
    }

    /// Returns the failure of a reflector that has ended. Pending if there are none.
    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        while let Poll::Ready(Some(ended)) = self.tasks.poll_join_next(cx) {
            if let Some(failure) = failure_of(ended) {
                return Poll::Ready(failure);
            }
        }
        Poll::Pending
    }

    /// Starts and stops reflectors as namespaces are added to and removed from the set.
    async fn follow_namespaces(
        &mut self,
        target: &Target<'_>,
        set: &Arc<dyn ErasedCore>,
    ) -> Failure {
        let mut subscription = set.clone().subscribe();
        loop {
            let next = poll_fn(|cx| match self.poll_ended(cx) {
                Poll::Ready(ended) => Poll::Ready(Err(ended)),
                Poll::Pending => subscription.poll_next(cx).map(Ok),
            });
            let item = match next.await {
                Ok(item) => item,
                Err(ended) => return ended,
            };
            match item {
                // An update can be the first event of a namespace that was deleted and created
                // again.
                Some(SubscriptionItem::Event(
                    Event::Create { object, .. } | Event::Update { new: object, .. },
                )) => {
                    if self.namespaces.contains_key(object.name()) {
                        continue;
                    }
                    let (name, selectors) = (
                        object.name(),
                        target.informer.plan.scope.selectors(object.name()),
                    );
                    let running = self.start(
                        target,
                        Some(name),
                        selectors.unwrap_or(&target.informer.plan.cluster_selectors),
                    );
                    self.namespaces.insert(name.to_owned(), running);
                }
                Some(SubscriptionItem::Event(Event::Delete { object, .. })) => {
                    if let Some(running) = self.namespaces.remove(object.name()) {
                        running.abort();
                        while !running.is_finished() {
                            if let Some(failure) = self.tasks.join_next().await.and_then(failure_of)
                            {
                                return failure;
                            }
                        }
                        target.informer.core.remove_namespace(object.name());
                    }
                }
                Some(SubscriptionItem::Event(Event::Generic { .. })) => {}
                Some(SubscriptionItem::InitialDone) => target.informer.core.namespaces_complete(),
                // The informer of namespaces is closed. `mirror_condition` reports that.
                None => return poll_fn(|cx| self.poll_ended(cx)).await,
            }
        }
    }

    fn start(
        &mut self,
        target: &Target<'_>,
        namespace: Option<&str>,
        selectors: &Selectors,
    ) -> AbortHandle {
        let DeclaredInformer { core, plan, .. } = target.informer;
        let list_watch = ListWatch {
            path: DynamicObject::url_path(&target.resource.api, namespace),
            labels: selectors.labels.clone(),
            fields: selectors.fields.clone(),
            metadata_only: plan.representation == Representation::Metadata,
            kind_checks: self.kind_checks.clone(),
        };
        let page_size = plan.page_size(namespace, target.resource.namespaced);
        self.tasks.spawn(core.clone().reflect_namespace(
            target.client,
            namespace.map(Into::into),
            list_watch,
            page_size,
        ))
    }
}

/// Returns why a reflector has ended, or `None` if it was stopped.
fn failure_of(ended: Result<Failure, JoinError>) -> Option<Failure> {
    match ended.map_err(JoinError::try_into_panic) {
        Ok(failure) => Some(failure),
        Err(Ok(panic)) => Some(Failure::Panicked(panic_message(&*panic))),
        Err(Err(_)) => None,
    }
}

impl Target<'_> {
    fn selectors(&self) -> Vec<(Option<&str>, &Selectors)> {
        let plan = &self.informer.plan;
        if !self.resource.namespaced {
            return vec![(None, &plan.cluster_selectors)];
        }
        plan.scope
            .parts
            .iter()
            .map(|(namespace, selectors)| (namespace.as_deref(), selectors))
            .collect()
    }

    /// Answers reflectors whose list failed with 404, by discovery.
    ///
    /// Returns the failure once discovery reports that the kind is missing or is another resource.
    async fn answer_kind_checks(&self, mut receiver: UnboundedReceiver<KindCheck>) -> Failure {
        loop {
            let Some(check) = receiver.recv().await else {
                return pending().await;
            };
            let is_there = self
                .informer
                .confirm_served(self.client, self.resource)
                .await;
            // One discovery answers all reflectors that are waiting: there may be many namespaces.
            let all = iter::once(check).chain(iter::from_fn(|| receiver.try_recv().ok()));
            match is_there {
                Ok(None) => return all.last().expect("one entry").failure,
                Ok(Some(mismatch)) => {
                    all.for_each(|check| {
                        check.reply_served(|missing| missing.with_explanation(&mismatch));
                    });
                }
                Err(error) => {
                    all.for_each(|check| check.reply_served(|_| Failure::Broken(error.clone())));
                }
            }
        }
    }

    /// Copies the condition of the informer of namespaces, on which the parts depend.
    async fn mirror_condition(&self, set: &dyn ErasedCore) -> Infallible {
        let mut conditions = set.conditions();
        loop {
            let condition = conditions.borrow_and_update().clone();
            self.informer
                .core
                .set_namespaces_condition(match condition {
                    Condition::Closed => Condition::Degraded {
                        since: SystemTime::now(),
                        error: "the watch of namespaces has stopped".into(),
                        rejected: false,
                    },
                    Condition::Idle => Condition::Starting,
                    condition => condition,
                });
            if conditions.changed().await.is_err() {
                pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cache::{
            Cache, CacheOptions, Informer, Namespaces, Query, Select, core::Core, fanout,
            plan::Plan, refcount::RefCount, store::Entry,
        },
        client::Connection,
        object::{Metadata, MetadataOnly, ObjectKey},
    };
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
    use kube_client::{
        Api, Client,
        api::{Patch, PatchParams, PostParams},
    };
    use serde_json::{Value, json};
    use std::{any::Any, sync::OnceLock, time::Duration};
    use steersman_apiserver::{ApiServer, Options};
    use tokio::time::{sleep, timeout};

    /// Creates a namespace with these labels, and a config map `o` in it.
    async fn make_namespace(client: &Client, name: &str, labels: &Value) {
        let made = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}}));
        let namespaces = Api::<Namespace>::all(client.clone());
        namespaces
            .create(&PostParams::default(), &made.expect("a namespace"))
            .await
            .expect("the object is created");
        let made = serde_json::from_value(json!({"metadata": {"name": "o"}})).expect("a map");
        let maps = Api::<ConfigMap>::namespaced(client.clone(), name);
        maps.create(&PostParams::default(), &made)
            .await
            .expect("the object is created");
    }

    /// Declares an informer of config maps in the namespaces of `set`.
    fn declare(set: &Informer<Metadata<Namespace>>) -> (DeclaredInformer, Resource) {
        let select = Select::<ConfigMap>::new().namespaces(Namespaces::Labelled("tenant".into()));
        let (plan, gvk) = (
            Plan::new(select.declaration(), &CacheOptions::default()),
            select.declaration().gvk.clone(),
        );
        let plan = plan.expect("a plan");
        let (core, resource) = (plan.core(&gvk), plan.resource.clone().expect("the type's"));
        let refs = RefCount::new(gvk.clone(), plan.scope.clone());
        (
            DeclaredInformer {
                core,
                refs,
                gvk,
                plan,
                namespaces: Some(set.clone()),
                lazy_ref: OnceLock::new(),
            },
            resource,
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_whose_first_event_is_an_update_gets_a_reflector() {
        let server = ApiServer::new(Options::default()).expect("a server without data starts");
        let client = Client::new(server.service(), "default");
        make_namespace(&client, "one", &json!({"tenant": ""})).await;
        make_namespace(&client, "two", &json!({})).await;
        let cache = Cache::new(client.clone(), CacheOptions::default()).expect("a ready client");
        let running = tokio::spawn(cache.clone().run_until(pending()));
        let set = cache
            .informer_of(Select::<Metadata<Namespace>>::new().labels("tenant"))
            .expect("the kind is declared");
        let (informer, resource) = declare(&set);
        let client = Connection::from(client.clone())
            .client()
            .expect("a ready client");
        let core = informer.core.clone();
        let target = Target {
            informer: &informer,
            client: &client,
            resource: &resource,
        };
        let mut tasks = ReflectorTasks::default();

        // Before the reflectors run again, `two` is created, deleted and created again, and `one`
        // changes until the log is full.
        let of_set: Arc<dyn Any + Send + Sync> = set.core.clone();
        let of_set = of_set.downcast::<Core<MetadataOnly>>().expect("metadata");
        let lag = async {
            core.clone().synced().await;
            let named = |name: &str| {
                let key = ObjectKey::cluster_scoped(name);
                Entry::new(key.clone(), Arc::new(MetadataOnly::named(key)), 0)
            };
            of_set.fanout.write(|publisher| {
                publisher.publish(fanout::Event::create(named("two"), false));
                publisher.publish(fanout::Event::delete(named("two"), false));
                publisher.publish(fanout::Event::create(named("two"), false));
                for _ in 0..5000 {
                    publisher.publish(fanout::Event::update(named("one").object, named("one")));
                }
            });
            of_set.fanout.wake();
            while core.get(&ObjectKey::new("two", "o")).is_none() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_mins(1), race(lag, tasks.run(&target)))
            .await
            .expect("the list completes");
        tasks.stop().await;
        running.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn restarted_reflectors_detect_removed_namespaces() {
        let server = ApiServer::new(Options::default()).expect("a server without data starts");
        let client = Client::new(server.service(), "default");
        let namespaces = Api::<Namespace>::all(client.clone());
        for name in ["one", "two"] {
            make_namespace(&client, name, &json!({"tenant": ""})).await;
        }
        let cache = Cache::new(client.clone(), CacheOptions::default()).expect("a ready client");
        let running = tokio::spawn(cache.clone().run_until(pending()));
        let set = cache
            .informer_of(Select::<Metadata<Namespace>>::new().labels("tenant"))
            .expect("the kind is declared");
        let (informer, resource) = declare(&set);
        let core = informer.core.clone();
        let client = Connection::from(client.clone())
            .client()
            .expect("a ready client");
        let target = Target {
            informer: &informer,
            client: &client,
            resource: &resource,
        };
        let mut tasks = ReflectorTasks::default();
        let synced = core.clone().synced();
        timeout(Duration::from_mins(1), race(synced, tasks.run(&target)))
            .await
            .expect("synced without an error");
        tasks.stop().await;
        assert_eq!(core.stats().objects, 2);

        let patch = Patch::Merge(json!({"metadata": {"labels": {"tenant": null}}}));
        namespaces
            .patch("one", &PatchParams::default(), &patch)
            .await
            .expect("the object exists");
        while set
            .list(&Query::default())
            .expect("synced without an error")
            .len()
            > 1
        {
            sleep(Duration::from_millis(10)).await;
        }
        let left = async {
            while core.stats().objects > 1 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_mins(1), race(left, tasks.run(&target)))
            .await
            .expect("the informer observes the change");
        assert!(core.get(&ObjectKey::new("two", "o")).is_some());
        tasks.stop().await;
        running.abort();
    }
}
