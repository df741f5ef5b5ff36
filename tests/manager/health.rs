//! Tests of slow health checks and of connections that exhaust the limit.
//!
//! Other requests are not delayed.

use crate::{
    http_client::{ask, get},
    support::{Running, builder, server},
};
use parking_lot::Mutex;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};
use steersman::{
    admin::Admin,
    controller::Options,
    manager::{ManagerHandle, Probe},
    prelude::*,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

async fn serving(max_connections: usize) -> anyhow::Result<(ManagerHandle, SocketAddr, Running)> {
    let server = server();
    let manager = builder(&server).build()?;
    let admin = Admin {
        address: "127.0.0.1:0".parse()?,
        max_connections,
        ..Admin::default()
    };
    let address = manager.serve_admin(admin)?.address();
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    Ok((handle, address, running))
}

/// Adds a check that blocks until the sender is dropped.
///
/// Returns the number of its calls, too.
fn add_blocking_check(handle: &ManagerHandle, name: &str) -> (mpsc::Sender<()>, Arc<AtomicUsize>) {
    let (release, receiver) = mpsc::channel::<()>();
    let (receiver, calls) = (Mutex::new(receiver), Arc::new(AtomicUsize::new(0)));
    let call_counter = calls.clone();
    handle.add_check(Probe::Ready, name, move || {
        call_counter.fetch_add(1, SeqCst);
        let _ = receiver.lock().recv();
        Ok(())
    });
    (release, calls)
}

async fn wait_until_called(calls: &AtomicUsize) {
    while calls.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn only_requested_checks_are_called() -> anyhow::Result<()> {
    let (handle, address, running) = serving(100).await?;
    let calls: [Arc<AtomicUsize>; 3] = Default::default();
    for (name, calls) in ["a", "b", "c/d"].into_iter().zip(calls.clone()) {
        handle.add_check(Probe::Ready, name, move || {
            calls.fetch_add(1, SeqCst);
            Ok(())
        });
    }
    for (path, expected) in [
        ("/healthz", [0, 0, 0]),
        ("/readyz/a", [1, 0, 0]),
        ("/readyz/c/d", [1, 0, 1]),
        ("/readyz/cache", [1, 0, 1]),
        ("/readyz?exclude=b", [2, 0, 2]),
        ("/readyz?exclude=a,b&exclude=c/d", [2, 0, 2]),
        ("/readyz", [3, 1, 3]),
    ] {
        assert_eq!(get(address, path).await?.code, 200, "{path}");
        assert_eq!(
            calls.each_ref().map(|calls| calls.load(SeqCst)),
            expected,
            "{path}"
        );
    }
    running.stop().await
}

#[tokio::test]
async fn a_check_that_hangs_does_not_delay_requests_without_it() -> anyhow::Result<()> {
    let (handle, address, running) = serving(100).await?;
    let (release, calls) = add_blocking_check(&handle, "stuck");
    let waiting: Vec<_> = (0..20)
        .map(|_| tokio::spawn(get(address, "/readyz")))
        .collect();
    wait_until_called(&calls).await;
    assert_eq!(get(address, "/readyz/cache").await?.body, "ok");
    assert_eq!(get(address, "/readyz?exclude=stuck").await?.body, "ok");
    assert_eq!(get(address, "/healthz").await?.body, "ok");
    drop(release);
    for waiting in waiting {
        waiting.await??;
    }
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_check_times_out_after_five_seconds_without_affecting_others() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server).build()?;
    let handle = manager.handle();
    let (release, calls) = add_blocking_check(&handle, "stuck");
    let fine = handle.readiness("fine");
    fine.ready();
    for _ in 0..3 {
        let reports = tokio::spawn({
            let handle = handle.clone();
            async move { handle.check(Probe::Ready).await }
        });
        tokio::task::yield_now().await;
        wait_until_called(&calls).await;
        // Paused time does not advance by itself while a blocking thread runs.
        tokio::time::advance(Duration::from_secs(5)).await;
        let failures: Vec<_> = reports
            .await?
            .into_iter()
            .skip(2)
            .map(|report| report.failure)
            .collect();
        assert_eq!(
            failures,
            [Some("check timed out after 5 s".to_owned()), None]
        );
    }
    assert_eq!(calls.load(SeqCst), 1, "a hanging check is not called again");
    drop(release);
    Ok(())
}

/// Sends one request and keeps the connection open.
async fn open_connection(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await?;
    let mut answer = [0; 64];
    anyhow::ensure!(stream.read(&mut answer).await? > 0 && answer.starts_with(b"HTTP/1.1 200"));
    Ok(stream)
}

#[tokio::test]
async fn health_pages_are_served_when_the_connection_limit_is_reached() -> anyhow::Result<()> {
    let (_, address, running) = serving(2).await?;
    let kept = [
        open_connection(address).await?,
        open_connection(address).await?,
    ];
    for _ in 0..20 {
        assert_eq!(get(address, "/healthz").await?.body, "ok");
        assert_eq!(get(address, "/readyz/cache").await?.code, 200);
    }
    let rejected = get(address, "/metrics").await?;
    assert!(
        rejected.code == 503
            && rejected.head.contains("retry-after: 1")
            && rejected.body.contains("max_connections")
    );
    assert!(
        rejected.head.contains("connection: close"),
        "{}",
        rejected.head
    );
    drop(kept);
    // The server notices the closed connections with a delay.
    while get(address, "/metrics").await?.code == 503 {}
    running.stop().await
}

#[tokio::test]
async fn idle_connections_do_not_block_health_pages() -> anyhow::Result<()> {
    let (_, address, running) = serving(1).await?;
    let _kept = open_connection(address).await?;
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(TcpStream::connect(address).await?);
    }
    let late = TcpStream::connect(address).await?;
    assert_eq!(
        timeout(Duration::from_mins(1), ask(late, "/healthz", None))
            .await??
            .body,
        "ok"
    );
    for mut silent in silent {
        assert_eq!(
            silent.read(&mut [0; 64]).await?,
            0,
            "the idle connection was closed"
        );
    }
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_stuck_reconcile_fails_readyz_only_if_configured_and_never_healthz() -> anyhow::Result<()>
{
    let server = server();
    let manager = builder(&server).build()?;
    let handle = manager.handle();
    let mut release = Vec::new();
    for (name, fails) in [("strict", Some(true)), ("lenient", None)] {
        let (end, ended) = tokio::sync::watch::channel(());
        let reconciler = reconcile::from_fn(move |_: Request, _| {
            let mut ended = ended.clone();
            async move {
                // Until the sender is dropped.
                while ended.changed().await.is_ok() {}
                Ok(Outcome::done())
            }
        });
        let options = Options {
            stuck_fails_readiness: fails,
            ..Options::default()
        };
        let controller = handle
            .controller(name)
            .options(options)
            .reconcile(reconciler)?;
        controller.queue().add(Request::new("shop", "front"));
        release.push(end);
    }
    let running = Running::new(manager);
    handle.elected().await;
    let failures = async |probe| {
        let reports = handle.check(probe).await;
        reports
            .into_iter()
            .filter_map(|report| Some(format!("{}: {}", report.name, report.failure?)))
            .collect::<Vec<_>>()
    };
    tokio::time::sleep(Duration::from_secs(599)).await;
    assert!(failures(Probe::Ready).await.is_empty());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(
        failures(Probe::Ready).await,
        ["controller/strict: stuck reconciles: shop/front for 601 s"]
    );
    assert!(failures(Probe::Health).await.is_empty());
    let controllers = serde_json::to_value(handle.controllers())?;
    for controller in controllers.as_array().expect("controllers") {
        assert_eq!(controller["stuck"][0]["key"], "shop/front", "{controller}");
    }

    drop(release);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(
        failures(Probe::Ready).await.is_empty(),
        "the reconcile has ended"
    );
    running.stop().await?;
    assert!(
        handle
            .check(Probe::Ready)
            .await
            .iter()
            .all(|report| &*report.name != "controller/strict")
    );
    Ok(())
}
