//! Clocks that jump: the one on the wall, which others read, and the one by which time is measured here.

use super::*;
use tokio::time::{advance, sleep};

/// What a clock on a wall may say.
const WALLS: [&str; 3] = ["2001-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z", "1970-01-01T00:00:00.000000Z"];

#[tokio::test(start_paused = true)]
async fn a_standby_whose_clock_jumps_takes_nothing_that_was_renewed_meanwhile() {
    for wall in WALLS {
        let scene = Scene::new();
        drop(leads(&scene.elector("a")).await);
        let standby = waiting(&scene.elector("b"));
        sleep(seconds(5.0)).await;
        // The holder, somewhere else, renews by a clock that jumps, while the one here jumps over the end of the lease.
        let renewal = json!({"spec": {"renewTime": wall}});
        let (renewed, params) = (scene.leases(), PatchParams::default());
        let renewed = tokio::spawn(async move { renewed.patch("web", &params, &Patch::Merge(renewal)).await });
        advance(seconds(3600.0)).await;
        renewed.await.expect("no panic").expect("it is written");
        let seen = Instant::now();
        let (_leadership, at) = standby.await.expect("no panic");
        let took = (at - seen).as_secs_f64();
        assert!((14.9..15.1).contains(&took), "{took} after {wall}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_clocks_jump_has_lost_and_neither_renews_nor_releases_what_is_anothers() {
    for wall in WALLS {
        let scene = Scene::new();
        let leadership = leads(&scene.elector("a")).await;
        let (fence, leader) = (leadership.fence(), held(leadership));
        sleep(seconds(3.0)).await;
        scene.write(json!({"renewTime": wall, "holderIdentity": "b", "leaseTransitions": 1})).await;
        let renewed = scene.server.journal().count("PUT leases");
        advance(seconds(3600.0)).await;
        assert!(fence.check().is_err(), "before anybody has noticed");
        let (leadership, lost) = leader.await.expect("no panic");
        assert!(matches!(lost, Err(Lost::NotRenewed { .. })), "{lost:?}");
        assert_eq!(scene.server.journal().count("PUT leases"), renewed);
        leadership.release().await.expect("it is not this one's to release");
        let spec = scene.spec().await;
        assert_eq!((&spec["holderIdentity"], &spec["renewTime"]), (&json!("b"), &json!(wall)));
    }
}

#[tokio::test(start_paused = true)]
async fn small_jumps_of_both_clocks_cost_nobody_the_lease() {
    let scene = Scene::new();
    let elector = scene.elector("a");
    let (leader, standby) = (held(leads(&elector).await), waiting(&scene.elector("b")));
    for (jump, wall) in [1.0, 3.0, 5.0, 7.0].into_iter().zip(WALLS.into_iter().cycle()) {
        sleep(seconds(2.5)).await;
        scene.write(json!({"renewTime": wall})).await;
        advance(seconds(jump)).await;
    }
    sleep(seconds(60.0)).await;
    assert!(!leader.is_finished() && !standby.is_finished() && elector.report().leading, "{:?}", elector.report());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_has_changed_hands_as_often_as_can_be_counted_changes_hands_again() {
    let scene = Scene::new();
    let first = leads(&scene.elector("a")).await;
    let token = first.fence().token();
    first.release().await.expect("it is released");
    scene.write(json!({"leaseTransitions": i32::MAX})).await;
    let second = leads(&scene.elector("b")).await;
    assert_eq!(scene.spec().await["leaseTransitions"], i32::MAX);
    assert!(second.fence().token() > token, "tokens go on");
}
