//! Random schedule of writes, faults, restarts and handlers.
//!
//! Afterwards, the cache must converge on the server's state.

use super::{
    event_checker::{CheckedHandler, CheckedInformer, TENANT, TIER, TypedInformer, list_on_server},
    faulty_network::FaultyNetwork,
    socket::Socket,
    support::{Running, namespace_list},
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube_client::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use std::time::Duration;
use steersman::{
    cache::{Cache, CacheOptions, InformerState, Namespaces, Select},
    object::Metadata,
};
use steersman_apiserver::{ApiServer, Cause, Details, Failure, Fault, Options, Reason};
use tokio::time::{sleep, timeout};

const NAMESPACES: [&str; 3] = ["a", "b", "c"];
const WATCHED: [&str; 3] = ["configmaps", "secrets", "widgets"];

/// Test run determined by a seed.
pub(crate) struct Schedule {
    seed: u64,
    random: StdRng,
    /// Whether the server is sometimes restored to an older state.
    restores: bool,
    network: FaultyNetwork,
    subjects: Vec<Box<dyn CheckedInformer>>,
    /// Handlers with the index of their subject.
    handlers: Vec<(usize, CheckedHandler)>,
    /// Copy of the server to restore from.
    backup: ApiServer,
    turn: u32,
}

fn widget() -> GroupVersionKind {
    GroupVersionKind::gvk("convergence.example.com", "v1", "Widget")
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.convergence.example.com"},
        "spec": {
            "group": "convergence.example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"data": {"type": "object", "additionalProperties": {"type": "string"}}},
            }}}],
        },
    })
}

/// Declares one informer per combination of representation and scope.
fn declare(cache: &Cache) -> anyhow::Result<Vec<Box<dyn CheckedInformer>>> {
    let front = Select::<ConfigMap>::new()
        .labels("tier=front")
        .compact()
        .page_size(2);
    let two = Select::<ConfigMap>::new()
        .namespaces(namespace_list(&["a", "b"]))
        .page_size(1);
    let names = Select::<Metadata<Secret>>::new()
        .labels("!never")
        .page_size(3);
    let secrets = Select::<Secret>::new().compact().page_size(4);
    let tenants = Select::<Secret>::new()
        .namespaces(Namespaces::Labelled(TENANT.into()))
        .page_size(2);
    let (maps, b) = ("/api/v1/configmaps", "/api/v1/namespaces/b/configmaps");
    Ok(vec![
        TypedInformer::subject("typed", cache.informer::<ConfigMap>()?, &[maps]),
        TypedInformer::subject(
            "selected",
            cache.informer_of(front)?,
            &[&format!("{maps}?labelSelector=tier%3Dfront")],
        ),
        TypedInformer::subject(
            "two namespaces",
            cache.informer_of(two)?,
            &["/api/v1/namespaces/a/configmaps", b],
        ),
        TypedInformer::subject("compact", cache.informer_of(secrets)?, &["/api/v1/secrets"]),
        TypedInformer::subject("metadata", cache.informer_of(names)?, &["/api/v1/secrets"]),
        TypedInformer::subject(
            "tenants",
            cache.informer_of(tenants)?,
            &["/api/v1/namespaces/{tenant}/secrets"],
        ),
        TypedInformer::subject(
            "dynamic",
            cache.informer_of(Select::dynamic(widget()).page_size(3))?,
            &["/apis/convergence.example.com/v1/widgets"],
        ),
    ])
}

/// Transport between cache and server.
#[derive(Clone, Copy)]
pub(crate) enum Reach {
    /// In-process calls.
    Client,
    /// TCP connections, which watches drive themselves.
    Sockets,
}

impl Schedule {
    pub(crate) async fn run(seed: u64, reach: Reach) -> anyhow::Result<()> {
        let mut random = StdRng::seed_from_u64(seed);
        let history = random.random_range(5..200);
        let server = ApiServer::new(Options {
            history,
            seed: Some(seed),
            ..Options::default()
        })?;
        server
            .install(definition())
            .await
            .map_err(|failure| anyhow::anyhow!("{failure}"))?;
        let namespaces = Api::<Namespace>::all(Client::new(server.service(), "default"));
        for name in NAMESPACES {
            let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
            namespaces
                .create(&PostParams::default(), &namespace)
                .await?;
        }
        let network = FaultyNetwork::new(server.clone(), seed);
        let socket = match reach {
            Reach::Client => None,
            Reach::Sockets => Some(Socket::open(network.clone()).await?),
        };
        let cache = match &socket {
            Some(socket) => Cache::new(socket.config.clone(), CacheOptions::default())?,
            None => Cache::new(network.client(), CacheOptions::default())?,
        };
        let subjects = declare(&cache)?;
        let restores = random.random_range(0..4) == 0;
        let handlers = Vec::new();
        let mut schedule = Self {
            seed,
            random,
            restores,
            network,
            subjects,
            handlers,
            backup: server.fork(),
            turn: 0,
        };
        for subject in 0..schedule.subjects.len() {
            schedule.join(subject);
        }
        let cache = Running::new(cache);
        for _ in 0..schedule.random.random_range(20..120) {
            schedule.turn().await;
        }
        if schedule.random.random_range(0..32) == 0 {
            schedule.burst().await;
        }
        schedule.end_faults().await;
        // Its watches are still alive.
        for kind in 0..WATCHED.len() {
            for namespace in NAMESPACES {
                schedule
                    .create(&schedule.api(kind, namespace), "last", None)
                    .await;
            }
        }
        schedule.converge(Duration::from_mins(5)).await;
        cache.stop().await;
        Ok(())
    }

