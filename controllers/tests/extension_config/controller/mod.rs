//! The controller, on both servers, with extension servers that speak TLS.

mod ca_bundle;
mod deletion;
mod failures;
mod fixture;
mod proxy;
mod read_only;
mod reconcile;
mod warmup;
mod writes;
