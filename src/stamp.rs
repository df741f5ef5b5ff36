//! The time, read for less: to say when something happened, never to decide whether it is due.
//!
//! Reading the system's clock is the dearest thing that a work queue does with a key, and it does so twice. The processor's counter takes
//! a third of that. So each thread reads the clock every [`WINDOW`], and adds what the counter has counted since.
//!
//! Invariant: what is added to a reading of the clock is less than [`WINDOW`], and taken from the counter. Hence, whatever the
//! counter does, and on whichever core it is read, a stamp is at most so far off, and so old.
//!
//! tokio's time may be paused, and nothing tells whether it is. So the counter is believed only after it has [`AGREED`] with the clock many
//! times in a row. To paused time it never does: who tests on that gets the clock, and nothing but the clock. Only one
//! who pauses time that ran before may see it run on for the rest of a window.

use quanta::Clock;
use std::{cell::Cell, sync::LazyLock, time::Duration};
use tokio::time::Instant;

/// In nanoseconds. Reading the clock once in it costs little, and what runs for longer than it is told well enough; metrics of what is shorter may be off.
const WINDOW: u64 = 20_000;
/// So often in a row counter and clock have to agree before the counter is believed.
const AGREED: u8 = 8;

/// Finding out how fast it counts takes some 20 ms, once in a process.
static COUNTER: LazyLock<Clock> = LazyLock::new(Clock::new);

thread_local! {
    static ANCHOR: Cell<Option<Anchor>> = const { Cell::new(None) };
}

/// Both were read one after the other: the counter first, so that whatever comes between them shortens the window.
#[derive(Clone, Copy)]
struct Anchor {
    counter: u64,
    clock: Instant,
    agreed: u8,
}

/// Do now what would make the first stamp take longer than others.
pub(crate) fn prepare() {
    LazyLock::force(&COUNTER);
}

/// The time, but for less than [`WINDOW`]; it may go back by less than that.
#[inline]
pub(crate) fn stamp() -> Instant {
    let counter = COUNTER.raw();
    let anchor = ANCHOR.get();
    if let Some(stamp) = anchor.and_then(|anchor| anchor.stamp(counter, nanos)) {
        return stamp;
    }
    let clock = Instant::now();
    ANCHOR.set(Some(Anchor::after(anchor, counter, clock, nanos)));
    clock
}

/// From one count to a later one.
#[inline]
fn nanos(from: u64, to: u64) -> u64 {
    COUNTER.delta_as_nanos(from, to)
}

impl Anchor {
    #[inline]
    fn stamp(&self, counter: u64, nanos: impl Fn(u64, u64) -> u64) -> Option<Instant> {
        if self.agreed < AGREED || counter < self.counter {
            return None;
        }
        let since = nanos(self.counter, counter);
        (since < WINDOW).then(|| self.clock + Duration::from_nanos(since))
    }

    #[cold]
    fn after(before: Option<Self>, counter: u64, clock: Instant, nanos: impl Fn(u64, u64) -> u64) -> Self {
        let Some(before) = before else { return Self { counter, clock, agreed: 0 } };
        if counter < before.counter {
            return Self { counter, clock, agreed: 0 };
        }
        let counted = nanos(before.counter, counter);
        if counted < WINDOW {
            return before; // Too soon to tell.
        }
        let passed = clock.saturating_duration_since(before.clock).as_nanos();
        // A clock is set right by up to half a thousandth; the rest is what comes between two readings.
        let agree = passed.abs_diff(counted.into()) <= u128::from(WINDOW / 10 + counted / 1000);
        Self { counter, clock, agreed: if agree { (before.agreed + 1).min(AGREED) } else { 0 } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A thread's readings: a counter that counts nanoseconds, and a clock.
    struct Thread {
        anchor: Option<Anchor>,
        counter: u64,
        clock: Instant,
        /// How often the clock was read.
        read: u32,
    }

    impl Thread {
        fn new() -> Self {
            Self { anchor: None, counter: 1 << 40, clock: Instant::now(), read: 0 }
        }

        /// Let a window pass on both.
        fn pass_window(&mut self) {
            self.counter += WINDOW;
            self.clock += Duration::from_nanos(WINDOW);
        }

        /// Let time pass, on the counter and on the clock.
        fn pass(&mut self, counted: i64, passed: u64) {
            self.counter = self.counter.saturating_add_signed(counted);
            self.clock += Duration::from_nanos(passed);
        }

        fn stamp(&mut self) -> Instant {
            let nanos = |from, to| to - from;
            if let Some(stamp) = self.anchor.and_then(|anchor| anchor.stamp(self.counter, nanos)) {
                return stamp;
            }
            self.read += 1;
            self.anchor = Some(Anchor::after(self.anchor, self.counter, self.clock, nanos));
            self.clock
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
            assert_eq!(thread.stamp(), thread.clock);
        }
        assert_eq!(thread.read, 10_000 * 100 / WINDOW as u32, "once in a window");
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
            assert_eq!(thread.stamp(), thread.clock);
        }
        assert_eq!(thread.read, 10_000);
    }

    #[test]
    fn time_that_is_paused_runs_on_for_one_window_at_most() {
        let mut thread = Thread::believing();
        let mut wrong = 0;
        for _ in 0..10_000 {
            thread.pass(1_000, 0);
            wrong += u64::from(thread.stamp() != thread.clock);
        }
        assert!((1..WINDOW / 1_000).contains(&wrong), "{wrong}");
    }

    #[test]
    fn a_counter_that_goes_back_is_not_believed() {
        let mut thread = Thread::believing();
        thread.pass(-5, 5);
        assert_eq!(thread.stamp(), thread.clock);
        assert_eq!(thread.anchor.map(|anchor| anchor.agreed), Some(0));
    }

    proptest! {
        /// Cores whose counters differ, a clock that is set or stands still, a thread that is kept waiting: nothing makes it worse.
        #[test]
        fn a_stamp_is_a_reading_of_the_clock_and_less_than_a_window(
            steps in prop::collection::vec((-60_000..60_000i64, prop::sample::select(vec![None, Some(0), Some(1_000_000_000)])), 1..300)
        ) {
            let mut thread = Thread::believing();
            for (counted, passed) in steps {
                thread.pass(counted, passed.unwrap_or(counted.unsigned_abs()));
                let stamp = thread.stamp();
                let anchor = thread.anchor.expect("it was read");
                prop_assert!(stamp >= anchor.clock && stamp - anchor.clock < Duration::from_nanos(WINDOW) || stamp == thread.clock);
            }
        }
    }

    #[test]
    fn real_time_is_told_but_for_less_than_a_window() {
        prepare();
        for _ in 0..100_000 {
            let (before, stamp, after) = (Instant::now(), stamp(), Instant::now());
            let window = Duration::from_nanos(WINDOW);
            assert!(stamp + window >= before && stamp <= after + window);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn paused_time_is_told_exactly() {
        prepare();
        for step in 0..2_000 {
            assert_eq!(stamp(), Instant::now());
            tokio::time::advance(Duration::from_micros(step % 50)).await;
        }
    }
}
