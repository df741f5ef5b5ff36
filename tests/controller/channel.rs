//! Tests of channel sources, for events from outside of the cluster.

use super::support::{RecordedEvents, map, ready, until};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::json;
use std::{sync::Arc, time::Duration};
use steersman::{
    event::Event,
    handler::Handler,
    prelude::*,
    reconcile::Request,
    source::{Channel, WatchState},
};
use tokio::{sync::Notify, time::sleep};

fn named(name: &str) -> Object {
    Object::named(ObjectKey::new("shop", name))
}

fn key(name: &str) -> Request {
    Request::new("shop", name)
}

/// Returns a handler that waits for the gate, then records name and color of the object.
fn record_colors(
    recorded: &RecordedEvents,
    gate: &Arc<Gate>,
) -> impl Handler<ConfigMap, Request> + use<> {
    let (recorded, gate) = (recorded.clone(), gate.clone());
    handler::map_async(move |map: Object<ConfigMap>| {
        let (recorded, gate) = (recorded.clone(), gate.clone());
        async move {
            gate.open().await;
            recorded.record(format!(
                "{} {}",
                map.name(),
                map.meta().labels().get("color").unwrap_or_default()
            ));
            [map.key().clone()]
        }
    })
}

#[derive(Default)]
struct Gate(tokio::sync::watch::Sender<bool>);

