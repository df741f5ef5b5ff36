//! Whole controllers, on both servers: what happens there reaches the reconciler, and nothing else does.

use super::world::{Log, Mall, MallSpec, Runs, Shop, Started, World, owned, recorder, recording};
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

/// The shop that an object's label names.
fn shop_of<K>(object: &Object<K>) -> Option<Request> {
    Some(Request::new(object.namespace()?, object.meta().labels().get("shop")?))
}

steersman::env_test! {
    async fn what_happens_to_the_primary_and_its_kin_reaches_the_reconciler(env: Env) -> anyhow::Result<()> {
        env.install([Shop::crd()]).await?;
        let world = World::new(&env).await?;
        let (reconciler, mut runs) = recorder();
        let builder = Controller::builder("shops").cache(&world.cache).for_::<Shop>().owns::<ConfigMap>();
        let shops = Started::new(builder.watches::<Secret>(handler::map(shop_of)).build(reconciler))?;
        shops.warm_up().await?;
        let [a, b] = [world.key("a"), world.key("b")];
        let of = |what: &str| what.replace("NS", &world.namespace);

        let shop = world.client.create(&world.shop("a")).await?;
        runs.expect_because(&a, "Shop created").await;
        world.patch::<Shop>("a", json!({"spec": {"open": true}})).await?;
        runs.expect_because(&a, "Shop updated").await;

        // What it owns, by a reference that says so; another owner's is not its concern.
        world.client.create(&owned(&shop, world.map("mine", ""))).await?;
        runs.expect_because(&a, &of("ConfigMap NS/mine created")).await;
        let mut merely_related = world.map("related", "");
        owner::add(&shop, &mut merely_related)?;
        world.client.create(&merely_related).await?;
        world.client.create(&world.map("unrelated", "a")).await?;
        world.touch::<ConfigMap>("mine").await?;
        runs.expect_because(&a, &of("ConfigMap NS/mine updated")).await;
        let other = world.client.create(&world.shop("b")).await?;
        runs.expect_because(&b, "Shop created").await;
        let moved = owned(&other, world.map("mine", ""));
        world.patch::<ConfigMap>("mine", json!({"metadata": {"ownerReferences": moved.metadata.owner_references}})).await?;
        runs.expect_both_because([&a, &b], &of("ConfigMap NS/mine updated")).await;
        world.delete::<ConfigMap>("mine").await?;
        runs.expect_because(&b, &of("ConfigMap NS/mine deleted")).await;

        // What is mapped to it: whom it was about before is told, too.
        world.client.create(&world.secret("key", "a")).await?;
        runs.expect_because(&a, &of("Secret NS/key created")).await;
        world.relabel::<Secret>("key", "b").await?;
        runs.expect_both_because([&a, &b], &of("Secret NS/key updated")).await;
        world.delete::<Secret>("key").await?;
        runs.expect_because(&b, &of("Secret NS/key deleted")).await;

        world.delete::<Shop>("a").await?;
        runs.expect_because(&a, "Shop deleted").await;
        runs.expect_none();
        shops.stop().await?;
        world.stop().await
    }

    /// controller-runtime's `controller_test.go:391`.
    async fn no_run_begins_before_every_initial_object_went_through_its_handler(env: Env) -> anyhow::Result<()> {
        let world = World::new(&env).await?;
        for number in 0..50 {
            world.client.create(&world.map(&format!("m{number}"), "a")).await?;
            world.client.create(&world.secret(&format!("s{number}"), "b")).await?;
        }
        let handled = Log::new();
        let (reconciler, mut runs) = recording({
            let handled = handled.clone();
            move |_, _| {
                let handled = handled.clone();
                async move {
                    // The real server has a map of its own in each namespace.
                    assert!(handled.len() >= 100, "only {} were handled", handled.len());
                    Ok(Outcome::done())
                }
            }
        });
        let maps = handled.clone();
        let shops = Controller::builder("shops")
            .cache(&world.cache)
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
        let shops = Started::new(shops)?;
        let mut seen = [runs.next().await.0, runs.next().await.0];
        seen.sort();
        assert_eq!(seen, [world.key("a"), world.key("b")], "one run for each, whatever it was mapped from");
        let controller = Controller::clone(&shops);
        shops.stop().await?;
        assert_eq!((controller.stats().success, controller.stats().panics), (2, 0));
        world.stop().await
    }

    async fn the_primary_and_what_it_owns_may_be_kept_as_metadata_or_as_text(env: Env) -> anyhow::Result<()> {
        let kept = |world: &World| {
            let mut kept: Vec<_> = world.cache.informers().iter().map(|kind| kind.representation).collect();
            kept.dedup();
            kept
        };
        let world = World::new(&env).await?;
        let (reconciler, runs) = recorder();
        let builder = Controller::builder("metadata").cache(&world.cache).filter(not_the_servers_own());
        let built = builder.for_::<Metadata<ConfigMap>>().owns::<Metadata<Secret>>().build(reconciler);
        maps_and_their_secrets(&world, Started::new(built)?, runs).await?;
        assert_eq!(kept(&world), [Representation::Metadata]);
        world.stop().await?;

        let world = World::new(&env).await?;
        let (reconciler, runs) = recorder();
        let built = Controller::builder("compact")
            .cache(&world.cache)
            .filter(not_the_servers_own())
            .for_with(Select::<ConfigMap>::new().compact())
            .owns_with(Select::<Secret>::new().compact())
            .build(reconciler);
        maps_and_their_secrets(&world, Started::new(built)?, runs).await?;
        assert_eq!(kept(&world), [Representation::Compact]);
        world.stop().await
    }

    async fn kinds_that_are_named_at_run_time_are_found_with_their_scope(env: Env) -> anyhow::Result<()> {
        env.install([Shop::crd(), Mall::crd()]).await?;
        let world = World::new(&env).await?;
        let map = || Select::dynamic(ConfigMap::static_gvk());
        let built = |name: &str, primary: GroupVersionKind, reconciler| {
            let builder = Controller::builder(name).cache(&world.cache).for_with(Select::dynamic(primary));
            builder.owns_with(map()).build(reconciler)
        };

        let (reconciler, mut runs) = recorder();
        let shops = Started::new(built("shops", Shop::static_gvk(), reconciler))?;
        shops.warm_up().await?;
        let shop = world.client.create(&world.shop("a")).await?;
        runs.expect_because(&world.key("a"), "Shop created").await;
        world.client.create(&owned(&shop, world.map("of-shop", ""))).await?;
        runs.expect_because(&world.key("a"), &format!("ConfigMap {}/of-shop created", world.namespace)).await;

        // Others may have some, too: they have no namespace of the test's own.
        let name = world.namespace.clone();
        let (reconciler, mut runs) = recorder();
        let malls = Started::new(built("malls", Mall::static_gvk(), reconciler))?;
        malls.warm_up().await?;
        let mall = world.client.create(&Mall::new(&name, MallSpec {})).await?;
        runs.expect_because(&Request::cluster_scoped(&name), "Mall created").await;
        world.client.create(&owned(&mall, world.map("of-mall", ""))).await?;
        let reason = format!("ConfigMap {}/of-mall created", world.namespace);
        runs.expect_because(&Request::cluster_scoped(&name), &reason).await;
        world.client.delete::<Mall>(&Request::cluster_scoped(&name)).await?;

        shops.stop().await?;
        malls.stop().await?;
        world.stop().await
    }

    async fn a_filter_for_all_is_asked_first_and_sources_of_ones_own_bypass_it(env: Env) -> anyhow::Result<()> {
        let world = World::new(&env).await?;
        let asked = Log::new();
        let said = |who: &'static str| {
            let asked = asked.clone();
            move |name: &str| {
                if !name.starts_with("kube-root") {
                    asked.add(format!("{who} {name}"));
                }
            }
        };
        let (global, own) = (said("global"), said("own"));
        let secrets: Watch<Secret> = Select::new().into();
        let (reconciler, mut runs) = recorder();
        let built = Controller::builder("filtered")
            .cache(&world.cache)
            .filter(predicate::object(move |object| {
                global(object.name());
                object.meta().labels().get("shop").is_some_and(|shop| shop != "closed")
            }))
            .for_with(Select::<ConfigMap>::new().filter(predicate::object(move |map: &Object<ConfigMap>| {
                own(map.name());
                map.name() != "odd"
            })))
            .watches_source(Kind::with_cache(&world.cache, secrets, handler::object()))
            .build(reconciler);
        let controller = Started::new(built)?;
        controller.warm_up().await?;
        for (name, shop) in [("first", "closed"), ("odd", "open"), ("even", "open")] {
            world.client.create(&world.map(name, shop)).await?;
        }
        runs.expect(&world.key("even")).await;
        world.client.create(&world.secret("secret", "closed")).await?;
        runs.expect(&world.key("secret")).await;
        runs.expect_none();
        let expected = ["global first", "global odd", "own odd", "global even", "own even"];
        assert_eq!(asked.take(), expected, "what one has rejected the next is not asked about");
        let dropped = |kind: &str| {
            let watches = controller.watches();
            let watch = watches.iter().find(|watch| watch.name().contains(kind)).expect("it is watched");
            watch.stats().dropped
        };
        assert!(dropped("ConfigMap") >= 2 && dropped("Secret") == 0, "{:?}", controller.report());
        controller.stop().await?;
        world.stop().await
    }

    async fn what_somebody_takes_away_is_made_again(env: Env) -> anyhow::Result<()> {
        env.install([Shop::crd()]).await?;
        let world = World::new(&env).await?;
        let client = world.client.clone();
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
                    // It was taken away since it was read: once more, when that is shown.
                    Err(error) if error.is_not_found() => return Ok(Outcome::requeue()),
                    made => drop(made?),
                }
                Ok(Outcome::done())
            }
        });
        let builder = Controller::builder("shops").cache(&world.cache).for_::<Shop>().owns::<ConfigMap>();
        let shops = Started::new(builder.build(reconciler))?;
        let settings = world.key("a-settings");
        let live = world.client.live();
        let is_open = async || -> anyhow::Result<_> {
            let map = live.get::<ConfigMap>(&settings).await?;
            Ok(map.and_then(|map| map.data.as_ref()?.get("open").cloned()))
        };
        let mut becomes = async |wanted: &str| -> anyhow::Result<()> {
            while is_open().await?.as_deref() != Some(wanted) {
                runs.next().await;
            }
            Ok(())
        };
        world.client.create(&world.shop("a")).await?;
        becomes("false").await?;
        world.patch::<Shop>("a", json!({"spec": {"open": true}})).await?;
        becomes("true").await?;
        world.delete::<ConfigMap>("a-settings").await?;
        becomes("true").await?;
        world.patch::<ConfigMap>("a-settings", json!({"data": {"open": "perhaps"}})).await?;
        becomes("true").await?;
        assert_eq!(shops.stats().errors, shops.stats().conflicts, "nothing else went wrong");
        shops.stop().await?;
        world.stop().await
    }
}

