//! A Kubernetes API server that lives inside a process, with the real server's semantics.

mod clock;
mod object;
mod persist;
mod resource;
mod schema;
mod status;
mod store;
