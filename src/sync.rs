//! What the work queue takes from its surroundings: a lock, a clock and a timer.
//!
//! The concurrency model check (`tests/model`) compiles the queue's own sources against another module of this name, in
//! which a scheduler decides who runs. So the queue uses these and nothing else to wait or to tell the time.

pub(crate) use parking_lot::{Mutex, MutexGuard};
pub(crate) use tokio::time::{Instant, Sleep, sleep_until};
