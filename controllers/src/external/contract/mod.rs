//! Contracts of Cluster API: which version of a kind implements one, and the fields it names.
//!
//! A provider labels its CRDs with the contracts that they implement:
//! `cluster.x-k8s.io/v1beta2: v1beta1_v1beta2` means that the versions `v1beta1` and `v1beta2` of
//! the kind implement the contract `v1beta2`.
//!
//! * [`contract_version`] and [`api_version`] look up a kind. They read the metadata of its CRD
//!   with [`crd_metadata`], from the client's cache if CRDs are cached there.
//! * [`latest_contract_and_api_version`] decides from that metadata.
//! * [`infrastructure_cluster`] and [`control_plane`] read the fields of an object.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! use serde_json::json;
//! use steersman::{prelude::*, testing::{Env, TestServer}};
//! use steersman_controllers::external::{GroupKind, contract};
//!
//! let env = Env::embedded()?; // any other cluster works as well
//! # let names = json!({"kind": "ShedCluster", "plural": "shedclusters", "singular": "shedcluster"});
//! # let schema = json!({"openAPIV3Schema": {"type": "object"}});
//! env.install([json!({
//!     "apiVersion": "apiextensions.k8s.io/v1",
//!     "kind": "CustomResourceDefinition",
//!     "metadata": {
//!         "name": "shedclusters.infrastructure.cluster.x-k8s.io",
//!         "labels": {"cluster.x-k8s.io/v1beta1": "v1alpha1"},
//!     },
//!     // …
//! #   "spec": {
//! #       "group": "infrastructure.cluster.x-k8s.io", "scope": "Namespaced", "names": names,
//! #       "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": schema}],
//! #   },
//! })])
//! .await?;
//!
//! let client = Client::new(env.client()?)?;
//! let kind = GroupKind::new("infrastructure.cluster.x-k8s.io", "ShedCluster");
//! assert_eq!(contract::contract_version(&client, &kind).await?, "v1beta1");
//! let api_version = contract::api_version(&client, &kind).await?;
//! assert_eq!(api_version, "infrastructure.cluster.x-k8s.io/v1alpha1");
//! # Ok(())
//! # }
//! ```

pub mod control_plane;
mod endpoint;
mod error;
pub mod infrastructure_cluster;
mod lookup;
mod plural;
mod versions;

pub use self::{
    error::ContractError,
    lookup::{
        CrdMetadata, api_version, contract_version, contract_version_for_version, crd_metadata,
        update_reference,
    },
    plural::crd_name,
    versions::{
        ContractVersion, compare_versions, compatible_contracts, latest_contract_and_api_version,
    },
};

/// Version of the contract that this package implements.
pub const VERSION: &str = crate::cluster_api::VERSION;
