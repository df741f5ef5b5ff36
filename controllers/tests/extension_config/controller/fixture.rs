//! Creates the objects of one test, and starts managers with the controller.

use super::proxy::Proxy;
use crate::support::Endpoint;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use steersman::{
    client::Patch,
    manager::ManagerHandle,
    prelude::*,
    testing::{Env, TestServer, eventually},
};
use steersman_controllers::{
    cluster_api::{Conditions, conditions, deprecated},
    extension_config::{self, ExtensionConfig, Options, catalog::Catalog, client::RuntimeClient},
};
use tokio::{sync::oneshot, task::JoinHandle};

/// Annotation that names the Secret with the CA.
pub(crate) const INJECT: &str = "runtime.cluster.x-k8s.io/inject-ca-from-secret";

/// Objects of one test. Other tests on the same server have other names and another label.
pub(crate) struct Fixture {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl Fixture {
    pub(crate) async fn new(env: &Env) -> anyhow::Result<Self> {
        env.install(extension_config::definitions()).await?;
        Ok(Self {
            namespace: env.namespace("ext").await?,
            client: Client::new(env.client()?)?,
        })
    }

    /// Returns the name of an object of this test.
    pub(crate) fn name(&self, name: &str) -> String {
        format!("{name}-{}", self.namespace)
    }

    /// Returns the registered name of a handler of the object `name`.
    pub(crate) fn handler(&self, handler: &str, name: &str) -> String {
        format!("{handler}.{}", self.name(name))
    }

    /// Starts a manager with the controller, and waits until the registry is ready.
    pub(crate) async fn start(&self, env: &Env) -> anyhow::Result<Running> {
        self.start_behind(env, &Proxy::default()).await
    }

    /// Starts a manager behind a proxy, and waits until the registry is ready.
    pub(crate) async fn start_behind(&self, env: &Env, proxy: &Proxy) -> anyhow::Result<Running> {
        let running = self.start_with(proxy.client(env.client()?), Options::default())?;
        running.until_ready().await?;
        Ok(running)
    }

    /// Starts a manager with the controller for the objects of this test.
    pub(crate) fn start_with(
        &self,
        managers: kube::Client,
        options: Options,
    ) -> anyhow::Result<Running> {
        let manager = Manager::builder(managers).build()?;
        let catalog = Catalog::cluster_api();
        let runtime = RuntimeClient::builder(manager.client(), catalog).build()?;
        let options = Options {
            watch_filter: self.namespace.clone(),
            ..options
        };
        extension_config::add_to(&manager, runtime.clone(), &options)?;
        let (handle, (stop, stopped)) = (manager.handle(), oneshot::channel());
        let task = tokio::spawn(manager.run_until(async { drop(stopped.await) }));
        Ok(Running {
            manager: handle,
            runtime,
            stop,
            task,
        })
    }

    /// Creates an `ExtensionConfig` for a server, with its CA.
    pub(crate) async fn create(&self, name: &str, server: &Endpoint) -> anyhow::Result<()> {
        let client_config = json!({"url": server.url, "caBundle": server.ca_bundle()});
        self.create_with(name, client_config, json!({})).await
    }

    /// Creates an `ExtensionConfig` whose CA comes from the Secret of the same name.
    pub(crate) async fn create_annotated(
        &self,
        name: &str,
        server: &Endpoint,
    ) -> anyhow::Result<()> {
        let annotations = json!({INJECT: format!("{}/{name}", self.namespace)});
        self.create_with(name, json!({"url": server.url}), annotations)
            .await
    }

    pub(crate) async fn create_with(
        &self,
        name: &str,
        client_config: Value,
        annotations: Value,
    ) -> anyhow::Result<()> {
        let config = json!({
            "metadata": {
                "name": self.name(name), "annotations": annotations,
                "labels": {"cluster.x-k8s.io/watch-filter": self.namespace},
            },
            "spec": {"clientConfig": client_config, "namespaceSelector": {}},
        });
        let config: ExtensionConfig = serde_json::from_value(config)?;
        self.client.create(&config).await?;
        Ok(())
    }

    /// Creates or updates a Secret in the namespace of the test.
    pub(crate) async fn write_secret(
        &self,
        name: &str,
        data: &[(&str, &[u8])],
    ) -> anyhow::Result<()> {
        let data: BTreeMap<_, _> = data
            .iter()
            .map(|(key, value)| ((*key).to_owned(), ByteString(value.to_vec())))
            .collect();
        let key = ObjectKey::new(&self.namespace, name);
        if self.client.get::<Secret>(&key).await?.is_some() {
            let patch = Patch::Merge(json!({"data": data}));
            self.client.patch::<Secret>(&key, &patch).await?;
            return Ok(());
        }
        let metadata = json!({"namespace": self.namespace, "name": name});
        let secret = json!({"metadata": metadata, "data": data});
        let secret: Secret = serde_json::from_value(secret)?;
        self.client.create(&secret).await?;
        Ok(())
    }

    pub(crate) async fn patch(&self, name: &str, patch: Value) -> anyhow::Result<()> {
        let key = ObjectKey::cluster_scoped(self.name(name));
        let patch = Patch::Merge(patch);
        self.client.patch::<ExtensionConfig>(&key, &patch).await?;
        Ok(())
    }

