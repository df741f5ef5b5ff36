//! Cluster API with a provider, a manager with the controller, and a Cluster `shop`.

use crate::support::{cluster, dynamic, provider_crd};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use steersman::{
    cache::Namespaces,
    client::Patch,
    manager::ManagerHandle,
    prelude::*,
    testing::{Env, TestServer, eventually},
};
use steersman_controllers::{
    cluster::{self, FINALIZER, Options},
    cluster_api::{self, Cluster},
};
use tokio::{sync::oneshot, task::JoinHandle};

/// Name of the Cluster, and of the objects that it refers to.
pub(crate) const NAME: &str = "shop";

/// Kind of a provider.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) name: &'static str,
    pub(crate) plural: &'static str,
    /// Label of the CRD.
    pub(crate) contract: &'static str,
}

/// Infrastructure of the contract v1beta2.
pub(crate) const BARN: Kind = Kind {
    group: "infrastructure.cluster.x-k8s.io",
    version: "v1beta2",
    name: "BarnCluster",
    plural: "barnclusters",
    contract: "cluster.x-k8s.io/v1beta2",
};

/// Infrastructure of the contract v1beta1.
pub(crate) const OLD_BARN: Kind = Kind {
    version: "v1alpha3",
    name: "OldBarnCluster",
    plural: "oldbarnclusters",
    contract: "cluster.x-k8s.io/v1beta1",
    ..BARN
};

/// Control plane of the contract v1beta2.
pub(crate) const BARN_PLANE: Kind = Kind {
    group: "controlplane.cluster.x-k8s.io",
    name: "BarnControlPlane",
    plural: "barncontrolplanes",
    ..BARN
};

/// Control plane of the contract v1beta1.
pub(crate) const OLD_BARN_PLANE: Kind = Kind {
    group: BARN_PLANE.group,
    name: "OldBarnControlPlane",
    plural: "oldbarncontrolplanes",
    ..OLD_BARN
};

impl Kind {
    pub(crate) fn gvk(self) -> GroupVersionKind {
        GroupVersionKind::gvk(self.group, self.version, self.name)
    }

    pub(crate) fn definition(self) -> Value {
        let labels = [(self.contract, self.version)];
        provider_crd(self.group, self.name, self.plural, &[self.version], &labels)
    }

    /// Returns a reference to the object `shop`.
    pub(crate) fn reference(self) -> Value {
        json!({"apiGroup": self.group, "kind": self.name, "name": NAME})
    }
}

/// Returns all CRDs of the tests.
pub(crate) fn definitions() -> Vec<Value> {
    let kinds = [BARN, OLD_BARN, BARN_PLANE, OLD_BARN_PLANE];
    let mut definitions = cluster_api::definitions();
    definitions.extend(kinds.map(Kind::definition));
    definitions
}

/// Namespace of a test, with a client that reads from the API server.
pub(crate) struct Fixture {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl Fixture {
    /// Installs the CRDs and creates a namespace.
    pub(crate) async fn new(env: &Env) -> anyhow::Result<Self> {
        env.install(definitions()).await?;
        Self::in_namespace(env).await
    }

    /// Creates a namespace.
    pub(crate) async fn in_namespace(env: &Env) -> anyhow::Result<Self> {
        let namespace = env.namespace("cluster").await?;
        let client = Client::new(env.client()?)?.namespace(&namespace);
        Ok(Self { client, namespace })
    }

    /// Starts a manager with the controller.
    pub(crate) fn start(&self, managers: kube::Client) -> anyhow::Result<Running> {
        self.start_with(managers, |_| Ok(()))
    }

    /// Starts a manager with the controller and what `add` adds.
    pub(crate) fn start_with(
        &self,
        managers: kube::Client,
        add: impl FnOnce(&ManagerHandle) -> anyhow::Result<()>,
    ) -> anyhow::Result<Running> {
        let cache = CacheOptions {
            namespaces: Namespaces::List(vec![self.namespace.as_str().into()]),
            ..CacheOptions::default()
        };
        let manager = Manager::builder(managers).cache(cache).build()?;
        let controller = cluster::add_to(&manager, &Options::default())?;
        add(&manager)?;
        let (handle, (stop, stopped)) = (manager.handle(), oneshot::channel());
        let task = tokio::spawn(manager.run_until(async { drop(stopped.await) }));
        Ok(Running {
            manager: handle,
            controller,
            stop,
            task,
        })
    }

