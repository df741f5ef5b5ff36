//! Many objects that change all the time take no more memory than they did in the beginning, and give it back when nobody reads them any more.
//!
//! The heap of a whole process is measured, so that the test runs in a process of its own: it starts itself again. The embedded server is in it as well; it
//! has as many objects at each measurement, and a short history that is full before the first.

use super::{
    ledger::{Handler, Ledger, versions},
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

/// Says to the test that it is in the process of its own.
const ALONE: &str = "STEERSMAN_SOAK_ALONE";
/// Changes that the server keeps.
const HISTORY: usize = 200;
const NAMESPACES: usize = 10;
const IDLE: Duration = Duration::from_millis(200);

#[test]
fn soak_objects_that_change_all_the_time_take_no_more_memory() {
    if std::env::var_os(ALONE).is_none() {
        let name = std::thread::current().name().expect("the harness names it after the test").to_owned();
        let mut again = Command::new(std::env::current_exe().expect("the test itself"));
        let again = again.args(["--exact", &name, "--nocapture"]).env(ALONE, "true");
        assert!(again.status().expect("it starts").success(), "see above");
        return;
    }
    let (objects, time) = soak_time().map_or((5_000, Duration::from_secs(1)), |time| (100_000, time));
    // A round takes all of the time, so there is one also in a soak.
    for seed in Seeds::new(this_test!(), 1) {
        // Paused: what informers wait after a gap is no time of the test's.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(soaked(seed, objects, time)).expect("the server does it");
    }
}

struct World {
    server: ApiServer,
    client: Client,
    random: StdRng,
    objects: usize,
    turn: u64,
}

impl World {
    fn api(&self, number: usize) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &format!("n{}", number % NAMESPACES))
    }

    /// All are about as large as each other.
    async fn create(&self, number: usize) -> anyhow::Result<()> {
        let map = serde_json::from_value(json!({
            "metadata": {"name": format!("o-{number:06}"), "labels": {"app": format!("app-{}", number % 100)}},
            "data": {"turn": format!("{:012}", self.turn), "text": "some more that nobody reads"},
        }))?;
        self.api(number).create(&PostParams::default(), &map).await?;
        Ok(())
    }

    /// One object changes, or is made anew; once in a while, watches break or history is forgotten.
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
            // What watches miss meanwhile is forgotten: they list anew.
            self.server.faults().add(Fault::on("watch configmaps").drop_watch_after(1).times(1));
            self.server.compact();
        }
        Ok(())
    }

    /// For so long, and at least so often.
    async fn churn(&mut self, time: Duration, least: u64) -> anyhow::Result<()> {
        let (begin, first) = (Instant::now(), self.turn);
        while begin.elapsed() < time || self.turn - first < least {
            self.change().await?;
            // The server answers at once: without this, nobody else would run.
            yield_now().await;
        }
        Ok(())
    }

    /// Until an informer has it all, and so has its handler.
    async fn reaches<K: KubeObject>(&self, read: &Read<K>) {
        // The last write is of their kind.
        until(|| read.informer.resource_version() >= Some(self.server.revision())).await;
        let shown = versions(&read.informer);
        assert_eq!(shown.len(), self.objects);
        until(|| read.handler.ledger.lock().differs(&shown).is_none()).await;
    }
}

/// An informer and its handler.
struct Read<K> {
    informer: Informer<K>,
    handler: Handler,
}

impl<K: KubeObject> Read<K> {
    fn new(informer: Informer<K>) -> Self {
        let handler = Handler::new(informer.events(), Ledger::default(), |_| None);
        Self { informer, handler }
    }
}

async fn soaked(seed: u64, objects: usize, time: Duration) -> anyhow::Result<()> {
    let server = ApiServer::new(Options { history: HISTORY, ..Options::default() })?;
    let client = Client::new(server.service(), "default");
    let random = StdRng::seed_from_u64(seed);
    let mut world = World { server, client: client.clone(), random, objects, turn: 0 };
    for number in 0..NAMESPACES {
        let namespace = serde_json::from_value(json!({"metadata": {"name": format!("n{number}")}}))?;
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    }
    for number in 0..objects {
        world.create(number).await?;
    }
    world.churn(Duration::ZERO, 2 * HISTORY as u64).await?;
    let without = HEAP.allocated();

    let cache = Running::new(
        Cache::new(client, CacheOptions { idle: IDLE, ..CacheOptions::default() }).expect("a ready client"),
    );
    let compact = Read::new(cache.informer_of(Select::<ConfigMap>::new().compact())?);
    let metadata = Read::new(cache.informer_of(Select::<Metadata<ConfigMap>>::new().labels("app"))?);
    cache.await_synced().await?;
    world.churn(time / 10, 500).await?;
    let mut heaps = Vec::new();
    for _ in 0..4 {
        let both = async {
            world.reaches(&compact).await;
            world.reaches(&metadata).await;
        };
        timeout(Duration::from_hours(1), both).await.context("an informer or its handler is not told all")?;
        heaps.push(HEAP.allocated());
        world.churn(time * 9 / 10 / 4, 250).await?;
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
        world.turn,
        mb(without),
        heaps.iter().copied().map(mb).collect::<Vec<_>>(),
        mb(after),
    );
    let own = first - mb(without);
    assert!(relists > 0, "it was to list anew");
    assert!(last - first < own / 10., "it grows");
    assert!(mb(after) - mb(without) < own / 10., "it keeps what nobody reads");
    Ok(())
}
