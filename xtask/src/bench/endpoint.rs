//! The endpoint's group: 1,000 control planes from the start of a manager to propagated, on the embedded server in the same process. Its calls are counted for each control plane.

use super::groups::{Family, Group, Target::AtMost, Workload, workload};

pub(super) const GROUP: Group = Group {
    name: "endpoint",
    package: "steersman-controllers",
    bench: "endpoint",
    go: None,
    packages: &[],
    families: &[Family { ours: "steersman-controllers", peers: &[] }],
    workloads: WORKLOADS,
    checks: &[],
    served: &[],
    same_objects: false,
    quick_says: None,
    left_out: &[],
};

const WORKLOADS: &[Workload] = &[
    workload("endpoint-1000", 1, &[]),
    workload("endpoint-1000-8w", 1, &[]),
    workload("endpoint-1000-again", 1, &[]),
    // The finalizer and the endpoint; what is said; the cluster's endpoint. All else is read from the cache.
    workload("calls-patch-captcontrolplanes", 1, &[AtMost(2.0)]),
    workload("calls-patch-captcontrolplanes-status", 1, &[AtMost(1.0)]),
    workload("calls-patch-clusters", 1, &[AtMost(1.0)]),
    workload("calls-get", 1, &[AtMost(0.0)]),
    // How watches begin, and discovery: once, however many there are.
    workload("calls-other", 1, &[AtMost(0.02)]),
    workload("calls-again-writes", 1, &[AtMost(0.0)]),
];
