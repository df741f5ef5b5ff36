//! Object metadata: names, uids, timestamps, generations, labels and owner references.

use crate::support::*;
use serde_json::{Value, json};
use steersman_apiserver::Options;

const A: &str = "/apis/example.com/v1/namespaces/default/widgets/a";

fn generation(reply: &Reply) -> &Value {
    &reply.json["metadata"]["generation"]
}

#[tokio::test]
async fn create_overwrites_server_managed_fields() {
    let server = Server::with_widgets().await;
    let mut forged = widget("");
    forged["metadata"] = json!({
        "generateName": "generated-", "uid": "forged", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 99,
        "deletionTimestamp": "2001-01-01T00:00:00Z", "deletionGracePeriodSeconds": 7, "selfLink": "/forged",
    });
    forged["status"] = json!({"phase": "Forged"});
    let created = server.post(WIDGETS, forged).await.expect(201);
    let meta = &created.json["metadata"];
    assert_eq!(meta["generation"], 1);
    assert_eq!(meta["uid"].as_str().map(str::len), Some(36));
    assert!(
        meta["creationTimestamp"]
            .as_str()
            .is_some_and(|time| !time.starts_with("2001")),
        "{meta}"
    );
    for field in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    ] {
        assert_eq!(meta.get(field), None, "{field}");
    }
    assert_eq!(created.json.get("status"), None);
    let suffix = meta["name"]
        .as_str()
        .and_then(|name| name.strip_prefix("generated-"))
        .expect("the prefix");
    assert_eq!(suffix.len(), 5);
    assert!(
        suffix
            .chars()
            .all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)),
        "{suffix}"
    );
}

#[tokio::test]
async fn a_generated_name_is_limited_to_63_characters() {
    let server = Server::start();
    let body = json!({"metadata": {"generateName": "a".repeat(80)}});
    let created = server.post(CONFIG_MAPS, body).await.expect(201);
    let name = created.json["metadata"]["name"]
        .as_str()
        .expect("a name")
        .to_owned();
    assert_eq!(name.len(), 63);
    assert!(name.starts_with(&"a".repeat(58)));
    assert_eq!(created.json["metadata"]["generateName"], "a".repeat(80));
    server
        .get(&format!("{CONFIG_MAPS}/{name}"))
        .await
        .expect(200);
}

#[tokio::test]
async fn name_overrides_generate_name_and_one_of_them_is_required() {
    let server = Server::start();
    let created = server
        .post(
            CONFIG_MAPS,
            json!({"metadata": {"name": "mine", "generateName": "x-"}}),
        )
        .await
        .expect(201);
    assert_eq!(created.json["metadata"]["name"], "mine");
    let failure = server
        .post(CONFIG_MAPS, json!({"metadata": {}}))
        .await
        .expect(422);
    assert_eq!(failure.cause_fields(), ["metadata.name"]);
    assert!(
        failure
            .message()
            .ends_with("metadata.name: Required value: name or generateName is required")
    );
}

#[tokio::test]
async fn servers_with_the_same_seed_generate_the_same_names_and_uids() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let server = Server::with_options(Options {
            seed: Some(7),
            ..Options::default()
        });
        let created = server
            .post(CONFIG_MAPS, json!({"metadata": {"generateName": "x-"}}))
            .await
            .expect(201);
        runs.push((
            created.json["metadata"]["name"].clone(),
            created.json["metadata"]["uid"].clone(),
        ));
    }
    assert_eq!(runs[0], runs[1]);
}

