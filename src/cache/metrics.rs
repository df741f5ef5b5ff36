//! Informers on a Prometheus page.
//!
//! Nothing is pushed: the cache is read when the page is asked for. So numbers fit each other, and the series of an informer that is gone are gone.

use super::{Cache, InformerState, InformerStats, registry::WeakCache};
use crate::page::{Named, Page};
use kube_core::GroupVersionKind;
use parking_lot::Mutex;
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

/// The informers of caches as metrics, labelled `cluster`, `group`, `version`, `kind` and `scope`. `cluster` is empty, which to Prometheus is no label at all, for
/// the one that it was made with; `scope`, where an informer keeps all objects of its kind. Where several keep the same, the scope of all but one ends in a number. It
/// does not keep caches alive. A clone shares them.
///
/// | metric | |
/// |---|---|
/// | `steersman_cache_objects` | objects in memory |
/// | `steersman_cache_bytes` | about how much memory they take |
/// | `steersman_cache_largest_object_bytes` | about how much of it the largest one takes; absent if there is none |
/// | `steersman_cache_events_total` | changes |
/// | `steersman_cache_events_per_second` | changes a second, of about the last minute |
/// | `steersman_cache_relists_total` | lists after the first |
/// | `steersman_cache_watch_restarts_total` | watches after the first |
/// | `steersman_cache_undecoded_objects` | objects that do not decode now |
/// | `steersman_cache_decode_errors_total` | objects that did not fit their type, each time they came |
/// | `steersman_cache_index_errors_total` | objects that an index left out, each time they came |
/// | `steersman_cache_handler_behind` | events and objects that the slowest of its handlers has still to be told; 0 without handlers |
/// | `steersman_cache_since_last_event_seconds` | since something changed; absent before that |
/// | `steersman_cache_since_heard_seconds` | since the server said anything; absent before that |
/// | `steersman_cache_own_writes_pending` | writes of clients that read from it, not shown yet |
/// | `steersman_cache_own_writes_total` | those writes |
/// | `steersman_cache_own_write_waits_total` | reads that waited for some |
/// | `steersman_cache_own_write_timeouts_total` | reads that waited in vain |
/// | `steersman_cache_own_write_lag_seconds` | from the answer to a write until it was shown, of the last one |
/// | `steersman_cache_own_write_longest_lag_seconds` | the same, of the slowest so far |
/// | `steersman_cache_synced` | 1 if it is [`Synced`](InformerState::Synced), 0 otherwise |
///
/// Which the largest objects are, [`Informer::largest`](super::Informer::largest) says: as labels their names would be series without end.
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
    /// Of this cache, and all informers it will ever have.
    pub fn new(cache: &Cache) -> Self {
        let metrics = Self(Arc::default());
        metrics.watch("", cache);
        metrics
    }

    /// Show another cluster's, too.
    pub fn watch(&self, cluster: &str, cache: &Cache) {
        self.0.lock().insert(cluster.to_owned(), cache.downgrade());
    }

    /// Do not show it any longer, whoever has it.
    pub fn forget(&self, cluster: &str) {
        self.0.lock().remove(cluster);
    }

    fn read(&self) -> Vec<Row> {
        let known: Vec<_> = self.0.lock().iter().map(|(cluster, cache)| (cluster.clone(), cache.upgrade())).collect();
        let of_one = |(cluster, cache): (String, Option<Cache>)| {
            let informers = cache.map(|cache| cache.rows()).unwrap_or_default();
            informers.into_iter().map(move |row| Row { cluster: cluster.clone(), ..row })
        };
        let mut rows: Vec<_> = known.into_iter().flat_map(of_one).collect();
        tell_apart(&mut rows);
        rows
    }
}

