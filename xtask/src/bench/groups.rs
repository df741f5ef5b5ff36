//! The groups of workloads, with their implementations and targets.
//!
//! A target is a ratio to a peer in the same run, or a limit.

use super::{cache, controller, endpoint, extension_config, external};

/// Workloads that one table shows together.
pub(super) struct Group {
    pub(super) name: &'static str,
    /// Package of our implementations.
    pub(super) package: &'static str,
    /// Cargo bench target of our implementations.
    pub(super) bench: &'static str,
    /// Directory of the Go module with peers.
    pub(super) go: Option<&'static str>,
    /// Rust executables with peers.
    pub(super) packages: &'static [RustPeer],
    /// Our implementations with the peers that each is compared with.
    pub(super) families: &'static [Family],
    /// Workloads in the order of the table. Others that the executables list follow, without
    /// targets.
    pub(super) workloads: &'static [Workload],
    pub(super) checks: &'static [Check],
    /// Workloads that need a server, which our executable provides.
    pub(super) served: &'static [&'static str],
    /// Whether all executables must use the same objects, which `--objects` checks.
    pub(super) same_objects: bool,
    /// Note about workloads that are smaller in a quick run than their names state.
    pub(super) quick_note: Option<&'static str>,
    /// Notes about pairs that are not measured, with the reason.
    pub(super) omissions: &'static [&'static str],
}

pub(super) struct RustPeer {
    pub(super) package: &'static str,
    pub(super) bin: &'static str,
}

/// One of our implementations, with the peers that have the same features, such as metrics.
pub(super) struct Family {
    pub(super) ours: &'static str,
    pub(super) peers: &'static [Peer],
}

pub(super) struct Peer {
    pub(super) name: &'static str,
    /// Whether the peer is written in Go.
    pub(super) go: bool,
}

pub(super) struct Workload {
    pub(super) name: &'static str,
    /// Duration relative to the other workloads.
    pub(super) weight: u32,
    pub(super) targets: &'static [Target],
}

