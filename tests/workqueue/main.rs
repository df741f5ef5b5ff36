//! Behaviour of the work queue, seen from outside. Time is virtual, except in `stress` and in the threaded cases of `shutdown`.
//!
//! `Catalogue n` names the row of `spec/controller-runtime.md` 3.1 that a case comes from.

mod backoff;
mod bad_input;
mod dedup;
mod delay;
mod fairness;
mod getters;
mod item;
mod keepers;
mod limiter;
mod memory;
mod metrics;
mod model;
mod order;
mod park;
mod priority;
mod prometheus;
mod property;
mod reentry;
mod replace;
mod retry;
mod shutdown;
mod shutdown_threads;
mod snapshot;
mod stress;
mod support;
