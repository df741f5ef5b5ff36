//! Revisions, and who may write over whom.

use crate::support::*;
use futures::future::join_all;
use serde_json::{Value, json};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const CHANGED: &str = "the object has been modified; please apply your changes to the latest version and try again";

fn lease(name: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15},
    })
}

fn at(path: &str, name: &str) -> String {
    format!("{path}/{name}")
}

/// A body without its revision.
fn unversioned(mut object: Value) -> Value {
    object["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
    object
}

/// Case 1.
#[tokio::test]
async fn who_writes_from_an_old_revision_is_told_of_a_conflict() {
    let server = Server::with_widgets().await;
    for (path, body, group, plural, qualified) in [
        (CONFIG_MAPS, config_map("c1"), Value::Null, "configmaps", "configmaps"),
        (WIDGETS, widget("c1"), "example.com".into(), "widgets", "widgets.example.com"),
    ] {
        let first = server.post(path, body).await.expect(201);
        let mut changed = first.json.clone();
        changed["metadata"]["labels"] = json!({"n": "1"});
        let second = server.put(&at(path, "c1"), changed.clone()).await.expect(200);
        assert!(second.rv() > first.rv());
        changed["metadata"]["labels"] = json!({"n": "2"});
        let refused = server.put(&at(path, "c1"), changed.clone()).await.expect(409);
        assert_eq!(refused.reason(), "Conflict");
        assert_eq!(refused.message(), format!("Operation cannot be fulfilled on {qualified} \"c1\": {CHANGED}"));
        assert_eq!(refused.json["details"]["name"], "c1");
        assert_eq!(refused.json["details"]["kind"], plural);
        assert_eq!(refused.json["details"]["group"], group);
        assert_eq!(refused.json["status"], "Failure");
        let ahead = (second.rv() + 1000).to_string();
        changed["metadata"]["resourceVersion"] = ahead.into();
        server.put(&at(path, "c1"), changed).await.expect(409);
        assert_eq!(server.get(&at(path, "c1")).await.json, second.json);
    }
}

/// Case 2.
#[tokio::test]
async fn a_put_without_a_revision_is_for_some_types_only() {
    let server = Server::with_widgets().await;
    let first = server.post(CONFIG_MAPS, config_map("c")).await.expect(201);
    let mut changed = unversioned(first.json.clone());
    changed["data"]["k"] = "w".into();
    let second = server.put(&at(CONFIG_MAPS, "c"), changed).await.expect(200);
    assert_eq!(second.json["data"]["k"], "w");
    assert!(second.rv() > first.rv());

    server.post(WIDGETS, widget("w")).await.expect(201);
    server.post(LEASES, lease("l")).await.expect(201);
    let mut zero = widget("w");
    zero["metadata"]["resourceVersion"] = "0".into();
    for (path, body) in [
        (at(WIDGETS, "w"), widget("w")),
        (at(WIDGETS, "w/status"), widget("w")),
        (at(WIDGETS, "w"), zero),
        (at(LEASES, "l"), lease("l")),
    ] {
        let refused = server.put(&path, body).await.expect(422);
        assert_eq!(refused.reason(), "Invalid", "{path}");
        assert_eq!(refused.cause_fields(), ["metadata.resourceVersion"]);
        assert!(matches!(refused.json["details"]["kind"].as_str(), Some("widgets" | "leases")), "{}", refused.text);
        let cause = &refused.json["details"]["causes"][0];
        assert_eq!(cause["reason"], "FieldValueInvalid");
        assert_eq!(cause["message"], "Invalid value: 0: must be specified for an update");
    }
}

/// Case 3.
#[tokio::test]
async fn a_put_to_nothing_creates_only_what_is_created_that_way() {
    let server = Server::with_widgets().await;
    let made = server.put(&at(LEASES, "l"), lease("l")).await.expect(201);
    assert!(made.json["metadata"]["uid"].is_string() && made.rv() > 0);
    assert_eq!(server.get(&at(LEASES, "l")).await.expect(200).json, made.json);
    for (path, body) in [(CONFIG_MAPS, config_map("x")), (WIDGETS, widget("x"))] {
        let refused = server.put(&at(path, "x"), body).await.expect(404);
        assert_eq!(refused.reason(), "NotFound");
        server.get(&at(path, "x")).await.expect(404);
    }
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}});
    server.put("/apis/rbac.authorization.k8s.io/v1/clusterroles/r", role).await.expect(201);
}

