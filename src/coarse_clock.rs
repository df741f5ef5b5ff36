//! Cheap clock that returns an interval which contains the current time.
//!
//! Reading the system clock is the most expensive operation of the work queue per key, and happens
//! twice. Reading the cycle counter of the processor takes a third of that. Each thread therefore
//! reads the clock once per [`WINDOW`] and adds the ticks of the counter since.
//!
//! Invariant: the time is not before the clock reading of a stamp, and not after that reading plus
//! the ticks counted since, which are less than [`WINDOW`]. The counter is read first, so the time
//! between the two readings is counted twice. This requires that the counters of all cores agree,
//! as a fast system clock does as well. If a thread moves to a core whose counter is behind, the
//! upper bound is too early by the difference.
//!
//! tokio's time may be paused, and there is no way to query that. The counter is therefore used
//! only after it has [`AGREED`] with the clock several times in a row, which never happens while
//! time is paused. A test that pauses time after it ran may see it continue for the rest of a
//! window.

use quanta::Clock;
use std::{cell::Cell, sync::LazyLock};
use tokio::time::Instant;

/// Time between two readings of the clock, in nanoseconds.
///
/// One reading per window costs little. Durations beyond it are accurate enough; metrics of shorter
/// ones may be off.
const WINDOW: u64 = 20_000;
/// Slack for a counter slower than the clock, in nanoseconds per [`WINDOW`].
///
/// A system clock is adjusted by up to 0.05 %.
const DRIFT: u64 = WINDOW / 1000;
/// Consecutive agreements of counter and clock before the counter is used.
const AGREED: u8 = 8;

/// Calibrating the counter takes about 20 ms, once per process.
static COUNTER: LazyLock<Counter> = LazyLock::new(Counter::new);

thread_local! {
    static ANCHOR: Cell<Anchor> = const { Cell::new(Anchor::NONE) };
}

/// Interval that contains the current time, in nanoseconds since a common start.
///
/// Cheaper to compute with than an [`Instant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Lower bound, to decide whether a deadline has passed.
    pub(crate) earliest: u64,
    /// Upper bound, to record when something happened or started to wait.
    pub(crate) latest: u64,
}

impl Stamp {
    /// Value of the first stamp.
    ///
    /// Large, because paused time may have stopped before it.
    const FIRST: u64 = 1 << 62;

    /// Creates a stamp from the clock. Both bounds are equal.
    pub(crate) fn of(clock: Instant) -> Self {
        let nanos = |later: Instant, earlier| {
            u64::try_from(later.saturating_duration_since(earlier).as_nanos()).unwrap_or(u64::MAX)
        };
        let first = COUNTER.first;
        let nanos = Self::FIRST
            .saturating_add(nanos(clock, first))
            .saturating_sub(nanos(first, clock));
        Self {
            earliest: nanos,
            latest: nanos,
        }
    }
}

struct Counter {
    clock: Clock,
    /// Nanoseconds per 2^32 ticks.
    scale: u64,
    /// Ticks per [`WINDOW`], rounded down.
    window: u64,
    first: Instant,
}

impl Counter {
    fn new() -> Self {
        let clock = Clock::new();
        // Avoid 0, whatever the calibration returned.
        let scale = clock.delta_as_nanos(0, 1 << 32).max(1);
        Self {
            clock,
            scale,
            window: (WINDOW << 32) / scale,
            first: Instant::now(),
        }
    }

    /// Converts ticks, fewer than [`Self::window`], to nanoseconds.
    #[inline]
    fn nanos(&self, counts: u64) -> u64 {
        counts.wrapping_mul(self.scale) >> 32
    }
}

/// Readings of counter and clock.
///
/// The counter is read first, so that a delay between the readings shortens the window.
#[derive(Clone, Copy)]
struct Anchor {
    counter: u64,
    clock: u64,
    /// Ticks for which the counter is used; 0 if it is not.
    window: u64,
    agreed: u8,
}

/// Calibrates the counter now, which would slow down the first stamp.
pub(crate) fn prepare() {
    LazyLock::force(&COUNTER);
}

