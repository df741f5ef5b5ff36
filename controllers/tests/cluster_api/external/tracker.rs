//! Watches of external kinds.

use super::{CURRENT, Provider, fixture::Fixture};
use kube::core::DynamicObject;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{future::pending, sync::Arc};
use steersman::{
    client::Patch,
    controller::{WatchError, WatchState},
    predicate,
    prelude::*,
    reconcile::from_fn,
    testing::{Env, TestServer, eventually},
};
use steersman_controllers::{
    cluster_api::Cluster,
    external::{ObjectTracker, ObjectTrackerBuilder, TrackerError},
};
use tracing::Span;

steersman::env_test! {
    async fn a_tracker_without_one_of_its_parts_is_an_error(env: Env) -> anyhow::Result<()> {
        let manager = Manager::builder(env.client()?).build()?;
        let controller = manager.controller::<Request>("parts").handle();
        let (cache, client) = (manager.cache(), manager.client());
        let parts: [&dyn Fn(ObjectTrackerBuilder) -> ObjectTrackerBuilder; 4] = [
            &|builder| builder.controller(&controller),
            &|builder| builder.cache(&cache),
            &|builder| builder.resolver(&client),
            &|builder| builder.span(Span::none()),
        ];
        for missing in 0..parts.len() {
            let present = parts.iter().enumerate().filter(|(index, _)| *index != missing);
            let builder = present.fold(ObjectTracker::builder(), |builder, (_, part)| part(builder));
            let error = builder.build().expect_err("a part is missing");
            assert!(matches!(error, TrackerError::Incomplete));
            assert_eq!(
                error.to_string(),
                "all of Controller, Cache, Scheme and PredicateLogger must be set for object tracker"
            );
        }
        let builder = parts.iter().fold(ObjectTracker::builder(), |builder, part| part(builder));
        assert!(builder.build().is_ok());
        Ok(())
    }

    async fn the_first_watch_of_a_kind_delivers_its_objects(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "first").await?;
        provider.create("a", json!({})).await?;
        let fixture = Fixture::start(&env)?;
        assert!(fixture.tracker.tracked().is_empty());
        let handle = fixture.watch(&provider, "v1")?;
        handle.await_synced().await?;
        fixture.until_reconciled(&provider, &["a"]).await;
        provider.create("b", json!({})).await?;
        fixture.until_reconciled(&provider, &["b"]).await;
        assert_eq!(fixture.tracker.tracked(), [provider.kind("v1")]);
        assert!(fixture.tracker.handle(&provider.group_kind()).is_some());
        fixture.stop().await
    }

    async fn a_second_watch_of_a_kind_is_the_first_whatever_its_version(env: Env) -> anyhow::Result<()> {
        let provider = Provider::without_crd(&env, "second").await?;
        provider.install(&env, &["v1", "v2"], &[CURRENT]).await?;
        let fixture = Fixture::start(&env)?;
        fixture.watch(&provider, "v1")?.await_synced().await?;
        let watches = fixture.controller.watches().len();
        for version in ["v1", "v2", "v3"] {
            let ignored = handler::map(|_: &Object<DynamicObject>| vec![Request::new("other", "handler")]);
            let again = fixture.tracker.watch(&provider.kind(version), ignored, ())?;
            assert_eq!(again.name(), fixture.watch(&provider, "v1")?.name());
        }
        assert_eq!(fixture.controller.watches().len(), watches);
        assert_eq!(fixture.informers(&provider).len(), 1);
        provider.create("a", json!({})).await?;
        fixture.until_reconciled(&provider, &["a"]).await;
        fixture.stop().await
    }

    /// The controller is not built, so that it does not accept watches.
    async fn a_watch_that_cannot_be_added_is_not_tracked_and_added_by_the_next_call(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "failing").await?;
        let manager = Manager::builder(env.client()?).build()?;
        let builder = manager.controller::<Request>("failing");
        let tracker = ObjectTracker::builder()
            .controller(&builder.handle())
            .cache(&manager.cache())
            .resolver(&manager.client())
            .span(Span::none())
            .build()?;
        let watch = || tracker.watch(&provider.kind("v1"), handler::object(), ());
        for _ in 0..2 {
            let error = watch().expect_err("the controller is not built");
            let start = format!(
                "failed to add watch on external object \"{}/v1, Kind=Shed\": cannot add a source to controller failing",
                provider.group,
            );
            assert!(error.to_string().starts_with(&start), "{error}");
            let TrackerError::Watch(failed) = error else { panic!("{error}") };
            assert!(matches!(failed.cause(), WatchError::NeverBuilt(_)));
            assert!(tracker.tracked().is_empty());
        }
        builder.reconcile(from_fn(async |_, _| Ok(Outcome::done())))?;
        tokio::spawn(manager.run_until(pending()));
        watch()?.await_synced().await?;
        assert_eq!(tracker.tracked(), [provider.kind("v1")]);
        Ok(())
    }

    async fn a_hundred_concurrent_calls_create_one_informer(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "concurrent").await?;
        let fixture = Fixture::start(&env)?;
        let watches = fixture.controller.watches().len();
        let calls = (0..100).map(|_| {
            let (tracker, kind) = (fixture.tracker.clone(), provider.kind("v1"));
            tokio::spawn(async move { tracker.watch(&kind, handler::object(), ()).map(drop) })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await??;
        }
        assert_eq!(fixture.controller.watches().len(), watches + 1);
        fixture.watch(&provider, "v1")?.await_synced().await?;
        assert_eq!(fixture.informers(&provider).len(), 1);
        if let Env::Embedded(embedded) = &env {
            let watches = embedded.server().journal().count("watch sheds");
            assert_eq!(watches, 1);
        }
        fixture.stop().await
    }

    async fn events_of_paused_objects_are_dropped_after_the_predicates_of_the_caller(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "paused").await?;
        let fixture = Fixture::start(&env)?;
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let (first, second) = (seen.clone(), seen.clone());
        let predicates = (
            predicate::object(move |shed: &Object<DynamicObject>| {
                first.lock().push(format!("first {}", shed.key().name()));
                shed.key().name() != "rejected"
            }),
            predicate::object(move |shed: &Object<DynamicObject>| {
                second.lock().push(format!("second {}", shed.key().name()));
                true
            }),
        );
        let handle = fixture.tracker.watch(&provider.kind("v1"), handler::object(), predicates)?;
        handle.await_synced().await?;
        let paused = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": "false"}}});
        provider.create("rejected", json!({})).await?;
        provider.create("paused", paused.clone()).await?;
        provider.create("active", json!({})).await?;
        fixture.until_reconciled(&provider, &["active"]).await;
        let expected = [
            "first rejected", "first paused", "second paused", "first active", "second active",
        ];
        assert_eq!(*seen.lock(), expected);

        // Neither an update nor the deletion of a paused object passes, but the end of the pause.
        let sheds = provider.client.dynamic(&provider.kind("v1"));
        let patch = |content: Value| Patch::Merge(content);
        sheds.patch(&provider.key("paused"), &patch(json!({"spec": {"size": 1}}))).await?;
        sheds.patch(&provider.key("active"), &patch(paused)).await?;
        sheds.delete(&provider.key("active")).await?;
        let unpaused = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": null}}});
        sheds.patch(&provider.key("paused"), &patch(unpaused)).await?;
        fixture.until_reconciled(&provider, &["paused"]).await;
        fixture.stop().await
    }

    async fn deletions_of_paused_objects_pass_if_the_tracker_lets_them(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "paused-deletes").await?;
        let fixture = Fixture::start_with(&env, |builder| builder.deletes_of_paused_objects(true))?;
        fixture.watch(&provider, "v1")?.await_synced().await?;
        let paused = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}});
        provider.create("a", paused).await?;
        let sheds = provider.client.dynamic(&provider.kind("v1"));
        sheds.patch(&provider.key("a"), &Patch::Merge(json!({"spec": {"size": 1}}))).await?;
        provider.create("b", json!({})).await?;
        fixture.until_reconciled(&provider, &["b"]).await;
        sheds.delete(&provider.key("a")).await?;
        fixture.until_reconciled(&provider, &["a"]).await;
        fixture.stop().await
    }

    async fn a_stopped_watch_is_untracked_and_added_by_the_next_call(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "stopped").await?;
        provider.create("a", json!({})).await?;
        let fixture = Fixture::start(&env)?;
        let handle = fixture.watch(&provider, "v1")?;
        fixture.until_reconciled(&provider, &["a"]).await;
        handle.stop().await;
        assert!(fixture.tracker.tracked().is_empty());
        assert!(fixture.tracker.handle(&provider.group_kind()).is_none());
        fixture.watch(&provider, "v1")?;
        fixture.until_reconciled(&provider, &["a"]).await;
        assert_eq!(fixture.tracker.tracked(), [provider.kind("v1")]);
        fixture.stop().await
    }

    /// The watch fails because its informer is removed.
    async fn a_failed_watch_is_untracked_and_added_by_the_next_call(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "failed").await?;
        provider.create("a", json!({})).await?;
        let fixture = Fixture::start(&env)?;
        let handle = fixture.watch(&provider, "v1")?;
        fixture.until_reconciled(&provider, &["a"]).await;
        fixture.manager.cache().remove(&provider.kind("v1")).await;
        eventually(async || {
            let failed = matches!(handle.state(), WatchState::Failed(_));
            Ok::<_, anyhow::Error>(failed.then_some(()))
        })
        .await?;
        assert!(fixture.tracker.tracked().is_empty());
        fixture.watch(&provider, "v1")?;
        fixture.until_reconciled(&provider, &["a"]).await;
        fixture.stop().await
    }

    /// Owner references in any version count, also those that are not of a controller.
    async fn a_watch_maps_objects_to_the_clusters_that_own_them(env: Env) -> anyhow::Result<()> {
        let provider = Provider::new(&env, "owned").await?;
        let fixture = Fixture::start(&env)?;
        let owners = handler::owner::<Cluster>().any();
        fixture.tracker.watch(&provider.kind("v1"), owners, ())?.await_synced().await?;
        let owner = |kind: &str, version: &str, name: &str| {
            json!({"apiVersion": format!("cluster.x-k8s.io/{version}"), "kind": kind, "name": name, "uid": name})
        };
        let owners = [
            owner("Cluster", "v1beta1", "old"),
            owner("Cluster", "v1beta2", "new"),
            owner("Machine", "v1beta2", "machine"),
        ];
        provider.create("a", json!({"metadata": {"ownerReferences": owners}})).await?;
        fixture.until_reconciled(&provider, &["old", "new"]).await;
        fixture.stop().await
    }
}
