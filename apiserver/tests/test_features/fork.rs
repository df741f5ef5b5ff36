//! Forks of a server, and seeds that make servers reproducible.

use super::*;
use steersman_apiserver::{Journal, Options};

#[tokio::test]
async fn a_fork_and_its_origin_are_independent() {
    let origin = Server::with_widgets().await;
    origin.post(WIDGETS, widget("a")).await.expect(201);
    origin
        .server
        .faults()
        .add("GET secrets -> 500".parse().unwrap());
    let mut watch = origin
        .watch(&format!(
            "{WIDGETS}?watch=1&resourceVersion={}",
            origin.server.revision()
        ))
        .await;
    let fork = Server::new(origin.server.fork());
    assert_eq!(fork.server.revision(), origin.server.revision());
    assert_eq!(
        fork.get(&format!("{WIDGETS}/a")).await.json,
        origin.get(&format!("{WIDGETS}/a")).await.json
    );
    fork.get("/api/v1/secrets").await.expect(200);
    assert_eq!(fork.server.journal().entries().len(), 2);

    fork.delete(&format!("{WIDGETS}/a")).await.expect(200);
    fork.post(WIDGETS, widget("f")).await.expect(201);
    origin.post(WIDGETS, widget("o")).await.expect(201);
    assert_eq!(origin.get(WIDGETS).await.names(), ["a", "o"]);
    assert_eq!(fork.get(WIDGETS).await.names(), ["f"]);
    assert_eq!(watch.next_name().await, ("ADDED".into(), "o".into()));

    fork.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com")
        .await
        .expect(200);
    fork.server.wait_idle().await;
    fork.get(WIDGETS).await.expect(404);
    origin.get(WIDGETS).await.expect(200);
}

#[tokio::test]
async fn a_fork_has_the_history_of_its_origin() {
    let origin = Server::with_widgets().await;
    let before = origin.server.revision();
    for name in ["a", "b"] {
        origin.post(WIDGETS, widget(name)).await.expect(201);
    }
    let token = origin.get(&format!("{WIDGETS}?limit=1")).await.json["metadata"]["continue"]
        .as_str()
        .unwrap()
        .to_owned();
    origin.delete(&format!("{WIDGETS}/a")).await.expect(200);
    let fork = Server::new(origin.server.fork());
    fork.post(WIDGETS, widget("c")).await.expect(201);
    let mut watch = fork
        .watch(&format!("{WIDGETS}?watch=1&resourceVersion={before}"))
        .await;
    for (kind, name) in [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("DELETED", "a"),
        ("ADDED", "c"),
    ] {
        assert_eq!(watch.next_name().await, (kind.into(), name.into()));
    }
    assert_eq!(
        fork.get(&format!("{WIDGETS}?continue={token}"))
            .await
            .names(),
        ["b"]
    );
    let then = fork
        .get(&format!(
            "{WIDGETS}?resourceVersion={before}&resourceVersionMatch=Exact"
        ))
        .await
        .expect(200);
    assert!(then.names().is_empty());
}

#[tokio::test]
async fn a_fork_collects_garbage_itself() {
    let origin = Server::start();
    let owner = origin
        .post(CONFIG_MAPS, config_map("owner"))
        .await
        .expect(201)
        .json;
    origin
        .post(CONFIG_MAPS, owned_config_map("dependent", &owner))
        .await
        .expect(201);
    let fork = Server::new(origin.server.fork());
    fork.delete(&format!("{CONFIG_MAPS}/owner"))
        .await
        .expect(200);
    fork.server.wait_idle().await;
    assert!(fork.get(CONFIG_MAPS).await.names().is_empty());
    origin.server.wait_idle().await;
    assert_eq!(
        origin.get(CONFIG_MAPS).await.names(),
        ["dependent", "owner"]
    );
}

