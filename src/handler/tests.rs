//! Priorities and reasons of requests.

use super::*;
use crate::{
    object::{Compact, DecodeError, Decoder, Object, ObjectKey, Payload},
    workqueue::{Priority, Reason},
};
use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube_core::TypeMeta;
use serde_json::json;
use std::time::Duration;

mod pending;

/// Requests that were added, with their options.
#[derive(Default)]
struct Added(Mutex<Vec<(Request, Add)>>);

impl Target<Request> for Added {
    fn add(&self, request: Request, add: Add) {
        self.0.lock().push((request, add));
    }
}

fn pod(version: &str) -> Object<Pod> {
    let owner =
        json!({"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": "1", "controller": true});
    let metadata = json!({"namespace": "shop", "name": "web", "resourceVersion": version, "ownerReferences": [owner]});
    Object::from(serde_json::from_value::<Pod>(json!({ "metadata": metadata })).expect("a pod"))
}

/// Returns a deleted pod without a body.
fn dropped(version: &str) -> Object<Pod> {
    let pod = pod(version).decode().expect("a pod");
    let key = ObjectKey::of(&*pod);
    Object::dropped(key.clone(), pod.to_metadata(&Arc::default(), &key))
}

/// Returns the options of the last request that a handler adds for an event.
async fn added(handler: &dyn Handler<Pod, Request>, event: &Event<Pod>) -> Add {
    let (added, retrier) = (Arc::new(Added::default()), Retrier::default());
    let queue = Enqueue::new(added.clone(), retrier.clone(), None);
    handler.handle(event, &queue.for_event(&Subject::new("Pod"), event));
    retrier.attempt_all().await.expect("none fails");
    let (_, add) = added.0.lock().pop().expect("one entry");
    add
}