/// Case 3: a uid is that of an object which is gone.
#[tokio::test]
async fn a_put_of_what_was_deleted_does_not_bring_it_back() {
    let server = Server::with_widgets().await;
    for (path, body) in [(WIDGETS, widget("x")), (CONFIG_MAPS, config_map("x"))] {
        let known = server.post(path, body).await.expect(201).json;
        server.delete(&at(path, "x")).await.expect(200);
        server.put(&at(path, "x"), known).await.expect(404);
    }
    let mut known = server.post(LEASES, lease("x")).await.expect(201).json;
    server.delete(&at(LEASES, "x")).await.expect(200);
    let refused = server.put(&at(LEASES, "x"), known.clone()).await.expect(409);
    assert_eq!(refused.reason(), "Conflict");
    let uid = known["metadata"]["uid"].as_str().unwrap();
    let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: ");
    assert!(refused.message().ends_with(&why), "{}", refused.text);
    known["metadata"].as_object_mut().unwrap().remove("uid");
    assert!(server.put(&at(LEASES, "x"), known.clone()).await.expect(201).rv() > rv(&known));
}

/// Case 3: of many who create by PUT, the others replace.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn puts_to_nothing_do_not_stumble_over_each_other() {
    let server = Server::start();
    let puts = (0..20).map(|n| {
        let server = server.clone();
        let body = json!({"metadata": {"name": "e", "labels": {"n": n.to_string()}}});
        tokio::spawn(async move { server.put("/api/v1/namespaces/default/endpoints/e", body).await })
    });
    let mut codes: Vec<_> = join_all(puts).await.into_iter().map(|reply| reply.unwrap().code).collect();
    codes.sort_unstable();
    assert_eq!((&codes[..19], codes[19]), (&[200; 19][..], 201));
}

/// Cases 2 and 3, for more types: which of them create by PUT, and which replace without a revision.
#[tokio::test]
async fn types_differ_in_what_a_put_may_do() {
    let server = Server::start();
    let namespaced = |group: &str| format!("/{group}/namespaces/default");
    let (core, rbac) = (namespaced("api/v1"), namespaced("apis/rbac.authorization.k8s.io/v1"));
    let pod = json!({"containers": [{"name": "c", "image": "i"}]});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
    let deployment = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"});
    let about = json!({"namespace": "default"});
    for (path, mut body, creates, unconditional) in [
        (format!("{core}/secrets"), json!({}), false, true),
        (format!("{core}/serviceaccounts"), json!({}), false, true),
        (format!("{core}/pods"), json!({"spec": pod}), false, true),
        (format!("{}/deployments", namespaced("apis/apps/v1")), json!({"spec": deployment}), false, true),
        ("/api/v1/namespaces".into(), json!({}), false, true),
        (format!("{core}/services"), json!({"spec": {"ports": [{"port": 80}]}}), true, true),
        (format!("{core}/endpoints"), json!({}), true, true),
        (format!("{core}/limitranges"), json!({"spec": {"limits": []}}), true, true),
        (format!("{core}/events"), json!({"involvedObject": about}), true, true),
        (format!("{rbac}/roles"), json!({}), true, true),
        (format!("{rbac}/rolebindings"), json!({"roleRef": role}), true, true),
        ("/apis/node.k8s.io/v1/runtimeclasses".into(), json!({"handler": "h"}), true, false),
        ("/apis/storage.k8s.io/v1/csidrivers".into(), json!({"spec": {}}), false, false),
        (format!("{}/poddisruptionbudgets", namespaced("apis/policy/v1")), json!({"spec": {}}), false, false),
    ] {
        body["metadata"] = json!({"name": "x"});
        let put = server.put(&at(&path, "x"), body.clone()).await;
        assert_eq!(put.code, if creates { 201 } else { 404 }, "{path}: {}", put.text);
        let made = if creates { put } else { server.post(&path, body.clone()).await.expect(201) };
        // What it was made of, and what became of it, is no change.
        let put = server.put(&at(&path, "x"), body).await;
        assert_eq!(put.code, if unconditional { 200 } else { 422 }, "{path}: {}", put.text);
        let put = server.put(&at(&path, "x"), made.json.clone()).await.expect(200);
        assert_eq!(put.json, made.json);
    }
}

/// Case 4.
#[tokio::test]
async fn an_object_keeps_its_identity() {
    let server = Server::with_widgets().await;
    for (path, body) in [(WIDGETS, widget("w")), (CONFIG_MAPS, config_map("w"))] {
        let made = server.post(path, body).await.expect(201).json;
        let with = |field: &str, value: &str| {
            let mut object = made.clone();
            object["metadata"][field] = value.into();
            object
        };
        let refused = server.put(&at(path, "w"), with("uid", "other")).await.expect(409);
        assert_eq!(refused.reason(), "Conflict");
        assert!(refused.message().contains("Precondition failed: UID in precondition: other"), "{}", refused.text);
        // It is looked at before the revision is.
        server.put(&at(path, "w"), unversioned(with("uid", "other"))).await.expect(409);

        let refused = server.merge(&at(path, "w"), json!({"metadata": {"uid": "other"}})).await.expect(422);
        assert!(refused.cause_fields().iter().all(|field| *field == "metadata.uid"), "{}", refused.text);
        assert!(refused.message().ends_with("field is immutable"), "{}", refused.text);

        let refused = server.put(&at(path, "w"), with("name", "zzz")).await.expect(400);
        assert_eq!(refused.reason(), "BadRequest");
        assert_eq!(refused.message(), "the name of the object (zzz) does not match the name on the URL (w)");
        server.put(&at(path, "w"), with("namespace", "kube-system")).await.expect(400);
        server.merge(&at(path, "w"), json!({"metadata": {"name": "zzz"}})).await.expect(400);
        server.merge(&at(path, "w"), json!({"metadata": {"namespace": "kube-system"}})).await.expect(400);
        assert_eq!(server.get(&at(path, "w")).await.json, made);
    }
}

