//! Bodies with many errors: the response is bounded, and validation takes time linear in the body.

use super::*;
use std::{
    sync::{Arc, Mutex, mpsc},
    time::{Duration, Instant},
};
use steersman_apiserver::{Admission, Failure, Operation, Options};

/// Maximum number of errors in a response.
const MAX_ERRORS: usize = 100;
/// Maximum size of a response: message and causes have 64 KiB each, and escaping doubles quotes.
const MAX_RESPONSE: usize = 256 << 10;

#[track_caller]
fn assert_bounded(reply: &Reply) {
    assert_eq!(
        reply.code,
        422,
        "{}",
        &reply.text[..reply.text.len().min(1000)]
    );
    assert!(
        reply.text.len() < MAX_RESPONSE,
        "{} bytes",
        reply.text.len()
    );
    let causes = reply.json["details"]["causes"].as_array().expect("causes");
    assert!(
        (1..=MAX_ERRORS).contains(&causes.len()),
        "{} causes",
        causes.len()
    );
    assert!(
        reply
            .message()
            .contains("further errors are omitted after 100 errors or 65536 bytes")
    );
}

/// Asserts that a server checks 16 times `count` parts in about 16 times the time.
///
/// Compares two durations on the same machine. A busy machine distorts them, so one of several
/// comparisons has to succeed. Checks that take quadratic time have a factor of up to 256 in each.
async fn assert_linear(what: &str, count: usize, request: impl AsyncFn(usize)) {
    const ATTEMPTS: usize = 8;
    const MAX_FACTOR: u32 = 64;
    for _ in 0..ATTEMPTS {
        let measure = async |count| {
            let started = Instant::now();
            request(count).await;
            started.elapsed()
        };
        let (few, many) = (measure(count).await, measure(16 * count).await);
        if many < few * MAX_FACTOR {
            return;
        }
    }
    panic!("the time to check {what} grows faster than their number");
}

/// Requests whose checks compare all parts with each other if they are implemented naively.
#[tokio::test]
async fn checks_of_large_bodies_take_linear_time() {
    let server = Server::with_widgets().await;
    let post = async |path: &str, object: Value| {
        let reply = server.post(path, object).await;
        assert!(matches!(reply.code, 400 | 422), "{}", reply.code);
    };
    assert_linear("invalid keys", 5_000, async |count| {
        let keys = (0..count).map(|index| (format!("/{index}"), json!("")));
        let mut map = config_map("a");
        map["data"] = keys.clone().collect();
        map["metadata"]["labels"] = keys.collect();
        post(CONFIG_MAPS, map).await;
    })
    .await;
    assert_linear("owner references", 1_000, async |count| {
        let owner = |index: usize| json!({"apiVersion": "v1", "kind": "Pod", "name": format!("p{index}"), "uid": format!("u{index}"), "controller": true});
        let mut map = config_map("a");
        map["metadata"]["ownerReferences"] = (0..count).map(owner).collect();
        post(CONFIG_MAPS, map).await;
    })
    .await;
    assert_linear("invalid items", 5_000, async |count| {
        let mut object = widget("a");
        object["spec"]["tags"] = (0..count).map(Value::from).collect();
        post(WIDGETS, object).await;
    })
    .await;
    assert_linear("unknown fields", 5_000, async |count| {
        let mut object = widget("a");
        for index in 0..count {
            object["spec"][format!("unknown{index}")] = 1.into();
        }
        post(&format!("{WIDGETS}?fieldValidation=Strict"), object).await;
    })
    .await;
    assert_linear("ports", 2_500, async |count| {
        let port = |number: usize| json!({"name": format!("p{number}"), "port": number, "protocol": "TCP"});
        let mut ports: Vec<_> = (1..=count).map(port).collect();
        // Rejected, so that it can be repeated.
        ports.push(port(count));
        let service = json!({"metadata": {"name": "a"}, "spec": {"type": "ClusterIP", "ports": ports}});
        post("/api/v1/namespaces/default/services", service).await;
    })
    .await;
    assert_linear("volumes", 2_500, async |count| {
        let names = (0..count).map(|index| format!("v{index}"));
        let mut volumes: Vec<_> = names.clone().map(|name| json!({"name": name, "emptyDir": {}})).collect();
        volumes.push(volumes[0].clone());
        let mounts: Vec<_> = names.map(|name| json!({"name": name, "mountPath": format!("/{name}")})).collect();
        let container = json!({"name": "c", "image": "i", "volumeMounts": mounts});
        let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [container], "volumes": volumes}});
        post("/api/v1/namespaces/default/pods", pod).await;
    })
    .await;
}

