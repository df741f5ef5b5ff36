//! A kube-rs controller that creates one config map per site, run until it has nothing left to do.

use super::{QUIET, Site, config_maps, site, sites, start_with_sites};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::{Controller, controller::Action, watcher},
};
use serde_json::json;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use steersman_apiserver::{ApiServer, Fault};
use tokio::time::timeout;

const SITES: usize = 1000;

struct Context {
    client: Client,
    server: ApiServer,
    reconciled: AtomicUsize,
    /// Number of reconciles between compactions, 0 for none.
    compact_every: usize,
}

/// Creates or updates the config map of a site with its color, and sets the status of the site.
async fn reconcile(site: Arc<Site>, context: Arc<Context>) -> kube::Result<Action> {
    let count = context.reconciled.fetch_add(1, Ordering::Relaxed) + 1;
    if context.compact_every > 0 && count.is_multiple_of(context.compact_every) {
        context.server.compact();
    }
    if site.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let name = site.name_any();
    let maps = config_maps(&context.client);
    match maps.get_opt(&name).await? {
        None => {
            let map = ConfigMap {
                metadata: kube::api::ObjectMeta {
                    name: Some(name.clone()),
                    owner_references: site.controller_owner_ref(&()).map(|owner| vec![owner]),
                    ..Default::default()
                },
                data: Some(BTreeMap::from([("color".into(), site.spec.color.clone())])),
                ..Default::default()
            };
            maps.create(&PostParams::default(), &map).await?;
        }
        Some(map) if color(&map) != Some(&site.spec.color) => {
            let patch = json!({"data": {"color": site.spec.color}});
            maps.patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await?;
        }
        Some(_) => {}
    }
    // A patch without changes writes nothing, so the status is not compared first.
    let status = json!({"status": {"observedGeneration": site.metadata.generation, "replicas": site.spec.replicas}});
    sites(&context.client)
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(Action::await_change())
}

fn color(map: &ConfigMap) -> Option<&String> {
    map.data.as_ref()?.get("color")
}

fn controller(context: &Arc<Context>) -> impl futures::Stream<Item = bool> + use<> {
    let client = &context.client;
    Controller::new(sites(client), watcher::Config::default())
        .owns(config_maps(client), watcher::Config::default())
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(1)),
            context.clone(),
        )
        .map(|outcome| outcome.is_ok())
}

/// Waits until the controller is quiet. Returns the number of reconciles.
async fn settle(controller: &mut (impl futures::Stream<Item = bool> + Unpin)) -> usize {
    let mut count = 0;
    while timeout(QUIET, controller.next()).await.is_ok() {
        count += 1;
    }
    count
}

async fn create(client: &Client, count: usize) {
    for n in 0..count {
        sites(client)
            .create(&PostParams::default(), &site(&format!("s{n:04}"), "red"))
            .await
            .expect("a site");
    }
}

/// Asserts that every site has its config map and status, and that there are no other config maps.
async fn check(client: &Client, count: usize) {
    let all: Vec<Site> = sites(client)
        .list(&ListParams::default())
        .await
        .expect("sites")
        .items;
    assert_eq!(all.len(), count);
    let maps = config_maps(client)
        .list(&ListParams::default())
        .await
        .expect("config maps")
        .items;
    let maps: BTreeMap<String, ConfigMap> =
        maps.into_iter().map(|map| (map.name_any(), map)).collect();
    assert_eq!(maps.len(), count);
    for site in all {
        let map = &maps[&site.name_any()];
        assert_eq!(color(map), Some(&site.spec.color));
        assert_eq!(map.owner_references()[0].uid, site.uid().expect("a uid"));
        assert_eq!(
            site.status.expect("a status").observed_generation,
            site.metadata.generation
        );
    }
}

async fn context(compact_every: usize) -> Arc<Context> {
    let (server, client) = start_with_sites().await;
    Arc::new(Context {
        client,
        server,
        reconciled: AtomicUsize::new(0),
        compact_every,
    })
}

#[tokio::test(start_paused = true)]
async fn a_controller_of_a_thousand_sites_converges() {
    let context = context(0).await;
    let client = &context.client;
    create(client, SITES).await;
    let mut running = Box::pin(controller(&context));
    let count = settle(&mut running).await;
    assert!((SITES..=4 * SITES).contains(&count), "{count}");
    check(client, SITES).await;

    // A second controller reconciles every site and writes nothing.
    let revision = context.server.revision();
    running = Box::pin(controller(&context));
    assert_eq!(settle(&mut running).await, SITES, "one reconcile per site");
    assert_eq!(context.server.revision(), revision);

    // A deleted config map is created again. Config maps of deleted sites are garbage collected.
    config_maps(client)
        .delete("s0007", &DeleteParams::default())
        .await
        .expect("deleted");
    settle(&mut running).await;
    check(client, SITES).await;
    sites(client)
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await
        .expect("deleted");
    settle(&mut running).await;
    context.server.wait_idle().await;
    check(client, 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_converges_with_broken_watches_compaction_and_failing_requests() {
    const COUNT: usize = 300;
    let context = context(50).await;
    let client = &context.client;
    create(client, COUNT / 2).await;
    let broken = context
        .server
        .faults()
        .add(Fault::on("watch *").drop_watch_after(40));
    let conflicts = context.server.faults().add(
        "PATCH sites/status -> 409 20 times skip 10"
            .parse()
            .expect("a rule"),
    );
    let failed_lists = context
        .server
        .faults()
        .add("list * -> 500 3 times skip 2".parse().expect("a rule"));
    let closed = context.server.faults().add(
        "GET configmaps -> close 5 times skip 20"
            .parse()
            .expect("a rule"),
    );
    let mut running = Box::pin(controller(&context));
    settle(&mut running).await;
    for n in COUNT / 2..COUNT {
        sites(client)
            .create(&PostParams::default(), &site(&format!("s{n:04}"), "red"))
            .await
            .expect("a site");
        let blue = json!({"spec": {"color": "blue"}});
        let older = format!("s{:04}", n - COUNT / 2);
        sites(client)
            .patch(&older, &PatchParams::default(), &Patch::Merge(blue))
            .await
            .expect("a patch");
    }
    context.server.compact();
    settle(&mut running).await;
    check(client, COUNT).await;
    assert_eq!((conflicts.hits(), closed.hits()), (20, 5));
    assert!(broken.hits() > 5, "{}", broken.hits());
    assert!(
        failed_lists.hits() > 0,
        "the compacted history forces a relist"
    );
    let all: Api<Site> = Api::all(client.clone());
    let blue = all.list(&ListParams::default()).await.expect("sites").items;
    assert_eq!(
        blue.iter().filter(|site| site.spec.color == "blue").count(),
        COUNT / 2
    );
}
