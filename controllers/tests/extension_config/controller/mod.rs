//! Tests of the controller against both API servers, with extension servers that use TLS.

mod ca_bundle;
mod deletion;
mod failures;
mod fixture;
mod proxy;
mod read_only;
mod reconcile;
mod warmup;
mod writes;