/// Returns the current time as an interval shorter than [`WINDOW`].
///
/// The upper bound may go back by less than that.
#[inline]
pub(crate) fn stamp() -> Stamp {
    let source = &*COUNTER;
    let counter = source.clock.raw();
    let anchor = ANCHOR.get();
    anchor
        .stamp(counter, |counts| source.nanos(counts))
        .unwrap_or_else(|| read(source, counter))
}

#[cold]
fn read(source: &Counter, counter: u64) -> Stamp {
    let clock = Stamp::of(Instant::now());
    let nanos = |from, to| source.clock.delta_as_nanos(from, to);
    ANCHOR.set(
        ANCHOR
            .get()
            .then((counter, clock.latest), source.window, nanos),
    );
    clock
}

impl Anchor {
    /// Anchor that agrees with no reading.
    const NONE: Self = Self {
        counter: 0,
        clock: u64::MAX,
        window: 0,
        agreed: 0,
    };

    /// Returns `None` if the window is over or the counter went back.
    ///
    /// A counter that went back wraps to a large number of ticks.
    #[inline]
    fn stamp(&self, counter: u64, nanos: impl Fn(u64) -> u64) -> Option<Stamp> {
        let counts = counter.wrapping_sub(self.counter);
        (counts < self.window).then(|| Stamp {
            earliest: self.clock,
            latest: self.clock + nanos(counts) + DRIFT,
        })
    }

