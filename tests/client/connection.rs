//! How the server is reached.

use super::support::map;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube_client::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use std::{
    sync::{Mutex, mpsc},
    time::Duration,
};
use steersman::{
    cache::{Cache, CacheOptions, InformerState, Namespaces, Select},
    client::Client,
    object::ObjectKey,
    testing::{Embedded, TestServer},
};
use steersman_apiserver::Fault;
use tokio::{
    sync::mpsc::unbounded_channel,
    time::{sleep, timeout},
};

async fn config(server: &Embedded) -> anyhow::Result<Config> {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig().await?)?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

#[tokio::test]
async fn a_cache_made_from_a_configuration_is_told_what_the_server_refuses() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let config = config(&server).await?;
    assert!(config.default_retry, "as kube's are");
    let client = Client::new(config.clone())?;
    client.create(&map("default", "colors", "blue")).await?;

    let refused = server.server().faults().add("* configmaps -> 503".parse()?);
    let cache = Cache::new(config, CacheOptions::default())?;
    let maps = cache.informer::<ConfigMap>()?;
    let running = tokio::spawn(cache.run_until(std::future::pending()));
    let told = async {
        while !matches!(maps.state(), InformerState::Degraded { .. }) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(30), told).await.expect("kube would try again and say nothing");
    refused.remove();
    maps.await_synced().await?;
    assert!(maps.get(&ObjectKey::new("default", "colors"))?.is_some());
    running.abort();
    Ok(())
}

/// A 504 does not say that nothing was done, and the server finds another name each time.
#[tokio::test]
async fn what_the_server_refuses_is_told_and_not_sent_again() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let config = config(&server).await?;
    assert!(config.default_retry, "as kube's are");
    let client = Client::new(config)?;
    let mut unnamed = map("default", "colors", "blue");
    unnamed.metadata.generate_name = unnamed.metadata.name.take();
    let (faults, journal) = (server.server().faults(), server.server().journal());
    for (times, code) in [(1, 503), (2, 504)] {
        faults.add(Fault::on("POST configmaps").status(code).times(1));
        let error = client.create(&unnamed).await.expect_err("kube would try again and say nothing");
        assert_eq!(error.status().map(|status| status.code), Some(code));
        assert_eq!(journal.count("POST configmaps"), times);
    }
    faults.add(Fault::on("* configmaps").too_many(Duration::from_secs(7)));
    let key = ObjectKey::new("default", "colors");
    for refused in [client.create(&unnamed).await.map(drop), client.get::<ConfigMap>(&key).await.map(drop)] {
        let error = refused.expect_err("it is asked too much");
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)), "{error}");
    }
    assert_eq!((journal.count("POST configmaps"), journal.count("GET configmaps")), (3, 1));
    Ok(())
}

/// Lists are asked for page by page, so that there are connections that one has used and another may have next.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_watch_that_is_busy_keeps_no_other_waiting() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    server.server().faults().add("watch configmaps -> 400 6 times".parse()?);
    server.server().faults().add("watch secrets -> 400 once".parse()?);
    let config = config(&server).await?;
    let client = Client::new(config.clone())?;
    let tenants: Vec<String> = (0..6).map(|number| format!("tenant-{number}")).collect();
    for tenant in &tenants {
        client.create::<Namespace>(&serde_json::from_value(json!({"metadata": {"name": tenant}}))?).await?;
        for name in ["a", "b", "c"] {
            client.create(&map(tenant, name, "blue")).await?;
        }
    }
    let secret = |name: &str| serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default"}}));
    client.create::<Secret>(&secret("calm")?).await?;

    let (is_busy, mut busy) = unbounded_channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let cache = Cache::new(config, CacheOptions { page_size: 1, ..CacheOptions::default() })?;
    let secrets = cache.informer_of(Select::<Secret>::new().transform(move |secret: &mut Secret| {
        if secret.metadata.name.as_deref() == Some("busy") {
            is_busy.send(()).expect("somebody waits");
            let _ = may_go_on.lock().expect("no panic").recv();
        }
    }))?;
    let these = Namespaces::These(tenants.iter().map(|tenant| tenant.as_str().into()).collect());
    let maps = cache.informer_of(Select::<ConfigMap>::new().namespaces(these))?;
    let running = tokio::spawn(cache.run_until(std::future::pending()));
    secrets.await_synced().await?;
    maps.await_synced().await?;

    client.create::<Secret>(&secret("busy")?).await?;
    timeout(Duration::from_secs(30), busy.recv()).await?;
    for tenant in &tenants {
        client.create(&map(tenant, "new", "green")).await?;
        let shown = async {
            while maps.get(&ObjectKey::new(tenant, "new")).is_ok_and(|map| map.is_none()) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(30), shown).await?;
    }
    drop(go_on);
    running.abort();
    Ok(())
}
