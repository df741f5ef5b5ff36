//! News from outside the cluster.

use super::support::{Told, map, ready, until};
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

/// Says which door was seen, and holds the source up until it is let go.
fn doors(told: &Told, gate: &Arc<Gate>) -> impl Handler<ConfigMap, Request> + use<> {
    let (told, gate) = (told.clone(), gate.clone());
    handler::map_async(move |map: Object<ConfigMap>| {
        let (told, gate) = (told.clone(), gate.clone());
        async move {
            gate.open().await;
            told.say(format!("{} {}", map.name(), map.meta().labels().get("door").unwrap_or_default()));
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

// Catalogue 44
/// Upstream: "should get events from the channel, also those that were sent before".
#[tokio::test(start_paused = true)]
async fn what_is_sent_before_there_is_a_destination_is_kept_for_the_first_one() {
    let (channel, queue, other) = (Channel::new(2), WorkQueue::default(), WorkQueue::default());
    for name in ["a", "b", "c", "a"] {
        channel.send(named(name));
    }
    let source = channel.source(handler::object());
    let late = channel.source(handler::object());
    channel.send(named("d"));
    let watch = source.start(&queue).expect("it starts");
    let late = late.start(&other).expect("it starts");
    until(|| watch.stats().events == 4 && late.stats().events == 1).await;
    assert_eq!(ready(&queue), ["a", "b", "c", "d"].map(key));
    assert_eq!(ready(&other), [key("d")], "it was made when the others had been sent");
    assert!(matches!(watch.state(), WatchState::Synced), "nobody waits for a channel");
    assert_eq!(watch.name(), "channel source");
}

#[tokio::test(start_paused = true)]
async fn events_are_generic_and_say_so_in_the_reason() {
    let (channel, queue, told) = (Channel::<ConfigMap>::new(8), WorkQueue::default(), Told::default());
    let watch = channel.source(told.handler()).start(&queue).expect("it starts");
    channel.send(map("shop", "front", "blue"));
    let item = queue.get().await.expect("it is open");
    assert_eq!((item.priority(), item.reasons()[0].as_str()), (Priority::NORMAL, "ConfigMap shop/front generic event"));
    assert_eq!((told.all(), watch.name()), (vec!["told of front".into()], "channel source: ConfigMap"));
}

// Catalogue 44
/// Upstream a full buffer stalls the sender and every other destination.
#[tokio::test(start_paused = true)]
async fn a_slow_destination_loses_no_object_and_stalls_nobody() {
    let (channel, gate) = (Channel::<ConfigMap>::new(4), Arc::new(Notify::new()));
    let (slow, fast) = (Told::default(), Told::default());
    let (queue, released) = (WorkQueue::<String>::default(), gate.clone());
    let stuck = source::from_fn("stuck", {
        let slow = slow.clone();
        let source = channel.source(handler::from_fn(move |event: &Event<ConfigMap>, _| {
            let object = event.object();
            slow.say(format!("{} {}", object.name(), object.meta().labels().get("door").unwrap_or_default()));
        }));
        async move |queue, cx| {
            released.notified().await;
            source.run(queue, cx).await
        }
    });
    let slow_watch = stuck.start(&queue).expect("it starts");
    let watch = channel.source(fast.handler()).start(&queue).expect("it starts");
    for (name, door) in [("a", "1"), ("a", "2"), ("b", "1"), ("a", "3"), ("a", "4"), ("c", "1"), ("a", "5"), ("c", "2")]
    {
        channel.send(map("shop", name, door));
        tokio::task::yield_now().await;
    }
    until(|| watch.stats().events == 8).await;
    assert_eq!(slow.len(), 0);
    gate.notify_one();
    until(|| slow_watch.stats().events == 5).await;
    assert_eq!(slow.all(), ["a 1", "a 2", "b 1", "a 5", "c 2"], "of those that did not fit, the latest");
}

/// Upstream the first one to stop ends it for all.
#[tokio::test(start_paused = true)]
async fn a_destination_that_is_stopped_takes_nobody_with_it() {
    let (channel, one, other) = (Channel::new(8), WorkQueue::default(), WorkQueue::default());
    let first = channel.source(handler::object()).start(&one).expect("it starts");
    let second = channel.source(handler::object()).start(&other).expect("it starts");
    channel.send(named("a"));
    until(|| one.len() == 1 && other.len() == 1).await;
    first.stop().await;
    channel.send(named("b"));
    until(|| second.stats().events == 2).await;
    assert_eq!((first.stats().events, ready(&other)), (1, vec![key("a"), key("b")]));
    assert_eq!(format!("{channel:?}"), "Channel { destinations: 1, closed: false, .. }");
    drop(channel.source::<Request>(handler::object()));
    assert_eq!(
        format!("{channel:?}"),
        "Channel { destinations: 1, closed: false, .. }",
        "one that never ran is gone, too"
    );
}

// Catalogue 44
#[tokio::test(start_paused = true)]
async fn a_channel_that_is_closed_ends_its_destinations_after_what_they_have() {
    let (channel, queue, told, gate) = (Channel::new(8), WorkQueue::default(), Told::default(), Arc::default());
    for name in ["a", "b"] {
        channel.send(map("shop", name, "blue"));
    }
    let watch = channel.source(doors(&told, &gate)).start(&queue).expect("it starts");
    channel.close();
    channel.send(map("shop", "c", "blue"));
    sleep(Duration::from_secs(10)).await;
    assert!(matches!(watch.state(), WatchState::Starting), "what was left for later goes on: {:?}", watch.state());
    gate.0.send_replace(true);
    until(|| matches!(watch.state(), WatchState::Stopped)).await;
    assert_eq!(ready(&queue), ["a", "b"].map(key));
    let after = channel.source(doors(&told, &gate)).start(&queue).expect("it starts");
    until(|| matches!(after.state(), WatchState::Stopped)).await;
    after.await_synced().await.expect("there is nothing to wait for");
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_nobody_can_send_to_any_more_is_closed() {
    let channel = Channel::<ConfigMap>::new(8);
    let clone = channel.clone();
    let watch = channel.source(handler::object()).start(&WorkQueue::default()).expect("it starts");
    drop(channel);
    clone.send(map("shop", "a", "blue"));
    until(|| watch.stats().events == 1).await;
    assert!(matches!(watch.state(), WatchState::Synced));
    drop(clone);
    until(|| matches!(watch.state(), WatchState::Stopped)).await;
}

// Catalogue 44
#[tokio::test(start_paused = true)]
async fn a_filter_rejects_events_of_a_channel_too() {
    let (channel, queue) = (Channel::new(8), WorkQueue::default());
    let source = channel.source(handler::object()).filter(predicate::object(|object| object.name() != "b"));
    let watch = source.start(&queue).expect("it starts");
    for name in ["a", "b", "c"] {
        channel.send(named(name));
    }
    until(|| watch.stats().events == 3).await;
    assert_eq!((ready(&queue), watch.stats().dropped), (vec![key("a"), key("c")], 1));
}

/// A name is not all that tells objects apart.
#[tokio::test(start_paused = true)]
async fn a_full_buffer_loses_no_object_of_another_kind_with_the_same_name() {
    let channel = Channel::new(1);
    let (told, queue) = (Told::default(), WorkQueue::<Request>::default());
    let pod: Pod = serde_json::from_value(json!({"metadata": {"namespace": "shop", "name": "a"}})).expect("a pod");
    channel.send(Object::from(pod).erase());
    channel.send(Object::from(map("shop", "a", "blue")).erase());
    channel.send(Object::from(map("shop", "a", "red")).erase());
    let seen = told.clone();
    let handler = handler::map(move |object: &Object| {
        seen.say(object.gvk().map(|gvk| gvk.kind).unwrap_or_default());
        [object.key().clone()]
    });
    channel.source(handler).start(&queue).expect("it starts");
    until(|| told.len() == 2).await;
    assert_eq!(told.all(), ["Pod", "ConfigMap"]);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_has_been_told_when_the_last_destination_goes_is_kept_for_the_next_one() {
    let (channel, queue) = (Channel::new(8), WorkQueue::default());
    channel.send(named("early"));
    drop(channel.source::<Request>(handler::object()));
    channel.send(named("between"));
    channel.source(handler::object()).start(&queue).expect("it starts");
    until(|| queue.len() == 2).await;
    assert_eq!(ready(&queue), [key("between"), key("early")]);
}
