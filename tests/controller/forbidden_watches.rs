//! Tests of a forbidden watch beside a permitted one, which continues.

use super::fixture::{Fixture, StartedController, recorder, until};
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

/// Grants the user list and watch of `resources` in a namespace.
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
    admin
        .create::<RoleBinding>(&serde_json::from_value(binding)?)
        .await?;
    Ok(())
}

/// Adds a fault that returns 403.
///
/// The embedded server has no authorization of its own.
fn forbid(env: &Env, resources: &str) -> Option<RuleHandle> {
    let Env::Embedded(embedded) = env else {
        return None;
    };
    Some(
        embedded
            .server()
            .faults()
            .add(Fault::on(&format!("watch {resources}")).status(403)),
    )
}

fn is_forbidden(message: &str, env: &Env) -> bool {
    match env {
        Env::Real(_) => message.contains(&format!("secrets is forbidden: User \"{USER}\" cannot")),
        _ => message.contains("secrets is forbidden"),
    }
}

/// Returns the fixtures of a restricted user and of an admin.
///
/// The user may read config maps but no secrets.
async fn restricted_and_admin(env: &Env) -> anyhow::Result<(Fixture, Fixture, Option<RuleHandle>)> {
    let namespace = env.namespace("neighbours").await?;
    let admin = Fixture::of(env.client()?, namespace.clone())?;
    let rule = forbid(env, "secrets");
    allow(&admin.client, &namespace, "configmaps").await?;
    Ok((
        Fixture::of(env.client_as(USER, &[])?, namespace)?,
        admin,
        rule,
    ))
}

fn degraded(watch: &WatchHandle) -> Option<String> {
    if let WatchState::Degraded { error, .. } = watch.state() {
        Some(error)
    } else {
        None
    }
}

/// Returns the watch whose name contains `kind`.
fn watch_of(controller: &Controller, kind: &str) -> WatchHandle {
    controller
        .watches()
        .into_iter()
        .find(|watch| watch.name().contains(kind))
        .expect("the watch is added")
}

steersman::env_test! {
    async fn an_optional_forbidden_watch_does_not_delay_the_start_and_syncs_once_it_is_permitted(env: Env) -> anyhow::Result<()> {
        let (fixture, admin, rule) = restricted_and_admin(&env).await?;
        admin.client.create(&admin.secret("early", "")).await?;
        let (reconciler, mut runs) = recorder();
        let builder = Controller::builder("neighbours").cache(&fixture.cache).for_::<ConfigMap>();
        let controller = builder.watches_with(Select::<Secret>::new().optional(), handler::object()).build(reconciler);
        let controller = StartedController::new(controller)?;
        controller.warm_up().await?;
        admin.client.create(&admin.map("a", "")).await?;
        while runs.next().await.0 != admin.key("a") {}
        for _ in 0..50 {
            admin.touch::<ConfigMap>("a").await?;
            runs.expect_because(&admin.key("a"), "ConfigMap updated").await;
        }
        let secrets = watch_of(&controller, "Secret");
        until(|| degraded(&secrets).is_some()).await;
        let message = degraded(&secrets).unwrap_or_default();
        assert!(is_forbidden(&message, &env), "{message}");
        assert!(matches!(watch_of(&controller, "ConfigMap").state(), WatchState::Synced));

        allow(&admin.client, &admin.namespace, "secrets").await?;
        drop(rule.inspect(RuleHandle::remove));
        runs.expect_because(&admin.key("early"), "Secret listed").await;
        secrets.await_synced().await?;
        assert!(matches!(secrets.state(), WatchState::Synced), "{secrets:?}");
        controller.stop().await?;
        admin.stop().await?;
        fixture.stop().await
    }

    async fn a_forbidden_watch_fails_the_start_with_the_error_of_the_server(env: Env) -> anyhow::Result<()> {
        let (fixture, admin, _rule) = restricted_and_admin(&env).await?;
        admin.client.create(&admin.map("a", "")).await?;
        let (reconciler, mut runs) = recorder();
        let options = Options { sync_timeout: Some(Duration::from_secs(2)), ..Options::default() };
        let builder = Controller::builder("neighbours").cache(&fixture.cache).for_::<ConfigMap>();
        let controller = StartedController::new(builder.owns::<Secret>().options(options).build(reconciler))?;
        let handle = Controller::clone(&controller);
        let error = controller.ended().await.expect_err("the start fails").to_string();
        assert!(error.starts_with("kind source: Secret"), "{error}");
        assert!(error.contains("not synced after 2 s: ") && is_forbidden(&error, &env), "{error}");
        runs.expect_none();
        assert!(handle.watches().is_empty() && handle.queue().is_closed(), "the controller is stopped");
        admin.stop().await?;
        fixture.stop().await
    }
}

/// Starts a server that returns 403 for watches of secrets.
async fn forbidding_server() -> anyhow::Result<(Embedded, Fixture, RuleHandle)> {
    let server = Embedded::start()?;
    let rule = server
        .server()
        .faults()
        .add(Fault::on("watch secrets").status(403));
    let fixture = Fixture::new(&server).await?;
    fixture.client.create(&fixture.map("a", "")).await?;
    Ok((server, fixture, rule))
}