/// Case 5.
#[tokio::test]
async fn a_write_that_changes_nothing_is_no_write() {
    let server = Server::with_widgets().await;
    for (path, body) in [(CONFIG_MAPS, config_map("a")), (WIDGETS, widget("a"))] {
        let path = &at(path, "a");
        let made = server.post(path.strip_suffix("/a").unwrap(), body).await.expect(201);
        let mut watch =
            server.watch(&format!("{}?watch=1&resourceVersion={}", path.strip_suffix("/a").unwrap(), made.rv())).await;
        let revision = server.server.revision();
        for same in [
            server.put(path, made.json.clone()).await,
            server.merge(path, json!({})).await,
            server.merge(path, json!({"metadata": {"labels": null}})).await,
            server.merge(path, json!({"metadata": {"name": "a"}})).await,
            server.json_patch(path, json!([{"op": "test", "path": "/metadata/name", "value": "a"}])).await,
            server.json_patch(path, json!([])).await,
        ] {
            assert_eq!(same.expect(200).json, made.json);
        }
        assert_eq!(server.server.revision(), revision);
        let changed = server.merge(path, json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200);
        let (kind, object) = watch.next().await.unwrap();
        assert_eq!((kind.as_str(), rv(&object)), ("MODIFIED", changed.rv()));
        server.delete(path).await.expect(200);
        assert_eq!(watch.next_name().await, ("DELETED".into(), "a".into()));
    }
}

/// Case 5.
#[tokio::test]
async fn fields_that_only_the_server_sets_do_not_make_a_change() {
    let server = Server::with_widgets().await;
    let made = server.post(WIDGETS, widget("a")).await.expect(201);
    let mut same = made.json.clone();
    same["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z".into();
    same["metadata"]["generation"] = 77.into();
    same["metadata"]["selfLink"] = "/x".into();
    same["spec"].as_object_mut().unwrap().remove("replicas");
    same["status"] = json!({"phase": "Done"});
    assert_eq!(server.put(&at(WIDGETS, "a"), same).await.expect(200).json, made.json);
    let same = json!({"status": {"phase": "Done"}, "spec": {"unknown": 1}});
    assert_eq!(server.merge(&at(WIDGETS, "a"), same).await.expect(200).json, made.json);
}

/// Case 6.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_puts_from_one_revision_one_wins() {
    let server = Server::with_widgets().await;
    for (path, body) in [(CONFIG_MAPS, config_map("a")), (WIDGETS, widget("a"))] {
        let made = server.post(path, body).await.expect(201).json;
        let puts = (0..20).map(|n| {
            let (server, mut body) = (server.clone(), made.clone());
            body["metadata"]["labels"] = json!({"n": n.to_string()});
            tokio::spawn(async move { server.put(&at(path, "a"), body).await })
        });
        let mut codes: Vec<_> = join_all(puts).await.into_iter().map(|reply| reply.unwrap().code).collect();
        codes.sort_unstable();
        assert_eq!((codes[0], &codes[1..]), (200, &[409; 19][..]));
    }
}

/// Case 6.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn patches_without_a_revision_never_conflict() {
    let server = Server::with_widgets().await;
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let revision = server.server.revision();
    let patches = (0..60).map(|n| {
        let server = server.clone();
        let (key, path) = (format!("k{n}"), at(CONFIG_MAPS, "a"));
        tokio::spawn(async move {
            if n % 2 == 0 {
                return server.merge(&path, json!({"data": {key: "v"}})).await;
            }
            server.json_patch(&path, json!([{"op": "add", "path": format!("/data/{key}"), "value": "v"}])).await
        })
    });
    for reply in join_all(patches).await {
        reply.unwrap().expect(200);
    }
    let after = server.get(&at(CONFIG_MAPS, "a")).await;
    assert_eq!(after.json["data"].as_object().unwrap().len(), 61);
    assert_eq!(after.rv(), revision + 60);
}

