//! Controllers and what they are made of, as their users have them.
//!
//! `Catalogue n` names the row of `spec/controller-runtime.md` 3.1 that a case comes from.

mod log;
mod rig;
mod support;

mod channel;
mod clusters;
mod context;
mod deferral;
mod drive;
mod dynamic;
mod examples;
mod failures;
mod handlers;
#[path = "../client/held.rs"]
mod held;
mod held_back;
mod interrupted;
mod lagging;
mod laters;
mod life;
mod metrics;
mod neighbours;
mod on_servers;
mod options;
mod results;
mod sources;
mod spans;
mod spawn;
mod start;
mod stress;
mod tracing;
mod watching;
mod workers;
mod world;
