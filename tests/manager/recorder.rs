//! Tests of the event recorder, on both servers and in virtual time.

use crate::support::{Running, builder, client, server};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Node},
    events::v1::Event,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::json;
use std::time::Duration;
use steersman::{
    manager::{ManagerError, RunContext, Stage},
    prelude::*,
    recorder::{EventType, Rate, Recorder, RecorderError, RecorderOptions, Reference},
    testing::{Env, TestServer},
};
use steersman_apiserver::{ApiServer, Fault};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

fn map(namespace: &str, name: &str) -> ConfigMap {
    let map = json!({"metadata": {"namespace": namespace, "name": name, "uid": "0a", "resourceVersion": "7"}});
    serde_json::from_value(map).expect("a map")
}

/// Returns the events, oldest first.
async fn events(client: &kube::Client, namespace: &str) -> anyhow::Result<Vec<Event>> {
    let mut events = Api::<Event>::namespaced(client.clone(), namespace)
        .list(&ListParams::default())
        .await?
        .items;
    events.sort_by_key(|event| event.event_time.clone().map(|time| time.0));
    Ok(events)
}

fn count(event: &Event) -> i32 {
    event.series.as_ref().map_or(1, |series| series.count)
}

steersman::env_test! {
    async fn an_event_has_its_fields_and_counts_repetitions(env: Env) -> anyhow::Result<()> {
        let (kube, namespace) = (env.client()?, env.namespace("events").await?);
        let recorder = Recorder::new(&Client::new(kube.clone())?, "example.com/painter")?;
        let (door, window) = (map(&namespace, "door"), map(&namespace, "window"));
        let long = "ö".repeat(1000);
        for _ in 0..3 {
            recorder.event(&door, EventType::Normal, "Painted", "Paint", "it is blue now");
        }
        recorder.event_with(&door, &window, EventType::Warning, "", &"Paint".repeat(50), long);
        recorder.clone().run_until(async {}).await;

        let stats = recorder.stats();
        assert_eq!((stats.recorded, stats.written, stats.repeated, stats.failed), (4, 4, 2, 0), "{stats:?}");
        let events_on_server = events(&kube, &namespace).await?;
        let [painted, warned] = &events_on_server[..] else { panic!("{events_on_server:?}") };
        assert_eq!((painted.type_.as_deref(), count(painted)), (Some("Normal"), 3));
        assert_eq!((painted.reason.as_deref(), painted.action.as_deref()), (Some("Painted"), Some("Paint")));
        assert_eq!(painted.note.as_deref(), Some("it is blue now"));
        assert_eq!(painted.reporting_controller.as_deref(), Some("example.com/painter"));
        let instance = painted.reporting_instance.clone().unwrap_or_default();
        assert!(instance.starts_with("example.com/painter-") && instance.len() <= 128, "{instance}");
        let regarding = painted.regarding.clone().unwrap_or_default();
        assert_eq!((regarding.kind.as_deref(), regarding.api_version.as_deref()), (Some("ConfigMap"), Some("v1")));
        assert_eq!((regarding.name.as_deref(), regarding.uid.as_deref()), (Some("door"), Some("0a")));
        assert_eq!((warned.type_.as_deref(), warned.note.as_ref().map(String::len)), (Some("Warning"), Some(1024)));
        assert_eq!(warned.reason.as_ref().map(String::len), Some(128));
        assert_eq!(warned.related.clone().unwrap_or_default().name.as_deref(), Some("window"));
        Ok(())
    }

    async fn an_event_of_a_cluster_scoped_object_is_in_default(env: Env) -> anyhow::Result<()> {
        let kube = env.client()?;
        let recorder = Recorder::new(&Client::new(kube.clone())?, "painter")?;
        // A name that is not valid for an event.
        let name = format!("system:{}", env.namespace("events").await?);
        let role = Reference::new(&GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", "ClusterRole"), &ObjectKey::cluster_scoped(&name));
        recorder.event(&role, EventType::Normal, "Bound", "Bind", "without subjects");
        recorder.clone().run_until(async {}).await;
        assert_eq!(recorder.stats().written, 1, "{recorder:?}");
        let of_role = |event: &Event| event.regarding.as_ref().is_some_and(|it| it.name.as_deref() == Some(&*name));
        assert_eq!(events(&kube, "default").await?.iter().filter(|event| of_role(event)).count(), 1);
        Ok(())
    }

    async fn an_event_deleted_on_the_server_is_created_again_with_its_count(env: Env) -> anyhow::Result<()> {
        let (kube, namespace) = (env.client()?, env.namespace("events").await?);
        let recorder = Recorder::new(&Client::new(kube.clone())?, "painter")?;
        let door = map(&namespace, "door");
        for _ in 0..2 {
            recorder.event(&door, EventType::Normal, "Painted", "Paint", "blue");
            recorder.clone().run_until(async {}).await;
            let events_on_server = events(&kube, &namespace).await?;
            let name = events_on_server[0].metadata.name.clone().unwrap_or_default();
            Api::<Event>::namespaced(kube.clone(), &namespace).delete(&name, &DeleteParams::default()).await?;
        }
        recorder.event(&door, EventType::Normal, "Painted", "Paint", "blue");
        recorder.clone().run_until(async {}).await;
        let events_on_server = events(&kube, &namespace).await?;
        assert_eq!(events_on_server.iter().map(count).collect::<Vec<_>>(), [3]);
        Ok(())
    }
}

struct RecorderFixture {
    server: ApiServer,
    recorder: Recorder,
    running: JoinHandle<()>,
}

/// Starts a recorder that writes until the end of the test.
fn running(options: RecorderOptions) -> RecorderFixture {
    let server = server();
    let client = Client::new(client(&server)).expect("a ready client");
    let recorder = Recorder::with(&client, "painter", options).expect("a name");
    let running = tokio::spawn(recorder.clone().run_until(std::future::pending()));
    RecorderFixture {
        server,
        recorder,
        running,
    }
}

impl RecorderFixture {
    fn record(&self, note: &str) {
        self.recorder.event(
            &map("default", "door"),
            EventType::Normal,
            "Painted",
            "Paint",
            note,
        );
    }

    async fn counts(&self) -> Vec<i32> {
        let events_on_server = events(&client(&self.server), "default")
            .await
            .expect("a list");
        events_on_server.iter().map(count).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn the_rate_limit_per_object_is_25_events_and_one_per_five_minutes() {
    let fixture = running(RecorderOptions::default());
    for number in 0..30 {
        fixture.record(&format!("{number}"));
    }
    sleep(Duration::from_mins(1)).await;
    let stats = fixture.recorder.stats();
    assert_eq!((stats.written, stats.limited), (25, 5));
    sleep(Duration::from_mins(4)).await;
    fixture.record("once more");
    fixture.record("and again");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(
        (
            fixture.counts().await.len(),
            fixture.recorder.stats().limited
        ),
        (26, 6)
    );
    fixture.running.abort();
}

#[tokio::test(start_paused = true)]
async fn rate_limited_repetitions_are_counted_later() {
    let fixture = running(RecorderOptions::default());
    for _ in 0..500 {
        fixture.record("blue");
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(
        (fixture.counts().await, fixture.recorder.stats().written),
        (vec![25], 25)
    );
    sleep(Duration::from_mins(15)).await;
    let stats = fixture.recorder.stats();
    assert_eq!(
        (fixture.counts().await, stats.written, stats.limited),
        (vec![500], 26, 0)
    );
    // Six minutes without an event end the series.
    fixture.record("blue");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(fixture.counts().await, [500, 1]);
    fixture.running.abort();
}

#[tokio::test(start_paused = true)]
async fn the_overall_rate_limit_delays_events() {
    let overall = Rate {
        burst: 2,
        every: Duration::from_secs(1),
    };
    let fixture = running(RecorderOptions {
        overall,
        ..RecorderOptions::default()
    });
    for number in 0..6 {
        fixture.record(&format!("{number}"));
    }
    sleep(Duration::from_millis(500)).await;
    assert_eq!(fixture.recorder.stats().written, 2);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(fixture.recorder.stats().written, 4);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(
        (
            fixture.recorder.stats().written,
            fixture.recorder.stats().waiting
        ),
        (6, 0)
    );
    fixture.running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_and_counts_events() -> anyhow::Result<()> {
    let server = server();
    let options = RecorderOptions {
        queue: 3,
        ..RecorderOptions::default()
    };
    let recorder = Recorder::with(&Client::new(client(&server))?, "painter", options)?;
    for number in 0..5 {
        recorder.event(
            &map("default", "door"),
            EventType::Normal,
            "Painted",
            "Paint",
            format!("{number}"),
        );
    }
    let stats = recorder.stats();
    assert_eq!(
        (stats.recorded, stats.dropped, stats.waiting, stats.written),
        (5, 2, 3, 0)
    );
    recorder.event(&map("default", "door"), EventType::Normal, "", "", "why?");
    assert_eq!(recorder.stats().failed, 1);
    recorder.clone().run_until(async {}).await;
    assert_eq!((recorder.stats().written, recorder.stats().waiting), (3, 0));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn unavailable_writes_are_retried_and_forbidden_ones_are_not() {
    let fixture = running(RecorderOptions::default());
    fixture
        .server
        .faults()
        .add(Fault::on("POST events").status(503).times(4));
    fixture.record("blue");
    sleep(Duration::from_mins(1)).await;
    assert_eq!(
        (fixture.counts().await, fixture.recorder.stats().failed),
        (vec![1], 0)
    );
    let rejected = fixture
        .server
        .faults()
        .add(Fault::on("POST events").status(403));
    fixture.record("green");
    fixture.record("green");
    sleep(Duration::from_mins(1)).await;
    assert_eq!((fixture.recorder.stats().failed, rejected.hits()), (2, 2));
    rejected.remove();
    fixture.record("green");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(fixture.counts().await, [1, 1]);
    fixture.running.abort();
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_write_times_out_is_written_again() {
    let fixture = running(RecorderOptions::default());
    fixture.server.faults().add(
        Fault::on("POST events")
            .delay(Duration::from_hours(1))
            .times(1),
    );
    fixture.record("blue");
    sleep(Duration::from_secs(70)).await;
    assert_eq!(
        (fixture.counts().await, fixture.recorder.stats().failed),
        (vec![1], 0)
    );
    fixture.running.abort();
}

/// Each write takes the response timeout of 65 s.
#[tokio::test(start_paused = true)]
async fn an_event_whose_writes_keep_timing_out_delays_the_next_one_for_two_minutes() {
    let fixture = running(RecorderOptions::default());
    let hangs = fixture
        .server
        .faults()
        .add(Fault::on("POST events").delay(Duration::from_hours(1)));
    fixture.record("blue");
    fixture.record("green");
    sleep(Duration::from_secs(140)).await;
    let stats = fixture.recorder.stats();
    assert_eq!((stats.failed, stats.waiting), (1, 0), "{stats:?}");
    hangs.remove();
    sleep(Duration::from_secs(70)).await;
    let stats = fixture.recorder.stats();
    assert_eq!((stats.failed, stats.written), (1, 1), "{stats:?}");
    fixture.running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_recorder_within_five_seconds() -> anyhow::Result<()> {
    let server = server();
    let recorder = Recorder::new(&Client::new(client(&server))?, "painter")?;
    server.faults().add(Fault::on("POST events").status(503));
    for number in 0..3 {
        recorder.event(
            &map("default", "door"),
            EventType::Normal,
            "Painted",
            "Paint",
            format!("{number}"),
        );
    }
    let begun = Instant::now();
    recorder.clone().run_until(async {}).await;
    assert!(
        begun.elapsed() <= Duration::from_millis(5100),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!((recorder.stats().dropped, recorder.stats().waiting), (3, 0));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn events_of_a_dropped_recorder_are_counted_as_dropped() -> anyhow::Result<()> {
    let server = server();
    let recorder = Recorder::new(&Client::new(client(&server))?, "painter")?;
    server.faults().add(Fault::on("POST events").status(503));
    for number in 0..3 {
        recorder.event(
            &map("default", "door"),
            EventType::Normal,
            "Painted",
            "Paint",
            format!("{number}"),
        );
    }
    let given = Duration::from_secs(1);
    assert!(
        tokio::time::timeout(given, recorder.clone().run_until(async {}))
            .await
            .is_err(),
        "the stop takes five seconds"
    );
    assert_eq!((recorder.stats().dropped, recorder.stats().waiting), (3, 0));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_manager_writes_events_until_all_runnables_have_ended() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server).build()?;
    let recorder = manager.recorder("example.com/painter")?;
    let recorder_clone = recorder.clone();
    manager.add(Stage::Leader, "painter", async move |cx: RunContext| {
        cx.stopped().await;
        let mut node = Node::default();
        node.metadata.name = Some("n1".into());
        recorder_clone.event(&node, EventType::Normal, "Stopped", "Stop", "stopped");
        Ok(())
    })?;
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    running.stop().await?;
    assert_eq!(events(&client(&server), "default").await?.len(), 1);
    assert!(
        handle
            .metrics_page()
            .contains("steersman_events_written_total{reporter=\"example.com/painter\"} 1\n")
    );
    let bad = handle.recorder("my painter").map(drop);
    assert!(matches!(
        bad,
        Err(ManagerError::Recorder(RecorderError::Name(_)))
    ));
    Ok(())
}