/// Errors contain the path of the field. Many of them are dropped.
#[tokio::test]
async fn errors_below_a_long_name_take_linear_time() {
    let server = Server::start();
    let mut crd = widgets();
    let choices = json!({"type": "object", "additionalProperties": {
        "type": "array", "items": {"type": "string", "anyOf": [{"pattern": "^b"}, {"maxLength": 5}]},
    }});
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["choices"] =
        choices;
    server.install(crd).await;
    assert_linear("a field that is repeated", 2_000, async |count| {
        let name = "n".repeat(2 * count);
        let repeated = r#""a":1,"#.repeat(10 * count);
        let body =
            format!(r#"{{"metadata":{{"name":"a"}},"data":{{"{name}":{{{repeated}"b":1}}}}}}"#);
        let reply = server.send("POST", CONFIG_MAPS, &[], body).await;
        reply.expect(400);
    })
    .await;
    assert_linear("items with alternatives", 2_000, async |count| {
        let mut object = widget("a");
        object["spec"]["choices"]["n".repeat(5 * count)] = vec!["a"; count].into();
        let reply = server.post(&format!("{WIDGETS}?dryRun=All"), object).await;
        reply.expect(201);
    })
    .await;
}

/// The garbage collector looks up the owner of each reference.
#[tokio::test]
async fn many_references_to_a_large_owner_take_linear_time() {
    let server = Server::start();
    assert_linear("references to one owner", 300, async |count| {
        let mut owner = config_map("owner");
        owner["data"] = (0..count)
            .map(|index| (format!("k{index}"), json!("")))
            .collect();
        server.post(CONFIG_MAPS, owner).await.expect(201);
        let reference = |index: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": format!("u{index}")});
        let mut dependent = config_map("dependent");
        dependent["metadata"]["ownerReferences"] = (0..count).map(reference).collect();
        server.post(CONFIG_MAPS, dependent).await.expect(201);
        server.server.wait_idle().await;
        server
            .get(&format!("{CONFIG_MAPS}/dependent"))
            .await
            .expect(404);
        server
            .delete(&format!("{CONFIG_MAPS}/owner"))
            .await
            .expect(200);
    })
    .await;
}

/// Each error about a second controller prints all owner references.
#[tokio::test]
async fn many_controller_references_yield_a_bounded_response() {
    let server = Server::with_widgets().await;
    let owner = |index: usize| json!({"apiVersion": "v1", "kind": "Pod", "name": format!("p{index}"), "uid": format!("u{index}"), "controller": true});
    for (collection, mut object) in [(CONFIG_MAPS, config_map("a")), (WIDGETS, widget("a"))] {
        object["metadata"]["ownerReferences"] = (0..400).map(owner).collect();
        let reply = server.post(collection, object).await;
        assert_bounded(&reply);
        assert!(
            reply
                .message()
                .contains("Only one reference can have Controller set to true")
        );
    }
}

#[tokio::test]
async fn many_invalid_keys_yield_a_bounded_response() {
    let server = Server::start();
    let mut map = config_map("a");
    map["data"] = (0..100_000)
        .map(|index| (format!("/{index}"), json!("")))
        .collect();
    let reply = server.post(CONFIG_MAPS, map.clone()).await;
    assert_bounded(&reply);
    assert_eq!(reply.cause_fields().len(), MAX_ERRORS);
    let mut labelled = config_map("a");
    labelled["metadata"]["labels"] = map["data"].clone();
    assert_bounded(&server.post(CONFIG_MAPS, labelled).await);
}

#[tokio::test]
async fn many_invalid_items_of_a_custom_resource_yield_a_bounded_response() {
    let server = Server::with_widgets().await;
    let mut object = widget("a");
    object["spec"]["tags"] = (0..200_000).map(Value::from).collect();
    let reply = server.post(WIDGETS, object.clone()).await;
    assert_bounded(&reply);
    server.post(WIDGETS, widget("a")).await.expect(201);
    let updated = server
        .merge(&format!("{WIDGETS}/a"), json!({"spec": object["spec"]}))
        .await;
    assert_bounded(&updated);
}

#[tokio::test]
async fn many_ports_of_a_service_are_checked_against_each_other() {
    let server = Server::start();
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, kind: &str, count: u64, last: u64| {
        let port =
            |number: u64| json!({"name": format!("p{number}"), "port": number, "protocol": "TCP"});
        let ports: Vec<_> = (1..=count).map(|number| port(number.min(last))).collect();
        json!({"metadata": {"name": name}, "spec": {"type": kind, "ports": ports}})
    };
    server
        .post(services, service("a", "ClusterIP", 10_000, 10_000))
        .await
        .expect(201);
    assert_bounded(
        &server
            .post(services, service("b", "ClusterIP", 10_000, 5_000))
            .await,
    );
    let exhausted = server
        .post(services, service("c", "NodePort", 10_000, 10_000))
        .await
        .expect(500);
    assert_eq!(
        exhausted.message(),
        "Internal error occurred: failed to allocate a nodePort: range is full"
    );
    // An update keeps the allocated node ports.
    let created = server
        .post(services, service("d", "NodePort", 2_768, 2_768))
        .await
        .expect(201);
    let kept = server
        .put(
            &format!("{services}/d"),
            service("d", "NodePort", 2_768, 2_768),
        )
        .await
        .expect(200);
    assert_eq!(kept.json["spec"]["ports"], created.json["spec"]["ports"]);
}

#[tokio::test]
async fn many_volumes_of_a_pod_are_checked_against_each_other() {
    let server = Server::start();
    let pods = "/api/v1/namespaces/default/pods";
    let names = (0..10_000).map(|index| format!("v{index}"));
    let volumes: Vec<_> = names
        .clone()
        .map(|name| json!({"name": name, "emptyDir": {}}))
        .collect();
    let mounts: Vec<_> = names
        .map(|name| json!({"name": name, "mountPath": format!("/{name}")}))
        .collect();
    let container = json!({"name": "c", "image": "i", "volumeMounts": mounts});
    let mut pod =
        json!({"metadata": {"name": "a"}, "spec": {"containers": [container], "volumes": volumes}});
    server.post(pods, pod.clone()).await.expect(201);
    pod["spec"]["volumes"] = (0..10_000)
        .map(|_| json!({"name": "v", "emptyDir": {}}))
        .collect();
    assert_bounded(&server.post(pods, pod).await);
}

/// Warnings contain field paths, here with a key of 100,000 characters.
#[tokio::test]
async fn many_unknown_and_duplicate_fields_yield_bounded_warnings() {
    let server = Server::with_widgets().await;
    let long = "k".repeat(100_000);
    let repeated = r#""a":1,"#.repeat(50_000);
    let duplicates = format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Widget","metadata":{{"name":"a"}},"spec":{{"color":"red","free":{{"{long}":{{{repeated}"b":1}}}}}}}}"#
    );
    let mut object = widget("b");
    for index in 0..100_000 {
        object["spec"][format!("unknown{index}")] = 1.into();
    }
    for body in [duplicates, object.to_string()] {
        let strict = server
            .send(
                "POST",
                &format!("{WIDGETS}?fieldValidation=Strict"),
                &[],
                body.clone(),
            )
            .await
            .expect(400);
        assert!(
            strict.text.len() < MAX_RESPONSE,
            "{} bytes",
            strict.text.len()
        );
        let created = server.send("POST", WIDGETS, &[], body).await.expect(201);
        let warnings = created.warnings();
        assert!(
            !warnings.is_empty() && warnings.iter().map(|text| text.len()).sum::<usize>() < 8192
        );
    }
}

