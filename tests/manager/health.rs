//! Checks that take long or hang, and connections that take all places: nobody else waits for them.

use crate::{
    support::{Running, builder, server},
    web::{ask, get},
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
    let admin = Admin { address: "127.0.0.1:0".parse()?, max_connections, ..Admin::default() };
    let address = manager.serve_admin(admin)?.address();
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    Ok((handle, address, running))
}

/// One that hangs until this is dropped, and how often it was asked.
fn stuck(handle: &ManagerHandle, name: &str) -> (mpsc::Sender<()>, Arc<AtomicUsize>) {
    let (free, waits) = mpsc::channel::<()>();
    let (waits, asked) = (Mutex::new(waits), Arc::new(AtomicUsize::new(0)));
    let counted = asked.clone();
    handle.add_check(Probe::Ready, name, move || {
        counted.fetch_add(1, SeqCst);
        let _ = waits.lock().recv();
        Ok(())
    });
    (free, asked)
}

async fn until_asked(asked: &AtomicUsize) {
    while asked.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn only_what_is_asked_for_is_asked() -> anyhow::Result<()> {
    let (handle, address, running) = serving(100).await?;
    let asked: [Arc<AtomicUsize>; 3] = Default::default();
    for (name, asked) in ["a", "b", "c/d"].into_iter().zip(asked.clone()) {
        handle.add_check(Probe::Ready, name, move || {
            asked.fetch_add(1, SeqCst);
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
        assert_eq!(asked.each_ref().map(|asked| asked.load(SeqCst)), expected, "{path}");
    }
    running.stop().await
}

#[tokio::test]
async fn a_check_that_hangs_holds_up_nobody_who_did_not_ask_for_it() -> anyhow::Result<()> {
    let (handle, address, running) = serving(100).await?;
    let (free, asked) = stuck(&handle, "stuck");
    let waiting: Vec<_> = (0..20).map(|_| tokio::spawn(get(address, "/readyz"))).collect();
    until_asked(&asked).await;
    assert_eq!(get(address, "/readyz/cache").await?.body, "ok");
    assert_eq!(get(address, "/readyz?exclude=stuck").await?.body, "ok");
    assert_eq!(get(address, "/healthz").await?.body, "ok");
    drop(free);
    for waiting in waiting {
        waiting.await??;
    }
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_check_that_gives_no_answer_has_failed_after_five_seconds_and_the_others_have_not() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server).build()?;
    let handle = manager.handle();
    let (free, asked) = stuck(&handle, "stuck");
    let fine = handle.readiness("fine");
    fine.ready();
    for _ in 0..3 {
        let reports = tokio::spawn({
            let handle = handle.clone();
            async move { handle.check(Probe::Ready).await }
        });
        tokio::task::yield_now().await;
        until_asked(&asked).await;
        // Time stands still while a thread is at work.
        tokio::time::advance(Duration::from_secs(5)).await;
        let said: Vec<_> = reports.await?.into_iter().skip(2).map(|report| report.failure).collect();
        assert_eq!(said, [Some("no answer within 5 s".to_owned()), None]);
    }
    assert_eq!(asked.load(SeqCst), 1, "it is not asked again while it hangs");
    drop(free);
    Ok(())
}

/// One that has asked once, and keeps its connection.
async fn keeps(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    let mut answer = [0; 64];
    anyhow::ensure!(stream.read(&mut answer).await? > 0 && answer.starts_with(b"HTTP/1.1 200"));
    Ok(stream)
}

#[tokio::test]
async fn when_all_places_are_taken_health_is_told_and_others_are_sent_away() -> anyhow::Result<()> {
    let (_, address, running) = serving(2).await?;
    let kept = [keeps(address).await?, keeps(address).await?];
    for _ in 0..20 {
        assert_eq!(get(address, "/healthz").await?.body, "ok");
        assert_eq!(get(address, "/readyz/cache").await?.code, 200);
    }
    let away = get(address, "/metrics").await?;
    assert!(away.code == 503 && away.head.contains("retry-after: 1") && away.body.contains("max_connections"));
    assert!(away.head.contains("connection: close"), "{}", away.head);
    drop(kept);
    // The server learns of it in its own time.
    while get(address, "/metrics").await?.code == 503 {}
    running.stop().await
}

#[tokio::test]
async fn who_says_nothing_keeps_no_place_that_is_for_health_pages() -> anyhow::Result<()> {
    let (_, address, running) = serving(1).await?;
    let _kept = keeps(address).await?;
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(TcpStream::connect(address).await?);
    }
    let late = TcpStream::connect(address).await?;
    assert_eq!(timeout(Duration::from_mins(1), ask(late, "/healthz", None)).await??.body, "ok");
    for mut silent in silent {
        assert_eq!(silent.read(&mut [0; 64]).await?, 0, "it was closed");
    }
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_stuck_reconcile_fails_readyz_only_if_configured_and_never_healthz() -> anyhow::Result<()> {
    let server = server();
    let manager = builder(&server).build()?;
    let handle = manager.handle();
    let mut free = Vec::new();
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
        let options = Options { stuck_fails_readiness: fails, ..Options::default() };
        let controller = handle.controller(name).options(options).reconcile(reconciler)?;
        controller.queue().add(Request::new("shop", "front"));
        free.push(end);
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
    assert_eq!(failures(Probe::Ready).await, ["controller/strict: stuck reconciles: shop/front for 601 s"]);
    assert!(failures(Probe::Health).await.is_empty());
    let controllers = serde_json::to_value(handle.controllers())?;
    for controller in controllers.as_array().expect("controllers") {
        assert_eq!(controller["stuck"][0]["key"], "shop/front", "{controller}");
    }

    drop(free);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(failures(Probe::Ready).await.is_empty(), "the reconcile has ended");
    running.stop().await?;
    assert!(handle.check(Probe::Ready).await.iter().all(|report| &*report.name != "controller/strict"));
    Ok(())
}