    /// Changes an unused annotation, so that the object is reconciled.
    pub(crate) async fn touch(&self, name: &str, value: &str) -> anyhow::Result<()> {
        let annotations = json!({"example.com/touched": value});
        self.patch(name, json!({"metadata": {"annotations": annotations}}))
            .await
    }

    pub(crate) async fn delete(&self, name: &str) -> anyhow::Result<()> {
        let key = ObjectKey::cluster_scoped(self.name(name));
        self.client.delete::<ExtensionConfig>(&key).await?;
        Ok(())
    }

    pub(crate) async fn get(&self, name: &str) -> anyhow::Result<ExtensionConfig> {
        let key = ObjectKey::cluster_scoped(self.name(name));
        let config = self.client.get::<ExtensionConfig>(&key).await?;
        let config = config.ok_or_else(|| anyhow::anyhow!("{key} does not exist"))?;
        Ok((*config).clone())
    }

    /// Waits until `holds` returns true for the object, and returns the object.
    pub(crate) async fn until(
        &self,
        name: &str,
        holds: impl Fn(&ExtensionConfig) -> bool,
    ) -> anyhow::Result<ExtensionConfig> {
        eventually(async || {
            let config = self.get(name).await?;
            Ok(holds(&config).then_some(config))
        })
        .await
    }

    /// Waits until the condition `Discovered` has this reason for the current generation.
    pub(crate) async fn until_reason(
        &self,
        name: &str,
        reason: &str,
    ) -> anyhow::Result<ExtensionConfig> {
        self.until(name, |config| {
            let condition = conditions::find(config, "Discovered");
            condition.is_some_and(|it| {
                it.reason == reason && it.observed_generation == config.metadata.generation
            })
        })
        .await
    }
}

/// Returns status and message of the condition `Discovered`, which both formats must have.
pub(crate) fn discovered(config: &ExtensionConfig) -> (String, String) {
    let condition = conditions::find(config, "Discovered").expect("the condition Discovered");
    let copy = deprecated::find(config, "Discovered").expect("the deprecated condition");
    assert_eq!(copy.status, condition.status);
    assert_eq!(copy.message, condition.message);
    if copy.status == "True" {
        assert_eq!(copy.reason, "");
    } else {
        assert_eq!(copy.reason, "DiscoveryFailed");
        assert_eq!(
            copy.severity,
            steersman_controllers::cluster_api::Severity::Error
        );
    }
    let others = config.deprecated_conditions().len();
    assert_eq!(others, 1, "only Discovered has a deprecated copy");
    (condition.status.clone(), condition.message.clone())
}

/// Returns the names of the handlers in the status.
pub(crate) fn handlers(config: &ExtensionConfig) -> Vec<String> {
    let status = config.status.as_ref();
    let handlers = status.map(|status| status.handlers.as_slice());
    let handlers = handlers.unwrap_or_default().iter();
    handlers.map(|handler| handler.name.clone()).collect()
}

/// Running manager.
pub(crate) struct Running {
    pub(crate) manager: ManagerHandle,
    pub(crate) runtime: RuntimeClient,
    stop: oneshot::Sender<()>,
    pub(crate) task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        self.task.await?
    }

    /// Waits until the registry is ready.
    pub(crate) async fn until_ready(&self) -> anyhow::Result<()> {
        let ready = self.runtime.registry().ready();
        tokio::time::timeout(std::time::Duration::from_secs(30), ready).await?;
        Ok(())
    }

    pub(crate) fn is_registered(&self, handler: &str) -> bool {
        self.runtime.registry().get(handler).is_ok()
    }

    /// Waits until a handler is registered, or is not.
    pub(crate) async fn until_registered(&self, handler: &str, is: bool) -> anyhow::Result<()> {
        eventually(async || anyhow::Ok((self.is_registered(handler) == is).then_some(()))).await
    }

    /// Waits until a handler is registered and no event of its object is left.
    ///
    /// Empty queues are not sufficient, because the event of the last write can be pending. So this
    /// changes the object in a way that causes no further write, and waits for that event.
    pub(crate) async fn until_settled(
        &self,
        fixture: &Fixture,
        name: &str,
        handler: &str,
    ) -> anyhow::Result<()> {
        let handler = fixture.handler(handler, name);
        self.until_registered(&handler, true).await?;
        fixture.touch(name, "settled").await?;
        eventually(async || {
            let stored = fixture.get(name).await?.metadata.resource_version;
            let registration = self.runtime.registry().get(&handler).ok();
            let registered = registration.map(|it| it.extension_config_resource_version.clone());
            anyhow::Ok((registered == stored).then_some(()))
        })
        .await?;
        self.manager.wait_queues_empty().await;
        Ok(())
    }

    /// Waits until more than `count` reconciles had this result.
    pub(crate) async fn until_more(&self, result: &str, count: u64) -> anyhow::Result<()> {
        eventually(async || anyhow::Ok((self.reconciles(result) > count).then_some(()))).await
    }

    /// Returns the number of reconciles with this result.
    pub(crate) fn reconciles(&self, result: &str) -> u64 {
        let line = format!(
            "controller_runtime_reconcile_total{{controller=\"extension-config\",result=\"{result}\"}} "
        );
        let page = self.manager.metrics_page();
        let mut counts = page.lines().filter_map(|it| it.strip_prefix(&line));
        counts
            .next()
            .map_or(0, |count| count.parse().unwrap_or_default())
    }
}
