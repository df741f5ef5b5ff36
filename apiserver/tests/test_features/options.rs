//! Server options: clock, history, admission and controllers.

use super::*;
use bytes::Bytes;
use http_body_util::BodyExt;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use steersman_apiserver::{Admission, Failure, Operation, Options};

#[tokio::test(start_paused = true)]
async fn timestamps_follow_the_clock_of_the_runtime() {
    let started = Some("2026-01-02T03:04:05Z".parse().unwrap());
    let server = Server::with_options(Options {
        start_time: started,
        ..Options::default()
    });
    let created = server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    assert_eq!(
        created.json["metadata"]["creationTimestamp"],
        "2026-01-02T03:04:05Z"
    );
    tokio::time::advance(Duration::from_hours(1)).await;
    let created = server.post(CONFIG_MAPS, config_map("b")).await.expect(201);
    assert_eq!(
        created.json["metadata"]["creationTimestamp"],
        "2026-01-02T04:04:05Z"
    );

    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    });
    server.post(pods, pod).await.expect(201);
    let deleted = server.delete(&format!("{pods}/p")).await.expect(200);
    assert_eq!(
        deleted.json["metadata"]["deletionTimestamp"],
        "2026-01-02T04:04:35Z"
    );
    assert_eq!(deleted.json["metadata"]["deletionGracePeriodSeconds"], 30);
    tokio::time::advance(Duration::from_secs(2)).await;
    let sooner = server
        .delete(&format!("{pods}/p?gracePeriodSeconds=5"))
        .await
        .expect(200);
    assert_eq!(
        sooner.json["metadata"]["deletionTimestamp"],
        "2026-01-02T04:04:10Z"
    );
    server
        .delete(&format!("{pods}/p?gracePeriodSeconds=0"))
        .await
        .expect(200);
    server.get(&format!("{pods}/p")).await.expect(404);
}

#[tokio::test]
async fn a_watcher_that_falls_behind_the_history_gets_410() {
    let server = Server::with_options(Options {
        history: 5,
        ..Options::default()
    });
    let mut slow = server
        .watch(&format!(
            "{CONFIG_MAPS}?watch=1&resourceVersion={}",
            server.server.revision()
        ))
        .await;
    let mut other = server
        .watch("/api/v1/namespaces/default/secrets?watch=1")
        .await;
    for n in 0..20 {
        server
            .post(CONFIG_MAPS, config_map(&format!("m{n}")))
            .await
            .expect(201);
    }
    let (kind, status) = slow.next().await.unwrap();
    assert_eq!(
        (kind.as_str(), &status["code"], &status["reason"]),
        ("ERROR", &json!(410), &json!("Expired"))
    );
    assert!(slow.next().await.is_none());
    // Changes of other kinds do not shorten this history.
    server
        .post(
            "/api/v1/namespaces/default/secrets",
            json!({"metadata": {"name": "s"}}),
        )
        .await
        .expect(201);
    assert_eq!(other.next_name().await, ("ADDED".into(), "s".into()));
}

#[tokio::test]
async fn the_history_is_bounded_in_bytes() {
    let server = Server::with_options(Options {
        history_bytes: 2 << 20,
        ..Options::default()
    });
    let first = server
        .post(CONFIG_MAPS, config_map("a"))
        .await
        .expect(201)
        .rv();
    let mut last = first;
    for n in 0..10 {
        let large = format!("{n}{}", "x".repeat(500_000));
        last = server
            .merge(&format!("{CONFIG_MAPS}/a"), json!({"data": {"k": large}}))
            .await
            .expect(200)
            .rv();
    }
    let (kind, status) = server
        .watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={first}"))
        .await
        .next()
        .await
        .unwrap();
    assert_eq!((kind.as_str(), &status["code"]), ("ERROR", &json!(410)));
    let mut watch = server
        .watch(&format!(
            "{CONFIG_MAPS}?watch=1&resourceVersion={}",
            last - 2
        ))
        .await;
    assert_eq!(watch.take(2).await.len(), 2);
}