    fn join(&mut self, subject: usize) {
        let slow = self.random.random_range(0..3) == 0;
        let pause = slow.then(|| Duration::from_millis(self.random.random_range(1..60_000)));
        let handler = self.subjects[subject].join(pause, self.network.clone(), self.restores);
        self.handlers.push((subject, handler));
    }

    async fn turn(&mut self) {
        self.turn += 1;
        match self.random.random_range(0..100) {
            0..65 => self.write().await,
            65..80 => self.fault(),
            80..85 => self.network.server().compact(),
            85..88 => {
                let subject = self.random.random_range(0..self.subjects.len());
                self.join(subject);
            }
            88..90 if !self.handlers.is_empty() => {
                let leaves = self.random.random_range(0..self.handlers.len());
                drop(self.handlers.swap_remove(leaves));
            }
            90..92 => {
                // A restart keeps the data and compacts the history.
                let server = self.network.server().fork();
                server.compact();
                self.network.replace(server);
            }
            92 if self.restores => self.restore().await,
            93 => self.backup = self.network.server().fork(),
            94..97 => self.move_in_or_out().await,
            _ => {}
        }
        if self.random.random_range(0..2) == 0 {
            let most = [100, 5_000, 90_000][self.random.random_range(0..3)];
            sleep(Duration::from_millis(self.random.random_range(0..most))).await;
        }
        for subject in self.subjects.iter().filter(|_| self.turn.is_multiple_of(4)) {
            let Some(contents) = subject.contents() else {
                continue;
            };
            let newest = contents
                .values()
                .filter_map(|object| object["metadata"]["resourceVersion"].as_str()?.parse().ok());
            let newest: u64 = newest.max().unwrap_or_default();
            // With several watches, the slowest one determines the revision.
            assert!(
                !subject.is_one_watch() || subject.revision() >= Some(newest),
                "{} has {newest} at {:?}",
                subject.name(),
                subject.revision()
            );
        }
    }

    fn api(&self, kind: usize, namespace: &str) -> Api<DynamicObject> {
        let core = |kind| GroupVersionKind::gvk("", "v1", kind);
        let gvk = [core("ConfigMap"), core("Secret"), widget()][kind].clone();
        Api::namespaced_with(
            self.network.direct_client(),
            namespace,
            &ApiResource::from_gvk_with_plural(&gvk, WATCHED[kind]),
        )
    }

    /// Does one random write. Errors are ignored.
    async fn write(&mut self) {
        let kind = self.random.random_range(0..WATCHED.len());
        let namespace = NAMESPACES[self.random.random_range(0..3)];
        let api = self.api(kind, namespace);
        let name = format!("o{}", self.random.random_range(0..5));
        let tier = [None, Some("front"), Some("back")][self.random.random_range(0..3)];
        let patch = async |patch: Value| {
            drop(
                api.patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                    .await,
            );
        };
        let delete = async || drop(api.delete(&name, &DeleteParams::default()).await);
        match self.random.random_range(0..20) {
            0..8 => self.create(&api, &name, tier).await,
            8..11 => patch(json!({"data": {"turn": self.value()}})).await,
            11..14 => patch(json!({"metadata": {"labels": {TIER: tier}}})).await,
            14..16 => delete().await,
            16..19 => {
                delete().await;
                self.create(&api, &name, tier).await;
            }
            _ => {
                let which = tier.map(|tier| format!("{TIER}={tier}"));
                let which = ListParams {
                    label_selector: which,
                    ..ListParams::default()
                };
                drop(
                    api.delete_collection(&DeleteParams::default(), &which)
                        .await,
                );
            }
        }
    }

    /// Adds or removes the tenant label of a random namespace.
    async fn move_in_or_out(&mut self) {
        let namespaces = Api::<Namespace>::all(self.network.direct_client());
        let name = NAMESPACES[self.random.random_range(0..NAMESPACES.len())];
        let tenant = self.random.random_bool(0.6).then_some("yes");
        let patch = Patch::Merge(json!({"metadata": {"labels": {TENANT: tenant}}}));
        drop(
            namespaces
                .patch(name, &PatchParams::default(), &patch)
                .await,
        );
    }

