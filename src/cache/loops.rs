//! The list and watch loops of one informer: those that its plan names, or one for each namespace of a set that is watched itself.
//!
//! What holds: a namespace has at most one loop, and its objects leave only after that has ended. No loop ends unnoticed: what panics in one is a failure of its part
//! (see [`reflect`](super::reflect)), and a loop that is gone all the same has all of them started again. That there is nothing where one of them asks is a failure of its
//! part, too, as long as the kind is where it was: the others go on.

use super::{
    core::Condition,
    erased::{Fed, Informing},
    life::first,
    namespaces::Selectors,
    reflect::{Doubt, Doubts, Failure, Place},
    select::{Representation, Resource},
    tend::Declared,
};
use crate::{caught::words, client::Link, event::Event};
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
pub(super) struct Loops {
    tasks: JoinSet<Failure>,
    /// Of a set that is watched.
    namespaces: HashMap<String, AbortHandle>,
    /// Whom they ask.
    doubts: Option<Doubts>,
}

/// Whose loops they are, and where they ask.
pub(super) struct Site<'a> {
    pub(super) informer: &'a Declared,
    pub(super) client: &'a Link,
    pub(super) resource: &'a Resource,
}

impl Loops {
    /// Start them and keep them running, until a list is refused because there is no such kind, or not there any more, or one of them is gone.
    pub(super) async fn keep(&mut self, site: &Site<'_>) -> Failure {
        let (doubts, raised) = Doubts::new();
        self.doubts = Some(doubts);
        let (mut refused, mut ended) = (None, None);
        let settle = async { refused = Some(site.settle(raised).await) };
        first(settle, async { ended = Some(self.run(site).await) }).await;
        refused.or(ended).expect("one of them is done")
    }

    /// Until one of them is gone.
    async fn run(&mut self, site: &Site<'_>) -> Failure {
        site.informer.core.begin();
        match &site.informer.namespaces {
            Some(set) if site.resource.namespaced => {
                let mut ended = None;
                let follow = async { ended = Some(self.follow(site, &set.core).await) };
                first(site.mirror(&*set.core), follow).await;
                ended.expect("mirroring never ends")
            }
            _ => {
                for (namespace, selectors) in site.parts() {
                    self.start(site, namespace, selectors);
                }
                site.informer.core.all_joined();
                site.informer.core.parts_are(Condition::Synced);
                poll_fn(|cx| self.poll_ended(cx)).await
            }
        }
    }

    /// Afterwards none is left.
    pub(super) async fn stop(&mut self) {
        self.namespaces.clear();
        self.tasks.shutdown().await;
    }

    /// Pending also when none is left: it is not for them to end what they are of.
    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        while let Poll::Ready(Some(ended)) = self.tasks.poll_join_next(cx) {
            if let Some(failure) = failure_of(ended) {
                return Poll::Ready(failure);
            }
        }
        Poll::Pending
    }

    /// The namespaces come and go.
    async fn follow(&mut self, site: &Site<'_>, set: &Arc<dyn Informing>) -> Failure {
        let mut feed = set.clone().subscribe();
        loop {
            let next = poll_fn(|cx| match self.poll_ended(cx) {
                Poll::Ready(ended) => Poll::Ready(Err(ended)),
                Poll::Pending => feed.poll_next(cx).map(Ok),
            });
            let fed = match next.await {
                Ok(fed) => fed,
                Err(ended) => return ended,
            };
            match fed {
                // An update can be the first event of a namespace that was deleted and created again.
                Some(Fed::Event(Event::Create { object, .. } | Event::Update { new: object, .. })) => {
                    if self.namespaces.contains_key(object.name()) {
                        continue;
                    }
                    let (name, selectors) = (object.name(), site.informer.plan.scope.selectors(object.name()));
                    let running = self.start(site, Some(name), selectors.unwrap_or(&site.informer.plan.whole));
                    self.namespaces.insert(name.to_owned(), running);
                }
                Some(Fed::Event(Event::Delete { object, .. })) => {
                    if let Some(running) = self.namespaces.remove(object.name()) {
                        running.abort();
                        while !running.is_finished() {
                            if let Some(failure) = self.tasks.join_next().await.and_then(failure_of) {
                                return failure;
                            }
                        }
                        site.informer.core.leave(object.name());
                    }
                }
                Some(Fed::Event(Event::Generic { .. })) => {}
                Some(Fed::InitialDone) => site.informer.core.all_joined(),
                // Nothing is known of them any more: see `mirror`.
                None => return poll_fn(|cx| self.poll_ended(cx)).await,
            }
        }
    }

    fn start(&mut self, site: &Site<'_>, namespace: Option<&str>, selectors: &Selectors) -> AbortHandle {
        let Declared { core, plan, .. } = site.informer;
        let place = Place {
            path: DynamicObject::url_path(&site.resource.api, namespace),
            labels: selectors.labels.clone(),
            fields: selectors.fields.clone(),
            metadata_only: plan.representation == Representation::Metadata,
            doubts: self.doubts.clone(),
        };
        let page_size = plan.page_size(namespace, site.resource.namespaced);
        self.tasks.spawn(core.clone().join(site.client, namespace.map(Into::into), place, page_size))
    }
}