    pub(crate) fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.namespace, NAME)
    }

    /// Creates the Cluster.
    pub(crate) async fn create_cluster(&self, spec: Value) -> anyhow::Result<()> {
        self.client.create(&cluster(NAME, spec)).await?;
        Ok(())
    }

    pub(crate) async fn cluster(&self) -> anyhow::Result<Cluster> {
        let cluster = self.client.get::<Cluster>(&self.key()).await?;
        let cluster = cluster.ok_or_else(|| anyhow::anyhow!("the Cluster does not exist"))?;
        Ok((*cluster).clone())
    }

    pub(crate) async fn patch_cluster(&self, patch: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(patch);
        self.client.patch::<Cluster>(&self.key(), &patch).await?;
        Ok(())
    }

    pub(crate) async fn set_cluster_status(&self, status: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        let client = self.client.status();
        client.patch::<Cluster>(&self.key(), &patch).await?;
        Ok(())
    }

    /// Creates the object `shop` of a provider, with this content and status.
    pub(crate) async fn create(&self, kind: Kind, content: Value) -> anyhow::Result<()> {
        let status = content["status"].clone();
        let api_version = kind.gvk().api_version();
        let object = dynamic(&api_version, kind.name, NAME, content);
        self.client.create::<DynamicObject>(&object).await?;
        if status.is_null() {
            return Ok(());
        }
        self.set_status(kind, status).await
    }

    pub(crate) async fn set_status(&self, kind: Kind, status: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        let client = self.client.status();
        client
            .dynamic(&kind.gvk())
            .patch(&self.key(), &patch)
            .await?;
        Ok(())
    }

    pub(crate) async fn patch(&self, kind: Kind, patch: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(patch);
        let client = self.client.dynamic(&kind.gvk());
        client.patch(&self.key(), &patch).await?;
        Ok(())
    }

    pub(crate) async fn delete(&self, kind: Kind) -> anyhow::Result<()> {
        self.client.dynamic(&kind.gvk()).delete(&self.key()).await?;
        Ok(())
    }

    /// Returns the object `shop` of a provider, if it exists.
    pub(crate) async fn object(&self, kind: Kind) -> anyhow::Result<Option<DynamicObject>> {
        let object = self.client.dynamic(&kind.gvk()).get(&self.key()).await?;
        Ok(object.map(|object| (*object).clone()))
    }

    /// Waits until the Cluster is as `holds` demands, and returns it.
    pub(crate) async fn until(&self, holds: impl Fn(&Cluster) -> bool) -> anyhow::Result<Cluster> {
        eventually(async || {
            let cluster = self.cluster().await?;
            Ok(holds(&cluster).then_some(cluster))
        })
        .await
    }

    /// Waits until a condition has this reason, and returns its status and message.
    pub(crate) async fn until_reason(
        &self,
        type_: &str,
        reason: &str,
    ) -> anyhow::Result<(String, String)> {
        let cluster = self
            .until(|cluster| condition(cluster, type_).is_some_and(|(_, it, _)| it == reason))
            .await?;
        let (status, _, message) = condition(&cluster, type_).expect("checked above");
        Ok((status, message))
    }

    /// Waits until the Cluster does not exist.
    pub(crate) async fn until_gone(&self) -> anyhow::Result<()> {
        eventually(async || {
            let cluster = self.client.get::<Cluster>(&self.key()).await?;
            Ok::<_, anyhow::Error>(cluster.is_none().then_some(()))
        })
        .await
    }
}

/// Returns status, reason and message of a condition.
pub(crate) fn condition(cluster: &Cluster, type_: &str) -> Option<(String, String, String)> {
    let conditions = &cluster.status.as_ref()?.conditions;
    let condition = steersman::conditions::find(conditions, type_)?;
    Some((
        condition.status.clone(),
        condition.reason.clone(),
        condition.message.clone(),
    ))
}

/// Returns status, severity, reason and message of a deprecated condition, as JSON.
pub(crate) fn deprecated(cluster: &Cluster, type_: &str) -> Value {
    let conditions = cluster_api::Conditions::deprecated_conditions(cluster);
    let condition = conditions.iter().find(|it| it.type_ == type_);
    let mut condition = json!(condition);
    if let Some(fields) = condition.as_object_mut() {
        fields.remove("lastTransitionTime");
        fields.remove("type");
    }
    condition
}

/// Returns `host:port` of the Cluster's endpoint. Missing parts are empty.
pub(crate) fn endpoint(cluster: &Cluster) -> Option<String> {
    let endpoint = cluster.spec.control_plane_endpoint.as_ref()?;
    let port = endpoint.port().map(|port| port.to_string());
    let host = endpoint.host().unwrap_or_default();
    Some(format!("{host}:{}", port.unwrap_or_default()))
}

pub(crate) fn has_finalizer(cluster: &Cluster) -> bool {
    steersman::client::has_finalizer(cluster, FINALIZER)
}

/// Manager that runs.
pub(crate) struct Running {
    pub(crate) manager: ManagerHandle,
    pub(crate) controller: Controller,
    stop: oneshot::Sender<()>,
    pub(crate) task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        self.task.await?
    }

    /// Waits until more than `count` reconciles have failed.
    pub(crate) async fn until_errors_exceed(&self, count: u64) -> anyhow::Result<()> {
        eventually(async || anyhow::Ok((self.reconciles("error") > count).then_some(()))).await
    }

    /// Returns the number of reconciles with this result.
    pub(crate) fn reconciles(&self, result: &str) -> u64 {
        let line = format!(
            "controller_runtime_reconcile_total{{controller=\"cluster\",result=\"{result}\"}} "
        );
        let page = self.manager.metrics_page();
        let mut counts = page.lines().filter_map(|it| it.strip_prefix(&line));
        counts
            .next()
            .map_or(0, |count| count.parse().unwrap_or_default())
    }
}
