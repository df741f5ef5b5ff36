//! Tests that run on both servers.

use super::support::{client_of, definition};
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube_client::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams},
    core::GroupVersionKind,
};
use std::time::Duration;
use steersman::testing::{Env, TestServer};

fn config_map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.into());
    map
}

steersman::env_test! {
    /// A test may return a result.
    async fn each_test_has_its_own_namespaces(env: Env) -> anyhow::Result<()> {
        let (namespace, other) = (env.namespace("first").await?, env.namespace("first").await?);
        assert!(namespace.starts_with("first-") && namespace != other);
        let api = |namespace: &str| -> anyhow::Result<Api<ConfigMap>> { Ok(Api::namespaced(env.client()?, namespace)) };
        let made = api(&namespace)?.create(&PostParams::default(), &config_map("settings")).await?;
        assert_eq!(api(&namespace)?.get("settings").await?, made);
        assert_eq!(api(&other)?.get_opt("settings").await?, None);
        Ok(())
    }

    /// A test may also return nothing.
    async fn a_crd_is_served_once_it_is_installed(env: Env) {
        let widgets = definition("widgets", "Widget", "both.example.com");
        env.install([&widgets]).await.unwrap();
        env.install([&widgets]).await.expect("a second install is not an error");
        let namespace = env.namespace("widgets").await.unwrap();
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("both.example.com", "v1", "Widget"));
        let api: Api<DynamicObject> = Api::namespaced_with(env.client().unwrap(), &namespace, &kind);
        api.create(&PostParams::default(), &DynamicObject::new("first", &kind)).await.unwrap();
        assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 1);
    }

    async fn a_dependent_is_deleted_with_its_owner(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("garbage").await?;
        let api: Api<ConfigMap> = Api::namespaced(env.client()?, &namespace);
        let owner = api.create(&PostParams::default(), &config_map("owner")).await?;
        let mut dependent = config_map("dependent");
        dependent.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            name: "owner".into(),
            uid: owner.metadata.uid.unwrap(),
            ..OwnerReference::default()
        }]);
        api.create(&PostParams::default(), &dependent).await?;
        api.delete("owner", &DeleteParams::default()).await?;
        while api.get_opt("dependent").await?.is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// The kubeconfig works for other programs.
    async fn a_kubeconfig_connects_to_the_same_server(env: Env) -> anyhow::Result<()> {
        let namespace = env.namespace("kubeconfig").await?;
        let text = std::fs::read_to_string(env.kubeconfig().await?)?;
        let api: Api<ConfigMap> = Api::namespaced(client_of(&text).await, &namespace);
        api.create(&PostParams::default(), &config_map("settings")).await?;
        assert!(Api::<ConfigMap>::namespaced(env.client()?, &namespace).get_opt("settings").await?.is_some());
        Ok(())
    }
}
