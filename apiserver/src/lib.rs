//! A Kubernetes API server that lives inside a process, with the real server's semantics.

mod clock;
mod resource;
mod schema;
mod status;
