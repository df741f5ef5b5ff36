//! A client reads what it has written: every verb, form of read and scope, from a cache whose watches are late.

use super::{own_writes::Scene, support::of};
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
enum Form {
    Typed,
    Dynamic,
    Metadata,
}

/// One object, and how it is written and read.
struct Case<K> {
    client: Client,
    form: Form,
    kind: GroupVersionKind,
    key: ObjectKey,
    made: fn(Value) -> K,
}

impl<K: StaticKind + Serialize> Case<K> {
    fn new(client: &Client, form: Form, key: ObjectKey) -> Self {
        let made = |json| serde_json::from_value(json).expect("it fits the type");
        Self { client: client.clone(), form, kind: K::static_gvk(), key, made }
    }

    /// Keeps it in the cache.
    async fn declare(&self, cache: &Cache) -> anyhow::Result<Box<dyn Send>> {
        async fn synced<T: KubeObject>(informer: Informer<T>) -> anyhow::Result<Box<dyn Send>> {
            informer.await_synced().await?;
            Ok(Box::new(informer))
        }
        let kind = self.kind.clone();
        match self.form {
            Form::Typed => synced(cache.informer::<K>()?).await,
            Form::Dynamic => synced(cache.informer_of(Select::dynamic(kind))?).await,
            Form::Metadata => synced(cache.informer_of(Select::dynamic_metadata(kind))?).await,
        }
    }

    fn dynamic(json: Value) -> DynamicObject {
        serde_json::from_value(json).expect("an object")
    }

    async fn create(&self, json: Value) -> anyhow::Result<Value> {
        match self.form {
            Form::Typed => Ok(serde_json::to_value(self.client.create(&(self.made)(json)).await?)?),
            _ => Ok(serde_json::to_value(self.client.create(&Self::dynamic(json)).await?)?),
        }
    }

    async fn update(&self, client: &Client, json: Value) -> anyhow::Result<Value> {
        match self.form {
            Form::Typed => Ok(serde_json::to_value(client.update(&(self.made)(json)).await?)?),
            _ => Ok(serde_json::to_value(client.update(&Self::dynamic(json)).await?)?),
        }
    }

    async fn patch(&self, client: &Client, patch: Patch<Value>) -> anyhow::Result<Value> {
        match self.form {
            Form::Typed => Ok(serde_json::to_value(client.patch::<K>(&self.key, &patch).await?)?),
            Form::Dynamic => Ok(serde_json::to_value(client.dynamic(&self.kind).patch(&self.key, &patch).await?)?),
            Form::Metadata => {
                Ok(serde_json::to_value(client.dynamic(&self.kind).patch_metadata(&self.key, &patch).await?)?)
            }
        }
    }

    async fn delete(&self) -> anyhow::Result<bool> {
        Ok(match self.form {
            Form::Typed => self.client.delete::<K>(&self.key).await?,
            _ => self.client.dynamic(&self.kind).delete(&self.key).await?,
        })
    }

    /// By a get, and by a list.
    async fn read(&self) -> anyhow::Result<[Option<Value>; 2]> {
        let json = |object: Result<Value, serde_json::Error>| object.expect("it is written as JSON");
        let dynamic = self.client.dynamic(&self.kind);
        let namespace = self.key.namespace();
        let (got, listed): (_, Vec<Value>) = match self.form {
            Form::Typed => (
                self.client.get::<K>(&self.key).await?.map(|it| json(serde_json::to_value(&*it))),
                values(self.client.list::<K>(&Query::default().namespace(namespace)).await?.iter().map(|it| &**it)),
            ),
            Form::Dynamic => (
                dynamic.get(&self.key).await?.map(|it| json(serde_json::to_value(&*it))),
                values(dynamic.list(&Query::default().namespace(namespace)).await?.iter().map(|it| &**it)),
            ),
            Form::Metadata => (
                dynamic.get_metadata(&self.key).await?.map(|it| json(serde_json::to_value(&*it))),
                values(dynamic.list_metadata(&Query::<Metadata>::default()).await?.iter().map(|it| &**it)),
            ),
        };
        let is_it = |object: &Value| {
            let meta = &object["metadata"];
            meta["name"] == self.key.name() && meta["namespace"].as_str() == self.key.namespace()
        };
        Ok([got, listed.into_iter().find(is_it)])
    }

    /// What was written is what is read.
    async fn shows(&self, verb: &str, written: &Value) -> anyhow::Result<()> {
        let revision = |object: &Value| object["metadata"]["resourceVersion"].as_str()?.parse::<u64>().ok();
        let wanted = revision(written);
        assert!(wanted.is_some(), "{verb}: {written}");
        for read in self.read().await? {
            let read = read.and_then(|object| revision(&object));
            assert!(
                read >= wanted,
                "{:?} {:?} {}: {verb} at {wanted:?}, read {read:?}",
                self.form,
                self.kind,
                self.key
            );
        }
        Ok(())
    }

    async fn is_gone(&self, verb: &str) -> anyhow::Result<()> {
        assert_eq!(self.read().await?, [None, None], "{:?} {:?} {}: {verb}", self.form, self.kind, self.key);
        Ok(())
    }

