//! Lock, clock and timer of the work queue.
//!
//! The concurrency model check (`tests/model`) compiles the sources of the queue against another
//! module of this name, in which a scheduler decides which task runs. The queue therefore uses only
//! these types to wait and to read the time.

pub(crate) use crate::coarse_clock::{Stamp, prepare, stamp};
pub(crate) use parking_lot::{Mutex, MutexGuard};
use std::hint::spin_loop;
pub(crate) use tokio::time::{Instant, Sleep, sleep_until};

/// [`Mutex`] that backs off for some microseconds before it blocks.
///
/// Use it for data that many threads change, each for a short time. A change takes about 0.1 µs if
/// the data is in the cache of the core, and several times that if it is in the cache of another.
/// Two threads that alternate are therefore slower than one that continues while the other backs
/// off. Spinning on the lock, or blocking in a system call, is slower still. After the backoff,
/// `parking_lot` blocks the thread and ensures fairness.
pub(crate) struct BackoffMutex<T>(Mutex<T>);

/// Spins before the first retry, and number of retries.
///
/// Each retry doubles the spins.
///
/// A spin takes 10 to 40 ns, depending on the processor.
const FIRST_SPINS: u32 = 100;
const RETRIES: u32 = 3;

impl<T> BackoffMutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0
            .try_lock()
            .unwrap_or_else(|| self.lock_with_backoff())
    }

    #[cold]
    fn lock_with_backoff(&self) -> MutexGuard<'_, T> {
        for look in 0..RETRIES {
            for _ in 0..FIRST_SPINS << look {
                spin_loop();
            }
            if let Some(guard) = self.0.try_lock() {
                return guard;
            }
        }
        self.0.lock()
    }
}
