//! Types and utilities of Cluster API that controllers share.
//!
//! The types have the fields of v1beta2 that controllers of this package read or write. Write them
//! as patches, with the [`PatchHelper`] or [`Client::patch_from`], which do not change the fields
//! that a type does not have.
//!
//! | module or item | for |
//! |---|---|
//! | [`Cluster`], [`Machine`], [`MachineSet`], [`MachineDeployment`], [`MachinePool`] | kinds |
//! | [`labels`], [`annotations`] | keys of metadata |
//! | [`conditions`], [`deprecated`] | the two formats of conditions |
//! | [`patch`] | writing an object and its conditions |
//! | [`ensure_paused`] | the condition `Paused` |
//! | [`predicates`] | events that reach a controller |
//! | [`owners`] | owner references |
//! | [`generate_name`], [`aggregate()`] | names of generated objects, several errors as one |
//! | [`definitions()`] | CRDs for clusters without Cluster API |
//!
//! [`Client::patch_from`]: steersman::client::Client::patch_from

mod aggregate;
pub mod annotations;
mod cluster;
pub mod conditions;
mod definitions;
pub mod deprecated;
pub mod labels;
mod machines;
mod names;
pub mod owners;
pub mod patch;
mod paused;
pub mod predicates;
mod reference;

pub use self::{
    aggregate::{Aggregate, aggregate},
    cluster::{
        ApiEndpoint, Cluster, ClusterInitialization, ClusterSpec, ClusterStatus, DeprecatedStatus,
        DeprecatedV1Beta1Status, FailureDomain, Topology,
    },
    conditions::Conditions,
    definitions::definitions,
    deprecated::{DeprecatedCondition, Severity},
    machines::{
        Bootstrap, Machine, MachineDeployment, MachineDeploymentSpec, MachinePool, MachinePoolSpec,
        MachineSet, MachineSetSpec, MachineSpec, MachineStatus, NodeReference,
    },
    names::generate_name,
    patch::{PatchError, PatchHelper, PatchOptions},
    paused::{NOT_PAUSED_REASON, PAUSED_REASON, Paused, ensure_paused, is_paused},
    reference::{ContractVersionedObjectReference, object_reference},
};
pub use k8s_openapi::api::core::v1::ObjectReference;

pub(crate) use self::{
    aggregate::joined,
    definitions::{
        conditions as conditions_schema, deprecated_conditions as deprecated_conditions_schema,
    },
};

/// Group of the kinds of Cluster API.
pub const GROUP: &str = "cluster.x-k8s.io";
/// Version of the group that this package reads and writes.
pub const VERSION: &str = "v1beta2";
/// [`GROUP`] and [`VERSION`], as in `apiVersion`.
pub const API_VERSION: &str = "cluster.x-k8s.io/v1beta2";
/// Suffix of kinds that are templates of another kind.
pub const TEMPLATE_SUFFIX: &str = "Template";
