//! Tests of watch streams that end early.
//!
//! They test which ends count as failures, and when the next watch starts.

use super::{
    response_proxy::{ResponseAction, is_request_for, proxy_client},
    support::{Running, cache, create_map},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;
use serde_json::json;
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use steersman::cache::{CacheOptions, Informer, InformerEvent, InformerState};
use steersman_apiserver::{ApiServer, Fault, Options};
use tokio::time::{Instant, sleep};

fn server() -> ApiServer {
    ApiServer::new(Options::default()).expect("a server without data starts")
}

async fn synced(client: &Client) -> (Running, Informer<ConfigMap>) {
    let cache = cache(client, CacheOptions::default());
    let maps = cache
        .informer::<ConfigMap>()
        .expect("the informer is declared");
    maps.await_synced().await.expect("synced");
    (cache, maps)
}

/// Informer whose watches, but not its lists, are answered by `turn`.
struct Fixture {
    server: ApiServer,
    cache: Running,
    maps: Informer<ConfigMap>,
}

impl Fixture {
    async fn new(turn: impl Fn() -> ResponseAction + Send + Sync + 'static) -> Self {
        let server = server();
        // The server rejects streamed lists, so that lists and watches are separate requests.
        server
            .faults()
            .add(Fault::on("watch configmaps").status(400).times(1));
        let client = proxy_client(&server, move |request| match request {
            watch if is_request_for(watch, "configmaps", "&resourceVersion=") => turn(),
            _ => ResponseAction::Pass,
        });
        let (cache, maps) = synced(&client).await;
        server.journal().clear();
        Self {
            server,
            cache,
            maps,
        }
    }

    /// Lets ten minutes pass.
    ///
    /// Returns the number of watches and the share of time without sync.
    async fn ten_minutes(self) -> (usize, f64) {
        let mut degraded = 0;
        for _ in 0..6000 {
            sleep(Duration::from_millis(100)).await;
            degraded += u32::from(self.maps.state() != InformerState::Synced);
        }
        let watches = self.server.journal().count("watch configmaps");
        self.cache.stop().await;
        (watches, f64::from(degraded) / 6000.0)
    }
}

/// Returns a function that creates events of `default/a`.
///
/// Each event has a higher resource version.
fn events() -> impl Fn() -> String {
    let version = AtomicU64::new(1000);
    move || {
        let version = version.fetch_add(1, Relaxed).to_string();
        let meta =
            json!({"name": "a", "namespace": "default", "uid": "1", "resourceVersion": version});
        format!(
            "{}\n",
            json!({"type": "MODIFIED", "object": {"metadata": meta}})
        )
    }
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_cuts_idle_streams_does_not_degrade_the_informer_or_delay_events() {
    let server = server();
    let direct = Client::new(server.service(), "default");
    let client = proxy_client(&server, |request| match request {
        watch if is_request_for(watch, "configmaps", "watch=true") => {
            ResponseAction::CutIdle(Duration::from_secs(35))
        }
        _ => ResponseAction::Pass,
    });
    let (cache, maps) = synced(&client).await;
    let mut events = maps.events();
    while !matches!(events.next().await, Some(InformerEvent::Synced)) {}
    let states = tokio::spawn({
        let maps = maps.clone();
        async move {
            // A backoff takes at least 0.8 s.
            while maps.state() == InformerState::Synced {
                sleep(Duration::from_millis(100)).await;
            }
            maps.state()
        }
    });
    for number in 0..40 {
        // Between 20 and 80 s: before, at and after a cut.
        sleep(Duration::from_millis(20_000 + number * 7_919 % 60_000)).await;
        let created = Instant::now();
        create_map(&direct, "default", &number.to_string(), "blue").await;
        let Some(InformerEvent::Event(event)) = events.next().await else {
            panic!("an event of {number}")
        };
        assert_eq!(event.object().name(), number.to_string());
        assert!(
            created.elapsed() < Duration::from_millis(1_100),
            "{number}: late by {:?}",
            created.elapsed()
        );
    }
    assert!(maps.stats().watch_restarts >= 20, "{:?}", maps.stats());
    assert!(!states.is_finished(), "{:?}", states.await);
    states.abort();
    cache.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_delivers_an_event_and_dies_at_once_counts_as_a_success() {
    let event = events();
    let fixture = Fixture::new(move || ResponseAction::Break(Duration::ZERO, event())).await;
    let (watches, degraded) = fixture.ten_minutes().await;
    assert!(
        (1000..1500).contains(&watches),
        "{watches}: twice a second on average"
    );
    assert!(degraded == 0.0, "{degraded}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_lived_for_five_seconds_counts_as_a_success() {
    let fixture =
        Fixture::new(|| ResponseAction::Break(Duration::from_secs(5), String::new())).await;
    let (watches, degraded) = fixture.ten_minutes().await;
    assert!(
        (95..125).contains(&watches),
        "{watches}: one in 5.5 s on average"
    );
    assert!(degraded == 0.0, "{degraded}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_dies_younger_without_an_event_backs_off() {
    let fixture =
        Fixture::new(|| ResponseAction::Break(Duration::from_millis(4900), String::new())).await;
    let (watches, degraded) = fixture.ten_minutes().await;
    assert!((10..40).contains(&watches), "{watches}");
    assert!(degraded > 0.5, "{degraded}");
}

#[tokio::test(start_paused = true)]
async fn a_success_resets_the_backoff_of_the_failures_before_it() {
    let number = AtomicU64::new(0);
    // Four failures in a row wait for 12 to 24 s in total, and later ones for 30 to 60 s each.
    let fixture = Fixture::new(move || {
        let age = if number.fetch_add(1, Relaxed) % 5 == 4 {
            6
        } else {
            0
        };
        ResponseAction::Break(Duration::from_secs(age), String::new())
    })
    .await;
    let (watches, _) = fixture.ten_minutes().await;
    assert!((95..180).contains(&watches), "{watches}");
}

/// Lines that end a stream: an error of the server, and a line that is not JSON.
fn last_lines() -> [String; 2] {
    let status = json!({"kind": "Status", "code": 500, "message": "etcd is away"});
    let error = json!({"type": "ERROR", "object": status});
    [format!("{error}\n"), "<html>bad gateway</html>\n".into()]
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_worked_and_ends_with_an_error_or_an_invalid_line_counts_as_a_success() {
    for last in last_lines() {
        let (event, line) = (events(), last.clone());
        let fixture = Fixture::new(move || {
            ResponseAction::ReplaceTimed(vec![
                (Duration::ZERO, event()),
                (Duration::ZERO, line.clone()),
            ])
        })
        .await;
        let (watches, degraded) = fixture.ten_minutes().await;
        assert!((1000..1500).contains(&watches), "{watches}: {last}");
        assert!(degraded == 0.0, "{degraded}: {last}");

        let line = last.clone();
        let lived = Duration::from_secs(5);
        let fixture =
            Fixture::new(move || ResponseAction::ReplaceTimed(vec![(lived, line.clone())])).await;
        let (watches, degraded) = fixture.ten_minutes().await;
        assert!((95..125).contains(&watches), "{watches}: {last}");
        assert!(degraded == 0.0, "{degraded}: {last}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_only_an_error_or_an_invalid_line_backs_off() {
    for last in last_lines() {
        let line = last.clone();
        let fixture = Fixture::new(move || {
            ResponseAction::ReplaceTimed(vec![(Duration::ZERO, line.clone())])
        })
        .await;
        let (watches, degraded) = fixture.ten_minutes().await;
        assert!((10..40).contains(&watches), "{watches}: {last}");
        assert!(degraded > 0.5, "{degraded}: {last}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_the_error_of_a_stream_asks_for_is_waited_for_and_degrades_the_informer() {
    let event = events();
    let details = json!({"retryAfterSeconds": 20});
    let status = json!({"kind": "Status", "code": 429, "message": "busy", "details": details});
    let error = format!("{}\n", json!({"type": "ERROR", "object": status}));
    let fixture = Fixture::new(move || {
        ResponseAction::ReplaceTimed(vec![
            (Duration::ZERO, event()),
            (Duration::ZERO, error.clone()),
        ])
    })
    .await;
    let (watches, degraded) = fixture.ten_minutes().await;
    assert!((29..32).contains(&watches), "{watches}");
    assert!(degraded > 0.9, "{degraded}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_request_that_fails_backs_off() {
    let fixture = Fixture::new(|| ResponseAction::Pass).await;
    fixture
        .server
        .faults()
        .add(Fault::on("* configmaps").status(503));
    // The open stream ends by itself within ten minutes.
    sleep(Duration::from_mins(11)).await;
    fixture.server.journal().clear();
    let Fixture {
        server,
        cache,
        maps,
    } = fixture;
    sleep(Duration::from_mins(10)).await;
    let requests = server.journal().count("* configmaps");
    assert!((10..40).contains(&requests), "{requests}");
    assert!(
        matches!(maps.state(), InformerState::Degraded { .. }),
        "{:?}",
        maps.state()
    );
    cache.stop().await;
}
