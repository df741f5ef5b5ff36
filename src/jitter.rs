//! Random numbers for delays, which a test can seed.

use rand::{RngExt, rngs::StdRng};
use std::{cell::RefCell, ops::Range};

thread_local! {
    static SEEDED: RefCell<Option<StdRng>> = const { RefCell::new(None) };
}

/// Returns a random factor in `range`.
pub(crate) fn factor(range: Range<f64>) -> f64 {
    SEEDED.with_borrow_mut(|seeded| match seeded {
        Some(seeded) => seeded.random_range(range),
        None => rand::rng().random_range(range),
    })
}

/// Returns a random number, for the seed of a hash.
pub(crate) fn number() -> u64 {
    SEEDED.with_borrow_mut(|seeded| match seeded {
        Some(seeded) => seeded.random(),
        None => rand::rng().random(),
    })
}

/// Guard of [`seed_jitter`]. Dropping it makes the jitter of the thread random again.
#[cfg(all(feature = "testing", unix))]
#[derive(Debug)]
#[must_use = "the jitter is random again when the guard is dropped"]
pub struct SeededJitter {
    before: Option<StdRng>,
    /// Makes the guard `!Send`, because it must be dropped on the thread that it seeded.
    not_send: std::marker::PhantomData<*const ()>,
}

/// Makes the jitter of all delays on the current thread depend only on `seed`.
///
/// Retries, resyncs, watch lifetimes and lease renewals have a random part, so that clients do not
/// send their requests at the same time. Seed it to make a test on a current-thread runtime with
/// paused time reproducible. The seed holds until the returned guard is dropped.
///
/// ```
/// use steersman::{testing::seed_jitter, workqueue::Limiter};
/// use std::time::Duration;
/// use tokio::time::Instant;
///
/// let delay = || {
///     let _seeded = seed_jitter(7);
///     let limiter = Limiter::exponential(Duration::from_secs(1), Duration::MAX).jitter(0.5);
///     limiter.delay(&"web", 0, Instant::now())
/// };
/// assert_eq!(delay(), delay());
/// ```
#[cfg(all(feature = "testing", unix))]
pub fn seed_jitter(seed: u64) -> SeededJitter {
    let before = SEEDED.replace(Some(rand::SeedableRng::seed_from_u64(seed)));
    SeededJitter {
        before,
        not_send: std::marker::PhantomData,
    }
}

#[cfg(all(feature = "testing", unix))]
impl Drop for SeededJitter {
    fn drop(&mut self) {
        SEEDED.set(self.before.take());
    }
}

#[cfg(all(test, feature = "testing", unix))]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_the_numbers_until_the_guard_is_dropped() {
        let draw = || (factor(0.0..1.0), number());
        let seeded = || {
            let _seeded = seed_jitter(3);
            draw()
        };
        assert_eq!(seeded(), seeded());
        let outer = seed_jitter(4);
        let first = draw();
        assert_ne!(first, seeded());
        let second = draw();
        drop(outer);
        let outer = seed_jitter(4);
        assert_eq!((first, second), (draw(), draw()));
        drop(outer);
        assert_ne!(draw(), draw());
    }
}
