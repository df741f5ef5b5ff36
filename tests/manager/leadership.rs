//! Tests of work that only the leader does.

use crate::support::{Log, Running, builder, client, nothing, server, until};
use http::Method;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use std::time::Duration;
use steersman::{
    controller::{Options, WatchState},
    manager::{
        Manager, ManagerError, ManagerHandle, Probe, RunContext, Stage, election::LeaderElection,
    },
    prelude::*,
};
use steersman_apiserver::{ApiServer, Fault};
use tokio::{sync::mpsc, time::Instant};
use tower::ServiceExt as _;

fn candidate(server: &ApiServer, identity: &str) -> anyhow::Result<Manager> {
    let election = LeaderElection {
        identity: identity.into(),
        ..LeaderElection::new("operator", "default")
    };
    Ok(builder(server).leader_election_with(election).build()?)
}

async fn holder(server: &ApiServer) -> anyhow::Result<Option<String>> {
    let lease = Api::<Lease>::default_namespaced(client(server))
        .get("operator")
        .await?;
    Ok(lease
        .spec
        .and_then(|spec| spec.holder_identity)
        .filter(|holder| !holder.is_empty()))
}

#[tokio::test(start_paused = true)]
async fn the_standby_leads_as_soon_as_the_leader_stops() -> anyhow::Result<()> {
    let (server, log) = (server(), Log::default());
    let mut running = Vec::new();
    for name in ["one", "two"] {
        let manager = candidate(&server, name)?;
        log.runnable(
            &manager,
            Stage::Leader,
            if name == "one" {
                "work of one"
            } else {
                "work of two"
            },
        );
        log.runnable(
            &manager,
            Stage::Other,
            if name == "one" {
                "rest of one"
            } else {
                "rest of two"
            },
        );
        let handle = manager.handle();
        running.push((handle.clone(), Running::new(manager)));
        if name == "one" {
            handle.elected().await;
        }
    }
    until(|| log.all().len() == 3).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(
        log.all(),
        ["rest of one", "work of one", "rest of two"].map(|what| format!("{what} runs"))
    );
    assert_eq!(holder(&server).await?.as_deref(), Some("one"));

    let (two, second) = running.pop().expect("two");
    let (_, first) = running.pop().expect("one");
    let begun = Instant::now();
    first.stop().await?;
    two.elected().await;
    assert!(
        begun.elapsed() <= Duration::from_millis(100),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(holder(&server).await?.as_deref(), Some("two"));
    second.stop().await?;
    assert_eq!(holder(&server).await?, None);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_held_until_the_leaders_work_has_ended() -> anyhow::Result<()> {
    let server = server();
    let manager = candidate(&server, "one")?;
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let client_of_leader = client(&server);
    manager.add(Stage::Leader, "slow work", async move |cx: RunContext| {
        cx.stopped().await;
        // Longer than the lease duration.
        tokio::time::sleep(Duration::from_secs(25)).await;
        let lease = Api::<Lease>::default_namespaced(client_of_leader)
            .get("operator")
            .await?;
        sender.send(lease.spec.and_then(|spec| spec.holder_identity))?;
        Ok(())
    })?;
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    running.stop().await?;
    assert_eq!(receiver.recv().await.flatten().as_deref(), Some("one"));
    assert_eq!(holder(&server).await?, None);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_is_stopped_starts_no_leaders_work() -> anyhow::Result<()> {
    let (server, log) = (server(), Log::default());
    let first = candidate(&server, "one")?;
    let leader = first.handle();
    let first = Running::new(first);
    leader.elected().await;
    let second = candidate(&server, "two")?;
    log.runnable(&second, Stage::Leader, "work");
    log.runnable(&second, Stage::Controllers, "rest");
    let second = Running::new(second);
    until(|| !log.all().is_empty()).await;
    second.stop().await?;
    assert_eq!(log.all(), ["rest runs", "rest stops"]);
    first.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_loses_the_lease_drops_its_work_and_fails() -> anyhow::Result<()> {
    let (server, log) = (server(), Log::default());
    let manager = candidate(&server, "one")?;
    let (sender, mut receiver) = mpsc::unbounded_channel();
    manager.add(Stage::Leader, "work that does not care", async move |_cx| {
        let _ends = scopeguard(move || sender.send(Instant::now()).expect("the test listens"));
        std::future::pending().await
    })?;
    log.runnable(&manager, Stage::Other, "rest");
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let renewed = Instant::now();
    server.faults().add(Fault::on("PUT leases").status(500));
    server.faults().add(Fault::on("PATCH leases").status(500));
    let error = running.task.await?.unwrap_err();
    let Some(ManagerError::Several(errors)) = error.downcast_ref() else {
        panic!("{error}")
    };
    assert!(
        matches!(
            &errors[..],
            [ManagerError::Lost(_), ManagerError::Dropped { .. }]
        ),
        "{error}"
    );
    let ended = receiver.recv().await.expect("the work was dropped");
    assert!(
        ended - renewed < Duration::from_secs(15),
        "before the lease is over: {:?}",
        ended - renewed
    );
    assert_eq!(log.all(), ["rest runs", "rest stops"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_warm_standby_has_synced_sources_before_it_leads() -> anyhow::Result<()> {
    let server = server();
    let first = candidate(&server, "one")?;
    let leader = first.handle();
    let first = Running::new(first);
    leader.elected().await;
    let second = candidate(&server, "two")?;
    let options = Options {
        warmup: Some(true),
        ..Options::default()
    };
    let warm = second
        .controller("warm")
        .for_::<ConfigMap>()
        .options(options)
        .reconcile(nothing())?;
    let cold = second
        .controller("cold")
        .for_::<ConfigMap>()
        .reconcile(nothing())?;
    let second = Running::new(second);
    let synced =
        |controller: &Controller| matches!(controller.watches()[0].state(), WatchState::Synced);
    until(|| synced(&warm)).await;
    assert!(!synced(&cold));
    second.stop().await?;
    first.stop().await
}

#[tokio::test(start_paused = true)]
async fn the_fencing_token_grows_with_every_leader() -> anyhow::Result<()> {
    let server = server();
    let mut tokens = Vec::new();
    for name in ["one", "two", "three"] {
        let manager = candidate(&server, name)?;
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let reconciler = reconcile::from_fn(move |_: Request, cx| {
            sender.send(cx.fencing_token()).expect("the test listens");
            std::future::ready(Ok(Outcome::done()))
        });
        manager
            .controller("a")
            .reconcile(reconciler)?
            .queue()
            .add(Request::new("default", "a"));
        let running = Running::new(manager);
        tokens.push(receiver.recv().await.flatten().expect("this process leads"));
        running.stop().await?;
    }
    assert!(
        tokens.is_sorted_by(|older, newer| older < newer),
        "{tokens:?}"
    );
    Ok(())
}

/// Returns the failure of the check `lease`, or `None` if it passes.
async fn lease_failure(manager: &ManagerHandle) -> Option<String> {
    let reports = manager.check(Probe::Ready).await;
    reports
        .into_iter()
        .find(|report| &*report.name == "lease")
        .expect("the check is there")
        .failure
}

#[tokio::test(start_paused = true)]
async fn readyz_fails_while_leases_are_forbidden_and_recovers() -> anyhow::Result<()> {
    for pattern in ["* leases", "POST leases"] {
        let server = server();
        let forbidden = server.faults().add(Fault::on(pattern).status(403));
        let manager = candidate(&server, "one")?;
        let handle = manager.handle();
        let running = Running::new(manager);
        until(|| forbidden.hits() > 0).await;
        // The check also fails while a request is under way.
        for _ in 0..100 {
            let failure = lease_failure(&handle).await.unwrap_or_default();
            let verb = if pattern == "* leases" {
                "read"
            } else {
                "write"
            };
            assert!(
                failure.starts_with(&format!("cannot {verb} Lease default/operator: leases")),
                "{failure}"
            );
            assert!(failure.contains("is forbidden"), "{failure}");
            tokio::time::sleep(Duration::from_millis(97)).await;
        }
        assert_eq!(
            handle
                .check(Probe::Health)
                .await
                .iter()
                .find_map(|report| report.failure.clone()),
            None
        );
        forbidden.remove();
        handle.elected().await;
        assert_eq!(lease_failure(&handle).await, None);
        running.stop().await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn readyz_fails_after_the_renew_deadline_if_lease_requests_fail_or_hang() -> anyhow::Result<()>
{
    for (pattern, verb) in [("* leases", "read"), ("POST leases", "write")] {
        let faults = [
            Fault::on(pattern).status(503),
            Fault::on(pattern).delay(Duration::from_hours(1)),
        ];
        for fault in faults {
            let server = server();
            let failing = server.faults().add(fault);
            let manager = candidate(&server, "one")?;
            let handle = manager.handle();
            let running = Running::new(manager);
            until(|| failing.hits() > 0).await;
            let begun = Instant::now();
            let failure = loop {
                if let Some(failure) = lease_failure(&handle).await {
                    break failure;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            };
            assert_eq!(begun.elapsed().as_secs(), 10, "{failure}");
            for _ in 0..100 {
                let failure = lease_failure(&handle).await.unwrap_or_default();
                assert!(
                    failure.starts_with(&format!("cannot {verb} Lease default/operator: ")),
                    "{failure}"
                );
                tokio::time::sleep(Duration::from_millis(97)).await;
            }
            failing.remove();
            handle.elected().await;
            assert_eq!(lease_failure(&handle).await, None);
            running.stop().await?;
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn readyz_does_not_depend_on_lease_errors_that_a_retry_overcomes() -> anyhow::Result<()> {
    let server = server();
    let manager = candidate(&server, "one")?;
    let handle = manager.handle();
    let while_standby = server
        .faults()
        .add(Fault::on("GET leases").status(503).times(2));
    let running = Running::new(manager);
    until(|| while_standby.hits() > 0).await;
    while !handle.lease().is_some_and(|lease| lease.leading) {
        assert_eq!(lease_failure(&handle).await, None);
        tokio::time::sleep(Duration::from_millis(97)).await;
    }
    let while_leading = server
        .faults()
        .add(Fault::on("* leases").status(500).times(4));
    until(|| while_leading.hits() > 0).await;
    for _ in 0..200 {
        assert_eq!(lease_failure(&handle).await, None);
        tokio::time::sleep(Duration::from_millis(97)).await;
    }
    assert_eq!(while_leading.hits(), 4);
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn readyz_fails_after_a_denied_lease_request_until_one_succeeds() -> anyhow::Result<()> {
    for code in [401, 403] {
        let server = server();
        let denied = server
            .faults()
            .add(Fault::on("* leases").status(code).times(1));
        let unavailable = server.faults().add(Fault::on("* leases").status(503));
        let manager = candidate(&server, "one")?;
        let handle = manager.handle();
        let running = Running::new(manager);
        until(|| denied.hits() > 0).await;
        // Shorter than the renew deadline.
        for _ in 0..90 {
            assert!(lease_failure(&handle).await.is_some(), "{code}");
            tokio::time::sleep(Duration::from_millis(97)).await;
        }
        assert!(unavailable.hits() > 0);
        unavailable.remove();
        handle.elected().await;
        assert_eq!(lease_failure(&handle).await, None);
        running.stop().await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_cannot_write_the_lease_is_ready_while_another_process_leads()
-> anyhow::Result<()> {
    let server = server();
    let leases = Api::<Lease>::default_namespaced(client(&server));
    let free = serde_json::json!({"metadata": {"name": "operator"}});
    leases
        .create(&PostParams::default(), &serde_json::from_value(free)?)
        .await?;
    let forbidden = server.faults().add(Fault::on("PUT leases").status(403));
    let standby = candidate(&server, "two")?;
    let handle = standby.handle();
    let standby = Running::new(standby);
    until(|| forbidden.hits() > 0).await;
    let failure = lease_failure(&handle).await.unwrap_or_default();
    assert!(
        failure.starts_with("cannot write Lease default/operator: "),
        "{failure}"
    );

    let held = serde_json::json!({"spec": {"holderIdentity": "one", "leaseDurationSeconds": 60}});
    leases
        .patch("operator", &PatchParams::default(), &Patch::Merge(held))
        .await?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(lease_failure(&handle).await, None);
    standby.stop().await
}

/// Returns a client that panics for the selected requests.
fn panicking(
    server: &ApiServer,
    panics: impl Fn(&Method) -> bool + Clone + Send + 'static,
) -> kube::Client {
    let service = server.service();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (service, panics) = (service.clone(), panics.clone());
        async move {
            assert!(
                !(request.uri().path().contains("/leases") && panics(request.method())),
                "no luck"
            );
            service.oneshot(request).await
        }
    });
    kube::Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_election_stops_the_manager_with_an_error() -> anyhow::Result<()> {
    let (server, log) = (server(), Log::default());
    // During a renewal.
    let manager = Manager::builder(panicking(&server, |method| method == Method::PUT))
        .leader_election("operator", "default")
        .build()?;
    let ended = log.clone();
    manager.add(Stage::Leader, "work that does not care", async move |_cx| {
        let _ends = scopeguard(move || ended.push("dropped"));
        std::future::pending().await
    })?;
    let begun = Instant::now();
    let error = manager.run_until(std::future::pending()).await.unwrap_err();
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "before another can lead: {:?}",
        begun.elapsed()
    );
    assert_eq!(log.all(), ["dropped"]);
    let words = error.to_string();
    assert!(
        words.starts_with("leader election: panicked and lost the lease: no luck; then "),
        "{words}"
    );

    // During the acquisition.
    let manager = Manager::builder(panicking(&server, |_| true))
        .leader_election("operator", "default")
        .build()?;
    log.runnable(&manager, Stage::Leader, "never");
    let error = manager
        .run_until(std::future::pending())
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "leader election: panicked and lost the lease: no luck"
    );
    assert_eq!(log.all(), ["dropped"]);
    Ok(())
}

/// Calls `call` when the guard is dropped.
fn scopeguard(call: impl FnMut()) -> impl Drop {
    struct Guard<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Guard<F> {
        fn drop(&mut self) {
            self.0();
        }
    }
    Guard(call)
}
