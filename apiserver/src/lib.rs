//! A Kubernetes API server that lives inside a process, with the real server's semantics.

#[cfg_attr(not(test), expect(dead_code, reason = "used once the registry lands"))]
mod builtin;
mod clock;
#[cfg_attr(not(test), expect(dead_code, reason = "used once the registry lands"))]
mod http;
mod resource;
mod schema;
mod status;
