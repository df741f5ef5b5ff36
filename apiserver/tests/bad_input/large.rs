//! Small and large bodies with many problems: answers are bounded, checks take time linear in the body.

use super::*;
use std::{
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};
use steersman_apiserver::{Admission, Failure, Options};

/// Most errors in an answer.
const MAX_ERRORS: usize = 100;
/// Message and causes have 64 KiB each. Quotes are escaped in both.
const MAX_ANSWER: usize = 256 << 10;

#[track_caller]
fn assert_bounded(reply: &Reply) {
    assert_eq!(reply.code, 422, "{}", &reply.text[..reply.text.len().min(1000)]);
    assert!(reply.text.len() < MAX_ANSWER, "{} bytes", reply.text.len());
    let causes = reply.json["details"]["causes"].as_array().expect("causes");
    assert!((1..=MAX_ERRORS).contains(&causes.len()), "{} causes", causes.len());
    assert!(reply.message().contains("further errors are omitted after 100 errors or 65536 bytes"));
}

/// Each error about controllers shows all owners.
#[tokio::test]
async fn many_controllers_in_a_small_body_make_a_bounded_answer() {
    let server = Server::with_widgets().await;
    let owner = |index: usize| json!({"apiVersion": "v1", "kind": "Pod", "name": format!("p{index}"), "uid": format!("u{index}"), "controller": true});
    for (place, mut object) in [(CONFIG_MAPS, config_map("a")), (WIDGETS, widget("a"))] {
        object["metadata"]["ownerReferences"] = (0..400).map(owner).collect();
        let reply = server.post(place, object).await;
        assert_bounded(&reply);
        assert!(reply.message().contains("Only one reference can have Controller set to true"));
    }
}

#[tokio::test]
async fn many_invalid_keys_make_a_bounded_answer() {
    let server = Server::start();
    let mut map = config_map("a");
    map["data"] = (0..100_000).map(|index| (format!("/{index}"), json!(""))).collect();
    let reply = server.post(CONFIG_MAPS, map.clone()).await;
    assert_bounded(&reply);
    assert_eq!(reply.cause_fields().len(), MAX_ERRORS);
    let mut labelled = config_map("a");
    labelled["metadata"]["labels"] = map["data"].clone();
    assert_bounded(&server.post(CONFIG_MAPS, labelled).await);
}

#[tokio::test]
async fn many_invalid_items_of_a_custom_resource_make_a_bounded_answer() {
    let server = Server::with_widgets().await;
    let mut object = widget("a");
    object["spec"]["tags"] = (0..200_000).map(Value::from).collect();
    let reply = server.post(WIDGETS, object.clone()).await;
    assert_bounded(&reply);
    server.post(WIDGETS, widget("a")).await.expect(201);
    let updated = server.merge(&format!("{WIDGETS}/a"), json!({"spec": object["spec"]})).await;
    assert_bounded(&updated);
}

#[tokio::test]
async fn many_ports_of_a_service_are_checked_against_each_other() {
    let server = Server::start();
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, kind: &str, count: u64, last: u64| {
        let port = |number: u64| json!({"name": format!("p{number}"), "port": number, "protocol": "TCP"});
        let ports: Vec<_> = (1..=count).map(|number| port(number.min(last))).collect();
        json!({"metadata": {"name": name}, "spec": {"type": kind, "ports": ports}})
    };
    server.post(services, service("a", "ClusterIP", 10_000, 10_000)).await.expect(201);
    assert_bounded(&server.post(services, service("b", "ClusterIP", 10_000, 5_000)).await);
    let exhausted = server.post(services, service("c", "NodePort", 10_000, 10_000)).await.expect(500);
    assert_eq!(exhausted.message(), "Internal error occurred: failed to allocate a nodePort: range is full");
    // An update keeps the node ports of all ports that stay.
    let made = server.post(services, service("d", "NodePort", 2_768, 2_768)).await.expect(201);
    let kept = server.put(&format!("{services}/d"), service("d", "NodePort", 2_768, 2_768)).await.expect(200);
    assert_eq!(kept.json["spec"]["ports"], made.json["spec"]["ports"]);
}

#[tokio::test]
async fn many_volumes_of_a_pod_are_checked_against_each_other() {
    let server = Server::start();
    let pods = "/api/v1/namespaces/default/pods";
    let names = (0..10_000).map(|index| format!("v{index}"));
    let volumes: Vec<_> = names.clone().map(|name| json!({"name": name, "emptyDir": {}})).collect();
    let mounts: Vec<_> = names.map(|name| json!({"name": name, "mountPath": format!("/{name}")})).collect();
    let container = json!({"name": "c", "image": "i", "volumeMounts": mounts});
    let mut pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [container], "volumes": volumes}});
    server.post(pods, pod.clone()).await.expect(201);
    pod["spec"]["volumes"] = (0..10_000).map(|_| json!({"name": "v", "emptyDir": {}})).collect();
    assert_bounded(&server.post(pods, pod).await);
}

/// The path of each duplicate and of each unknown field holds a long key.
#[tokio::test]
async fn many_fields_to_warn_of_make_a_bounded_answer() {
    let server = Server::with_widgets().await;
    let (long, repeated) = ("k".repeat(100_000), r#""a":1,"#.repeat(50_000));
    let duplicates = format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Widget","metadata":{{"name":"a"}},"spec":{{"color":"red","free":{{"{long}":{{{repeated}"b":1}}}}}}}}"#
    );
    let mut object = widget("b");
    for index in 0..100_000 {
        object["spec"][format!("unknown{index}")] = 1.into();
    }
    for body in [duplicates, object.to_string()] {
        let strict =
            server.send("POST", &format!("{WIDGETS}?fieldValidation=Strict"), &[], body.clone()).await.expect(400);
        assert!(strict.text.len() < MAX_ANSWER, "{} bytes", strict.text.len());
        let made = server.send("POST", WIDGETS, &[], body).await.expect(201);
        let warnings = made.warnings();
        assert!(!warnings.is_empty() && warnings.iter().map(|text| text.len()).sum::<usize>() < 8192);
    }
}

/// The runtime has one thread, and runs another task while the write is being admitted.
#[tokio::test]
async fn a_large_write_does_not_block_the_runtime() {
    let (run, other_task_ran) = mpsc::channel();
    let other_task_ran = Mutex::new(other_task_ran);
    let (entered, mut admitting) = tokio::sync::mpsc::unbounded_channel();
    let admission = Admission::default().validate(move |review, _| {
        if review.resource != "configmaps" {
            return Ok(());
        }
        entered.send(()).expect("the test runs");
        let ran = other_task_ran.lock().expect("no panic").recv_timeout(Duration::from_secs(10));
        ran.map_err(|_| Failure::internal("the runtime is blocked"))
    });
    let server = Arc::new(Server::with(Options { admission, ..Options::default() }));
    tokio::spawn(async move {
        admitting.recv().await.expect("the write is admitted");
        run.send(()).expect("the write waits");
    });
    let mut map = config_map("a");
    map["data"]["k"] = "x".repeat(100_000).into();
    server.post(CONFIG_MAPS, map).await.expect(201);
    server.server.wait_idle().await;
}
