//! Tests of fairness.
//!
//! Lower priorities have a guaranteed share and a computable bound.

use crate::support::{at, strict, take, with_share};
use proptest::prelude::*;
use std::collections::HashMap;
use steersman::workqueue::{Add, Outcome, Priority, WorkQueue};

/// Counts the turns until "low" is returned among keys of higher priority.
///
/// A key of higher priority is always ready. Returns `None` after `limit` turns.
fn turns_until_low(queue: &WorkQueue<&'static str>, limit: u32) -> Option<u32> {
    queue.add_with("low", at(-100));
    queue.add_all(["x", "y"], Add::default());
    let mut item = take(queue);
    for turn in 1..=limit {
        if *item == "low" {
            return Some(turn);
        }
        item = item
            .finish_and_try_get(Outcome::requeue_after(std::time::Duration::ZERO))
            .expect("never empty");
    }
    None
}

// The next test shows that this one can fail.
#[test]
fn a_low_key_does_not_starve_under_sustained_load() {
    let turns = turns_until_low(&WorkQueue::default(), 100_000);
    assert!(turns.is_some_and(|turns| turns <= 16 * 2), "{turns:?}");
}

#[test]
fn with_a_share_of_zero_the_low_key_starves() {
    assert_eq!(turns_until_low(&strict(), 100_000), None);
}

#[test]
fn every_sixteenth_key_is_the_oldest_of_a_lower_priority() {
    let queue = WorkQueue::default();
    queue.add_all(
        0..10,
        Add {
            priority: Some(Priority::LOW),
            ..Add::default()
        },
    );
    queue.add_all(100..300, Add::default());
    let mut low = Vec::new();
    for turn in 1..=160 {
        let item = take(&queue);
        if item.priority() == Priority::LOW {
            low.push((turn, *item));
        }
    }
    let expected: Vec<_> = (1..=10).map(|n| (n * 16, n - 1)).collect();
    assert_eq!(low, expected, "exactly that often, oldest first");
}

#[test]
fn the_share_is_configurable() {
    for (share, every) in [(1, 2), (2, 2), (3, 3), (100, 100)] {
        let queue = with_share(share);
        queue.add_all(0..5, at(-1));
        queue.add_all(10..1000, at(1));
        let low: Vec<u32> = (1..=every * 4)
            .filter(|_| take(&queue).priority() == Priority(-1))
            .collect();
        assert_eq!(
            low,
            [every, every * 2, every * 3, every * 4],
            "share {share}"
        );
    }
}

#[test]
fn a_fair_turn_takes_the_oldest_key_of_all_lower_priorities() {
    let queue = with_share(2);
    queue.add_with("oldest", at(-5));
    queue.add_with("second", at(-1));
    queue.add_with("third", at(-1_000_000));
    queue.add_all(["a", "b", "c"], at(1));
    let order: Vec<&str> = (0..6).map(|_| *take(&queue)).collect();
    assert_eq!(order, ["a", "oldest", "b", "second", "c", "third"]);
}

#[test]
fn a_fair_turn_without_lower_keys_takes_the_first_key() {
    let queue = with_share(2);
    queue.add_all(0..10, Add::default());
    let order: Vec<i32> = (0..10).map(|_| *take(&queue)).collect();
    assert_eq!(order, (0..10).collect::<Vec<_>>());
}

#[test]
fn among_three_loaded_bands_the_two_lower_ones_share_the_fair_turns() {
    let queue = WorkQueue::default();
    let mut turns = HashMap::new();
    for (n, band) in [Priority::LOW, Priority::NORMAL, Priority::HIGH]
        .into_iter()
        .cycle()
        .take(3000)
        .enumerate()
    {
        queue.add_with(
            n,
            Add {
                priority: Some(band),
                ..Add::default()
            },
        );
    }
    for _ in 0..960 {
        *turns.entry(take(&queue).priority()).or_insert(0) += 1;
    }
    assert_eq!(turns[&Priority::HIGH], 900);
    assert_eq!((turns[&Priority::LOW], turns[&Priority::NORMAL]), (30, 30));
}

#[derive(Clone, Debug)]
enum Step {
    Arrive {
        priority: i32,
    },
    /// Raises the priority of the waiting key with number `which`.
    Raise {
        which: usize,
        by: i32,
    },
    Turn,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (-3..=3i32).prop_map(|priority| Step::Arrive { priority }),
        1 => any::<i32>().prop_map(|priority| Step::Arrive { priority }),
        1 => (0..1000usize, 1..4i32).prop_map(|(which, by)| Step::Raise { which, by }),
        5 => Just(Step::Turn),
    ];
    prop::collection::vec(step, 1..400)
}

struct Waiting {
    priority: i32,
    ready_at_turn: usize,
    older: usize,
}

/// Plays the steps, then drains the queue.
///
/// Returns the first key that exceeds the bound for `share`.
fn exceeds_the_bound(queue: &WorkQueue<usize>, steps: &[Step], share: usize) -> Option<usize> {
    let mut waiting: HashMap<usize, Waiting> = HashMap::new();
    let (mut turn, mut keys) = (0, 0);
    let mut steps = steps.iter();
    loop {
        match steps.next() {
            Some(&Step::Arrive { priority }) => {
                queue.add_with(keys, at(priority));
                let older = waiting.len();
                waiting.insert(
                    keys,
                    Waiting {
                        priority,
                        ready_at_turn: turn,
                        older,
                    },
                );
                keys += 1;
            }
            // A raised key is queued behind the others of its new priority, so its wait starts
            // again.
            Some(&Step::Raise { which, by }) => {
                let older = waiting.len().saturating_sub(1);
                let which = which % keys.max(1);
                if let Some(key) = waiting.get_mut(&which)
                    && let Some(priority) = key.priority.checked_add(by)
                {
                    queue.add_with(which, at(priority));
                    *key = Waiting {
                        priority,
                        ready_at_turn: turn,
                        older,
                    };
                }
            }
            Some(Step::Turn) if waiting.is_empty() => {}
            None if waiting.is_empty() => return None,
            Some(Step::Turn) | None => {
                let item = take(queue);
                turn += 1;
                let key = waiting.remove(&*item).expect("each key is handed out once");
                assert_eq!(item.priority(), Priority(key.priority));
                let late = |key: &Waiting| turn - key.ready_at_turn > share * (key.older + 2);
                let others = waiting
                    .iter()
                    .filter(|(_, other)| late(other))
                    .map(|(which, _)| *which);
                if let Some(broken) = late(&key).then_some(*item).into_iter().chain(others).next() {
                    return Some(broken);
                }
            }
        }
    }
}

steersman_testkit::properties! {

    cases = 100;

    #[test]
    fn a_key_is_handed_out_within_share_times_older_plus_two_turns(steps in steps(), share in 2..20u32) {
        prop_assert_eq!(exceeds_the_bound(&with_share(share), &steps, share as usize), None);
    }
}

/// Shows that the property above can fail.
#[test]
fn with_a_share_of_zero_the_bound_does_not_hold() {
    let load = (0..200).flat_map(|_| [Step::Arrive { priority: 1 }, Step::Turn]);
    let steps: Vec<Step> = [Step::Arrive { priority: 0 }, Step::Arrive { priority: 1 }]
        .into_iter()
        .chain(load)
        .collect();
    assert_eq!(exceeds_the_bound(&strict(), &steps, 16), Some(0));
    assert_eq!(exceeds_the_bound(&with_share(16), &steps, 16), None);
}
