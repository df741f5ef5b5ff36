//! The group `endpoint`: the endpoint controller with 1,000 control planes.
//!
//! It measures the time from the start of the manager until all endpoints are propagated, and the
//! calls per control plane. The embedded API server runs in the same process.

use super::groups::{Family, Group, Target::AtMost, Workload, workload};

pub(super) const GROUP: Group = Group {
    name: "endpoint",
    package: "steersman-controllers",
    bench: "endpoint",
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
    workload("endpoint-1000", 1, &[]),
    workload("endpoint-1000-8w", 1, &[]),
    workload("endpoint-1000-again", 1, &[]),
    // Writes: finalizer and endpoint, status, endpoint of the cluster. Reads come from the cache.
    workload("calls-patch-captcontrolplanes", 1, &[AtMost(2.0)]),
    workload("calls-patch-captcontrolplanes-status", 1, &[AtMost(1.0)]),
    workload("calls-patch-clusters", 1, &[AtMost(1.0)]),
    workload("calls-get", 1, &[AtMost(0.0)]),
    // Discovery, lists and watches: once per kind, whatever the number of control planes.
    workload("calls-other", 1, &[AtMost(0.02)]),
    workload("calls-again-writes", 1, &[AtMost(0.0)]),
];
