//! The test environments, on the servers themselves.

use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::{Api, api::PostParams};
use steersman::testing::{Env, Environment, Options, TestServer, or_left_out};

steersman::env_test! {
    /// The simplest of tests.
    async fn a_config_map_is_read_back(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("first").await?;
        let api: Api<ConfigMap> = Api::namespaced(env.client()?, &namespace);
        let mut written = ConfigMap::default();
        written.metadata.name = Some("settings".into());
        api.create(&PostParams::default(), &written).await?;
        assert_eq!(api.get("settings").await?.metadata.name.as_deref(), Some("settings"));
        Ok(())
    }
}

#[tokio::test]
async fn it_starts_in_a_few_seconds_and_stop_leaves_nothing() {
    let since = std::time::Instant::now();
    let Some(environment) = or_left_out(Environment::start(Options::default()).await) else { return };
    println!("started in {:?}", since.elapsed());
    let directory = environment.directory().unwrap().to_owned();
    let since = std::time::Instant::now();
    environment.stop().await.unwrap();
    println!("stopped in {:?}", since.elapsed());
    assert!(!directory.exists());
}
