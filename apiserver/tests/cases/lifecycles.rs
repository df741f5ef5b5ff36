//! What has a beginning and an end goes through it whole, whatever happens at the same time.

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

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";

/// Create objects from four tasks until that is refused; the names of those that were made.
fn creating(
    server: &Server,
    path: &'static str,
    object: fn(&str) -> Value,
) -> Vec<tokio::task::JoinHandle<Vec<String>>> {
    let one = |task: usize| {
        let server = server.clone();
        tokio::spawn(async move {
            let mut made = Vec::new();
            for n in 0.. {
                let name = format!("o-{task}-{n}");
                let reply = server.post(path, object(&name)).await;
                if reply.code != 201 {
                    break;
                }
                made.push(name);
                tokio::task::yield_now().await;
            }
            made
        })
    };
    (0..4).map(one).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_object_of_a_definition_that_goes_is_seen_to_go() {
    for _ in 0..10 {
        let server = Server::with_widgets().await;
        let mut watch = server.watch(&format!("{WIDGETS}?watch=1")).await;
        let tasks = creating(&server, WIDGETS, widget);
        tokio::task::yield_now().await;
        server.delete(DEFINITION).await.expect(200);
        let mut made = BTreeSet::new();
        for task in tasks {
            made.extend(task.await.unwrap());
        }
        let (mut added, mut deleted) = (BTreeSet::new(), BTreeSet::new());
        while let Some((kind, object)) = watch.next().await {
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            match kind.as_str() {
                "ADDED" => _ = added.insert(name),
                "DELETED" => _ = deleted.insert(name),
                _ => {}
            }
        }
        assert_eq!(added, made);
        assert_eq!(deleted, made);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_left_behind_in_a_namespace_that_is_gone() {
    const PATH: &str = "/api/v1/namespaces/busy/configmaps";
    for _ in 0..20 {
        let server = Server::start();
        server.post("/api/v1/namespaces", json!({"metadata": {"name": "busy"}})).await.expect(201);
        let tasks = creating(&server, PATH, config_map);
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

/// A server that refuses, or panics over, the first deletions of configmaps that the controllers try.
fn with_trouble(trouble: impl Fn() -> Result<(), Box<Failure>> + Send + Sync + 'static) -> (Server, Arc<AtomicUsize>) {
    let tried = Arc::new(AtomicUsize::new(0));
    let counted = tried.clone();
    let admission = Admission::default().validate(move |review, _| {
        let matters = review.operation == Operation::Delete && review.resource == "configmaps";
        if matters && counted.fetch_add(1, Ordering::SeqCst) < 3 { trouble() } else { Ok(()) }
    });
    (Server::with(Options { admission, ..Options::default() }), tried)
}

async fn delete_a_namespace(server: &Server) {
    server.post("/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await.expect(201);
    server.post("/api/v1/namespaces/n/configmaps", config_map("a")).await.expect(201);
    server.delete("/api/v1/namespaces/n").await.expect(200);
    server.server.wait_idle().await;
    server.get("/api/v1/namespaces/n").await.expect(404);
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_to_a_controller_is_tried_again() {
    let (server, tried) = with_trouble(|| Err(Failure::new(403, None, "not yet")));
    delete_a_namespace(&server).await;
    assert_eq!(tried.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn a_closure_that_panics_does_not_end_the_controllers() {
    let (server, _) = with_trouble(|| panic!("a closure of the test's"));
    delete_a_namespace(&server).await;
}

#[test]
#[should_panic(expected = "make a server in the runtime that uses it")]
fn a_server_whose_runtime_has_ended_says_so() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime().block_on(async { Server::start() });
    runtime().block_on(server.server.wait_idle());
}

/// The definition of the widgets, changed.
async fn change(server: &Server, change: impl FnOnce(&mut Value)) {
    let mut definition = server.get(DEFINITION).await.expect(200).json;
    change(&mut definition);
    server.put(DEFINITION, definition).await.expect(200);
    server.server.wait_idle().await;
}

#[tokio::test]
async fn a_definition_of_which_no_version_is_served_is_cleaned_up_like_any_other() {
    let server = Server::with_widgets().await;
    server.post("/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await.expect(201);
    server.post("/apis/example.com/v1/namespaces/n/widgets", widget("a")).await.expect(201);
    server.post(WIDGETS, widget("b")).await.expect(201);
    change(&server, |definition| {
        for version in definition["spec"]["versions"].as_array_mut().unwrap() {
            version["served"] = false.into();
        }
    })
    .await;
    server.get(WIDGETS).await.expect(404);
    assert!(!server.get("/apis").await.expect(200).text.contains("example.com"));
    server.delete("/api/v1/namespaces/n").await.expect(200);
    server.server.wait_idle().await;
    server.get("/api/v1/namespaces/n").await.expect(404);
    server.delete(DEFINITION).await.expect(200);
    server.server.wait_idle().await;
    server.get(DEFINITION).await.expect(404);
}

#[tokio::test]
async fn objects_are_shown_as_the_schema_is_now() {
    let server = Server::with_widgets().await;
    let mut object = widget("a");
    object["spec"]["note"] = "kept for now".into();
    let made = server.post(WIDGETS, object).await.expect(201);
    change(&server, |definition| {
        for version in definition["spec"]["versions"].as_array_mut().unwrap() {
            let spec = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
            spec.as_object_mut().unwrap().remove("note");
            spec["grade"] = json!({"type": "string", "default": "new"});
        }
    })
    .await;
    let path = format!("{WIDGETS}/a");
    let shown = server.get(&path).await.expect(200);
    assert_eq!(shown.json["spec"], json!({"color": "red", "replicas": 1, "grade": "new"}));
    assert_eq!(shown.rv(), made.rv());
    let patched = server.send("PATCH", &path, &[("content-type", MERGE)], "{}").await.expect(200);
    assert_eq!((patched.rv(), &patched.json["metadata"]["generation"]), (made.rv(), &json!(1)));
}

#[tokio::test]
async fn a_definition_is_served_under_the_names_that_are_its_own() {
    let server = Server::with_widgets().await;
    let mut other = widgets();
    other["metadata"]["name"] = "gadgets.example.com".into();
    other["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget", "shortNames": ["gd"]});
    server.install(other).await;
    let short =
        |name: &'static str| move |definition: &mut Value| definition["spec"]["names"]["shortNames"] = json!([name]);
    change(&server, short("w")).await;
    let accepted = || async { server.get(DEFINITION).await.json["status"]["acceptedNames"]["shortNames"].clone() };
    assert_eq!(accepted().await, json!(["w"]));
    // Taken by the other one: the schema counts, the name does not.
    change(&server, |definition| {
        short("gd")(definition);
        for version in definition["spec"]["versions"].as_array_mut().unwrap() {
            version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["extra"] =
                json!({"type": "string"});
        }
    })
    .await;
    assert_eq!(accepted().await, json!(["w"]));
    let mut object = widget("a");
    object["spec"]["extra"] = "x".into();
    assert_eq!(server.post(WIDGETS, object).await.expect(201).json["spec"]["extra"], "x");
    // Free again.
    let gadgets = format!("{DEFINITIONS}/gadgets.example.com");
    server.merge(&gadgets, json!({"spec": {"names": {"shortNames": ["other"]}}})).await.expect(200);
    server.server.wait_idle().await;
    assert_eq!(accepted().await, json!(["gd"]));
}

#[tokio::test]
async fn objects_that_own_each_other_go_in_the_foreground_too() {
    let server = Server::start();
    let a = server.post(CONFIG_MAPS, config_map("a")).await.expect(201).json;
    let reference = |object: &Value| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": object["metadata"]["name"],
               "uid": object["metadata"]["uid"], "blockOwnerDeletion": true})
    };
    let mut b = config_map("b");
    b["metadata"]["ownerReferences"] = json!([reference(&a)]);
    let b = server.post(CONFIG_MAPS, b).await.expect(201).json;
    let owned = json!({"metadata": {"ownerReferences": [reference(&b)]}});
    server.merge(&format!("{CONFIG_MAPS}/a"), owned).await.expect(200);
    server.delete_with(&format!("{CONFIG_MAPS}/a"), json!({"propagationPolicy": "Foreground"})).await.expect(200);
    server.server.wait_idle().await;
    assert_eq!(server.get(CONFIG_MAPS).await.expect(200).names(), [""; 0]);
}

#[tokio::test]
async fn an_owner_of_a_kind_that_comes_later_is_looked_for_then() {
    let server = Server::start();
    let mut owned = config_map("a");
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "nobody-has-it"}]);
    server.post(CONFIG_MAPS, owned).await.expect(201);
    server.server.wait_idle().await;
    server.get(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    server.install(widgets()).await;
    server.server.wait_idle().await;
    server.get(&format!("{CONFIG_MAPS}/a")).await.expect(404);
}

#[tokio::test]
async fn a_definition_that_is_installed_anew_is_served_so_at_once() {
    let server = Server::with_widgets().await;
    let mut changed = widgets();
    for version in changed["spec"]["versions"].as_array_mut().unwrap() {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["extra"] = json!({"type": "string"});
    }
    server.server.install(changed).await.unwrap();
    let mut object = widget("a");
    object["spec"]["extra"] = "x".into();
    assert_eq!(server.post(WIDGETS, object).await.expect(201).json["spec"]["extra"], "x");
}

#[tokio::test]
async fn a_definition_that_is_installed_again_unchanged_is_served_as_before() {
    let server = Server::start();
    server.server.install(widgets()).await.unwrap();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    server.server.install(widgets()).await.unwrap();
    server.post(WIDGETS, widget("a")).await.expect(201);
}
