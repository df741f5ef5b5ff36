//! Admission closures, which take the place of webhooks.

use crate::support::*;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use steersman_apiserver::{Admission, Failure, Operation, Options};

const A: &str = "/apis/example.com/v1/namespaces/default/widgets/a";

type Seen = Arc<Mutex<Vec<(String, Operation, Value)>>>;

/// Starts a server that records the widgets its admission closures see. `change` runs in the
/// mutating closure.
async fn start_recording(change: impl Fn(&mut Value) + Send + Sync + 'static) -> (Server, Seen) {
    let seen = Seen::default();
    let mutating = seen.clone();
    let validating = seen.clone();
    let admission = Admission::default()
        .mutate(move |review, object| {
            if review.resource == "widgets" {
                mutating
                    .lock()
                    .push(("mutating".into(), review.operation, object.clone()));
                change(object);
            }
            Ok(())
        })
        .validate(move |review, object| {
            if review.resource == "widgets" {
                let object = object.cloned().unwrap_or_default();
                validating
                    .lock()
                    .push(("validating".into(), review.operation, object));
            }
            Ok(())
        });
    let server = Server::with_options(Options {
        admission,
        ..Options::default()
    });
    server.install(widgets()).await;
    (server, seen)
}

#[tokio::test]
async fn mutating_closures_run_before_the_uid_is_set_and_validating_closures_see_the_result() {
    let (server, seen) = start_recording(|object| {
        object["spec"]["color"] = json!("blue");
        object["spec"]["added"] = json!("unknown");
        object["spec"]
            .as_object_mut()
            .expect("a spec")
            .remove("replicas");
    })
    .await;
    let created = server.post(WIDGETS, widget("a")).await.expect(201);
    assert_eq!(
        created.json["spec"],
        json!({"color": "blue", "replicas": 1}),
        "defaults are applied and unknown fields dropped after mutation"
    );
    let seen = seen.lock();
    let [(first, _, before), (second, _, after)] = &seen[..] else {
        panic!("{seen:?}")
    };
    assert_eq!(
        (first.as_str(), second.as_str()),
        ("mutating", "validating")
    );
    assert_eq!(
        (before["metadata"].get("uid"), &before["spec"]["replicas"]),
        (None, &json!(1))
    );
    assert_eq!(after["metadata"]["uid"], created.json["metadata"]["uid"]);
    assert_eq!(
        after["spec"],
        json!({"color": "blue", "replicas": 1, "added": "unknown"})
    );
}

#[tokio::test]
async fn admission_sees_an_update_without_changes() {
    let (server, seen) = start_recording(|_| {}).await;
    let created = server.post(WIDGETS, widget("a")).await.expect(201);
    seen.lock().clear();
    assert_eq!(
        server.put(A, created.json.clone()).await.expect(200).json,
        created.json
    );
    let kinds: Vec<_> = seen
        .lock()
        .iter()
        .map(|(kind, operation, _)| (kind.clone(), *operation))
        .collect();
    assert_eq!(
        kinds,
        [
            ("mutating".into(), Operation::Update),
            ("validating".into(), Operation::Update)
        ]
    );
}

#[tokio::test]
async fn an_object_that_a_mutating_closure_makes_invalid_is_rejected() {
    let (server, _) = start_recording(|object| object["spec"]["color"] = json!("pink")).await;
    let failure = server.post(WIDGETS, widget("a")).await.expect(422);
    assert_eq!(failure.cause_fields(), ["spec.color"]);
}

#[tokio::test]
async fn a_generated_name_is_set_after_mutating_closures() {
    let (server, seen) = start_recording(|_| {}).await;
    let mut body = widget("");
    body["metadata"] = json!({"generateName": "x-"});
    let created = server.post(WIDGETS, body).await.expect(201);
    let seen = seen.lock();
    assert_eq!(seen[0].2["metadata"].get("name"), None);
    assert_eq!(
        seen[1].2["metadata"]["name"],
        created.json["metadata"]["name"]
    );
}

#[tokio::test]
async fn a_closure_rejects_with_the_status_code_of_its_failure() {
    let admission =
        Admission::default().validate(|review, object| match (review.operation, review.name) {
            (Operation::Create, "teapot") => Err(Failure::new(418, None, "short and stout")),
            (Operation::Delete, "kept") if object.is_none() && review.old.is_some() => Err(
                Failure::new(403, None, format!("kept, dry run: {}", review.dry_run)),
            ),
            _ => Ok(()),
        });
    let server = Server::with_options(Options {
        admission,
        ..Options::default()
    });
    let failure = server
        .post(CONFIG_MAPS, config_map("teapot"))
        .await
        .expect(418);
    assert_eq!(
        (failure.message(), failure.json.get("reason")),
        ("short and stout", None)
    );
    server
        .get(&format!("{CONFIG_MAPS}/teapot"))
        .await
        .expect(404);
    server
        .post(CONFIG_MAPS, config_map("kept"))
        .await
        .expect(201);
    let kept = format!("{CONFIG_MAPS}/kept");
    assert_eq!(
        server.delete(&kept).await.expect(403).message(),
        "kept, dry run: false"
    );
    let failure = server
        .delete_with(&kept, json!({"dryRun": ["All"]}))
        .await
        .expect(403);
    assert_eq!(failure.message(), "kept, dry run: true");
    server.get(&kept).await.expect(200);
}

#[tokio::test]
async fn admission_sees_the_subresource_and_dry_run() {
    let seen: Arc<Mutex<Vec<(String, bool)>>> = Arc::default();
    let recorded = seen.clone();
    let admission = Admission::default().validate(move |review, _| {
        if review.resource == "widgets" {
            recorded
                .lock()
                .push((review.subresource.into(), review.dry_run));
        }
        Ok(())
    });
    let server = Server::with_options(Options {
        admission,
        ..Options::default()
    });
    server.install(widgets()).await;
    server
        .post(&format!("{WIDGETS}?dryRun=All"), widget("a"))
        .await
        .expect(201);
    server.post(WIDGETS, widget("a")).await.expect(201);
    server
        .merge(&format!("{A}/status"), json!({"status": {"phase": "x"}}))
        .await
        .expect(200);
    server
        .merge(&format!("{A}/scale"), json!({"spec": {"replicas": 2}}))
        .await
        .expect(200);
    let expected = [("", true), ("", false), ("status", false), ("scale", false)];
    assert_eq!(
        *seen.lock(),
        expected.map(|(subresource, dry)| (subresource.to_owned(), dry))
    );
}