/// Events contain whole objects, here of 500 KB.
#[tokio::test]
async fn a_watcher_s_buffer_is_bounded_in_bytes() {
    let server = Server::start();
    let from = server.server.revision();
    for n in 0..10 {
        let mut map = config_map(&format!("m{n}"));
        map["data"]["k"] = "x".repeat(500_000).into();
        server.post(CONFIG_MAPS, map).await.expect(201);
    }
    for query in [format!("resourceVersion={from}"), String::new()] {
        let mut body = server
            .raw(
                "GET",
                &format!("{CONFIG_MAPS}?watch=1&{query}"),
                &[],
                Bytes::new(),
            )
            .await
            .into_body();
        let mut events = 0;
        while events < 10 {
            let frame = body
                .frame()
                .await
                .expect("more events")
                .expect("no error")
                .into_data()
                .expect("data");
            assert!(frame.len() < 2_000_000, "{} bytes", frame.len());
            events += frame.split(|byte| *byte == b'\n').count() - 1;
        }
    }
}

#[tokio::test]
async fn controllers_work_with_the_shortest_history() {
    for history in [0, 1] {
        let server = Server::with_options(Options {
            history,
            ..Options::default()
        });
        server.install(widgets()).await;
        server.post(WIDGETS, widget("a")).await.expect(201);
        let owner = server
            .post(CONFIG_MAPS, config_map("owner"))
            .await
            .expect(201)
            .json;
        server
            .post(CONFIG_MAPS, owned_config_map("b", &owner))
            .await
            .expect(201);
        server
            .post(CONFIG_MAPS, owned_config_map("c", &owner))
            .await
            .expect(201);
        server
            .delete(&format!("{CONFIG_MAPS}/owner"))
            .await
            .expect(200);
        server
            .delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com")
            .await
            .expect(200);
        server.server.wait_idle().await;
        assert!(server.get(CONFIG_MAPS).await.names().is_empty());
        server.get(WIDGETS).await.expect(404);
    }
}

#[tokio::test]
async fn compaction_expires_only_older_resource_versions() {
    let server = Server::with_widgets().await;
    let before = server.server.revision();
    for name in ["a", "b", "c"] {
        server.post(WIDGETS, widget(name)).await.expect(201);
    }
    let token = server.get(&format!("{WIDGETS}?limit=1")).await.json["metadata"]["continue"]
        .as_str()
        .unwrap()
        .to_owned();
    let now = server.server.revision();
    let mut current = server
        .watch(&format!("{WIDGETS}?watch=1&resourceVersion={now}"))
        .await;
    server
        .post(CONFIG_MAPS, config_map("other"))
        .await
        .expect(201);
    server.server.compact();
    let mut old = server
        .watch(&format!("{WIDGETS}?watch=1&resourceVersion={before}"))
        .await;
    assert_eq!(old.next().await.unwrap().1["code"], 410);
    assert!(old.next().await.is_none());
    server
        .get(&format!(
            "{WIDGETS}?resourceVersion={before}&resourceVersionMatch=Exact"
        ))
        .await
        .expect(410);
    let expired = server
        .get(&format!("{WIDGETS}?continue={token}"))
        .await
        .expect(410);
    let fresh = expired.json["metadata"]["continue"].as_str().unwrap();
    assert_eq!(
        server
            .get(&format!("{WIDGETS}?continue={fresh}"))
            .await
            .expect(200)
            .names(),
        ["b", "c"]
    );
    server.post(WIDGETS, widget("d")).await.expect(201);
    assert_eq!(
        current.next_name().await,
        ("ADDED".into(), "d".into()),
        "a watcher without unread events is not expired"
    );
    let streamed = format!(
        "{WIDGETS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion={before}"
    );
    let events = server.watch(&streamed).await.take(5).await;
    assert_eq!(events[4].0, "BOOKMARK");
}

