//! Tests of memory use.
//!
//! It is constant while objects change, and freed when the readers are dropped.
//!
//! The test measures the heap of a whole process, so it starts itself in a process of its own. That
//! includes the embedded server, which has the same number of objects at each measurement and a
//! short history that is full before the first.

use super::{
    event_checker::{CheckedHandler, EventChecker, versions},
    support::{Running, until},
};
use anyhow::Context;
use cap::Cap;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube_client::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::json;
use std::{
    alloc::System,
    process::Command,
    time::{Duration, Instant},
};
use steersman::{
    cache::{Cache, CacheOptions, Informer, Select},
    object::{KubeObject, Metadata},
};
use steersman_apiserver::{ApiServer, Fault, Options};
use steersman_testkit::{Seeds, soak_time, this_test};
use tokio::{task::yield_now, time::timeout};

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// Environment variable that marks the child process.
const ALONE: &str = "STEERSMAN_SOAK_ALONE";
/// Number of changes that the server keeps.
const HISTORY: usize = 200;
const NAMESPACES: usize = 10;
const IDLE: Duration = Duration::from_millis(200);

#[test]
fn soak_memory_stays_constant_while_objects_change() {
    if std::env::var_os(ALONE).is_none() {
        let name = std::thread::current()
            .name()
            .expect("the harness names it after the test")
            .to_owned();
        let mut again = Command::new(std::env::current_exe().expect("the test itself"));
        let again = again
            .args(["--exact", &name, "--nocapture"])
            .env(ALONE, "true");
        assert!(
            again.status().expect("the program starts").success(),
            "see above"
        );
        return;
    }
    let (objects, time) =
        soak_time().map_or((5_000, Duration::from_secs(1)), |time| (100_000, time));
    // One round takes the whole duration, so a soak has one round, too.
    for seed in Seeds::new(this_test!(), 1) {
        // Paused, so that backoff after a gap takes no real time.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime
            .expect("a runtime")
            .block_on(measure_memory(seed, objects, time))
            .expect("the server does it");
    }
}

struct Fixture {
    server: ApiServer,
    client: Client,
    random: StdRng,
    objects: usize,
    turn: u64,
}

impl Fixture {
    fn api(&self, number: usize) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &format!("n{}", number % NAMESPACES))
    }

    /// Creates an object. All objects have about the same size.
    async fn create(&self, number: usize) -> anyhow::Result<()> {
        let map = serde_json::from_value(json!({
            "metadata": {"name": format!("o-{number:06}"), "labels": {"app": format!("app-{}", number % 100)}},
            "data": {"turn": format!("{:012}", self.turn), "text": "some text"},
        }))?;
        self.api(number)
            .create(&PostParams::default(), &map)
            .await?;
        Ok(())
    }

    /// Updates or recreates one object.
    ///
    /// Sometimes breaks watches or compacts the history.
    async fn change(&mut self) -> anyhow::Result<()> {
        self.turn += 1;
        let number = self.random.random_range(0..self.objects);
        let (api, name) = (self.api(number), format!("o-{number:06}"));
        if self.random.random_range(0..4) == 0 {
            api.delete(&name, &DeleteParams::default()).await?;
            self.create(number).await?;
        } else {
            let patch = Patch::Merge(json!({"data": {"turn": format!("{:012}", self.turn)}}));
            api.patch(&name, &PatchParams::default(), &patch).await?;
        }
        if self.turn.is_multiple_of(500) {
            // The watches miss compacted events, so they list again.
            self.server
                .faults()
                .add(Fault::on("watch configmaps").drop_watch_after(1).times(1));
            self.server.compact();
        }
        Ok(())
    }

    /// Changes objects for at least `time` and at least `least` times.
    async fn churn(&mut self, time: Duration, least: u64) -> anyhow::Result<()> {
        let (begin, first) = (Instant::now(), self.turn);
        while begin.elapsed() < time || self.turn - first < least {
            self.change().await?;
            // The server answers without yielding, so other tasks would not run.
            yield_now().await;
        }
        Ok(())
    }

    /// Waits until informer and handler have the current state.
    async fn reaches<K: KubeObject>(&self, read: &Subscription<K>) {
        // The last write is of their kind.
        until(|| read.informer.resource_version() >= Some(self.server.revision())).await;
        let shown = versions(&read.informer);
        assert_eq!(shown.len(), self.objects);
        until(|| read.handler.checker.lock().differs(&shown).is_none()).await;
    }
}

/// An informer and its handler.
struct Subscription<K> {
    informer: Informer<K>,
    handler: CheckedHandler,
}

impl<K: KubeObject> Subscription<K> {
    fn new(informer: Informer<K>) -> Self {
        let handler = CheckedHandler::new(informer.events(), EventChecker::default(), |_| None);
        Self { informer, handler }
    }
}

async fn measure_memory(seed: u64, objects: usize, time: Duration) -> anyhow::Result<()> {
    let server = ApiServer::new(Options {
        history: HISTORY,
        ..Options::default()
    })?;
    let client = Client::new(server.service(), "default");
    let random = StdRng::seed_from_u64(seed);
    let mut fixture = Fixture {
        server,
        client: client.clone(),
        random,
        objects,
        turn: 0,
    };
    for number in 0..NAMESPACES {
        let namespace =
            serde_json::from_value(json!({"metadata": {"name": format!("n{number}")}}))?;
        Api::<Namespace>::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await?;
    }
    for number in 0..objects {
        fixture.create(number).await?;
    }
    fixture.churn(Duration::ZERO, 2 * HISTORY as u64).await?;
    let without = HEAP.allocated();

    let cache = Running::new(
        Cache::new(
            client,
            CacheOptions {
                idle: IDLE,
                ..CacheOptions::default()
            },
        )
        .expect("a ready client"),
    );
    let compact = Subscription::new(cache.informer_of(Select::<ConfigMap>::new().compact())?);
    let metadata =
        Subscription::new(cache.informer_of(Select::<Metadata<ConfigMap>>::new().labels("app"))?);
    cache.await_synced().await?;
    fixture.churn(time / 10, 500).await?;
    let mut heaps = Vec::new();
    for _ in 0..4 {
        let both = async {
            fixture.reaches(&compact).await;
            fixture.reaches(&metadata).await;
        };
        timeout(Duration::from_hours(1), both)
            .await
            .context("an informer or its handler does not converge")?;
        heaps.push(HEAP.allocated());
        fixture.churn(time * 9 / 10 / 4, 250).await?;
    }
    let relists = compact.informer.stats().relists + metadata.informer.stats().relists;
    drop((compact, metadata));
    until(|| cache.informers().is_empty()).await;
    let after = HEAP.allocated();
    cache.stop().await;

    let mb = |bytes: usize| bytes as f64 / 1e6;
    let (first, last) = (mb(heaps[0]), mb(heaps[3]));
    println!(
        "{objects} objects, {} changes, {relists} relists: {:.1} MB without, {:.1?} MB with them, {:.1} MB after",
        fixture.turn,
        mb(without),
        heaps.iter().copied().map(mb).collect::<Vec<_>>(),
        mb(after),
    );
    let own = first - mb(without);
    assert!(relists > 0, "the informers must relist");
    assert!(last - first < own / 10., "memory grows");
    assert!(mb(after) - mb(without) < own / 10., "memory is not freed");
    Ok(())
}
