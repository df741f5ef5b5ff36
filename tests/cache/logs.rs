//! Tests of the log lines of informers: one per problem.

use super::support::{Running, create_map, until};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Resource, api::ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::{Arc, Mutex, Once},
};
use steersman::{
    cache::{Cache, CacheOptions, InformerState, Select},
    logging::{Format, subscriber},
    testing::{Embedded, TestServer},
};
use steersman_apiserver::Fault;
use tracing::subscriber::{DefaultGuard, set_default, set_global_default};

/// Config map whose color is red or green.
#[derive(Clone, Debug, Serialize, Deserialize, Resource)]
#[resource(inherit = ConfigMap)]
struct Painted {
    metadata: ObjectMeta,
    data: BTreeMap<String, Color>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Color {
    Red,
    Green,
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("not poisoned").extend(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// Captures the log of this thread until the guard is dropped.
    fn here() -> (Self, DefaultGuard) {
        // Without a global subscriber, a callsite first used on another thread is cached as
        // disabled.
        static EVERYWHERE: Once = Once::new();
        EVERYWHERE.call_once(|| {
            let (disabled, _) = subscriber(Format::Human, "off", io::sink).expect("a filter");
            set_global_default(disabled).expect("no other logger is set");
        });
        let lines = Self::default();
        let (subscriber, _) = subscriber(Format::Json, "info", {
            let lines = lines.clone();
            move || lines.clone()
        })
        .expect("a filter");
        (lines, set_default(subscriber))
    }

    /// Returns the cache's log lines since the last call.
    fn take(&self) -> Vec<Value> {
        let text = std::mem::take(&mut *self.0.lock().expect("not poisoned"));
        let lines = serde_json::Deserializer::from_slice(&text)
            .into_iter()
            .map(|line| line.expect("a line"));
        lines
            .filter(|line: &Value| {
                line["target"]
                    .as_str()
                    .is_some_and(|it| it.starts_with("steersman::cache"))
            })
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn an_informer_logs_once_when_it_degrades_and_once_when_it_recovers() {
    let (lines, _guard) = Lines::here();
    let server = Embedded::start().expect("the server starts");
    let rejected = server
        .server()
        .faults()
        .add(Fault::on("* configmaps").status(403));
    let cache = Cache::new(server.client().expect("a client"), CacheOptions::default())
        .expect("a ready client");
    let cache = Running::new(cache);
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    until(|| rejected.hits() > 3).await;
    let [line] = &lines.take()[..] else {
        panic!("once")
    };
    assert_eq!(
        (&line["level"], &line["kind"], &line["api_version"]),
        (&"WARN".into(), &"ConfigMap".into(), &"v1".into())
    );
    assert!(
        line["error"]
            .as_str()
            .is_some_and(|error| error.contains("forbidden")),
        "{line}"
    );
    rejected.remove();
    maps.await_synced().await.expect("synced");
    until(|| maps.state() == InformerState::Synced).await;
    let [line] = &lines.take()[..] else {
        panic!("once")
    };
    assert_eq!(
        (&line["level"], &line["kind"]),
        (&"INFO".into(), &"ConfigMap".into())
    );
    cache.stop().await;
    assert!(lines.take().is_empty(), "a stop is not logged");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_decode_is_logged_with_the_reason_and_without_its_values() {
    let (lines, _guard) = Lines::here();
    let server = Embedded::start().expect("the server starts");
    let client = server.client().expect("a client");
    let cache = Cache::new(client.clone(), CacheOptions::default()).expect("a ready client");
    let cache = Running::new(cache);
    let maps = cache
        .informer_of(Select::<Painted>::new().labels("app"))
        .expect("the informer is declared");
    maps.await_synced().await.expect("synced");
    create_map(&client, "default", "good", "red").await;
    let bad = create_map(&client, "default", "bad", "blue").await;
    until(|| maps.stats().decode_errors > 0).await;
    let [line] = &lines.take()[..] else {
        panic!("one of them")
    };
    assert_eq!(
        (&line["level"], &line["kind"]),
        (&"WARN".into(), &"ConfigMap".into())
    );
    assert_eq!(
        (&line["namespace"], &line["name"]),
        (&"default".into(), &"bad".into())
    );
    assert!(
        line["error"]
            .as_str()
            .is_some_and(|error| error.contains("expected `red` or `green`")),
        "{line}"
    );
    assert_eq!(
        line["resource_version"].to_string(),
        bad.metadata.resource_version.expect("a version")
    );
    let message = maps.stats().last_decode_error.expect("an error");
    assert!(
        message.contains("blue") && !line.to_string().contains("blue"),
        "{line}"
    );
    cache.stop().await;
}