#[tokio::test(start_paused = true)]
async fn a_start_with_a_forbidden_watch_fails_after_two_minutes() -> anyhow::Result<()> {
    let (_server, fixture, _) = forbidding_server().await?;
    let (reconciler, mut runs) = recorder();
    let builder = Controller::builder("maps")
        .cache(&fixture.cache)
        .for_::<ConfigMap>()
        .watches::<Secret>(handler::object());
    let started = Instant::now();
    let error = StartedController::new(builder.build(reconciler))?
        .ended()
        .await
        .expect_err("the start fails")
        .to_string();
    assert_eq!(started.elapsed(), Duration::from_mins(2));
    assert!(
        error.contains("Secret") && error.contains("secrets is forbidden: "),
        "{error}"
    );
    runs.expect_none();
    fixture.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_permitted_in_time_does_not_fail_the_start() -> anyhow::Result<()> {
    let (_server, fixture, rule) = forbidding_server().await?;
    let (reconciler, mut runs) = recorder();
    let builder = Controller::builder("maps")
        .cache(&fixture.cache)
        .for_::<ConfigMap>()
        .watches::<Secret>(handler::object());
    let controller = StartedController::new(builder.build(reconciler))?;
    sleep(Duration::from_secs(30)).await;
    runs.expect_none();
    rule.remove();
    runs.expect(&fixture.key("a")).await;
    controller.stop().await?;
    fixture.stop().await
}

/// Writes once per second for fifteen minutes: no reconcile is late, and the forbidden watch backs
/// off as usual.
#[tokio::test(start_paused = true)]
async fn a_forbidden_watch_does_not_delay_events_of_others() -> anyhow::Result<()> {
    let (_server, fixture, rule) = forbidding_server().await?;
    let (reconciler, mut runs) = recorder();
    let maps = StartedController::new(
        Controller::builder("maps")
            .cache(&fixture.cache)
            .for_::<ConfigMap>()
            .build(reconciler),
    )?;
    runs.expect(&fixture.key("a")).await;
    // Declared at start or later, in this namespace or another.
    let secrets = maps.watch(Kind::new(Select::<Secret>::new(), handler::object()))?;
    let elsewhere = Select::<Secret>::new().namespaces(Namespaces::List(vec!["elsewhere".into()]));
    let others = maps.watch(Kind::new(elsewhere.optional(), handler::object()))?;
    for _ in 0..900 {
        fixture.touch::<ConfigMap>("a").await?;
        let started = Instant::now();
        runs.expect_because(&fixture.key("a"), "ConfigMap updated")
            .await;
        assert_eq!(started.elapsed(), Duration::ZERO);
        sleep(Duration::from_secs(1)).await;
    }
    assert!(degraded(&secrets).is_some() && degraded(&others).is_some());
    let error = secrets
        .await_synced()
        .await
        .expect_err("forbidden")
        .to_string();
    assert!(error.contains("secrets is forbidden"), "{error}");
    assert!((20..200).contains(&rule.hits()), "{}", rule.hits());

    rule.remove();
    until(|| matches!(secrets.state(), WatchState::Synced)).await;
    secrets.await_synced().await.expect("the watch is retried");
    fixture.client.create(&fixture.secret("late", "")).await?;
    runs.expect_because(&fixture.key("late"), "Secret created")
        .await;
    maps.stop().await?;
    fixture.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_revoked_permission_degrades_the_watch_and_loses_no_event() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let fixture = Fixture::new(&server).await?;
    let (reconciler, mut runs) = recorder();
    let builder = Controller::builder("both")
        .cache(&fixture.cache)
        .for_::<ConfigMap>()
        .watches::<Secret>(handler::object());
    let controller = StartedController::new(builder.build(reconciler))?;
    controller.warm_up().await?;
    fixture.client.create(&fixture.secret("key", "")).await?;
    runs.expect(&fixture.key("key")).await;

    let rule = server
        .server()
        .faults()
        .add(Fault::on("watch secrets").status(403));
    server.restart().await?;
    let watches = ["ConfigMap", "Secret"].map(|kind| watch_of(&controller, kind));
    until(|| degraded(&watches[1]).is_some()).await;
    fixture.delete::<Secret>("key").await?;
    fixture.client.create(&fixture.map("a", "")).await?;
    runs.expect_because(&fixture.key("a"), "ConfigMap created")
        .await;
    sleep(Duration::from_mins(10)).await;
    runs.expect_none();
    let report = controller.report();
    for (watch, state) in zip(&report.watches, ["synced", "degraded"]) {
        assert_eq!(watch.state, state, "{report:?}");
    }
    rule.remove();
    runs.expect_because(&fixture.key("key"), "Secret deleted")
        .await;
    until(|| matches!(watches[1].state(), WatchState::Synced)).await;
    controller.stop().await?;
    fixture.stop().await
}
