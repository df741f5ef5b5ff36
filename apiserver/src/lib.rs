//! A Kubernetes API server that lives inside a process, with the real server's semantics.

#[expect(dead_code, reason = "used once the registry lands")]
mod builtin;
mod clock;
mod object;
mod persist;
mod resource;
#[cfg_attr(not(test), expect(dead_code, reason = "used once the registry lands"))]
mod schema;
mod status;
mod store;