/// The runtime has one thread. It must run another task while admission blocks the write.
#[tokio::test]
async fn writes_of_large_objects_do_not_block_the_runtime() {
    let (run, other_task_ran) = mpsc::channel();
    let other_task_ran = Mutex::new(other_task_ran);
    let (entered, mut admitting) = tokio::sync::mpsc::unbounded_channel();
    let admission = Admission::default().validate(move |review, _| {
        let is_small = review.operation == Operation::Create && review.name == "small";
        if review.resource != "configmaps" || is_small {
            return Ok(());
        }
        entered.send(()).expect("the test runs");
        let ran = other_task_ran
            .lock()
            .expect("no panic")
            .recv_timeout(Duration::from_secs(10));
        ran.map_err(|_| Failure::internal("the runtime is blocked"))
    });
    let server = Arc::new(Server::with_options(Options {
        admission,
        ..Options::default()
    }));
    tokio::spawn(async move {
        while admitting.recv().await.is_some() {
            run.send(()).expect("the write waits");
        }
    });
    let mut map = config_map("large");
    map["data"]["k"] = "x".repeat(100_000).into();
    server.post(CONFIG_MAPS, map).await.expect(201);
    let large = format!("{CONFIG_MAPS}/large");
    let small_patch = json!({"metadata": {"labels": {"a": "b"}}});
    server.merge(&large, small_patch).await.expect(200);
    server.put(&large, config_map("large")).await.expect(200);
    let mut map = config_map("small");
    map["data"]["k"] = "x".repeat(40_000).into();
    server.post(CONFIG_MAPS, map).await.expect(201);
    let copy = |to: &str| json!({"op": "copy", "from": "/data/k", "path": format!("/data/{to}")});
    let copies = json!([copy("l"), copy("m")]);
    server
        .json_patch(&format!("{CONFIG_MAPS}/small"), copies)
        .await
        .expect(200);
    server
        .delete(&format!("{CONFIG_MAPS}/small"))
        .await
        .expect(200);
    server.delete(CONFIG_MAPS).await.expect(200);
    server.server.wait_idle().await;
}
