//! Events of the cluster, on both servers, and as time passes.

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

/// Oldest first.
async fn events(client: &kube::Client, namespace: &str) -> anyhow::Result<Vec<Event>> {
    let mut events = Api::<Event>::namespaced(client.clone(), namespace).list(&ListParams::default()).await?.items;
    events.sort_by_key(|event| event.event_time.clone().map(|time| time.0));
    Ok(events)
}

fn count(event: &Event) -> i32 {
    event.series.as_ref().map_or(1, |series| series.count)
}

steersman::env_test! {
    async fn an_event_says_what_happened_to_which_object_and_repeated_it_is_counted(env: Env) -> anyhow::Result<()> {
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
        assert_eq!((stats.said, stats.written, stats.repeated, stats.failed), (4, 4, 2, 0), "{stats:?}");
        let told = events(&kube, &namespace).await?;
        let [painted, warned] = &told[..] else { panic!("{told:?}") };
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

    async fn an_event_of_what_has_no_namespace_is_in_default(env: Env) -> anyhow::Result<()> {
        let kube = env.client()?;
        let recorder = Recorder::new(&Client::new(kube.clone())?, "painter")?;
        // A name that no event can have.
        let name = format!("system:{}", env.namespace("events").await?);
        let role = Reference::new(&GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", "ClusterRole"), &ObjectKey::cluster_scoped(&name));
        recorder.event(&role, EventType::Normal, "Bound", "Bind", "to nobody");
        recorder.clone().run_until(async {}).await;
        assert_eq!(recorder.stats().written, 1, "{recorder:?}");
        let of_role = |event: &Event| event.regarding.as_ref().is_some_and(|it| it.name.as_deref() == Some(&*name));
        assert_eq!(events(&kube, "default").await?.iter().filter(|event| of_role(event)).count(), 1);
        Ok(())
    }

    async fn an_event_that_the_server_has_forgotten_is_written_anew_with_its_count(env: Env) -> anyhow::Result<()> {
        let (kube, namespace) = (env.client()?, env.namespace("events").await?);
        let recorder = Recorder::new(&Client::new(kube.clone())?, "painter")?;
        let door = map(&namespace, "door");
        for _ in 0..2 {
            recorder.event(&door, EventType::Normal, "Painted", "Paint", "blue");
            recorder.clone().run_until(async {}).await;
            let told = events(&kube, &namespace).await?;
            let name = told[0].metadata.name.clone().unwrap_or_default();
            Api::<Event>::namespaced(kube.clone(), &namespace).delete(&name, &DeleteParams::default()).await?;
        }
        recorder.event(&door, EventType::Normal, "Painted", "Paint", "blue");
        recorder.clone().run_until(async {}).await;
        let told = events(&kube, &namespace).await?;
        assert_eq!(told.iter().map(count).collect::<Vec<_>>(), [3]);
        Ok(())
    }
}

struct Bench {
    server: ApiServer,
    recorder: Recorder,
    running: JoinHandle<()>,
}

/// One that writes for as long as the test lasts.
fn running(options: RecorderOptions) -> Bench {
    let server = server();
    let client = Client::new(client(&server)).expect("a ready client");
    let recorder = Recorder::with(&client, "painter", options).expect("a name");
    let running = tokio::spawn(recorder.clone().run_until(std::future::pending()));
    Bench { server, recorder, running }
}

impl Bench {
    fn say(&self, note: &str) {
        self.recorder.event(&map("default", "door"), EventType::Normal, "Painted", "Paint", note);
    }

    async fn counts(&self) -> Vec<i32> {
        let told = events(&client(&self.server), "default").await.expect("a list");
        told.iter().map(count).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn of_one_object_25_are_written_and_one_more_every_five_minutes() {
    let bench = running(RecorderOptions::default());
    for number in 0..30 {
        bench.say(&format!("{number}"));
    }
    sleep(Duration::from_mins(1)).await;
    let stats = bench.recorder.stats();
    assert_eq!((stats.written, stats.limited), (25, 5));
    sleep(Duration::from_mins(4)).await;
    bench.say("once more");
    bench.say("and again");
    sleep(Duration::from_secs(1)).await;
    assert_eq!((bench.counts().await.len(), bench.recorder.stats().limited), (26, 6));
    bench.running.abort();
}

#[tokio::test(start_paused = true)]
async fn what_is_repeated_too_often_is_written_later_and_none_is_lost() {
    let bench = running(RecorderOptions::default());
    for _ in 0..500 {
        bench.say("blue");
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!((bench.counts().await, bench.recorder.stats().written), (vec![25], 25));
    sleep(Duration::from_mins(15)).await;
    let stats = bench.recorder.stats();
    assert_eq!((bench.counts().await, stats.written, stats.limited), (vec![500], 26, 0));
    // Six minutes of silence have ended the series.
    bench.say("blue");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.counts().await, [500, 1]);
    bench.running.abort();
}

#[tokio::test(start_paused = true)]
async fn of_all_objects_so_many_are_written_in_a_time_and_the_rest_waits() {
    let overall = Rate { burst: 2, every: Duration::from_secs(1) };
    let bench = running(RecorderOptions { overall, ..RecorderOptions::default() });
    for number in 0..6 {
        bench.say(&format!("{number}"));
    }
    sleep(Duration::from_millis(500)).await;
    assert_eq!(bench.recorder.stats().written, 2);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(bench.recorder.stats().written, 4);
    sleep(Duration::from_secs(2)).await;
    assert_eq!((bench.recorder.stats().written, bench.recorder.stats().waiting), (6, 0));
    bench.running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_and_counts_and_nobody_waits() -> anyhow::Result<()> {
    let server = server();
    let options = RecorderOptions { queue: 3, ..RecorderOptions::default() };
    let recorder = Recorder::with(&Client::new(client(&server))?, "painter", options)?;
    for number in 0..5 {
        recorder.event(&map("default", "door"), EventType::Normal, "Painted", "Paint", format!("{number}"));
    }
    let stats = recorder.stats();
    assert_eq!((stats.said, stats.dropped, stats.waiting, stats.written), (5, 2, 3, 0));
    recorder.event(&map("default", "door"), EventType::Normal, "", "", "why?");
    assert_eq!(recorder.stats().failed, 1);
    recorder.clone().run_until(async {}).await;
    assert_eq!((recorder.stats().written, recorder.stats().waiting), (3, 0));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_asked_for_a_while_gets_it_later_and_one_that_refuses_does_not() {
    let bench = running(RecorderOptions::default());
    bench.server.faults().add(Fault::on("POST events").status(503).times(4));
    bench.say("blue");
    sleep(Duration::from_mins(1)).await;
    assert_eq!((bench.counts().await, bench.recorder.stats().failed), (vec![1], 0));
    let refused = bench.server.faults().add(Fault::on("POST events").status(403));
    bench.say("green");
    bench.say("green");
    sleep(Duration::from_mins(1)).await;
    assert_eq!((bench.recorder.stats().failed, refused.hits()), (2, 2));
    refused.remove();
    bench.say("green");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.counts().await, [1, 1]);
    bench.running.abort();
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_write_times_out_is_written_again() {
    let bench = running(RecorderOptions::default());
    bench.server.faults().add(Fault::on("POST events").delay(Duration::from_hours(1)).times(1));
    bench.say("blue");
    sleep(Duration::from_secs(70)).await;
    assert_eq!((bench.counts().await, bench.recorder.stats().failed), (vec![1], 0));
    bench.running.abort();
}

#[tokio::test(start_paused = true)]
async fn told_to_stop_it_ends_within_five_seconds_whatever_the_server_does() -> anyhow::Result<()> {
    let server = server();
    let recorder = Recorder::new(&Client::new(client(&server))?, "painter")?;
    server.faults().add(Fault::on("POST events").status(503));
    for number in 0..3 {
        recorder.event(&map("default", "door"), EventType::Normal, "Painted", "Paint", format!("{number}"));
    }
    let begun = Instant::now();
    recorder.clone().run_until(async {}).await;
    assert!(begun.elapsed() <= Duration::from_millis(5100), "{:?}", begun.elapsed());
    assert_eq!((recorder.stats().dropped, recorder.stats().waiting), (3, 0));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_is_left_when_it_is_not_given_the_time_is_counted() -> anyhow::Result<()> {
    let server = server();
    let recorder = Recorder::new(&Client::new(client(&server))?, "painter")?;
    server.faults().add(Fault::on("POST events").status(503));
    for number in 0..3 {
        recorder.event(&map("default", "door"), EventType::Normal, "Painted", "Paint", format!("{number}"));
    }
    let given = Duration::from_secs(1);
    assert!(tokio::time::timeout(given, recorder.clone().run_until(async {})).await.is_err(), "it would take five");
    assert_eq!((recorder.stats().dropped, recorder.stats().waiting), (3, 0));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_manager_writes_what_is_said_until_everybody_has_ended() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server).build()?;
    let recorder = manager.recorder("example.com/painter")?;
    let said = recorder.clone();
    manager.add(Stage::Leader, "painter", async move |cx: RunContext| {
        cx.stopped().await;
        let mut node = Node::default();
        node.metadata.name = Some("n1".into());
        said.event(&node, EventType::Normal, "Stopped", "Stop", "no paint is left");
        Ok(())
    })?;
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    running.stop().await?;
    assert_eq!(events(&client(&server), "default").await?.len(), 1);
    assert!(handle.metrics_page().contains("steersman_events_written_total{reporter=\"example.com/painter\"} 1\n"));
    let bad = handle.recorder("my painter").map(drop);
    assert!(matches!(bad, Err(ManagerError::Recorder(RecorderError::Name(_)))));
    Ok(())
}
