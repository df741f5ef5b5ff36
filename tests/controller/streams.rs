//! Tests of kube-runtime streams as sources.

use super::{
    support::{RecordedEvents, delete, make, ready, set_color, until},
    test_controller::{TestController, builder, with_timeout},
};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use kube_runtime::{
    WatchStreamExt, reflector,
    watcher::{self, Config, watcher},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};
use steersman::{
    event::Event,
    object::DecodeError,
    predicate::LabelsChanged,
    prelude::*,
    source::{StreamSource, WatchError, WatchState},
    testing::{Embedded, Env, TestServer, eventually},
};
use steersman_apiserver::Fault;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

type Item = Result<watcher::Event<ConfigMap>, watcher::Error>;

/// Selects the config maps of the tests.
///
/// Excludes those that Kubernetes creates in each namespace.
fn labelled() -> Config {
    Config::default().labels("color")
}

fn config_maps(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

fn embedded() -> (Embedded, Client) {
    let server = Embedded::start().expect("the server starts");
    let client = server.client().expect("a client");
    (server, client)
}

fn config_map(name: &str) -> ConfigMap {
    super::support::map("default", name, "blue")
}

/// Creates a source of these items, which reports its events to `recorded`.
fn source_of(
    items: impl IntoIterator<Item = Item, IntoIter: Send + 'static>,
    recorded: &RecordedEvents,
) -> StreamSource<ConfigMap, String> {
    source::stream(stream::iter(items), recorded.handler())
}

fn failed() -> Item {
    Err(watcher::Error::NoResourceVersion)
}

steersman::env_test! {
    async fn a_watcher_of_kube_runtime_is_a_source(env: Env) -> anyhow::Result<()> {
        let client = env.client()?;
        for config in [labelled(), labelled().streaming_lists(), labelled().page_size(3)] {
            let namespace = env.namespace("streams").await?;
            for number in 0..10 {
                make(&client, &namespace, &format!("map-{number}"), "blue").await;
            }
            // The watcher's list may come from the watch cache of the server, which lags behind.
            let api = config_maps(&client, &namespace);
            eventually(async || {
                let list = api.list(&ListParams::default().match_any()).await?;
                let made = list.items.iter().filter(|map| map.name_any().starts_with("map-"));
                anyhow::Ok((made.count() == 10).then_some(()))
            })
            .await?;
            let recorded = RecordedEvents::default();
            let queue = WorkQueue::default();
            let watch = source::stream(watcher(api, config), recorded.handler()).start(&queue)?;
            assert_eq!(watch.name(), "stream source: ConfigMap");
            watch.await_synced().await?;
            let names: Vec<_> = (0..10).map(|number| format!("map-{number}")).collect();
            assert_eq!(ready(&queue), names);
            assert!(recorded.all().iter().all(|recorded| recorded.starts_with("listed")), "{:?}", recorded.all());

            make(&client, &namespace, "new", "blue").await;
            set_color(&client, &namespace, "new", "red").await;
            delete(&client, &namespace, "new").await;
            until(|| recorded.len() == 13).await;
            assert_eq!(recorded.all()[10..], ["created new", "updated new", "deleted new"]);
            watch.stop().await;
            make(&client, &namespace, "later", "blue").await;
            assert!(matches!(watch.state(), WatchState::Stopped));
            assert_eq!(recorded.len(), 13);
        }
        Ok(())
    }

    async fn a_reflector_of_kube_runtime_is_a_source(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = (env.client()?, env.namespace("streams").await?);
        make(&client, &namespace, "a", "blue").await;
        let (store, writer) = reflector::store();
        let stream = watcher(config_maps(&client, &namespace), labelled()).reflect(writer);
        let recorded = RecordedEvents::default();
        let watch = source::stream(stream.touched_objects(), recorded.handler()).start(&WorkQueue::default())?;
        watch.await_synced().await?;
        store.wait_until_ready().await?;
        delete(&client, &namespace, "a").await;
        until(|| recorded.len() == 2).await;
        assert_eq!(recorded.all(), ["generic a", "generic a"]);
        until(|| store.is_empty()).await;
        watch.stop().await;
        Ok(())
    }
}

/// The deletion happens while the watcher cannot watch, and the API server compacts it.
#[tokio::test(start_paused = true)]
async fn a_relist_reports_objects_that_are_missing_as_deleted() {
    for config in [labelled(), labelled().streaming_lists()] {
        let (server, client) = embedded();
        for name in ["a", "b", "c"] {
            make(&client, "default", name, "blue").await;
        }
        let recorded = RecordedEvents::default();
        let stream = watcher(config_maps(&client, "default"), config);
        let watch = source::stream(stream, recorded.handler())
            .start(&WorkQueue::default())
            .expect("the source starts");
        watch.await_synced().await.expect("synced");
        let rule = server
            .server()
            .faults()
            .add(Fault::on("watch configmaps").status(503));
        server.restart().await.expect("the server restarts");
        delete(&client, "default", "a").await;
        set_color(&client, "default", "b", "red").await;
        server.server().compact();
        rule.remove();
        with_timeout(until(|| recorded.len() == 5)).await;
        assert_eq!(recorded.all()[3..], ["updated b", "missed a"]);
        with_timeout(until(|| matches!(watch.state(), WatchState::Synced))).await;
        sleep(Duration::from_hours(1)).await;
        assert_eq!(recorded.len(), 5, "c is unchanged");
        watch.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_source_is_degraded_from_an_error_to_the_next_event() {
    let (server, client) = embedded();
    let faults = server.server().faults();
    let rule = faults.add(Fault::on("* configmaps").status(403));
    let recorded = RecordedEvents::default();
    let stream = watcher(config_maps(&client, "default"), labelled());
    let watch = source::stream(stream, recorded.handler())
        .start(&WorkQueue::default())
        .expect("the source starts");
    let error = watch.await_synced().await.expect_err("forbidden");
    assert!(matches!(error, WatchError::Timeout { .. }), "{error:?}");
    let error = error.to_string();
    assert!(
        error.starts_with("stream source: ConfigMap not synced after ")
            && error.contains("forbidden"),
        "{error}"
    );
    let WatchState::Degraded { since, error } = watch.state() else {
        panic!("{:?}", watch.state())
    };
    assert_eq!(error.matches("failed to perform").count(), 1, "{error}");
    sleep(Duration::from_mins(5)).await;
    assert!(
        matches!(watch.state(), WatchState::Degraded { since: still, .. } if still == since),
        "an `Init` is no recovery: {:?}",
        watch.state()
    );
    rule.remove();
    with_timeout(until(|| matches!(watch.state(), WatchState::Synced))).await;

    let rule = faults.add(Fault::on("watch configmaps").status(503));
    server.restart().await.expect("the server restarts");
    with_timeout(until(|| {
        matches!(watch.state(), WatchState::Degraded { .. })
    }))
    .await;
    rule.remove();
    make(&client, "default", "a", "blue").await;
    with_timeout(until(|| matches!(watch.state(), WatchState::Synced))).await;
    with_timeout(until(|| recorded.all() == ["created a"])).await;
    watch.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_stream_is_polled_with_a_backoff() {
    let polls = Arc::new(AtomicU32::new(0));
    let counted = polls.clone();
    let failing_source = stream::repeat_with(move || {
        counted.fetch_add(1, Relaxed);
        failed()
    });
    let failing_source = failing_source.take(1000).chain(stream::pending());
    let watch = source::stream(failing_source, RecordedEvents::default().handler())
        .start(&WorkQueue::default())
        .expect("the source starts");
    sleep(Duration::from_mins(10)).await;
    let polls = polls.load(Relaxed);
    assert!((10..60).contains(&polls), "{polls}");
    let started = Instant::now();
    watch.stop().await;
    assert_eq!(started.elapsed(), Duration::ZERO, "a stop ends the wait");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_stops_the_source_if_it_was_complete_and_fails_it_otherwise() {
    use watcher::Event::{Apply, Init, InitApply, InitDone};
    let complete = || vec![Ok(Init), Ok(InitApply(config_map("a"))), Ok(InitDone)];
    let run = async |items: Vec<Item>| {
        let recorded = RecordedEvents::default();
        let watch = source_of(items, &recorded)
            .start(&WorkQueue::default())
            .expect("the source starts");
        let ended = || matches!(watch.state(), WatchState::Stopped | WatchState::Failed(_));
        with_timeout(until(ended)).await;
        let error = match watch.state() {
            WatchState::Failed(error) => error.to_string(),
            _ => String::new(),
        };
        (recorded.all(), error)
    };
    let (recorded, error) = run(complete()).await;
    assert_eq!((recorded.join(", "), &*error), ("listed a".to_owned(), ""));

    let (_, error) = run(vec![Ok(Init), Ok(InitApply(config_map("a")))]).await;
    assert_eq!(error, "stream ended before its first list was complete");

    let mut items = complete();
    items.push(failed());
    let (_, error) = run(items).await;
    assert!(
        error.starts_with("stream ended after an error: no metadata"),
        "{error}"
    );

    let mut items = complete();
    items.extend([failed(), Ok(Apply(config_map("b")))]);
    let (recorded, error) = run(items).await;
    assert_eq!(
        (recorded.join(", "), &*error),
        ("listed a, created b".to_owned(), "")
    );
}

#[tokio::test(start_paused = true)]
async fn events_that_a_predicate_of_a_stream_source_rejects_are_counted_and_not_handled() {
    let (_server, client) = embedded();
    let recorded = RecordedEvents::default();
    let stream = watcher(config_maps(&client, "default"), labelled());
    let source = source::stream(stream, recorded.handler())
        .filter(predicate::object(|map| map.name() != "secret"))
        .filter(LabelsChanged);
    let watch = source
        .start(&WorkQueue::default())
        .expect("the source starts");
    watch.await_synced().await.expect("synced");
    for name in ["secret", "open"] {
        make(&client, "default", name, "blue").await;
        set_color(&client, "default", name, "red").await;
        let patch = Patch::Merge(serde_json::json!({"data": {"color": "green"}}));
        config_maps(&client, "default")
            .patch(name, &PatchParams::default(), &patch)
            .await
            .expect("the object exists");
        delete(&client, "default", name).await;
    }
    with_timeout(until(|| recorded.len() == 3)).await;
    assert_eq!(
        recorded.all(),
        ["created open", "updated open", "deleted open"]
    );
    let stats = watch.stats();
    assert_eq!((stats.events, stats.dropped), (8, 5));
    watch.stop().await;
}

/// The old object has its metadata, and its data only if the source keeps objects.
#[tokio::test(start_paused = true)]
async fn a_stream_source_keeps_metadata_of_old_objects_or_the_objects() {
    for keep_objects in [false, true] {
        let (_server, client) = embedded();
        let (report, mut reported) = mpsc::unbounded_channel();
        let handler = handler::from_fn(move |event: &Event<ConfigMap>, _| {
            if let Some(old) = event.old() {
                let label = old.meta().labels().get("color").map(str::to_owned);
                let data = old.decode().map(|old| old.data.clone().unwrap_or_default());
                report.send((label, data)).expect("the test runs");
            }
        });
        let stream = watcher(config_maps(&client, "default"), labelled());
        let mut source: StreamSource<ConfigMap, String> = source::stream(stream, handler);
        if keep_objects {
            source = source.keep_objects();
        }
        let watch = source
            .start(&WorkQueue::default())
            .expect("the source starts");
        make(&client, "default", "a", "blue").await;
        watch.await_synced().await.expect("synced");
        set_color(&client, "default", "a", "red").await;
        let (label, data) = with_timeout(reported.recv()).await.expect("an update");
        assert_eq!(label.as_deref(), Some("blue"));
        match data {
            Ok(data) if keep_objects => assert_eq!(data["color"], "blue"),
            Err(DecodeError::BodyDropped { .. }) if !keep_objects => {
                with_timeout(until(|| watch.stats().undecoded == 1)).await;
            }
            other => panic!("{other:?}"),
        }
        watch.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_starts_after_the_first_list_of_a_stream_unless_it_is_optional() {
    for optional in [false, true] {
        use watcher::Event::{Init, InitApply, InitDone};
        let (report, items) = mpsc::unbounded_channel::<Item>();
        let items = stream::unfold(items, async |mut items| Some((items.recv().await?, items)));
        let mut source = source::stream(
            items,
            handler::map(|map: &Object<ConfigMap>| [map.name().to_owned()]),
        );
        if optional {
            source = source.optional();
        }
        let reconciled = RecordedEvents::default();
        let reconciler = {
            let reconciled = reconciled.clone();
            reconcile::from_fn(move |name: String, _| {
                reconciled.record(name);
                std::future::ready(Ok(Outcome::done()))
            })
        };
        let test = TestController::run(builder().watches_source(source), reconciler);
        let send = |item| report.send(item).expect("the source runs");
        send(Ok(Init));
        send(Ok(InitApply(config_map("a"))));
        sleep(Duration::from_mins(1)).await;
        assert_eq!(reconciled.len(), 0, "the list is not complete");
        send(failed());
        sleep(Duration::from_mins(1) - Duration::from_secs(10)).await;
        assert_eq!(reconciled.len(), usize::from(optional));
        send(Ok(InitDone));
        with_timeout(until(|| reconciled.all() == ["a"])).await;
        test.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_shared_objects_is_a_source() {
    let objects = stream::iter([Arc::new(config_map("a"))]).chain(stream::pending());
    let queue = WorkQueue::default();
    let watch = source::stream(objects, handler::object())
        .start(&queue)
        .expect("the source starts");
    watch.await_synced().await.expect("synced at once");
    let item = with_timeout(queue.get()).await.expect("the queue is open");
    assert_eq!(item.reasons()[0].to_string(), "ConfigMap generic event");
}