#[derive(Clone, Copy)]
pub(super) enum Target {
    /// Minimum ratio to a peer, for the implementation of its family.
    Ratio(&'static str, f64),
    /// Minimum ratio to a peer, for an implementation of another family.
    RatioOf {
        ours: &'static str,
        peer: &'static str,
        least: f64,
    },
    /// Maximum for all of our implementations, in the unit of the row.
    AtMost(f64),
    /// Minimum for all of our implementations, in the unit of the row.
    AtLeast(f64),
    /// Maximum for one of our implementations, in the unit of the row.
    AtMostOf(&'static str, f64),
}

/// A target that compares workloads or implementations.
pub(super) enum Check {
    /// Maximum cost of a workload, as a multiple of that of a smaller one.
    Growth {
        from: &'static str,
        to: &'static str,
        at_most: f64,
    },
    /// Maximum extra cost per item, in ns, of one of our implementations over another. The value is
    /// the median of all workloads.
    Extra {
        plain: &'static str,
        with: &'static str,
        at_most: f64,
    },
}

pub(super) const CLIENT_GO: &str = "client-go";
const CLIENT_GO_PROM: &str = "client-go+prom";
pub(super) const CONTROLLER_RUNTIME: &str = "controller-runtime";
const CONTROLLER_RUNTIME_PROM: &str = "controller-runtime+prom";
pub(super) const KUBE_RUNTIME: &str = "kube-runtime";

pub(super) const GROUPS: &[Group] = &[
    QUEUE_GROUP,
    APISERVER_GROUP,
    cache::GROUP,
    controller::GROUP,
    endpoint::GROUP,
    extension_config::GROUP,
    external::GROUP,
];

const APISERVER_GROUP: Group = Group {
    name: "apiserver",
    package: "steersman-apiserver",
    bench: "apiserver",
    go: None,
    packages: &[],
    families: &[Family {
        ours: "steersman-apiserver",
        peers: &[],
    }],
    workloads: &[
        workload("ready", 1, &[Target::AtMost(5000.0)]),
        workload("create-100k", 5, &[Target::AtMost(40.0)]),
        workload("get-100k", 1, &[Target::AtMost(10.0)]),
        workload("update-100k", 1, &[]),
        workload("list-500-of-100k", 1, &[]),
        workload("watch-100-event", 5, &[Target::AtMost(10.0)]),
        workload("watch-1-event", 1, &[]),
        // 10 µs for each of the 100 watchers.
        workload("watch-100-latency", 1, &[Target::AtMost(1000.0)]),
        workload("memory-100k", 5, &[Target::AtMost(150.0)]),
    ],
    checks: &[],
    served: &[],
    same_objects: false,
    quick_note: None,
    omissions: &[],
};

const QUEUE_GROUP: Group = Group {
    name: "queue",
    package: "steersman",
    bench: "queue",
    go: Some("benches/peers"),
    packages: &[RustPeer {
        package: "steersman-peer-kube-runtime",
        bin: "steersman-peer-kube-runtime",
    }],
    families: &[
        Family {
            ours: "steersman",
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
            ours: "steersman+metrics",
            peers: &[
                Peer {
                    name: CLIENT_GO_PROM,
                    go: true,
                },
                Peer {
                    name: CONTROLLER_RUNTIME_PROM,
                    go: true,
                },
            ],
        },
    ],
    workloads: QUEUE,
    checks: &[
        Check::Growth {
            from: "filldrain-1k",
            to: "filldrain-1m",
            at_most: 4.0,
        },
        Check::Extra {
            plain: "steersman",
            with: "steersman+metrics",
            at_most: 60.0,
        },
    ],
    served: &[],
    same_objects: false,
    quick_note: Some(
        "quick: the bytes rows use 250,000 keys instead of a million, and lateness 100 instead of 200",
    ),
    omissions: &[],
};

const QUEUE: &[Workload] = &[
    workload(
        "steady",
        1,
        &[
            Target::Ratio(CLIENT_GO, 2.0),
            Target::Ratio(CLIENT_GO_PROM, 5.0),
            Target::Ratio(CONTROLLER_RUNTIME_PROM, 20.0),
        ],
    ),
    workload(
        "filldrain-1k",
        1,
        &[
            Target::Ratio(CLIENT_GO, 3.0),
            Target::Ratio(CLIENT_GO_PROM, 8.0),
            Target::Ratio(CONTROLLER_RUNTIME_PROM, 25.0),
        ],
    ),
    workload(
        "filldrain-100k",
        1,
        &[
            Target::Ratio(CLIENT_GO, 4.0),
            Target::Ratio(CLIENT_GO_PROM, 10.0),
            Target::Ratio(CONTROLLER_RUNTIME_PROM, 25.0),
            Target::Ratio(KUBE_RUNTIME, 8.0),
        ],
    ),
    workload(
        "filldrain-1m",
        6,
        &[
            Target::Ratio(CLIENT_GO, 4.0),
            Target::Ratio(CLIENT_GO_PROM, 9.0),
            Target::Ratio(CONTROLLER_RUNTIME_PROM, 18.0),
        ],
    ),
    workload(
        "mpmc-1p1w",
        1,
        &[
            Target::Ratio(CLIENT_GO, 2.5),
            Target::Ratio(CLIENT_GO_PROM, 6.0),
            Target::Ratio(CONTROLLER_RUNTIME, 9.0),
        ],
    ),
    workload(
        "mpmc-8p8w",
        1,
        &[
            Target::Ratio(CLIENT_GO, 3.0),
            Target::Ratio(CLIENT_GO_PROM, 6.0),
            Target::Ratio(CONTROLLER_RUNTIME, 10.0),
        ],
    ),
    workload(
        "mpmc-64p64w",
        1,
        &[
            Target::Ratio(CLIENT_GO, 3.0),
            Target::Ratio(CLIENT_GO_PROM, 5.0),
            Target::Ratio(CONTROLLER_RUNTIME, 8.0),
        ],
    ),
    workload(
        "mpmc-1p64w",
        1,
        &[
            Target::Ratio(CLIENT_GO, 2.5),
            Target::Ratio(CONTROLLER_RUNTIME, 8.0),
        ],
    ),
    workload(
        "dedup-1m",
        1,
        &[
            Target::Ratio(CLIENT_GO, 1.5),
            Target::Ratio(CONTROLLER_RUNTIME, 15.0),
        ],
    ),
    workload(
        "add-after-1m",
        5,
        &[
            Target::Ratio(CLIENT_GO, 4.0),
            Target::Ratio(CONTROLLER_RUNTIME, 10.0),
        ],
    ),
    workload("add-after-lateness-p50", 1, &[]),
    workload("add-after-lateness-p99", 1, &[Target::AtMost(2000.0)]),
    workload("fire-100k-p50", 3, &[]),
    // At most twice the time of client-go.
    workload("fire-100k-p99", 1, &[Target::Ratio(CLIENT_GO, 0.5)]),
    workload(
        "rate-limited-1m",
        6,
        &[
            Target::Ratio(CLIENT_GO, 5.0),
            Target::Ratio(CONTROLLER_RUNTIME, 12.0),
        ],
    ),
    workload(
        "priorities-100k",
        1,
        &[Target::Ratio(CONTROLLER_RUNTIME_PROM, 12.0)],
    ),
    workload("latency-10k-p50", 2, &[]),
    workload("latency-10k-p99", 1, &[Target::Ratio(CLIENT_GO, 2.0)]),
    workload("latency-100k-p99", 2, &[Target::Ratio(CLIENT_GO, 2.0)]),
    workload("cpu-10k", 3, &[Target::Ratio(CLIENT_GO, 2.0)]),
    workload("bytes-ready", 5, &[Target::AtMost(100.0)]),
    workload("bytes-delayed", 7, &[Target::AtMost(110.0)]),
    workload("bytes-limited", 7, &[Target::AtMost(110.0)]),
    workload("snapshot-1m-wait-p99", 5, &[Target::AtMost(200.0)]),
    workload("snapshot-1m-wait-max", 1, &[]),
];

pub(super) const fn workload(
    name: &'static str,
    weight: u32,
    targets: &'static [Target],
) -> Workload {
    Workload {
        name,
        weight,
        targets,
    }
}

impl Group {
    /// Returns all implementations in the order of the table.
    pub(super) fn implementations(&self) -> impl Iterator<Item = &'static str> {
        self.families.iter().flat_map(|family| {
            std::iter::once(family.ours).chain(family.peers.iter().map(|peer| peer.name))
        })
    }

    /// Returns our implementation that `peer` is compared with.
    pub(super) fn ours_for(&self, peer: &str) -> Option<&'static str> {
        let family = self
            .families
            .iter()
            .find(|family| family.peers.iter().any(|known| known.name == peer))?;
        Some(family.ours)
    }

