//! Tests of connections to the API server.

use super::support::config_map;
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
async fn a_cache_created_from_a_configuration_reports_503_responses() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let config = config(&server).await?;
    assert!(config.default_retry, "the default of kube");
    let client = Client::new(config.clone())?;
    client
        .create(&config_map("default", "colors", "blue"))
        .await?;

    let rule = server.server().faults().add("* configmaps -> 503".parse()?);
    let cache = Cache::new(config, CacheOptions::default())?;
    let maps = cache.informer::<ConfigMap>()?;
    let running = tokio::spawn(cache.run_until(std::future::pending()));
    let degraded = async {
        while !matches!(maps.state(), InformerState::Degraded { .. }) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(30), degraded)
        .await
        .expect("kube would retry silently");
    rule.remove();
    maps.await_synced().await?;
    assert!(maps.get(&ObjectKey::new("default", "colors"))?.is_some());
    running.abort();
    Ok(())
}

/// After a 504 the write may have been executed, and a generated name differs on each attempt.
#[tokio::test]
async fn failed_requests_are_reported_and_not_repeated() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let config = config(&server).await?;
    assert!(config.default_retry, "the default of kube");
    let client = Client::new(config)?;
    let mut unnamed = config_map("default", "colors", "blue");
    unnamed.metadata.generate_name = unnamed.metadata.name.take();
    let (faults, journal) = (server.server().faults(), server.server().journal());
    for (times, code) in [(1, 503), (2, 504)] {
        faults.add(Fault::on("POST configmaps").status(code).times(1));
        let error = client
            .create(&unnamed)
            .await
            .expect_err("kube would retry silently");
        assert_eq!(error.status().map(|status| status.code), Some(code));
        assert_eq!(journal.count("POST configmaps"), times);
    }
    faults.add(Fault::on("* configmaps").too_many(Duration::from_secs(7)));
    let key = ObjectKey::new("default", "colors");
    for rule in [
        client.create(&unnamed).await.map(drop),
        client.get::<ConfigMap>(&key).await.map(drop),
    ] {
        let error = rule.expect_err("429");
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)), "{error}");
    }
    assert_eq!(
        (
            journal.count("POST configmaps"),
            journal.count("GET configmaps")
        ),
        (3, 1)
    );
    Ok(())
}

/// Lists are paged, so that connections are reused between requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_busy_watch_does_not_delay_others() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    server
        .server()
        .faults()
        .add("watch configmaps -> 400 6 times".parse()?);
    server
        .server()
        .faults()
        .add("watch secrets -> 400 once".parse()?);
    let config = config(&server).await?;
    let client = Client::new(config.clone())?;
    let tenants: Vec<String> = (0..6).map(|number| format!("tenant-{number}")).collect();
    for tenant in &tenants {
        client
            .create::<Namespace>(&serde_json::from_value(
                json!({"metadata": {"name": tenant}}),
            )?)
            .await?;
        for name in ["a", "b", "c"] {
            client.create(&config_map(tenant, name, "blue")).await?;
        }
    }
    let secret = |name: &str| {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default"}}))
    };
    client.create::<Secret>(&secret("idle")?).await?;

    let (started_sender, mut started) = unbounded_channel();
    let (continue_sender, continue_receiver) = mpsc::channel::<()>();
    let continue_receiver = Mutex::new(continue_receiver);
    let cache = Cache::new(
        config,
        CacheOptions {
            page_size: 1,
            ..CacheOptions::default()
        },
    )?;
    let secrets = cache.informer_of(Select::<Secret>::new().transform(
        move |secret: &mut Secret| {
            if secret.metadata.name.as_deref() == Some("busy") {
                started_sender.send(()).expect("the test waits for it");
                let _ = continue_receiver.lock().expect("not poisoned").recv();
            }
        },
    ))?;
    let namespaces = Namespaces::List(
        tenants
            .iter()
            .map(|tenant| tenant.as_str().into())
            .collect(),
    );
    let maps = cache.informer_of(Select::<ConfigMap>::new().namespaces(namespaces))?;
    let running = tokio::spawn(cache.run_until(std::future::pending()));
    secrets.await_synced().await?;
    maps.await_synced().await?;

    client.create::<Secret>(&secret("busy")?).await?;
    timeout(Duration::from_secs(30), started.recv()).await?;
    for tenant in &tenants {
        client.create(&config_map(tenant, "new", "green")).await?;
        let stored = async {
            while maps
                .get(&ObjectKey::new(tenant, "new"))
                .is_ok_and(|map| map.is_none())
            {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(30), stored).await?;
    }
    drop(continue_sender);
    running.abort();
    Ok(())
}
