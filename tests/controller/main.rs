//! Controllers and what they are made of, as their users have them.
//!
//! `Catalogue n` names the row of `spec/controller-runtime.md` 3.1 that a case comes from.

mod log;
mod rig;

mod context;
mod failures;
mod interrupted;
mod life;
mod metrics;
mod options;
mod results;
mod start;
mod tracing;
mod watching;
mod workers;