    /// All that can be done to an object. `applies`: this server knows apply.
    async fn run(&self, body: Value, status: [Value; 3], applies: bool) -> anyhow::Result<()> {
        let (client, status_client) = (&self.client, self.client.status());
        let label = |value: &str| json!({"metadata": {"labels": {"step": value}}});
        let made = self.create(body.clone()).await?;
        self.shows("create", &made).await?;

        let mut changed = made.clone();
        changed["metadata"]["labels"]["step"] = "update".into();
        let updated = self.update(client, changed).await?;
        self.shows("update", &updated).await?;
        self.shows("update of nothing", &self.update(client, updated.clone()).await?).await?;
        self.shows("patch", &self.patch(client, Patch::Merge(label("patch"))).await?).await?;

        let json = json!([{"op": "replace", "path": "/metadata/labels/step", "value": "json"}]);
        self.shows("JSON patch", &self.patch(client, Patch::Json(json)).await?).await?;

        let mut changed = updated;
        changed["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
        changed["status"] = status[0].clone();
        self.shows("status update", &self.update(&status_client, changed).await?).await?;
        let patch = Patch::Merge(json!({"status": status[1]}));
        self.shows("status patch", &self.patch(&status_client, patch).await?).await?;
        if applies {
            let owner = |client: &Client| client.field_owner("own-writes").force();
            let applied = |more: Value| {
                let mut applied = json!({
                    "apiVersion": self.kind.api_version(), "kind": self.kind.kind, "metadata": {"name": self.key.name()},
                });
                applied.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
                Patch::Apply(applied)
            };
            let labels = json!({"metadata": {"name": self.key.name(), "labels": {"step": "apply"}}});
            self.shows("apply", &self.patch(&owner(client), applied(labels)).await?).await?;
            let status = applied(json!({"status": status[2]}));
            self.shows("status apply", &self.patch(&owner(&status_client), status).await?).await?;
        }
        if self.kind.kind == "Deployment" {
            let scale = match self.form {
                Form::Typed => client.subresource_of::<K>(&self.key, "scale"),
                _ => client.dynamic(&self.kind).subresource_of(&self.key, "scale"),
            };
            let mut wanted: Scale = scale.get().await?.expect("it can be scaled");
            wanted.spec.get_or_insert_default().replicas = Some(0);
            self.shows("scale", &serde_json::to_value(scale.update(&wanted).await?)?).await?;
        }

        assert!(self.delete().await?);
        self.is_gone("delete").await?;
        let mut body = body;
        body["metadata"]["finalizers"] = json!(["example.com/own-writes"]);
        let made = self.create(body).await?;
        assert!(self.delete().await?);
        for read in self.read().await? {
            let meta = &read.expect("it has a finalizer")["metadata"];
            assert_eq!(meta["uid"], made["metadata"]["uid"], "not the one of before");
            assert!(meta["deletionTimestamp"].is_string(), "{meta}");
        }
        self.patch(client, Patch::Merge(json!({"metadata": {"finalizers": null}}))).await?;
        self.is_gone("last finalizer").await
    }
}

fn values<'a, T: Serialize + 'a>(objects: impl Iterator<Item = &'a T>) -> Vec<Value> {
    objects.map(|object| serde_json::to_value(object).expect("it is written as JSON")).collect()
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
    (body, [3, 4, 5].map(|count| json!({"observedGeneration": count})))
}

fn node(key: &ObjectKey) -> (Value, [Value; 3]) {
    let body = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": key.name(), "labels": {"step": "create"}}, "spec": {"podCIDR": "10.1.2.0/24"},
    });
    (body, ["1", "2", "3"].map(|cores| json!({"capacity": {"cpu": cores}})))
}

steersman::env_test! {
    async fn every_write_is_in_the_next_read_of_every_form_and_scope(env: Env) -> anyhow::Result<()> {
        let (one, two) = (env.namespace("own").await?, env.namespace("own").await?);
        let applies = matches!(env, Env::Real(_));
        let mut cases = Vec::new();
        for form in [Form::Typed, Form::Dynamic, Form::Metadata] {
            for several in [false, true] {
                let (env, one, two) = (&env, &one, &two);
                cases.push(async move {
                    let options = if several { of(&[one, two]) } else { CacheOptions::default() };
                    let scene = Scene::new(env, options)?;
                    let name = format!("own-{form:?}-{several}").to_lowercase();
                    let web = Case::<Deployment>::new(&scene.client, form, ObjectKey::new(one, &name));
                    let nodes = Case::<Node>::new(&scene.client, form, ObjectKey::cluster_scoped(&format!("{one}-{name}")));
                    let _kept = (web.declare(&scene.cache).await?, nodes.declare(&scene.cache).await?);
                    let (body, status) = deployment(&web.key);
                    web.run(body, status, applies).await?;
                    let (body, status) = node(&nodes.key);
                    nodes.run(body, status, applies).await?;
                    let stats = scene.cache.informers().into_iter().map(|report| report.stats.own_writes);
                    for stats in stats {
                        assert!(stats.writes > 8 && stats.waits > 0 && stats.longest_lag > Duration::ZERO, "{stats:?}");
                        assert_eq!((stats.pending, stats.timeouts), (0, 0), "{stats:?}");
                    }
                    scene.stop().await
                });
            }
        }
        try_join_all(cases).await?;
        Ok(())
    }
}