    /// Returns four digits, which are also valid base64 for the data of secrets.
    fn value(&self) -> String {
        format!("{:04}", self.turn)
    }

    async fn create(&self, api: &Api<DynamicObject>, name: &str, tier: Option<&str>) {
        let mut object = DynamicObject::new(name, &ApiResource::erase::<ConfigMap>(&()));
        object.types = None;
        object.metadata.labels = tier.map(|tier| [(TIER.to_owned(), tier.to_owned())].into());
        object.data = json!({"data": {"turn": self.value()}});
        drop(api.create(&PostParams::default(), &object).await);
    }

    fn fault(&mut self) {
        let verb = ["watch", "watch", "list"][self.random.random_range(0..3)];
        let what = WATCHED
            .into_iter()
            .chain(["namespaces"])
            .nth(self.random.random_range(0..4))
            .expect("four");
        let fault = Fault::on(&format!("{verb} {what}"));
        let seconds = Duration::from_secs(self.random.random_range(1..90));
        let too_large = Cause {
            reason: "ResourceVersionTooLarge",
            message: "Too large".into(),
            field: String::new(),
        };
        let too_large =
            Failure::new(504, Reason::Timeout, "Too large resource version").about(Details {
                causes: vec![too_large],
                ..Details::default()
            });
        let fault = match self.random.random_range(0..9) {
            0 => fault.status(410),
            1 => fault.too_many(seconds),
            2 => fault.status(500),
            3 => fault.status(503),
            4 => fault.failure(too_large),
            5 => fault.close(),
            6 => fault.delay(seconds),
            7 => fault.status(400),
            _ => fault.drop_watch_after(self.random.random_range(0..5)),
        };
        self.network
            .server()
            .faults()
            .add(fault.times(self.random.random_range(1..4)));
    }

    /// Restores the last backup, so the server assigns revisions a second time.
    ///
    /// Informers cannot distinguish new objects from known ones of the same revision, so nothing is
    /// written until they have noticed.
    async fn restore(&mut self) {
        self.network.replace(self.backup.fork());
        self.end_faults().await;
        // With several watches, one may still wait for a future revision.
        sleep(Duration::from_mins(30)).await;
        self.network.set_reliable(false);
    }

    /// Writes more events than the log keeps for a handler that lags behind.
    async fn burst(&mut self) {
        let slow = self.subjects[0].join(
            Some(Duration::from_secs(1)),
            self.network.clone(),
            self.restores,
        );
        self.handlers.push((0, slow));
        let api = self.api(0, "c");
        for turn in 0..5_000 {
            self.turn += 1;
            let name = format!("o{}", turn % 50);
            match turn / 50 % 4 {
                0 => self.create(&api, &name, Some("back")).await,
                3 => drop(api.delete(&name, &DeleteParams::default()).await),
                _ => {
                    let patch = Patch::Merge(json!({"data": {"turn": self.value()}}));
                    drop(api.patch(&name, &PatchParams::default(), &patch).await);
                }
            }
            if turn % 5 == 0 {
                sleep(Duration::from_millis(1)).await;
            }
        }
    }

    async fn end_faults(&mut self) {
        self.network.set_reliable(true);
        self.network.server().faults().clear();
        self.converge(Duration::from_hours(2)).await;
    }

    /// Waits until server, cache and handlers agree. Fails after `most`.
    async fn converge(&self, most: Duration) {
        let converged = async {
            while self.differs().await.is_some() {
                sleep(Duration::from_secs(9)).await;
            }
        };
        if timeout(most, converged).await.is_err() {
            let differs = self.differs().await.unwrap_or_default();
            panic!(
                "seed {}, after {most:?} without faults: {differs}",
                self.seed
            );
        }
    }

    async fn differs(&self) -> Option<String> {
        let direct_client = self.network.direct_client();
        let revision = self.network.server().revision();
        for (number, subject) in self.subjects.iter().enumerate() {
            let name = subject.name();
            let expected = list_on_server(&direct_client, &**subject).await;
            if subject.state() != InformerState::Synced {
                return Some(format!("{name} is {:?}", subject.state()));
            }
            // An informer without namespaces has no revision.
            let has_watches = !subject.selects_namespaces_by_label() || !expected.is_empty();
            if has_watches && subject.revision() != Some(revision) {
                return Some(format!(
                    "{name} is at {:?}, the server at {revision}",
                    subject.revision()
                ));
            }
            let contents = subject.contents().expect("the informer is synced");
            if contents != expected {
                return Some(format!("{name} has {contents:?}, the server {expected:?}"));
            }
            for (_, handler) in self.handlers.iter().filter(|(of, _)| *of == number) {
                if let Some(differs) = handler.checker.lock().differs(&subject.versions()) {
                    return Some(format!("a handler of {name}: {differs}"));
                }
            }
        }
        None
    }
}
