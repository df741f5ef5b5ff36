//! Representations of objects: tables, partial metadata, lists and YAML.

use crate::support::*;
use serde_json::{Value, json};

const TABLE: (&str, &str) = (
    "accept",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
);
const PARTIAL: (&str, &str) = (
    "accept",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
);
const PARTIAL_LIST: (&str, &str) = (
    "accept",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
);

fn columns(table: &Value) -> Vec<&str> {
    table["columnDefinitions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|column| column["name"].as_str())
        .collect()
}

#[tokio::test]
async fn a_table_has_the_columns_of_the_crd_and_null_for_missing_values() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    server.post(WIDGETS, widget("b")).await.expect(201);
    server
        .merge(
            &format!("{WIDGETS}/b/status"),
            json!({"status": {"phase": "Done"}}),
        )
        .await
        .expect(200);
    let table = server.send("GET", WIDGETS, &[TABLE], "").await.expect(200);
    assert_eq!(
        (&table.json["kind"], &table.json["apiVersion"]),
        (&json!("Table"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!(columns(&table.json), ["Name", "Color", "Phase"]);
    let rows = table.json["rows"].as_array().expect("rows");
    let cells: Vec<_> = rows.iter().map(|row| row["cells"].clone()).collect();
    assert_eq!(
        cells,
        [json!(["a", "red", null]), json!(["b", "red", "Done"])]
    );
    assert_eq!(rows[0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(rows[0]["object"]["metadata"]["name"], "a");
    assert_eq!(rows[0]["object"].get("spec"), None);
    assert_eq!(table.rv(), server.server.revision());

    let one = server
        .send("GET", &format!("{WIDGETS}/b"), &[TABLE], "")
        .await
        .expect(200);
    assert_eq!(one.json["rows"][0]["cells"], json!(["b", "red", "Done"]));
    let none = server
        .send(
            "GET",
            &format!("{WIDGETS}?includeObject=None"),
            &[TABLE],
            "",
        )
        .await
        .expect(200);
    assert_eq!(none.json["rows"][0]["object"], Value::Null);
    let whole = server
        .send(
            "GET",
            &format!("{WIDGETS}?includeObject=Object"),
            &[TABLE],
            "",
        )
        .await
        .expect(200);
    assert_eq!(whole.json["rows"][0]["object"]["spec"]["color"], "red");
    server
        .send(
            "GET",
            &format!("{WIDGETS}?includeObject=Some"),
            &[TABLE],
            "",
        )
        .await
        .expect(400);
}

#[tokio::test(start_paused = true)]
async fn a_table_without_custom_columns_shows_the_age() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    tokio::time::advance(std::time::Duration::from_mins(5)).await;
    let path = "/apis/example.com/v1beta1/namespaces/default/widgets";
    let table = server.send("GET", path, &[TABLE], "").await.expect(200);
    assert_eq!(columns(&table.json), ["Name", "Age"]);
    assert_eq!(table.json["rows"][0]["cells"], json!(["a", "5m"]));
}

#[tokio::test]
async fn only_the_first_event_of_a_watched_table_has_columns() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let mut watch = server
        .watch_as(&format!("{WIDGETS}?watch=1"), &[TABLE])
        .await;
    let (kind, table) = watch.next().await.expect("an event");
    assert_eq!(
        (kind.as_str(), columns(&table)),
        ("ADDED", vec!["Name", "Color", "Phase"])
    );
    server
        .merge(&format!("{WIDGETS}/a"), json!({"spec": {"color": "blue"}}))
        .await
        .expect(200);
    let (kind, table) = watch.next().await.expect("an event");
    assert_eq!((kind.as_str(), columns(&table)), ("MODIFIED", vec![]));
    assert_eq!(table["rows"][0]["cells"], json!(["a", "blue", null]));
}

#[tokio::test]
async fn built_in_kinds_have_tables() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let table = server
        .send("GET", CONFIG_MAPS, &[TABLE], "")
        .await
        .expect(200);
    assert_eq!(columns(&table.json), ["Name", "Data", "Age"]);
    assert_eq!(table.json["rows"][0]["cells"][1], 1);
}

#[tokio::test]
async fn partial_object_metadata_can_be_read_listed_and_watched() {
    let server = Server::with_widgets().await;
    let created = server.post(WIDGETS, widget("a")).await.expect(201);
    let expected = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": created.json["metadata"]});
    let one = server
        .send("GET", &format!("{WIDGETS}/a"), &[PARTIAL], "")
        .await
        .expect(200);
    assert_eq!(one.json, expected);
    let list = server
        .send("GET", WIDGETS, &[PARTIAL_LIST], "")
        .await
        .expect(200);
    assert_eq!(list.json["kind"], "PartialObjectMetadataList");
    assert_eq!(list.json["apiVersion"], "meta.k8s.io/v1");
    assert_eq!(list.json["items"][0]["metadata"], created.json["metadata"]);
    assert_eq!(list.json["items"][0].get("spec"), None);
    assert_eq!(list.rv(), server.server.revision());
    let path = format!(
        "{WIDGETS}?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    let mut watch = server.watch_as(&path, &[PARTIAL]).await;
    assert_eq!(watch.next().await, Some(("ADDED".into(), expected)));
    let (kind, bookmark) = watch.next().await.expect("a bookmark");
    assert_eq!(
        (kind.as_str(), &bookmark["kind"]),
        ("BOOKMARK", &json!("PartialObjectMetadata"))
    );
    server.delete(&format!("{WIDGETS}/a")).await.expect(200);
    let (kind, deleted) = watch.next().await.expect("an event");
    assert_eq!(
        (kind.as_str(), &deleted["metadata"]["uid"]),
        ("DELETED", &created.json["metadata"]["uid"])
    );
    assert_eq!(deleted.get("spec"), None);
}

#[tokio::test]
async fn watched_objects_have_a_kind_even_if_list_items_do_not() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let maps = server.get(CONFIG_MAPS).await.json;
    assert_eq!(
        (&maps["kind"], &maps["apiVersion"]),
        (&json!("ConfigMapList"), &json!("v1"))
    );
    assert_eq!(
        (
            maps["items"][0].get("kind"),
            maps["items"][0].get("apiVersion")
        ),
        (None, None)
    );
    let widgets = server.get(WIDGETS).await.json;
    assert_eq!(
        (&widgets["kind"], &widgets["apiVersion"]),
        (&json!("WidgetList"), &json!("example.com/v1"))
    );
    let item = &widgets["items"][0];
    assert_eq!(
        (&item["kind"], &item["apiVersion"]),
        (&json!("Widget"), &json!("example.com/v1"))
    );
    // Watched objects always have kind and apiVersion.
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    let (_, object) = watch.next().await.expect("an event");
    assert_eq!(
        (&object["kind"], &object["apiVersion"]),
        (&json!("ConfigMap"), &json!("v1"))
    );
}

#[tokio::test]
async fn an_unsupported_media_type_is_not_acceptable() {
    let server = Server::with_widgets().await;
    for path in [WIDGETS, CONFIG_MAPS, "/api", "/apis/example.com/v1"] {
        let failure = server
            .send("GET", path, &[("accept", "text/html")], "")
            .await
            .expect(406);
        assert_eq!(failure.reason(), "NotAcceptable");
    }
    let protobuf = ("accept", "application/vnd.kubernetes.protobuf");
    server
        .send("GET", WIDGETS, &[protobuf], "")
        .await
        .expect(406);
    let either = (
        "accept",
        "application/vnd.kubernetes.protobuf,application/json",
    );
    server.send("GET", WIDGETS, &[either], "").await.expect(200);
    // A write with an unsupported media type stores nothing.
    let headers = [
        ("accept", "text/html"),
        ("content-type", "application/json"),
    ];
    server
        .send("POST", WIDGETS, &headers, widget("a").to_string())
        .await
        .expect(406);
    server.get(&format!("{WIDGETS}/a")).await.expect(404);
}

#[tokio::test]
async fn responses_can_be_yaml() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let yaml = server
        .send(
            "GET",
            &format!("{WIDGETS}/a"),
            &[("accept", "application/yaml")],
            "",
        )
        .await
        .expect(200);
    assert_eq!(yaml.headers["content-type"], "application/yaml");
    assert!(yaml.text.contains("color: red"), "{}", yaml.text);
}
