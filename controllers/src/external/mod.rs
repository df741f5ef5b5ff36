//! Utilities for objects of Cluster API providers, whose types are not known at compile time.
//!
//! A `Cluster` or a `Machine` refers to objects of providers, such as `DockerCluster`. These
//! utilities read, create, delete and watch such objects as `DynamicObject`s.
//!
//! * [`get`], [`get_from_contract_versioned_ref`] and [`delete`] take a reference. The version of a
//!   reference without one follows from the [contract] that the kind implements.
//! * [`create_from_template`] clones a template. [`generate_template`] returns the clone without
//!   creating it.
//! * [`failures_from`] and [`is_ready`] read the fields of the status that all kinds have.
//!   [`contract::infrastructure_cluster`] and [`contract::control_plane`] read those that a
//!   contract names.
//! * [`ObjectTracker`] adds watches of such kinds to a controller.
//!
//! Behaviour and texts of errors are those of Cluster API's Go package `controllers/external`,
//! except that nothing panics, and that a failed creation has a context. [`Error::is_not_found`] is
//! true only for the object itself, not for its CRD.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! use kube::core::DynamicObject;
//! use serde_json::json;
//! use steersman::{prelude::*, testing::{Env, TestServer}};
//! use steersman_controllers::{cluster_api::ContractVersionedObjectReference, external};
//!
//! let env = Env::embedded()?; // any other cluster works as well
//! # let names = json!({"kind": "ShedCluster", "plural": "shedclusters", "singular": "shedcluster"});
//! # let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
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
//! let client = Client::new(env.client()?)?;
//! let shed: DynamicObject = serde_json::from_value(json!({
//!     "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
//!     "kind": "ShedCluster",
//!     "metadata": {"namespace": "default", "name": "shop"},
//!     "status": {"ready": true},
//! }))?;
//! client.create(&shed).await?;
//!
//! // As in `spec.infrastructureRef` of a Cluster, without a version.
//! let reference = ContractVersionedObjectReference {
//!     api_group: "infrastructure.cluster.x-k8s.io".into(),
//!     kind: "ShedCluster".into(),
//!     name: "shop".into(),
//! };
//! let shed = external::get_from_contract_versioned_ref(&client, &reference, "default").await?;
//! assert!(external::is_ready(&shed)?);
//!
//! let missing = ContractVersionedObjectReference { name: "web".into(), ..reference };
//! let error = external::get_from_contract_versioned_ref(&client, &missing, "default").await;
//! assert!(error.is_err_and(|error| error.is_not_found()));
//! # Ok(())
//! # }
//! ```

pub mod contract;
mod error;
mod failed;
mod field;
mod group_kind;
mod read;
mod status;
mod template;
mod tracker;

pub use self::{
    contract::ContractError,
    error::{Error, RequestError},
    failed::Failed,
    field::FieldError,
    group_kind::GroupKind,
    read::{delete, get, get_from_contract_versioned_ref},
    status::{ReconcileOutput, failures_from, is_ready},
    template::{CreateFromTemplate, GenerateTemplate, create_from_template, generate_template},
    tracker::{ObjectTracker, ObjectTrackerBuilder, TrackerError},
};
