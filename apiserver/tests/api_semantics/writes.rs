//! Writes: resource versions, conflicts, PUT semantics and no-op writes.

use crate::support::*;
use futures::future::join_all;
use serde_json::{Value, json};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const CONFLICT: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

fn lease(name: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15},
    })
}

fn object_path(path: &str, name: &str) -> String {
    format!("{path}/{name}")
}

/// Removes the resource version of an object.
fn without_version(mut object: Value) -> Value {
    object["metadata"]
        .as_object_mut()
        .expect("metadata")
        .remove("resourceVersion");
    object
}

#[tokio::test]
async fn a_put_with_a_stale_resource_version_conflicts() {
    let server = Server::with_widgets().await;
    for (path, body, group, plural, qualified) in [
        (
            CONFIG_MAPS,
            config_map("c1"),
            Value::Null,
            "configmaps",
            "configmaps",
        ),
        (
            WIDGETS,
            widget("c1"),
            "example.com".into(),
            "widgets",
            "widgets.example.com",
        ),
    ] {
        let first = server.post(path, body).await.expect(201);
        let mut changed = first.json.clone();
        changed["metadata"]["labels"] = json!({"n": "1"});
        let second = server
            .put(&object_path(path, "c1"), changed.clone())
            .await
            .expect(200);
        assert!(second.rv() > first.rv());
        changed["metadata"]["labels"] = json!({"n": "2"});
        let rejected = server
            .put(&object_path(path, "c1"), changed.clone())
            .await
            .expect(409);
        assert_eq!(rejected.reason(), "Conflict");
        assert_eq!(
            rejected.message(),
            format!("Operation cannot be fulfilled on {qualified} \"c1\": {CONFLICT}")
        );
        assert_eq!(rejected.json["details"]["name"], "c1");
        assert_eq!(rejected.json["details"]["kind"], plural);
        assert_eq!(rejected.json["details"]["group"], group);
        assert_eq!(rejected.json["status"], "Failure");
        let ahead = (second.rv() + 1000).to_string();
        changed["metadata"]["resourceVersion"] = ahead.into();
        server
            .put(&object_path(path, "c1"), changed)
            .await
            .expect(409);
        assert_eq!(server.get(&object_path(path, "c1")).await.json, second.json);
    }
}

#[tokio::test]
async fn a_put_without_a_resource_version_depends_on_the_kind() {
    let server = Server::with_widgets().await;
    let first = server.post(CONFIG_MAPS, config_map("c")).await.expect(201);
    let mut changed = without_version(first.json.clone());
    changed["data"]["k"] = "w".into();
    let second = server
        .put(&object_path(CONFIG_MAPS, "c"), changed)
        .await
        .expect(200);
    assert_eq!(second.json["data"]["k"], "w");
    assert!(second.rv() > first.rv());

    server.post(WIDGETS, widget("w")).await.expect(201);
    server.post(LEASES, lease("l")).await.expect(201);
    let mut zero = widget("w");
    zero["metadata"]["resourceVersion"] = "0".into();
    for (path, body) in [
        (object_path(WIDGETS, "w"), widget("w")),
        (object_path(WIDGETS, "w/status"), widget("w")),
        (object_path(WIDGETS, "w"), zero),
        (object_path(LEASES, "l"), lease("l")),
    ] {
        let rejected = server.put(&path, body).await.expect(422);
        assert_eq!(rejected.reason(), "Invalid", "{path}");
        assert_eq!(rejected.cause_fields(), ["metadata.resourceVersion"]);
        assert!(
            matches!(
                rejected.json["details"]["kind"].as_str(),
                Some("widgets" | "leases")
            ),
            "{}",
            rejected.text
        );
        let cause = &rejected.json["details"]["causes"][0];
        assert_eq!(cause["reason"], "FieldValueInvalid");
        assert_eq!(
            cause["message"],
            "Invalid value: 0: must be specified for an update"
        );
    }
}

