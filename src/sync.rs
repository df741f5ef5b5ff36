//! What the work queue takes from its surroundings: a lock, a clock and a timer.
//!
//! The concurrency model check (`tests/model`) compiles the queue's own sources against another module of this name, in
//! which a scheduler decides who runs. So the queue uses these and nothing else to wait or to tell the time.

pub(crate) use crate::stamp::{Stamp, prepare, stamp};
pub(crate) use parking_lot::{Mutex, MutexGuard};
use std::hint::spin_loop;
pub(crate) use tokio::time::{Instant, Sleep, sleep_until};

/// A [`Mutex`], but whoever finds it taken leaves it alone for some microseconds before waiting for it. For what is changed by everybody, and seldom for long.
///
/// What it protects is changed in a tenth of a microsecond if it is in the caches of the core that does so, and in several times that if
/// it is in another's. So two threads that take turns are slower than one that goes on while the other looks away; and looking at
/// the lock all the time, or waiting for it by a system call, is slower still. Nobody is overtaken for longer: then it is
/// `parking_lot`'s turn, which is fair in the end.
pub(crate) struct CalmMutex<T>(Mutex<T>);

/// How often a processor pauses before it looks again, and how often it does that; each time it pauses twice as long. A pause takes 10
/// to 40 ns, by the processor.
const PAUSES: u32 = 100;
const LOOKS: u32 = 3;

impl<T> CalmMutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.try_lock().unwrap_or_else(|| self.lock_later())
    }

    #[cold]
    fn lock_later(&self) -> MutexGuard<'_, T> {
        for look in 0..LOOKS {
            for _ in 0..PAUSES << look {
                spin_loop();
            }
            if let Some(guard) = self.0.try_lock() {
                return guard;
            }
        }
        self.0.lock()
    }
}
