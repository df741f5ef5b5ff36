//! The patch helper.

use crate::support::{at, client, cluster, dynamic, from, provider_crd};
use anyhow::{Result, anyhow};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::core::DynamicObject;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use steersman::{
    client::{Answer, Call, Interceptor, Next, Patch, Verb},
    conditions::{Status, new},
    object::StaticKind,
    prelude::*,
    testing::{Env, TestServer},
};
use steersman_controllers::cluster_api::{
    Cluster, Conditions, PatchHelper, PatchOptions, Severity, conditions, deprecated, owners,
};

/// Subresource, which is empty for the object itself, and body.
pub(super) type Write = (String, Value);

/// Records the writes of a client.
#[derive(Clone, Default)]
pub(super) struct Writes(Arc<Mutex<Vec<Write>>>);

impl Interceptor for Writes {
    async fn intercept(
        &self,
        call: &Call<'_>,
        next: Next<'_>,
    ) -> steersman::client::Result<Answer> {
        if !matches!(call.verb, Verb::Get | Verb::List) {
            let write = (
                call.subresource.unwrap_or_default().into(),
                call.body.clone(),
            );
            self.0.lock().push(write);
        }
        next.run().await
    }
}

impl Writes {
    pub(super) fn take(&self) -> Vec<Write> {
        std::mem::take(&mut *self.0.lock())
    }

    /// Returns the subresources that were written, in order.
    fn parts(&self) -> Vec<String> {
        self.take().into_iter().map(|(part, _)| part).collect()
    }
}

/// Cluster on a server, a client that records writes, and another one.
pub(super) struct Fixture {
    pub(super) cluster: Cluster,
    pub(super) client: Client,
    pub(super) other: Client,
    pub(super) writes: Writes,
}

impl Fixture {
    pub(super) async fn new(env: &Env) -> Result<Self> {
        let other = client(env).await?;
        let writes = Writes::default();
        let spec = json!({"infrastructureRef": {"apiGroup": "foo.cluster.x-k8s.io", "kind": "TestCluster", "name": "infra-1"}});
        Ok(Self {
            cluster: other.create(&cluster("shop", spec)).await?,
            client: other.intercepted(writes.clone()),
            other,
            writes,
        })
    }

    pub(super) fn helper(&self) -> PatchHelper<Cluster> {
        PatchHelper::new(&self.client, &self.cluster)
    }

    pub(super) async fn read(&self) -> Result<Cluster> {
        read(&self.other, &self.cluster).await
    }

    /// Sets a condition of both formats as another process would.
    pub(super) async fn other_sets(&self, type_: &str, status: bool) -> Result<()> {
        let mut changed = self.read().await?;
        let base = changed.clone();
        set(&mut changed, type_, status, "FromOther");
        self.other.status().patch_from(&base, &changed).await?;
        Ok(())
    }
}

async fn read<K: StaticKind>(client: &Client, object: &K) -> Result<K> {
    let read = client.live().get::<K>(&ObjectKey::of(object)).await?;
    read.map(Arc::unwrap_or_clone)
        .ok_or_else(|| anyhow!("the object is gone"))
}

/// Sets a condition of both formats.
pub(super) fn set(cluster: &mut Cluster, type_: &str, status: bool, reason: &str) {
    conditions::set(cluster, new(type_, status, reason, "", at(0)));
    if status {
        deprecated::mark_true(cluster, type_, at(0));
    } else {
        deprecated::mark_false(cluster, type_, reason, Severity::Info, "", at(0));
    }
}

/// Write of the object itself.
const OBJECT: &str = "";
/// Write of the status.
const STATUS: &str = "status";

