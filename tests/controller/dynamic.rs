//! Kinds that come and go, and watches that do: nothing is asked in vain, and nothing is left.

use super::world::{Log, Started, World, owned, recorder, until};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Secret},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use std::{process::Command, sync::Arc, time::Duration};
use steersman::{
    controller::{Options, WatchError, WatchHandle, WatchState},
    handler::Enqueue,
    prelude::*,
    source::Kind,
    testing::{Embedded, Env, TestServer},
};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep},
};

const HOUR: Duration = Duration::from_hours(1);

fn definition(group: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("laters.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": "laters", "kind": "Later"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })
}

fn later(group: &str) -> GroupVersionKind {
    GroupVersionKind::gvk(group, "v1", "Later")
}

async fn make(world: &World, group: &str, name: &str) -> anyhow::Result<DynamicObject> {
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": format!("{group}/v1"), "kind": "Later", "metadata": {"namespace": world.namespace, "name": name},
    }))?;
    // A definition is in discovery a moment before objects of it can be made.
    loop {
        match world.client.create(&object).await {
            Ok(made) => return Ok(made),
            Err(error) if error.is_not_found() => sleep(Duration::from_millis(50)).await,
            Err(error) => return Err(error.into()),
        }
    }
}

async fn uninstall(world: &World, group: &str) -> anyhow::Result<()> {
    let definition = Request::cluster_scoped(&format!("laters.{group}"));
    assert!(world.client.delete::<CustomResourceDefinition>(&definition).await?, "it is there");
    Ok(())
}

steersman::env_test! {
    async fn a_kind_that_comes_later_is_watched_when_it_comes_and_goes_and_comes_back(env: Env) -> anyhow::Result<()> {
        // On the real server the group is the test's own.
        let group = "dynamic.controller.steersman.example";
        let world = World::new(&env).await?;
        let (reconciler, mut runs) = recorder();
        let builder = Controller::builder("later").cache(&world.cache);
        let built = builder.watches_with(Select::dynamic(later(group)).optional(), handler::object()).build(reconciler);
        let laters = Started::new(built)?;
        laters.warm_up().await?;
        let watch = laters.watches().remove(0);
        assert!(matches!(watch.state(), WatchState::Starting), "nobody's fault: {:?}", watch.state());

        for name in ["first", "second"] {
            env.install([definition(group)]).await?;
            make(&world, group, name).await?;
            runs.expect(&world.key(name)).await;
            watch.await_synced().await?;
            assert!(matches!(watch.state(), WatchState::Synced), "{:?}", watch.state());
            uninstall(&world, group).await?;
            runs.expect_because(&world.key(name), "Later deleted").await;
        }
        laters.stop().await?;
        world.stop().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_absent_is_not_asked_for_again_and_again() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let world = World::new(&server).await?;
    let (reconciler, mut runs) = recorder();
    let builder = Controller::builder("later").cache(&world.cache).for_::<ConfigMap>();
    let laters = Started::new(builder.build(reconciler))?;
    laters.warm_up().await?;
    let watch = laters.watch(Kind::new(Select::dynamic(later("example.com")), handler::object()))?;
    sleep(Duration::from_mins(1)).await;
    let journal = server.server().journal();
    journal.clear();
    sleep(HOUR).await;
    let asked = journal.entries().iter().filter(|entry| entry.path.starts_with("/apis/example.com")).count();
    assert!(asked < 15, "once in a long while: {asked}");
    let error = watch.await_synced().await.expect_err("it is not there").to_string();
    assert!(error.contains("Later") && error.contains("example.com"), "{error}");

    let begun = Instant::now();
    server.install([definition("example.com")]).await?;
    make(&world, "example.com", "one").await?;
    runs.expect(&world.key("one")).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    uninstall(&world, "example.com").await?;
    runs.expect_because(&world.key("one"), "Later deleted").await;
    sleep(Duration::from_mins(1)).await;
    journal.clear();
    sleep(HOUR).await;
    assert_eq!(journal.count("* laters"), 0, "it is not asked for what is not there");
    laters.stop().await?;
    world.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_is_never_installed_fails_the_start_with_its_name() -> anyhow::Result<()> {
    let world = World::new(&Embedded::start()?).await?;
    let (reconciler, mut runs) = recorder();
    let builder = Controller::builder("later").cache(&world.cache).for_with(Select::dynamic(later("example.com")));
    let options = Options { sync_timeout: Some(Duration::from_secs(10)), ..Options::default() };
    let laters = Started::new(builder.owns::<Secret>().options(options).build(reconciler))?;
    let error = laters.ended().await.expect_err("there is no such kind").to_string();
    assert!(error.starts_with("kind source: example.com/v1, Later: not synced within 10 s: "), "{error}");
    runs.expect_none();
    world.stop().await
}

/// What of its dependents was told before the server knew the owner's kind is not lost.
#[tokio::test(start_paused = true)]
async fn dependents_of_a_kind_that_comes_later_wait_for_it() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let world = World::new(&server).await?;
    let owner: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "example.com/v1", "kind": "Later",
        "metadata": {"namespace": world.namespace, "name": "parent", "uid": "1"},
    }))?;
    world.client.create(&owned(&owner, world.map("child", ""))).await?;
    let (reconciler, mut runs) = recorder();
    let primary = Select::dynamic(later("example.com")).optional();
    let builder = Controller::builder("later").cache(&world.cache).for_with(primary).owns::<ConfigMap>();
    let laters = Started::new(builder.build(reconciler))?;
    sleep(Duration::from_mins(5)).await;
    runs.expect_none();
    server.install([definition("example.com")]).await?;
    // Since there is no such parent, the server removes it, and that is told, too.
    loop {
        let cx = runs.expect(&world.key("parent")).await;
        if cx.reasons().iter().any(|reason| reason.as_str() == "ConfigMap listed") {
            break;
        }
    }
    laters.stop().await?;
    world.stop().await
}

