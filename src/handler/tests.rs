//! What requests are added with.

use super::*;
use crate::{
    object::{DecodeError, Object, ObjectKey, Payload},
    workqueue::{Priority, Reason},
};
use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use std::time::Duration;

/// What was added, and how.
#[derive(Default)]
struct Added(Mutex<Vec<(Request, Add)>>);

impl Target<Request> for Added {
    fn add(&self, request: Request, add: Add) {
        self.0.lock().push((request, add));
    }
}

fn pod(version: &str) -> Object<Pod> {
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": "1", "controller": true});
    let metadata = json!({"namespace": "shop", "name": "web", "resourceVersion": version, "ownerReferences": [owner]});
    Object::from(serde_json::from_value::<Pod>(json!({ "metadata": metadata })).expect("a pod"))
}

/// A deleted one of which only the metadata is left.
fn dropped(version: &str) -> Object<Pod> {
    let pod = pod(version).decode().expect("a pod");
    let key = ObjectKey::of(&*pod);
    Object::dropped(key.clone(), pod.to_metadata(&Arc::default(), &key))
}

/// The last one that a handler adds for this event.
async fn added(handler: &dyn Handler<Pod, Request>, event: &Event<Pod>) -> Add {
    let (added, laters) = (Arc::new(Added::default()), Laters::default());
    let queue = Enqueue::new(added.clone(), laters.clone(), None);
    handler.handle(event, &queue.because(&Subject::new("Pod"), event));
    laters.attempt_all().await.expect("none fails");
    let (_, add) = added.0.lock().pop().expect("there is one");
    add
}

