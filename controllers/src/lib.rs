//! Controllers built on [`steersman`], with its public API only.
//!
//! | module | what it does |
//! |---|---|
//! | [`cluster`] | follows the infrastructure and control plane of a Cluster API Cluster |
//! | [`cluster_api`] | types, conditions, patch helper and predicates of Cluster API |
//! | [`endpoint`] | publishes the API endpoint of control planes created by Terraform to Cluster API objects |
//! | [`extension_config`] | ExtensionConfigs of Cluster API, and the Runtime SDK |
//! | [`external`] | reads, creates, deletes and watches objects of Cluster API providers |
//! | [`manifests`] | formats CRDs and roles as YAML |

#![warn(missing_docs)]

pub mod cluster;
pub mod cluster_api;
pub mod endpoint;
pub mod extension_config;
pub mod external;
pub mod manifests;
mod rbac;

/// Compiles the Rust blocks of `docs/cluster.md`.
#[cfg(doctest)]
#[doc = include_str!("../../docs/cluster.md")]
struct ClusterPage;

/// Compiles the Rust blocks of `docs/endpoint.md`.
#[cfg(doctest)]
#[doc = include_str!("../../docs/endpoint.md")]
struct EndpointPage;

/// Compiles the Rust blocks of `docs/extension-config.md`.
#[cfg(doctest)]
#[doc = include_str!("../../docs/extension-config.md")]
struct ExtensionConfigPage;

/// Compiles the Rust blocks of `docs/external.md`.
#[cfg(doctest)]
#[doc = include_str!("../../docs/external.md")]
struct ExternalPage;
