//! Admission: closures that stand where webhooks would.

use crate::support::*;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use steersman_apiserver::{Admission, Failure, Operation, Options};

const A: &str = "/apis/example.com/v1/namespaces/default/widgets/a";

type Seen = Arc<Mutex<Vec<(String, Operation, Value)>>>;

/// A server whose closures write down what they are shown of widgets, and change it in between.
async fn recording(change: impl Fn(&mut Value) + Send + Sync + 'static) -> (Server, Seen) {
    let seen = Seen::default();
    let (mutating, validating) = (seen.clone(), seen.clone());
    let admission = Admission::default()
        .mutate(move |review, object| {
            if review.resource == "widgets" {
                mutating.lock().push(("mutating".into(), review.operation, object.clone()));
                change(object);
            }
            Ok(())
        })
        .validate(move |review, object| {
            if review.resource == "widgets" {
                let object = object.cloned().unwrap_or_default();
                validating.lock().push(("validating".into(), review.operation, object));
            }
            Ok(())
        });
    let server = Server::with(Options { admission, ..Options::default() });
    server.install(widgets()).await;
    (server, seen)
}

/// Case 50, as closures.
#[tokio::test]
async fn mutating_closures_come_before_the_uid_and_validating_ones_see_the_result() {
    let (server, seen) = recording(|object| {
        object["spec"]["color"] = json!("blue");
        object["spec"]["added"] = json!("unknown");
        object["spec"].as_object_mut().expect("a spec").remove("replicas");
    })
    .await;
    let made = server.post(WIDGETS, widget("a")).await.expect(201);
    assert_eq!(made.json["spec"], json!({"color": "blue", "replicas": 1}), "defaults are back, the unknown is gone");
    let seen = seen.lock();
    let [(first, _, before), (second, _, after)] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((first.as_str(), second.as_str()), ("mutating", "validating"));
    assert_eq!((before["metadata"].get("uid"), &before["spec"]["replicas"]), (None, &json!(1)));
    assert_eq!(after["metadata"]["uid"], made.json["metadata"]["uid"]);
    assert_eq!(after["spec"], json!({"color": "blue", "replicas": 1, "added": "unknown"}));
}

/// Case 50, as closures.
#[tokio::test]
async fn an_update_that_changes_nothing_is_still_shown() {
    let (server, seen) = recording(|_| {}).await;
    let made = server.post(WIDGETS, widget("a")).await.expect(201);
    seen.lock().clear();
    assert_eq!(server.put(A, made.json.clone()).await.expect(200).json, made.json);
    let kinds: Vec<_> = seen.lock().iter().map(|(kind, operation, _)| (kind.clone(), *operation)).collect();
    assert_eq!(kinds, [("mutating".into(), Operation::Update), ("validating".into(), Operation::Update)]);
}

#[tokio::test]
async fn what_a_closure_makes_invalid_is_refused() {
    let (server, _) = recording(|object| object["spec"]["color"] = json!("pink")).await;
    let failure = server.post(WIDGETS, widget("a")).await.expect(422);
    assert_eq!(failure.cause_fields(), ["spec.color"]);
}

#[tokio::test]
async fn a_name_that_is_to_be_generated_is_not_there_yet_for_mutating_closures() {
    let (server, seen) = recording(|_| {}).await;
    let mut body = widget("");
    body["metadata"] = json!({"generateName": "x-"});
    let made = server.post(WIDGETS, body).await.expect(201);
    let seen = seen.lock();
    assert_eq!(seen[0].2["metadata"].get("name"), None);
    assert_eq!(seen[1].2["metadata"]["name"], made.json["metadata"]["name"]);
}

/// Case 50, as closures.
#[tokio::test]
async fn a_closure_refuses_with_the_code_that_it_chooses() {
    let admission = Admission::default().validate(|review, object| match (review.operation, review.name) {
        (Operation::Create, "teapot") => Err(Failure::new(418, None, "short and stout")),
        (Operation::Delete, "kept") if object.is_none() && review.old.is_some() => {
            Err(Failure::new(403, None, format!("kept, dry run: {}", review.dry_run)))
        }
        _ => Ok(()),
    });
    let server = Server::with(Options { admission, ..Options::default() });
    let failure = server.post(CONFIG_MAPS, config_map("teapot")).await.expect(418);
    assert_eq!((failure.message(), failure.json.get("reason")), ("short and stout", None));
    server.get(&format!("{CONFIG_MAPS}/teapot")).await.expect(404);
    server.post(CONFIG_MAPS, config_map("kept")).await.expect(201);
    let kept = format!("{CONFIG_MAPS}/kept");
    assert_eq!(server.delete(&kept).await.expect(403).message(), "kept, dry run: false");
    let failure = server.delete_with(&kept, json!({"dryRun": ["All"]})).await.expect(403);
    assert_eq!(failure.message(), "kept, dry run: true");
    server.get(&kept).await.expect(200);
}

#[tokio::test]
async fn closures_are_told_which_part_and_whether_it_counts() {
    let seen: Arc<Mutex<Vec<(String, bool)>>> = Arc::default();
    let told = seen.clone();
    let admission = Admission::default().validate(move |review, _| {
        if review.resource == "widgets" {
            told.lock().push((review.subresource.into(), review.dry_run));
        }
        Ok(())
    });
    let server = Server::with(Options { admission, ..Options::default() });
    server.install(widgets()).await;
    server.post(&format!("{WIDGETS}?dryRun=All"), widget("a")).await.expect(201);
    server.post(WIDGETS, widget("a")).await.expect(201);
    server.merge(&format!("{A}/status"), json!({"status": {"phase": "x"}})).await.expect(200);
    server.merge(&format!("{A}/scale"), json!({"spec": {"replicas": 2}})).await.expect(200);
    let expected = [("", true), ("", false), ("status", false), ("scale", false)];
    assert_eq!(*seen.lock(), expected.map(|(part, dry)| (part.to_owned(), dry)));
}