/// Two informers can be of the same, if they were declared before that was known. A page on which a series is twice is refused as a whole.
fn tell_apart(rows: &mut [Row]) {
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

/// One informer on the page.
pub(super) struct Row {
    pub(super) cluster: String,
    pub(super) gvk: GroupVersionKind,
    pub(super) scope: String,
    pub(super) state: InformerState,
    pub(super) stats: InformerStats,
    /// How large its largest object is.
    pub(super) largest: Option<u64>,
}

impl Row {
    fn labels(&self) -> Vec<(&'static str, String)> {
        let GroupVersionKind { group, version, kind } = self.gvk.clone();
        let (cluster, scope) = (self.cluster.clone(), self.scope.clone());
        vec![("cluster", cluster), ("group", group), ("version", version), ("kind", kind), ("scope", scope)]
    }
}

impl Collector for CacheMetrics {
    fn encode(&self, mut page: DescriptorEncoder) -> fmt::Result {
        let rows = self.read();
        if rows.is_empty() { Ok(()) } else { write(&mut Page(&mut page), &rows) }
    }
}

fn write(page: &mut Page<'_, '_>, rows: &[Row]) -> fmt::Result {
    let mut counter = |named: Named, value: fn(&InformerStats) -> u64| {
        page.counters(named, rows.iter().map(|row| (row.labels(), value(&row.stats))))
    };
    counter(("steersman_cache_events", "Changes"), |stats| stats.events)?;
    counter(("steersman_cache_relists", "Lists after the first"), |stats| stats.relists)?;
    counter(("steersman_cache_watch_restarts", "Watches after the first"), |stats| stats.watch_restarts)?;
    counter(("steersman_cache_decode_errors", "Objects that did not fit their type, each time they came"), |stats| {
        stats.decode_errors
    })?;
    counter(("steersman_cache_index_errors", "Objects that an index left out, each time they came"), |stats| {
        stats.index_errors
    })?;
    counter(("steersman_cache_own_writes", "Writes of clients that read from it"), |stats| stats.own_writes.writes)?;
    counter(("steersman_cache_own_write_waits", "Reads that waited for own writes"), |stats| stats.own_writes.waits)?;
    counter(("steersman_cache_own_write_timeouts", "Reads that waited for own writes in vain"), |stats| {
        stats.own_writes.timeouts
    })?;
    let mut gauge = |named: Named, value: fn(&Row) -> Option<f64>| {
        page.gauges(named, rows.iter().filter_map(|row| Some((row.labels(), value(row)?))))
    };
    gauge(("steersman_cache_objects", "Objects in memory"), |row| Some(row.stats.objects as f64))?;
    gauge(("steersman_cache_undecoded_objects", "Objects that do not decode now"), |row| {
        Some(row.stats.undecoded as f64)
    })?;
    gauge(("steersman_cache_bytes", "About how much memory the objects take"), |row| {
        Some(row.stats.approximate_bytes as f64)
    })?;
    gauge(("steersman_cache_largest_object_bytes", "About how much memory the largest object takes"), |row| {
        Some(row.largest? as f64)
    })?;
    gauge(("steersman_cache_events_per_second", "Changes a second, of about the last minute"), |row| {
        Some(row.stats.events_per_second)
    })?;
    gauge(("steersman_cache_handler_behind", "What the slowest handler has still to be told"), |row| {
        let behind = row.stats.handlers.iter().map(|handler| handler.behind + handler.pending);
        Some(behind.max().unwrap_or_default() as f64)
    })?;
    gauge(("steersman_cache_since_last_event_seconds", "Since something changed"), |row| {
        row.stats.since_last_event.map(|since| since.as_secs_f64())
    })?;
    gauge(("steersman_cache_since_heard_seconds", "Since the server said anything"), |row| {
        row.stats.since_heard.map(|since| since.as_secs_f64())
    })?;
    gauge(("steersman_cache_own_writes_pending", "Own writes that are not shown yet"), |row| {
        Some(row.stats.own_writes.pending as f64)
    })?;
    gauge(("steersman_cache_own_write_lag_seconds", "Until the last own write was shown"), |row| {
        Some(row.stats.own_writes.last_lag.as_secs_f64())
    })?;
    gauge(("steersman_cache_own_write_longest_lag_seconds", "Until an own write was shown, at the longest"), |row| {
        Some(row.stats.own_writes.longest_lag.as_secs_f64())
    })?;
    gauge(("steersman_cache_synced", "Whether it is up to date, as far as the server has told"), |row| {
        Some(f64::from(u8::from(row.state == InformerState::Synced)))
    })
}