/// Why a loop has ended; nothing if it was stopped.
fn failure_of(ended: Result<Failure, JoinError>) -> Option<Failure> {
    match ended.map_err(JoinError::try_into_panic) {
        Ok(failure) => Some(failure),
        Err(Ok(panic)) => Some(Failure::Panicked(words(&*panic))),
        Err(Err(_)) => None,
    }
}

impl Site<'_> {
    fn parts(&self) -> Vec<(Option<&str>, &Selectors)> {
        let plan = &self.informer.plan;
        if !self.resource.namespaced {
            return vec![(None, &plan.whole)];
        }
        plan.scope.parts.iter().map(|(namespace, selectors)| (namespace.as_deref(), selectors)).collect()
    }

    /// Ask the server, whenever a list was refused because there is no such kind, whether that is so, or it is elsewhere: until it is. Gives the refusal.
    async fn settle(&self, mut raised: UnboundedReceiver<Doubt>) -> Failure {
        loop {
            let Some(doubt) = raised.recv().await else { return pending().await };
            let is_there = self.informer.is_at(self.client, self.resource).await;
            // What comes meanwhile is not asked for again: with many namespaces it may be many.
            let all = iter::once(doubt).chain(iter::from_fn(|| raised.try_recv().ok()));
            match is_there {
                Ok(None) => return all.last().expect("there is one").refused,
                Ok(Some(words)) => all.for_each(|doubt| doubt.settle(|refused| refused.explained(&words))),
                Err(error) => all.for_each(|doubt| doubt.settle(|_| Failure::Broken(error.clone()))),
            }
        }
    }

    /// An informer whose namespaces are not known, or may be others by now, is as the watch of them is.
    async fn mirror(&self, set: &dyn Informing) -> Infallible {
        let mut conditions = set.conditions();
        loop {
            let condition = conditions.borrow_and_update().clone();
            self.informer.core.parts_are(match condition {
                Condition::Ended => Condition::Degraded {
                    since: SystemTime::now(),
                    error: "namespaces are not watched any more".into(),
                    refused: false,
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
            Cache, CacheOptions, Informer, Namespaces, Query, Select, core::Core, fan, life::Life, plan::Plan,
            store::Entry,
        },
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
        namespaces.create(&PostParams::default(), &made.expect("a namespace")).await.expect("it is new");
        let made = serde_json::from_value(json!({"metadata": {"name": "o"}})).expect("a map");
        let maps = Api::<ConfigMap>::namespaced(client.clone(), name);
        maps.create(&PostParams::default(), &made).await.expect("it is new");
    }

    /// An informer of config maps in the namespaces of a set.
    fn declare(set: &Informer<Metadata<Namespace>>) -> (Declared, Resource) {
        let select = Select::<ConfigMap>::new().namespaces(Namespaces::Labelled("tenant".into()));
        let (plan, gvk) = (Plan::new(select.said(), &CacheOptions::default()), select.said().gvk.clone());
        let plan = plan.expect("a plan");
        let (core, resource) = (plan.core(&gvk), plan.resource.clone().expect("the type's"));
        let life = Life::new(gvk.clone(), plan.scope.clone());
        (Declared { core, life, gvk, plan, namespaces: Some(set.clone()), held: OnceLock::new() }, resource)
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_whose_first_event_is_an_update_gets_a_loop() {
        let server = ApiServer::new(Options::default()).expect("a server without data starts");
        let client = Client::new(server.service(), "default");
        make_namespace(&client, "one", &json!({"tenant": ""})).await;
        make_namespace(&client, "two", &json!({})).await;
        let cache = Cache::new(client.clone(), CacheOptions::default()).expect("a ready client");
        let running = tokio::spawn(cache.clone().run_until(pending()));
        let set = cache.informer_of(Select::<Metadata<Namespace>>::new().labels("tenant")).expect("it is new");
        let (informer, resource) = declare(&set);
        let (link, core) = (client.clone().into(), informer.core.clone());
        let site = Site { informer: &informer, client: &link, resource: &resource };
        let mut loops = Loops::default();

        // Without a turn for the loops, `two` is created, deleted and created again, and `one` changes until the log is full.
        let of_set: Arc<dyn Any + Send + Sync> = set.core.clone();
        let of_set = of_set.downcast::<Core<MetadataOnly>>().expect("metadata");
        let lag = async {
            core.clone().synced().await;
            let named = |name: &str| {
                let key = ObjectKey::cluster_scoped(name);
                Entry::new(key.clone(), Arc::new(MetadataOnly::named(key)), 0)
            };
            of_set.fan.write(|publisher| {
                publisher.publish(fan::Event::create(named("two"), false));
                publisher.publish(fan::Event::delete(named("two"), false));
                publisher.publish(fan::Event::create(named("two"), false));
                for _ in 0..5000 {
                    publisher.publish(fan::Event::update(named("one").object, named("one")));
                }
            });
            of_set.fan.wake();
            while core.get(&ObjectKey::new("two", "o")).is_none() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_mins(1), first(lag, loops.keep(&site))).await.expect("it is listed");
        loops.stop().await;
        running.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn loops_that_go_on_after_a_stop_know_which_namespaces_have_left() {
        let server = ApiServer::new(Options::default()).expect("a server without data starts");
        let client = Client::new(server.service(), "default");
        let namespaces = Api::<Namespace>::all(client.clone());
        for name in ["one", "two"] {
            make_namespace(&client, name, &json!({"tenant": ""})).await;
        }
        let cache = Cache::new(client.clone(), CacheOptions::default()).expect("a ready client");
        let running = tokio::spawn(cache.clone().run_until(pending()));
        let set = cache.informer_of(Select::<Metadata<Namespace>>::new().labels("tenant")).expect("it is new");
        let (informer, resource) = declare(&set);
        let core = informer.core.clone();
        let site = Site { informer: &informer, client: &client.clone().into(), resource: &resource };
        let mut loops = Loops::default();
        let synced = core.clone().synced();
        timeout(Duration::from_mins(1), first(synced, loops.keep(&site))).await.expect("it syncs");
        loops.stop().await;
        assert_eq!(core.stats().objects, 2);

        let patch = Patch::Merge(json!({"metadata": {"labels": {"tenant": null}}}));
        namespaces.patch("one", &PatchParams::default(), &patch).await.expect("it is there");
        while set.list(&Query::default()).expect("it is synced").len() > 1 {
            sleep(Duration::from_millis(10)).await;
        }
        let left = async {
            while core.stats().objects > 1 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_mins(1), first(left, loops.keep(&site))).await.expect("it is told");
        assert!(core.get(&ObjectKey::new("two", "o")).is_some());
        loops.stop().await;
        running.abort();
    }
}
