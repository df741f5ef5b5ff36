//! Change and inspect a controller while it runs: `cargo run --example runtime_change`

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use std::future::pending;
use steersman::{
    controller::WatchState,
    prelude::*,
    reconcile::Context,
    source::Kind,
    testing::{Env, TestServer},
};
use tokio::sync::mpsc;

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let server = Env::embedded()?;
    let cache = Cache::new(server.client()?, CacheOptions::default())?;
    let client = Client::new(server.client()?)?
        .with_cache(cache.clone())
        .namespace("default");

    let (sender, mut reconciled) = mpsc::unbounded_channel();
    let reconciler = reconcile::from_fn(move |request: Request, cx: Context| {
        println!("reconcile {request}, reasons: {:?}", cx.reasons());
        let sent = sender.send(request);
        async move { Ok(sent.map(|()| Outcome::done())?) }
    });
    let (controller, task) = Controller::builder("maps")
        .cache(&cache)
        .for_::<ConfigMap>()
        .build(reconciler)?;
    tokio::spawn(cache.clone().run_until(pending()));
    let running = tokio::spawn(task.run_until(pending()));
    client
        .create::<ConfigMap>(&serde_json::from_value(
            json!({"metadata": {"name": "map"}}),
        )?)
        .await?;
    reconciled.recv().await;

    println!("-- watch Secrets, too");
    let secrets = controller.watch(Kind::new(
        Select::<Metadata<Secret>>::new(),
        handler::object(),
    ))?;
    if let Err(error) = secrets.await_synced().await {
        println!("cannot watch Secrets: {error}");
    }
    if let WatchState::Degraded { since, error } = secrets.state() {
        println!("degraded since {since:?}: {error}");
    }
    client
        .create::<Secret>(&serde_json::from_value(
            json!({"metadata": {"name": "secret"}}),
        )?)
        .await?;
    reconciled.recv().await;

    println!("-- change the number of workers and add a request");
    controller.set_max_concurrent(16);
    controller.queue().add(Request::new("default", "manual"));
    reconciled.recv().await;

    println!("-- reports");
    println!(
        "{} ready, {} workers",
        controller.queue().len(),
        controller.max_concurrent()
    );
    println!(
        "{}",
        serde_json::to_string_pretty(&controller.queue().snapshot())?
    );
    println!("{}", serde_json::to_string(&controller.report())?);
    let informer = cache.informer::<ConfigMap>()?;
    println!(
        "{:?} at {:?}",
        informer.state(),
        informer.resource_version()
    );
    for informer in cache.informers() {
        println!(
            "{}: {:?}, {} objects",
            informer.gvk.kind, informer.state, informer.stats.objects
        );
    }

    println!("-- stop watching Secrets");
    secrets.stop().await;
    {
        let _stopped_at_the_end_of_this_block = controller
            .watch(Kind::new(
                Select::<Metadata<Secret>>::new(),
                handler::object(),
            ))?
            .scoped();
        println!("{} watches", controller.watches().len());
    }
    controller.stop().await;
    running.await?
}
