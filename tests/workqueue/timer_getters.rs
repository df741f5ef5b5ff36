//! Tests of timers while a getter is alive but not polled.
//!
//! An example is a getter pinned outside of a `select!` loop that is busy in another branch.
//! Delayed keys become slightly late at most.

use crate::support::{ByHand, assert_elapsed, ms, secs, soon};
use std::task::Poll;
use steersman::workqueue::{Item, Outcome, WorkQueue};
use tokio::time::{Instant, advance};

/// Maximum delay of a key in milliseconds.
///
/// Ten, plus one for the resolution of tokio's timer.
const LATE: u64 = 11;

type Getter<'a> = ByHand<std::pin::Pin<Box<dyn Future<Output = Option<Item<&'static str>>> + 'a>>>;

fn asleep<'a>(queue: &'a WorkQueue<&'static str>, getters: usize) -> Vec<Getter<'a>> {
    (0..getters)
        .map(|_| ByHand::waiting(Box::pin(queue.get()) as _))
        .collect()
}

/// Polls the woken getters except `stuck`, and returns their items.
fn poll_woken(getters: &mut [Getter<'_>], stuck: usize) -> Vec<Item<&'static str>> {
    let mut items = Vec::new();
    while let Some(woken) = (0..getters.len()).find(|&n| n != stuck && getters[n].was_woken()) {
        match getters[woken].poll() {
            // Not polled again, because it has not been woken since.
            Poll::Ready(item) => items.push(item.expect("open")),
            Poll::Pending => {}
        }
    }
    items
}

/// Returns the first key that a getter returns, and the milliseconds until then.
async fn first(getters: &mut [Getter<'_>], stuck: usize) -> (&'static str, u64) {
    for waited in 0..1000 {
        if let Some(item) = poll_woken(getters, stuck).pop() {
            return (*item, waited);
        }
        advance(ms(1)).await;
    }
    panic!("no getter got a key while {stuck} was not polled");
}

#[tokio::test(start_paused = true)]
async fn an_unpolled_getter_does_not_hide_a_delayed_key_from_another() {
    let queue = WorkQueue::default();
    queue.add_after("a", ms(50));
    let start = Instant::now();
    let _stuck = ByHand::waiting(queue.get());
    assert_eq!(*soon(queue.get()).await.expect("open"), "a");
    let waited = start.elapsed();
    assert!((ms(50)..=ms(50 + LATE)).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unpolled_getter_does_not_block_others_when_a_delay_is_added() {
    for stuck in 0..4 {
        let queue = WorkQueue::default();
        let mut getters = asleep(&queue, 4);
        queue.add_after("a", ms(50));
        let (key, waited) = first(&mut getters, stuck).await;
        assert!(
            key == "a" && (50..=50 + LATE).contains(&waited),
            "{key} after {waited} ms without {stuck}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_unpolled_getter_does_not_block_others_when_an_earlier_delay_is_added() {
    for stuck in 0..4 {
        let queue = WorkQueue::default();
        queue.add_after("later", secs(3600));
        let mut getters = asleep(&queue, 4);
        queue.add_after("sooner", ms(50));
        let (key, waited) = first(&mut getters, stuck).await;
        assert!(
            key == "sooner" && (50..=50 + LATE).contains(&waited),
            "{key} after {waited} ms without {stuck}"
        );
    }
}

/// The getter was woken for a key that another getter took.
#[tokio::test(start_paused = true)]
async fn a_getter_woken_without_a_key_does_not_block_the_timer_of_others() {
    let queue = WorkQueue::default();
    let mut getters = asleep(&queue, 3);
    queue.add("ready");
    let stuck = getters
        .iter()
        .position(ByHand::was_woken)
        .expect("one is woken");
    queue.try_get().expect("ready").finish(Outcome::done());
    queue.add_after("a", ms(50));
    let (key, waited) = first(&mut getters, stuck).await;
    assert!(
        key == "a" && (50..=50 + LATE).contains(&waited),
        "{key} after {waited} ms"
    );
}

/// A poll would return the key, but the queue does not rely on that.
#[tokio::test(start_paused = true)]
async fn a_getter_woken_for_the_timer_does_not_hide_a_ready_key_from_another() {
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
async fn an_unpolled_getter_delays_at_most_one_key() {
    for stuck in 0..2 {
        let queue = WorkQueue::default();
        queue.add_after("a", ms(50));
        queue.add_after("b", ms(100));
        let mut getters = asleep(&queue, 5);
        let (key, waited) = first(&mut getters, stuck).await;
        assert!(
            key == "a" && waited <= 50 + LATE,
            "{key} after {waited} ms without {stuck}"
        );
        let (key, more) = first(&mut getters, stuck).await;
        assert!(
            key == "b" && (100..=101).contains(&(waited + more)),
            "{key} after {} ms without {stuck}",
            waited + more
        );
    }
}

#[tokio::test(start_paused = true)]
async fn at_most_two_getters_keep_a_timer() {
    let queue = WorkQueue::default();
    let mut getters = asleep(&queue, 10);
    queue.add_after("a", ms(50));
    assert!(poll_woken(&mut getters, usize::MAX).is_empty());
    advance(secs(1)).await;
    assert_eq!(
        getters.iter().filter(|getter| getter.was_woken()).count(),
        2
    );
    assert_eq!(poll_woken(&mut getters, usize::MAX).len(), 1);
}

/// The second getter that keeps a timer wakes once without a key, and then no more.
#[tokio::test(start_paused = true)]
async fn no_timer_fires_without_delayed_keys() {
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