#[tokio::test]
async fn admission_can_mutate_and_reject_writes() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let admission = Admission::default()
        .mutate(|review, object| {
            if review.resource == "widgets" && review.operation == Operation::Create {
                assert!(object["metadata"]["uid"].is_null());
                object["metadata"]["labels"]["seen"] = "yes".into();
                object["spec"]["nope"] = 1.into();
                object["spec"].as_object_mut().unwrap().remove("replicas");
            }
            Ok(())
        })
        .validate(move |review, object| {
            if review.resource == "widgets" {
                let nope = object.is_some_and(|object| !object["spec"]["nope"].is_null());
                log.lock().unwrap().push((
                    review.operation,
                    review.name.to_owned(),
                    review.dry_run,
                    nope,
                ));
            }
            match review.name {
                "forbidden" => Err(Failure::new(403, None, "not that one")),
                _ => Ok(()),
            }
        });
    let server = Server::with_options(Options {
        admission,
        ..Options::default()
    });
    server.install(widgets()).await;
    let created = server.post(WIDGETS, widget("a")).await.expect(201);
    assert_eq!(created.json["metadata"]["labels"], json!({"seen": "yes"}));
    assert_eq!(
        created.json["spec"],
        json!({"color": "red", "replicas": 1}),
        "defaults are applied and unknown fields dropped after mutation"
    );
    let rejected = server.post(WIDGETS, widget("forbidden")).await.expect(403);
    assert_eq!(rejected.message(), "not that one");
    server
        .post(&format!("{WIDGETS}?dryRun=All"), widget("b"))
        .await
        .expect(201);
    server
        .merge(&format!("{WIDGETS}/a"), json!({}))
        .await
        .expect(200);
    server
        .delete(&format!("{WIDGETS}/a?dryRun=All"))
        .await
        .expect(200);
    server.delete(&format!("{WIDGETS}/a")).await.expect(200);
    let row = |operation, name: &str, dry_run, nope| (operation, name.to_owned(), dry_run, nope);
    assert_eq!(
        *seen.lock().unwrap(),
        [
            row(Operation::Create, "a", false, true),
            row(Operation::Create, "forbidden", false, true),
            row(Operation::Create, "b", true, true),
            row(Operation::Update, "a", false, false),
            row(Operation::Delete, "a", true, false),
            row(Operation::Delete, "a", false, false),
        ]
    );
}

#[tokio::test]
async fn without_controllers_crds_are_served_and_nothing_is_garbage_collected() {
    let server = Server::with_options(Options {
        controllers: false,
        ..Options::default()
    });
    server.install(widgets()).await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let owner = server
        .post(CONFIG_MAPS, config_map("owner"))
        .await
        .expect(201)
        .json;
    server
        .post(CONFIG_MAPS, owned_config_map("dependent", &owner))
        .await
        .expect(201);
    server
        .delete(&format!("{CONFIG_MAPS}/owner"))
        .await
        .expect(200);
    server
        .post("/api/v1/namespaces", json!({"metadata": {"name": "n"}}))
        .await
        .expect(201);
    server.delete("/api/v1/namespaces/n").await.expect(200);
    let foreground = json!({"propagationPolicy": "Foreground"});
    server
        .delete_with(&format!("{WIDGETS}/a"), foreground)
        .await
        .expect(200);
    for fork in [server.clone(), Server::new(server.server.fork())] {
        fork.server.wait_idle().await;
        assert_eq!(fork.get(CONFIG_MAPS).await.names(), ["dependent"]);
        assert_eq!(
            fork.get("/api/v1/namespaces/n").await.expect(200).json["status"]["phase"],
            "Terminating"
        );
        let deleting = fork.get(&format!("{WIDGETS}/a")).await.expect(200);
        assert_eq!(
            deleting.json["metadata"]["finalizers"],
            json!(["foregroundDeletion"])
        );
    }
}
