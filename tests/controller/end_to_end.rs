//! Tests of complete controllers on both servers.

use super::fixture::{
    Fixture, Mall, MallSpec, RecordedReconciles, SharedVec, Shop, StartedController, owned,
    recorder, recording,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::CustomResourceExt;
use serde_json::json;
use std::time::Duration;
use steersman::{
    cache::Representation,
    client::owner,
    object::StaticKind,
    prelude::*,
    source::{Kind, Watch},
    testing::{Embedded, Env, TestServer},
};
use steersman_apiserver::Fault;

/// Returns the shop that the object's label names.
fn shop_of<K>(object: &Object<K>) -> Option<Request> {
    Some(Request::new(
        object.namespace()?,
        object.meta().labels().get("shop")?,
    ))
}

steersman::env_test! {
    async fn events_of_primary_owned_and_mapped_objects_are_reconciled(env: Env) -> anyhow::Result<()> {
        env.install([Shop::crd()]).await?;
        let fixture = Fixture::new(&env).await?;
        let (reconciler, mut runs) = recorder();
        let builder = Controller::builder("shops").cache(&fixture.cache).for_::<Shop>().owns::<ConfigMap>();
        let shops = StartedController::new(builder.watches::<Secret>(handler::map(shop_of)).build(reconciler))?;
        shops.warm_up().await?;
        let [a, b] = [fixture.key("a"), fixture.key("b")];
        let with_namespace = |what: &str| what.replace("NS", &fixture.namespace);

        let shop = fixture.client.create(&fixture.shop("a")).await?;
        runs.expect_because(&a, "Shop created").await;
        fixture.patch::<Shop>("a", json!({"spec": {"open": true}})).await?;
        runs.expect_because(&a, "Shop updated").await;

        // Objects with a controller reference to the shop. Those of other owners are ignored.
        fixture.client.create(&owned(&shop, fixture.map("mine", ""))).await?;
        runs.expect_because(&a, &with_namespace("ConfigMap NS/mine created")).await;
        let mut merely_related = fixture.map("related", "");
        owner::add(&shop, &mut merely_related)?;
        fixture.client.create(&merely_related).await?;
        fixture.client.create(&fixture.map("unrelated", "a")).await?;
        fixture.touch::<ConfigMap>("mine").await?;
        runs.expect_because(&a, &with_namespace("ConfigMap NS/mine updated")).await;
        let other = fixture.client.create(&fixture.shop("b")).await?;
        runs.expect_because(&b, "Shop created").await;
        let moved = owned(&other, fixture.map("mine", ""));
        fixture.patch::<ConfigMap>("mine", json!({"metadata": {"ownerReferences": moved.metadata.owner_references}})).await?;
        runs.expect_both_with_reasons([&a, &b], &with_namespace("ConfigMap NS/mine updated")).await;
        fixture.delete::<ConfigMap>("mine").await?;
        runs.expect_because(&b, &with_namespace("ConfigMap NS/mine deleted")).await;

        // Mapped objects. An update notifies the old and the new shop.
        fixture.client.create(&fixture.secret("key", "a")).await?;
        runs.expect_because(&a, &with_namespace("Secret NS/key created")).await;
        fixture.relabel::<Secret>("key", "b").await?;
        runs.expect_both_with_reasons([&a, &b], &with_namespace("Secret NS/key updated")).await;
        fixture.delete::<Secret>("key").await?;
        runs.expect_because(&b, &with_namespace("Secret NS/key deleted")).await;

        fixture.delete::<Shop>("a").await?;
        runs.expect_because(&a, "Shop deleted").await;
        runs.expect_none();
        shops.stop().await?;
        fixture.stop().await
    }

    /// Port of `controller_test.go:391` in controller-runtime.
    async fn no_reconcile_starts_before_all_initial_objects_were_handled(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        for number in 0..50 {
            fixture.client.create(&fixture.map(&format!("m{number}"), "a")).await?;
            fixture.client.create(&fixture.secret(&format!("s{number}"), "b")).await?;
        }
        let handled = SharedVec::new();
        let (reconciler, mut runs) = recording({
            let handled = handled.clone();
            move |_, _| {
                let handled = handled.clone();
                async move {
                    // kube-apiserver creates a config map in each namespace.
                    assert!(handled.len() >= 100, "only {} were handled", handled.len());
                    Ok(Outcome::done())
                }
            }
        });
        let maps = handled.clone();
        let shops = Controller::builder("shops")
            .cache(&fixture.cache)
            .watches::<ConfigMap>(handler::from_fn(move |event: &Event<ConfigMap>, queue| {
                maps.add(());
                if let Some(shop) = shop_of(event.object()) {
                    queue.add(shop);
                }
            }))
            .watches::<Secret>(handler::map_async(move |secret: Object<Secret>| {
                let handled = handled.clone();
                async move {
                    tokio::task::yield_now().await;
                    handled.add(());
                    shop_of(&secret)
                }
            }))
            .max_concurrent(4)
            .build(reconciler);
        let shops = StartedController::new(shops)?;
        let mut seen = [runs.next().await.0, runs.next().await.0];
        seen.sort();
        assert_eq!(seen, [fixture.key("a"), fixture.key("b")], "one reconcile per request");
        let controller = Controller::clone(&shops);
        shops.stop().await?;
        assert_eq!((controller.stats().success, controller.stats().panics), (2, 0));
        fixture.stop().await
    }

    async fn primary_and_owned_kinds_can_be_metadata_only_or_compact(env: Env) -> anyhow::Result<()> {
        let representations = |fixture: &Fixture| {
            let mut representations: Vec<_> = fixture.cache.informers().iter().map(|kind| kind.representation).collect();
            representations.dedup();
            representations
        };
        let fixture = Fixture::new(&env).await?;
        let (reconciler, runs) = recorder();
        let builder = Controller::builder("metadata").cache(&fixture.cache).filter(without_kube_objects());
        let built = builder.for_::<Metadata<ConfigMap>>().owns::<Metadata<Secret>>().build(reconciler);
        test_maps_and_secrets(&fixture, StartedController::new(built)?, runs).await?;
        assert_eq!(representations(&fixture), [Representation::Metadata]);
        fixture.stop().await?;

        let fixture = Fixture::new(&env).await?;
        let (reconciler, runs) = recorder();
        let built = Controller::builder("compact")
            .cache(&fixture.cache)
            .filter(without_kube_objects())
            .for_with(Select::<ConfigMap>::new().compact())
            .owns_with(Select::<Secret>::new().compact())
            .build(reconciler);
        test_maps_and_secrets(&fixture, StartedController::new(built)?, runs).await?;
        assert_eq!(representations(&fixture), [Representation::Compact]);
        fixture.stop().await
    }

    async fn the_scope_of_dynamic_kinds_is_discovered(env: Env) -> anyhow::Result<()> {
        env.install([Shop::crd(), Mall::crd()]).await?;
        let fixture = Fixture::new(&env).await?;
        let map = || Select::dynamic(ConfigMap::static_gvk());
        let built = |name: &str, primary: GroupVersionKind, reconciler| {
            let builder = Controller::builder(name).cache(&fixture.cache).for_with(Select::dynamic(primary));
            builder.owns_with(map()).build(reconciler)
        };

        let (reconciler, mut runs) = recorder();
        let shops = StartedController::new(built("shops", Shop::static_gvk(), reconciler))?;
        shops.warm_up().await?;
        let shop = fixture.client.create(&fixture.shop("a")).await?;
        runs.expect_because(&fixture.key("a"), "Shop created").await;
        fixture.client.create(&owned(&shop, fixture.map("of-shop", ""))).await?;
        runs.expect_because(&fixture.key("a"), &format!("ConfigMap {}/of-shop created", fixture.namespace)).await;

        // Malls are cluster-scoped, so other tests may have some.
        let name = fixture.namespace.clone();
        let (reconciler, mut runs) = recorder();
        let malls = StartedController::new(built("malls", Mall::static_gvk(), reconciler))?;
        malls.warm_up().await?;
        let mall = fixture.client.create(&Mall::new(&name, MallSpec {})).await?;
        runs.expect_because(&Request::cluster_scoped(&name), "Mall created").await;
        fixture.client.create(&owned(&mall, fixture.map("of-mall", ""))).await?;
        let reason = format!("ConfigMap {}/of-mall created", fixture.namespace);
        runs.expect_because(&Request::cluster_scoped(&name), &reason).await;
        fixture.client.delete::<Mall>(&Request::cluster_scoped(&name)).await?;

        shops.stop().await?;
        malls.stop().await?;
        fixture.stop().await
    }

    async fn the_predicate_of_the_controller_is_called_first_and_skipped_by_custom_sources(env: Env) -> anyhow::Result<()> {
        let fixture = Fixture::new(&env).await?;
        let calls = SharedVec::new();
        let recorder_for = |predicate: &'static str| {
            let calls = calls.clone();
            move |name: &str| {
                if !name.starts_with("kube-root") {
                    calls.add(format!("{predicate} {name}"));
                }
            }
        };
        let (global, own) = (recorder_for("global"), recorder_for("own"));
        let secrets: Watch<Secret> = Select::new().into();
        let (reconciler, mut runs) = recorder();
        let built = Controller::builder("filtered")
            .cache(&fixture.cache)
            .filter(predicate::object(move |object| {
                global(object.name());
                object.meta().labels().get("shop").is_some_and(|shop| shop != "closed")
            }))
            .for_with(Select::<ConfigMap>::new().filter(predicate::object(move |map: &Object<ConfigMap>| {
                own(map.name());
                map.name() != "odd"
            })))
            .watches_source(Kind::with_cache(&fixture.cache, secrets, handler::object()))
            .build(reconciler);
        let controller = StartedController::new(built)?;
        controller.warm_up().await?;
        for (name, shop) in [("first", "closed"), ("odd", "open"), ("even", "open")] {
            fixture.client.create(&fixture.map(name, shop)).await?;
        }
        runs.expect(&fixture.key("even")).await;
        fixture.client.create(&fixture.secret("secret", "closed")).await?;
        runs.expect(&fixture.key("secret")).await;
        runs.expect_none();
        let expected = ["global first", "global odd", "own odd", "global even", "own even"];
        assert_eq!(calls.take(), expected, "a rejected event is not passed to later predicates");
        let dropped = |kind: &str| {
            let watches = controller.watches();
            let watch = watches.iter().find(|watch| watch.name().contains(kind)).expect("the watch is added");
            watch.stats().dropped
        };
        assert!(dropped("ConfigMap") >= 2 && dropped("Secret") == 0, "{:?}", controller.report());
        controller.stop().await?;
        fixture.stop().await
    }

    async fn a_deleted_child_is_recreated(env: Env) -> anyhow::Result<()> {
        env.install([Shop::crd()]).await?;
        let fixture = Fixture::new(&env).await?;
        let client = fixture.client.clone();
        let (reconciler, mut runs) = recording(move |request: Request, _| {
            let client = client.clone();
            async move {
                let Some(shop) = client.get::<Shop>(&request).await? else { return Ok(Outcome::done()) };
                let mut map = ConfigMap::default();
                map.metadata.namespace = request.namespace().map(Into::into);
                map.metadata.name = Some(format!("{}-settings", request.name()));
                let open = shop.spec.open.to_string();
                let made = client.create_or_patch(map, |map| {
                    map.data.get_or_insert_default().insert("open".into(), open.clone());
                    Ok(owner::set_controller(&*shop, map)?)
                });
                match made.await {
                    // Deleted since it was read. Requeue until the cache shows that.
                    Err(error) if error.is_not_found() => return Ok(Outcome::requeue()),
                    made => drop(made?),
                }
                Ok(Outcome::done())
            }
        });
        let builder = Controller::builder("shops").cache(&fixture.cache).for_::<Shop>().owns::<ConfigMap>();
        let shops = StartedController::new(builder.build(reconciler))?;
        let settings = fixture.key("a-settings");
        let live = fixture.client.live();
        let is_open = async || -> anyhow::Result<_> {
            let map = live.get::<ConfigMap>(&settings).await?;
            Ok(map.and_then(|map| map.data.as_ref()?.get("open").cloned()))
        };
        let mut wait_for = async |wanted: &str| -> anyhow::Result<()> {
            while is_open().await?.as_deref() != Some(wanted) {
                runs.next().await;
            }
            Ok(())
        };
        fixture.client.create(&fixture.shop("a")).await?;
        wait_for("false").await?;
        fixture.patch::<Shop>("a", json!({"spec": {"open": true}})).await?;
        wait_for("true").await?;
        fixture.delete::<ConfigMap>("a-settings").await?;
        wait_for("true").await?;
        fixture.patch::<ConfigMap>("a-settings", json!({"data": {"open": "unknown"}})).await?;
        wait_for("true").await?;
        assert_eq!(shops.stats().errors, shops.stats().conflicts, "no errors except conflicts");
        shops.stop().await?;
        fixture.stop().await
    }
}

