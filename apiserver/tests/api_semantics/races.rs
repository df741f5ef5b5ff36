//! Consistency of watches and lists under concurrent writes.

use crate::support::*;
use futures::future::join_all;
use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Revision of each object by name.
type State = BTreeMap<String, u64>;

/// One write to one of a few objects.
#[derive(Clone, Copy, Debug)]
enum Step {
    Create(u8),
    Change(u8),
    Delete(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..6_u8;
    prop_oneof![
        name.clone().prop_map(Step::Create),
        name.clone().prop_map(Step::Change),
        name.prop_map(Step::Delete)
    ]
}

/// Returns the steps of each writer.
fn writers() -> impl Strategy<Value = Vec<Vec<Step>>> {
    vec(vec(step(), 10..40), 2..5)
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future)
}

/// Performs the steps of one writer. Steps may fail with 404 or 409 because of other writers.
async fn write(server: Server, writer: usize, steps: Vec<Step>) {
    for (at, step) in steps.into_iter().enumerate() {
        let path = |n: u8| format!("{CONFIG_MAPS}/m{n}");
        let reply = match step {
            Step::Create(n) => server.post(CONFIG_MAPS, config_map(&format!("m{n}"))).await,
            Step::Change(n) => {
                server
                    .merge(&path(n), json!({"data": {"k": format!("{writer}.{at}")}}))
                    .await
            }
            Step::Delete(n) => server.delete(&path(n)).await,
        };
        assert!(
            matches!(reply.code, 200 | 201 | 404 | 409),
            "{}",
            reply.text
        );
        tokio::task::yield_now().await;
    }
}

fn spawn_writers(server: &Server, writers: Vec<Vec<Step>>) -> impl Future<Output = ()> + use<> {
    let writers = writers.into_iter().enumerate();
    let tasks: Vec<_> = writers
        .map(|(n, steps)| tokio::spawn(write(server.clone(), n, steps)))
        .collect();
    async move {
        for task in tasks {
            task.await.expect("a writer without unexpected errors");
        }
    }
}

/// Creates the object that marks the end of all writes.
async fn write_last(server: &Server) {
    server
        .post(CONFIG_MAPS, config_map("zz-last"))
        .await
        .expect(201);
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().expect("a name").into()
}

fn add_items(state: &mut State, list: &Reply) {
    let items = list.json["items"].as_array().expect("items");
    state.extend(items.iter().map(|item| (name(item), rv(item))));
}

/// Applies an event to the state of a client and asserts that it is consistent with it.
fn apply(state: &mut State, kind: &str, object: &Value) {
    let name = name(object);
    let revision = rv(object);
    let before = match kind {
        "DELETED" => state.remove(&name),
        _ => state.insert(name.clone(), revision),
    };
    assert_eq!(
        before.is_some(),
        kind != "ADDED",
        "{kind} {name} at {revision}"
    );
    assert!(before.is_none_or(|before| before < revision));
}

/// Watches from a revision and applies events until the last write.
async fn watch_until_last(server: &Server, mut state: State, from: u64) -> State {
    let mut watch = server
        .watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}"))
        .await;
    while !state.contains_key("zz-last") {
        let (kind, object) = watch.next().await.expect("an event");
        apply(&mut state, &kind, &object);
    }
    state
}

/// Returns the events after a revision up to the last write.
async fn collect_events(server: &Server, from: u64) -> Vec<(u64, String, Value)> {
    let mut watch = server
        .watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}"))
        .await;
    let mut log = Vec::new();
    loop {
        let (kind, object) = watch.next().await.expect("an event");
        let last = name(&object) == "zz-last";
        log.push((rv(&object), kind, object));
        if last {
            return log;
        }
    }
}

/// Returns the state at a revision according to the log.
fn state_at(log: &[(u64, String, Value)], revision: u64) -> State {
    let mut state = State::new();
    log.iter()
        .take_while(|(at, ..)| *at <= revision)
        .for_each(|(_, kind, object)| apply(&mut state, kind, object));
    state
}

