//! Hooks of Cluster API.
//!
//! The types have the JSON fields of Cluster API. Objects of Kubernetes inside of them are raw
//! JSON, so that no field is lost. As in Go, missing fields and `null` are read as the default.
//!
//! | file | hooks |
//! |---|---|
//! | `discovery.rs` | [`Discovery`] |
//! | `lifecycle.rs` | [`BeforeClusterCreate`], [`AfterControlPlaneInitialized`], [`BeforeClusterDelete`] |
//! | `upgrade.rs` | [`BeforeClusterUpgrade`], [`BeforeControlPlaneUpgrade`], [`AfterControlPlaneUpgrade`], [`BeforeWorkersUpgrade`], [`AfterWorkersUpgrade`], [`AfterClusterUpgrade`], [`GenerateUpgradePlan`] |
//! | `topology.rs` | [`GeneratePatches`], [`ValidateTopology`], [`DiscoverVariables`] |
//! | `in_place.rs` | [`CanUpdateMachine`], [`CanUpdateMachineSet`], [`UpdateMachine`] |

mod common;
mod discovery;
mod in_place;
mod lifecycle;
mod patch;
mod topology;
mod upgrade;

pub use self::{
    common::{ResponseStatus, Settings},
    discovery::{Discovery, DiscoveryHandler, DiscoveryRequest, DiscoveryResponse},
    in_place::{
        CanUpdateMachine, CanUpdateMachineRequest, CanUpdateMachineRequestObjects,
        CanUpdateMachineResponse, CanUpdateMachineSet, CanUpdateMachineSetRequest,
        CanUpdateMachineSetRequestObjects, CanUpdateMachineSetResponse, Patch, UpdateMachine,
        UpdateMachineRequest, UpdateMachineRequestObjects, UpdateMachineResponse,
    },
    lifecycle::{
        AfterControlPlaneInitialized, AfterControlPlaneInitializedRequest,
        AfterControlPlaneInitializedResponse, BeforeClusterCreate, BeforeClusterCreateRequest,
        BeforeClusterCreateResponse, BeforeClusterDelete, BeforeClusterDeleteRequest,
        BeforeClusterDeleteResponse,
    },
    patch::PatchType,
    topology::{
        ClusterClassVariable, ClusterClassVariableMetadata, DiscoverVariables,
        DiscoverVariablesRequest, DiscoverVariablesResponse, GeneratePatches,
        GeneratePatchesRequest, GeneratePatchesRequestItem, GeneratePatchesResponse,
        GeneratePatchesResponseItem, HolderReference, ValidateTopology, ValidateTopologyRequest,
        ValidateTopologyRequestItem, ValidateTopologyResponse, Variable, VariableSchema,
    },
    upgrade::{
        AfterClusterUpgrade, AfterClusterUpgradeRequest, AfterClusterUpgradeResponse,
        AfterControlPlaneUpgrade, AfterControlPlaneUpgradeRequest,
        AfterControlPlaneUpgradeResponse, AfterWorkersUpgrade, AfterWorkersUpgradeRequest,
        AfterWorkersUpgradeResponse, BeforeClusterUpgrade, BeforeClusterUpgradeRequest,
        BeforeClusterUpgradeResponse, BeforeControlPlaneUpgrade, BeforeControlPlaneUpgradeRequest,
        BeforeControlPlaneUpgradeResponse, BeforeWorkersUpgrade, BeforeWorkersUpgradeRequest,
        BeforeWorkersUpgradeResponse, GenerateUpgradePlan, GenerateUpgradePlanRequest,
        GenerateUpgradePlanResponse, UpgradeStep,
    },
};

/// Group of Cluster API's hooks.
pub const HOOKS_GROUP: &str = "hooks.runtime.cluster.x-k8s.io";
/// Version of Cluster API's hooks.
pub const HOOKS_VERSION: &str = "v1alpha1";
/// [`HOOKS_GROUP`] and [`HOOKS_VERSION`], as in `apiVersion`.
pub const HOOKS_API_VERSION: &str = "hooks.runtime.cluster.x-k8s.io/v1alpha1";
