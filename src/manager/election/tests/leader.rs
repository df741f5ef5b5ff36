//! The leader: renewal, loss and release.

use super::*;
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::time::{advance, sleep};

#[tokio::test(start_paused = true)]
async fn the_first_candidate_creates_the_lease_and_leads() {
    let fixture = Fixture::new();
    let labels = [("app".to_owned(), "web".to_owned())].into();
    let elector = fixture.elector_with(LeaderElection {
        identity: "a".into(),
        labels,
        ..LeaderElection::new("web", "default")
    });
    assert_eq!(
        (elector.report().leading, elector.report().holder),
        (false, None)
    );
    let leadership = leads(&elector).await;
    let lease = fixture.leases().get("web").await.expect("a Lease");
    let spec = &lease.data["spec"];
    assert_eq!(
        (
            &spec["holderIdentity"],
            &spec["leaseTransitions"],
            &spec["leaseDurationSeconds"]
        ),
        (&json!("a"), &json!(0), &json!(15))
    );
    for time in ["acquireTime", "renewTime"] {
        let text = spec[time].as_str().expect("a time");
        assert_eq!(
            text.split_once('.').map(|(_, digits)| digits.len()),
            Some(7),
            "{text}"
        );
    }
    assert_eq!(
        lease.metadata.labels,
        Some([("app".to_owned(), "web".to_owned())].into())
    );
    assert_eq!(
        lease.metadata.resource_version,
        Some(leadership.fence().token().to_string())
    );
    let report = elector.report();
    assert_eq!(
        (report.leading, report.holder.as_deref(), report.token),
        (true, Some("a"), Some(leadership.fence().token()))
    );
    assert_eq!(report.seconds_left, Some(12.5));
    assert!(
        serde_json::to_value(&report).is_ok_and(|page| page["leading_since"].is_string()),
        "{report:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_renews_every_retry_period_and_moves_its_deadline() {
    let fixture = Fixture::new();
    let elector = fixture.elector("a");
    let leadership = leads(&elector).await;
    let fence = leadership.fence();
    let (began, acquired) = (Instant::now(), fixture.spec().await["acquireTime"].clone());
    let leader = held(leadership);
    sleep(seconds(61.0)).await;
    assert_eq!(fixture.server.journal().count("PUT leases"), 30);
    assert_eq!(fence.deadline(), began + seconds(60.0 + 12.5));
    let spec = fixture.spec().await;
    assert_eq!(
        (&spec["leaseTransitions"], &spec["acquireTime"]),
        (&json!(0), &acquired)
    );
    assert_ne!(spec["renewTime"], acquired);
    assert_eq!(
        (elector.report().renewals, elector.report().slow_path),
        (30, 0)
    );
    assert!(!leader.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_another_client_changed_is_read_and_renewed() {
    let fixture = Fixture::new();
    let elector = fixture.elector("a");
    let leader = held(leads(&elector).await);
    fixture
        .patch(json!({"metadata": {"annotations": {"looked": "at"}}}))
        .await;
    sleep(seconds(3.0)).await;
    assert_eq!(
        (
            elector.report().renewals,
            elector.report().slow_path,
            elector.report().last_error
        ),
        (1, 1, None)
    );
    let lease = fixture.leases().get("web").await.expect("a Lease");
    assert!(
        lease
            .metadata
            .annotations
            .is_some_and(|annotations| annotations.contains_key("looked"))
    );
    assert!(!leader.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_recreated_by_the_leader() {
    let fixture = Fixture::new();
    let (elector, other) = (fixture.elector("a"), fixture.elector("b"));
    let leadership = leads(&elector).await;
    let (fence, leader, standby) = (leadership.fence(), held(leadership), waiting(&other));
    sleep(seconds(5.0)).await;
    fixture
        .leases()
        .delete("web", &DeleteParams::default())
        .await
        .expect("the object is deleted");
    sleep(seconds(30.0)).await;
    assert_eq!(fixture.spec().await["holderIdentity"], "a");
    assert!(fence.check().is_ok() && !leader.is_finished() && !standby.is_finished());
    assert_eq!(elector.report().slow_path, 1);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_has_lost_at_the_renew_deadline() {
    for rules in [
        ["PUT leases -> 500", "GET leases -> 500"],
        ["PUT leases -> delay 1m", "GET leases -> delay 1m"],
    ] {
        let fixture = Fixture::new();
        let leadership = leads(&fixture.elector("a")).await;
        let (began, fence, leader) = (Instant::now(), leadership.fence(), held(leadership));
        sleep(seconds(5.0)).await;
        for rule in rules {
            fixture.fault(rule);
        }
        let (_, lost) = leader.await.expect("no panic");
        // The last renewal was after four seconds; the renew deadline is ten seconds.
        assert_eq!(began.elapsed().as_millis().div_euclid(100), 140, "{lost:?}");
        assert!(fence.check().is_err());
        let lost = lost.expect_err("the Lease is lost").to_string();
        assert!(
            lost.contains("default/web was not renewed within 10s, last error: "),
            "{lost}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_few_errors_do_not_cost_the_lease() {
    let fixture = Fixture::new();
    let elector = fixture.elector("a");
    let leader = held(leads(&elector).await);
    fixture.fault("PUT leases -> 500 3 times");
    fixture.fault("GET leases -> 409 once");
    sleep(seconds(30.0)).await;
    assert!(!leader.is_finished());
    assert!(
        elector.report().slow_path >= 2 && elector.report().renewals >= 10,
        "{:?}",
        elector.report()
    );
}

#[tokio::test(start_paused = true)]
async fn a_suspended_process_has_lost_the_lease_and_sends_nothing() {
    let fixture = Fixture::new();
    let leadership = leads(&fixture.elector("a")).await;
    let (fence, leader) = (leadership.fence(), held(leadership));
    sleep(seconds(3.0)).await;
    let renewed = fixture.server.journal().count("PUT leases");
    advance(seconds(60.0)).await;
    assert!(fence.check().is_err(), "before anybody has noticed");
    let (_, lost) = leader.await.expect("no panic");
    assert!(matches!(lost, Err(Lost::NotRenewed { .. })), "{lost:?}");
    assert_eq!(fixture.server.journal().count("PUT leases"), renewed);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_answered_after_a_stop_is_not_used() {
    let fixture = Fixture::new();
    let leadership = leads(&fixture.elector("a")).await;
    let (fence, leader) = (leadership.fence(), held(leadership));
    fixture.fault("PUT leases -> delay 3s");
    sleep(seconds(3.0)).await;
    // After the jump, both the response and the timeout are ready.
    advance(seconds(60.0)).await;
    let (_, lost) = leader.await.expect("no panic");
    assert!(lost.is_err() && fence.check().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_lease_read_answered_after_a_stop_is_followed_by_no_write() {
    let fixture = Fixture::new();
    let leader = held(leads(&fixture.elector("a")).await);
    fixture.server.faults().add(
        steersman_apiserver::Fault::on("PUT leases")
            .status(409)
            .times(1),
    );
    fixture.server.faults().add(
        steersman_apiserver::Fault::on("GET leases")
            .delay(seconds(1.0))
            .times(1),
    );
    sleep(seconds(2.5)).await;
    assert_eq!(
        fixture.server.journal().count("PUT leases"),
        1,
        "the write was rejected, and the Lease is read"
    );
    advance(seconds(60.0)).await;
    let (_, lost) = leader.await.expect("no panic");
    assert!(matches!(lost, Err(Lost::NotRenewed { .. })), "{lost:?}");
    assert_eq!(fixture.server.journal().count("PUT leases"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_sees_another_holder_has_lost() {
    let fixture = Fixture::new();
    let elector = fixture.elector("a");
    let leadership = leads(&elector).await;
    let (fence, leader) = (leadership.fence(), held(leadership));
    fixture
        .write(json!({"holderIdentity": "b", "leaseTransitions": 1}))
        .await;
    let (leadership, lost) = leader.await.expect("no panic");
    assert_eq!(
        lost,
        Err(Lost::Taken {
            lease: "default/web".into(),
            holder: "b".into()
        })
    );
    assert!(fence.check().is_err());
    leadership
        .release()
        .await
        .expect("not the holder of the Lease");
    assert_eq!(fixture.spec().await["holderIdentity"], "b");
    assert_eq!(elector.report().holder.as_deref(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn two_candidates_with_one_identity_do_not_both_lead() {
    let fixture = Fixture::new();
    let leader = held(leads(&fixture.elector("a")).await);
    let second = waiting(&fixture.elector("a"));
    sleep(seconds(60.0)).await;
    assert!(!leader.is_finished() && !second.is_finished());
    // Another process with the same identity has taken it, which is a loss as well.
    fixture.write(json!({"leaseTransitions": 1})).await;
    assert!(matches!(
        leader.await.expect("no panic").1,
        Err(Lost::Taken { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn a_release_closes_the_fence_and_clears_the_holder() {
    let fixture = Fixture::new();
    let elector = fixture.elector("a");
    let mut leadership = leads(&elector).await;
    let fence = leadership.fence();
    assert_eq!(leadership.hold(sleep(seconds(5.0))).await, Ok(()));
    assert!(fence.check().is_ok(), "the work may end first");
    // As after a renewal whose response was lost: the resource version has changed.
    fixture
        .patch(json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
    leadership.release().await.expect("the Lease is released");
    assert!(fence.check().is_err());
    let spec = fixture.spec().await;
    assert_eq!(
        (
            &spec["holderIdentity"],
            &spec["leaseDurationSeconds"],
            &spec["leaseTransitions"]
        ),
        (&json!(""), &json!(1), &json!(0))
    );
    assert_eq!(elector.report().holder, None);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_not_wanted_or_fails_leaves_the_lease_as_it_is() {
    let fixture = Fixture::new();
    let options = LeaderElection {
        identity: "a".into(),
        release_on_cancel: false,
        ..LeaderElection::new("web", "default")
    };
    leads(&fixture.elector_with(options))
        .await
        .release()
        .await
        .expect("nothing to do");
    assert_eq!(fixture.spec().await["holderIdentity"], "a");

    let fixture = Fixture::new();
    let leadership = leads(&fixture.elector("a")).await;
    fixture.fault("PUT leases -> 500");
    let error = leadership
        .release()
        .await
        .expect_err("the server fails")
        .to_string();
    assert!(
        error.contains("cannot release Lease default/web") && error.contains("15s"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_metrics_have_client_gos_names() {
    let fixture = Fixture::new();
    let (a, b) = (
        fixture.elector("a"),
        fixture.elector_with(LeaderElection::new("other", "default")),
    );
    let metrics = ElectionMetrics::default();
    metrics.watch(&a);
    metrics.watch(&b);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics));
    let _leadership = leads(&a).await;
    let page = || {
        let mut page = String::new();
        encode(&mut page, &registry).expect("a page");
        page
    };
    for line in [
        r#"leader_election_master_status{name="web"} 1"#,
        r#"leader_election_master_status{name="other"} 0"#,
        r#"leader_election_slowpath_total{name="web"} 0"#,
        r#"steersman_leader_election_late_writes_total{name="web"} 0"#,
    ] {
        assert!(page().contains(line), "{line} in\n{}", page());
    }
    drop(b);
    assert!(!page().contains("other"));
}
