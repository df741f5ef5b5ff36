//! Tests of the number of pending events of a handler.

use super::*;

fn behind(fixture: &Fixture) -> usize {
    let stats = fixture.fanout.stats();
    assert_eq!(stats.len(), 1, "there is one handler");
    stats[0].behind
}

#[test]
fn a_late_handler_has_every_stored_object_pending_and_one_less_with_each_event() {
    let fixture = Fixture::new(64);
    fixture.list((0..100).map(|number| (number, 0)), true);
    let mut subscription = fixture.subscribe();
    assert_eq!(behind(&fixture), 100);
    for left in (50..100).rev() {
        assert!(matches!(subscription.try_next(), Some(Item::Event(_))));
        assert_eq!(behind(&fixture), left);
    }
    // Changes after the snapshot are delivered after it.
    fixture.put(1, 1);
    fixture.put(2, 1);
    for left in (2..52).rev() {
        assert!(matches!(subscription.try_next(), Some(Item::Event(_))));
        assert_eq!(behind(&fixture), left);
    }
    assert!(matches!(subscription.try_next(), Some(Item::InitialDone)));
    assert_eq!(
        behind(&fixture),
        2,
        "`InitialDone` is not counted as an event"
    );
    assert_eq!(drain_items(&mut subscription), ["1 0>1", "2 0>1"]);
    assert_eq!(behind(&fixture), 0);
}

#[test]
fn events_taken_from_the_log_count_as_pending_until_delivered() {
    let fixture = Fixture::new(64);
    fixture.list([], true);
    let mut subscription = fixture.subscribe();
    drain_items(&mut subscription);
    (0..40).for_each(|number| fixture.put(number, 0));
    assert_eq!(behind(&fixture), 40);
    assert!(subscription.try_next().is_some());
    assert_eq!(
        (fixture.fanout.len(), behind(&fixture)),
        (40 - subscription::BATCH, 39)
    );
    drain_items(&mut subscription);
    assert_eq!(behind(&fixture), 0);
}

#[test]
fn a_wrong_snapshot_length_is_corrected_at_its_end() {
    for declared in [0, 1, 5, 500] {
        let fanout = Fanout::new(reduce());
        let mut subscription =
            fanout.subscribe(|| (declared, (0..100).map(|number| entry(number, 0))));
        assert_eq!(fanout.stats()[0].behind, declared);
        while subscription.try_next().is_some() {}
        assert_eq!(
            (fanout.stats()[0].behind, subscription.stats().delivered),
            (0, 100)
        );
    }
}

#[test]
fn resync_events_are_counted_once_they_are_taken() {
    let fixture = Fixture::new(64);
    fixture.list((0..40).map(|number| (number, 0)), true);
    let mut subscription = fixture.subscribe();
    drain_items(&mut subscription);
    subscription.resync(Duration::ZERO, || fixture.counted());
    assert_eq!(behind(&fixture), 0, "pending events come before the resync");
    assert!(subscription.try_next().is_some());
    assert_eq!(behind(&fixture), subscription::BATCH - 1);
    assert_eq!(drain_items(&mut subscription).len(), 39);
    assert_eq!(behind(&fixture), 0);
}
