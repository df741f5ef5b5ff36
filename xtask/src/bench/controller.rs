//! The group `controller`: from an event to the end of its reconcile.
//!
//! Peers are controller-runtime with both of its queues, and kube-rs's `Controller`.

use super::groups::{
    CONTROLLER_RUNTIME, Family, Group, KUBE_RUNTIME, Peer, RustPeer,
    Target::{AtLeast, AtMost, Ratio},
    Workload, workload,
};

const PLAIN: &str = "controller-runtime-plain";

pub(super) const GROUP: Group = Group {
    name: "controller",
    package: "steersman",
    bench: "controller",
    go: Some("benches/peers/controller"),
    packages: &[RustPeer {
        package: "steersman-peer-kube-runtime",
        bin: "steersman-peer-kube-runtime-controller",
    }],
    families: &[Family {
        ours: "steersman",
        peers: &[
            Peer {
                name: CONTROLLER_RUNTIME,
                go: true,
            },
            Peer {
                name: PLAIN,
                go: true,
            },
            Peer {
                name: KUBE_RUNTIME,
                go: false,
            },
        ],
    }],
    workloads: WORKLOADS,
    checks: &[],
    served: &["forbidden-neighbour"],
    same_objects: false,
    quick_note: Some("quick: forbidden-neighbour takes 10 seconds instead of 30"),
    omissions: &[
        "controller-runtime-plain has no forbidden-neighbour: the queue does not affect watches",
    ],
};

const WORKLOADS: &[Workload] = &[
    workload(
        "reconciles-1w",
        5,
        &[Ratio(CONTROLLER_RUNTIME, 10.0), Ratio(PLAIN, 4.0)],
    ),
    workload(
        "reconciles-8w",
        4,
        &[Ratio(CONTROLLER_RUNTIME, 10.0), Ratio(PLAIN, 4.0)],
    ),
    workload("latency-10k-p50", 3, &[]),
    workload("latency-10k-p99", 1, &[Ratio(CONTROLLER_RUNTIME, 8.0)]),
    workload("cpu-per-reconcile", 5, &[AtMost(4.0)]),
    // Idle, within the precision of the measurement.
    workload("sleeping-10k-cpu", 8, &[AtMost(1.0)]),
    // An object changes ten times per second. The time until the first list is included.
    workload("forbidden-neighbour", 20, &[AtLeast(9.5)]),
];
