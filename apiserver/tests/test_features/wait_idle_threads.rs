//! `wait_idle` on several threads: it never returns early and never misses a wake-up.

use super::*;
use futures::FutureExt;
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::{select, time::timeout};

const LIMIT: Duration = Duration::from_secs(30);

/// Rounds of a test: a number in the gate, and the seconds in `STEERSMAN_SOAK` in a soak.
#[derive(Clone)]
struct Rounds {
    left: u64,
    end: Option<Instant>,
}

impl Rounds {
    fn new(left: u64) -> Self {
        let end = steersman_testkit::soak_time().map(|time| Instant::now() + time);
        Self { left, end }
    }
}

impl Iterator for Rounds {
    type Item = ();

    fn next(&mut self) -> Option<()> {
        if let Some(end) = self.end {
            return (Instant::now() < end).then_some(());
        }
        self.left = self.left.checked_sub(1)?;
        Some(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn soak_controllers_and_watchers_are_done_when_wait_idle_returns() {
    let server = Server::start();
    let deleted_events = Arc::new(Mutex::new(0));
    let mut watch = server
        .watch(&format!(
            "{CONFIG_MAPS}?watch=1&resourceVersion={}",
            server.server.revision()
        ))
        .await;
    let counter = deleted_events.clone();
    let watcher = tokio::spawn(async move {
        while let Some((kind, _)) = watch.next().await {
            if kind == "DELETED" {
                *counter.lock().unwrap() += 1;
            }
        }
    });
    for (round, ()) in Rounds::new(100).enumerate() {
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
        timeout(LIMIT, server.server.wait_idle())
            .await
            .expect("no wake-up is lost");
        server
            .get(&format!("{CONFIG_MAPS}/dependent"))
            .await
            .expect(404);
        assert_eq!(*deleted_events.lock().unwrap(), 2 * (round + 1));
    }
    watcher.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn soak_concurrent_waiters_all_wake_up() {
    let server = Server::start();
    let rounds = Rounds::new(100);
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let server = server.clone();
            let rounds = rounds.clone();
            tokio::spawn(async move {
                for () in rounds {
                    let created = server
                        .post(CONFIG_MAPS, config_map(&format!("m{task}")))
                        .await
                        .expect(201);
                    let watch =
                        format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", created.rv() - 1);
                    server.watch(&watch).await.next().await.unwrap();
                    server
                        .delete(&format!("{CONFIG_MAPS}/m{task}"))
                        .await
                        .expect(200);
                    timeout(LIMIT, server.server.wait_idle())
                        .await
                        .expect("no wake-up is lost");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// At every moment one watcher has unread events, each time another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn soak_wait_idle_does_not_return_on_a_busy_server() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    server.server.wait_idle().await;
    let path = format!("{CONFIG_MAPS}?watch=1");
    let mut unread = server.watch(&path).await;
    let other = server.clone();
    let relay = tokio::spawn(async move {
        for () in Rounds::new(1_000) {
            let next = other.watch(&path).await;
            unread.next().await.unwrap();
            assert!(unread.next().now_or_never().is_none());
            unread = next;
            tokio::task::yield_now().await;
        }
        unread
    });
    let unread = select! {
        biased;
        () = server.server.wait_idle() => panic!("the server is busy"),
        unread = relay => unread.unwrap(),
    };
    drop(unread);
    timeout(LIMIT, server.server.wait_idle())
        .await
        .expect("no wake-up is lost");
}
