//! Tests of the delays that limiters return.

use crate::support::{ms, rate_limited, run_all, secs, soon, take, with_limiter};
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use steersman::workqueue::{Limiter, Outcome, WorkQueue};
use tokio::time::{Instant, advance};

fn delays(
    limiter: &Limiter<&'static str>,
    key: &'static str,
    attempts: std::ops::Range<u32>,
) -> Vec<Duration> {
    attempts
        .map(|attempt| limiter.delay(&key, attempt, Instant::now()))
        .collect()
}

#[test]
fn the_exponential_limiter_doubles_from_its_base_to_its_maximum() {
    let limiter = Limiter::exponential(ms(1), secs(1));
    assert_eq!(
        delays(&limiter, "a", 0..5),
        [ms(1), ms(2), ms(4), ms(8), ms(16)]
    );
    assert_eq!(
        delays(&limiter, "b", 0..2),
        [ms(1), ms(2)],
        "each key on its own"
    );
    assert_eq!(delays(&limiter, "a", 9..12), [ms(512), secs(1), secs(1)]);
}

#[test]
fn the_exponential_limiter_does_not_overflow() {
    let limiter = Limiter::exponential(ms(1), secs(1000));
    for attempt in (20..1000).chain([u32::MAX - 1, u32::MAX]) {
        assert_eq!(
            limiter.delay(&"a", attempt, Instant::now()),
            secs(1000),
            "{attempt}"
        );
    }
    let wide = Limiter::exponential(secs(1), Duration::MAX);
    assert_eq!(wide.delay(&"a", 10, Instant::now()), secs(1024));
    assert_eq!(wide.delay(&"a", 1000, Instant::now()), Duration::MAX);
    let mut last = Duration::ZERO;
    for attempt in 0..200 {
        let delay = wide.delay(&"a", attempt, Instant::now());
        assert!(delay >= last, "it never falls: {last:?}, {delay:?}");
        last = delay;
    }
}

#[tokio::test(start_paused = true)]
async fn in_a_queue_the_exponential_limiter_overflows_to_its_maximum_and_forget_starts_it_over() {
    let queue = with_limiter(Limiter::exponential(ms(1), ms(20)));
    for _ in 0..1000 {
        queue.add_rate_limited("a");
        drop(soon(queue.get()).await);
    }
    assert_eq!(queue.num_requeues(&"a"), 1000);
    let start = Instant::now();
    queue.add_rate_limited("a");
    drop(soon(queue.get()).await);
    assert_eq!(start.elapsed(), ms(20));
    queue.forget(&"a");
    queue.add_rate_limited("a");
    drop(soon(queue.get()).await);
    assert_eq!(start.elapsed(), ms(21));
}

#[test]
fn a_base_above_the_maximum_is_the_maximum_and_a_base_of_zero_stays_zero() {
    assert_eq!(
        delays(&Limiter::exponential(secs(2), secs(1)), "a", 0..2),
        [secs(1), secs(1)]
    );
    assert_eq!(
        delays(&Limiter::exponential(Duration::ZERO, secs(1)), "a", 0..200),
        [Duration::ZERO; 200]
    );
}

#[test]
fn the_fast_slow_limiter_is_fast_for_its_first_attempts() {
    let limiter = Limiter::fast_slow(ms(5), secs(10), 3);
    let expected = [ms(5), ms(5), ms(5), secs(10), secs(10)];
    assert_eq!(delays(&limiter, "a", 0..5), expected);
    assert_eq!(delays(&limiter, "b", 0..5), expected);
    assert_eq!(
        delays(&Limiter::fast_slow(ms(5), secs(10), 0), "a", 0..1),
        [secs(10)]
    );
    assert_eq!(delays(&limiter, "a", u32::MAX - 1..u32::MAX), [secs(10)]);
}

#[test]
fn the_maximum_of_two_limiters_is_the_longer_wait() {
    let limiter = Limiter::fast_slow(ms(5), secs(3), 3).max(Limiter::exponential(ms(1), secs(1)));
    assert_eq!(
        delays(&limiter, "a", 0..5),
        [ms(5), ms(5), ms(5), secs(3), secs(3)]
    );
    let limiter = Limiter::fast_slow(ms(5), ms(30), 3).max(Limiter::exponential(ms(1), secs(1)));
    assert_eq!(
        delays(&limiter, "a", 0..7),
        [ms(5), ms(5), ms(5), ms(30), ms(30), ms(32), ms(64)]
    );
}

