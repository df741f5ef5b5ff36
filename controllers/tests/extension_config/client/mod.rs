//! Tests of the runtime client with real TLS servers.

mod cache;
mod call;
mod call_all;
pub(crate) mod certificates;
mod connections;
mod discovery;
mod fixture;
mod http_failures;
mod metrics;
mod namespaces;
pub(crate) mod raw_server;
mod services;
mod tls;
