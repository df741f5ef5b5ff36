//! `wait_idle` with several threads: it never says too much, and never misses the moment.

use super::*;
use futures::FutureExt;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::time::timeout;

const WATCHDOG: Duration = Duration::from_secs(30);

/// How long: the seconds that `STEERSMAN_SOAK` gives, or a second.
fn end() -> Instant {
    Instant::now() + steersman_testkit::soak_time().unwrap_or(Duration::from_secs(1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn soak_everything_has_happened_and_everybody_knows() {
    let server = Server::start();
    let told = Arc::new(Mutex::new(0));
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", server.server.revision())).await;
    let counter = told.clone();
    let watcher = tokio::spawn(async move {
        while let Some((kind, _)) = watch.next().await {
            if kind == "DELETED" {
                *counter.lock().unwrap() += 1;
            }
        }
    });
    let end = end();
    let mut rounds = 0;
    while Instant::now() < end {
        rounds += 1;
        let owner = server.post(CONFIG_MAPS, config_map("owner")).await.expect(201).json;
        server.post(CONFIG_MAPS, owned("dependent", &owner)).await.expect(201);
        server.delete(&format!("{CONFIG_MAPS}/owner")).await.expect(200);
        timeout(WATCHDOG, server.server.wait_idle()).await.expect("no wake-up is lost");
        server.get(&format!("{CONFIG_MAPS}/dependent")).await.expect(404);
        assert_eq!(*told.lock().unwrap(), 2 * rounds);
    }
    watcher.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn soak_many_wait_and_all_wake_up() {
    let server = Server::start();
    let end = end();
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let server = server.clone();
            tokio::spawn(async move {
                while Instant::now() < end {
                    let made = server.post(CONFIG_MAPS, config_map(&format!("m{task}"))).await.expect(201);
                    let watch = format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", made.rv() - 1);
                    server.watch(&watch).await.next().await.unwrap();
                    server.delete(&format!("{CONFIG_MAPS}/m{task}")).await.expect(200);
                    timeout(WATCHDOG, server.server.wait_idle()).await.expect("no wake-up is lost");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// At every moment one watcher has not been told everything, each time another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn soak_a_server_that_is_never_idle_never_says_so() {
    let server = Server::start();
    server.post(CONFIG_MAPS, config_map("a")).await.expect(201);
    server.server.wait_idle().await;
    let path = format!("{CONFIG_MAPS}?watch=1");
    let mut behind = server.watch(&path).await;
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, other) = (stop.clone(), server.clone());
    let relay = tokio::spawn(async move {
        while !stopped.load(Ordering::Relaxed) {
            let next = other.watch(&path).await;
            behind.next().await.unwrap();
            assert!(behind.next().now_or_never().is_none());
            behind = next;
            tokio::task::yield_now().await;
        }
        behind
    });
    let end = end();
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        assert!(timeout(left, server.server.wait_idle()).await.is_err());
    }
    stop.store(true, Ordering::Relaxed);
    drop(relay.await.unwrap());
    timeout(WATCHDOG, server.server.wait_idle()).await.expect("no wake-up is lost");
}
