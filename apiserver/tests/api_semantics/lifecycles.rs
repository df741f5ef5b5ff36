//! Lifecycles of CRDs, namespaces and dependents, also under concurrent requests and failing
//! controllers.

use crate::support::{CONFIG_MAPS, MERGE, Server, WIDGETS, config_map, widget, widgets};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use steersman_apiserver::{Admission, Failure, Operation, Options};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS_CRD: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";

/// Spawns four tasks that create objects until a request is rejected. They return the names of the
/// created objects.
fn spawn_creators(
    server: &Server,
    path: &'static str,
    object: fn(&str) -> Value,
) -> Vec<tokio::task::JoinHandle<Vec<String>>> {
    let one = |task: usize| {
        let server = server.clone();
        tokio::spawn(async move {
            let mut created = Vec::new();
            for n in 0.. {
                let name = format!("o-{task}-{n}");
                let reply = server.post(path, object(&name)).await;
                if reply.code != 201 {
                    break;
                }
                created.push(name);
                tokio::task::yield_now().await;
            }
            created
        })
    };
    (0..4).map(one).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_watch_reports_the_deletion_of_every_object_of_a_deleted_crd() {
    for _ in 0..10 {
        let server = Server::with_widgets().await;
        let mut watch = server.watch(&format!("{WIDGETS}?watch=1")).await;
        let tasks = spawn_creators(&server, WIDGETS, widget);
        tokio::task::yield_now().await;
        server.delete(WIDGETS_CRD).await.expect(200);
        let mut created = BTreeSet::new();
        for task in tasks {
            created.extend(task.await.unwrap());
        }
        let mut added = BTreeSet::new();
        let mut deleted = BTreeSet::new();
        while let Some((kind, object)) = watch.next().await {
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            match kind.as_str() {
                "ADDED" => _ = added.insert(name),
                "DELETED" => _ = deleted.insert(name),
                _ => {}
            }
        }
        assert_eq!(added, created);
        assert_eq!(deleted, created);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_deleted_namespace_leaves_no_objects_behind() {
    const PATH: &str = "/api/v1/namespaces/busy/configmaps";
    for _ in 0..20 {
        let server = Server::start();
        server
            .post("/api/v1/namespaces", json!({"metadata": {"name": "busy"}}))
            .await
            .expect(201);
        let tasks = spawn_creators(&server, PATH, config_map);
        tokio::task::yield_now().await;
        server.delete("/api/v1/namespaces/busy").await.expect(200);
        for task in tasks {
            task.await.unwrap();
        }
        server.server.wait_idle().await;
        server.get("/api/v1/namespaces/busy").await.expect(404);
        assert_eq!(server.get(PATH).await.expect(200).names(), [""; 0]);
    }
}

/// Starts a server whose admission calls `fail` for the first three deletions of config maps. Also
/// returns the number of deletions attempted.
fn start_with_failing_deletions(
    fail: impl Fn() -> Result<(), Box<Failure>> + Send + Sync + 'static,
) -> (Server, Arc<AtomicUsize>) {
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = attempts.clone();
    let admission = Admission::default().validate(move |review, _| {
        let is_deletion = review.operation == Operation::Delete && review.resource == "configmaps";
        if is_deletion && counted.fetch_add(1, Ordering::SeqCst) < 3 {
            fail()
        } else {
            Ok(())
        }
    });
    (
        Server::with_options(Options {
            admission,
            ..Options::default()
        }),
        attempts,
    )
}

async fn check_namespace_deletion(server: &Server) {
    server
        .post("/api/v1/namespaces", json!({"metadata": {"name": "n"}}))
        .await
        .expect(201);
    server
        .post("/api/v1/namespaces/n/configmaps", config_map("a"))
        .await
        .expect(201);
    server.delete("/api/v1/namespaces/n").await.expect(200);
    server.server.wait_idle().await;
    server.get("/api/v1/namespaces/n").await.expect(404);
}

#[tokio::test(start_paused = true)]
async fn a_controller_retries_rejected_requests() {
    let (server, attempts) =
        start_with_failing_deletions(|| Err(Failure::new(403, None, "not yet")));
    check_namespace_deletion(&server).await;
    assert_eq!(attempts.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn a_panicking_admission_closure_does_not_stop_the_controllers() {
    let (server, _) = start_with_failing_deletions(|| panic!("admission panics"));
    check_namespace_deletion(&server).await;
}

#[test]
#[should_panic(expected = "create the server in the runtime that uses it")]
fn using_a_server_after_its_runtime_has_ended_panics_with_an_explanation() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let server = runtime().block_on(async { Server::start() });
    runtime().block_on(server.server.wait_idle());
}

/// Updates the CRD of widgets.
async fn update_crd(server: &Server, change: impl FnOnce(&mut Value)) {
    let mut crd = server.get(WIDGETS_CRD).await.expect(200).json;
    change(&mut crd);
    server.put(WIDGETS_CRD, crd).await.expect(200);
    server.server.wait_idle().await;
}

#[tokio::test]
async fn a_crd_without_served_versions_and_its_objects_can_be_deleted() {
    let server = Server::with_widgets().await;
    server
        .post("/api/v1/namespaces", json!({"metadata": {"name": "n"}}))
        .await
        .expect(201);
    server
        .post("/apis/example.com/v1/namespaces/n/widgets", widget("a"))
        .await
        .expect(201);
    server.post(WIDGETS, widget("b")).await.expect(201);
    update_crd(&server, |crd| {
        for version in crd["spec"]["versions"].as_array_mut().unwrap() {
            version["served"] = false.into();
        }
    })
    .await;
    server.get(WIDGETS).await.expect(404);
    assert!(
        !server
            .get("/apis")
            .await
            .expect(200)
            .text
            .contains("example.com")
    );
    server.delete("/api/v1/namespaces/n").await.expect(200);
    server.server.wait_idle().await;
    server.get("/api/v1/namespaces/n").await.expect(404);
    server.delete(WIDGETS_CRD).await.expect(200);
    server.server.wait_idle().await;
    server.get(WIDGETS_CRD).await.expect(404);
}

#[tokio::test]
async fn existing_objects_are_read_with_the_current_schema() {
    let server = Server::with_widgets().await;
    let mut object = widget("a");
    object["spec"]["note"] = "kept for now".into();
    let created = server.post(WIDGETS, object).await.expect(201);
    update_crd(&server, |crd| {
        for version in crd["spec"]["versions"].as_array_mut().unwrap() {
            let spec =
                &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
            spec.as_object_mut().unwrap().remove("note");
            spec["grade"] = json!({"type": "string", "default": "new"});
        }
    })
    .await;
    let path = format!("{WIDGETS}/a");
    let shown = server.get(&path).await.expect(200);
    assert_eq!(
        shown.json["spec"],
        json!({"color": "red", "replicas": 1, "grade": "new"})
    );
    assert_eq!(shown.rv(), created.rv());
    let patched = server
        .send("PATCH", &path, &[("content-type", MERGE)], "{}")
        .await
        .expect(200);
    assert_eq!(
        (patched.rv(), &patched.json["metadata"]["generation"]),
        (created.rv(), &json!(1))
    );
}

#[tokio::test]
async fn a_conflicting_short_name_is_accepted_once_it_is_free() {
    let server = Server::with_widgets().await;
    let mut other = widgets();
    other["metadata"]["name"] = "gadgets.example.com".into();
    other["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget", "shortNames": ["gd"]});
    server.install(other).await;
    let short = |name: &'static str| {
        move |crd: &mut Value| crd["spec"]["names"]["shortNames"] = json!([name])
    };
    update_crd(&server, short("w")).await;
    let accepted = || async {
        server.get(WIDGETS_CRD).await.json["status"]["acceptedNames"]["shortNames"].clone()
    };
    assert_eq!(accepted().await, json!(["w"]));
    // The short name conflicts with gadgets. The new schema takes effect, the new name does not.
    update_crd(&server, |crd| {
        short("gd")(crd);
        for version in crd["spec"]["versions"].as_array_mut().unwrap() {
            version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["extra"] =
                json!({"type": "string"});
        }
    })
    .await;
    assert_eq!(accepted().await, json!(["w"]));
    let mut object = widget("a");
    object["spec"]["extra"] = "x".into();
    assert_eq!(
        server.post(WIDGETS, object).await.expect(201).json["spec"]["extra"],
        "x"
    );
    // Gadgets release the short name.
    let gadgets = format!("{CRDS}/gadgets.example.com");
    server
        .merge(
            &gadgets,
            json!({"spec": {"names": {"shortNames": ["other"]}}}),
        )
        .await
        .expect(200);
    server.server.wait_idle().await;
    assert_eq!(accepted().await, json!(["gd"]));
}

#[tokio::test]
async fn foreground_deletion_works_for_objects_that_own_each_other() {
    let server = Server::start();
    let a = server
        .post(CONFIG_MAPS, config_map("a"))
        .await
        .expect(201)
        .json;
    let reference = |object: &Value| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": object["metadata"]["name"],
               "uid": object["metadata"]["uid"], "blockOwnerDeletion": true})
    };
    let mut b = config_map("b");
    b["metadata"]["ownerReferences"] = json!([reference(&a)]);
    let b = server.post(CONFIG_MAPS, b).await.expect(201).json;
    let owned = json!({"metadata": {"ownerReferences": [reference(&b)]}});
    server
        .merge(&format!("{CONFIG_MAPS}/a"), owned)
        .await
        .expect(200);
    server
        .delete_with(
            &format!("{CONFIG_MAPS}/a"),
            json!({"propagationPolicy": "Foreground"}),
        )
        .await
        .expect(200);
    server.server.wait_idle().await;
    assert_eq!(server.get(CONFIG_MAPS).await.expect(200).names(), [""; 0]);
}

