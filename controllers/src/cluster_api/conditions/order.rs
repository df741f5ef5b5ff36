//! Order of the conditions of an object, made for readers of `kubectl get`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// Types in their order. Types that are not listed are at [`OTHERS`].
const ORDER: [&str; 38] = [
    // Availability.
    "Available",
    "Ready",
    "UpToDate",
    "RemoteConnectionProbe",
    "BootstrapConfigReady",
    "InfrastructureReady",
    "ControlPlaneInitialized",
    "ControlPlaneAvailable",
    "WorkersAvailable",
    "CertificatesAvailable",
    "Initialized",
    "EtcdClusterHealthy",
    "ControlPlaneComponentsHealthy",
    "NodeHealthy",
    "NodeReady",
    "NodeKubeadmLabelsAndTaintsSet",
    "EtcdPodHealthy",
    "EtcdMemberHealthy",
    "APIServerPodHealthy",
    "ControllerManagerPodHealthy",
    "SchedulerPodHealthy",
    "HealthCheckSucceeded",
    "OwnerRemediated",
    // Operations.
    "TopologyReconciled",
    "Updating",
    "RollingOut",
    "Remediating",
    "ScalingDown",
    "ScalingUp",
    // Aggregated from Machines.
    "MachinesReady",
    "ControlPlaneMachinesReady",
    "WorkerMachinesReady",
    "MachinesUpToDate",
    "ControlPlaneMachinesUpToDate",
    "WorkerMachinesUpToDate",
    OTHERS,
    "Paused",
    "Deleting",
];

/// Place of all other types, which are sorted by name.
const OTHERS: &str = "";

/// Sorts conditions in the order of Cluster API.
///
/// `Available` and `Ready` come first, and `Paused` and `Deleting` last. Types that Cluster API
/// does not define are sorted by name before these two.
pub fn sort(conditions: &mut [Condition]) {
    conditions.sort_by(|one, other| {
        let key = |condition: &Condition| rank(&condition.type_);
        key(one)
            .cmp(&key(other))
            .then_with(|| one.type_.cmp(&other.type_))
    });
}

fn rank(type_: &str) -> Option<usize> {
    let position = |wanted: &str| ORDER.iter().position(|known| *known == wanted);
    position(type_).or_else(|| position(OTHERS))
}
