//! What the controller counts. No label has anything of an endpoint in it.

use super::sources::Origin;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use std::{
    sync::atomic::AtomicU64,
    time::{Duration, SystemTime},
};
use steersman::object::ObjectKey;

type Counters<L> = Family<L, Counter>;

/// Clones share the numbers.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    retrieved: Counters<[(&'static str, &'static str); 2]>,
    took: Family<[(&'static str, &'static str); 1], Histogram, Buckets>,
    propagated: Counters<[(&'static str, &'static str); 2]>,
    memo: Counters<[(&'static str, &'static str); 1]>,
    pub(super) retries: Counter,
    changed: Family<Plane, Gauge<f64, AtomicU64>>,
    healthy: Family<Plane, Gauge>,
}

#[derive(Clone, Debug)]
struct Buckets;

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(exponential_buckets(0.0001, 4.0, 10))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Plane {
    namespace: String,
    name: String,
}

impl Plane {
    fn of(key: &ObjectKey) -> Self {
        Self { namespace: key.namespace().unwrap_or_default().into(), name: key.name().into() }
    }
}

/// How a retrieval ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Success,
    Missing,
    Invalid,
    Error,
}

impl End {
    fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Missing => "missing",
            Self::Invalid => "invalid",
            Self::Error => "error",
        }
    }
}

impl Metrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let this = Self {
            retrieved: Family::default(),
            took: Family::new_with_constructor(Buckets),
            propagated: Family::default(),
            memo: Family::default(),
            retries: Counter::default(),
            changed: Family::default(),
            healthy: Family::default(),
        };
        registry.register("capt_endpoint_retrieval", "Looks for an endpoint", this.retrieved.clone());
        registry.register("capt_endpoint_retrieval_duration_seconds", "How long they took", this.took.clone());
        registry.register("capt_endpoint_propagation", "Endpoints written", this.propagated.clone());
        registry.register("capt_endpoint_cache", "Endpoints known from before", this.memo.clone());
        registry.register("capt_endpoint_retries", "Writes tried again after a conflict", this.retries.clone());
        let help = "When the endpoint of a control plane was written last";
        registry.register("capt_endpoint_last_change_timestamp_seconds", help, this.changed.clone());
        registry.register("capt_endpoint_healthy", "Whether somebody answers there, 1 or 0", this.healthy.clone());
        this
    }

    pub(super) fn retrieved(&self, origin: Option<Origin>, end: End, took: Duration) {
        let source = origin.map_or("none", Origin::label);
        self.retrieved.get_or_create(&[("source", source), ("result", end.label())]).inc();
        self.took.get_or_create(&[("source", source)]).observe(took.as_secs_f64());
    }

    pub(super) fn propagated(&self, target: &'static str, written: bool) {
        let result = if written { "success" } else { "error" };
        self.propagated.get_or_create(&[("target", target), ("result", result)]).inc();
    }

    pub(super) fn known(&self, hit: bool) {
        self.memo.get_or_create(&[("result", if hit { "hit" } else { "miss" })]).inc();
    }

    pub(super) fn changed(&self, plane: &ObjectKey) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.changed.get_or_create(&Plane::of(plane)).set(now.as_secs_f64());
    }

    /// `None` if it is not known.
    pub(super) fn healthy(&self, plane: &ObjectKey, healthy: Option<bool>) {
        let plane = Plane::of(plane);
        match healthy {
            Some(healthy) => drop(self.healthy.get_or_create(&plane).set(healthy.into())),
            None => drop(self.healthy.remove(&plane)),
        }
    }

    /// The control plane is gone.
    pub(super) fn forget(&self, plane: &ObjectKey) {
        self.changed.remove(&Plane::of(plane));
    }
}
