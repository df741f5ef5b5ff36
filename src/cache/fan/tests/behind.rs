//! What a handler has still to be told.

use super::*;

fn behind(world: &World) -> usize {
    let stats = world.fan.stats();
    assert_eq!(stats.len(), 1, "there is one handler");
    stats[0].behind
}

#[test]
fn a_late_handler_is_behind_by_all_that_was_there_and_one_less_with_each_event() {
    let world = World::new(64);
    world.list((0..100).map(|number| (number, 0)), true);
    let mut cursor = world.subscribe();
    assert_eq!(behind(&world), 100);
    for left in (50..100).rev() {
        assert!(matches!(cursor.try_next(), Some(Item::Event(_))));
        assert_eq!(behind(&world), left);
    }
    // What happens meanwhile comes after it.
    world.put(1, 1);
    world.put(2, 1);
    for left in (2..52).rev() {
        assert!(matches!(cursor.try_next(), Some(Item::Event(_))));
        assert_eq!(behind(&world), left);
    }
    assert!(matches!(cursor.try_next(), Some(Item::InitialDone)));
    assert_eq!(behind(&world), 2, "that the beginning is done is no event");
    assert_eq!(heard(&mut cursor), ["1 0>1", "2 0>1"]);
    assert_eq!(behind(&world), 0);
}

#[test]
fn what_was_taken_out_of_the_log_and_not_handed_over_is_still_to_be_told() {
    let world = World::new(64);
    world.list([], true);
    let mut cursor = world.subscribe();
    heard(&mut cursor);
    (0..40).for_each(|number| world.put(number, 0));
    assert_eq!(behind(&world), 40);
    assert!(cursor.try_next().is_some());
    assert_eq!((world.fan.len(), behind(&world)), (40 - cursor::BATCH, 39));
    heard(&mut cursor);
    assert_eq!(behind(&world), 0);
}

#[test]
fn a_snapshot_of_another_length_than_was_said_is_right_again_at_its_end() {
    for said in [0, 1, 5, 500] {
        let fan = Fan::new(reduce());
        let mut cursor = fan.subscribe(|| (said, (0..100).map(|number| entry(number, 0))));
        assert_eq!(fan.stats()[0].behind, said);
        while cursor.try_next().is_some() {}
        assert_eq!((fan.stats()[0].behind, cursor.stats().delivered), (0, 100));
    }
}

#[test]
fn what_a_resync_tells_is_counted_once_it_is_taken() {
    let world = World::new(64);
    world.list((0..40).map(|number| (number, 0)), true);
    let mut cursor = world.subscribe();
    heard(&mut cursor);
    cursor.resync(Duration::ZERO, || world.counted());
    assert_eq!(behind(&world), 0, "news come before it");
    assert!(cursor.try_next().is_some());
    assert_eq!(behind(&world), cursor::BATCH - 1);
    assert_eq!(heard(&mut cursor).len(), 39);
    assert_eq!(behind(&world), 0);
}