/// Of the objects that every namespace of the real server has.
fn not_the_servers_own() -> impl predicate::Predicate<steersman::object::AnyKind> {
    predicate::object(|object: &Object| !object.name().starts_with("kube-"))
}

/// For a controller of config maps that own secrets, in whatever form.
async fn maps_and_their_secrets(world: &World, maps: Started, mut runs: Runs) -> anyhow::Result<()> {
    maps.warm_up().await?;
    let map = world.client.create(&world.map("a", "")).await?;
    runs.expect_because(&world.key("a"), "ConfigMap created").await;
    world.client.create(&owned(&map, world.secret("key", ""))).await?;
    runs.expect_because(&world.key("a"), &format!("Secret {}/key created", world.namespace)).await;
    world.touch::<Secret>("key").await?;
    runs.expect_because(&world.key("a"), &format!("Secret {}/key updated", world.namespace)).await;
    world.delete::<Secret>("key").await?;
    runs.expect_because(&world.key("a"), &format!("Secret {}/key deleted", world.namespace)).await;
    world.delete::<ConfigMap>("a").await?;
    runs.expect_because(&world.key("a"), "ConfigMap deleted").await;
    runs.expect_none();
    maps.stop().await
}

#[tokio::test(start_paused = true)]
async fn the_slowest_source_is_waited_for_and_then_everything_runs() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let world = World::new(&server).await?;
    world.client.create(&world.map("fast", "")).await?;
    world.client.create(&world.secret("slow", "")).await?;
    server.server().faults().add(Fault::on("watch secrets").delay(Duration::from_secs(20)));
    let (reconciler, mut runs) = recorder();
    let builder = Controller::builder("both").cache(&world.cache).for_::<ConfigMap>();
    let both = Started::new(builder.watches::<Secret>(handler::object()).build(reconciler))?;
    tokio::time::sleep(Duration::from_secs(19)).await;
    assert_eq!(both.queue().len(), 1, "the map is known");
    runs.expect_none();
    let mut seen = [runs.next().await.0, runs.next().await.0];
    seen.sort();
    assert_eq!(seen, [world.key("fast"), world.key("slow")]);
    both.stop().await?;
    world.stop().await
}

