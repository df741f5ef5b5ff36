//! Tests that a client reads its own writes.
//!
//! Every verb, representation and scope, with delayed watches.

use super::{own_writes::Fixture, support::cache_options};
use futures::future::try_join_all;
use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v1::Scale, core::v1::Node};
use kube_core::{DynamicObject, GroupVersionKind};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;
use steersman::{
    cache::{Cache, CacheOptions, Informer, Query, Select},
    client::{Client, Patch},
    object::{KubeObject, Metadata, ObjectKey, StaticKind},
    testing::{Env, TestServer},
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Representation {
    Typed,
    Dynamic,
    Metadata,
}

/// One object, and how it is written and read.
struct Case<K> {
    client: Client,
    form: Representation,
    kind: GroupVersionKind,
    key: ObjectKey,
    from_json: fn(Value) -> K,
}

impl<K: StaticKind + Serialize> Case<K> {
    fn new(client: &Client, form: Representation, key: ObjectKey) -> Self {
        let from_json = |json| serde_json::from_value(json).expect("the object has the type");
        Self {
            client: client.clone(),
            form,
            kind: K::static_gvk(),
            key,
            from_json,
        }
    }

    /// Declares an informer of the object's kind.
    async fn declare(&self, cache: &Cache) -> anyhow::Result<Box<dyn Send>> {
        async fn synced<T: KubeObject>(informer: Informer<T>) -> anyhow::Result<Box<dyn Send>> {
            informer.await_synced().await?;
            Ok(Box::new(informer))
        }
        let kind = self.kind.clone();
        match self.form {
            Representation::Typed => synced(cache.informer::<K>()?).await,
            Representation::Dynamic => synced(cache.informer_of(Select::dynamic(kind))?).await,
            Representation::Metadata => {
                synced(cache.informer_of(Select::dynamic_metadata(kind))?).await
            }
        }
    }

    fn dynamic(json: Value) -> DynamicObject {
        serde_json::from_value(json).expect("an object")
    }

    async fn create(&self, json: Value) -> anyhow::Result<Value> {
        match self.form {
            Representation::Typed => Ok(serde_json::to_value(
                self.client.create(&(self.from_json)(json)).await?,
            )?),
            _ => Ok(serde_json::to_value(
                self.client.create(&Self::dynamic(json)).await?,
            )?),
        }
    }

    async fn update(&self, client: &Client, json: Value) -> anyhow::Result<Value> {
        match self.form {
            Representation::Typed => Ok(serde_json::to_value(
                client.update(&(self.from_json)(json)).await?,
            )?),
            _ => Ok(serde_json::to_value(
                client.update(&Self::dynamic(json)).await?,
            )?),
        }
    }

    async fn patch(&self, client: &Client, patch: Patch<Value>) -> anyhow::Result<Value> {
        match self.form {
            Representation::Typed => Ok(serde_json::to_value(
                client.patch::<K>(&self.key, &patch).await?,
            )?),
            Representation::Dynamic => Ok(serde_json::to_value(
                client.dynamic(&self.kind).patch(&self.key, &patch).await?,
            )?),
            Representation::Metadata => Ok(serde_json::to_value(
                client
                    .dynamic(&self.kind)
                    .patch_metadata(&self.key, &patch)
                    .await?,
            )?),
        }
    }

    async fn delete(&self) -> anyhow::Result<bool> {
        Ok(match self.form {
            Representation::Typed => self.client.delete::<K>(&self.key).await?,
            _ => self.client.dynamic(&self.kind).delete(&self.key).await?,
        })
    }

    /// Reads the object by `get` and by `list`.
    async fn read(&self) -> anyhow::Result<[Option<Value>; 2]> {
        let json = |object: Result<Value, serde_json::Error>| object.expect("JSON");
        let dynamic = self.client.dynamic(&self.kind);
        let namespace = self.key.namespace();
        let (got, listed): (_, Vec<Value>) = match self.form {
            Representation::Typed => (
                self.client
                    .get::<K>(&self.key)
                    .await?
                    .map(|it| json(serde_json::to_value(&*it))),
                values(
                    self.client
                        .list::<K>(&Query::default().namespace(namespace))
                        .await?
                        .iter()
                        .map(|it| &**it),
                ),
            ),
            Representation::Dynamic => (
                dynamic
                    .get(&self.key)
                    .await?
                    .map(|it| json(serde_json::to_value(&*it))),
                values(
                    dynamic
                        .list(&Query::default().namespace(namespace))
                        .await?
                        .iter()
                        .map(|it| &**it),
                ),
            ),
            Representation::Metadata => (
                dynamic
                    .get_metadata(&self.key)
                    .await?
                    .map(|it| json(serde_json::to_value(&*it))),
                values(
                    dynamic
                        .list_metadata(&Query::<Metadata>::default())
                        .await?
                        .iter()
                        .map(|it| &**it),
                ),
            ),
        };
        let is_it = |object: &Value| {
            let meta = &object["metadata"];
            meta["name"] == self.key.name() && meta["namespace"].as_str() == self.key.namespace()
        };
        Ok([got, listed.into_iter().find(is_it)])
    }

    /// Asserts that reads return the written object.
    async fn assert_reads_observe(&self, verb: &str, written: &Value) -> anyhow::Result<()> {
        let revision = |object: &Value| {
            object["metadata"]["resourceVersion"]
                .as_str()?
                .parse::<u64>()
                .ok()
        };
        let expected = revision(written);
        assert!(expected.is_some(), "{verb}: {written}");
        for read in self.read().await? {
            let read = read.and_then(|object| revision(&object));
            assert!(
                read >= expected,
                "{:?} {:?} {}: {verb} at {expected:?}, read {read:?}",
                self.form,
                self.kind,
                self.key
            );
        }
        Ok(())
    }

    async fn assert_deleted(&self, verb: &str) -> anyhow::Result<()> {
        assert_eq!(
            self.read().await?,
            [None, None],
            "{:?} {:?} {}: {verb}",
            self.form,
            self.kind,
            self.key
        );
        Ok(())
    }

    /// Runs all verbs on an object. `applies`: the server supports server-side apply.
    async fn run(&self, body: Value, status: [Value; 3], applies: bool) -> anyhow::Result<()> {
        let (client, status_client) = (&self.client, self.client.status());
        let label = |value: &str| json!({"metadata": {"labels": {"step": value}}});
        let created = self.create(body.clone()).await?;
        self.assert_reads_observe("create", &created).await?;

        let mut changed = created.clone();
        changed["metadata"]["labels"]["step"] = "update".into();
        let updated = self.update(client, changed).await?;
        self.assert_reads_observe("update", &updated).await?;
        self.assert_reads_observe(
            "update of nothing",
            &self.update(client, updated.clone()).await?,
        )
        .await?;
        self.assert_reads_observe(
            "patch",
            &self.patch(client, Patch::Merge(label("patch"))).await?,
        )
        .await?;

        let json = json!([{"op": "replace", "path": "/metadata/labels/step", "value": "json"}]);
        self.assert_reads_observe(
            "JSON patch",
            &self
                .patch(client, Patch::Json(serde_json::from_value(json)?))
                .await?,
        )
        .await?;

        let mut changed = updated;
        changed["metadata"]
            .as_object_mut()
            .expect("metadata")
            .remove("resourceVersion");
        changed["status"] = status[0].clone();
        self.assert_reads_observe(
            "status update",
            &self.update(&status_client, changed).await?,
        )
        .await?;
        let patch = Patch::Merge(json!({"status": status[1]}));
        self.assert_reads_observe("status patch", &self.patch(&status_client, patch).await?)
            .await?;
        if applies {
            let owner = |client: &Client| client.field_owner("own-writes").force();
            let applied = |more: Value| {
                let mut applied = json!({
                    "apiVersion": self.kind.api_version(), "kind": self.kind.kind, "metadata": {"name": self.key.name()},
                });
                applied
                    .as_object_mut()
                    .expect("an object")
                    .extend(more.as_object().expect("an object").clone());
                Patch::Apply(applied)
            };
            let labels =
                json!({"metadata": {"name": self.key.name(), "labels": {"step": "apply"}}});
            self.assert_reads_observe("apply", &self.patch(&owner(client), applied(labels)).await?)
                .await?;
            let status = applied(json!({"status": status[2]}));
            self.assert_reads_observe(
                "status apply",
                &self.patch(&owner(&status_client), status).await?,
            )
            .await?;
        }
        if self.kind.kind == "Deployment" {
            let scale = match self.form {
                Representation::Typed => client.subresource_of::<K>(&self.key, "scale"),
                _ => client
                    .dynamic(&self.kind)
                    .subresource_of(&self.key, "scale"),
            };
            let mut expected: Scale = scale.get().await?.expect("the kind has a scale");
            expected.spec.get_or_insert_default().replicas = Some(0);
            self.assert_reads_observe(
                "scale",
                &serde_json::to_value(scale.update(&expected).await?)?,
            )
            .await?;
        }

        assert!(self.delete().await?);
        self.assert_deleted("delete").await?;
        let mut body = body;
        body["metadata"]["finalizers"] = json!(["example.com/own-writes"]);
        let created = self.create(body).await?;
        assert!(self.delete().await?);
        for read in self.read().await? {
            let meta = &read.expect("the object has a finalizer")["metadata"];
            assert_eq!(
                meta["uid"], created["metadata"]["uid"],
                "the recreated object"
            );
            assert!(meta["deletionTimestamp"].is_string(), "{meta}");
        }
        self.patch(
            client,
            Patch::Merge(json!({"metadata": {"finalizers": null}})),
        )
        .await?;
        self.assert_deleted("last finalizer").await
    }
}

fn values<'a, T: Serialize + 'a>(objects: impl Iterator<Item = &'a T>) -> Vec<Value> {
    objects
        .map(|object| serde_json::to_value(object).expect("JSON"))
        .collect()
}

fn deployment(key: &ObjectKey) -> (Value, [Value; 3]) {
    let body = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": key.namespace(), "name": key.name(), "labels": {"step": "create"}},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "web"}]},
            },
        },
    });
    (
        body,
        [3, 4, 5].map(|count| json!({"observedGeneration": count})),
    )
}

