//! What the server says that it serves.

use crate::support::*;
use serde_json::{Value, json};

const AGGREGATED: (&str, &str) =
    ("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json");

fn named<'a>(list: &'a Value, key: &str, name: &str) -> &'a Value {
    list.as_array().into_iter().flatten().find(|it| it[key] == name).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn a_definition_is_in_the_legacy_documents() {
    let server = Server::with_widgets().await;
    assert_eq!(server.get("/api").await.expect(200).json["versions"], json!(["v1"]));
    let groups = server.get("/apis").await.expect(200).json;
    let group = named(&groups["groups"], "name", "example.com");
    assert_eq!(group["preferredVersion"], json!({"groupVersion": "example.com/v1", "version": "v1"}));
    assert_eq!(group["versions"].as_array().map(Vec::len), Some(2));
    let alone = server.get("/apis/example.com").await.expect(200).json;
    assert_eq!((&alone["kind"], &alone["versions"]), (&json!("APIGroup"), &group["versions"]));
    let list = server.get("/apis/example.com/v1").await.expect(200).json;
    assert_eq!((&list["kind"], &list["groupVersion"]), (&json!("APIResourceList"), &json!("example.com/v1")));
    let names: Vec<_> = list["resources"].as_array().into_iter().flatten().map(|it| &it["name"]).collect();
    assert_eq!(names, ["widgets", "widgets/status", "widgets/scale"]);
    let widgets = &list["resources"][0];
    assert_eq!(
        (&widgets["kind"], &widgets["shortNames"], &widgets["namespaced"]),
        (&json!("Widget"), &json!(["wd"]), &json!(true))
    );
    let core = server.get("/api/v1").await.expect(200).json;
    assert_eq!(named(&core["resources"], "name", "pods")["kind"], "Pod");
}

/// Case 46, but for kubectl.
#[tokio::test]
async fn the_aggregated_document_has_all_and_a_tag() {
    let server = Server::with_widgets().await;
    let all = server.send("GET", "/apis", &[AGGREGATED], "").await.expect(200);
    let kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    assert_eq!(all.headers["content-type"], kind);
    assert_eq!(all.json["kind"], "APIGroupDiscoveryList");
    let items = all.json["items"].as_array().expect("items");
    let group = items.iter().find(|it| it["metadata"]["name"] == "example.com").expect("the group");
    let resource = named(&named(&group["versions"], "version", "v1")["resources"], "resource", "widgets");
    assert_eq!(resource["scope"], "Namespaced");
    assert_eq!(resource["responseKind"], json!({"group": "example.com", "version": "v1", "kind": "Widget"}));
    let verbs = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
    assert_eq!(resource["verbs"], json!(verbs));
    let below: Vec<_> =
        resource["subresources"].as_array().into_iter().flatten().map(|it| &it["subresource"]).collect();
    assert_eq!(below, ["status", "scale"]);
    let beta = named(&named(&group["versions"], "version", "v1beta1")["resources"], "resource", "widgets");
    assert_eq!(beta["subresources"].as_array().map(Vec::len), Some(1));

    let tag = all.headers["etag"].to_str().expect("a tag").to_owned();
    let known = server.send("GET", "/apis", &[AGGREGATED, ("if-none-match", &tag)], "").await.expect(304);
    assert_eq!((known.text.as_str(), known.headers["etag"].to_str().ok()), ("", Some(tag.as_str())));
    server.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com").await.expect(200);
    server.server.wait_idle().await;
    let changed = server.send("GET", "/apis", &[AGGREGATED, ("if-none-match", &tag)], "").await.expect(200);
    assert_ne!(changed.headers["etag"].to_str().ok(), Some(tag.as_str()));
    let groups = changed.json["items"].as_array().expect("items");
    assert!(groups.iter().all(|it| it["metadata"]["name"] != "example.com"));

    let core = server.send("GET", "/api", &[AGGREGATED], "").await.expect(200);
    assert!(named(&core.json["items"][0]["versions"][0]["resources"], "resource", "configmaps").is_object());
}

#[tokio::test]
async fn version_and_health_are_told() {
    let server = Server::start();
    let version = server.get("/version").await.expect(200).json;
    assert!(version["gitVersion"].as_str().is_some_and(|text| text.starts_with("v1.")), "{version}");
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(server.get(path).await.expect(200).text, "ok");
    }
    server.post("/api", json!({})).await.expect(405);
}
