//! A Kubernetes API server that lives inside a process, with the real server's semantics.

pub mod auth;
mod clock;
pub mod cut;
pub mod faults;
pub mod journal;
pub mod kubeconfig;
pub mod matcher;
mod resource;
mod schema;
pub mod serve;
mod status;
pub mod tls;