fn node(key: &ObjectKey) -> (Value, [Value; 3]) {
    let body = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": key.name(), "labels": {"step": "create"}}, "spec": {"podCIDR": "10.1.2.0/24"},
    });
    (
        body,
        ["1", "2", "3"].map(|cores| json!({"capacity": {"cpu": cores}})),
    )
}

steersman::env_test! {
    async fn the_next_read_returns_every_own_write_in_all_representations_and_scopes(env: Env) -> anyhow::Result<()> {
        let (one, two) = (env.namespace("own").await?, env.namespace("own").await?);
        let applies = matches!(env, Env::Real(_));
        let mut cases = Vec::new();
        for form in [Representation::Typed, Representation::Dynamic, Representation::Metadata] {
            for several_namespaces in [false, true] {
                let (env, one, two) = (&env, &one, &two);
                cases.push(async move {
                    let options = if several_namespaces { cache_options(&[one, two]) } else { CacheOptions::default() };
                    let fixture = Fixture::new(env, options)?;
                    let name = format!("own-{form:?}-{several_namespaces}").to_lowercase();
                    let web = Case::<Deployment>::new(&fixture.client, form, ObjectKey::new(one, &name));
                    let nodes = Case::<Node>::new(&fixture.client, form, ObjectKey::cluster_scoped(format!("{one}-{name}")));
                    let _informers = (web.declare(&fixture.cache).await?, nodes.declare(&fixture.cache).await?);
                    let (body, status) = deployment(&web.key);
                    web.run(body, status, applies).await?;
                    let (body, status) = node(&nodes.key);
                    nodes.run(body, status, applies).await?;
                    let stats = fixture.cache.informers().into_iter().map(|report| report.stats.own_writes);
                    for stats in stats {
                        assert!(stats.writes > 8 && stats.waits > 0 && stats.longest_lag > Duration::ZERO, "{stats:?}");
                        assert_eq!((stats.pending, stats.timeouts), (0, 0), "{stats:?}");
                    }
                    fixture.stop().await
                });
            }
        }
        try_join_all(cases).await?;
        Ok(())
    }
}
