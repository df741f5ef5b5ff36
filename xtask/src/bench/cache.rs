//! The group `cache`: memory, reads, handlers and sync of informers.
//!
//! Peers are client-go's store and informers, controller-runtime's reader and kube-runtime's
//! reflector.

use super::groups::{
    CLIENT_GO, CONTROLLER_RUNTIME, Family, Group, KUBE_RUNTIME, Peer, RustPeer,
    Target::{AtMost, AtMostOf, Ratio, RatioOf},
    Workload, workload,
};

const TYPED: &str = "steersman";
const COMPACT: &str = "steersman-compact";
const METADATA: &str = "steersman-metadata";

pub(super) const GROUP: Group = Group {
    name: "cache",
    package: "steersman",
    bench: "cache",
    go: Some("benches/peers/cache"),
    packages: &[RustPeer {
        package: "steersman-peer-kube-runtime",
        bin: "steersman-peer-kube-runtime-cache",
    }],
    families: &[
        Family {
            ours: TYPED,
            peers: &[
                Peer {
                    name: CLIENT_GO,
                    go: true,
                },
                Peer {
                    name: CONTROLLER_RUNTIME,
                    go: true,
                },
                Peer {
                    name: KUBE_RUNTIME,
                    go: false,
                },
                // The minimal implementation in our own executable, as a lower bound.
                Peer {
                    name: "floor",
                    go: false,
                },
            ],
        },
        Family {
            ours: COMPACT,
            peers: &[Peer {
                name: "client-go-unstructured",
                go: true,
            }],
        },
        Family {
            ours: METADATA,
            peers: &[],
        },
    ],
    workloads: WORKLOADS,
    checks: &[],
    served: &["ingest-event", "sync-100k-embedded", "sync-100k-real"],
    same_objects: true,
    quick_note: Some("quick: the sync rows use 10,000 objects, and ingest-event 20,000 events"),
    omissions: &[
        "controller-runtime is measured only for reads: its store, handlers and watches are client-go's",
        "steersman-metadata receives only metadata in ingest-event and the sync rows, less than the others",
    ],
};

/// An object has 3,798 bytes of JSON, 6,245 with managed fields.
const COMPACT_HEAP: f64 = 0.9 * 3798.0;

const WORKLOADS: &[Workload] = &[
    workload(
        "heap-per-object",
        3,
        &[
            // At most 0.7 times the heap of Go's typed objects.
            RatioOf {
                ours: COMPACT,
                peer: CLIENT_GO,
                least: 1.43,
            },
            RatioOf {
                ours: COMPACT,
                peer: KUBE_RUNTIME,
                least: 7.0,
            },
            AtMostOf(COMPACT, COMPACT_HEAP),
            AtMostOf(METADATA, 1000.0),
        ],
    ),
    // The limits are those without managed fields, which are dropped.
    workload(
        "heap-per-object-managed",
        3,
        &[AtMostOf(COMPACT, COMPACT_HEAP), AtMostOf(METADATA, 1000.0)],
    ),
    workload("heap-over-type", 1, &[AtMostOf(TYPED, 64.0)]),
    workload(
        "store-add-100k",
        8,
        &[Ratio(CLIENT_GO, 4.0), Ratio(KUBE_RUNTIME, 30.0)],
    ),
    workload(
        "store-update",
        1,
        &[Ratio(CLIENT_GO, 2.5), Ratio(KUBE_RUNTIME, 25.0)],
    ),
    workload("get", 8, &[Ratio(CONTROLLER_RUNTIME, 40.0)]),
    workload("get-2t", 1, &[AtMostOf(TYPED, 100.0)]),
    workload("list-100k", 10, &[AtMostOf(TYPED, 1000.0)]),
    // Returns owned objects. The target is for the view that `list-100k` measures.
    workload("list-100k-vec", 1, &[]),
    workload("list-label", 1, &[Ratio(CLIENT_GO, 2.0)]),
    workload("index-1000", 1, &[Ratio(CLIENT_GO, 10.0)]),
    workload("index-1000-vec", 1, &[]),
    workload("index-100", 1, &[Ratio(CLIENT_GO, 10.0)]),
    workload("index-100-vec", 1, &[]),
    workload("update-while-list-max", 8, &[AtMost(1000.0)]),
    workload("relist-stall-max", 10, &[AtMost(1000.0)]),
    workload("handlers-1", 2, &[Ratio(CLIENT_GO, 2.0)]),
    workload("handlers-4", 2, &[Ratio(CLIENT_GO, 4.0)]),
    workload("handlers-16", 2, &[Ratio(CLIENT_GO, 10.0)]),
    workload(
        "ingest-event",
        5,
        &[
            Ratio(CLIENT_GO, 5.0),
            RatioOf {
                ours: COMPACT,
                peer: CLIENT_GO,
                least: 20.0,
            },
            RatioOf {
                ours: COMPACT,
                peer: KUBE_RUNTIME,
                least: 4.0,
            },
        ],
    ),
    workload("sync-100k-embedded", 8, &[]),
    workload("sync-100k-real", 15, &[]),
];
