//! The time, read for less: as the two moments that it lies between.
//!
//! Reading the system's clock is the dearest thing that a work queue does with a key, and it does so twice. The processor's counter takes
//! a third of that. So each thread reads the clock every [`WINDOW`], and adds what the counter has counted since.
//!
//! Invariant: the time is not before the reading of the clock that a stamp was made from, and not after that and what the counter has counted since, which
//! is less than [`WINDOW`]. The counter was read first: what came between the two readings is counted twice. This holds as long as the counters of the cores
//! agree, which is what the clock of the system itself is made from where it is fast; for a thread that goes to a core whose counter is behind, the later
//! moment is too early by that.
//!
//! tokio's time may be paused, and nothing tells whether it is. So the counter is believed only after it has [`AGREED`] with the clock many
//! times in a row. To paused time it never does: who tests on that gets the clock, and nothing but the clock. Only one
//! who pauses time that ran before may see it run on for the rest of a window.

use quanta::Clock;
use std::{cell::Cell, sync::LazyLock};
use tokio::time::Instant;

/// In nanoseconds. Reading the clock once in it costs little, and what runs for longer than it is told well enough; metrics of what is shorter may be off.
const WINDOW: u64 = 20_000;
/// In nanoseconds. By how much a counter that agrees with the clock may be slower in a [`WINDOW`]: a clock is set right by up to half a thousandth.
const DRIFT: u64 = WINDOW / 1000;
/// So often in a row counter and clock have to agree before the counter is believed.
const AGREED: u8 = 8;

/// Finding out how fast it counts takes some 20 ms, once in a process.
static COUNTER: LazyLock<Counter> = LazyLock::new(Counter::new);

thread_local! {
    static ANCHOR: Cell<Anchor> = const { Cell::new(Anchor::NONE) };
}

/// What the time lies between, in nanoseconds since a beginning that a process has in common: less to reckon with than an [`Instant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// To decide whether something is due.
    pub(crate) earliest: u64,
    /// To say when something happened, or from when on it waits.
    pub(crate) latest: u64,
}

impl Stamp {
    /// What it is called when the first one was taken. Time that is paused may have stopped before that.
    const FIRST: u64 = 1 << 62;

    /// A reading of the clock: both are the same.
    pub(crate) fn of(clock: Instant) -> Self {
        let nanos = |later: Instant, earlier| {
            u64::try_from(later.saturating_duration_since(earlier).as_nanos()).unwrap_or(u64::MAX)
        };
        let first = COUNTER.first;
        let nanos = Self::FIRST.saturating_add(nanos(clock, first)).saturating_sub(nanos(first, clock));
        Self { earliest: nanos, latest: nanos }
    }
}

struct Counter {
    clock: Clock,
    /// Nanoseconds that 2^32 counts take.
    scale: u64,
    /// How much it counts in a [`WINDOW`], rounded down.
    window: u64,
    first: Instant,
}

impl Counter {
    fn new() -> Self {
        let clock = Clock::new();
        // Not 0, whatever was found out.
        let scale = clock.delta_as_nanos(0, 1 << 32).max(1);
        Self { clock, scale, window: (WINDOW << 32) / scale, first: Instant::now() }
    }

    /// What so many counts take, which are less than [`Self::window`].
    #[inline]
    fn nanos(&self, counts: u64) -> u64 {
        counts.wrapping_mul(self.scale) >> 32
    }
}

/// Both were read one after the other: the counter first, so that whatever comes between them shortens the window.
#[derive(Clone, Copy)]
struct Anchor {
    counter: u64,
    clock: u64,
    /// For so many counts the counter is believed; 0 if it is not.
    window: u64,
    agreed: u8,
}

/// Do now what would make the first stamp take longer than others.
pub(crate) fn prepare() {
    LazyLock::force(&COUNTER);
}

/// The time, but for less than [`WINDOW`]: what is latest may go back by less than that.
#[inline]
pub(crate) fn stamp() -> Stamp {
    let source = &*COUNTER;
    let counter = source.clock.raw();
    let anchor = ANCHOR.get();
    anchor.stamp(counter, |counts| source.nanos(counts)).unwrap_or_else(|| read(source, counter))
}

#[cold]
fn read(source: &Counter, counter: u64) -> Stamp {
    let clock = Stamp::of(Instant::now());
    let nanos = |from, to| source.clock.delta_as_nanos(from, to);
    ANCHOR.set(ANCHOR.get().then((counter, clock.latest), source.window, nanos));
    clock
}

impl Anchor {
    /// Nothing agrees with it.
    const NONE: Self = Self { counter: 0, clock: u64::MAX, window: 0, agreed: 0 };

    /// A counter that goes back has counted very much.
    #[inline]
    fn stamp(&self, counter: u64, nanos: impl Fn(u64) -> u64) -> Option<Stamp> {
        let counts = counter.wrapping_sub(self.counter);
        (counts < self.window).then(|| Stamp { earliest: self.clock, latest: self.clock + nanos(counts) + DRIFT })
    }