#[tokio::test]
async fn a_put_of_a_missing_object_creates_it_only_for_some_kinds() {
    let server = Server::with_widgets().await;
    let created = server
        .put(&object_path(LEASES, "l"), lease("l"))
        .await
        .expect(201);
    assert!(created.json["metadata"]["uid"].is_string() && created.rv() > 0);
    assert_eq!(
        server.get(&object_path(LEASES, "l")).await.expect(200).json,
        created.json
    );
    for (path, body) in [(CONFIG_MAPS, config_map("x")), (WIDGETS, widget("x"))] {
        let rejected = server.put(&object_path(path, "x"), body).await.expect(404);
        assert_eq!(rejected.reason(), "NotFound");
        server.get(&object_path(path, "x")).await.expect(404);
    }
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}});
    server
        .put("/apis/rbac.authorization.k8s.io/v1/clusterroles/r", role)
        .await
        .expect(201);
}

/// The uid in the body is that of the deleted object.
#[tokio::test]
async fn a_put_of_a_deleted_object_does_not_recreate_it() {
    let server = Server::with_widgets().await;
    for (path, body) in [(WIDGETS, widget("x")), (CONFIG_MAPS, config_map("x"))] {
        let known = server.post(path, body).await.expect(201).json;
        server.delete(&object_path(path, "x")).await.expect(200);
        server.put(&object_path(path, "x"), known).await.expect(404);
    }
    let mut known = server.post(LEASES, lease("x")).await.expect(201).json;
    server.delete(&object_path(LEASES, "x")).await.expect(200);
    let rejected = server
        .put(&object_path(LEASES, "x"), known.clone())
        .await
        .expect(409);
    assert_eq!(rejected.reason(), "Conflict");
    let uid = known["metadata"]["uid"].as_str().unwrap();
    let message = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: ");
    assert!(rejected.message().ends_with(&message), "{}", rejected.text);
    known["metadata"].as_object_mut().unwrap().remove("uid");
    assert!(
        server
            .put(&object_path(LEASES, "x"), known.clone())
            .await
            .expect(201)
            .rv()
            > rv(&known)
    );
}

/// One PUT creates the object, the others replace it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_puts_of_a_missing_object_all_succeed() {
    let server = Server::start();
    let puts = (0..20).map(|n| {
        let server = server.clone();
        let body = json!({"metadata": {"name": "e", "labels": {"n": n.to_string()}}});
        tokio::spawn(async move {
            server
                .put("/api/v1/namespaces/default/endpoints/e", body)
                .await
        })
    });
    let mut codes: Vec<_> = join_all(puts)
        .await
        .into_iter()
        .map(|reply| reply.unwrap().code)
        .collect();
    codes.sort_unstable();
    assert_eq!((&codes[..19], codes[19]), (&[200; 19][..], 201));
}

/// Which kinds a PUT creates, and which it replaces without a resource version.
#[tokio::test]
async fn create_on_put_and_unconditional_put_depend_on_the_kind() {
    let server = Server::start();
    let namespaced = |group: &str| format!("/{group}/namespaces/default");
    let core = namespaced("api/v1");
    let rbac = namespaced("apis/rbac.authorization.k8s.io/v1");
    let pod = json!({"containers": [{"name": "c", "image": "i"}]});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
    let deployment = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"});
    let about = json!({"namespace": "default"});
    for (path, mut body, creates, unconditional) in [
        (format!("{core}/secrets"), json!({}), false, true),
        (format!("{core}/serviceaccounts"), json!({}), false, true),
        (format!("{core}/pods"), json!({"spec": pod}), false, true),
        (
            format!("{}/deployments", namespaced("apis/apps/v1")),
            json!({"spec": deployment}),
            false,
            true,
        ),
        ("/api/v1/namespaces".into(), json!({}), false, true),
        (
            format!("{core}/services"),
            json!({"spec": {"ports": [{"port": 80}]}}),
            true,
            true,
        ),
        (format!("{core}/endpoints"), json!({}), true, true),
        (
            format!("{core}/limitranges"),
            json!({"spec": {"limits": []}}),
            true,
            true,
        ),
        (
            format!("{core}/events"),
            json!({"involvedObject": about}),
            true,
            true,
        ),
        (format!("{rbac}/roles"), json!({}), true, true),
        (
            format!("{rbac}/rolebindings"),
            json!({"roleRef": role}),
            true,
            true,
        ),
        (
            "/apis/node.k8s.io/v1/runtimeclasses".into(),
            json!({"handler": "h"}),
            true,
            false,
        ),
        (
            "/apis/storage.k8s.io/v1/csidrivers".into(),
            json!({"spec": {}}),
            false,
            false,
        ),
        (
            format!("{}/poddisruptionbudgets", namespaced("apis/policy/v1")),
            json!({"spec": {}}),
            false,
            false,
        ),
    ] {
        body["metadata"] = json!({"name": "x"});
        let put = server.put(&object_path(&path, "x"), body.clone()).await;
        assert_eq!(
            put.code,
            if creates { 201 } else { 404 },
            "{path}: {}",
            put.text
        );
        let created = if creates {
            put
        } else {
            server.post(&path, body.clone()).await.expect(201)
        };
        // Neither the original body nor the stored object is a change.
        let put = server.put(&object_path(&path, "x"), body).await;
        assert_eq!(
            put.code,
            if unconditional { 200 } else { 422 },
            "{path}: {}",
            put.text
        );
        let put = server
            .put(&object_path(&path, "x"), created.json.clone())
            .await
            .expect(200);
        assert_eq!(put.json, created.json);
    }
}