/// Case 6, and the same for those who create.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_who_create_one_name_one_does() {
    let server = Server::with_widgets().await;
    for path in [WIDGETS, CONFIG_MAPS] {
        let posts = (0..20).map(|_| {
            let server = server.clone();
            let body = if path == WIDGETS { widget("a") } else { config_map("a") };
            tokio::spawn(async move { server.post(path, body).await })
        });
        let replies: Vec<_> = join_all(posts).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(replies.iter().filter(|reply| reply.code == 201).count(), 1);
        assert!(replies.iter().all(|reply| reply.code == 201 || reply.reason() == "AlreadyExists"));
    }
}

/// Case 8.
#[tokio::test]
async fn revisions_count_over_all_kinds() {
    let server = Server::with_widgets().await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    let mut last = server.server.revision();
    for (path, body) in
        [(CONFIG_MAPS, config_map("c")), ("/api/v1/namespaces/default/secrets", secret), (WIDGETS, widget("w"))]
    {
        let made = server.post(path, body).await.expect(201);
        assert_eq!(made.rv(), last + 1, "every write takes the next number");
        last = made.rv();
    }
    for path in [CONFIG_MAPS, WIDGETS, "/api/v1/pods"] {
        assert_eq!(server.get(path).await.rv(), last);
    }
    server.delete(&at(CONFIG_MAPS, "c")).await.expect(200);
    assert_eq!(server.get(WIDGETS).await.rv(), last + 1, "so does a deletion");
    // Who is refused writes nothing.
    server.post(WIDGETS, widget("w")).await.expect(409);
    server.get(&at(WIDGETS, "nope")).await.expect(404);
    assert_eq!(server.server.revision(), last + 1);
}

#[tokio::test]
async fn a_revision_in_a_patch_is_a_condition() {
    let server = Server::with_widgets().await;
    let first = server.post(WIDGETS, widget("w")).await.expect(201);
    let second = server.merge(&at(WIDGETS, "w"), json!({"spec": {"color": "blue"}})).await.expect(200);
    let at_rv = |rv: u64, more: Value| {
        let mut patch = more;
        patch["metadata"] = json!({"resourceVersion": rv.to_string()});
        patch
    };
    let stale =
        server.merge(&at(WIDGETS, "w"), at_rv(first.rv(), json!({"spec": {"color": "green"}}))).await.expect(409);
    assert_eq!((stale.reason(), &stale.json["details"]["kind"]), ("Conflict", &json!("widgets")));
    let stale = at_rv(first.rv(), json!({"status": {"phase": "x"}}));
    server.merge(&at(WIDGETS, "w/status"), stale).await.expect(409);
    let replace = |rv: u64| json!([{"op": "replace", "path": "/metadata/resourceVersion", "value": rv.to_string()}]);
    server.json_patch(&at(WIDGETS, "w"), replace(first.rv())).await.expect(409);
    server.json_patch(&at(WIDGETS, "w"), replace(second.rv())).await.expect(200);
    server.merge(&at(WIDGETS, "w"), at_rv(second.rv(), json!({"spec": {"color": "green"}}))).await.expect(200);
    let mut stale = server.get(&at(WIDGETS, "w")).await.json;
    stale["metadata"]["resourceVersion"] = first.rv().to_string().into();
    server.put(&at(WIDGETS, "w/status"), stale).await.expect(409);
}

#[tokio::test]
async fn a_patch_of_nothing_finds_nothing() {
    let server = Server::with_widgets().await;
    for path in [WIDGETS, CONFIG_MAPS, LEASES] {
        server.merge(&at(path, "x"), json!({})).await.expect(404);
        server.json_patch(&at(path, "x"), json!([])).await.expect(404);
    }
}

#[tokio::test]
async fn a_new_object_has_no_revision_yet() {
    let server = Server::with_widgets().await;
    for (path, mut body) in [(WIDGETS, widget("a")), (CONFIG_MAPS, config_map("a"))] {
        body["metadata"]["resourceVersion"] = "1".into();
        let refused = server.post(path, body.clone()).await.expect(500);
        assert_eq!(refused.message(), "resourceVersion should not be set on objects to be created");
        assert_eq!(refused.json.get("reason"), None);
        server.get(&at(path, "a")).await.expect(404);
        // Zero is as good as none.
        body["metadata"]["resourceVersion"] = "0".into();
        server.post(path, body).await.expect(201);
    }
}

#[tokio::test]
async fn garbage_for_a_revision_is_an_error_of_the_server() {
    let server = Server::with_widgets().await;
    for (path, mut body) in [(WIDGETS, widget("a")), (CONFIG_MAPS, config_map("a"))] {
        server.post(path, body.clone()).await.expect(201);
        body["metadata"]["resourceVersion"] = "garbage".into();
        let refused = server.put(&at(path, "a"), body).await.expect(500);
        assert!(refused.message().contains("ParseUint"), "{}", refused.text);
    }
}
