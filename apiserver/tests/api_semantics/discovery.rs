//! Discovery documents, version and health.

use crate::support::*;
use serde_json::{Value, json};

const AGGREGATED: (&str, &str) = (
    "accept",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
);

fn find<'a>(list: &'a Value, key: &str, name: &str) -> &'a Value {
    list.as_array()
        .into_iter()
        .flatten()
        .find(|it| it[key] == name)
        .unwrap_or(&Value::Null)
}

#[tokio::test]
async fn legacy_discovery_lists_a_custom_resource() {
    let server = Server::with_widgets().await;
    assert_eq!(
        server.get("/api").await.expect(200).json["versions"],
        json!(["v1"])
    );
    let groups = server.get("/apis").await.expect(200).json;
    let group = find(&groups["groups"], "name", "example.com");
    assert_eq!(
        group["preferredVersion"],
        json!({"groupVersion": "example.com/v1", "version": "v1"})
    );
    assert_eq!(group["versions"].as_array().map(Vec::len), Some(2));
    let group_document = server.get("/apis/example.com").await.expect(200).json;
    assert_eq!(
        (&group_document["kind"], &group_document["versions"]),
        (&json!("APIGroup"), &group["versions"])
    );
    let list = server.get("/apis/example.com/v1").await.expect(200).json;
    assert_eq!(
        (&list["kind"], &list["groupVersion"]),
        (&json!("APIResourceList"), &json!("example.com/v1"))
    );
    let names: Vec<_> = list["resources"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|it| &it["name"])
        .collect();
    assert_eq!(names, ["widgets", "widgets/status", "widgets/scale"]);
    let widgets = &list["resources"][0];
    assert_eq!(
        (
            &widgets["kind"],
            &widgets["shortNames"],
            &widgets["namespaced"]
        ),
        (&json!("Widget"), &json!(["wd"]), &json!(true))
    );
    let core = server.get("/api/v1").await.expect(200).json;
    assert_eq!(find(&core["resources"], "name", "pods")["kind"], "Pod");
}

#[tokio::test]
async fn aggregated_discovery_lists_a_custom_resource_and_has_an_etag() {
    let server = Server::with_widgets().await;
    let all = server
        .send("GET", "/apis", &[AGGREGATED], "")
        .await
        .expect(200);
    let kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    assert_eq!(all.headers["content-type"], kind);
    assert_eq!(all.json["kind"], "APIGroupDiscoveryList");
    let items = all.json["items"].as_array().expect("items");
    let group = items
        .iter()
        .find(|it| it["metadata"]["name"] == "example.com")
        .expect("the group");
    let resource = find(
        &find(&group["versions"], "version", "v1")["resources"],
        "resource",
        "widgets",
    );
    assert_eq!(resource["scope"], "Namespaced");
    assert_eq!(
        resource["responseKind"],
        json!({"group": "example.com", "version": "v1", "kind": "Widget"})
    );
    let verbs = [
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "create",
        "update",
        "watch",
    ];
    assert_eq!(resource["verbs"], json!(verbs));
    let subresources: Vec<_> = resource["subresources"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|it| &it["subresource"])
        .collect();
    assert_eq!(subresources, ["status", "scale"]);
    let beta = find(
        &find(&group["versions"], "version", "v1beta1")["resources"],
        "resource",
        "widgets",
    );
    assert_eq!(beta["subresources"].as_array().map(Vec::len), Some(1));

    let etag = all.headers["etag"].to_str().expect("an etag").to_owned();
    let unchanged = server
        .send("GET", "/apis", &[AGGREGATED, ("if-none-match", &etag)], "")
        .await
        .expect(304);
    assert_eq!(
        (
            unchanged.text.as_str(),
            unchanged.headers["etag"].to_str().ok()
        ),
        ("", Some(etag.as_str()))
    );
    server
        .delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com")
        .await
        .expect(200);
    server.server.wait_idle().await;
    let changed = server
        .send("GET", "/apis", &[AGGREGATED, ("if-none-match", &etag)], "")
        .await
        .expect(200);
    assert_ne!(changed.headers["etag"].to_str().ok(), Some(etag.as_str()));
    let groups = changed.json["items"].as_array().expect("items");
    assert!(
        groups
            .iter()
            .all(|it| it["metadata"]["name"] != "example.com")
    );

    let core = server
        .send("GET", "/api", &[AGGREGATED], "")
        .await
        .expect(200);
    assert!(
        find(
            &core.json["items"][0]["versions"][0]["resources"],
            "resource",
            "configmaps"
        )
        .is_object()
    );
}

#[tokio::test]
async fn version_and_health_are_served() {
    let server = Server::start();
    let version = server.get("/version").await.expect(200).json;
    assert!(
        version["gitVersion"]
            .as_str()
            .is_some_and(|text| text.starts_with("v1.")),
        "{version}"
    );
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(server.get(path).await.expect(200).text, "ok");
    }
    server.post("/api", json!({})).await.expect(405);
}
