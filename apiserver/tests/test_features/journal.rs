//! The journal of requests.

use super::*;
use std::time::Duration;
use steersman_apiserver::{Journal, Options};

#[tokio::test]
async fn the_journal_counts_requests_by_pattern_and_records_status_codes() {
    let server = Server::with_widgets().await;
    let journal = server.server.journal();
    journal.clear();
    server.post(WIDGETS, widget("a")).await.expect(201);
    server.post(WIDGETS, widget("a")).await.expect(409);
    server.get(&format!("{WIDGETS}?limit=5")).await.expect(200);
    server.get(&format!("{WIDGETS}/a")).await.expect(200);
    server
        .merge(
            &format!("{WIDGETS}/a/status"),
            json!({"status": {"phase": "x"}}),
        )
        .await
        .expect(200);
    drop(server.watch(&format!("{WIDGETS}?watch=1")).await);
    server.delete(WIDGETS).await.expect(200);
    for (pattern, count) in [
        ("POST widgets", 2),
        ("create widgets.example.com", 2),
        ("GET widgets", 3),
        ("get widgets default/a", 1),
        ("list widgets", 1),
        ("watch widgets", 1),
        ("PATCH widgets", 0),
        ("PATCH widgets/status", 1),
        ("deletecollection widgets", 1),
        ("delete widgets", 0),
        ("* *", 7),
    ] {
        assert_eq!(journal.count(pattern), count, "{pattern}");
    }
    let entries = journal.entries();
    assert_eq!(
        entries.iter().map(|entry| entry.code).collect::<Vec<_>>(),
        [201, 409, 200, 200, 200, 200, 200]
    );
    assert_eq!(
        (&*entries[2].query, &*entries[4].subresource),
        ("limit=5", "status")
    );
    assert!(entries.windows(2).all(|pair| pair[0].id + 1 == pair[1].id));
}

#[tokio::test]
async fn the_journal_keeps_bodies_only_if_configured_and_never_credentials() {
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"password": "hunter2"}});
    let headers = [
        ("authorization", "Bearer open-sesame"),
        ("user-agent", "me/1"),
        ("content-type", "application/json"),
    ];
    for (journal, kept) in [
        (Journal::default(), None),
        (Journal::new(10).with_bodies(5), Some(&b"{\"met"[..])),
    ] {
        let server = Server::with_options(Options {
            journal,
            ..Options::default()
        });
        server
            .send(
                "POST",
                "/api/v1/namespaces/default/secrets",
                &headers,
                secret.to_string(),
            )
            .await
            .expect(201);
        let entries = server.server.journal().entries();
        assert_eq!(entries[0].body.as_deref(), kept);
        assert_eq!(entries[0].user_agent, "me/1");
        let all = format!("{entries:?}");
        assert!(!all.contains("sesame") && !all.contains("hunter2"), "{all}");
    }
}

#[tokio::test]
async fn a_full_journal_drops_the_oldest_entries() {
    let server = Server::with_options(Options {
        journal: Journal::new(2),
        ..Options::default()
    });
    for name in ["a", "b", "c"] {
        server
            .get(&format!("{CONFIG_MAPS}/{name}"))
            .await
            .expect(404);
    }
    let names: Vec<_> = server
        .server
        .journal()
        .entries()
        .iter()
        .map(|entry| entry.name.clone())
        .collect();
    assert_eq!(names, ["b", "c"]);
}

#[tokio::test]
async fn wait_for_returns_after_the_given_number_of_requests() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    let waiting = {
        let server = server.clone();
        tokio::spawn(async move { server.server.journal().wait_for("POST configmaps", 3).await })
    };
    server.post(CONFIG_MAPS, config_map("b")).await.expect(201);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!waiting.is_finished());
    server.post(CONFIG_MAPS, config_map("b")).await.expect(409);
    tokio::time::timeout(Duration::from_secs(10), waiting)
        .await
        .expect("wait_for returns in time")
        .unwrap();
}