impl Gate {
    async fn open(&self) {
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

/// Port of controller-runtime's "should get events from the channel, also those that were sent
/// before".
#[tokio::test(start_paused = true)]
async fn events_sent_before_the_first_source_exists_are_delivered_to_it() {
    let (channel, queue, other) = (Channel::new(2), WorkQueue::default(), WorkQueue::default());
    for name in ["a", "b", "c", "a"] {
        channel.send(named(name));
    }
    let source = channel.source(handler::object());
    let late = channel.source(handler::object());
    channel.send(named("d"));
    let watch = source.start(&queue).expect("the source starts");
    let late = late.start(&other).expect("the source starts");
    until(|| watch.stats().events == 4 && late.stats().events == 1).await;
    assert_eq!(ready(&queue), ["a", "b", "c", "d"].map(key));
    assert_eq!(
        ready(&other),
        [key("d")],
        "the source was created after the other events"
    );
    assert!(
        matches!(watch.state(), WatchState::Synced),
        "a channel is synced at once"
    );
    assert_eq!(watch.name(), "channel source");
}

#[tokio::test(start_paused = true)]
async fn channel_events_are_generic_events() {
    let (channel, queue, recorded) = (
        Channel::<ConfigMap>::new(8),
        WorkQueue::default(),
        RecordedEvents::default(),
    );
    let watch = channel
        .source(recorded.handler())
        .start(&queue)
        .expect("the source starts");
    channel.send(map("shop", "front", "blue"));
    let item = queue.get().await.expect("the queue is open");
    assert_eq!(
        (item.priority(), item.reasons()[0].as_str()),
        (Priority::NORMAL, "ConfigMap shop/front generic event")
    );
    assert_eq!(
        (recorded.all(), watch.name()),
        (vec!["generic front".into()], "channel source: ConfigMap")
    );
}

/// In controller-runtime a full buffer blocks the sender and every other destination.
#[tokio::test(start_paused = true)]
async fn a_slow_source_gets_the_latest_event_per_object_and_delays_no_other_source() {
    let (channel, gate) = (Channel::<ConfigMap>::new(4), Arc::new(Notify::new()));
    let (slow, fast) = (RecordedEvents::default(), RecordedEvents::default());
    let (queue, released) = (WorkQueue::<String>::default(), gate.clone());
    let stuck = source::from_fn("stuck", {
        let slow = slow.clone();
        let source = channel.source(handler::from_fn(move |event: &Event<ConfigMap>, _| {
            let object = event.object();
            slow.record(format!(
                "{} {}",
                object.name(),
                object.meta().labels().get("color").unwrap_or_default()
            ));
        }));
        async move |queue, cx| {
            released.notified().await;
            source.run(queue, cx).await
        }
    });
    let slow_watch = stuck.start(&queue).expect("the source starts");
    let watch = channel
        .source(fast.handler())
        .start(&queue)
        .expect("the source starts");
    for (name, color) in [
        ("a", "1"),
        ("a", "2"),
        ("b", "1"),
        ("a", "3"),
        ("a", "4"),
        ("c", "1"),
        ("a", "5"),
        ("c", "2"),
    ] {
        channel.send(map("shop", name, color));
        tokio::task::yield_now().await;
    }
    until(|| watch.stats().events == 8).await;
    assert_eq!(slow.len(), 0);
    gate.notify_one();
    until(|| slow_watch.stats().events == 5).await;
    assert_eq!(
        slow.all(),
        ["a 1", "a 2", "b 1", "a 5", "c 2"],
        "the latest of the events that did not fit"
    );
}

/// In controller-runtime the first destination that stops ends the source for all.
#[tokio::test(start_paused = true)]
async fn a_stopped_source_does_not_stop_the_others_of_its_channel() {
    let (channel, one, other) = (Channel::new(8), WorkQueue::default(), WorkQueue::default());
    let first = channel
        .source(handler::object())
        .start(&one)
        .expect("the source starts");
    let second = channel
        .source(handler::object())
        .start(&other)
        .expect("the source starts");
    channel.send(named("a"));
    until(|| one.len() == 1 && other.len() == 1).await;
    first.stop().await;
    channel.send(named("b"));
    until(|| second.stats().events == 2).await;
    assert_eq!(
        (first.stats().events, ready(&other)),
        (1, vec![key("a"), key("b")])
    );
    assert_eq!(
        format!("{channel:?}"),
        "Channel { destinations: 1, closed: false, .. }"
    );
    drop(channel.source::<Request>(handler::object()));
    assert_eq!(
        format!("{channel:?}"),
        "Channel { destinations: 1, closed: false, .. }",
        "a dropped source that never ran is removed"
    );
}

#[tokio::test(start_paused = true)]
async fn a_closed_channel_stops_its_sources_after_their_buffered_events() {
    let (channel, queue, recorded, gate) = (
        Channel::new(8),
        WorkQueue::default(),
        RecordedEvents::default(),
        Arc::default(),
    );
    for name in ["a", "b"] {
        channel.send(map("shop", name, "blue"));
    }
    let watch = channel
        .source(record_colors(&recorded, &gate))
        .start(&queue)
        .expect("the source starts");
    channel.close();
    channel.send(map("shop", "c", "blue"));
    sleep(Duration::from_secs(10)).await;
    assert!(
        matches!(watch.state(), WatchState::Starting),
        "asynchronous mappings continue: {:?}",
        watch.state()
    );
    gate.0.send_replace(true);
    until(|| matches!(watch.state(), WatchState::Stopped)).await;
    assert_eq!(ready(&queue), ["a", "b"].map(key));
    let after = channel
        .source(record_colors(&recorded, &gate))
        .start(&queue)
        .expect("the source starts");
    until(|| matches!(after.state(), WatchState::Stopped)).await;
    after
        .await_synced()
        .await
        .expect("a closed channel is synced");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_sender_closes_the_channel() {
    let channel = Channel::<ConfigMap>::new(8);
    let clone = channel.clone();
    let watch = channel
        .source(handler::object())
        .start(&WorkQueue::default())
        .expect("the source starts");
    drop(channel);
    clone.send(map("shop", "a", "blue"));
    until(|| watch.stats().events == 1).await;
    assert!(matches!(watch.state(), WatchState::Synced));
    drop(clone);
    until(|| matches!(watch.state(), WatchState::Stopped)).await;
}

#[tokio::test(start_paused = true)]
async fn a_predicate_applies_to_events_of_a_channel() {
    let (channel, queue) = (Channel::new(8), WorkQueue::default());
    let source = channel
        .source(handler::object())
        .filter(predicate::object(|object| object.name() != "b"));
    let watch = source.start(&queue).expect("the source starts");
    for name in ["a", "b", "c"] {
        channel.send(named(name));
    }
    until(|| watch.stats().events == 3).await;
    assert_eq!(
        (ready(&queue), watch.stats().dropped),
        (vec![key("a"), key("c")], 1)
    );
}

/// Objects of different kinds can have the same name.
#[tokio::test(start_paused = true)]
async fn a_full_buffer_keeps_objects_of_different_kinds_with_the_same_name() {
    let channel = Channel::new(1);
    let (recorded, queue) = (RecordedEvents::default(), WorkQueue::<Request>::default());
    let pod: Pod = serde_json::from_value(json!({"metadata": {"namespace": "shop", "name": "a"}}))
        .expect("a pod");
    channel.send(Object::from(pod).erase());
    channel.send(Object::from(map("shop", "a", "blue")).erase());
    channel.send(Object::from(map("shop", "a", "red")).erase());
    let seen = recorded.clone();
    let handler = handler::map(move |object: &Object| {
        seen.record(object.gvk().map(|gvk| gvk.kind).unwrap_or_default());
        [object.key().clone()]
    });
    channel
        .source(handler)
        .start(&queue)
        .expect("the source starts");
    until(|| recorded.len() == 2).await;
    assert_eq!(recorded.all(), ["Pod", "ConfigMap"]);
}

#[tokio::test(start_paused = true)]
async fn undelivered_events_of_a_dropped_source_go_to_the_next_one() {
    let (channel, queue) = (Channel::new(8), WorkQueue::default());
    channel.send(named("early"));
    drop(channel.source::<Request>(handler::object()));
    channel.send(named("between"));
    channel
        .source(handler::object())
        .start(&queue)
        .expect("the source starts");
    until(|| queue.len() == 2).await;
    assert_eq!(ready(&queue), [key("between"), key("early")]);
}
