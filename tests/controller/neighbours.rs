//! One watch is refused, the other is well: that one is not disturbed.

use super::world::{Started, World, recorder, until};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Secret},
    rbac::v1::{Role, RoleBinding},
};
use serde_json::json;
use std::{iter::zip, time::Duration};
use steersman::{
    cache::Namespaces,
    controller::{Options, WatchHandle, WatchState},
    prelude::*,
    source::Kind,
    testing::{Embedded, Env, TestServer},
};
use steersman_apiserver::{Fault, RuleHandle};
use tokio::time::{Instant, sleep};

const USER: &str = "neighbour";

/// Let the user read these in a namespace.
async fn allow(admin: &Client, namespace: &str, resources: &str) -> anyhow::Result<()> {
    let role = json!({
        "metadata": {"namespace": namespace, "name": resources},
        "rules": [{"apiGroups": [""], "resources": [resources], "verbs": ["list", "watch"]}],
    });
    let binding = json!({
        "metadata": {"namespace": namespace, "name": resources},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": resources},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
    });
    admin.create::<Role>(&serde_json::from_value(role)?).await?;
    admin.create::<RoleBinding>(&serde_json::from_value(binding)?).await?;
    Ok(())
}

/// The embedded server lets everybody do everything: here it refuses as if it did not.
fn forbid(env: &Env, resources: &str) -> Option<RuleHandle> {
    let Env::Embedded(embedded) = env else { return None };
    Some(embedded.server().faults().add(Fault::on(&format!("watch {resources}")).status(403)))
}

fn is_refusal(words: &str, env: &Env) -> bool {
    match env {
        Env::Real(_) => words.contains(&format!("secrets is forbidden: User \"{USER}\" cannot")),
        _ => words.contains("secrets is forbidden"),
    }
}

/// What a user sees who may read config maps and no secrets; and somebody who may do everything.
async fn restricted(env: &Env) -> anyhow::Result<(World, World, Option<RuleHandle>)> {
    let namespace = env.namespace("neighbours").await?;
    let admin = World::of(env.client()?, namespace.clone())?;
    let rule = forbid(env, "secrets");
    allow(&admin.client, &namespace, "configmaps").await?;
    Ok((World::of(env.client_as(USER, &[])?, namespace)?, admin, rule))
}

fn degraded(watch: &WatchHandle) -> Option<String> {
    if let WatchState::Degraded { error, .. } = watch.state() { Some(error) } else { None }
}

/// By a part of its name.
fn watch_of(controller: &Controller, kind: &str) -> WatchHandle {
    controller.watches().into_iter().find(|watch| watch.name().contains(kind)).expect("it is watched")
}

steersman::env_test! {
    async fn one_that_nobody_waits_for_does_not_hold_up_the_start_and_works_when_it_may(env: Env) -> anyhow::Result<()> {
        let (world, admin, rule) = restricted(&env).await?;
        admin.client.create(&admin.secret("early", "")).await?;
        let (reconciler, mut runs) = recorder();
        let builder = Controller::builder("neighbours").cache(&world.cache).for_::<ConfigMap>();
        let both = builder.watches_with(Select::<Secret>::new().optional(), handler::object()).build(reconciler);
        let both = Started::new(both)?;
        both.warm_up().await?;
        admin.client.create(&admin.map("a", "")).await?;
        while runs.next().await.0 != admin.key("a") {}
        for _ in 0..50 {
            admin.touch::<ConfigMap>("a").await?;
            runs.expect_because(&admin.key("a"), "ConfigMap updated").await;
        }
        let secrets = watch_of(&both, "Secret");
        until(|| degraded(&secrets).is_some()).await;
        let words = degraded(&secrets).unwrap_or_default();
        assert!(is_refusal(&words, &env), "{words}");
        assert!(matches!(watch_of(&both, "ConfigMap").state(), WatchState::Synced));

        allow(&admin.client, &admin.namespace, "secrets").await?;
        drop(rule.inspect(RuleHandle::remove));
        runs.expect_because(&admin.key("early"), "Secret listed").await;
        secrets.await_synced().await?;
        assert!(matches!(secrets.state(), WatchState::Synced), "{secrets:?}");
        both.stop().await?;
        admin.stop().await?;
        world.stop().await
    }

    async fn one_that_is_waited_for_fails_the_start_with_the_servers_words(env: Env) -> anyhow::Result<()> {
        let (world, admin, _rule) = restricted(&env).await?;
        admin.client.create(&admin.map("a", "")).await?;
        let (reconciler, mut runs) = recorder();
        let options = Options { sync_timeout: Some(Duration::from_secs(2)), ..Options::default() };
        let builder = Controller::builder("neighbours").cache(&world.cache).for_::<ConfigMap>();
        let both = Started::new(builder.owns::<Secret>().options(options).build(reconciler))?;
        let controller = Controller::clone(&both);
        let error = both.ended().await.expect_err("it does not start").to_string();
        assert!(error.starts_with("kind source: Secret"), "{error}");
        assert!(error.contains("not synced within 2 s: ") && is_refusal(&error, &env), "{error}");
        runs.expect_none();
        assert!(controller.watches().is_empty() && controller.queue().is_closed(), "nothing is left of it");
        admin.stop().await?;
        world.stop().await
    }
}