#[tokio::test(start_paused = true)]
async fn one_that_is_optional_is_waited_for_until_it_is_known_how_it_is() -> anyhow::Result<()> {
    let secrets = || Fault::on("watch secrets");
    let secs = Duration::from_secs;
    for (kind, fault, seconds) in [
        (("", "Secret"), Some(secrets().delay(secs(20))), 20),
        // The cache does not wait any longer.
        (("", "Secret"), Some(secrets().delay(secs(600))), 65),
        (("", "Secret"), Some(secrets().status(403)), 0),
        (("example.com", "Absent"), None, 0),
    ] {
        let server = Embedded::start()?;
        let world = World::new(&server).await?;
        world.client.create(&world.map("a", "")).await?;
        if let Some(fault) = fault {
            server.server().faults().add(fault);
        }
        let (reconciler, mut runs) = recorder();
        let optional = Select::dynamic(GroupVersionKind::gvk(kind.0, "v1", kind.1)).optional();
        let builder = Controller::builder("both").cache(&world.cache).for_::<ConfigMap>();
        let begun = tokio::time::Instant::now();
        let both = Started::new(builder.watches_with(optional, handler::object()).build(reconciler))?;
        runs.expect(&world.key("a")).await;
        assert_eq!(begun.elapsed().as_secs(), seconds, "{kind:?}");
        both.stop().await?;
        world.stop().await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_server_that_restarts_costs_no_event() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let world = World::new(&server).await?;
    let (reconciler, mut runs) = recorder();
    let maps = Started::new(Controller::builder("maps").cache(&world.cache).for_::<ConfigMap>().build(reconciler))?;
    maps.warm_up().await?;
    world.client.create(&world.map("a", "")).await?;
    runs.expect_because(&world.key("a"), "ConfigMap created").await;
    for _ in 0..5 {
        server.restart().await?;
        world.touch::<ConfigMap>("a").await?;
        runs.expect_because(&world.key("a"), "ConfigMap updated").await;
    }
    server.restart().await?;
    world.delete::<ConfigMap>("a").await?;
    runs.expect_because(&world.key("a"), "ConfigMap deleted").await;
    maps.stop().await?;
    world.stop().await
}
