//! Controllers and what they are made of, as their users have them.
//!
//! `Catalogue n` names the row of `spec/controller-runtime.md` 3.1 that a case comes from.

mod log;
mod rig;
mod support;

mod channel;
mod context;
mod drive;
mod examples;
mod failures;
mod handlers;
mod interrupted;
mod laters;
mod life;
mod metrics;
mod options;
mod results;
mod sources;
mod spans;
mod start;
mod stress;
mod tracing;
mod watching;
mod workers;
