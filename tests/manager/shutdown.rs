//! Tests of shutdown: it leaves nothing behind and names what did not finish.
//!
//! All use one thread, so that an ended task is gone when its end is reported.

use crate::{
    http_client::get,
    support::{Running, builder, client, nothing, server, until},
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

/// Returns a client whose background tasks are already running.
async fn warm_client(server: &ApiServer) -> anyhow::Result<kube::Client> {
    let client = client(server);
    kube::Api::<ConfigMap>::all(client.clone())
        .list(&ListParams::default())
        .await?;
    Ok(client)
}

/// Numbers of running and ended reconciles.
#[derive(Clone, Default)]
struct ReconcileCounts {
    running_count: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

impl ReconcileCounts {
    /// Returns a reconciler that always requeues and never returns immediately.
    fn reconciler<R: steersman::workqueue::Key>(&self) -> impl Reconciler<R> {
        let runs = self.clone();
        reconcile::from_fn(move |_: R, _| {
            let ReconcileCounts {
                running_count,
                ended,
            } = runs.clone();
            async move {
                running_count.fetch_add(1, SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await;
                running_count.fetch_sub(1, SeqCst);
                ended.fetch_add(1, SeqCst);
                Ok(Outcome::requeue_after(Duration::from_millis(1)))
            }
        })
    }
}

#[tokio::test]
async fn a_stop_under_load_finishes_reconciles_and_leaves_no_task() -> anyhow::Result<()> {
    let (local, remote) = (server(), server());
    let (local, remote) = (warm_client(&local).await?, warm_client(&remote).await?);
    let before = alive();

    let manager = Manager::builder(local)
        .leader_election("operator", "default")
        .build()?;
    let address = manager
        .serve_admin(Admin {
            address: "127.0.0.1:0".parse()?,
            ..Admin::default()
        })?
        .address();
    let recorder = manager.recorder("painter")?;
    let cluster = manager.add_cluster("abroad", remote)?;
    let (handle, runs) = (manager.handle(), ReconcileCounts::default());
    for (name, needs_leader, warmup) in [
        ("leads", true, false),
        ("warm", true, true),
        ("always", false, false),
    ] {
        let options = Options {
            needs_leader: Some(needs_leader),
            warmup: Some(warmup),
            ..Options::default()
        };
        let controller = manager
            .controller(name)
            .options(options)
            .for_::<ConfigMap>()
            .max_concurrent(8);
        let controller = controller.reconcile(runs.reconciler())?;
        (0..100).for_each(|number| {
            controller
                .queue()
                .add(Request::new("default", number.to_string()));
        });
    }
    // A controller whose requests are deferred until the cache shows its writes.
    let (client, written) = (handle.client(), runs.clone());
    let writer = manager
        .controller("writes")
        .for_::<ConfigMap>()
        .max_concurrent(8);
    let writer = writer.reconcile(reconcile::from_fn(move |request: Request, _| {
        let (
            client,
            ReconcileCounts {
                running_count,
                ended,
            },
        ) = (client.clone(), written.clone());
        async move {
            running_count.fetch_add(1, SeqCst);
            let change = Patch::Merge(json!({"data": {"runs": ended.load(SeqCst).to_string()}}));
            let written = client.patch::<ConfigMap>(&request, &change).await;
            running_count.fetch_sub(1, SeqCst);
            ended.fetch_add(1, SeqCst);
            Ok(written.map(|_| Outcome::done())?)
        }
    }))?;
    let fleet = manager
        .controller("fleet")
        .reconcile(runs.reconciler::<ClusterRequest>())?;
    let in_cluster = handler::in_cluster("abroad", handler::object());
    fleet.watch(Kind::with_cache(
        &cluster.cache(),
        Select::<ConfigMap>::new(),
        in_cluster,
    ))?;
    manager.add(Stage::Other, "writes", {
        let clients = [handle.client(), cluster.client()];
        async move |cx: RunContext| {
            let write = async {
                for client in clients.iter().cycle() {
                    let map =
                        json!({"metadata": {"generateName": "colors-", "namespace": "default"}});
                    let map: ConfigMap = client.create(&serde_json::from_value(map)?).await?;
                    recorder.event(&map, EventType::Normal, "Created", "Create", "created");
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
    // A connection that is kept open.
    let mut idle = TcpStream::connect(address).await?;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        .await?;
    assert!(idle.read(&mut [0; 512]).await? > 0);
    assert_eq!(get(address, "/readyz").await?.body, "ok");
    until(|| runs.ended.load(SeqCst) > 1000 && fleet.stats().requeue_after > 10).await;
    until(|| writer.stats().success > 100).await;
    assert!(alive() > before + 20, "{} tasks", alive() - before);
    running.stop().await?;
    assert_eq!(alive(), before, "no task is left");
    assert_eq!(
        runs.running_count.load(SeqCst),
        0,
        "running reconciles have ended"
    );
    Ok(())
}

/// Source that ignores the stop request.
async fn ignore_stop(_: Enqueue<Request>, cx: SourceContext) -> anyhow::Result<()> {
    cx.synced();
    pending().await
}

/// Counts its drops.
struct CountDrops(Arc<AtomicUsize>);

impl Drop for CountDrops {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn an_exceeded_grace_period_names_reconciles_and_sources_and_leaves_no_task()
-> anyhow::Result<()> {
    let server = server();
    let local = warm_client(&server).await?;
    let before = alive();
    for grace in [Duration::from_millis(500), Duration::ZERO] {
        let (begun, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let manager = Manager::builder(local.clone())
            .grace_period(Some(grace))
            .build()?;
        let counters = (begun.clone(), dropped.clone());
        let stuck_reconciler = reconcile::from_fn(move |_: Request, _| {
            let (begun, dropped) = counters.clone();
            async move {
                let _dropped = CountDrops(dropped);
                begun.fetch_add(1, SeqCst);
                pending().await
            }
        });
        let controller = manager
            .controller("maps")
            .for_::<ConfigMap>()
            .max_concurrent(2)
            .reconcile(stuck_reconciler)?;
        controller.watch(source::from_fn("unresponsive", ignore_stop))?;
        for name in ["a", "b", "c"] {
            controller.queue().add(Request::new("default", name));
        }
        let running = Running::new(manager);
        until(|| begun.load(SeqCst) == 2).await;
        let ended = running.stop().await;
        assert_eq!(
            (alive(), dropped.load(SeqCst)),
            (before, 2),
            "after a grace period of {grace:?}"
        );
        if grace.is_zero() {
            ended?;
            continue;
        }
        let message = ended.unwrap_err().to_string();
        assert!(
            message.contains("0.5 s: controller maps (reconcile of default/"),
            "{message}"
        );
        assert!(
            message.contains("reconcile of default/a") && message.contains("source unresponsive"),
            "{message}"
        );
        assert!(
            !message.contains("default/c"),
            "c was not started: {message}"
        );
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_warm_standby_leaves_no_task() -> anyhow::Result<()> {
    let server = server();
    let local = warm_client(&server).await?;
    let leader = builder(&server)
        .leader_election("operator", "default")
        .build()?;
    let leader_handle = leader.handle();
    let leader = Running::new(leader);
    leader_handle.elected().await;
    let before = alive();
    let standby = Manager::builder(local)
        .leader_election("operator", "default")
        .build()?;
    let options = Options {
        warmup: Some(true),
        ..Options::default()
    };
    let warm = standby
        .controller("warm")
        .for_::<ConfigMap>()
        .options(options)
        .reconcile(nothing())?;
    let standby = Running::new(standby);
    until(|| matches!(warm.watches()[0].state(), WatchState::Synced)).await;
    standby.stop().await?;
    assert_eq!(alive(), before);
    leader.stop().await
}