#[tokio::test]
async fn update_ignores_server_managed_fields() {
    let server = Server::with_widgets().await;
    let created = server.post(WIDGETS, widget("a")).await.expect(201);
    let mut forged = created.json.clone();
    forged["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    forged["metadata"]["generation"] = json!(99);
    forged["metadata"]["selfLink"] = json!("/forged");
    let put = server.put(A, forged.clone()).await.expect(200);
    assert_eq!(put.json, created.json, "the update writes nothing");
    // Setting the deletion timestamp is an error.
    forged["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
    let failure = server.put(A, forged).await.expect(422);
    assert_eq!(failure.cause_fields(), ["metadata.deletionTimestamp"; 2]);
}

#[tokio::test]
async fn patching_the_uid_is_rejected() {
    let server = Server::with_widgets().await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let failure = server
        .merge(A, json!({"metadata": {"uid": "other"}}))
        .await
        .expect(422);
    // The real server reports two causes for a custom resource, but one error in the message.
    assert_eq!(failure.cause_fields(), ["metadata.uid"; 2]);
    assert!(
        failure
            .message()
            .ends_with("metadata.uid: Invalid value: \"other\": field is immutable"),
        "{}",
        failure.text
    );
}

#[tokio::test]
async fn a_put_with_another_name_in_the_body_is_rejected() {
    let server = Server::with_widgets().await;
    let mut created = server.post(WIDGETS, widget("a")).await.expect(201).json;
    created["metadata"]["name"] = json!("zzz");
    let failure = server.put(A, created).await.expect(400);
    assert!(
        failure
            .message()
            .starts_with("the name of the object (zzz) does not match the name on the URL")
    );
}

#[tokio::test]
async fn the_generation_counts_changes_of_the_spec() {
    let server = Server::with_widgets().await;
    assert_eq!(
        generation(&server.post(WIDGETS, widget("a")).await.expect(201)),
        1
    );
    let labelled = server
        .merge(A, json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .expect(200);
    assert_eq!(generation(&labelled), 1);
    let changed = server
        .merge(A, json!({"spec": {"color": "blue"}}))
        .await
        .expect(200);
    assert_eq!(generation(&changed), 2);
    let ignored = server
        .merge(A, json!({"status": {"phase": "Done"}}))
        .await
        .expect(200);
    assert_eq!(ignored.json, changed.json);
    let reported = server
        .merge(&format!("{A}/status"), json!({"status": {"phase": "Done"}}))
        .await
        .expect(200);
    assert_eq!(
        (generation(&reported), &reported.json["status"]["phase"]),
        (&json!(2), &json!("Done"))
    );
    assert!(reported.rv() > changed.rv());
}

/// Without a status subresource the status is an ordinary field.
#[tokio::test]
async fn without_a_status_subresource_a_status_change_increments_the_generation() {
    let server = Server::start();
    let mut crd = widgets();
    crd["spec"]["versions"]
        .as_array_mut()
        .expect("versions")
        .truncate(1);
    crd["spec"]["versions"][0]
        .as_object_mut()
        .expect("a version")
        .remove("subresources");
    server.install(crd).await;
    let mut created = widget("a");
    created["status"] = json!({"phase": "New"});
    let created = server.post(WIDGETS, created).await.expect(201);
    assert_eq!(
        (generation(&created), &created.json["status"]["phase"]),
        (&json!(1), &json!("New"))
    );
    let changed = server
        .merge(A, json!({"status": {"phase": "Done"}}))
        .await
        .expect(200);
    assert_eq!(
        (generation(&changed), &changed.json["status"]["phase"]),
        (&json!(2), &json!("Done"))
    );
    server
        .merge(&format!("{A}/status"), json!({"status": {"phase": "No"}}))
        .await
        .expect(404);
}

#[tokio::test]
async fn a_deployment_has_a_generation_and_a_config_map_does_not() {
    let server = Server::start();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(
        generation(
            &server
                .post(path, super::subresources::deployment("a"))
                .await
                .expect(201)
        ),
        1
    );
    let path = &format!("{path}/a");
    let scaled = server
        .merge(path, json!({"spec": {"replicas": 3}}))
        .await
        .expect(200);
    assert_eq!(generation(&scaled), 2);
    let labelled = server
        .merge(path, json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .expect(200);
    assert_eq!(generation(&labelled), 2);
    // The annotations of a Deployment are those of its replica sets.
    let annotated = server
        .merge(path, json!({"metadata": {"annotations": {"a": "b"}}}))
        .await
        .expect(200);
    assert_eq!(generation(&annotated), 3);
    for (path, body) in [
        (CONFIG_MAPS, config_map("a")),
        (
            "/api/v1/namespaces/default/secrets",
            json!({"metadata": {"name": "a"}}),
        ),
        ("/api/v1/namespaces", json!({"metadata": {"name": "a"}})),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            json!({"metadata": {"name": "a"}}),
        ),
        (
            "/api/v1/namespaces/default/serviceaccounts",
            json!({"metadata": {"name": "a"}}),
        ),
    ] {
        let created = server.post(path, body).await.expect(201);
        assert_eq!(created.json["metadata"].get("generation"), None, "{path}");
    }
}

#[tokio::test]
async fn invalid_names_labels_and_annotations_are_rejected() {
    let server = Server::with_widgets().await;
    let failure = server.post(WIDGETS, widget("Not_A_Name")).await.expect(422);
    assert_eq!(
        (failure.reason(), failure.cause_fields()),
        ("Invalid", vec!["metadata.name"])
    );
    assert_eq!(failure.json["details"]["kind"], "Widget");
    let mut bad = widget("a");
    bad["metadata"]["labels"] = json!({"a b": "c", "d": "-"});
    bad["metadata"]["annotations"] = json!({"e f": "g"});
    let failure = server.post(WIDGETS, bad).await.expect(422);
    assert_eq!(
        failure.cause_fields(),
        ["metadata.annotations", "metadata.labels", "metadata.labels"]
    );
    let mut big = widget("a");
    big["metadata"]["annotations"] = json!({"a": "x".repeat(256 << 10)});
    let failure = server.post(WIDGETS, big).await.expect(422);
    assert_eq!(
        failure.json["details"]["causes"][0]["reason"],
        "FieldValueTooLong"
    );
    assert_eq!(failure.cause_fields(), ["metadata.annotations"]);
}

#[tokio::test]
async fn duplicate_owner_references_are_dropped_and_two_controllers_are_rejected() {
    let server = Server::start();
    let owner = |name: &str, controller: bool| json!({"apiVersion": "v1", "kind": "Namespace", "name": name, "uid": "u", "controller": controller});
    let twice =
        json!({"metadata": {"name": "a", "ownerReferences": [owner("n", true), owner("n", true)]}});
    let created = server
        .post(&format!("{CONFIG_MAPS}?dryRun=All"), twice)
        .await
        .expect(201);
    assert_eq!(
        created.json["metadata"]["ownerReferences"],
        json!([owner("n", true)])
    );
    assert!(
        created.warnings()[0].contains(".metadata.ownerReferences contains duplicate entries"),
        "{:?}",
        created.headers
    );
    let two =
        json!({"metadata": {"name": "a", "ownerReferences": [owner("n", true), owner("m", true)]}});
    let failure = server.post(CONFIG_MAPS, two).await.expect(422);
    assert_eq!(failure.cause_fields(), ["metadata.ownerReferences"]);
}

#[tokio::test]
async fn creating_an_object_with_a_resource_version_is_rejected() {
    let server = Server::start();
    let mut body = config_map("a");
    body["metadata"]["resourceVersion"] = json!("1");
    let failure = server.post(CONFIG_MAPS, body).await.expect(500);
    assert_eq!(
        failure.message(),
        "resourceVersion should not be set on objects to be created"
    );
    assert_eq!(failure.json.get("reason"), None);
}

#[tokio::test]
async fn unknown_metadata_fields_are_dropped_with_a_warning() {
    let server = Server::with_widgets().await;
    for (path, mut body) in [(WIDGETS, widget("a")), (CONFIG_MAPS, config_map("a"))] {
        body["metadata"]["nope"] = json!(1);
        body["metadata"]["kind"] = json!("x");
        body["metadata"]["clusterName"] = Value::Null;
        let strict = server
            .post(&format!("{path}?fieldValidation=Strict"), body.clone())
            .await
            .expect(400);
        assert!(
            strict.message().contains("unknown field \"metadata.nope\""),
            "{}",
            strict.text
        );
        let created = server.post(path, body).await.expect(201);
        assert_eq!(
            (
                created.json["metadata"].get("nope"),
                created.json["metadata"].get("kind")
            ),
            (None, None)
        );
        let expected = ["clusterName", "kind", "nope"]
            .map(|f| format!("299 - \"unknown field \\\"metadata.{f}\\\"\""));
        assert_eq!(created.warnings(), expected);
    }
}

#[tokio::test]
async fn empty_metadata_maps_and_lists_are_dropped() {
    let server = Server::with_widgets().await;
    for (path, mut body) in [(WIDGETS, widget("a")), (CONFIG_MAPS, config_map("a"))] {
        body["metadata"]["labels"] = json!({});
        body["metadata"]["annotations"] = Value::Null;
        body["metadata"]["finalizers"] = json!([]);
        let created = server.post(path, body).await.expect(201);
        for field in ["labels", "annotations", "finalizers"] {
            assert_eq!(created.json["metadata"].get(field), None, "{field}");
        }
        let path = &format!("{path}/a");
        let same = server
            .merge(
                path,
                json!({"metadata": {"labels": {}, "ownerReferences": []}}),
            )
            .await
            .expect(200);
        assert_eq!(same.rv(), created.rv());
        let finalized = server
            .merge(path, json!({"metadata": {"finalizers": ["a.b/c"]}}))
            .await
            .expect(200);
        assert_eq!(finalized.json["metadata"]["finalizers"], json!(["a.b/c"]));
        let released = server
            .merge(path, json!({"metadata": {"finalizers": []}}))
            .await
            .expect(200);
        assert_eq!(released.json["metadata"].get("finalizers"), None);
    }
}