#[tokio::test]
async fn name_namespace_and_uid_cannot_be_changed() {
    let server = Server::with_widgets().await;
    for (path, body) in [(WIDGETS, widget("w")), (CONFIG_MAPS, config_map("w"))] {
        let created = server.post(path, body).await.expect(201).json;
        let with = |field: &str, value: &str| {
            let mut object = created.clone();
            object["metadata"][field] = value.into();
            object
        };
        let rejected = server
            .put(&object_path(path, "w"), with("uid", "other"))
            .await
            .expect(409);
        assert_eq!(rejected.reason(), "Conflict");
        assert!(
            rejected
                .message()
                .contains("Precondition failed: UID in precondition: other"),
            "{}",
            rejected.text
        );
        // The uid is checked before the resource version.
        server
            .put(
                &object_path(path, "w"),
                without_version(with("uid", "other")),
            )
            .await
            .expect(409);

        let rejected = server
            .merge(
                &object_path(path, "w"),
                json!({"metadata": {"uid": "other"}}),
            )
            .await
            .expect(422);
        assert!(
            rejected
                .cause_fields()
                .iter()
                .all(|field| *field == "metadata.uid"),
            "{}",
            rejected.text
        );
        assert!(
            rejected.message().ends_with("field is immutable"),
            "{}",
            rejected.text
        );

        let rejected = server
            .put(&object_path(path, "w"), with("name", "zzz"))
            .await
            .expect(400);
        assert_eq!(rejected.reason(), "BadRequest");
        assert_eq!(
            rejected.message(),
            "the name of the object (zzz) does not match the name on the URL (w)"
        );
        server
            .put(&object_path(path, "w"), with("namespace", "kube-system"))
            .await
            .expect(400);
        server
            .merge(
                &object_path(path, "w"),
                json!({"metadata": {"name": "zzz"}}),
            )
            .await
            .expect(400);
        server
            .merge(
                &object_path(path, "w"),
                json!({"metadata": {"namespace": "kube-system"}}),
            )
            .await
            .expect(400);
        assert_eq!(server.get(&object_path(path, "w")).await.json, created);
    }
}

#[tokio::test]
async fn a_request_without_changes_writes_nothing() {
    let server = Server::with_widgets().await;
    for (path, body) in [(CONFIG_MAPS, config_map("a")), (WIDGETS, widget("a"))] {
        let path = &object_path(path, "a");
        let created = server
            .post(path.strip_suffix("/a").unwrap(), body)
            .await
            .expect(201);
        let mut watch = server
            .watch(&format!(
                "{}?watch=1&resourceVersion={}",
                path.strip_suffix("/a").unwrap(),
                created.rv()
            ))
            .await;
        let revision = server.server.revision();
        for same in [
            server.put(path, created.json.clone()).await,
            server.merge(path, json!({})).await,
            server
                .merge(path, json!({"metadata": {"labels": null}}))
                .await,
            server.merge(path, json!({"metadata": {"name": "a"}})).await,
            server
                .json_patch(
                    path,
                    json!([{"op": "test", "path": "/metadata/name", "value": "a"}]),
                )
                .await,
            server.json_patch(path, json!([])).await,
        ] {
            assert_eq!(same.expect(200).json, created.json);
        }
        assert_eq!(server.server.revision(), revision);
        let changed = server
            .merge(path, json!({"metadata": {"labels": {"a": "b"}}}))
            .await
            .expect(200);
        let (kind, object) = watch.next().await.unwrap();
        assert_eq!((kind.as_str(), rv(&object)), ("MODIFIED", changed.rv()));
        server.delete(path).await.expect(200);
        assert_eq!(watch.next_name().await, ("DELETED".into(), "a".into()));
    }
}