    pub(super) fn workload(&self, name: &str) -> Option<&'static Workload> {
        self.workloads.iter().find(|known| known.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, fs, path::Path};

    /// Rows that consumers of reports depend on.
    const FIXED: &str = "steady filldrain-1k filldrain-100k filldrain-1m mpmc-1p1w mpmc-8p8w mpmc-64p64w mpmc-1p64w dedup-1m \
        add-after-1m add-after-lateness-p50 add-after-lateness-p99 rate-limited-1m priorities-100k latency-10k-p50 latency-10k-p99 \
        latency-100k-p99 bytes-ready bytes-delayed bytes-limited";

    #[test]
    fn the_queue_group_has_the_rows_that_reports_depend_on() {
        for fixed in FIXED.split_whitespace() {
            assert!(QUEUE_GROUP.workload(fixed).is_some(), "{fixed}");
        }
        let ours: Vec<&str> = QUEUE_GROUP
            .families
            .iter()
            .map(|family| family.ours)
            .collect();
        assert_eq!(ours, ["steersman", "steersman+metrics"]);
    }

    /// Searches the sources, because building the bench to run `--list` takes minutes.
    #[test]
    fn the_queue_bench_has_the_workloads_of_its_group() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/queue");
        let files = fs::read_dir(folder)
            .unwrap()
            .map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
        let sources: String = files.collect();
        let lists = sources
            .split("names: &[")
            .skip(1)
            .chain(sources.split("workload(&[").skip(1));
        let offered: BTreeSet<&str> = lists
            .filter_map(|list| list.split_once(']'))
            .flat_map(|(list, _)| list.split(','))
            .map(|name| name.trim().trim_matches('"'))
            .collect();
        let table: BTreeSet<&str> = QUEUE_GROUP
            .workloads
            .iter()
            .map(|workload| workload.name)
            .collect();
        assert_eq!(offered, table);
        for family in QUEUE_GROUP.families {
            assert!(
                sources.contains(&format!("&str = \"{}\";", family.ours)),
                "{}",
                family.ours
            );
        }
    }

    #[test]
    fn targets_and_checks_name_existing_implementations_and_workloads() {
        for group in GROUPS {
            for workload in group.workloads {
                for target in workload.targets {
                    let named: &[&str] = match target {
                        Target::Ratio(peer, _) => &[peer],
                        Target::RatioOf { ours, peer, .. } => &[ours, peer],
                        Target::AtMostOf(ours, _) => &[ours],
                        Target::AtMost(_) | Target::AtLeast(_) => &[],
                    };
                    let known = |name: &&str| group.implementations().any(|known| known == *name);
                    assert!(named.iter().all(known), "{}: {named:?}", workload.name);
                }
            }
            assert!(
                group
                    .served
                    .iter()
                    .all(|name| group.workload(name).is_some())
            );
            let names: Vec<&str> = group
                .workloads
                .iter()
                .map(|workload| workload.name)
                .collect();
            for check in group.checks {
                match check {
                    Check::Growth { from, to, .. } => {
                        assert!(names.contains(from) && names.contains(to));
                    }
                    Check::Extra { plain, with, .. } => {
                        let ours: Vec<&str> =
                            group.families.iter().map(|family| family.ours).collect();
                        assert!(ours.contains(plain) && ours.contains(with));
                    }
                }
            }
        }
    }
}
