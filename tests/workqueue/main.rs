//! Tests of the public API of the work queue.
//!
//! Time is virtual, except in `stress` and in the threaded tests of `shutdown`.

mod backoff;
mod bad_input;
mod dedup;
mod delay;
mod fairness;
mod getters;
mod item;
mod limiter;
mod memory;
mod metrics;
mod model;
mod order;
mod park;
mod priority;
mod prometheus;
mod property;
mod reentrancy;
mod replace_timer;
mod retry;
mod shutdown;
mod shutdown_threads;
mod snapshot;
mod stress;
mod support;
mod timer_getters;
