//! Tests of the priority of a key that is added again, with `share: 0`.

use crate::support::{at, ms, run, run_all, strict, take};
use steersman::workqueue::{Add, Band, Outcome, Priority};
use tokio::time::advance;

#[test]
fn the_highest_priority_wins() {
    for priorities in [[1, 2, 3], [3, 2, 1], [2, 3, 1], [3, 1, 2]] {
        let queue = strict();
        for priority in priorities {
            queue.add_with("a", at(priority));
        }
        let item = take(&queue);
        assert_eq!(item.priority(), Priority(3), "{priorities:?}");
        assert!(queue.is_empty());
    }
}

#[test]
fn a_lower_priority_does_not_lower_a_queued_key() {
    let queue = strict();
    queue.add_with("a", at(2));
    queue.add_with("b", at(1));
    queue.add_with("a", at(0));
    queue.add_with("a", at(i32::MIN));
    let item = take(&queue);
    assert_eq!((*item, item.priority()), ("a", Priority(2)));
}

#[tokio::test(start_paused = true)]
async fn the_highest_priority_wins_over_a_delayed_key_whichever_time_wins() {
    let queue = strict();
    queue.add_with(
        "a",
        Add {
            after: Some(ms(10)),
            ..at(1)
        },
    );
    queue.add_with(
        "a",
        Add {
            after: Some(ms(20)),
            ..at(3)
        },
    );
    queue.add_with(
        "a",
        Add {
            after: Some(ms(5)),
            ..at(2)
        },
    );
    queue.add_with(
        "b",
        Add {
            after: Some(ms(5)),
            ..at(1)
        },
    );
    queue.add_with("b", at(0));
    let b = take(&queue);
    assert_eq!((*b, b.priority()), ("b", Priority(1)));
    advance(ms(5)).await;
    let a = take(&queue);
    assert_eq!((*a, a.priority()), ("a", Priority(3)));
}

/// An add without a priority has priority 0, as in controller-runtime.
#[test]
fn an_add_without_priority_raises_a_low_key_to_normal() {
    let queue = strict();
    queue.add_with("a", at(-100));
    queue.add("a");
    assert_eq!(take(&queue).priority(), Priority::NORMAL);
}

#[test]
fn a_raised_key_goes_to_the_back_of_its_new_priority() {
    let queue = strict();
    queue.add_with("raised", at(0));
    queue.add_with("a", at(1));
    queue.add_with("b", at(1));
    queue.add_with("raised", at(1));
    queue.add_with("c", at(1));
    assert_eq!(run_all(&queue), ["a", "b", "raised", "c"]);
}

#[test]
fn a_key_added_again_at_its_own_priority_keeps_its_place() {
    let queue = strict();
    queue.add_with("a", at(1));
    queue.add_with("b", at(1));
    queue.add_with("a", at(1));
    queue.add_with("a", at(0));
    assert_eq!(run_all(&queue), ["a", "b"]);
}

#[test]
fn a_raised_key_overtakes_lower_ones() {
    let queue = strict();
    queue.add_all(["a", "b", "c"], Add::default());
    queue.add_with("c", at(1));
    assert_eq!(run_all(&queue), ["c", "a", "b"]);
}

#[test]
fn a_key_can_be_raised_again_and_again() {
    let queue = strict();
    queue.add_all(0..50, Add::default());
    for key in 0..50 {
        for priority in 1..=key {
            queue.add_with(key, at(priority));
        }
    }
    assert_eq!(queue.len(), 50);
    assert_eq!(run_all(&queue), (0..50).rev().collect::<Vec<_>>());
}

#[test]
fn a_processing_key_is_skipped() {
    let queue = strict();
    queue.add_with("high", at(1));
    queue.add("low");
    let _high = take(&queue);
    queue.add_with("high", at(1));
    let low = take(&queue);
    assert_eq!(*low, "low");
    assert!(queue.try_get().is_none());
}

#[test]
fn a_key_added_again_is_available_right_after_its_run() {
    let queue = strict();
    queue.add_with("high", at(1));
    let high = take(&queue);
    queue.add_with("high", at(1));
    queue.add("low");
    high.finish(Outcome::done());
    assert_eq!(run_all(&queue), ["high", "low"]);
}

#[test]
fn a_key_added_while_it_runs_has_the_highest_priority_of_those_adds_not_that_of_its_run() {
    let queue = strict();
    queue.add_with("a", at(9));
    let item = take(&queue);
    queue.add_with("a", at(1));
    queue.add_with("a", at(3));
    queue.add_with("a", at(2));
    assert_eq!(item.priority(), Priority(9));
    let item = item
        .finish_and_try_get(Outcome::done())
        .expect("added again");
    assert_eq!(item.priority(), Priority(3));
}

#[tokio::test(start_paused = true)]
async fn a_requeue_merges_with_the_adds_that_came_while_the_key_ran() {
    let queue = strict();
    queue.add_with("a", at(5));
    let item = take(&queue);
    queue.add_with("a", at(1));
    let item = item
        .finish_and_try_get(Outcome::requeue_after(ms(60)))
        .expect("the earlier time wins");
    assert_eq!(item.priority(), Priority(5), "and the higher priority");
    item.finish(Outcome::done());
    advance(ms(60)).await;
    assert!(queue.is_empty(), "the requeue was merged, not added beside");
}

#[test]
fn a_key_raised_while_it_runs_takes_its_place_when_the_run_ends() {
    let queue = strict();
    queue.add("a");
    let a = take(&queue);
    queue.add("a");
    queue.add_with("b", at(1));
    queue.add_with("a", at(2));
    run(&queue, &"b");
    queue.add_with("c", at(1));
    a.finish(Outcome::done());
    assert_eq!(run_all(&queue), ["a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_key_that_was_raised_comes_due_at_its_new_priority() {
    let queue = strict();
    queue.add_after("a", ms(10));
    queue.add_with(
        "a",
        Add {
            after: Some(ms(50)),
            ..at(2)
        },
    );
    queue.add_with("b", at(1));
    advance(ms(10)).await;
    let a = take(&queue);
    assert_eq!((*a, a.priority()), ("a", Priority(2)));
}

#[test]
fn a_priority_is_counted_in_the_nearest_band() {
    for (priority, band) in [
        (i32::MIN, Band::Low),
        (-1_000_000, Band::Low),
        (-100, Band::Low),
        (-51, Band::Low),
        (-50, Band::Normal),
        (0, Band::Normal),
        (49, Band::Normal),
        (50, Band::High),
        (100, Band::High),
        (i32::MAX, Band::High),
    ] {
        assert_eq!(Priority(priority).band(), band, "{priority}");
    }
    for band in Band::ALL {
        assert_eq!(band.priority().band(), band);
    }
    assert_eq!(
        Band::ALL.map(Band::priority),
        [Priority::LOW, Priority::NORMAL, Priority::HIGH]
    );
}

#[test]
fn a_band_counts_every_priority_nearest_to_it() {
    let queue = strict();
    for (key, priority) in [i32::MIN, -60, -50, 0, 3, 70, i32::MAX, i32::MAX - 1]
        .into_iter()
        .enumerate()
    {
        queue.add_with(key, at(priority));
    }
    let stats = queue.stats();
    assert_eq!(Band::ALL.map(|band| stats.band(band).depth), [2, 3, 3]);
    assert_eq!(stats.depth(), 8);
}