fn alive_tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// What this process has in memory, in KiB.
fn resident() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    Ok(line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default())
}

/// In a process of its own, whose memory is its own.
#[test]
fn ten_thousand_watches_that_come_and_go_leave_nothing() -> anyhow::Result<()> {
    let test = concat!(module_path!(), "::ten_thousand_watches");
    let test = test.split_once("::").map_or(test, |(_, test)| test);
    let mut alone = Command::new(std::env::current_exe()?);
    let output = alone.args(["--exact", test, "--ignored", "--nocapture"]).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "{said}");
    Ok(())
}

#[ignore = "run by the test above"]
#[tokio::test(start_paused = true)]
async fn ten_thousand_watches() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let world = World::new(&server).await?;
    world.client.create(&world.secret("key", "")).await?;
    let informer = world.cache.informer::<Secret>()?;
    let (reconciler, mut runs) = recorder();
    let maps = Started::new(Controller::builder("maps").cache(&world.cache).for_::<ConfigMap>().build(reconciler))?;
    maps.warm_up().await?;
    let handlers = Arc::new(());
    let watch = || {
        let one = handlers.clone();
        let handler = handler::from_fn(move |event: &Event<Secret>, queue: &Enqueue<Request>| {
            // So that it is kept for as long as this is.
            assert!(Arc::strong_count(&one) > 0);
            queue.add(event.object().key().clone());
        });
        maps.watch(Kind::new(Select::<Secret>::new(), handler))
    };
    let come_and_go = async |times: usize| -> anyhow::Result<()> {
        for number in 0..times {
            let watch = watch()?;
            // Some end before they have begun, some as they begin, some well after.
            if number % 3 > 0 {
                watch.await_synced().await?;
            }
            if number % 3 == 2 {
                watch.stop().await;
            } else {
                drop(watch.scoped());
            }
        }
        until(|| Arc::strong_count(&handlers) == 1).await;
        Ok(())
    };
    come_and_go(1000).await?;
    while maps.queue().stats().running > 0 || !maps.queue().is_empty() {
        runs.next().await;
    }
    let (tasks, memory) = (alive_tasks(), resident()?);
    come_and_go(10_000).await?;
    assert_eq!((alive_tasks(), maps.watches().len(), informer.stats().handlers.len()), (tasks, 1, 0));
    let grown = resident()?.saturating_sub(memory);
    assert!(grown < 8 * 1024, "{grown} KiB after ten thousand watches");
    assert_eq!(server.server().journal().count("watch secrets"), 1, "one informer served them all");

    // As many at once.
    let watches: Vec<_> = (0..1000).map(|_| watch()).collect::<Result<_, _>>()?;
    for watch in &watches {
        watch.await_synced().await?;
    }
    assert_eq!((informer.stats().handlers.len(), maps.watches().len()), (1000, 1001));
    for watch in &watches {
        watch.stop().await;
    }
    assert_eq!((informer.stats().handlers.len(), maps.watches().len()), (0, 1));
    maps.stop().await?;
    world.stop().await
}