/// Lists page by page. Returns all objects and the revision of each page.
async fn list_pages(server: &Server, limit: usize) -> (State, Vec<u64>) {
    let mut state = State::new();
    let mut revisions = Vec::new();
    let mut next = String::new();
    loop {
        let page = server
            .get(&format!("{CONFIG_MAPS}?limit={limit}&continue={next}"))
            .await
            .expect(200);
        assert!(page.names().len() <= limit);
        revisions.push(page.rv());
        let known = state.len();
        add_items(&mut state, &page);
        assert_eq!(
            state.len(),
            known + page.names().len(),
            "an object is on two pages"
        );
        match page.json["metadata"]["continue"].as_str() {
            Some(token) => next = token.into(),
            None => return (state, revisions),
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_watchers_see_the_same_three_hundred_changes() {
    let server = Server::with_widgets().await;
    for n in 0..10 {
        server
            .post(WIDGETS, widget(&format!("w{n}")))
            .await
            .expect(201);
    }
    let from = server.server.revision();
    let watchers = (0..3).map(|_| {
        let server = server.clone();
        tokio::spawn(async move {
            server
                .watch(&format!("{WIDGETS}?watch=1&resourceVersion={from}"))
                .await
                .take(300)
                .await
        })
    });
    let watchers: Vec<_> = watchers.collect();
    let writers = (0..10).map(|writer| {
        let server = server.clone();
        tokio::spawn(async move {
            for n in 0..30 {
                // Several writers change the same objects.
                let path = format!("{WIDGETS}/w{}", (writer + n) % 10);
                server
                    .merge(
                        &path,
                        json!({"metadata": {"labels": {"by": format!("{writer}.{n}")}}}),
                    )
                    .await
                    .expect(200);
            }
        })
    });
    join_all(writers).await.into_iter().for_each(Result::unwrap);
    let seen: Vec<_> = join_all(watchers)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0], seen[2]);
    let revisions: Vec<_> = seen[0].iter().map(|(_, object)| rv(object)).collect();
    assert_eq!(revisions, (from + 1..=from + 300).collect::<Vec<_>>());
}

steersman_testkit::properties! {

    cases = 12;

    /// Events have no gaps, and a watcher that starts later sees the rest of the same events.
    #[test]
    fn every_watcher_sees_the_same_gapless_sequence(writers in writers()) {
        run(async {
            let server = Server::start();
            let from = server.server.revision();
            let early = tokio::spawn({
                let server = server.clone();
                async move { collect_events(&server, from).await }
            });
            let writing = spawn_writers(&server, writers);
            let late: Vec<_> = (0..4).map(|_| {
                let server = server.clone();
                tokio::spawn(async move {
                    tokio::task::yield_now().await;
                    let from = server.server.revision();
                    (from, collect_events(&server, from).await)
                })
            }).collect();
            writing.await;
            write_last(&server).await;
            let all = early.await.unwrap();
            let revisions: Vec<_> = all.iter().map(|(revision, ..)| *revision).collect();
            // Only these writers write, so every revision has an event.
            assert_eq!(revisions, (from + 1..=server.server.revision()).collect::<Vec<_>>());
            for late in late {
                let (from, seen) = late.await.unwrap();
                let after = all.partition_point(|(revision, ..)| *revision <= from);
                assert_eq!(seen, all[after..]);
            }
            assert_eq!(collect_events(&server, from).await, all);
        });
    }

    #[test]
    fn a_list_and_a_watch_lose_nothing(writers in writers(), limit in 1..4_usize) {
        run(async {
            let server = Server::start();
            let writing = spawn_writers(&server, writers);
            let clients: Vec<_> = (0..8).map(|n| {
                let server = server.clone();
                tokio::spawn(async move {
                    if n % 2 == 0 {
                        let list = server.get(CONFIG_MAPS).await.expect(200);
                        let mut state = State::new();
                        add_items(&mut state, &list);
                        watch_until_last(&server, state, list.rv()).await
                    } else {
                        let (state, revisions) = list_pages(&server, limit).await;
                        watch_until_last(&server, state, revisions[0]).await
                    }
                })
            }).collect();
            writing.await;
            write_last(&server).await;
            let mut expected = State::new();
            add_items(&mut expected, &server.get(CONFIG_MAPS).await);
            for client in clients {
                assert_eq!(client.await.unwrap(), expected);
            }
        });
    }

    #[test]
    fn a_streaming_list_and_its_events_lose_nothing(writers in writers()) {
        run(async {
            let server = Server::start();
            let writing = spawn_writers(&server, writers);
            let clients: Vec<_> = (0..6).map(|_| {
                let server = server.clone();
                tokio::spawn(async move {
                    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1";
                    let mut watch = server.watch(&format!("{CONFIG_MAPS}?{query}")).await;
                    let mut state = State::new();
                        let mut listed = None;
                    while !state.contains_key("zz-last") || listed.is_none() {
                        let (kind, object) = watch.next().await.expect("an event");
                        if kind == "BOOKMARK" {
                            assert!(listed.is_none());
                            assert!(state.values().all(|revision| *revision <= rv(&object)));
                            listed = Some(rv(&object));
                        } else {
                            assert!(listed.is_none_or(|listed| rv(&object) > listed));
                            apply(&mut state, &kind, &object);
                        }
                    }
                    state
                })
            }).collect();
            writing.await;
            write_last(&server).await;
            let mut expected = State::new();
            add_items(&mut expected, &server.get(CONFIG_MAPS).await);
            for client in clients {
                assert_eq!(client.await.unwrap(), expected);
            }
        });
    }

    #[test]
    fn the_pages_of_a_list_show_one_state_under_concurrent_writes(writers in writers(), limit in 1..4_usize) {
        run(async {
            let server = Server::start();
            let from = server.server.revision();
            let writing = spawn_writers(&server, writers);
            let clients: Vec<_> = (0..6).map(|_| {
                let server = server.clone();
                tokio::spawn(async move { list_pages(&server, limit).await })
            }).collect();
            writing.await;
            write_last(&server).await;
            let log = collect_events(&server, from).await;
            for client in clients {
                let (state, revisions) = client.await.unwrap();
                assert!(revisions.iter().all(|revision| *revision == revisions[0]));
                assert_eq!(state, state_at(&log, revisions[0]));
            }
            for revision in from..=server.server.revision() {
                let query = format!("{CONFIG_MAPS}?resourceVersionMatch=Exact&resourceVersion={revision}");
                let mut state = State::new();
                add_items(&mut state, &server.get(&query).await.expect(200));
                assert_eq!(state, state_at(&log, revision));
            }
        });
    }
}
