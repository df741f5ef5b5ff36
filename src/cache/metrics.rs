//! Prometheus metrics of informers.
//!
//! The collector reads the cache at each scrape. So the values are consistent, and the series of a
//! stopped informer disappear.

use super::{Cache, InformerState, InformerStats, registry::WeakCache};
use crate::prometheus::{Named, Page};
use kube_core::GroupVersionKind;
use parking_lot::Mutex;
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

/// Prometheus collector of the informers of one or several caches.
///
/// The metrics have the labels `cluster`, `group`, `version`, `kind` and `scope`. `cluster` is
/// empty for the cache passed to [`new`](Self::new); Prometheus treats an empty label as missing.
/// `scope` is empty if the informer stores all objects of its kind. If several informers have the
/// same labels, a number is appended to the scope of all but one.
///
/// The collector does not keep caches alive. A clone shares its caches.
///
/// | metric | |
/// |---|---|
/// | `steersman_cache_objects` | objects in memory |
/// | `steersman_cache_bytes` | approximate memory of the objects |
/// | `steersman_cache_largest_object_bytes` | approximate memory of the largest object; missing if there are no objects |
/// | `steersman_cache_events_total` | changes |
/// | `steersman_cache_events_per_second` | changes per second, averaged over about the last minute |
/// | `steersman_cache_relists_total` | lists after the first |
/// | `steersman_cache_watch_restarts_total` | watches after the first |
/// | `steersman_cache_undecoded_objects` | objects whose current version does not decode |
/// | `steersman_cache_decode_errors_total` | received versions of objects that do not decode |
/// | `steersman_cache_index_errors_total` | received objects that an index omits |
/// | `steersman_cache_handler_behind` | events and objects that wait for the slowest handler; 0 without handlers |
/// | `steersman_cache_since_last_event_seconds` | time since the last change; missing before the first |
/// | `steersman_cache_since_heard_seconds` | time since the last message of the API server; missing before the first |
/// | `steersman_cache_own_writes_pending` | writes of clients that read from the informer, not observed yet |
/// | `steersman_cache_own_writes_total` | writes of clients that read from the informer |
/// | `steersman_cache_own_write_waits_total` | reads that waited for own writes |
/// | `steersman_cache_own_write_timeouts_total` | reads that timed out waiting for own writes |
/// | `steersman_cache_own_write_lag_seconds` | time from the response to the last own write until it was observed |
/// | `steersman_cache_own_write_longest_lag_seconds` | longest such time |
/// | `steersman_cache_synced` | 1 if the informer is [`Synced`](InformerState::Synced), 0 otherwise |
///
/// [`Informer::largest`](super::Informer::largest) returns the names of the largest objects. As
/// labels they would create an unbounded number of series.
///
/// ```
/// # async fn example(cache: steersman::cache::Cache) {
/// use prometheus_client::registry::Registry;
/// use steersman::cache::CacheMetrics;
///
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(CacheMetrics::new(&cache)));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CacheMetrics(Arc<Mutex<BTreeMap<String, WeakCache>>>);

impl CacheMetrics {
    /// Creates a collector of the informers of `cache`, including later ones.
    pub fn new(cache: &Cache) -> Self {
        let metrics = Self(Arc::default());
        metrics.watch("", cache);
        metrics
    }

    /// Adds the cache of another cluster, or replaces it.
    pub fn watch(&self, cluster: &str, cache: &Cache) {
        self.0.lock().insert(cluster.to_owned(), cache.downgrade());
    }

    /// Removes the cache of a cluster from all clones of this collector.
    pub fn forget(&self, cluster: &str) {
        self.0.lock().remove(cluster);
    }

    fn read(&self) -> Vec<Row> {
        let known: Vec<_> = self
            .0
            .lock()
            .iter()
            .map(|(cluster, cache)| (cluster.clone(), cache.upgrade()))
            .collect();
        let of_one = |(cluster, cache): (String, Option<Cache>)| {
            let informers = cache.map(|cache| cache.rows()).unwrap_or_default();
            informers.into_iter().map(move |row| Row {
                cluster: cluster.clone(),
                ..row
            })
        };
        let mut rows: Vec<_> = known.into_iter().flat_map(of_one).collect();
        make_unique(&mut rows);
        rows
    }
}

/// Appends a number to the scope of rows with equal labels.
///
/// Two informers have equal labels if they were declared before discovery reported that their
/// scopes are equivalent. Prometheus rejects a page with duplicate series.
fn make_unique(rows: &mut [Row]) {
    let mut seen = HashMap::new();
    for row in rows {
        let times: &mut u32 = seen.entry(row.labels()).or_default();
        *times += 1;
        if *times > 1 {
            let space = if row.scope.is_empty() { "" } else { " " };
            row.scope = format!("{}{space}({times})", row.scope);
        }
    }
}

/// State and counters of one informer.
pub(super) struct Row {
    pub(super) cluster: String,
    pub(super) gvk: GroupVersionKind,
    pub(super) scope: String,
    pub(super) state: InformerState,
    pub(super) stats: InformerStats,
    /// Approximate bytes of the largest object.
    pub(super) largest: Option<u64>,
}

