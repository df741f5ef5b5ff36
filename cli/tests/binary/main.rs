//! The program as a process: what it says, does, and how it ends.

mod demo;
mod failures;
mod kubectl;
mod manifests;
mod on_cluster;
mod process;