#[tokio::test(start_paused = true)]
async fn an_informer_goes_when_its_last_watch_has_gone() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let world = World::new(&server).await?;
    let (reconciler, _runs) = recorder::<Request>();
    let (controller, task) = Controller::builder("secrets").cache(&world.cache).build(reconciler)?;
    let watch = || controller.watch(Kind::new(Select::<Secret>::new(), handler::object()));
    // Also one that was stopped before it ran.
    watch()?.stop().await;
    let running = tokio::spawn(task.run_until(std::future::pending()));
    let [one, two] = [watch()?, watch()?];
    one.await_synced().await?;
    two.await_synced().await?;
    one.stop().await;
    sleep(HOUR).await;
    assert_eq!(world.cache.informers().len(), 1, "there is another one");
    two.stop().await;
    // Handles of those that were stopped hold nothing.
    sleep(Duration::from_secs(29)).await;
    assert_eq!(world.cache.informers().len(), 1);
    sleep(Duration::from_secs(2)).await;
    assert!(world.cache.informers().is_empty());
    let watches = server.server().journal().count("watch secrets");
    sleep(HOUR).await;
    assert_eq!(server.server().journal().count("watch secrets"), watches);
    assert!(matches!(one.state(), WatchState::Stopped) && controller.watches().is_empty());

    // Those of a controller that has stopped go with it.
    let third = watch()?;
    third.await_synced().await?;
    controller.stop().await;
    running.await??;
    sleep(Duration::from_secs(31)).await;
    assert!(world.cache.informers().is_empty());
    assert!(matches!(watch(), Err(WatchError::ControllerStopped(name)) if name == "secrets"));
    world.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_a_watch_has_stopped_no_call_of_its_handler_begins() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let world = World::new(&server).await?;
    world.client.create(&world.map("a", "")).await?;
    let (reconciler, _runs) = recorder::<Request>();
    let maps = Started::new(Controller::builder("maps").cache(&world.cache).for_::<ConfigMap>().build(reconciler))?;
    let writing = async {
        loop {
            world.touch::<ConfigMap>("a").await?;
        }
    };
    let stopping = async {
        for _ in 0..100 {
            let calls = Log::new();
            let handler = handler::from_fn({
                let calls = calls.clone();
                move |_: &Event<ConfigMap>, _: &Enqueue<Request>| calls.add(())
            });
            let watch = maps.watch(Kind::new(Select::<ConfigMap>::new(), handler))?;
            until(|| calls.len() > 2).await;
            watch.stop().await;
            let called = calls.len();
            for _ in 0..5 {
                world.touch::<ConfigMap>("a").await?;
            }
            assert_eq!(calls.len(), called);
        }
        anyhow::Ok(())
    };
    tokio::select! {
        written = writing => written,
        stopped = stopping => stopped,
    }?;
    maps.stop().await?;
    world.stop().await
}

/// A reconciler that watches what its objects name: the handle is there before the controller is.
#[tokio::test(start_paused = true)]
async fn a_reconciler_may_watch_and_let_go() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    server.install([definition("example.com")]).await?;
    let world = World::new(&server).await?;
    let builder = Controller::builder("maps").cache(&world.cache).for_::<ConfigMap>();
    let (handle, watch) = (builder.handle(), Log::<WatchHandle>::new());
    let unbuilt = handle.watch(Kind::new(Select::<Secret>::new(), handler::object()));
    assert!(matches!(unbuilt, Err(WatchError::NeverBuilt(_))), "{unbuilt:?}");
    let client = world.client.clone();
    let (reconciler, mut runs) = super::world::recording({
        let watch = watch.clone();
        move |request: Request, _| {
            let (client, handle, watch) = (client.clone(), handle.clone(), watch.clone());
            async move {
                match client.get::<ConfigMap>(&request).await? {
                    Some(_) if watch.len() == 0 => {
                        let later = Select::dynamic(later("example.com"));
                        watch.add(handle.watch(Kind::new(later, handler::object()))?);
                    }
                    None if request.name() == "a" => {
                        for watch in watch.take() {
                            watch.stop().await;
                        }
                    }
                    _ => {}
                }
                Ok(Outcome::done())
            }
        }
    });
    let maps = Started::new(builder.build(reconciler))?;
    world.client.create(&world.map("a", "")).await?;
    runs.expect(&world.key("a")).await;
    make(&world, "example.com", "one").await?;
    runs.expect(&world.key("one")).await;
    world.delete::<ConfigMap>("a").await?;
    runs.expect(&world.key("a")).await;
    until(|| maps.watches().len() == 1).await;
    make(&world, "example.com", "two").await?;
    sleep(Duration::from_mins(1)).await;
    runs.expect_none();
    maps.stop().await?;
    world.stop().await
}
