//! Order with `share = 0`: highest priority first, then first ready, first out.

use crate::support::{NANOSECOND, Random, at, ms, nearly, run, run_all, secs, strict, take};
use std::time::Duration;
use steersman::workqueue::{Add, Outcome, Priority, WorkQueue};
use tokio::time::advance;

#[tokio::test(start_paused = true)]
async fn higher_priorities_go_first_and_each_is_first_come_first_served() {
    const EACH: u32 = 1000;
    for delay in [None, Some(ms(0)), Some(secs(1))] {
        let queue = strict();
        let mut keys: Vec<(i32, u32)> = (0..5)
            .flat_map(|level| (0..EACH).map(move |n| (level, n)))
            .collect();
        Random::new(21).shuffle(&mut keys);
        for &(level, n) in &keys {
            queue.add_with(
                (level, n),
                Add {
                    after: delay,
                    ..at(level * 50 - 100)
                },
            );
        }
        if delay == Some(secs(1)) {
            assert_eq!(queue.len(), 0);
            advance(secs(1)).await;
        }
        assert_eq!(queue.len(), keys.len());
        let mut expected = keys;
        expected.sort_by_key(|&(level, _)| -level);
        assert_eq!(run_all(&queue), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn inside_a_priority_keys_with_delays_come_after_those_that_were_ready_before() {
    const DELAYS: [Option<u64>; 4] = [None, Some(0), Some(500), Some(1000)];
    let queue = strict();
    let mut random = Random::new(7);
    let keys: Vec<(i32, u64, u32)> = (0..5000)
        .map(|n| {
            let after = DELAYS[random.below(4) as usize];
            let level = random.below(5) as i32;
            queue.add_with(
                (level, after.unwrap_or(0), n),
                Add {
                    after: after.map(ms),
                    ..at(level)
                },
            );
            (level, after.unwrap_or(0), n)
        })
        .collect();
    advance(secs(1)).await;
    let mut expected = keys;
    expected.sort_by_key(|&(level, ready_at, _)| (-level, ready_at));
    assert_eq!(run_all(&queue), expected);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_key_of_high_priority_that_came_due_beats_a_ready_one_of_low_priority() {
    let queue = strict();
    queue.add_with(
        "high",
        Add {
            after: Some(ms(60)),
            ..at(1)
        },
    );
    queue.add("low 1");
    queue.add("low 2");
    run(&queue, &"low 1");
    advance(ms(60)).await;
    assert_eq!(run_all(&queue), ["high", "low 2"]);
}

#[tokio::test(start_paused = true)]
async fn delayed_keys_come_in_the_order_of_becoming_ready_not_of_being_added() {
    let queue = strict();
    for (key, delay) in [("c", 30), ("a", 10), ("d", 40), ("b", 20)] {
        queue.add_after(key, ms(delay));
    }
    advance(ms(25)).await;
    assert_eq!(queue.len(), 2);
    queue.add("now");
    advance(ms(25)).await;
    assert_eq!(run_all(&queue), ["a", "b", "now", "c", "d"]);
}

/// No call inspects the queue between the two, so "due" is not yet marked as ready.
#[tokio::test(start_paused = true)]
async fn a_key_that_came_due_goes_before_one_added_after_that() {
    let queue = strict();
    queue.add_after("due", ms(10));
    advance(ms(20)).await;
    queue.add("added later");
    assert_eq!(run_all(&queue), ["due", "added later"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_came_due_goes_before_one_raised_after_that() {
    let queue = strict();
    queue.add_with("raised", at(-1));
    queue.add_after("due", ms(10));
    advance(ms(20)).await;
    queue.add_with("raised", at(0));
    assert_eq!(run_all(&queue), ["due", "raised"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_came_due_goes_before_one_whose_run_ended_after_that() {
    for added_again in [false, true] {
        let queue = strict();
        queue.add("again");
        let item = take(&queue);
        queue.add_after("due", ms(10));
        if added_again {
            queue.add("again");
        }
        advance(ms(20)).await;
        item.finish(if added_again {
            Outcome::done()
        } else {
            Outcome::requeue_after(ms(0))
        });
        assert_eq!(run_all(&queue), ["due", "again"]);
    }
}

#[tokio::test(start_paused = true)]
async fn keys_due_at_the_same_time_are_returned_in_the_order_of_adding() {
    let queue = strict();
    for key in 0..100 {
        queue.add_after(key, ms(100));
        if key % 10 == 0 {
            // Keys of another time in between.
            queue.add_after(1000 + key, ms(3));
        }
    }
    advance(ms(60)).await;
    assert_eq!(run_all(&queue).len(), 10);
    for key in 100..200 {
        queue.add_after(key, ms(40));
    }
    advance(ms(40)).await;
    assert_eq!(run_all(&queue), (0..200).collect::<Vec<_>>());
}

/// Includes delays within one tick of the timer, and delays that elapse without a call to the
/// queue.
#[tokio::test(start_paused = true)]
async fn delays_that_pass_together_come_due_in_the_order_of_their_times() {
    let mut random = Random::new(13);
    for (range, passes) in [
        (1_000, ms(1)),
        (1_000_000, ms(1)),
        (60_000_000, ms(60)),
        (100_000_000_000, secs(200)),
    ] {
        let queue = strict();
        let mut keys: Vec<u64> = (0..300).map(|_| 1 + random.below(range)).collect();
        for nanos in &keys {
            queue.add_after(*nanos, Duration::from_nanos(*nanos));
        }
        advance(passes).await;
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(run_all(&queue), keys);
    }
}

#[tokio::test(start_paused = true)]
async fn delays_of_every_length_come_due_in_order() {
    let queue = strict();
    let mut random = Random::new(3);
    // From a microsecond to some years.
    let mut delays: Vec<u64> = (0..2000)
        .map(|_| random.next() >> (18 + random.below(36)))
        .collect();
    delays.sort_unstable();
    delays.dedup();
    delays.retain(|nanos| *nanos > 0);
    let mut shuffled = delays.clone();
    random.shuffle(&mut shuffled);
    for nanos in shuffled {
        queue.add_after(nanos, Duration::from_nanos(nanos));
    }
    let mut passed = 0;
    for nanos in delays {
        advance(nearly(Duration::from_nanos(nanos - passed))).await;
        assert!(queue.try_get().is_none(), "{nanos} ns: too early");
        advance(NANOSECOND).await;
        run(&queue, &nanos);
        passed = nanos;
    }
}

#[test]
fn a_key_added_again_while_it_runs_is_behind_those_that_were_ready_when_its_run_ended() {
    let queue = strict();
    queue.add_all(["a", "b"], Add::default());
    let a = take(&queue);
    queue.add("a");
    queue.add("c");
    a.finish(Outcome::done());
    assert_eq!(run_all(&queue), ["b", "c", "a"]);
}

#[test]
fn every_number_is_a_distinct_priority() {
    let queue = strict();
    let priorities = [i32::MIN, -101, -100, -1, 0, 1, 2, 99, 100, 101, i32::MAX];
    for priority in priorities {
        queue.add_with(priority, at(priority));
    }
    let expected: Vec<i32> = priorities.into_iter().rev().collect();
    assert_eq!(run_all(&queue), expected);
}

/// More distinct priorities than a queue caches, repeatedly.
#[test]
fn a_thousand_priorities_keep_their_order() {
    let queue = strict();
    let mut random = Random::new(5);
    for round in 0..3 {
        let mut priorities: Vec<i32> = (0..1000).map(|n| n * 3 + round).collect();
        random.shuffle(&mut priorities);
        for &priority in &priorities {
            queue.add_with(priority, at(priority));
        }
        for priority in priorities.iter().filter(|priority| **priority % 7 == 0) {
            queue.cancel(priority);
        }
        priorities.retain(|priority| priority % 7 != 0);
        priorities.sort_unstable_by_key(|priority| -priority);
        assert_eq!(run_all(&queue), priorities);
    }
}

#[test]
fn a_higher_priority_added_between_two_gets_is_next() {
    let queue = strict();
    queue.add_all(["a", "b"], Add::default());
    run(&queue, &"a");
    queue.add_with("urgent", at(1));
    assert_eq!(run_all(&queue), ["urgent", "b"]);
    queue.add("c");
    queue.add_with("low", at(-1));
    run(&queue, &"c");
    queue.add("d");
    assert_eq!(run_all(&queue), ["d", "low"]);
}

#[test]
fn normal_lies_between_low_and_high() {
    let queue: WorkQueue<&str> = strict();
    queue.add_with(
        "low",
        Add {
            priority: Some(Priority::LOW),
            ..Add::default()
        },
    );
    queue.add("normal");
    queue.add_with(
        "high",
        Add {
            priority: Some(Priority::HIGH),
            ..Add::default()
        },
    );
    assert_eq!(run_all(&queue), ["high", "normal", "low"]);
}