#[test]
fn the_maximum_charges_both_limiters() {
    let asked = Arc::new(AtomicU32::new(0));
    let counted = |delay| {
        let asked = asked.clone();
        Limiter::new(move |_: &&str, _, _| {
            asked.fetch_add(1, Ordering::Relaxed);
            delay
        })
    };
    let limiter = counted(ms(1)).max(counted(ms(9))).max(counted(ms(4)));
    assert_eq!(delays(&limiter, "a", 0..2), [ms(9), ms(9)]);
    assert_eq!(asked.load(Ordering::Relaxed), 6);
}

#[test]
fn a_limiter_can_be_capped() {
    let limiter = Limiter::fast_slow(ms(5), secs(3), 3).at_most(ms(500));
    assert_eq!(
        delays(&limiter, "a", 0..5),
        [ms(5), ms(5), ms(5), ms(500), ms(500)]
    );
}

#[test]
fn a_custom_limiter_gets_key_and_attempt() {
    let limiter =
        Limiter::new(|key: &&str, attempt, _| ms(key.len() as u64 * 100 + u64::from(attempt)));
    assert_eq!(delays(&limiter, "abc", 0..2), [ms(300), ms(301)]);
}

#[test]
fn clones_of_a_limiter_share_its_state() {
    let now = Instant::now();
    let limiter: Limiter<&str> = Limiter::bucket(secs(1), 1);
    let clone = limiter.clone();
    assert_eq!(limiter.delay(&"a", 0, now), Duration::ZERO);
    assert_eq!(clone.delay(&"a", 0, now), secs(1));
}

#[test]
fn the_bucket_allows_a_burst_and_then_one_key_per_interval() {
    let now = Instant::now();
    let limiter: Limiter<u32> = Limiter::bucket(ms(100), 3);
    let waits: Vec<_> = (0..6).map(|key| limiter.delay(&key, 0, now)).collect();
    assert_eq!(waits, [ms(0), ms(0), ms(0), ms(100), ms(200), ms(300)]);
    assert_eq!(
        limiter.delay(&0, 7, now + ms(350)),
        ms(50),
        "the attempt does not matter, what was taken does"
    );
}

#[test]
fn the_bucket_fills_up_to_its_burst_and_no_further() {
    let now = Instant::now();
    let limiter: Limiter<u32> = Limiter::bucket(ms(100), 2);
    for key in 0..2 {
        assert_eq!(limiter.delay(&key, 0, now), ms(0));
    }
    let later = now + secs(3600);
    let waits: Vec<_> = (0..4).map(|key| limiter.delay(&key, 0, later)).collect();
    assert_eq!(waits, [ms(0), ms(0), ms(100), ms(200)]);
}

/// Two threads may read the clock before either of them reaches the bucket.
#[test]
fn a_bucket_does_not_refill_twice_for_the_same_time() {
    let (early, late) = (Instant::now(), Instant::now() + ms(100));
    let limiter: Limiter<u32> = Limiter::bucket(ms(100), 1);
    for turn in 0..10 {
        assert_eq!(limiter.delay(&0, 0, late), ms(200 * turn), "{turn}");
        let free = late + ms(200 * turn + 100);
        assert_eq!(
            limiter.delay(&0, 0, early),
            free - early,
            "{turn}: until the same moment, from an earlier one"
        );
    }
}

#[test]
fn a_bucket_with_a_burst_of_zero_has_one_and_an_interval_of_zero_never_waits() {
    let now = Instant::now();
    let limiter: Limiter<u32> = Limiter::bucket(ms(100), 0);
    assert_eq!(
        (limiter.delay(&0, 0, now), limiter.delay(&0, 0, now)),
        (ms(0), ms(100))
    );
    let limiter: Limiter<u32> = Limiter::bucket(Duration::ZERO, 1);
    assert!((0..100).all(|key| limiter.delay(&key, 0, now).is_zero()));
}