    /// Returns the anchor after another reading.
    fn then(
        self,
        (counter, clock): (u64, u64),
        window: u64,
        nanos: impl Fn(u64, u64) -> u64,
    ) -> Self {
        let unconfirmed = Self {
            counter,
            clock,
            window: 0,
            agreed: 0,
        };
        if counter < self.counter {
            return unconfirmed;
        }
        let counted = nanos(self.counter, counter);
        if counted < WINDOW {
            return self; // Too soon to compare.
        }
        let passed = clock.saturating_sub(self.clock);
        // The tolerance covers the delay between the two readings.
        if passed.abs_diff(counted) > WINDOW / 10 + counted / 1000 {
            return unconfirmed;
        }
        let agreed = (self.agreed + 1).min(AGREED);
        Self {
            window: if agreed == AGREED { window } else { 0 },
            agreed,
            ..unconfirmed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    /// Readings of a thread: a counter of nanoseconds, and a clock.
    struct Thread {
        anchor: Anchor,
        counter: u64,
        clock: u64,
        /// Number of clock readings.
        read: u32,
    }

    impl Thread {
        fn new() -> Self {
            Self {
                anchor: Anchor::NONE,
                counter: 1 << 40,
                clock: Stamp::FIRST,
                read: 0,
            }
        }

        /// Advances both by a window.
        fn pass_window(&mut self) {
            self.pass(WINDOW.cast_signed(), WINDOW);
        }

        /// Advances the counter and the clock.
        fn pass(&mut self, counted: i64, passed: u64) {
            self.counter = self.counter.saturating_add_signed(counted);
            self.clock += passed;
        }

        fn stamp(&mut self) -> Stamp {
            if let Some(stamp) = self.anchor.stamp(self.counter, |counts| counts) {
                return stamp;
            }
            self.read += 1;
            self.anchor = self
                .anchor
                .then((self.counter, self.clock), WINDOW, |from, to| to - from);
            self.exact()
        }

        /// Returns the stamp of a clock reading.
        fn exact(&self) -> Stamp {
            Stamp {
                earliest: self.clock,
                latest: self.clock,
            }
        }

        /// Returns whether a stamp contains the time.
        fn is_right(&self, stamp: Stamp) -> bool {
            (stamp.earliest..=stamp.latest).contains(&self.clock)
        }

        /// Returns a thread that uses the counter.
        fn believing() -> Self {
            let mut thread = Self::new();
            for _ in 0..=AGREED {
                thread.stamp();
                thread.pass_window();
            }
            thread.stamp();
            thread
        }
    }

    #[test]
    fn a_counter_that_agrees_replaces_the_clock() {
        let mut thread = Thread::believing();
        thread.read = 0;
        for _ in 0..10_000 {
            thread.pass(100, 100);
            let stamp = thread.stamp();
            assert!(thread.is_right(stamp) && stamp.latest - thread.clock <= DRIFT);
        }
        assert_eq!(
            thread.read,
            10_000 * 100 / WINDOW as u32,
            "once in a window"
        );
    }

    #[test]
    fn a_stamp_is_correct_with_a_slow_counter_or_an_interruption() {
        let read = Stamp::FIRST;
        for (between, counted, passed) in [
            (0, 0, 0),
            (300, 0, 0),
            (300, 15_000, 15_000),
            (0, 19_980, 20_000),
            (7, 19_980, 19_990),
        ] {
            // The counter was read at 1000, the clock some time later.
            let anchor = Anchor {
                counter: 1_000,
                clock: read,
                window: WINDOW + 1_000,
                agreed: AGREED,
            };
            let stamp = anchor
                .stamp(1_000 + between + counted, |counts| counts)
                .expect("within the window");
            assert!(
                (stamp.earliest..=stamp.latest).contains(&(read + passed)),
                "{stamp:?} is not {passed}"
            );
        }
    }

    #[test]
    fn a_counter_is_trusted_only_after_many_agreements() {
        let mut thread = Thread::new();
        for stamps in 1..=u32::from(AGREED) {
            thread.stamp();
            assert_eq!(thread.read, stamps);
            thread.pass_window();
        }
    }

    #[test]
    fn the_counter_is_not_used_while_time_is_paused() {
        let mut thread = Thread::new();
        for _ in 0..10_000 {
            thread.pass(700, 0);
            assert_eq!(thread.stamp(), thread.exact());
        }
        assert_eq!(thread.read, 10_000);
    }

    #[test]
    fn time_that_is_paused_runs_on_for_one_window_at_most() {
        let mut thread = Thread::believing();
        let mut wrong = 0;
        for _ in 0..10_000 {
            thread.pass(1_000, 0);
            wrong += u64::from(thread.stamp() != thread.exact());
        }
        assert!((1..WINDOW / 1_000).contains(&wrong), "{wrong}");
    }

    #[test]
    fn a_counter_that_goes_back_is_not_trusted() {
        let mut thread = Thread::believing();
        thread.pass(-5, 5);
        assert_eq!(thread.stamp(), thread.exact());
        assert_eq!(thread.anchor.agreed, 0);
    }

    steersman_testkit::properties! {
        /// Covers counters that differ by core, clock jumps and delayed threads.
        #[test]
        fn a_stamp_is_within_one_window_of_the_clock(
            steps in prop::collection::vec((-60_000..60_000i64, prop::sample::select(vec![None, Some(0), Some(1_000_000_000)])), 1..300)
        ) {
            let mut thread = Thread::believing();
            for (counted, passed) in steps {
                thread.pass(counted, passed.unwrap_or(counted.unsigned_abs()));
                let stamp = thread.stamp();
                let window = stamp.latest - stamp.earliest;
                prop_assert!(stamp.earliest == thread.anchor.clock && window < WINDOW + DRIFT || stamp == thread.exact());
            }
        }
    }

    #[test]
    fn real_time_is_within_the_stamp() {
        prepare();
        for _ in 0..100_000 {
            let (before, stamp, after) = (
                Stamp::of(Instant::now()),
                stamp(),
                Stamp::of(Instant::now()),
            );
            assert!(
                stamp.earliest <= after.latest && stamp.latest >= before.latest,
                "{before:?} {stamp:?} {after:?}"
            );
            assert!(stamp.latest - stamp.earliest < WINDOW + DRIFT);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn paused_time_is_exact() {
        prepare();
        for step in 0..2_000 {
            assert_eq!(stamp(), Stamp::of(Instant::now()));
            tokio::time::advance(Duration::from_micros(step % 50)).await;
        }
    }

    #[test]
    fn times_before_the_first_stamp_are_ordered_before_it() {
        prepare();
        let (now, hour) = (Instant::now(), Duration::from_hours(1));
        let earlier = now.checked_sub(hour).expect("a clock goes that far back");
        assert_eq!(
            Stamp::of(now).latest - Stamp::of(earlier).latest,
            hour.as_nanos() as u64
        );
    }
}
