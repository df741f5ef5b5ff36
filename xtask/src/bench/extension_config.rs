//! The group `extension-config`: calls of a runtime extension on loopback.
//!
//! It measures hook calls per second, the latency that a call adds to the work of a handler, and the
//! discovery of 100 extensions. The extension server runs in the same process.

use super::groups::{Family, Group, Workload, workload};

pub(super) const GROUP: Group = Group {
    name: "extension-config",
    package: "steersman-controllers",
    bench: "extension-config",
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
    workload("hook-calls", 1, &[]),
    workload("hook-calls-8c", 1, &[]),
    workload("hook-latency-p50", 1, &[]),
    workload("hook-latency-p99", 1, &[]),
    workload("discover-100", 1, &[]),
    workload("discover-100-slow", 1, &[]),
];
