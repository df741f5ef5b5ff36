//! Tests of the test environments.
//!
//! Tests of the real server are skipped if it is not installed, except with `CI=true`.

mod both_servers;
mod embedded;
mod existing;
mod failures;
mod killed_process;
mod lifecycle;
mod shared;
mod support;
