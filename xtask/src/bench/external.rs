//! The group `external`: the cluster controller with 1,000 Clusters and their infrastructure.
//!
//! It measures the time from the start of the manager until all Clusters are provisioned, and the
//! calls per Cluster. The embedded API server runs in the same process.

use super::groups::{Family, Group, Target::AtMost, Workload, workload};

pub(super) const GROUP: Group = Group {
    name: "external",
    package: "steersman-controllers",
    bench: "external",
    go: None,
    packages: &[],
    families: &[Family {
        ours: "steersman-controllers",
        peers: &[],
    }],
    workloads: WORKLOADS,
    checks: &[],
    served: &[],
    same_objects: false,
    quick_note: None,
    omissions: &[],
};

const WORKLOADS: &[Workload] = &[
    workload("external-1000", 1, &[]),
    workload("external-1000-8w", 1, &[]),
    workload("external-1000-again", 1, &[]),
    // Finalizer and endpoint.
    workload("external-patch-clusters", 1, &[AtMost(2.0)]),
    // The condition Paused, and conditions and other status of two reconciles.
    workload("external-patch-clusters-status", 1, &[AtMost(5.0)]),
    // Owner reference and label.
    workload("external-patch-infrastructure", 1, &[AtMost(1.0)]),
    workload("external-create-events", 1, &[]),
    // Only until the kind of the infrastructure is in the cache.
    workload("external-get", 1, &[AtMost(0.05)]),
    // Discovery, lists and watches: once per kind, whatever the number of Clusters.
    workload("external-other", 1, &[AtMost(0.05)]),
    workload("external-calls", 1, &[]),
    workload("external-again-writes", 1, &[AtMost(0.0)]),
];
