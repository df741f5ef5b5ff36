//! Tests of the cluster controller.
//!
//! Numbers in comments are those of the acceptance cases in the specification.

mod control_plane;
mod deletion;
mod fixture;
mod infrastructure;
mod missed_events;
mod ownership;
mod pause;
mod recording_proxy;
mod restarts;
mod status;
mod upstream;
mod watching;
mod with_endpoint;
mod writes;
