//! Tests of kinds and watches that are added and removed at run time.
//!
//! No needless requests, no leaks.

use super::fixture::{Fixture, SharedVec, StartedController, owned, recorder, until};
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
        "metadata": {"name": format!("gizmos.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": "gizmos", "kind": "Gizmo"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })
}

fn gizmo(group: &str) -> GroupVersionKind {
    GroupVersionKind::gvk(group, "v1", "Gizmo")
}

async fn make(fixture: &Fixture, group: &str, name: &str) -> anyhow::Result<DynamicObject> {
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": format!("{group}/v1"), "kind": "Gizmo", "metadata": {"namespace": fixture.namespace, "name": name},
    }))?;
    // A CRD appears in discovery shortly before its objects can be created.
    loop {
        match fixture.client.create(&object).await {
            Ok(made) => return Ok(made),
            Err(error) if error.is_not_found() => sleep(Duration::from_millis(50)).await,
            Err(error) => return Err(error.into()),
        }
    }
}

async fn uninstall(fixture: &Fixture, group: &str) -> anyhow::Result<()> {
    let definition = Request::cluster_scoped(format!("gizmos.{group}"));
    assert!(
        fixture
            .client
            .delete::<CustomResourceDefinition>(&definition)
            .await?,
        "the CRD exists"
    );
    Ok(())
}

steersman::env_test! {
    async fn an_optional_watch_follows_a_kind_that_is_installed_and_removed(env: Env) -> anyhow::Result<()> {
        // The group is used by this test only, because tests share the real server.
        let group = "dynamic.controller.steersman.example";
        let fixture = Fixture::new(&env).await?;
        let (reconciler, mut runs) = recorder();
        let builder = Controller::builder("later").cache(&fixture.cache);
        let built = builder.watches_with(Select::dynamic(gizmo(group)).optional(), handler::object()).build(reconciler);
        let gizmos = StartedController::new(built)?;
        gizmos.warm_up().await?;
        let watch = gizmos.watches().remove(0);
        assert!(matches!(watch.state(), WatchState::Starting), "a missing kind is not an error: {:?}", watch.state());

        for name in ["first", "second"] {
            env.install([definition(group)]).await?;
            make(&fixture, group, name).await?;
            runs.expect(&fixture.key(name)).await;
            watch.await_synced().await?;
            assert!(matches!(watch.state(), WatchState::Synced), "{:?}", watch.state());
            uninstall(&fixture, group).await?;
            runs.expect_because(&fixture.key(name), "Gizmo deleted").await;
        }
        gizmos.stop().await?;
        fixture.stop().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_kind_is_not_polled() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let fixture = Fixture::new(&server).await?;
    let (reconciler, mut runs) = recorder();
    let builder = Controller::builder("later")
        .cache(&fixture.cache)
        .for_::<ConfigMap>();
    let gizmos = StartedController::new(builder.build(reconciler))?;
    gizmos.warm_up().await?;
    let watch = gizmos.watch(Kind::new(
        Select::dynamic(gizmo("example.com")),
        handler::object(),
    ))?;
    sleep(Duration::from_mins(1)).await;
    let journal = server.server().journal();
    journal.clear();
    sleep(HOUR).await;
    let asked = journal
        .entries()
        .iter()
        .filter(|entry| entry.path.starts_with("/apis/example.com"))
        .count();
    assert!(asked < 15, "{asked} discovery requests in an hour");
    let error = watch
        .await_synced()
        .await
        .expect_err("the kind is missing")
        .to_string();
    assert!(
        error.contains("Gizmo") && error.contains("example.com"),
        "{error}"
    );

    let begun = Instant::now();
    server.install([definition("example.com")]).await?;
    make(&fixture, "example.com", "one").await?;
    runs.expect(&fixture.key("one")).await;
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    uninstall(&fixture, "example.com").await?;
    runs.expect_because(&fixture.key("one"), "Gizmo deleted")
        .await;
    sleep(Duration::from_mins(1)).await;
    journal.clear();
    sleep(HOUR).await;
    assert_eq!(
        journal.count("* gizmos"),
        0,
        "a missing kind is not requested"
    );
    gizmos.stop().await?;
    fixture.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_primary_kind_that_is_not_installed_fails_the_start() -> anyhow::Result<()> {
    let fixture = Fixture::new(&Embedded::start()?).await?;
    let (reconciler, mut runs) = recorder();
    let builder = Controller::builder("later")
        .cache(&fixture.cache)
        .for_with(Select::dynamic(gizmo("example.com")));
    let options = Options {
        sync_timeout: Some(Duration::from_secs(10)),
        ..Options::default()
    };
    let gizmos =
        StartedController::new(builder.owns::<Secret>().options(options).build(reconciler))?;
    let error = gizmos
        .ended()
        .await
        .expect_err("an unknown kind")
        .to_string();
    assert!(
        error.starts_with("kind source: example.com/v1, Gizmo not synced after 10 s: "),
        "{error}"
    );
    runs.expect_none();
    fixture.stop().await
}

/// Events of dependents are not lost while the owner's kind is unknown.
#[tokio::test(start_paused = true)]
async fn events_of_dependents_wait_until_the_kind_of_the_owner_is_installed() -> anyhow::Result<()>
{
    let server = Embedded::start()?;
    let fixture = Fixture::new(&server).await?;
    let owner: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "example.com/v1", "kind": "Gizmo",
        "metadata": {"namespace": fixture.namespace, "name": "parent", "uid": "1"},
    }))?;
    fixture
        .client
        .create(&owned(&owner, fixture.map("child", "")))
        .await?;
    let (reconciler, mut runs) = recorder();
    let primary = Select::dynamic(gizmo("example.com")).optional();
    let builder = Controller::builder("later")
        .cache(&fixture.cache)
        .for_with(primary)
        .owns::<ConfigMap>();
    let gizmos = StartedController::new(builder.build(reconciler))?;
    sleep(Duration::from_mins(5)).await;
    runs.expect_none();
    server.install([definition("example.com")]).await?;
    // The garbage collector deletes the dependent because its owner does not exist, which is an
    // event, too.
    loop {
        let cx = runs.expect(&fixture.key("parent")).await;
        if cx
            .reasons()
            .iter()
            .any(|reason| reason.as_str() == "ConfigMap listed")
        {
            break;
        }
    }
    gizmos.stop().await?;
    fixture.stop().await
}

