//! How the server is reached.

use super::support::map;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use std::time::Duration;
use steersman::{
    cache::{Cache, CacheOptions, InformerState},
    client::Client,
    object::ObjectKey,
    testing::{Embedded, TestServer},
};
use tokio::time::{sleep, timeout};

#[tokio::test]
async fn a_cache_made_from_a_configuration_is_told_what_the_server_refuses() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig().await?)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
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
