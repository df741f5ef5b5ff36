//! CRDs: establishing, versions, name conflicts and deletion.

use crate::support::*;
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS_CRD: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
const BETA: &str = "/apis/example.com/v1beta1/namespaces/default/widgets";

fn condition<'a>(crd: &'a Value, kind: &str) -> (&'a str, &'a str) {
    let conditions = crd["status"]["conditions"].as_array().into_iter().flatten();
    let text = |value: &'a Value| value.as_str().unwrap_or_default();
    conditions
        .filter(|condition| condition["type"] == kind)
        .map(|condition| (text(&condition["status"]), text(&condition["reason"])))
        .next()
        .unwrap_or_default()
}

#[tokio::test]
async fn a_crd_gets_its_names_accepted_and_is_then_established() {
    let server = Server::start();
    let from = server.server.revision();
    let created = server.post(CRDS, widgets()).await.expect(201);
    assert_eq!(created.json["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(condition(&created.json, "Established"), ("", ""));
    let mut watch = server
        .watch(&format!("{CRDS}?watch=1&resourceVersion={from}"))
        .await;
    let events = watch.take(3).await;
    let kinds: Vec<_> = events.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["ADDED", "MODIFIED", "MODIFIED"]);
    let accepted = &events[1].1;
    let established = &events[2].1;
    assert_eq!(
        condition(accepted, "NamesAccepted"),
        ("True", "NoConflicts")
    );
    assert_eq!(condition(accepted, "Established"), ("False", "Installing"));
    assert_eq!(
        condition(established, "Established"),
        ("True", "InitialNamesAccepted")
    );
    assert_eq!(established["status"]["acceptedNames"]["kind"], "Widget");
    assert_eq!(established["metadata"]["generation"], 1);
    server.post(WIDGETS, widget("a")).await.expect(201);
}

#[tokio::test]
async fn deleting_a_crd_deletes_its_objects_and_ends_their_watches() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let from = server.server.revision();
    let mut watch = server
        .watch(&format!("{WIDGETS}?watch=1&resourceVersion={from}"))
        .await;
    let mut crds = server
        .watch(&format!("{CRDS}?watch=1&resourceVersion={from}"))
        .await;
    let deleting = server.delete(WIDGETS_CRD).await.expect(200);
    assert_eq!(
        deleting.json["metadata"]["finalizers"],
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    assert!(deleting.json["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(watch.next_name().await, ("DELETED".into(), "a".into()));
    assert_eq!(watch.next().await, None);
    let mut terminating = false;
    loop {
        let (kind, crd) = crds.next().await.expect("an event");
        terminating |= condition(&crd, "Terminating").0 == "True";
        if kind == "DELETED" {
            break;
        }
    }
    assert!(terminating);
    server.get(WIDGETS_CRD).await.expect(404);
    let deleted = server.get(WIDGETS).await.expect(404);
    assert_eq!(deleted.headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(deleted.text, "404 page not found\n");
    // wait_idle in `install` would wait for this unread watch.
    drop(crds);
    server.install(widgets()).await;
    assert_eq!(
        server.get(WIDGETS).await.expect(200).names(),
        Vec::<&str>::new()
    );
}

#[tokio::test]
async fn an_object_with_a_finalizer_blocks_the_deletion_of_its_crd() {
    let server = Server::with_widgets().await;
    let mut finalized = widget("a");
    finalized["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(WIDGETS, finalized).await.expect(201);
    server.delete(WIDGETS_CRD).await.expect(200);
    server.server.wait_idle().await;
    assert_eq!(
        condition(
            &server.get(WIDGETS_CRD).await.expect(200).json,
            "Terminating"
        )
        .0,
        "True"
    );
    // Existing objects can be updated. New ones cannot be created.
    server.post(WIDGETS, widget("b")).await.expect(403);
    server
        .merge(
            &format!("{WIDGETS}/a"),
            json!({"metadata": {"finalizers": null}}),
        )
        .await
        .expect(200);
    server.server.wait_idle().await;
    server.get(WIDGETS_CRD).await.expect(404);
}

#[tokio::test]
async fn an_object_is_served_in_every_version_of_its_crd() {
    let server = Server::with_widgets().await;
    let created = server.post(WIDGETS, widget("a")).await.expect(201);
    let mut expected = created.json.clone();
    expected["apiVersion"] = json!("example.com/v1beta1");
    assert_eq!(
        server.get(&format!("{BETA}/a")).await.expect(200).json,
        expected
    );
    let list = server.get(BETA).await.expect(200);
    assert_eq!(list.json["apiVersion"], "example.com/v1beta1");
    assert_eq!(list.json["items"], json!([expected]));

    let mut watch = server
        .watch(&format!("{BETA}?watch=1&resourceVersion={}", created.rv()))
        .await;
    let patched = server
        .merge(&format!("{WIDGETS}/a"), json!({"spec": {"color": "blue"}}))
        .await
        .expect(200);
    let (kind, object) = watch.next().await.expect("an event");
    assert_eq!(
        (kind.as_str(), &object["apiVersion"]),
        ("MODIFIED", &json!("example.com/v1beta1"))
    );
    assert_eq!(rv(&object), patched.rv());
    let mut beta = server.get(&format!("{BETA}/a")).await.json;
    beta["spec"]["color"] = json!("green");
    server.put(&format!("{BETA}/a"), beta).await.expect(200);
    let seen = server.get(&format!("{WIDGETS}/a")).await.json;
    assert_eq!(
        (&seen["apiVersion"], &seen["spec"]["color"]),
        (&json!("example.com/v1"), &json!("green"))
    );
}

#[tokio::test]
async fn fields_missing_from_the_storage_version_are_dropped() {
    let server = Server::start();
    let mut crd = widgets();
    let spec = &mut crd["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    spec["only"] = json!({"type": "string"});
    let spec = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    spec["stored"] = json!({"type": "string", "default": "filled"});
    server.install(crd).await;
    let mut body = widget("a");
    body["apiVersion"] = json!("example.com/v1beta1");
    body["spec"]["only"] = json!("here");
    server.post(BETA, body).await.expect(201);
    let stored = server.get(&format!("{WIDGETS}/a")).await.expect(200).json["spec"].clone();
    assert_eq!(
        stored,
        json!({"color": "red", "replicas": 1, "stored": "filled"})
    );
}

#[tokio::test]
async fn a_watch_ends_when_its_version_is_not_served_any_more() {
    let server = Server::with_widgets().await;
    let from = server.post(WIDGETS, widget("a")).await.expect(201).rv();
    let query = format!("watch=1&resourceVersion={from}");
    let mut beta = server.watch(&format!("{BETA}?{query}")).await;
    let mut stable = server.watch(&format!("{WIDGETS}?{query}")).await;
    let patch = |color: &str| json!({"spec": {"color": color}});
    let object = format!("{WIDGETS}/a");
    server.merge(&object, patch("blue")).await.expect(200);

    let mut crd = server.get(WIDGETS_CRD).await.json;
    crd["spec"]["versions"][1]["served"] = json!(false);
    server.put(WIDGETS_CRD, crd).await.expect(200);
    let last = beta.next().await.expect("the change before the end");
    assert_eq!(last.1["spec"]["color"], "blue");
    assert_eq!(beta.next().await, None);

    server.merge(&object, patch("green")).await.expect(200);
    let kinds: Vec<_> = stable
        .take(2)
        .await
        .into_iter()
        .map(|(kind, _)| kind)
        .collect();
    assert_eq!(kinds, ["MODIFIED", "MODIFIED"]);
}

#[tokio::test]
async fn unserved_versions_and_unknown_groups_are_not_found() {
    let server = Server::start();
    let mut crd = widgets();
    crd["spec"]["versions"][1]["served"] = json!(false);
    server.install(crd).await;
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
        assert_eq!(
            failure.headers["content-type"], "text/plain; charset=utf-8",
            "{path}"
        );
        assert_eq!(failure.text, "404 page not found\n", "{path}");
    }
    let failure = server
        .get("/api/v1/namespaces/default/gadgets")
        .await
        .expect(404);
    assert_eq!(
        (failure.reason(), failure.message()),
        (
            "NotFound",
            "the server could not find the requested resource"
        )
    );
    // A namespaced kind cannot be created at the cluster scope.
    server
        .post("/apis/example.com/v1/widgets", widget("a"))
        .await
        .expect(404);
}

#[tokio::test]
async fn an_invalid_crd_is_rejected() {
    let server = Server::start();
    let with = |change: fn(&mut Value)| {
        let mut crd = widgets();
        change(&mut crd);
        crd
    };
    for (crd, field) in [
        (
            with(|crd| crd["metadata"]["name"] = json!("others.example.com")),
            "metadata.name",
        ),
        (
            with(|crd| crd["spec"]["versions"][1]["storage"] = json!(true)),
            "spec.versions",
        ),
        (
            with(|crd| crd["spec"]["versions"][0]["storage"] = json!(false)),
            "spec.versions",
        ),
        (
            with(|crd| {
                drop(
                    crd["spec"]["versions"][0]
                        .as_object_mut()
                        .map(|version| version.remove("schema")),
                );
            }),
            "spec.versions[0].schema.openAPIV3Schema",
        ),
        (
            with(|crd| {
                crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] =
                    json!({});
            }),
            "spec.versions[0].schema.openAPIV3Schema.properties[spec].type",
        ),
    ] {
        let failure = server.post(CRDS, crd).await.expect(422);
        assert_eq!(failure.reason(), "Invalid");
        assert!(
            failure.cause_fields().contains(&field),
            "{field}: {}",
            failure.text
        );
    }
    server.server.wait_idle().await;
    assert_eq!(server.get(CRDS).await.names(), Vec::<&str>::new());
}

#[tokio::test]
async fn a_crd_with_a_conflicting_short_name_is_accepted_after_the_other_is_deleted() {
    let server = Server::with_widgets().await;
    let mut other = widgets();
    other["metadata"]["name"] = json!("gadgets.example.com");
    other["spec"]["names"] =
        json!({"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "shortNames": ["wd"]});
    server.post(CRDS, other).await.expect(201);
    server.server.wait_idle().await;
    let path = format!("{CRDS}/gadgets.example.com");
    let rejected = server.get(&path).await.expect(200).json;
    assert_eq!(condition(&rejected, "NamesAccepted").0, "False");
    assert_eq!(
        condition(&rejected, "Established"),
        ("False", "NotAccepted")
    );
    server
        .get("/apis/example.com/v1/namespaces/default/gadgets")
        .await
        .expect(404);
    server.delete(WIDGETS_CRD).await.expect(200);
    server.server.wait_idle().await;
    assert_eq!(
        condition(&server.get(&path).await.json, "Established"),
        ("True", "InitialNamesAccepted")
    );
    server
        .get("/apis/example.com/v1/namespaces/default/gadgets")
        .await
        .expect(200);
}

#[tokio::test]
async fn an_updated_crd_takes_effect() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let mut crd = server.get(WIDGETS_CRD).await.json;
    crd["spec"]["versions"][1]["served"] = json!(false);
    let spec = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    spec["extra"] = json!({"type": "string"});
    let put = server.put(WIDGETS_CRD, crd).await.expect(200);
    assert_eq!(put.json["metadata"]["generation"], 2);
    server.server.wait_idle().await;
    let patched = server
        .merge(&format!("{WIDGETS}/a"), json!({"spec": {"extra": "x"}}))
        .await
        .expect(200);
    assert_eq!(patched.json["spec"]["extra"], "x");
    server.get(BETA).await.expect(404);
}