/// Returns events with their expected reason and priority.
fn events() -> [(Event<Pod>, &'static str, Option<Priority>); 7] {
    [
        (
            Event::Create {
                object: pod("1"),
                initial: true,
            },
            "listed",
            Some(Priority::LOW),
        ),
        (Event::create(pod("1")), "created", None),
        (Event::update(pod("1"), pod("2")), "updated", None),
        (
            Event::update(pod("1"), pod("1")),
            "resynced",
            Some(Priority::LOW),
        ),
        (Event::delete(pod("1")), "deleted", None),
        (
            Event::Delete {
                object: pod("1"),
                state_unknown: true,
            },
            "deleted",
            None,
        ),
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
        (
            "map",
            Box::new(map(move |object: &Object<Pod>| [key(object)])),
        ),
        (
            "map_async",
            Box::new(map_async(move |object: Object<Pod>| {
                std::future::ready([key(&object)])
            })),
        ),
        (
            "from_fn",
            Box::new(from_fn(move |event: &Event<Pod>, queue: &Enqueue<_>| {
                queue.add(key(event.object()));
            })),
        ),
        (
            "funcs",
            Box::new(
                Funcs::new()
                    .create(move |event, queue: &Enqueue<_>| queue.add(key(event.object)))
                    .update(move |_, object, queue| queue.add_after(key(object), Duration::ZERO))
                    .delete(move |event, queue| queue.add_rate_limited(key(event.object)))
                    .generic(move |object, queue| queue.add_with(key(object), Add::default())),
            ),
        ),
        ("wrap", Box::new(wrap(object(), |request| request))),
    ]
}

/// Covers the handlers and events of controller-runtime's `eventhandler_test`.
#[tokio::test]
async fn every_handler_adds_initial_and_unchanged_objects_at_low_priority() {
    for (name, handler) in handlers() {
        for (event, verb, priority) in events() {
            let add = added(&*handler, &event).await;
            assert_eq!(add.priority, priority, "{name}: {event:?}");
            let reason = add.reason.expect("one request was added").to_string();
            assert!(
                reason.starts_with("Pod ") && reason.ends_with(verb),
                "{name}: {reason}"
            );
        }
    }
}

#[tokio::test]
async fn a_reason_names_the_object_unless_it_is_the_request_or_one_of_thousands() {
    let reason =
        async |handler: &dyn Handler<Pod, Request>, event| added(handler, &event).await.reason;
    let other = owner::<Pod>();
    assert_eq!(
        reason(&object(), Event::create(pod("1"))).await,
        Some("Pod created".into())
    );
    assert_eq!(
        reason(&other, Event::create(pod("1"))).await,
        Some("Pod shop/web created".into())
    );
    assert_eq!(
        reason(
            &other,
            Event::Create {
                object: pod("1"),
                initial: true
            }
        )
        .await,
        Some("Pod listed".into())
    );
}

#[tokio::test]
async fn explicit_options_of_a_request_are_kept() {
    let handler = |event: &Event<Pod>, queue: &Enqueue<Request>| {
        let add = Add {
            priority: Some(Priority::HIGH),
            reason: Some(Reason::from("mine")),
            ..Add::default()
        };
        queue.add_with(event.object().key().clone(), add);
    };
    for (event, ..) in events() {
        let add = added(&from_fn(handler), &event).await;
        assert_eq!(
            (add.priority, add.reason),
            (Some(Priority::HIGH), Some("mine".into())),
            "{event:?}"
        );
    }
}

#[tokio::test]
async fn owners_of_a_deleted_object_are_found_by_its_metadata() {
    let owner = [Request::new("shop", "owner")];
    for event in [
        Event::delete(dropped("1")),
        Event::update(dropped("1"), dropped("2")),
    ] {
        assert_eq!(requests(&super::owner::<Pod>(), event.clone()).await, owner);
        assert_eq!(requests(&super::owner::<Pod>().any(), event).await, owner);
    }
}

/// Returns the requests and asynchronous mappings that a handler adds for an event.
async fn mapped(
    handler: impl Handler<Pod, Request>,
    event: &Event<Pod>,
) -> (Vec<Request>, anyhow::Result<()>) {
    let (added, retrier) = (Arc::new(Added::default()), Retrier::default());
    let queue = Enqueue::new(added.clone(), retrier.clone(), None);
    handler.handle(event, &queue.for_event(&Subject::new("Pod"), event));
    let attempted = retrier.attempt_all().await;
    let added = added
        .0
        .lock()
        .drain(..)
        .map(|(request, _)| request)
        .collect();
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
    assert!(
        added.is_empty() && attempted.is_ok(),
        "there is no later attempt: {attempted:?}"
    );
    assert!(
        event.failed_decode().is_some(),
        "the source counts the failure"
    );
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
    assert!(error.chain().any(|trigger| matches!(
        trigger.downcast_ref(),
        Some(DecodeError::BodyDropped { .. })
    )));
}

#[tokio::test(start_paused = true)]
async fn an_asynchronous_mapping_that_cannot_decode_a_deleted_object_is_counted_and_dropped() {
    let (added, retrier) = (Arc::new(Added::default()), Retrier::default());
    let queue = Enqueue::new(added, retrier.clone(), None);
    let event = Event::delete(dropped("1"));
    let handler = map_async(|pod: Object<Pod>| std::future::ready(by_body(&pod)));
    handler.handle(&event, &queue.for_event(&Subject::new("Pod"), &event));
    let finished = async { retrier.drained().await };
    tokio::select! {
        () = finished => {}
        _ = retrier.run(None, "test") => {}
    }
    assert_eq!(
        (retrier.failed_attempts(), retrier.dropped_mappings()),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_retried_mapping_that_cannot_decode_a_deleted_object_is_dropped() {
    let (added, retrier) = (Arc::new(Added::default()), Retrier::default());
    let queue = Enqueue::new(added, retrier.clone(), None);
    let event = Event::delete(dropped("1"));
    let attempts = std::sync::atomic::AtomicU32::new(0);
    let handler = map_async(move |pod: Object<Pod>| {
        let first = attempts.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        std::future::ready(if first {
            Err(anyhow::anyhow!("not now"))
        } else {
            by_body(&pod)
        })
    });
    handler.handle(&event, &queue.for_event(&Subject::new("Pod"), &event));
    let finished = async { tokio::time::timeout(Duration::from_hours(1), retrier.drained()).await };
    tokio::select! {
        finished = finished => finished.expect("the mapping is not retried for ever"),
        _ = retrier.run(None, "test") => {}
    }
    assert_eq!(
        (retrier.failed_attempts(), retrier.dropped_mappings()),
        (2, 1)
    );
}

/// Returns the versions of a pod as an informer delivers them: one that does not decode, one that
/// does, and a deletion.
fn undecodable_and_fixed(compact: bool) -> [Event<Pod>; 3] {
    let decoder = Decoder::new(TypeMeta::resource::<Pod>());
    let metadata = json!({"namespace": "shop", "name": "web"});
    let bad = json!({"metadata": metadata, "spec": {"containers": "none"}}).to_string();
    let fixed = json!({ "metadata": metadata }).to_string();
    let stored = |json: &str| -> Object<Pod> {
        let pod = decoder.decode::<Compact>(json.as_bytes()).expect("a pod");
        Object::stored(pod.key(), Arc::new(pod))
    };
    if compact {
        return [
            Event::create(stored(&bad)),
            Event::update(stored(&bad), stored(&fixed)),
            Event::delete(stored(&fixed)),
        ];
    }
    let error = decoder.decode::<Pod>(bad.as_bytes()).expect_err("bad");
    let bad = Object::undecoded(error.object.expect("the object has a name")).assume();
    [
        Event::generic(bad),
        Event::create(stored(&fixed)),
        Event::delete(stored(&fixed)),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_version_that_does_not_decode_is_mapped_once_and_later_versions_as_usual() {
    let by_clone = |pod: Object<Pod>| std::future::ready(by_body(&pod));
    let handlers: [Named; 3] = [
        ("map", Box::new(map(by_body))),
        ("map_async", Box::new(map_async(by_clone))),
        (
            "add_async",
            Box::new(from_fn(move |event: &Event<Pod>, queue: &Enqueue<_>| {
                for pod in event.old().into_iter().chain([event.object()]) {
                    let pod = pod.clone();
                    queue.add_async(move || std::future::ready(by_body(&pod)));
                }
            })),
        ),
    ];
    for (name, handler) in handlers {
        for (compact, bad) in [(false, 1), (true, 2)] {
            let (added, retrier) = (Arc::new(Added::default()), Retrier::default());
            let queue = Enqueue::new(added.clone(), retrier.clone(), None);
            let handle = async {
                for event in undecodable_and_fixed(compact) {
                    handler.handle(&event, &queue.for_event(&Subject::new("Pod"), &event));
                    tokio::time::sleep(Duration::from_mins(1)).await;
                }
                tokio::time::timeout(Duration::from_hours(1), retrier.drained()).await
            };
            tokio::select! {
                finished = handle => finished.expect("no mapping is retried for ever"),
                _ = retrier.run(None, "test") => {}
            }
            let counts = (retrier.failed_attempts(), retrier.dropped_mappings());
            assert_eq!(counts, (bad, bad), "{name}, compact: {compact}");
            assert!(added.0.lock().len() >= 2, "{name}, compact: {compact}");
        }
    }
}

/// A read of another object may succeed later.
#[tokio::test(start_paused = true)]
async fn a_mapping_that_cannot_decode_another_object_is_retried() {
    let [bad, ..] = undecodable_and_fixed(false);
    let (added, retrier) = (Arc::new(Added::default()), Retrier::default());
    let queue = Enqueue::new(added, retrier.clone(), None);
    let handler = map(move |_: &Object<Pod>| by_body(bad.object()));
    let config_map = ("ConfigMap", Event::create(pod("1")));
    let mut other = k8s_openapi::api::core::v1::Pod::default();
    other.metadata.name = Some("other".into());
    for (subject, event) in [config_map, ("Pod", Event::create(other))] {
        handler.handle(&event, &queue.for_event(&Subject::new(subject), &event));
    }
    tokio::select! {
        () = tokio::time::sleep(Duration::from_mins(1)) => {}
        _ = retrier.run(None, "test") => {}
    }
    retrier.close();
    assert!(
        retrier.failed_attempts() > 4,
        "{}",
        retrier.failed_attempts()
    );
    assert_eq!(retrier.dropped_mappings(), 0);
}
