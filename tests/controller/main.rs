//! Tests of the public API of controllers and their parts.

mod log_capture;
mod support;
mod test_controller;

mod async_mappings;
mod by_object;
mod channel;
mod clusters;
mod context;
mod deferral;
mod deferred_requests;
mod dynamic;
mod end_to_end;
mod event_spans;
mod examples;
mod failures;
mod fixture;
mod forbidden_watches;
mod handlers;
mod lagging_watches;
mod metrics;
mod options;
mod panics_and_timeouts;
mod reasons;
mod reconcile_spans;
mod results;
mod runtime_watches;
mod send_and_sync;
mod shutdown;
mod source_lifecycle;
mod sources;
mod start;
mod streams;
mod stress;
mod undecoded;
#[path = "../client/watch_gate.rs"]
mod watch_gate;
mod workers;