#[tokio::test]
async fn a_dangling_owner_is_detected_once_its_kind_is_installed() {
    let server = Server::start();
    let mut owned = config_map("a");
    owned["metadata"]["ownerReferences"] = json!([{"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "unknown-uid"}]);
    server.post(CONFIG_MAPS, owned).await.expect(201);
    server.server.wait_idle().await;
    server.get(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    server.install(widgets()).await;
    server.server.wait_idle().await;
    server.get(&format!("{CONFIG_MAPS}/a")).await.expect(404);
}

#[tokio::test]
async fn reinstalling_a_changed_crd_takes_effect_immediately() {
    let server = Server::with_widgets().await;
    let mut changed = widgets();
    for version in changed["spec"]["versions"].as_array_mut().unwrap() {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["extra"] =
            json!({"type": "string"});
    }
    server.server.install(changed).await.unwrap();
    let mut object = widget("a");
    object["spec"]["extra"] = "x".into();
    assert_eq!(
        server.post(WIDGETS, object).await.expect(201).json["spec"]["extra"],
        "x"
    );
}

#[tokio::test]
async fn reinstalling_an_unchanged_crd_keeps_it_served() {
    let server = Server::start();
    server.server.install(widgets()).await.unwrap();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    server.server.install(widgets()).await.unwrap();
    server.post(WIDGETS, widget("a")).await.expect(201);
}