    /// Both were read again.
    fn then(self, (counter, clock): (u64, u64), window: u64, nanos: impl Fn(u64, u64) -> u64) -> Self {
        let anew = Self { counter, clock, window: 0, agreed: 0 };
        if counter < self.counter {
            return anew;
        }
        let counted = nanos(self.counter, counter);
        if counted < WINDOW {
            return self; // Too soon to tell.
        }
        let passed = clock.saturating_sub(self.clock);
        // The rest is what comes between two readings.
        if passed.abs_diff(counted) > WINDOW / 10 + counted / 1000 {
            return anew;
        }
        let agreed = (self.agreed + 1).min(AGREED);
        Self { window: if agreed == AGREED { window } else { 0 }, agreed, ..anew }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    /// A thread's readings: a counter that counts nanoseconds, and a clock.
    struct Thread {
        anchor: Anchor,
        counter: u64,
        clock: u64,
        /// How often the clock was read.
        read: u32,
    }

    impl Thread {
        fn new() -> Self {
            Self { anchor: Anchor::NONE, counter: 1 << 40, clock: Stamp::FIRST, read: 0 }
        }

        /// Let a window pass on both.
        fn pass_window(&mut self) {
            self.pass(WINDOW.cast_signed(), WINDOW);
        }

        /// Let time pass, on the counter and on the clock.
        fn pass(&mut self, counted: i64, passed: u64) {
            self.counter = self.counter.saturating_add_signed(counted);
            self.clock += passed;
        }

        fn stamp(&mut self) -> Stamp {
            if let Some(stamp) = self.anchor.stamp(self.counter, |counts| counts) {
                return stamp;
            }
            self.read += 1;
            self.anchor = self.anchor.then((self.counter, self.clock), WINDOW, |from, to| to - from);
            self.exact()
        }

        /// A reading of the clock.
        fn exact(&self) -> Stamp {
            Stamp { earliest: self.clock, latest: self.clock }
        }

        /// Whether a stamp tells the time.
        fn is_right(&self, stamp: Stamp) -> bool {
            (stamp.earliest..=stamp.latest).contains(&self.clock)
        }

        /// Stamps until the counter is believed.
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
    fn a_counter_that_agrees_with_the_clock_is_read_in_its_stead() {
        let mut thread = Thread::believing();
        thread.read = 0;
        for _ in 0..10_000 {
            thread.pass(100, 100);
            let stamp = thread.stamp();
            assert!(thread.is_right(stamp) && stamp.latest - thread.clock <= DRIFT);
        }
        assert_eq!(thread.read, 10_000 * 100 / WINDOW as u32, "once in a window");
    }

    #[test]
    fn what_comes_between_the_two_readings_and_a_counter_that_is_slow_leave_a_stamp_right() {
        let read = Stamp::FIRST;
        for (between, counted, passed) in
            [(0, 0, 0), (300, 0, 0), (300, 15_000, 15_000), (0, 19_980, 20_000), (7, 19_980, 19_990)]
        {
            // The counter was read at 1000, the clock so much later.
            let anchor = Anchor { counter: 1_000, clock: read, window: WINDOW + 1_000, agreed: AGREED };
            let stamp = anchor.stamp(1_000 + between + counted, |counts| counts).expect("within the window");
            assert!((stamp.earliest..=stamp.latest).contains(&(read + passed)), "{stamp:?} is not {passed}");
        }
    }

    #[test]
    fn a_counter_is_not_believed_before_it_has_agreed_many_times() {
        let mut thread = Thread::new();
        for stamps in 1..=u32::from(AGREED) {
            thread.stamp();
            assert_eq!(thread.read, stamps);
            thread.pass_window();
        }
    }

    #[test]
    fn time_that_stands_still_is_never_left_for_the_counter() {
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
    fn a_counter_that_goes_back_is_not_believed() {
        let mut thread = Thread::believing();
        thread.pass(-5, 5);
        assert_eq!(thread.stamp(), thread.exact());
        assert_eq!(thread.anchor.agreed, 0);
    }

    steersman_testkit::properties! {
        /// Cores whose counters differ, a clock that is set or stands still, a thread that is kept waiting: nothing makes it worse.
        #[test]
        fn a_stamp_is_a_reading_of_the_clock_and_less_than_a_window(
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
    fn real_time_is_between_what_a_stamp_says() {
        prepare();
        for _ in 0..100_000 {
            let (before, stamp, after) = (Stamp::of(Instant::now()), stamp(), Stamp::of(Instant::now()));
            assert!(stamp.earliest <= after.latest && stamp.latest >= before.latest, "{before:?} {stamp:?} {after:?}");
            assert!(stamp.latest - stamp.earliest < WINDOW + DRIFT);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn paused_time_is_told_exactly() {
        prepare();
        for step in 0..2_000 {
            assert_eq!(stamp(), Stamp::of(Instant::now()));
            tokio::time::advance(Duration::from_micros(step % 50)).await;
        }
    }

    #[test]
    fn what_was_before_the_first_stamp_is_before_it() {
        prepare();
        let (now, hour) = (Instant::now(), Duration::from_hours(1));
        let earlier = now.checked_sub(hour).expect("a clock goes that far back");
        assert_eq!(Stamp::of(now).latest - Stamp::of(earlier).latest, hour.as_nanos() as u64);
    }
}
