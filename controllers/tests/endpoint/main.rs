//! Tests of the endpoint controller on both servers.

mod behaviour;
mod chaos;
mod claims;
#[path = "../../../benches/endpoint/control_planes.rs"]
mod control_planes;
mod errors;
mod fault_proxy;
mod fixture;
mod health;
mod log_recorder;
mod log_search;
mod minimal_roles;
mod missing_kinds;
mod propagation;
mod recording_proxy;
#[path = "../../../benches/recording_server.rs"]
mod recording_server;
mod request_count;
mod scope;
mod secrecy;
mod watch_latency;
mod writes;