impl Row {
    fn labels(&self) -> Vec<(&'static str, String)> {
        let GroupVersionKind {
            group,
            version,
            kind,
        } = self.gvk.clone();
        let (cluster, scope) = (self.cluster.clone(), self.scope.clone());
        vec![
            ("cluster", cluster),
            ("group", group),
            ("version", version),
            ("kind", kind),
            ("scope", scope),
        ]
    }
}

impl Collector for CacheMetrics {
    fn encode(&self, mut page: DescriptorEncoder) -> fmt::Result {
        let rows = self.read();
        if rows.is_empty() {
            Ok(())
        } else {
            write(&mut Page(&mut page), &rows)
        }
    }
}

fn write(page: &mut Page<'_, '_>, rows: &[Row]) -> fmt::Result {
    let mut counter = |named: Named, value: fn(&InformerStats) -> u64| {
        page.counters(
            named,
            rows.iter().map(|row| (row.labels(), value(&row.stats))),
        )
    };
    counter(("steersman_cache_events", "Number of events"), |stats| {
        stats.events
    })?;
    counter(
        (
            "steersman_cache_relists",
            "Number of lists after the first one",
        ),
        |stats| stats.relists,
    )?;
    counter(
        (
            "steersman_cache_watch_restarts",
            "Number of watches after the first one",
        ),
        |stats| stats.watch_restarts,
    )?;
    counter(
        (
            "steersman_cache_decode_errors",
            "Number of received objects that could not be decoded",
        ),
        |stats| stats.decode_errors,
    )?;
    counter(
        (
            "steersman_cache_index_errors",
            "Number of received objects that an index could not include",
        ),
        |stats| stats.index_errors,
    )?;
    counter(
        (
            "steersman_cache_own_writes",
            "Number of own writes, by clients that read from the cache",
        ),
        |stats| stats.own_writes.writes,
    )?;
    counter(
        (
            "steersman_cache_own_write_waits",
            "Number of reads that waited for own writes",
        ),
        |stats| stats.own_writes.waits,
    )?;
    counter(
        (
            "steersman_cache_own_write_timeouts",
            "Number of reads that timed out waiting for own writes",
        ),
        |stats| stats.own_writes.timeouts,
    )?;
    let mut gauge = |named: Named, value: fn(&Row) -> Option<f64>| {
        page.gauges(
            named,
            rows.iter()
                .filter_map(|row| Some((row.labels(), value(row)?))),
        )
    };
    gauge(
        ("steersman_cache_objects", "Number of cached objects"),
        |row| Some(row.stats.objects as f64),
    )?;
    gauge(
        (
            "steersman_cache_undecoded_objects",
            "Number of objects whose current state cannot be decoded",
        ),
        |row| Some(row.stats.undecoded as f64),
    )?;
    gauge(
        (
            "steersman_cache_bytes",
            "Estimated memory of all cached objects",
        ),
        |row| Some(row.stats.approximate_bytes as f64),
    )?;
    gauge(
        (
            "steersman_cache_largest_object_bytes",
            "Estimated memory of the largest cached object",
        ),
        |row| Some(row.largest? as f64),
    )?;
    gauge(
        (
            "steersman_cache_events_per_second",
            "Events per second, averaged over about a minute",
        ),
        |row| Some(row.stats.events_per_second),
    )?;
    gauge(
        (
            "steersman_cache_handler_behind",
            "Number of events that the slowest handler has not received yet",
        ),
        |row| {
            let behind = row
                .stats
                .handlers
                .iter()
                .map(|handler| handler.behind + handler.pending);
            Some(behind.max().unwrap_or_default() as f64)
        },
    )?;
    gauge(
        (
            "steersman_cache_since_last_event_seconds",
            "Time since the last event",
        ),
        |row| row.stats.since_last_event.map(|since| since.as_secs_f64()),
    )?;
    gauge(
        (
            "steersman_cache_since_heard_seconds",
            "Time since anything was received from the API server",
        ),
        |row| row.stats.since_heard.map(|since| since.as_secs_f64()),
    )?;
    gauge(
        (
            "steersman_cache_own_writes_pending",
            "Number of own writes that the cache has not observed yet",
        ),
        |row| Some(row.stats.own_writes.pending as f64),
    )?;
    gauge(
        (
            "steersman_cache_own_write_lag_seconds",
            "Time until the cache observed the last own write",
        ),
        |row| Some(row.stats.own_writes.last_lag.as_secs_f64()),
    )?;
    gauge(
        (
            "steersman_cache_own_write_longest_lag_seconds",
            "Longest time until the cache observed an own write",
        ),
        |row| Some(row.stats.own_writes.longest_lag.as_secs_f64()),
    )?;
    gauge(
        (
            "steersman_cache_synced",
            "Whether the informer is synced, 1 or 0",
        ),
        |row| Some(f64::from(u8::from(row.state == InformerState::Synced))),
    )
}
