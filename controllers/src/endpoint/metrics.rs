//! Metrics of the controller. No label contains a part of an endpoint.

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

/// Metrics of the controller. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    retrieved: Counters<[(&'static str, &'static str); 2]>,
    took: Family<[(&'static str, &'static str); 1], Histogram, Buckets>,
    propagated: Counters<[(&'static str, &'static str); 2]>,
    source_cache: Counters<[(&'static str, &'static str); 1]>,
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
        Self {
            namespace: key.namespace().unwrap_or_default().into(),
            name: key.name().into(),
        }
    }
}

/// Result of a retrieval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetrievalResult {
    Success,
    Missing,
    Invalid,
    Error,
}

impl RetrievalResult {
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
            source_cache: Family::default(),
            retries: Counter::default(),
            changed: Family::default(),
            healthy: Family::default(),
        };
        registry.register(
            "capt_endpoint_retrieval",
            "Number of retrievals of an endpoint",
            this.retrieved.clone(),
        );
        registry.register(
            "capt_endpoint_retrieval_duration_seconds",
            "Duration of retrievals",
            this.took.clone(),
        );
        registry.register(
            "capt_endpoint_propagation",
            "Number of endpoints that were written",
            this.propagated.clone(),
        );
        registry.register(
            "capt_endpoint_cache",
            "Number of endpoints that were found in the cache",
            this.source_cache.clone(),
        );
        registry.register(
            "capt_endpoint_retries",
            "Number of writes retried after a conflict",
            this.retries.clone(),
        );
        let help = "Time of the last write of the endpoint of a control plane";
        registry.register(
            "capt_endpoint_last_change_timestamp_seconds",
            help,
            this.changed.clone(),
        );
        registry.register(
            "capt_endpoint_healthy",
            "Whether the endpoint responds, 1 or 0",
            this.healthy.clone(),
        );
        this
    }

    pub(super) fn retrieved(&self, origin: Option<Origin>, end: RetrievalResult, took: Duration) {
        let source = origin.map_or("none", Origin::label);
        self.retrieved
            .get_or_create(&[("source", source), ("result", end.label())])
            .inc();
        self.took
            .get_or_create(&[("source", source)])
            .observe(took.as_secs_f64());
    }

    pub(super) fn propagated(&self, target: &'static str, written: bool) {
        let result = if written { "success" } else { "error" };
        self.propagated
            .get_or_create(&[("target", target), ("result", result)])
            .inc();
    }

    pub(super) fn known(&self, hit: bool) {
        self.source_cache
            .get_or_create(&[("result", if hit { "hit" } else { "miss" })])
            .inc();
    }

    pub(super) fn changed(&self, plane: &ObjectKey) {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        self.changed
            .get_or_create(&Plane::of(plane))
            .set(now.as_secs_f64());
    }

    /// Sets whether the endpoint is healthy; `None` removes the metric.
    pub(super) fn healthy(&self, plane: &ObjectKey, healthy: Option<bool>) {
        let plane = Plane::of(plane);
        match healthy {
            Some(healthy) => drop(self.healthy.get_or_create(&plane).set(healthy.into())),
            None => drop(self.healthy.remove(&plane)),
        }
    }

    /// Removes the metrics of a deleted control plane.
    pub(super) fn forget(&self, plane: &ObjectKey) {
        self.changed.remove(&Plane::of(plane));
    }
}
