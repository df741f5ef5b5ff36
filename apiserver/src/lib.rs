//! A Kubernetes API server that lives inside a process, with the real server's semantics.

mod clock;
#[cfg_attr(not(test), expect(dead_code, reason = "used once the registry lands"))]
mod crd;
#[cfg_attr(not(test), expect(dead_code, reason = "used once the registry lands"))]
mod jsonpath;
mod resource;
#[cfg_attr(not(test), expect(dead_code, reason = "used once the registry lands"))]
mod schema;
mod status;
