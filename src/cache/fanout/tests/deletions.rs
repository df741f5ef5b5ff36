//! Deletions that a handler has not received yet.

use super::{
    super::backlog::{Backlog, Limits},
    *,
};
use std::sync::atomic::Ordering::Relaxed;

#[test]
fn a_lagging_handler_receives_deletions_of_objects_that_it_never_received() {
    let fixture = Fixture::with_limits(2, 3);
    fixture.list([], true);
    let mut slow = fixture.subscribe();
    drain_items(&mut slow);
    for number in 0..6 {
        fixture.put(number, 10 + u32::from(number));
        fixture.remove(number);
    }
    let stats = slow.stats();
    // The events of the last object are in the log.
    assert_eq!((fixture.fanout.len(), stats.pending), (2, 5));
    assert_eq!((stats.deletions, stats.metadata_only_deletions), (5, 2));
    assert_eq!(
        drain_items(&mut slow),
        [
            "0 -10", "1 -11", "2 -12", "3 -13*", "4 -14*", "5 +15", "5 -15"
        ]
    );
    assert_eq!(
        (slow.stats().deletions, slow.stats().metadata_only_deletions),
        (0, 0)
    );
}

#[test]
fn a_lagging_handler_receives_a_recreated_object_as_an_update() {
    for (deletions, delivered) in [(1, "1 1>2"), (0, "1 1*>2")] {
        let fixture = Fixture::with_limits(1, deletions);
        fixture.list([], true);
        let mut slow = fixture.subscribe();
        drain_items(&mut slow);
        fixture.put(1, 1);
        fixture.remove(1);
        fixture.put(1, 2);
        fixture.put(2, 3);
        assert_eq!(slow.stats().deletions, 0, "the object is there");
        assert_eq!(drain_items(&mut slow), [delivered, "2 +3"]);
    }
}

/// Payload that counts its live instances.
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
fn all_deletions_of_a_million_objects_are_delivered_and_few_keep_the_body() {
    const OBJECTS: u64 = 1_000_000;
    const KEPT: usize = 4096;
    let alive = Arc::new(AtomicUsize::new(0));
    // The reduction is not measured here.
    let metadata = Arc::new(MetadataOnly::named(key(0)));
    let reduce: Reduce<Counted> = Arc::new(move |_, _| metadata.clone());
    let limits = Limits {
        deletions: KEPT,
        reduce,
    };
    let (mut backlog, mut freed) = (Backlog::new(), Vec::new());
    for number in 0..OBJECTS {
        let object = Entry::new(
            ObjectKey::new("a", number.to_string()),
            Counted::new(&alive),
            0,
        );
        backlog.add(
            2 * number,
            Event::create(object.clone(), false),
            &limits,
            &mut freed,
        );
        backlog.add(
            2 * number + 1,
            Event::delete(object, false),
            &limits,
            &mut freed,
        );
        freed.clear();
    }
    assert_eq!(
        (backlog.len(), backlog.deletions()),
        (OBJECTS as usize, OBJECTS as usize)
    );
    assert_eq!(backlog.metadata_deletions(), OBJECTS as usize - KEPT);
    assert_eq!(alive.load(Relaxed), KEPT);
    for number in 0..OBJECTS {
        let Some(Event::Delete { key, object, .. }) = backlog.pop() else {
            panic!("{number} is deleted")
        };
        assert_eq!(key.name().parse(), Ok(number));
        assert_eq!(
            matches!(object, ObjectState::Full(_)),
            number < KEPT as u64,
            "{number}"
        );
    }
    assert!(backlog.pop().is_none());
    assert_eq!(
        (
            backlog.deletions(),
            backlog.coalesced(),
            alive.load(Relaxed)
        ),
        (0, OBJECTS, 0)
    );
}