fn alive_tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Returns the resident memory of this process in KiB.
fn resident() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    Ok(line
        .and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or_default())
}

/// Runs in a child process, to measure only its own memory.
#[test]
fn ten_thousand_stopped_watches_leak_nothing() -> anyhow::Result<()> {
    let test = concat!(module_path!(), "::helper_ten_thousand_watches");
    let test = test.split_once("::").map_or(test, |(_, test)| test);
    let mut alone = Command::new(std::env::current_exe()?);
    let output = alone
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(said.contains("1 passed"), "{said}");
    Ok(())
}

#[ignore = "run by `ten_thousand_stopped_watches_leak_nothing`"]
#[tokio::test(start_paused = true)]
async fn helper_ten_thousand_watches() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let fixture = Fixture::new(&server).await?;
    fixture.client.create(&fixture.secret("key", "")).await?;
    let informer = fixture.cache.informer::<Secret>()?;
    let (reconciler, mut runs) = recorder();
    let maps = StartedController::new(
        Controller::builder("maps")
            .cache(&fixture.cache)
            .for_::<ConfigMap>()
            .build(reconciler),
    )?;
    maps.warm_up().await?;
    let handlers = Arc::new(());
    let watch = || {
        let one = handlers.clone();
        let handler = handler::from_fn(move |event: &Event<Secret>, queue: &Enqueue<Request>| {
            // Keeps the reference alive as long as the handler.
            assert!(Arc::strong_count(&one) > 0);
            queue.add(event.object().key().clone());
        });
        maps.watch(Kind::new(Select::<Secret>::new(), handler))
    };
    let come_and_go = async |times: usize| -> anyhow::Result<()> {
        for number in 0..times {
            let watch = watch()?;
            // Some stop before they start, some while they start, some later.
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
    assert_eq!(
        (
            alive_tasks(),
            maps.watches().len(),
            informer.stats().handlers.len()
        ),
        (tasks, 1, 0)
    );
    let grown = resident()?.saturating_sub(memory);
    assert!(grown < 8 * 1024, "{grown} KiB after ten thousand watches");
    assert_eq!(
        server.server().journal().count("watch secrets"),
        1,
        "one informer serves all watches"
    );

    // A thousand watches at the same time.
    let watches: Vec<_> = (0..1000).map(|_| watch()).collect::<Result<_, _>>()?;
    for watch in &watches {
        watch.await_synced().await?;
    }
    assert_eq!(
        (informer.stats().handlers.len(), maps.watches().len()),
        (1000, 1001)
    );
    for watch in &watches {
        watch.stop().await;
    }
    assert_eq!(
        (informer.stats().handlers.len(), maps.watches().len()),
        (0, 1)
    );
    maps.stop().await?;
    fixture.stop().await
}

#[tokio::test(start_paused = true)]
async fn an_informer_is_removed_after_its_last_watch_stopped() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let fixture = Fixture::new(&server).await?;
    let (reconciler, _runs) = recorder::<Request>();
    let (controller, task) = Controller::builder("secrets")
        .cache(&fixture.cache)
        .build(reconciler)?;
    let watch = || controller.watch(Kind::new(Select::<Secret>::new(), handler::object()));
    // Includes a watch that is stopped before the controller runs.
    watch()?.stop().await;
    let running = tokio::spawn(task.run_until(std::future::pending()));
    let [one, two] = [watch()?, watch()?];
    one.await_synced().await?;
    two.await_synced().await?;
    one.stop().await;
    sleep(HOUR).await;
    assert_eq!(
        fixture.cache.informers().len(),
        1,
        "another watch uses the informer"
    );
    two.stop().await;
    // Handles of stopped watches do not keep the informer.
    sleep(Duration::from_secs(29)).await;
    assert_eq!(fixture.cache.informers().len(), 1);
    sleep(Duration::from_secs(2)).await;
    assert!(fixture.cache.informers().is_empty());
    let watches = server.server().journal().count("watch secrets");
    sleep(HOUR).await;
    assert_eq!(server.server().journal().count("watch secrets"), watches);
    assert!(matches!(one.state(), WatchState::Stopped) && controller.watches().is_empty());

    // The watches of a stopped controller stop with it.
    let third = watch()?;
    third.await_synced().await?;
    controller.stop().await;
    running.await??;
    sleep(Duration::from_secs(31)).await;
    assert!(fixture.cache.informers().is_empty());
    assert!(matches!(watch(), Err(WatchError::ControllerStopped(name)) if name == "secrets"));
    fixture.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_handler_call_starts_after_its_watch_stopped() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    let fixture = Fixture::new(&server).await?;
    fixture.client.create(&fixture.map("a", "")).await?;
    let (reconciler, _runs) = recorder::<Request>();
    let maps = StartedController::new(
        Controller::builder("maps")
            .cache(&fixture.cache)
            .for_::<ConfigMap>()
            .build(reconciler),
    )?;
    let writing = async {
        loop {
            fixture.touch::<ConfigMap>("a").await?;
        }
    };
    let stopping = async {
        for _ in 0..100 {
            let calls = SharedVec::new();
            let handler = handler::from_fn({
                let calls = calls.clone();
                move |_: &Event<ConfigMap>, _: &Enqueue<Request>| calls.add(())
            });
            let watch = maps.watch(Kind::new(Select::<ConfigMap>::new(), handler))?;
            until(|| calls.len() > 2).await;
            watch.stop().await;
            let called = calls.len();
            for _ in 0..5 {
                fixture.touch::<ConfigMap>("a").await?;
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
    fixture.stop().await
}

/// Reconciler that watches the kinds that its objects name, with a handle from before the
/// controller was built.
#[tokio::test(start_paused = true)]
async fn a_reconciler_can_add_and_stop_watches() -> anyhow::Result<()> {
    let server = Embedded::start()?;
    server.install([definition("example.com")]).await?;
    let fixture = Fixture::new(&server).await?;
    let builder = Controller::builder("maps")
        .cache(&fixture.cache)
        .for_::<ConfigMap>();
    let (handle, watch) = (builder.handle(), SharedVec::<WatchHandle>::new());
    let unbuilt = handle.watch(Kind::new(Select::<Secret>::new(), handler::object()));
    assert!(
        matches!(unbuilt, Err(WatchError::NeverBuilt(_))),
        "{unbuilt:?}"
    );
    let client = fixture.client.clone();
    let (reconciler, mut runs) = super::fixture::recording({
        let watch = watch.clone();
        move |request: Request, _| {
            let (client, handle, watch) = (client.clone(), handle.clone(), watch.clone());
            async move {
                match client.get::<ConfigMap>(&request).await? {
                    Some(_) if watch.len() == 0 => {
                        let later = Select::dynamic(gizmo("example.com"));
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
    let maps = StartedController::new(builder.build(reconciler))?;
    fixture.client.create(&fixture.map("a", "")).await?;
    runs.expect(&fixture.key("a")).await;
    make(&fixture, "example.com", "one").await?;
    runs.expect(&fixture.key("one")).await;
    fixture.delete::<ConfigMap>("a").await?;
    runs.expect(&fixture.key("a")).await;
    until(|| maps.watches().len() == 1).await;
    make(&fixture, "example.com", "two").await?;
    sleep(Duration::from_mins(1)).await;
    runs.expect_none();
    maps.stop().await?;
    fixture.stop().await
}