/// Each with what is told of it, and whether it can wait.
fn events() -> [(Event<Pod>, &'static str, Option<Priority>); 7] {
    [
        (Event::Create { object: pod("1"), initial: true }, "listed", Some(Priority::LOW)),
        (Event::create(pod("1")), "created", None),
        (Event::update(pod("1"), pod("2")), "updated", None),
        (Event::update(pod("1"), pod("1")), "resynced", Some(Priority::LOW)),
        (Event::delete(pod("1")), "deleted", None),
        (Event::Delete { object: pod("1"), state_unknown: true }, "deleted", None),
        (Event::generic(pod("1")), "generic event", None),
    ]
}

type Named = (&'static str, Box<dyn Handler<Pod, Request>>);

fn handlers() -> [Named; 8] {
    let key = |object: &Object<Pod>| object.key().clone();
    [
        ("object", Box::new(object())),
        ("owner", Box::new(owner::<Pod>())),
        ("any owner", Box::new(owner::<Pod>().any())),
        ("map", Box::new(map(move |object: &Object<Pod>| [key(object)]))),
        ("map_async", Box::new(map_async(move |object: Object<Pod>| std::future::ready([key(&object)])))),
        ("from_fn", Box::new(from_fn(move |event: &Event<Pod>, queue: &Enqueue<_>| queue.add(key(event.object()))))),
        (
            "funcs",
            Box::new(
                Funcs::new()
                    .create(move |object, queue: &Enqueue<_>| queue.add(key(object)))
                    .update(move |_, object, queue| queue.add_after(key(object), Duration::ZERO))
                    .delete(move |object, queue| queue.add_rate_limited(key(object)))
                    .generic(move |object, queue| queue.add_with(key(object), Add::default())),
            ),
        ),
        ("wrap", Box::new(wrap(object(), |request| request))),
    ]
}

// Catalogue 39
/// Upstream: the table of ten handlers and six events in `eventhandler_test`.
#[tokio::test]
async fn what_is_no_news_is_added_at_low_priority_by_every_handler() {
    for (name, handler) in handlers() {
        for (event, verb, priority) in events() {
            let add = added(&*handler, &event).await;
            assert_eq!(add.priority, priority, "{name}: {event:?}");
            let reason = add.reason.expect("it has one").to_string();
            assert!(reason.starts_with("Pod ") && reason.ends_with(verb), "{name}: {reason}");
        }
    }
}

#[tokio::test]
async fn a_reason_names_the_object_unless_it_is_the_request_or_one_of_thousands() {
    let reason = async |handler: &dyn Handler<Pod, Request>, event| added(handler, &event).await.reason;
    let other = owner::<Pod>();
    assert_eq!(reason(&object(), Event::create(pod("1"))).await, Some("Pod created".into()));
    assert_eq!(reason(&other, Event::create(pod("1"))).await, Some("Pod shop/web created".into()));
    assert_eq!(reason(&other, Event::Create { object: pod("1"), initial: true }).await, Some("Pod listed".into()));
}

// Catalogue 39
#[tokio::test]
async fn what_is_said_about_a_request_stays() {
    let said = |event: &Event<Pod>, queue: &Enqueue<Request>| {
        let add = Add { priority: Some(Priority::HIGH), reason: Some(Reason::from("mine")), ..Add::default() };
        queue.add_with(event.object().key().clone(), add);
    };
    for (event, ..) in events() {
        let add = added(&from_fn(said), &event).await;
        assert_eq!((add.priority, add.reason), (Some(Priority::HIGH), Some("mine".into())), "{event:?}");
    }
}

#[tokio::test]
async fn owners_of_a_deleted_object_are_found_by_its_metadata() {
    let owner = [Request::new("shop", "owner")];
    for event in [Event::delete(dropped("1")), Event::update(dropped("1"), dropped("2"))] {
        assert_eq!(requests(&super::owner::<Pod>(), event.clone()).await, owner);
        assert_eq!(requests(&super::owner::<Pod>().any(), event).await, owner);
    }
}

/// Requests and later attempts that a handler adds for this event.
async fn mapped(handler: impl Handler<Pod, Request>, event: &Event<Pod>) -> (Vec<Request>, anyhow::Result<()>) {
    let (added, laters) = (Arc::new(Added::default()), Laters::default());
    let queue = Enqueue::new(added.clone(), laters.clone(), None);
    handler.handle(event, &queue.because(&Subject::new("Pod"), event));
    let attempted = laters.attempt_all().await;
    let added = added.0.lock().drain(..).map(|(request, _)| request).collect();
    (added, attempted)
}

fn by_body(pod: &Object<Pod>) -> anyhow::Result<[Request; 1]> {
    pod.decode().context("reading the pod")?;
    Ok([pod.key().clone()])
}

#[tokio::test]
async fn a_mapping_that_cannot_decode_a_deleted_object_is_not_attempted_again() {
    let event = Event::delete(dropped("1"));
    let (added, attempted) = mapped(map(by_body), &event).await;
    assert!(added.is_empty() && attempted.is_ok(), "there is no later attempt: {attempted:?}");
    assert!(event.failed_decode().is_some(), "the source counts it");
}

#[tokio::test]
async fn a_mapping_that_cannot_decode_the_old_object_maps_the_new_one() {
    let update = || Event::update(dropped("1"), pod("2"));
    let (added, attempted) = mapped(map(by_body), &update()).await;
    assert_eq!(added, [Request::new("shop", "web")]);
    assert!(attempted.is_ok(), "{attempted:?}");
    let by_body = |pod: Object<Pod>| std::future::ready(by_body(&pod));
    let (added, attempted) = mapped(map_async(by_body), &update()).await;
    assert_eq!(added, [Request::new("shop", "web")]);
    let error = attempted.expect_err("the old one cannot be mapped");
    assert!(error.chain().any(|cause| matches!(cause.downcast_ref(), Some(DecodeError::BodyDropped { .. }))));
}

#[tokio::test(start_paused = true)]
async fn an_asynchronous_mapping_that_cannot_decode_a_deleted_object_is_counted_and_given_up() {
    let (added, laters) = (Arc::new(Added::default()), Laters::default());
    let queue = Enqueue::new(added, laters.clone(), None);
    let event = Event::delete(dropped("1"));
    let handler = map_async(|pod: Object<Pod>| std::future::ready(by_body(&pod)));
    handler.handle(&event, &queue.because(&Subject::new("Pod"), &event));
    let finished = async { laters.finished().await };
    tokio::select! {
        () = finished => {}
        _ = laters.run(None, "test") => {}
    }
    assert_eq!((laters.failures(), laters.given_up()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_retried_mapping_that_cannot_decode_a_deleted_object_is_dropped() {
    let (added, laters) = (Arc::new(Added::default()), Laters::default());
    let queue = Enqueue::new(added, laters.clone(), None);
    let event = Event::delete(dropped("1"));
    let attempts = std::sync::atomic::AtomicU32::new(0);
    let handler = map_async(move |pod: Object<Pod>| {
        let first = attempts.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        std::future::ready(if first { Err(anyhow::anyhow!("not now")) } else { by_body(&pod) })
    });
    handler.handle(&event, &queue.because(&Subject::new("Pod"), &event));
    let finished = async { tokio::time::timeout(Duration::from_hours(1), laters.finished()).await };
    tokio::select! {
        finished = finished => finished.expect("the mapping is not retried for ever"),
        _ = laters.run(None, "test") => {}
    }
    assert_eq!((laters.failures(), laters.given_up()), (2, 1));
}