/// Excludes the objects that kube-apiserver creates in every namespace.
fn without_kube_objects() -> impl predicate::Predicate<steersman::object::AnyKind> {
    predicate::object(|object: &Object| !object.name().starts_with("kube-"))
}

/// Tests a controller of config maps that own secrets, in any representation.
async fn test_maps_and_secrets(
    fixture: &Fixture,
    maps: StartedController,
    mut runs: RecordedReconciles,
) -> anyhow::Result<()> {
    maps.warm_up().await?;
    let map = fixture.client.create(&fixture.map("a", "")).await?;
    runs.expect_because(&fixture.key("a"), "ConfigMap created")
        .await;
    fixture
        .client
        .create(&owned(&map, fixture.secret("key", "")))
        .await?;
    runs.expect_because(
        &fixture.key("a"),
        &format!("Secret {}/key created", fixture.namespace),
    )
    .await;
    fixture.touch::<Secret>("key").await?;
    runs.expect_because(
        &fixture.key("a"),
        &format!("Secret {}/key updated", fixture.namespace),
    )
    .await;
    fixture.delete::<Secret>("key").await?;
    runs.expect_because(
        &fixture.key("a"),
        &format!("Secret {}/key deleted", fixture.namespace),
    )
    .await;
    fixture.delete::<ConfigMap>("a").await?;
    runs.expect_because(&fixture.key("a"), "ConfigMap deleted")
        .await;
    runs.expect_none();
    maps.stop().await
}

