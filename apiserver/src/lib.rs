//! A Kubernetes API server that lives inside a process, with the real server's semantics.

mod clock;
#[cfg_attr(not(test), expect(dead_code, reason = "used once the registry lands"))]
mod http;
#[cfg_attr(not(test), expect(dead_code, reason = "used once the registry lands"))]
mod meta;
#[cfg_attr(not(test), expect(dead_code, reason = "used once the registry lands"))]
mod page;
#[cfg_attr(not(test), expect(dead_code, reason = "used once the registry lands"))]
mod patch;
mod resource;
mod schema;
#[cfg_attr(not(test), expect(dead_code, reason = "used once the registry lands"))]
mod selector;
mod status;