steersman::env_test! {
    async fn an_unchanged_object_is_not_written(env: Env) -> Result<()> {
        let mut fixture = Fixture::new(&env).await?;
        let helper = fixture.helper();
        helper.patch(&fixture.cluster, &PatchOptions::default()).await?;
        // Empty objects, which the status does not have on the server.
        assert!(fixture.cluster.deprecated_conditions_mut().is_some());
        helper.patch(&fixture.cluster, &PatchOptions::default()).await?;
        assert_eq!(fixture.writes.take(), []);
        Ok(())
    }

    async fn a_new_condition_is_one_patch_with_the_resource_version(env: Env) -> Result<()> {
        let mut fixture = Fixture::new(&env).await?;
        let helper = fixture.helper();
        set(&mut fixture.cluster, "Ready", true, "AllGood");
        helper.patch(&fixture.cluster, &PatchOptions::default()).await?;
        let time = at(0).to_string();
        let body = json!({
            "metadata": {"resourceVersion": fixture.cluster.metadata.resource_version},
            "status": {
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "AllGood", "message": "",
                    "lastTransitionTime": time, "observedGeneration": 1,
                }],
                "deprecated": {"v1beta1": {"conditions": [{
                    "type": "Ready", "status": "True", "lastTransitionTime": time,
                }]}},
            },
        });
        assert_eq!(fixture.writes.take(), [(STATUS.into(), body)]);
        assert_eq!(fixture.read().await?.status, fixture.cluster.status);

        // The caller's object is not refreshed, and the next change is patched all the same.
        let helper = fixture.helper();
        set(&mut fixture.cluster, "Paused", false, "NotPaused");
        helper.patch(&fixture.cluster, &PatchOptions::default()).await?;
        assert_eq!(fixture.writes.parts(), [STATUS]);
        assert_eq!(fixture.read().await?.status, fixture.cluster.status);
        Ok(())
    }

    async fn conditions_of_another_process_are_kept(env: Env) -> Result<()> {
        let mut fixture = Fixture::new(&env).await?;
        fixture.other_sets("TestCondition", false).await?;
        let helper = fixture.helper();
        set(&mut fixture.cluster, "Ready", true, "AllGood");
        helper.patch(&fixture.cluster, &PatchOptions::default()).await?;
        let read = fixture.read().await?;
        assert!(conditions::is_true(&read, "Ready") && conditions::is_false(&read, "TestCondition"));
        assert!(deprecated::is_true(&read, "Ready") && deprecated::is_false(&read, "TestCondition"));
        assert_eq!(read.conditions()[0].type_, "Ready", "the merged list is sorted");
        Ok(())
    }

    async fn conditions_metadata_spec_and_status_are_patched_in_this_order(env: Env) -> Result<()> {
        let mut fixture = Fixture::new(&env).await?;
        fixture.other_sets("TestCondition", false).await?;
        let helper = fixture.helper();
        let cluster = &mut fixture.cluster;
        cluster.metadata.finalizers = Some(vec!["example.com/shop".into()]);
        cluster.spec.paused = Some(true);
        set(cluster, "Ready", true, "AllGood");
        cluster.status.get_or_insert_default().phase = Some("Provisioning".into());
        helper.patch(cluster, &PatchOptions::default()).await?;

        let writes = fixture.writes.take();
        let [conditions_patch, spec, rest] = &*writes else { panic!("three patches: {writes:?}") };
        assert_eq!(conditions_patch.0, STATUS);
        assert_eq!(conditions_patch.1["status"]["phase"], json!(null));
        let expected = json!({"metadata": {"finalizers": ["example.com/shop"]}, "spec": {"paused": true}});
        assert_eq!(*spec, (OBJECT.into(), expected));
        assert_eq!(rest.0, STATUS);
        assert_eq!(rest.1["metadata"], json!(null), "no precondition");
        assert_eq!(rest.1["status"]["phase"], json!("Provisioning"));
        assert_eq!(rest.1["status"]["conditions"], json!(null));
        let read = fixture.read().await?;
        assert_eq!((&read.spec, &read.metadata.finalizers), (&fixture.cluster.spec, &fixture.cluster.metadata.finalizers));
        assert_eq!(read.conditions().len(), 2);
        assert_eq!(read.deprecated_conditions().len(), 2);
        assert_eq!(read.status.and_then(|status| status.phase).as_deref(), Some("Provisioning"));
        Ok(())
    }

    async fn a_condition_that_another_process_changed_is_an_error(env: Env) -> Result<()> {
        let mut fixture = Fixture::new(&env).await?;
        fixture.other_sets("Ready", false).await?;
        let helper = fixture.helper();
        conditions::set(&mut fixture.cluster, new("Ready", Status::True, "AllGood", "", at(0)));
        fixture.cluster.spec.paused = Some(true);
        let error = helper.patch(&fixture.cluster, &PatchOptions::default()).await.unwrap_err();
        let key = ObjectKey::of(&fixture.cluster);
        let expected = format!(
            "failed to patch Cluster {key}: failed to patch status conditions: error patching \
             conditions: The condition \"Ready\" was modified by a different process and this \
             caused a merge/AddCondition conflict: status is \"False\", wanted \"True\"; reason is \
             \"FromOther\", wanted \"AllGood\""
        );
        assert_eq!(format!("{:#}", anyhow!(error)), expected);
        assert_eq!(fixture.writes.parts(), [OBJECT], "the spec is patched all the same");
        assert!(conditions::is_false(&fixture.read().await?, "Ready"));

        // The same for the deprecated format.
        let mut fixture = Fixture::new(&env).await?;
        fixture.other_sets("Ready", false).await?;
        let helper = fixture.helper();
        deprecated::mark_true(&mut fixture.cluster, "Ready", at(0));
        let error = helper.patch(&fixture.cluster, &PatchOptions::default()).await.unwrap_err();
        let error = format!("{:#}", anyhow!(error));
        assert!(error.contains("The condition \"Ready\" was modified by a different process"), "{error}");
        assert_eq!(fixture.writes.take(), []);
        Ok(())
    }

    async fn an_owned_condition_wins_a_conflict(env: Env) -> Result<()> {
        let owned = PatchOptions {
            owned: &["Ready"],
            owned_deprecated: &["Ready"],
            ..PatchOptions::default()
        };
        let forced = PatchOptions {
            force_overwrite: true,
            ..PatchOptions::default()
        };
        for options in [owned, forced] {
            let mut fixture = Fixture::new(&env).await?;
            fixture.other_sets("Ready", false).await?;
            let helper = fixture.helper();
            set(&mut fixture.cluster, "Ready", true, "AllGood");
            helper.patch(&fixture.cluster, &options).await?;
            let read = fixture.read().await?;
            assert!(conditions::is_true(&read, "Ready") && deprecated::is_true(&read, "Ready"));
        }
        Ok(())
    }

    async fn a_removed_condition_is_removed_from_both_lists(env: Env) -> Result<()> {
        let mut fixture = Fixture::new(&env).await?;
        fixture.other_sets("Ready", true).await?;
        fixture.other_sets("TestCondition", true).await?;
        fixture.cluster = fixture.read().await?;
        let helper = fixture.helper();
        conditions::remove(&mut fixture.cluster, "Ready");
        deprecated::remove(&mut fixture.cluster, "Ready");
        helper.patch(&fixture.cluster, &PatchOptions::default()).await?;
        let read = fixture.read().await?;
        assert!(conditions::find(&read, "Ready").is_none() && deprecated::find(&read, "Ready").is_none());
        assert!(conditions::is_true(&read, "TestCondition") && deprecated::is_true(&read, "TestCondition"));
        Ok(())
    }

    async fn finalizers_are_added_and_removed(env: Env) -> Result<()> {
        let mut fixture = Fixture::new(&env).await?;
        for finalizers in [vec!["example.com/shop".to_owned()], Vec::new()] {
            fixture.cluster = fixture.read().await?;
            let helper = fixture.helper();
            fixture.cluster.metadata.finalizers = Some(finalizers.clone());
            helper.patch(&fixture.cluster, &PatchOptions::default()).await?;
            assert_eq!(fixture.writes.parts(), [OBJECT]);
            assert_eq!(fixture.read().await?.metadata.finalizers.unwrap_or_default(), finalizers);
        }
        Ok(())
    }

    async fn the_rest_of_the_status_is_patched_alone(env: Env) -> Result<()> {
        let mut fixture = Fixture::new(&env).await?;
        let helper = fixture.helper();
        let domain = from(json!({"name": "a", "controlPlane": true}));
        fixture.cluster.status.get_or_insert_default().failure_domains = vec![domain];
        helper.patch(&fixture.cluster, &PatchOptions::default()).await?;
        let body = json!({"status": {"failureDomains": [{"name": "a", "controlPlane": true}]}});
        assert_eq!(fixture.writes.take(), [(STATUS.into(), body)]);
        assert_eq!(fixture.read().await?.status, fixture.cluster.status);
        Ok(())
    }

    async fn the_observed_generation_is_written_with_a_change(env: Env) -> Result<()> {
        let options = PatchOptions {
            observed_generation: true,
            ..PatchOptions::default()
        };
        let mut fixture = Fixture::new(&env).await?;
        let helper = fixture.helper();
        helper.patch(&fixture.cluster, &options).await?;
        assert_eq!(fixture.writes.take(), [], "nothing changed");
        fixture.cluster.spec.paused = Some(true);
        fixture.cluster.status.get_or_insert_default().phase = Some("Pending".into());
        helper.patch(&fixture.cluster, &options).await?;
        let status = fixture.read().await?.status.expect("a status");
        assert_eq!(status.observed_generation, Some(1), "the generation that was read");
        assert_eq!(status.phase.as_deref(), Some("Pending"));
        Ok(())
    }

    async fn patching_a_deleted_object_succeeds(env: Env) -> Result<()> {
        let mut fixture = Fixture::new(&env).await?;
        let finalizers = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/block"]}}));
        let key = ObjectKey::of(&fixture.cluster);
        fixture.other.patch::<Cluster>(&key, &finalizers).await?;
        fixture.other.delete::<Cluster>(&key).await?;
        fixture.cluster = fixture.read().await?;
        let helper = fixture.helper();
        fixture.cluster.metadata.finalizers = None;
        fixture.cluster.status.get_or_insert_default().phase = Some("Deleting".into());
        helper.patch(&fixture.cluster, &PatchOptions::default()).await?;
        assert_eq!(fixture.writes.parts(), [OBJECT, STATUS], "the second one is not found");
        assert_eq!(fixture.other.get::<Cluster>(&key).await?, None);
        Ok(())
    }

    async fn several_failures_are_one_error(env: Env) -> Result<()> {
        let mut fixture = Fixture::new(&env).await?;
        let helper = fixture.helper();
        let key = ObjectKey::of(&fixture.cluster);
        fixture.other.delete::<Cluster>(&key).await?;
        set(&mut fixture.cluster, "Ready", true, "AllGood");
        fixture.cluster.spec.paused = Some(true);
        fixture.cluster.status.get_or_insert_default().phase = Some("Pending".into());
        let error = helper.patch(&fixture.cluster, &PatchOptions::default()).await.unwrap_err();
        let error = format!("{:#}", anyhow!(error));
        let missing = "clusters.cluster.x-k8s.io \"shop\" not found: NotFound";
        let expected = format!(
            "failed to patch Cluster {key}: [failed to patch status conditions: {missing}, failed \
             to patch spec and metadata: {missing}, failed to patch status: {missing}]"
        );
        assert_eq!(error, expected);
        Ok(())
    }

    async fn a_dynamic_object_is_patched_without_merging_conditions(env: Env) -> Result<()> {
        let client = client(&env).await?;
        let group = "patch.cluster.x-k8s.io";
        env.install([provider_crd(group, "PatchThing", "patchthings", &["v1"], &[])]).await?;
        let thing = dynamic(&format!("{group}/v1"), "PatchThing", "shop", json!({"spec": {"a": 1}}));
        let created = client.create::<DynamicObject>(&thing).await?;
        let kind = GroupVersionKind::gvk(group, "v1", "PatchThing");
        let key = ObjectKey::of(&created);
        let ready = Patch::Merge(json!({"status": {"ready": true}}));
        let mut thing = client.status().dynamic(&kind).patch(&key, &ready).await?;

        let helper = PatchHelper::new(&client, &thing);
        let owner = client.create::<ConfigMap>(&from(json!({"metadata": {"name": "owner"}}))).await?;
        thing.metadata.owner_references = Some(vec![owners::reference(&owner)]);
        helper.patch_plain(&thing).await?;
        let read = client.dynamic(&kind).get(&key).await?.expect("created above");
        assert_eq!(read.metadata.owner_references, thing.metadata.owner_references);
        assert_eq!(read.data, json!({"spec": {"a": 1}, "status": {"ready": true}}));

        let mut other = thing.clone();
        other.types.as_mut().expect("a kind").kind = "Other".into();
        let error = helper.patch_plain(&other).await.unwrap_err();
        let expected = format!(
            "failed to patch Other {key}: unmatched GroupVersionKind, expected \
             \"{group}/v1, Kind=Other\" got \"{group}/v1, Kind=PatchThing\""
        );
        assert_eq!(error.to_string(), expected);
        Ok(())
    }

    async fn kinds_of_kubernetes_are_patched(env: Env) -> Result<()> {
        let client = client(&env).await?;
        let content = json!({"metadata": {"name": "settings"}, "data": {"1": "value"}});
        let mut map = client.create::<ConfigMap>(&from(content)).await?;
        let helper = PatchHelper::new(&client, &map);
        map.data.get_or_insert_default().insert("1".into(), "another".into());
        helper.patch_plain(&map).await?;
        assert_eq!(read(&client, &map).await?.data, map.data);

        let name = env.namespace("node").await?;
        let mut node = client.create::<Node>(&from(json!({"metadata": {"name": name}}))).await?;
        let helper = PatchHelper::new(&client, &node);
        let time = at(0).to_string();
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "AllGood",
            "lastHeartbeatTime": time, "lastTransitionTime": time,
        });
        node.status.get_or_insert_default().conditions = Some(vec![from(ready)]);
        helper.patch_plain(&node).await?;
        let read = read(&client, &node).await?;
        let conditions = |node: Node| node.status.and_then(|status| status.conditions);
        assert_eq!(conditions(read), conditions(node.clone()));
        client.delete::<Node>(&ObjectKey::of(&node)).await?;
        Ok(())
    }
}
