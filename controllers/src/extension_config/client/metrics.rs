//! Metrics of calls, under the names of Cluster API.

use super::url::ExtensionUrl;
use crate::extension_config::catalog::{GroupVersionHook, hooks::ResponseStatus};
use http::StatusCode;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        histogram::Histogram,
    },
    registry::Registry,
};
use tokio::time::Instant;

/// Upper bounds of the duration buckets, in seconds.
const BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];

/// Metrics of the calls of runtime clients. Clones share them.
///
/// | name | labels |
/// |---|---|
/// | `capi_runtime_sdk_requests_total` | `code`, `host`, `group`, `version`, `hook`, `status` |
/// | `capi_runtime_sdk_request_duration_seconds` | `host`, `group`, `version`, `hook` |
///
/// `code` is `<error>` if there is no response. `status` is `Unknown` if the status of the response
/// is neither `Success` nor `Failure`.
#[derive(Clone, Debug)]
pub struct RuntimeSdkMetrics {
    requests: Family<RequestLabels, Counter>,
    duration: Family<HookLabels, Histogram, Buckets>,
}

#[derive(Clone, Debug)]
struct Buckets;

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(BUCKETS)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    code: String,
    host: String,
    group: String,
    version: String,
    hook: String,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HookLabels {
    host: String,
    group: String,
    version: String,
    hook: String,
}

impl Default for RuntimeSdkMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            duration: Family::new_with_constructor(Buckets),
        }
    }
}

impl RuntimeSdkMetrics {
    /// Creates the metrics and registers them.
    ///
    /// To export them on the page of a manager, pass this function to `metrics` of its builder.
    pub fn register(registry: &mut Registry) -> Self {
        let this = Self::default();
        // The page adds the suffix `_total`.
        registry.register(
            "capi_runtime_sdk_requests",
            "Number of HTTP requests by status code, host, hook and response status",
            this.requests.clone(),
        );
        registry.register(
            "capi_runtime_sdk_request_duration_seconds",
            "Duration of HTTP requests by hook and host",
            this.duration.clone(),
        );
        this
    }

    /// Starts to observe a call.
    pub(super) fn observe(&self, url: &ExtensionUrl, hook: GroupVersionHook) -> Observation<'_> {
        Observation {
            metrics: self,
            host: url.authority().into(),
            hook,
            started: Instant::now(),
            sent: false,
            code: None,
            status: "Unknown",
        }
    }
}

/// Observes one call when it is dropped, so that cancelled calls count as well.
pub(super) struct Observation<'a> {
    metrics: &'a RuntimeSdkMetrics,
    host: String,
    hook: GroupVersionHook,
    started: Instant,
    sent: bool,
    code: Option<StatusCode>,
    status: &'static str,
}

impl Observation<'_> {
    /// Records that the request begins, with the opening of a connection if it needs one.
    pub(super) fn sent(&mut self) {
        self.sent = true;
    }

    /// Records the head of a response.
    pub(super) fn answered(&mut self, code: StatusCode) {
        self.code = Some(code);
    }

    /// Records the status in the body of a response.
    pub(super) fn decoded(&mut self, status: &ResponseStatus) {
        self.status = match status {
            ResponseStatus::Success => "Success",
            ResponseStatus::Failure => "Failure",
            // Bounds the number of label values, because an extension server can send any status.
            ResponseStatus::Other(_) | ResponseStatus::Missing => "Unknown",
        };
    }
}

impl Drop for Observation<'_> {
    fn drop(&mut self) {
        let GroupVersionHook {
            group,
            version,
            hook,
        } = self.hook.clone();
        let host = self.host.clone();
        let elapsed = self.started.elapsed();
        let labels = HookLabels {
            host,
            group,
            version,
            hook,
        };
        let duration = self.metrics.duration.get_or_create(&labels);
        duration.observe(elapsed.as_secs_f64());
        if !self.sent {
            return;
        }
        let HookLabels {
            host,
            group,
            version,
            hook,
        } = labels;
        let code = self.code.map(|code| code.as_str().to_owned());
        let labels = RequestLabels {
            code: code.unwrap_or_else(|| "<error>".into()),
            host,
            group,
            version,
            hook,
            status: self.status,
        };
        self.metrics.requests.get_or_create(&labels).inc();
    }
}
