//! Jumps of the wall clock and of the monotonic clock.

use super::*;
use tokio::time::{advance, sleep};

/// Times that a wall clock may show.
const WALLS: [&str; 3] = [
    "2001-01-01T00:00:00.000000Z",
    "2099-01-01T00:00:00.000000Z",
    "1970-01-01T00:00:00.000000Z",
];

#[tokio::test(start_paused = true)]
async fn a_standby_whose_clock_jumps_takes_nothing_that_was_renewed_meanwhile() {
    for wall in WALLS {
        let fixture = Fixture::new();
        drop(leads(&fixture.elector("a")).await);
        let standby = waiting(&fixture.elector("b"));
        sleep(seconds(5.0)).await;
        // The remote holder renews by a jumping clock, while the local clock jumps past the expiry.
        let renewal = json!({"spec": {"renewTime": wall}});
        let (renewed, params) = (fixture.leases(), PatchParams::default());
        let renewed =
            tokio::spawn(
                async move { renewed.patch("web", &params, &Patch::Merge(renewal)).await },
            );
        advance(seconds(3600.0)).await;
        renewed.await.expect("no panic").expect("written");
        let seen = Instant::now();
        let (_leadership, at) = standby.await.expect("no panic");
        let took = (at - seen).as_secs_f64();
        assert!((14.9..15.1).contains(&took), "{took} after {wall}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_clock_jumps_loses_and_does_not_write_the_lease() {
    for wall in WALLS {
        let fixture = Fixture::new();
        let leadership = leads(&fixture.elector("a")).await;
        let (fence, leader) = (leadership.fence(), held(leadership));
        sleep(seconds(3.0)).await;
        fixture
            .write(json!({"renewTime": wall, "holderIdentity": "b", "leaseTransitions": 1}))
            .await;
        let renewed = fixture.server.journal().count("PUT leases");
        advance(seconds(3600.0)).await;
        assert!(fence.check().is_err(), "before anybody has noticed");
        let (leadership, lost) = leader.await.expect("no panic");
        assert!(matches!(lost, Err(Lost::NotRenewed { .. })), "{lost:?}");
        assert_eq!(fixture.server.journal().count("PUT leases"), renewed);
        leadership
            .release()
            .await
            .expect("not the holder of the Lease");
        let spec = fixture.spec().await;
        assert_eq!(
            (&spec["holderIdentity"], &spec["renewTime"]),
            (&json!("b"), &json!(wall))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn small_clock_jumps_do_not_lose_the_lease() {
    let fixture = Fixture::new();
    let elector = fixture.elector("a");
    let (leader, standby) = (held(leads(&elector).await), waiting(&fixture.elector("b")));
    for (jump, wall) in [1.0, 3.0, 5.0, 7.0]
        .into_iter()
        .zip(WALLS.into_iter().cycle())
    {
        sleep(seconds(2.5)).await;
        fixture.write(json!({"renewTime": wall})).await;
        advance(seconds(jump)).await;
    }
    sleep(seconds(60.0)).await;
    assert!(
        !leader.is_finished() && !standby.is_finished() && elector.report().leading,
        "{:?}",
        elector.report()
    );
}

#[tokio::test(start_paused = true)]
async fn the_number_of_transitions_saturates() {
    let fixture = Fixture::new();
    let first = leads(&fixture.elector("a")).await;
    let token = first.fence().token();
    first.release().await.expect("the Lease is released");
    fixture.write(json!({"leaseTransitions": i32::MAX})).await;
    let second = leads(&fixture.elector("b")).await;
    assert_eq!(fixture.spec().await["leaseTransitions"], i32::MAX);
    assert!(second.fence().token() > token, "tokens go on");
}
