//! Definitions: how a custom resource comes to be served, in which versions, and how it goes.

use crate::support::*;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS_DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
const BETA: &str = "/apis/example.com/v1beta1/namespaces/default/widgets";

fn condition<'a>(definition: &'a Value, kind: &str) -> (&'a str, &'a str) {
    let conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
    let text = |value: &'a Value| value.as_str().unwrap_or_default();
    conditions
        .filter(|condition| condition["type"] == kind)
        .map(|condition| (text(&condition["status"]), text(&condition["reason"])))
        .next()
        .unwrap_or_default()
}

/// Case 43.
#[tokio::test]
async fn a_definition_is_accepted_and_then_established() {
    let server = Server::start();
    let from = server.server.revision();
    let made = server.post(DEFINITIONS, widgets()).await.expect(201);
    assert_eq!(made.json["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(condition(&made.json, "Established"), ("", ""));
    let mut watch = server.watch(&format!("{DEFINITIONS}?watch=1&resourceVersion={from}")).await;
    let events = watch.take(3).await;
    let kinds: Vec<_> = events.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["ADDED", "MODIFIED", "MODIFIED"]);
    let (accepted, established) = (&events[1].1, &events[2].1);
    assert_eq!(condition(accepted, "NamesAccepted"), ("True", "NoConflicts"));
    assert_eq!(condition(accepted, "Established"), ("False", "Installing"));
    assert_eq!(condition(established, "Established"), ("True", "InitialNamesAccepted"));
    assert_eq!(established["status"]["acceptedNames"]["kind"], "Widget");
    assert_eq!(established["metadata"]["generation"], 1);
    server.post(WIDGETS, widget("a")).await.expect(201);
}

/// Case 43.
#[tokio::test]
async fn with_its_definition_a_resource_goes() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let from = server.server.revision();
    let mut watch = server.watch(&format!("{WIDGETS}?watch=1&resourceVersion={from}")).await;
    let mut definitions = server.watch(&format!("{DEFINITIONS}?watch=1&resourceVersion={from}")).await;
    let marked = server.delete(WIDGETS_DEFINITION).await.expect(200);
    assert_eq!(marked.json["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert!(marked.json["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(watch.next_name().await, ("DELETED".into(), "a".into()));
    assert_eq!(watch.next().await, None);
    let mut terminating = false;
    loop {
        let (kind, definition) = definitions.next().await.expect("an event");
        terminating |= condition(&definition, "Terminating").0 == "True";
        if kind == "DELETED" {
            break;
        }
    }
    assert!(terminating);
    server.get(WIDGETS_DEFINITION).await.expect(404);
    let gone = server.get(WIDGETS).await.expect(404);
    assert_eq!(gone.headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(gone.text, "404 page not found\n");
    // Nobody reads from it any longer: the server would wait for it.
    drop(definitions);
    server.install(widgets()).await;
    assert_eq!(server.get(WIDGETS).await.expect(200).names(), Vec::<&str>::new());
}

#[tokio::test]
async fn an_object_with_a_finalizer_holds_its_definition_back() {
    let server = Server::with_widgets().await;
    let mut held = widget("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(WIDGETS, held).await.expect(201);
    server.delete(WIDGETS_DEFINITION).await.expect(200);
    server.server.wait_idle().await;
    assert_eq!(condition(&server.get(WIDGETS_DEFINITION).await.expect(200).json, "Terminating").0, "True");
    // What is there can be changed, but nothing comes to it.
    server.post(WIDGETS, widget("b")).await.expect(403);
    server.merge(&format!("{WIDGETS}/a"), json!({"metadata": {"finalizers": null}})).await.expect(200);
    server.server.wait_idle().await;
    server.get(WIDGETS_DEFINITION).await.expect(404);
}

/// Case 43.
#[tokio::test]
async fn another_version_shows_the_same_object_under_its_own_name() {
    let server = Server::with_widgets().await;
    let made = server.post(WIDGETS, widget("a")).await.expect(201);
    let mut expected = made.json.clone();
    expected["apiVersion"] = json!("example.com/v1beta1");
    assert_eq!(server.get(&format!("{BETA}/a")).await.expect(200).json, expected);
    let list = server.get(BETA).await.expect(200);
    assert_eq!(list.json["apiVersion"], "example.com/v1beta1");
    assert_eq!(list.json["items"], json!([expected]));

    let mut watch = server.watch(&format!("{BETA}?watch=1&resourceVersion={}", made.rv())).await;
    let patched = server.merge(&format!("{WIDGETS}/a"), json!({"spec": {"color": "blue"}})).await.expect(200);
    let (kind, object) = watch.next().await.expect("an event");
    assert_eq!((kind.as_str(), &object["apiVersion"]), ("MODIFIED", &json!("example.com/v1beta1")));
    assert_eq!(rv(&object), patched.rv());
    let mut through = server.get(&format!("{BETA}/a")).await.json;
    through["spec"]["color"] = json!("green");
    server.put(&format!("{BETA}/a"), through).await.expect(200);
    let seen = server.get(&format!("{WIDGETS}/a")).await.json;
    assert_eq!((&seen["apiVersion"], &seen["spec"]["color"]), (&json!("example.com/v1"), &json!("green")));
}

#[tokio::test]
async fn what_the_stored_version_does_not_know_is_not_kept() {
    let server = Server::start();
    let mut definition = widgets();
    let spec = &mut definition["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    spec["only"] = json!({"type": "string"});
    let spec = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    spec["stored"] = json!({"type": "string", "default": "filled"});
    server.install(definition).await;
    let mut body = widget("a");
    body["apiVersion"] = json!("example.com/v1beta1");
    body["spec"]["only"] = json!("here");
    server.post(BETA, body).await.expect(201);
    let stored = server.get(&format!("{WIDGETS}/a")).await.expect(200).json["spec"].clone();
    assert_eq!(stored, json!({"color": "red", "replicas": 1, "stored": "filled"}));
}

#[tokio::test]
async fn what_is_not_served_is_not_found() {
    let server = Server::start();
    let mut definition = widgets();
    definition["spec"]["versions"][1]["served"] = json!(false);
    server.install(definition).await;
    for path in [
        BETA,
        "/apis/example.com/v1/namespaces/default/gadgets",
        "/apis/nowhere.com/v1/namespaces/default/widgets",
        "/apis/nowhere.com/v1",
        "/apis/nowhere.com",
        "/apis/example.com/v1beta1",
        "/nothing",
    ] {
        let failure = server.get(path).await.expect(404);
        assert_eq!(failure.headers["content-type"], "text/plain; charset=utf-8", "{path}");
        assert_eq!(failure.text, "404 page not found\n", "{path}");
    }
    let failure = server.get("/api/v1/namespaces/default/gadgets").await.expect(404);
    assert_eq!((failure.reason(), failure.message()), ("NotFound", "the server could not find the requested resource"));
    // A namespaced resource is not made outside of a namespace.
    server.post("/apis/example.com/v1/widgets", widget("a")).await.expect(404);
}

#[tokio::test]
async fn a_definition_that_makes_no_sense_is_refused() {
    let server = Server::start();
    let with = |change: fn(&mut Value)| {
        let mut definition = widgets();
        change(&mut definition);
        definition
    };
    for (definition, field) in [
        (with(|it| it["metadata"]["name"] = json!("others.example.com")), "metadata.name"),
        (with(|it| it["spec"]["versions"][1]["storage"] = json!(true)), "spec.versions"),
        (with(|it| it["spec"]["versions"][0]["storage"] = json!(false)), "spec.versions"),
        (
            with(|it| drop(it["spec"]["versions"][0].as_object_mut().map(|version| version.remove("schema")))),
            "spec.versions[0].schema.openAPIV3Schema",
        ),
        (
            with(|it| it["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = json!({})),
            "spec.versions[0].schema.openAPIV3Schema.properties[spec].type",
        ),
    ] {
        let failure = server.post(DEFINITIONS, definition).await.expect(422);
        assert_eq!(failure.reason(), "Invalid");
        assert!(failure.cause_fields().contains(&field), "{field}: {}", failure.text);
    }
    server.server.wait_idle().await;
    assert_eq!(server.get(DEFINITIONS).await.names(), Vec::<&str>::new());
}

#[tokio::test]
async fn a_name_that_is_taken_is_not_accepted_until_it_is_free() {
    let server = Server::with_widgets().await;
    let mut other = widgets();
    other["metadata"]["name"] = json!("gadgets.example.com");
    other["spec"]["names"] = json!({"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "shortNames": ["wd"]});
    server.post(DEFINITIONS, other).await.expect(201);
    server.server.wait_idle().await;
    let path = format!("{DEFINITIONS}/gadgets.example.com");
    let refused = server.get(&path).await.expect(200).json;
    assert_eq!(condition(&refused, "NamesAccepted").0, "False");
    assert_eq!(condition(&refused, "Established"), ("False", "NotAccepted"));
    server.get("/apis/example.com/v1/namespaces/default/gadgets").await.expect(404);
    server.delete(WIDGETS_DEFINITION).await.expect(200);
    server.server.wait_idle().await;
    assert_eq!(condition(&server.get(&path).await.json, "Established"), ("True", "InitialNamesAccepted"));
    server.get("/apis/example.com/v1/namespaces/default/gadgets").await.expect(200);
}

#[tokio::test]
async fn a_changed_definition_is_served_as_it_is_then() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let mut definition = server.get(WIDGETS_DEFINITION).await.json;
    definition["spec"]["versions"][1]["served"] = json!(false);
    let spec = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    spec["extra"] = json!({"type": "string"});
    let put = server.put(WIDGETS_DEFINITION, definition).await.expect(200);
    assert_eq!(put.json["metadata"]["generation"], 2);
    server.server.wait_idle().await;
    let patched = server.merge(&format!("{WIDGETS}/a"), json!({"spec": {"extra": "x"}})).await.expect(200);
    assert_eq!(patched.json["spec"]["extra"], "x");
    server.get(BETA).await.expect(404);
}