#[test]
fn a_bucket_accepts_extreme_intervals() {
    let now = Instant::now();
    for burst in [0, 1, 2, u32::MAX] {
        let limiter: Limiter<u32> = Limiter::bucket(Duration::MAX, burst);
        let delays: Vec<_> = (0..100).map(|key| limiter.delay(&key, 0, now)).collect();
        let passes = delays.iter().take_while(|delay| delay.is_zero()).count();
        assert_eq!(passes, burst.clamp(1, 100) as usize);
        assert!(
            delays[passes..]
                .iter()
                .all(|delay| *delay > secs(1_000_000)),
            "burst of {burst}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn keys_limited_together_by_a_bucket_are_released_one_by_one() {
    let queue = with_limiter(Limiter::bucket(ms(10), 1));
    queue.add_all(0..20, rate_limited());
    assert_eq!(run_all(&queue), [0], "the first key does not wait");
    for key in 1..20 {
        advance(ms(10)).await;
        assert_eq!(run_all(&queue), [key]);
    }
}

#[test]
fn jitter_lengthens_by_at_most_its_fraction_and_never_shortens() {
    let limiter = Limiter::exponential(secs(1), secs(1000)).jitter(0.1);
    let waits: Vec<_> = (0..1000u32)
        .map(|key| limiter.delay(&key, 0, Instant::now()))
        .collect();
    assert!(waits.iter().all(|wait| (secs(1)..=ms(1100)).contains(wait)));
    assert!(
        waits.iter().any(|wait| *wait < ms(1020)) && waits.iter().any(|wait| *wait > ms(1080)),
        "all of the range"
    );
    assert!(
        waits.iter().collect::<HashSet<_>>().len() > 990,
        "different for every key"
    );
    let attempts: HashSet<_> = (10..1000)
        .map(|attempt| limiter.delay(&7, attempt, Instant::now()))
        .collect();
    assert!(attempts.len() > 980, "and for every attempt");
}

#[test]
fn without_jitter_the_waits_are_equal() {
    for fraction in [0.0, -0.0, -1.0, f64::NEG_INFINITY, f64::NAN] {
        let limiter = Limiter::exponential(secs(1), secs(2)).jitter(fraction);
        assert!(
            (0..100u32).all(|key| limiter.delay(&key, 0, Instant::now()) == secs(1)),
            "{fraction}"
        );
    }
}

#[test]
fn jitter_accepts_extreme_values() {
    for fraction in [1e300, f64::MAX, f64::INFINITY] {
        let limiter = Limiter::exponential(Duration::MAX, Duration::MAX).jitter(fraction);
        assert_eq!(limiter.delay(&"a", 5, Instant::now()), Duration::MAX);
        let limiter = Limiter::exponential(secs(1), secs(1)).jitter(fraction);
        assert!(limiter.delay(&"a", 0, Instant::now()) >= secs(1));
    }
    let nothing = Limiter::exponential(Duration::ZERO, Duration::ZERO).jitter(0.5);
    assert_eq!(
        nothing.delay(&"a", 0, Instant::now()),
        Duration::ZERO,
        "a delay of zero is not lengthened"
    );
}

/// Keys that are limited at the same instant must not all wake at the same instant.
#[tokio::test(start_paused = true)]
async fn jitter_spreads_keys_that_failed_together() {
    let queue = with_limiter(Limiter::exponential(secs(1), secs(1000)).jitter(0.1));
    queue.add_all(0..1000, rate_limited());
    let mut most = 0;
    advance(secs(1)).await;
    let mut left = 1000;
    while left > 0 {
        advance(ms(1)).await;
        let released = run_all(&queue).len();
        most = most.max(released);
        left -= released;
    }
    assert!(most < 50, "{most} in one millisecond of 100");
}

#[test]
fn by_default_limiters_double_from_5_ms_to_1000_s_without_jitter() {
    let limiter = Limiter::default();
    assert_eq!(delays(&limiter, "a", 0..3), [ms(5), ms(10), ms(20)]);
    assert_eq!(delays(&limiter, "b", 17..19), [ms(655_360), secs(1000)]);
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_returns_zero_retries_at_once_and_counts_the_attempt() {
    let queue: WorkQueue<&str> = with_limiter(Limiter::new(|_, _, _| Duration::ZERO));
    queue.add("a");
    for attempt in 1..=5 {
        let item = take(&queue);
        assert_eq!(item.attempt(), attempt);
        item.finish(Outcome::requeue());
    }
    assert_eq!(
        (queue.num_requeues(&"a"), queue.stats().retries),
        (5, 0),
        "not a delay, so not a retry"
    );
}

#[test]
fn a_bucket_that_never_refills_allows_only_its_burst() {
    let now = Instant::now();
    let limiter: Limiter<&'static str> = Limiter::bucket(Duration::MAX, 1);
    assert_eq!(
        [(); 3].map(|()| limiter.delay(&"a", 0, now)),
        [Duration::ZERO, Duration::MAX, Duration::MAX]
    );
}

#[test]
fn an_infinite_jitter_of_zero_is_zero() {
    let limiter: Limiter<&'static str> =
        Limiter::fast_slow(Duration::ZERO, secs(1), 1).jitter(f64::INFINITY);
    assert_eq!(limiter.delay(&"a", 0, Instant::now()), Duration::ZERO);
}
