//! The standby: how long it waits, and what wakes it.

use super::*;
use futures::future::join_all;
use http::{Request, Response};
use kube_client::client::Body;
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll},
};
use tokio::time::{sleep, timeout};

#[tokio::test(start_paused = true)]
async fn one_of_several_concurrent_candidates_leads() {
    let fixture = Fixture::new();
    let electors: Vec<_> = (0..5)
        .map(|number| fixture.elector(&format!("candidate-{number}")))
        .collect();
    let candidates = join_all(
        electors
            .iter()
            .map(|elector| timeout(seconds(10.0), leads(elector))),
    )
    .await;
    assert_eq!(
        candidates
            .iter()
            .filter(|candidate| candidate.is_ok())
            .count(),
        1
    );
    let reports: Vec<_> = electors.iter().map(Elector::report).collect();
    assert_eq!(reports.iter().filter(|report| report.leading).count(), 1);
    assert!(
        reports
            .iter()
            .all(|report| report.holder == reports[0].holder),
        "{reports:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_standby_sends_no_requests_but_its_watch() {
    let fixture = Fixture::new();
    let _leader = held(leads(&fixture.elector("a")).await);
    let standby = waiting(&fixture.elector("b"));
    sleep(seconds(1.0)).await;
    fixture.server.journal().clear();
    sleep(seconds(600.0)).await;
    assert!(!standby.is_finished());
    assert!(
        fixture.server.journal().count("get leases") < 30,
        "{}",
        fixture.server.journal().count("get leases")
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_expires_by_the_local_clock() {
    for renew_time in ["2001-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"] {
        let fixture = Fixture::new();
        // The holder crashes: dropped without a release.
        drop(leads(&fixture.elector("a")).await);
        fixture.write(json!({"renewTime": renew_time})).await;
        let began = Instant::now();
        let (leadership, at) = waiting(&fixture.elector("b")).await.expect("no panic");
        let took = (at - began).as_secs_f64();
        assert!((15.0..15.1).contains(&took), "{took} after {renew_time}");
        assert_eq!(fixture.spec().await["leaseTransitions"], 1);
        assert!(leadership.fence().check().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_clock_is_wrong_keeps_the_lease_as_long_as_it_renews() {
    let fixture = Fixture::new();
    drop(leads(&fixture.elector("a")).await);
    let standby = waiting(&fixture.elector("b"));
    for second in 0..60 {
        fixture
            .write(json!({"renewTime": format!("2001-01-01T00:00:{second:02}.000000Z")}))
            .await;
        sleep(seconds(14.0)).await;
    }
    assert!(!standby.is_finished());
    sleep(seconds(1.1)).await;
    assert!(standby.is_finished());
}

#[tokio::test(start_paused = true)]
async fn changes_of_other_fields_do_not_renew_a_lease() {
    let fixture = Fixture::new();
    drop(leads(&fixture.elector("a")).await);
    let (began, standby) = (Instant::now(), waiting(&fixture.elector("b")));
    for number in 0..14 {
        sleep(seconds(1.0)).await;
        fixture
            .patch(json!({"metadata": {"annotations": {"number": number.to_string()}}}))
            .await;
    }
    let (_leadership, at) = standby.await.expect("no panic");
    assert!((at - began).as_secs_f64() < 15.1, "{:?}", at - began);
}

#[tokio::test(start_paused = true)]
async fn the_holder_sets_the_duration_of_a_lease() {
    let fixture = Fixture::new();
    drop(leads(&fixture.elector("a")).await);
    fixture.write(json!({"leaseDurationSeconds": 40})).await;
    let began = Instant::now();
    let (_leadership, at) = waiting(&fixture.elector("b")).await.expect("no panic");
    assert!(
        (40.0..40.1).contains(&(at - began).as_secs_f64()),
        "{:?}",
        at - began
    );
}

#[tokio::test(start_paused = true)]
async fn tokens_grow_with_every_leader_also_over_a_deletion() {
    let fixture = Fixture::new();
    let mut tokens = Vec::new();
    for number in 0..3 {
        let leadership = leads(&fixture.elector(&format!("candidate-{number}"))).await;
        tokens.push(leadership.fence().token());
        leadership.release().await.expect("the Lease is released");
    }
    assert_eq!(fixture.spec().await["leaseTransitions"], 2);
    fixture
        .leases()
        .delete("web", &DeleteParams::default())
        .await
        .expect("the object is deleted");
    tokens.push(leads(&fixture.elector("d")).await.fence().token());
    assert!(
        tokens.is_sorted_by(|earlier, later| earlier < later),
        "{tokens:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watching_standby_leads_within_100_ms_of_a_release() {
    let fixture = Fixture::new();
    let mut leadership = leads(&fixture.elector("a")).await;
    let standby = waiting(&fixture.elector("b"));
    leadership
        .hold(sleep(seconds(60.0)))
        .await
        .expect("the Lease is kept");
    let released = Instant::now();
    leadership.release().await.expect("the Lease is released");
    let (_leadership, at) = standby.await.expect("no panic");
    assert!(at - released <= seconds(0.1), "{:?}", at - released);
}

#[tokio::test(start_paused = true)]
async fn without_a_watch_a_standby_polls() {
    for rule in [
        "watch leases -> 403",
        "watch leases -> close",
        "watch leases -> delay 1m",
    ] {
        let fixture = Fixture::new();
        fixture.fault(rule);
        let leadership = leads(&fixture.elector("a")).await;
        let elector = fixture.elector("b");
        let standby = waiting(&elector);
        sleep(seconds(7.0)).await;
        let released = Instant::now();
        assert_eq!(
            elector.report().watch_error.is_some(),
            !rule.contains("delay"),
            "{rule}"
        );
        leadership.release().await.expect("the Lease is released");
        let (_leadership, at) = standby.await.expect("no panic");
        assert!(
            at - released <= seconds(2.2 * 2.0),
            "{rule}: {:?}",
            at - released
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_lease_watch_is_restarted() {
    let fixture = Fixture::new();
    fixture.fault("watch leases -> drop after 2");
    let mut leadership = leads(&fixture.elector("a")).await;
    let standby = waiting(&fixture.elector("b"));
    leadership
        .hold(sleep(seconds(60.0)))
        .await
        .expect("the Lease is kept");
    let (released, asked) = (Instant::now(), fixture.server.journal().count("get leases"));
    leadership.release().await.expect("the Lease is released");
    let (_leadership, at) = standby.await.expect("no panic");
    assert!(at - released <= seconds(0.5), "{:?}", at - released);
    assert!(
        asked < 5 && fixture.server.journal().count("watch leases") > 10,
        "{asked}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_is_stopped_does_not_lead() {
    let fixture = Fixture::new();
    let leader = leads(&fixture.elector("a")).await;
    let elector = fixture.elector("b");
    assert!(
        elector.acquire(async {}).await.is_none(),
        "before it has begun"
    );
    assert!(elector.acquire(sleep(seconds(5.0))).await.is_none());
    leader.release().await.expect("the Lease is released");
    assert_eq!(fixture.spec().await["holderIdentity"], "");
    assert!(
        elector.acquire(async {}).await.is_none(),
        "also if it could"
    );
    assert_eq!(fixture.spec().await["holderIdentity"], "");
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_is_stopped_while_acquiring_releases_the_lease() {
    let fixture = Fixture::new();
    fixture.fault("POST leases -> delay 2s");
    let elector = fixture.elector("a");
    assert!(elector.acquire(sleep(seconds(1.0))).await.is_none());
    assert_eq!(fixture.spec().await["holderIdentity"], "");
    assert!(!elector.report().leading);
}

#[tokio::test(start_paused = true)]
async fn errors_of_a_standby_are_reported_and_retried() {
    let fixture = Fixture::new();
    fixture.fault("GET leases -> 500 twice");
    fixture.fault("POST leases -> 403 once");
    let elector = fixture.elector("a");
    let standby = waiting(&elector);
    sleep(seconds(0.1)).await;
    assert!(
        elector
            .report()
            .last_error
            .is_some_and(|error| error.contains("fault")),
        "{:?}",
        elector.report()
    );
    let _leadership = standby.await.expect("no panic");
    assert_eq!(elector.report().last_error, None);
}

/// Connection that drops the responses to some writes.
#[derive(Clone)]
struct Lossy {
    service: steersman_apiserver::Service,
    lose: Arc<AtomicU32>,
}

impl tower_service::Service<Request<Body>> for Lossy {
    type Response = Response<steersman_apiserver::Body>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let lost = request.method() != http::Method::GET
            && self
                .lose
                .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
                .is_ok();
        let answer = tower_service::Service::call(&mut self.service, request);
        Box::pin(async move {
            let answer = answer.await.map_err(Into::into);
            if lost {
                Err("the connection is broken".into())
            } else {
                answer
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_acquired_without_a_response_is_recognised() {
    let fixture = Fixture::new();
    let lossy = Lossy {
        service: fixture.server.service(),
        lose: Arc::new(AtomicU32::new(1)),
    };
    let options = LeaderElection {
        identity: "a".into(),
        ..LeaderElection::new("web", "default")
    };
    let elector = Elector::new(Client::new(lossy.clone(), "default"), options)
        .expect("the options are right");
    let began = Instant::now();
    let leadership = leads(&elector).await;
    assert!(began.elapsed() < seconds(4.5), "{:?}", began.elapsed());
    assert_eq!(
        fixture.spec().await["leaseTransitions"],
        0,
        "the term is the same"
    );
    // Lost responses to renewals do not lose the Lease.
    lossy.lose.store(2, Relaxed);
    let leader = held(leadership);
    sleep(seconds(30.0)).await;
    assert!(
        !leader.is_finished() && elector.report().slow_path >= 1,
        "{:?}",
        elector.report()
    );
}