#[tokio::test(start_paused = true)]
async fn workers_start_after_the_slowest_source_is_synced() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let fixture = Fixture::new(&server).await?;
    fixture.client.create(&fixture.map("fast", "")).await?;
    fixture.client.create(&fixture.secret("slow", "")).await?;
    server
        .server()
        .faults()
        .add(Fault::on("watch secrets").delay(Duration::from_secs(20)));
    let (reconciler, mut runs) = recorder();
    let builder = Controller::builder("both")
        .cache(&fixture.cache)
        .for_::<ConfigMap>();
    let both = StartedController::new(
        builder
            .watches::<Secret>(handler::object())
            .build(reconciler),
    )?;
    tokio::time::sleep(Duration::from_secs(19)).await;
    assert_eq!(both.queue().len(), 1, "the event of the map was handled");
    runs.expect_none();
    let mut seen = [runs.next().await.0, runs.next().await.0];
    seen.sort();
    assert_eq!(seen, [fixture.key("fast"), fixture.key("slow")]);
    both.stop().await?;
    fixture.stop().await
}

#[tokio::test(start_paused = true)]
async fn an_optional_watch_delays_the_start_until_its_first_response() -> anyhow::Result<()> {
    let secrets = || Fault::on("watch secrets");
    let secs = Duration::from_secs;
    for (kind, fault, seconds) in [
        (("", "Secret"), Some(secrets().delay(secs(20))), 20),
        // Limit of the cache's wait.
        (("", "Secret"), Some(secrets().delay(secs(600))), 65),
        (("", "Secret"), Some(secrets().status(403)), 0),
        (("example.com", "Absent"), None, 0),
    ] {
        let server = Embedded::start()?;
        let fixture = Fixture::new(&server).await?;
        fixture.client.create(&fixture.map("a", "")).await?;
        if let Some(fault) = fault {
            server.server().faults().add(fault);
        }
        let (reconciler, mut runs) = recorder();
        let optional = Select::dynamic(GroupVersionKind::gvk(kind.0, "v1", kind.1)).optional();
        let builder = Controller::builder("both")
            .cache(&fixture.cache)
            .for_::<ConfigMap>();
        let begun = tokio::time::Instant::now();
        let both = StartedController::new(
            builder
                .watches_with(optional, handler::object())
                .build(reconciler),
        )?;
        runs.expect(&fixture.key("a")).await;
        assert_eq!(begun.elapsed().as_secs(), seconds, "{kind:?}");
        both.stop().await?;
        fixture.stop().await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_the_server_loses_no_event() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let fixture = Fixture::new(&server).await?;
    let (reconciler, mut runs) = recorder();
    let maps = StartedController::new(
        Controller::builder("maps")
            .cache(&fixture.cache)
            .for_::<ConfigMap>()
            .build(reconciler),
    )?;
    maps.warm_up().await?;
    fixture.client.create(&fixture.map("a", "")).await?;
    runs.expect_because(&fixture.key("a"), "ConfigMap created")
        .await;
    for _ in 0..5 {
        server.restart().await?;
        fixture.touch::<ConfigMap>("a").await?;
        runs.expect_because(&fixture.key("a"), "ConfigMap updated")
            .await;
    }
    server.restart().await?;
    fixture.delete::<ConfigMap>("a").await?;
    runs.expect_because(&fixture.key("a"), "ConfigMap deleted")
        .await;
    maps.stop().await?;
    fixture.stop().await
}