#[tokio::test]
async fn forks_of_a_large_server_are_independent() {
    let origin = Server::with_options(Options {
        journal: Journal::new(0),
        ..Options::default()
    });
    for n in 0..10_000 {
        origin
            .post(CONFIG_MAPS, config_map(&format!("m{n}")))
            .await
            .expect(201);
    }
    let forks: Vec<_> = (0..20).map(|_| Server::new(origin.server.fork())).collect();
    for fork in &forks {
        fork.delete(&format!("{CONFIG_MAPS}/m7")).await.expect(200);
        assert_eq!(
            fork.get(&format!("{CONFIG_MAPS}?limit=1")).await.json["metadata"]["remainingItemCount"],
            9_998
        );
    }
    origin.get(&format!("{CONFIG_MAPS}/m7")).await.expect(200);
}

#[tokio::test]
async fn a_fork_inherits_the_journal_options_but_not_the_entries() {
    let origin = Server::with_options(Options {
        journal: Journal::new(1).with_bodies(3),
        ..Options::default()
    });
    origin.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let fork = Server::new(origin.server.fork());
    assert!(fork.server.journal().entries().is_empty());
    for name in ["b", "c"] {
        fork.post(CONFIG_MAPS, config_map(name)).await.expect(201);
    }
    let entries = fork.server.journal().entries();
    assert_eq!(
        (entries.len(), entries[0].body.as_deref().map(<[u8]>::len)),
        (1, Some(3))
    );
    assert_eq!(origin.server.journal().entries()[0].id, 1);
}

#[tokio::test]
async fn seeded_forks_of_one_state_generate_the_same_uids_and_do_not_affect_the_origin() {
    let server = || {
        Server::with_options(Options {
            seed: Some(7),
            ..Options::default()
        })
    };
    let origin = server();
    let unforked = server();
    let forks = [(); 2].map(|()| Server::new(origin.server.fork()));
    let later = Server::new(forks[0].server.fork());
    let mut uids = Vec::new();
    for server in [&origin, &unforked, &forks[0], &forks[1], &later] {
        let created = server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
        uids.push(created.json["metadata"]["uid"].as_str().unwrap().to_owned());
    }
    assert_eq!((&uids[0], &uids[2]), (&uids[1], &uids[3]));
    assert!(
        uids[0] != uids[2] && uids[2] != uids[4] && uids[0] != uids[4],
        "{uids:?}"
    );
}

/// Sends a few requests and returns all responses.
async fn transcript(server: &Server) -> Vec<String> {
    server.install(widgets()).await;
    let mut responses = Vec::new();
    for _ in 0..3 {
        let generated = json!({"metadata": {"generateName": "x-"}});
        responses.push(server.post(CONFIG_MAPS, generated).await.expect(201).text);
        responses.push(server.post(WIDGETS, widget("a")).await.text);
        responses.push(
            server
                .delete(&format!("{WIDGETS}/a"))
                .await
                .expect(200)
                .text,
        );
        server.server.wait_idle().await;
    }
    let namespaces = server.get("/api/v1/namespaces").await.expect(200).text;
    let definitions = server
        .get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
        .await
        .expect(200)
        .text;
    responses.extend([namespaces, definitions]);
    responses
}

#[tokio::test(start_paused = true)]
async fn servers_with_the_same_seed_give_the_same_responses() {
    let started = Some("2026-01-02T03:04:05Z".parse().unwrap());
    let options = |seed| Options {
        seed,
        start_time: started,
        ..Options::default()
    };
    let first = Server::with_options(options(Some(7)));
    let responses = transcript(&first).await;
    assert_eq!(
        responses,
        transcript(&Server::with_options(options(Some(7)))).await
    );
    let others = [
        transcript(&Server::with_options(options(Some(8)))).await,
        transcript(&Server::with_options(options(None))).await,
    ];
    assert!(others.iter().all(|other| *other != responses));
    // A fork and its origin generate different uids.
    let fork = Server::new(first.server.fork());
    let in_fork = fork.post(CONFIG_MAPS, config_map("z")).await;
    let in_origin = first.post(CONFIG_MAPS, config_map("z")).await;
    assert_ne!(
        in_fork.json["metadata"]["uid"],
        in_origin.json["metadata"]["uid"]
    );
}
