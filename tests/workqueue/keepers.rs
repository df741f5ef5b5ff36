//! Who keeps the time: a getter that is alive and not polled, as one pinned across the turns of a `select!` that is busy in another
//! branch, makes delayed keys a little late and no more.

use crate::support::{ByHand, assert_elapsed, ms, secs, soon};
use std::task::Poll;
use steersman::workqueue::{Item, Outcome, WorkQueue};
use tokio::time::{Instant, advance};

/// How late a key may be at most: ten milliseconds, and one for the tick of a timer.
const LATE: u64 = 11;

type Getter<'a> = ByHand<std::pin::Pin<Box<dyn Future<Output = Option<Item<&'static str>>> + 'a>>>;

fn asleep<'a>(queue: &'a WorkQueue<&'static str>, getters: usize) -> Vec<Getter<'a>> {
    (0..getters).map(|_| ByHand::waiting(Box::pin(queue.get()) as _)).collect()
}

/// As a runtime would: poll whoever is woken, until nobody is; but not `stuck`, whose task is busy. What they got.
fn poll_woken(getters: &mut [Getter<'_>], stuck: usize) -> Vec<Item<&'static str>> {
    let mut items = Vec::new();
    while let Some(woken) = (0..getters.len()).find(|&n| n != stuck && getters[n].was_woken()) {
        match getters[woken].poll() {
            // It is not polled again: it was not woken since.
            Poll::Ready(item) => items.push(item.expect("open")),
            Poll::Pending => {}
        }
    }
    items
}

/// The first key that somebody gets, and after how many milliseconds.
async fn first(getters: &mut [Getter<'_>], stuck: usize) -> (&'static str, u64) {
    for waited in 0..1000 {
        if let Some(item) = poll_woken(getters, stuck).pop() {
            return (*item, waited);
        }
        advance(ms(1)).await;
    }
    panic!("nobody gets a key while {stuck} is not polled");
}

#[tokio::test(start_paused = true)]
async fn a_getter_that_is_not_polled_does_not_keep_a_delayed_key_from_another() {
    let queue = WorkQueue::default();
    queue.add_after("a", ms(50));
    let start = Instant::now();
    let _stuck = ByHand::waiting(queue.get());
    assert_eq!(*soon(queue.get()).await.expect("open"), "a");
    let waited = start.elapsed();
    assert!((ms(50)..=ms(50 + LATE)).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn whichever_getter_is_not_polled_when_a_delay_is_added_the_others_get_the_key() {
    for stuck in 0..4 {
        let queue = WorkQueue::default();
        let mut getters = asleep(&queue, 4);
        queue.add_after("a", ms(50));
        let (key, waited) = first(&mut getters, stuck).await;
        assert!(key == "a" && (50..=50 + LATE).contains(&waited), "{key} after {waited} ms without {stuck}");
    }
}

#[tokio::test(start_paused = true)]
async fn whichever_getter_is_not_polled_when_a_nearer_delay_is_added_the_others_get_the_key() {
    for stuck in 0..4 {
        let queue = WorkQueue::default();
        queue.add_after("later", secs(3600));
        let mut getters = asleep(&queue, 4);
        queue.add_after("sooner", ms(50));
        let (key, waited) = first(&mut getters, stuck).await;
        assert!(key == "sooner" && (50..=50 + LATE).contains(&waited), "{key} after {waited} ms without {stuck}");
    }
}

/// It was woken for a key that somebody else took.
#[tokio::test(start_paused = true)]
async fn a_getter_that_was_woken_in_vain_and_is_not_polled_does_not_keep_the_others_from_the_time() {
    let queue = WorkQueue::default();
    let mut getters = asleep(&queue, 3);
    queue.add("ready");
    let stuck = getters.iter().position(ByHand::was_woken).expect("one is woken");
    queue.try_get().expect("ready").finish(Outcome::done());
    queue.add_after("a", ms(50));
    let (key, waited) = first(&mut getters, stuck).await;
    assert!(key == "a" && (50..=50 + LATE).contains(&waited), "{key} after {waited} ms");
}

/// It would find the key if it were polled, but nobody counts on that.
#[tokio::test(start_paused = true)]
async fn a_getter_that_was_woken_to_keep_the_time_and_is_not_polled_does_not_keep_a_ready_key_from_another() {
    for stuck in 0..2 {
        let queue = WorkQueue::default();
        let mut getters = asleep(&queue, 2);
        queue.add_after("z", secs(3600));
        assert!(poll_woken(&mut getters, stuck).is_empty());
        queue.add("y");
        let got = poll_woken(&mut getters, stuck).pop().map(|item| *item);
        assert_eq!(got, Some("y"), "while {stuck} is not polled");
    }
}

#[tokio::test(start_paused = true)]
async fn a_getter_that_is_not_polled_makes_one_key_late_and_not_the_next() {
    for stuck in 0..2 {
        let queue = WorkQueue::default();
        queue.add_after("a", ms(50));
        queue.add_after("b", ms(100));
        let mut getters = asleep(&queue, 5);
        let (key, waited) = first(&mut getters, stuck).await;
        assert!(key == "a" && waited <= 50 + LATE, "{key} after {waited} ms without {stuck}");
        let (key, more) = first(&mut getters, stuck).await;
        assert!(
            key == "b" && (100..=101).contains(&(waited + more)),
            "{key} after {} ms without {stuck}",
            waited + more
        );
    }
}

#[tokio::test(start_paused = true)]
async fn two_of_many_getters_keep_the_time_and_no_more() {
    let queue = WorkQueue::default();
    let mut getters = asleep(&queue, 10);
    queue.add_after("a", ms(50));
    assert!(poll_woken(&mut getters, usize::MAX).is_empty());
    advance(secs(1)).await;
    assert_eq!(getters.iter().filter(|getter| getter.was_woken()).count(), 2);
    assert_eq!(poll_woken(&mut getters, usize::MAX).len(), 1);
}

/// The second one wakes in vain once; it does not go on doing so.
#[tokio::test(start_paused = true)]
async fn when_nothing_waits_for_a_time_any_more_nobody_wakes() {
    let queue = WorkQueue::default();
    let mut getters = asleep(&queue, 3);
    queue.add_after("a", ms(50));
    assert_eq!(first(&mut getters, usize::MAX).await.0, "a");
    advance(ms(LATE)).await;
    assert!(poll_woken(&mut getters, usize::MAX).is_empty());
    let start = Instant::now();
    advance(secs(3600)).await;
    assert_elapsed(start, secs(3600));
    assert!(!getters.iter().any(ByHand::was_woken));
}
