//! Tests of the binary `steersman` as a process.

mod cluster;
mod demo;
mod extension_config;
mod failures;
mod kubectl;
mod manifests;
mod on_cluster;
mod process;
