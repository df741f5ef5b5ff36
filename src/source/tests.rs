//! Behavior of sources before they run and after they end.

use super::{deliver::Pipeline, *};
use crate::{
    cache::{CacheOptions, Select},
    event::Event,
    handler::{self, Handler},
    logging::{Format, subscriber},
    object::{AnyKind, MetadataOnly, Object, ObjectKey},
    predicate::{self, Predicate},
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use parking_lot::Mutex;
use std::{future::pending, io, time::Duration};
use steersman_apiserver::{ApiServer, Options};

const LIMIT: Duration = Duration::from_secs(10);

fn cache() -> (Client, Cache) {
    let server = ApiServer::new(Options::default()).expect("the server starts");
    let client = Client::new(server.service(), "default");
    (
        client.clone(),
        Cache::new(client, CacheOptions::default()).expect("a ready client"),
    )
}

fn kind() -> Kind<ConfigMap, ObjectKey> {
    Kind::new(Select::<ConfigMap>::new(), handler::object())
}

#[tokio::test]
async fn a_kind_source_without_a_cache_is_rejected_when_it_is_watched() {
    let error = Prepared::new(kind(), None, LIMIT).err().expect("no cache");
    assert!(matches!(error, WatchError::NoCache { .. }));
    assert!(
        error.to_string().starts_with(
            "cannot start kind source: ConfigMap: no cache set; use `Kind::with_cache`"
        )
    );
}

#[tokio::test]
async fn a_watched_kind_source_declares_its_kind_and_releases_it_if_it_never_runs() {
    let (_, cache) = cache();
    let prepared = Prepared::new(kind(), Some(&cache), LIMIT).expect("a valid source");
    assert_eq!(cache.informers().len(), 1);
    let watch = prepared.handle();
    drop(prepared);
    assert!(matches!(watch.state(), WatchState::Stopped));
    watch.stop().await;
    assert!(matches!(
        watch.await_synced().await,
        Err(WatchError::Stopped { .. })
    ));
}

#[tokio::test]
async fn a_kind_with_a_cache_uses_that_one_and_no_other() {
    let ((_, own), (_, controllers)) = (cache(), cache());
    let source = Kind::with_cache(&own, Select::<Secret>::new(), handler::object());
    let prepared = Prepared::new(source, Some(&controllers), LIMIT).expect("a valid source");
    assert_eq!(
        (own.informers().len(), controllers.informers().len()),
        (1, 0)
    );
    drop(prepared);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_its_future_is_dropped() {
    let source = from_fn("long", async |_, cx: SourceContext| {
        cx.synced();
        pending().await
    });
    let prepared = Prepared::new(source, None, LIMIT).expect("a valid source");
    let watch = prepared.handle();
    let running = tokio::spawn(prepared.run(Arc::new(WorkQueue::<u32>::default())));
    watch.await_synced().await.expect("synced without an error");
    running.abort();
    watch.stop().await;
    assert!(matches!(watch.state(), WatchState::Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_stopped_before_it_runs_never_does() {
    let source = from_fn("never", async |_, _| panic!("it runs"));
    let prepared = Prepared::new(source, None, LIMIT).expect("a valid source");
    let watch = prepared.handle();
    watch.stop().await;
    prepared.run(Arc::new(WorkQueue::<u32>::default())).await;
    assert!(matches!(watch.state(), WatchState::Stopped));
}

/// A caller that waits before the source runs is not timed out.
#[tokio::test(start_paused = true)]
async fn the_sync_timeout_begins_when_the_source_does() {
    let prepared = Prepared::new(from_fn("silent", async |_, _| pending().await), None, LIMIT)
        .expect("a valid source");
    let watch = prepared.handle();
    let waiting = tokio::spawn({
        let watch = watch.clone();
        async move { watch.await_synced().await }
    });
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(!waiting.is_finished());
    let begun = tokio::time::Instant::now();
    tokio::spawn(prepared.run(Arc::new(WorkQueue::<u32>::default())));
    waiting
        .await
        .expect("the task ends")
        .expect_err("the source never syncs");
    assert_eq!(begun.elapsed(), LIMIT);
}

#[tokio::test(start_paused = true)]
async fn controller_predicates_run_before_those_of_the_watch() {
    let (client, cache) = cache();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let records = |caller: &'static str, rejects: &'static str| {
        let calls = calls.clone();
        move |name: &str| {
            calls.lock().push(format!("{caller} {name}"));
            name != rejects
        }
    };
    let (first, second, own) = (
        records("first", "a"),
        records("second", "b"),
        records("own", "c"),
    );
    let predicates =
        |decide: Box<dyn Fn(&str) -> bool + Send + Sync>| -> Arc<dyn Predicate<AnyKind>> {
            Arc::new(predicate::from_fn(move |event: &Event| {
                decide(event.object().name())
            }))
        };
    let watch =
        Select::<ConfigMap>::new().filter(predicate::object(move |map: &Object<ConfigMap>| {
            own(map.name())
        }));
    let source = Kind::new(watch, handler::object()).controller_predicates(vec![
        predicates(Box::new(first)),
        predicates(Box::new(second)),
    ]);
    let prepared = Prepared::new(source, Some(&cache), LIMIT).expect("a valid source");
    let (watch, queue) = (prepared.handle(), WorkQueue::default());
    tokio::spawn(prepared.run(Arc::new(queue.clone())));
    tokio::spawn(cache.run_until(pending()));
    watch.await_synced().await.expect("synced without an error");
    calls.lock().clear();
    let before = watch.stats();
    let maps = Api::<ConfigMap>::default_namespaced(client);
    for name in ["a", "b", "c", "d"] {
        let metadata = ObjectMeta {
            name: Some(name.into()),
            ..ObjectMeta::default()
        };
        let map = ConfigMap {
            metadata,
            ..ConfigMap::default()
        };
        maps.create(&PostParams::default(), &map)
            .await
            .expect("the object is created");
    }
    loop {
        let item = queue.get().await.expect("the queue is open");
        if item.name() == "d" {
            break;
        }
    }
    let calls = calls.lock().join(", ");
    assert_eq!(
        calls,
        "first a, first b, second b, first c, second c, own c, first d, second d, own d"
    );
    assert_eq!(watch.stats().dropped - before.dropped, 3);
}

/// Log lines of this thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().extend(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Delivers the deletions of two objects without a body. Returns counters and log.
async fn deliver_dropped(
    filter: impl Predicate<ConfigMap>,
    handler: impl Handler<ConfigMap, ObjectKey>,
) -> (WatchStats, String) {
    let lines = Lines::default();
    let (subscriber, _) = subscriber(Format::Json, "debug", {
        let lines = lines.clone();
        move || lines.clone()
    })
    .expect("a filter");
    let _guard = tracing::subscriber::set_default(subscriber);
    let pipeline = Pipeline {
        controller_predicates: Vec::new(),
        predicates: vec![Box::new(filter)],
        handler: Box::new(handler),
    };
    let source = from_fn("test", async move |queue, cx: SourceContext| {
        let delivery = pipeline.connect("ConfigMap", queue, cx.clone());
        for name in ["a", "b", "c"] {
            let key = ObjectKey::new("shop", name);
            let metadata = Arc::new(MetadataOnly::named(key.clone()));
            delivery.deliver(&Event::delete(Object::dropped(key, metadata)));
        }
        cx.synced();
        pending().await
    });
    let prepared = Prepared::new(source, None, LIMIT).expect("a valid source");
    let watch = prepared.handle();
    let running = tokio::spawn(prepared.run(Arc::new(WorkQueue::<ObjectKey>::default())));
    watch.await_synced().await.expect("synced without an error");
    running.abort();
    let lines = String::from_utf8(std::mem::take(&mut *lines.0.lock())).expect("text");
    (watch.stats(), lines)
}

#[tokio::test(start_paused = true)]
async fn a_predicate_or_mapping_that_cannot_decode_a_deleted_object_is_counted_and_logged() {
    let reads = |map: &Object<ConfigMap>| map.decode().is_ok_and(|map| map.data.is_some());
    let by_body = |map: &Object<ConfigMap>| map.decode().map(|_| [map.key().clone()]);
    let (stats, lines) = deliver_dropped(predicate::object(reads), handler::object()).await;
    assert_eq!(
        (stats.events, stats.dropped, stats.undecoded, stats.panics),
        (3, 3, 3, 0)
    );
    assert_eq!(
        lines.matches(r#""callee":"predicate""#).count(),
        3,
        "{lines}"
    );
    assert_eq!(
        lines.matches("only its metadata was kept").count(),
        3,
        "{lines}"
    );
    assert_eq!(
        lines.matches("WARN").count(),
        2,
        "the first and the second: {lines}"
    );

    let (stats, lines) = deliver_dropped(predicate::object(|_| true), handler::map(by_body)).await;
    assert_eq!(
        (stats.events, stats.dropped, stats.undecoded, stats.failures),
        (3, 0, 3, 0)
    );
    assert_eq!(lines.matches(r#""callee":"handler""#).count(), 3, "{lines}");

    let (stats, lines) = deliver_dropped(predicate::object(|_| true), handler::object()).await;
    assert_eq!(stats.undecoded, 0, "metadata is enough");
    assert!(
        !lines.contains("decoding object without body failed"),
        "{lines}"
    );
}
