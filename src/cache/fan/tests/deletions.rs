//! Deletions that a handler has not received yet.

use super::{
    super::backlog::{Backlog, Limits},
    *,
};
use std::sync::atomic::Ordering::Relaxed;

#[test]
fn a_lagging_handler_is_told_of_the_deletion_of_objects_that_it_was_never_told_of() {
    let world = World::with_limits(2, 3);
    world.list([], true);
    let mut slow = world.subscribe();
    heard(&mut slow);
    for number in 0..6 {
        world.put(number, 10 + u32::from(number));
        world.remove(number);
    }
    let stats = slow.stats();
    // The events of the last object are in the log.
    assert_eq!((world.fan.len(), stats.pending), (2, 5));
    assert_eq!((stats.deletions, stats.metadata_only_deletions), (5, 2));
    assert_eq!(heard(&mut slow), ["0 -10", "1 -11", "2 -12", "3 -13*", "4 -14*", "5 +15", "5 -15"]);
    assert_eq!((slow.stats().deletions, slow.stats().metadata_only_deletions), (0, 0));
}

#[test]
fn a_lagging_handler_is_told_of_an_object_that_was_deleted_and_created_again_as_one_update() {
    for (deletions, told) in [(1, "1 1>2"), (0, "1 1*>2")] {
        let world = World::with_limits(1, deletions);
        world.list([], true);
        let mut slow = world.subscribe();
        heard(&mut slow);
        world.put(1, 1);
        world.remove(1);
        world.put(1, 2);
        world.put(2, 3);
        assert_eq!(slow.stats().deletions, 0, "the object is there");
        assert_eq!(heard(&mut slow), [told, "2 +3"]);
    }
}

/// A payload that counts how many of it are alive.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(alive: &Arc<AtomicUsize>) -> Arc<Self> {
        alive.fetch_add(1, Relaxed);
        Arc::new(Self(alive.clone()))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[test]
fn a_million_short_lived_objects_are_all_told_as_deleted_and_few_are_kept_in_full() {
    const OBJECTS: u64 = 1_000_000;
    const KEPT: usize = 4096;
    let alive = Arc::new(AtomicUsize::new(0));
    // What it costs to pack metadata is not of interest here.
    let metadata = Arc::new(MetadataOnly::named(key(0)));
    let reduce: Reduce<Counted> = Arc::new(move |_, _| metadata.clone());
    let limits = Limits { deletions: KEPT, reduce };
    let (mut backlog, mut trash) = (Backlog::new(), Vec::new());
    for number in 0..OBJECTS {
        let object = Entry::new(ObjectKey::new("a", &number.to_string()), Counted::new(&alive), 0);
        backlog.add(2 * number, Event::create(object.clone(), false), &limits, &mut trash);
        backlog.add(2 * number + 1, Event::delete(object, false), &limits, &mut trash);
        trash.clear();
    }
    assert_eq!((backlog.len(), backlog.deletions()), (OBJECTS as usize, OBJECTS as usize));
    assert_eq!(backlog.metadata_deletions(), OBJECTS as usize - KEPT);
    assert_eq!(alive.load(Relaxed), KEPT);
    for number in 0..OBJECTS {
        let Some(Event::Delete { key, object, .. }) = backlog.pop() else { panic!("{number} is deleted") };
        assert_eq!(key.name().parse(), Ok(number));
        assert_eq!(matches!(object, ObjectState::Full(_)), number < KEPT as u64, "{number}");
    }
    assert!(backlog.pop().is_none());
    assert_eq!((backlog.deletions(), backlog.coalesced(), alive.load(Relaxed)), (0, OBJECTS, 0));
}