#[tokio::test]
async fn server_managed_fields_are_not_a_change() {
    let server = Server::with_widgets().await;
    let created = server.post(WIDGETS, widget("a")).await.expect(201);
    let mut same = created.json.clone();
    same["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z".into();
    same["metadata"]["generation"] = 77.into();
    same["metadata"]["selfLink"] = "/x".into();
    same["spec"].as_object_mut().unwrap().remove("replicas");
    same["status"] = json!({"phase": "Done"});
    assert_eq!(
        server
            .put(&object_path(WIDGETS, "a"), same)
            .await
            .expect(200)
            .json,
        created.json
    );
    let same = json!({"status": {"phase": "Done"}, "spec": {"unknown": 1}});
    assert_eq!(
        server
            .merge(&object_path(WIDGETS, "a"), same)
            .await
            .expect(200)
            .json,
        created.json
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_concurrent_puts_from_one_resource_version_succeeds() {
    let server = Server::with_widgets().await;
    for (path, body) in [(CONFIG_MAPS, config_map("a")), (WIDGETS, widget("a"))] {
        let created = server.post(path, body).await.expect(201).json;
        let puts = (0..20).map(|n| {
            let (server, mut body) = (server.clone(), created.clone());
            body["metadata"]["labels"] = json!({"n": n.to_string()});
            tokio::spawn(async move { server.put(&object_path(path, "a"), body).await })
        });
        let mut codes: Vec<_> = join_all(puts)
            .await
            .into_iter()
            .map(|reply| reply.unwrap().code)
            .collect();
        codes.sort_unstable();
        assert_eq!((codes[0], &codes[1..]), (200, &[409; 19][..]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_patches_without_a_resource_version_never_conflict() {
    let server = Server::with_widgets().await;
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let revision = server.server.revision();
    let patches = (0..60).map(|n| {
        let server = server.clone();
        let key = format!("k{n}");
        let path = object_path(CONFIG_MAPS, "a");
        tokio::spawn(async move {
            if n % 2 == 0 {
                return server.merge(&path, json!({"data": {key: "v"}})).await;
            }
            server
                .json_patch(
                    &path,
                    json!([{"op": "add", "path": format!("/data/{key}"), "value": "v"}]),
                )
                .await
        })
    });
    for reply in join_all(patches).await {
        reply.unwrap().expect(200);
    }
    let after = server.get(&object_path(CONFIG_MAPS, "a")).await;
    assert_eq!(after.json["data"].as_object().unwrap().len(), 61);
    assert_eq!(after.rv(), revision + 60);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_concurrent_creates_of_one_name_succeeds() {
    let server = Server::with_widgets().await;
    for path in [WIDGETS, CONFIG_MAPS] {
        let posts = (0..20).map(|_| {
            let server = server.clone();
            let body = if path == WIDGETS {
                widget("a")
            } else {
                config_map("a")
            };
            tokio::spawn(async move { server.post(path, body).await })
        });
        let replies: Vec<_> = join_all(posts)
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert_eq!(replies.iter().filter(|reply| reply.code == 201).count(), 1);
        assert!(
            replies
                .iter()
                .all(|reply| reply.code == 201 || reply.reason() == "AlreadyExists")
        );
    }
}

#[tokio::test]
async fn all_kinds_share_one_revision_counter() {
    let server = Server::with_widgets().await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    let mut last = server.server.revision();
    for (path, body) in [
        (CONFIG_MAPS, config_map("c")),
        ("/api/v1/namespaces/default/secrets", secret),
        (WIDGETS, widget("w")),
    ] {
        let created = server.post(path, body).await.expect(201);
        assert_eq!(
            created.rv(),
            last + 1,
            "every write increments the revision"
        );
        last = created.rv();
    }
    for path in [CONFIG_MAPS, WIDGETS, "/api/v1/pods"] {
        assert_eq!(server.get(path).await.rv(), last);
    }
    server
        .delete(&object_path(CONFIG_MAPS, "c"))
        .await
        .expect(200);
    assert_eq!(
        server.get(WIDGETS).await.rv(),
        last + 1,
        "a deletion increments the revision"
    );
    // Rejected requests do not increment the revision.
    server.post(WIDGETS, widget("w")).await.expect(409);
    server.get(&object_path(WIDGETS, "nope")).await.expect(404);
    assert_eq!(server.server.revision(), last + 1);
}

#[tokio::test]
async fn a_resource_version_in_a_patch_is_a_precondition() {
    let server = Server::with_widgets().await;
    let first = server.post(WIDGETS, widget("w")).await.expect(201);
    let second = server
        .merge(
            &object_path(WIDGETS, "w"),
            json!({"spec": {"color": "blue"}}),
        )
        .await
        .expect(200);
    let at_rv = |rv: u64, more: Value| {
        let mut patch = more;
        patch["metadata"] = json!({"resourceVersion": rv.to_string()});
        patch
    };
    let stale = server
        .merge(
            &object_path(WIDGETS, "w"),
            at_rv(first.rv(), json!({"spec": {"color": "green"}})),
        )
        .await
        .expect(409);
    assert_eq!(
        (stale.reason(), &stale.json["details"]["kind"]),
        ("Conflict", &json!("widgets"))
    );
    let stale = at_rv(first.rv(), json!({"status": {"phase": "x"}}));
    server
        .merge(&object_path(WIDGETS, "w/status"), stale)
        .await
        .expect(409);
    let replace = |rv: u64| json!([{"op": "replace", "path": "/metadata/resourceVersion", "value": rv.to_string()}]);
    server
        .json_patch(&object_path(WIDGETS, "w"), replace(first.rv()))
        .await
        .expect(409);
    server
        .json_patch(&object_path(WIDGETS, "w"), replace(second.rv()))
        .await
        .expect(200);
    server
        .merge(
            &object_path(WIDGETS, "w"),
            at_rv(second.rv(), json!({"spec": {"color": "green"}})),
        )
        .await
        .expect(200);
    let mut stale = server.get(&object_path(WIDGETS, "w")).await.json;
    stale["metadata"]["resourceVersion"] = first.rv().to_string().into();
    server
        .put(&object_path(WIDGETS, "w/status"), stale)
        .await
        .expect(409);
}

#[tokio::test]
async fn patching_a_missing_object_is_not_found() {
    let server = Server::with_widgets().await;
    for path in [WIDGETS, CONFIG_MAPS, LEASES] {
        server
            .merge(&object_path(path, "x"), json!({}))
            .await
            .expect(404);
        server
            .json_patch(&object_path(path, "x"), json!([]))
            .await
            .expect(404);
    }
}

#[tokio::test]
async fn a_create_with_a_resource_version_is_rejected() {
    let server = Server::with_widgets().await;
    for (path, mut body) in [(WIDGETS, widget("a")), (CONFIG_MAPS, config_map("a"))] {
        body["metadata"]["resourceVersion"] = "1".into();
        let rejected = server.post(path, body.clone()).await.expect(500);
        assert_eq!(
            rejected.message(),
            "resourceVersion should not be set on objects to be created"
        );
        assert_eq!(rejected.json.get("reason"), None);
        server.get(&object_path(path, "a")).await.expect(404);
        // "0" means no resource version.
        body["metadata"]["resourceVersion"] = "0".into();
        server.post(path, body).await.expect(201);
    }
}

#[tokio::test]
async fn an_invalid_resource_version_in_a_put_is_a_server_error() {
    let server = Server::with_widgets().await;
    for (path, mut body) in [(WIDGETS, widget("a")), (CONFIG_MAPS, config_map("a"))] {
        server.post(path, body.clone()).await.expect(201);
        body["metadata"]["resourceVersion"] = "garbage".into();
        let rejected = server.put(&object_path(path, "a"), body).await.expect(500);
        assert!(
            rejected.message().contains("ParseUint"),
            "{}",
            rejected.text
        );
    }
}