/// A controller of maps, and a server that refuses whoever watches secrets.
async fn refusing() -> anyhow::Result<(Embedded, World, RuleHandle)> {
    let server = Embedded::start()?;
    let rule = server.server().faults().add(Fault::on("watch secrets").status(403));
    let world = World::new(&server).await?;
    world.client.create(&world.map("a", "")).await?;
    Ok((server, world, rule))
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_refused_fails_after_two_minutes() -> anyhow::Result<()> {
    let (_server, world, _) = refusing().await?;
    let (reconciler, mut runs) = recorder();
    let builder =
        Controller::builder("maps").cache(&world.cache).for_::<ConfigMap>().watches::<Secret>(handler::object());
    let begun = Instant::now();
    let error = Started::new(builder.build(reconciler))?.ended().await.expect_err("it does not start").to_string();
    assert_eq!(begun.elapsed(), Duration::from_mins(2));
    assert!(error.contains("Secret") && error.contains("secrets is forbidden: "), "{error}");
    runs.expect_none();
    world.stop().await
}

#[tokio::test(start_paused = true)]
async fn who_is_allowed_in_time_has_a_start_like_others() -> anyhow::Result<()> {
    let (_server, world, rule) = refusing().await?;
    let (reconciler, mut runs) = recorder();
    let builder =
        Controller::builder("maps").cache(&world.cache).for_::<ConfigMap>().watches::<Secret>(handler::object());
    let both = Started::new(builder.build(reconciler))?;
    sleep(Duration::from_secs(30)).await;
    runs.expect_none();
    rule.remove();
    runs.expect(&world.key("a")).await;
    both.stop().await?;
    world.stop().await
}

/// For a quarter of an hour, each second: no run is late, and the one who is refused does not ask more often than others that are.
#[tokio::test(start_paused = true)]
async fn every_event_of_the_healthy_one_is_reconciled_at_once() -> anyhow::Result<()> {
    let (_server, world, rule) = refusing().await?;
    let (reconciler, mut runs) = recorder();
    let maps = Started::new(Controller::builder("maps").cache(&world.cache).for_::<ConfigMap>().build(reconciler))?;
    runs.expect(&world.key("a")).await;
    // Whether it is watched from the beginning or later, here and elsewhere.
    let secrets = maps.watch(Kind::new(Select::<Secret>::new(), handler::object()))?;
    let elsewhere = Select::<Secret>::new().namespaces(Namespaces::These(vec!["elsewhere".into()]));
    let others = maps.watch(Kind::new(elsewhere.optional(), handler::object()))?;
    for _ in 0..900 {
        world.touch::<ConfigMap>("a").await?;
        let begun = Instant::now();
        runs.expect_because(&world.key("a"), "ConfigMap updated").await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        sleep(Duration::from_secs(1)).await;
    }
    assert!(degraded(&secrets).is_some() && degraded(&others).is_some());
    let error = secrets.await_synced().await.expect_err("it is refused").to_string();
    assert!(error.contains("secrets is forbidden"), "{error}");
    assert!((20..200).contains(&rule.hits()), "{}", rule.hits());

    rule.remove();
    until(|| matches!(secrets.state(), WatchState::Synced)).await;
    secrets.await_synced().await.expect("it went on trying");
    world.client.create(&world.secret("late", "")).await?;
    runs.expect_because(&world.key("late"), "Secret created").await;
    maps.stop().await?;
    world.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_taken_away_is_said_and_nothing_is_lost_when_it_comes_back() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let world = World::new(&server).await?;
    let (reconciler, mut runs) = recorder();
    let builder =
        Controller::builder("both").cache(&world.cache).for_::<ConfigMap>().watches::<Secret>(handler::object());
    let both = Started::new(builder.build(reconciler))?;
    both.warm_up().await?;
    world.client.create(&world.secret("key", "")).await?;
    runs.expect(&world.key("key")).await;

    let rule = server.server().faults().add(Fault::on("watch secrets").status(403));
    server.restart().await?;
    let watches = ["ConfigMap", "Secret"].map(|kind| watch_of(&both, kind));
    until(|| degraded(&watches[1]).is_some()).await;
    world.delete::<Secret>("key").await?;
    world.client.create(&world.map("a", "")).await?;
    runs.expect_because(&world.key("a"), "ConfigMap created").await;
    sleep(Duration::from_mins(10)).await;
    runs.expect_none();
    let report = both.report();
    for (watch, state) in zip(&report.watches, ["synced", "degraded"]) {
        assert_eq!(watch.state, state, "{report:?}");
    }
    rule.remove();
    runs.expect_because(&world.key("key"), "Secret deleted").await;
    until(|| matches!(watches[1].state(), WatchState::Synced)).await;
    both.stop().await?;
    world.stop().await
}
