//! What is left when it has ended: nothing, and whatever was not finished is named. On one thread, so that who has ended is gone when it is told.

use crate::{
    support::{Running, builder, client, nothing, server, until},
    web::get,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use serde_json::json;
use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use steersman::{
    admin::Admin,
    client::Patch,
    controller::{Options, WatchState},
    handler::Enqueue,
    manager::{Manager, RunContext, Stage},
    prelude::*,
    reconcile::ClusterRequest,
    recorder::EventType,
    source::{self, Kind, SourceContext},
};
use steersman_apiserver::ApiServer;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::Handle,
};

fn alive() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// A client that has all the tasks it will ever have.
async fn known(server: &ApiServer) -> anyhow::Result<kube::Client> {
    let client = client(server);
    kube::Api::<ConfigMap>::all(client.clone()).list(&ListParams::default()).await?;
    Ok(client)
}

/// How many runs there are, and were.
#[derive(Clone, Default)]
struct Runs {
    inside: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

impl Runs {
    /// One that has always something to do, and never does it at once.
    fn reconciler<R: steersman::workqueue::Key>(&self) -> impl Reconciler<R> {
        let runs = self.clone();
        reconcile::from_fn(move |_: R, _| {
            let Runs { inside, ended } = runs.clone();
            async move {
                inside.fetch_add(1, SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await;
                inside.fetch_sub(1, SeqCst);
                ended.fetch_add(1, SeqCst);
                Ok(Outcome::requeue_after(Duration::from_millis(1)))
            }
        })
    }
}

#[tokio::test]
async fn under_load_what_runs_is_finished_and_of_everything_a_manager_has_no_task_is_left() -> anyhow::Result<()> {
    let (home, abroad) = (server(), server());
    let (home, abroad) = (known(&home).await?, known(&abroad).await?);
    let before = alive();

    let manager = Manager::builder(home).leader_election("operator", "default").build()?;
    let address = manager.serve_admin(Admin { address: "127.0.0.1:0".parse()?, ..Admin::default() })?.address();
    let recorder = manager.recorder("painter")?;
    let cluster = manager.add_cluster("abroad", abroad)?;
    let (handle, runs) = (manager.handle(), Runs::default());
    for (name, needs_leader, warmup) in [("leads", true, false), ("warm", true, true), ("always", false, false)] {
        let options = Options { needs_leader: Some(needs_leader), warmup: Some(warmup), ..Options::default() };
        let controller = manager.controller(name).options(options).for_::<ConfigMap>().max_concurrent(8);
        let controller = controller.reconcile(runs.reconciler())?;
        (0..100).for_each(|number| controller.queue().add(Request::new("default", &number.to_string())));
    }
    // One whose requests are held back until the cache shows what it has written.
    let (client, written) = (handle.client(), runs.clone());
    let writer = manager.controller("writes").for_::<ConfigMap>().max_concurrent(8);
    let writer = writer.reconcile(reconcile::from_fn(move |request: Request, _| {
        let (client, Runs { inside, ended }) = (client.clone(), written.clone());
        async move {
            inside.fetch_add(1, SeqCst);
            let change = Patch::Merge(json!({"data": {"runs": ended.load(SeqCst).to_string()}}));
            let written = client.patch::<ConfigMap>(&request, &change).await;
            inside.fetch_sub(1, SeqCst);
            ended.fetch_add(1, SeqCst);
            Ok(written.map(|_| Outcome::done())?)
        }
    }))?;
    let fleet = manager.controller("fleet").reconcile(runs.reconciler::<ClusterRequest>())?;
    let in_cluster = handler::in_cluster("abroad", handler::object());
    fleet.watch(Kind::with_cache(&cluster.cache(), Select::<ConfigMap>::new(), in_cluster))?;
    manager.add(Stage::Other, "writes", {
        let clients = [handle.client(), cluster.client()];
        async move |cx: RunContext| {
            let write = async {
                for client in clients.iter().cycle() {
                    let map = json!({"metadata": {"generateName": "colors-", "namespace": "default"}});
                    let map: ConfigMap = client.create(&serde_json::from_value(map)?).await?;
                    recorder.event(&map, EventType::Normal, "Made", "Make", "it is there");
                    tokio::task::yield_now().await;
                }
                anyhow::Ok(())
            };
            tokio::select! {
                written = write => written,
                () = cx.stopped() => Ok(()),
            }
        }
    })?;

    let running = Running::new(manager);
    handle.elected().await;
    // One that is kept open.
    let mut idle = TcpStream::connect(address).await?;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await?;
    assert!(idle.read(&mut [0; 512]).await? > 0);
    assert_eq!(get(address, "/readyz").await?.body, "ok");
    until(|| runs.ended.load(SeqCst) > 1000 && fleet.stats().requeue_after > 10).await;
    until(|| writer.stats().success > 100).await;
    assert!(alive() > before + 20, "{} tasks", alive() - before);
    running.stop().await?;
    assert_eq!(alive(), before, "nothing is left that could do anything");
    assert_eq!(runs.inside.load(SeqCst), 0, "what ran was waited for");
    Ok(())
}

/// One that does not end by itself.
async fn deaf(_: Enqueue<Request>, cx: SourceContext) -> anyhow::Result<()> {
    cx.synced();
    pending().await
}

/// Calls it when it is dropped.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn who_overruns_the_grace_period_is_named_with_its_runs_and_sources_and_nothing_of_it_is_left()
-> anyhow::Result<()> {
    let server = server();
    let home = known(&server).await?;
    let before = alive();
    for grace in [Duration::from_millis(500), Duration::ZERO] {
        let (begun, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let manager = Manager::builder(home.clone()).grace_period(Some(grace)).build()?;
        let counted = (begun.clone(), dropped.clone());
        let stuck = reconcile::from_fn(move |_: Request, _| {
            let (begun, dropped) = counted.clone();
            async move {
                let _dropped = Dropped(dropped);
                begun.fetch_add(1, SeqCst);
                pending().await
            }
        });
        let controller = manager.controller("maps").for_::<ConfigMap>().max_concurrent(2).reconcile(stuck)?;
        controller.watch(source::from_fn("deaf", deaf))?;
        for name in ["a", "b", "c"] {
            controller.queue().add(Request::new("default", name));
        }
        let running = Running::new(manager);
        until(|| begun.load(SeqCst) == 2).await;
        let ended = running.stop().await;
        assert_eq!((alive(), dropped.load(SeqCst)), (before, 2), "after a grace period of {grace:?}");
        if grace.is_zero() {
            ended?;
            continue;
        }
        let words = ended.unwrap_err().to_string();
        assert!(words.contains("0.5 s, and dropped: controller maps (run of default/"), "{words}");
        assert!(words.contains("run of default/a") && words.contains("source deaf"), "{words}");
        assert!(!words.contains("default/c"), "it was not begun: {words}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn of_a_standby_that_was_warm_nothing_is_left() -> anyhow::Result<()> {
    let server = server();
    let home = known(&server).await?;
    let leader = builder(&server).leader_election("operator", "default").build()?;
    let leads = leader.handle();
    let leader = Running::new(leader);
    leads.elected().await;
    let before = alive();
    let standby = Manager::builder(home).leader_election("operator", "default").build()?;
    let options = Options { warmup: Some(true), ..Options::default() };
    let warm = standby.controller("warm").for_::<ConfigMap>().options(options).reconcile(nothing())?;
    let standby = Running::new(standby);
    until(|| matches!(warm.watches()[0].state(), WatchState::Synced)).await;
    standby.stop().await?;
    assert_eq!(alive(), before);
    leader.stop().await
}
