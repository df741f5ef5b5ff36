//! Informers on a Prometheus page.
//!
//! Nothing is pushed: the cache is read when the page is asked for. So numbers fit each other, and the series of an informer that is gone are gone.

use super::{Cache, InformerState, InformerStats, registry::WeakCache};
use kube_core::GroupVersionKind;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet},
    metrics::MetricType,
};
use std::fmt;

/// A cache's informers as metrics, labelled `group`, `version`, `kind` and `scope`; the last is empty, which to Prometheus is no label at all, where an
/// informer keeps all objects of its kind. It does not keep the cache alive.
///
/// | metric | |
/// |---|---|
/// | `steersman_cache_objects` | objects in memory |
/// | `steersman_cache_bytes` | about how much memory they take |
/// | `steersman_cache_events_total` | changes |
/// | `steersman_cache_relists_total` | lists after the first |
/// | `steersman_cache_watch_restarts_total` | watches after the first |
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
/// | `steersman_cache_synced` | 1 if it is [`Synced`](InformerState::Synced), 0 otherwise |
///
/// Events per second are `rate(steersman_cache_events_total[1m])`. The largest objects are not here, since finding them looks at every one: see
/// [`Informer::largest`](super::Informer::largest).
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
#[derive(Debug)]
pub struct CacheMetrics(WeakCache);

impl CacheMetrics {
    /// Of this cache, and all informers it will ever have.
    pub fn new(cache: &Cache) -> Self {
        Self(cache.downgrade())
    }
}

/// One informer on the page.
pub(super) struct Row {
    pub(super) gvk: GroupVersionKind,
    pub(super) scope: String,
    pub(super) state: InformerState,
    pub(super) stats: InformerStats,
}

/// A metric's name without what the encoder adds to it, and its help.
type Named = (&'static str, &'static str);

impl Collector for CacheMetrics {
    fn encode(&self, page: DescriptorEncoder) -> fmt::Result {
        let rows = self.0.upgrade().map(|cache| cache.rows()).unwrap_or_default();
        if rows.is_empty() { Ok(()) } else { Page { page, rows: &rows }.write() }
    }
}

struct Page<'a, 'b> {
    page: DescriptorEncoder<'a>,
    rows: &'b [Row],
}

impl Page<'_, '_> {
    fn write(mut self) -> fmt::Result {
        let always = |value: f64| Some(value);
        self.gauge(("steersman_cache_objects", "Objects in memory"), |row| always(row.stats.objects as f64))?;
        self.gauge(("steersman_cache_bytes", "About how much memory the objects take"), |row| {
            always(row.stats.approximate_bytes as f64)
        })?;
        self.counter(("steersman_cache_events", "Changes"), |stats| stats.events)?;
        self.counter(("steersman_cache_relists", "Lists after the first"), |stats| stats.relists)?;
        self.counter(("steersman_cache_watch_restarts", "Watches after the first"), |stats| stats.watch_restarts)?;
        self.counter(
            ("steersman_cache_decode_errors", "Objects that did not fit their type, each time they came"),
            |stats| stats.decode_errors,
        )?;
        self.counter(
            ("steersman_cache_index_errors", "Objects that an index left out, each time they came"),
            |stats| stats.index_errors,
        )?;
        self.gauge(("steersman_cache_handler_behind", "What the slowest handler has still to be told"), |row| {
            let behind = row.stats.handlers.iter().map(|handler| handler.behind + handler.pending);
            always(behind.max().unwrap_or_default() as f64)
        })?;
        self.gauge(("steersman_cache_since_last_event_seconds", "Since something changed"), |row| {
            row.stats.since_last_event.map(|since| since.as_secs_f64())
        })?;
        self.gauge(("steersman_cache_since_heard_seconds", "Since the server said anything"), |row| {
            row.stats.since_heard.map(|since| since.as_secs_f64())
        })?;
        self.gauge(("steersman_cache_own_writes_pending", "Own writes that are not shown yet"), |row| {
            always(row.stats.own_writes.pending as f64)
        })?;
        self.counter(("steersman_cache_own_writes", "Writes of clients that read from it"), |stats| {
            stats.own_writes.writes
        })?;
        self.counter(("steersman_cache_own_write_waits", "Reads that waited for own writes"), |stats| {
            stats.own_writes.waits
        })?;
        self.counter(("steersman_cache_own_write_timeouts", "Reads that waited for own writes in vain"), |stats| {
            stats.own_writes.timeouts
        })?;
        self.gauge(("steersman_cache_own_write_lag_seconds", "Until the last own write was shown"), |row| {
            always(row.stats.own_writes.last_lag.as_secs_f64())
        })?;
        self.gauge(("steersman_cache_synced", "Whether it is up to date, as far as the server has told"), |row| {
            always(f64::from(u8::from(row.state == InformerState::Synced)))
        })
    }

    fn gauge(&mut self, named: Named, value: impl Fn(&Row) -> Option<f64>) -> fmt::Result {
        self.family(named, MetricType::Gauge, |row, metric| match value(row) {
            Some(value) => metric.encode_gauge(&value),
            None => Ok(()),
        })
    }

    fn counter(&mut self, named: Named, value: impl Fn(&InformerStats) -> u64) -> fmt::Result {
        self.family(named, MetricType::Counter, |row, metric| {
            metric.encode_counter::<NoLabelSet, _, u64>(&value(&row.stats), None)
        })
    }

    fn family(
        &mut self,
        (name, help): Named,
        kind: MetricType,
        encode: impl Fn(&Row, &mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let mut metric = self.page.encode_descriptor(name, help, None, kind)?;
        self.rows.iter().try_for_each(|row| {
            let GroupVersionKind { group, version, kind } = &row.gvk;
            let scope = escape(&row.scope);
            let labels = [("group", &**group), ("version", version), ("kind", kind), ("scope", &scope)];
            encode(row, &mut metric.encode_family(&labels)?)
        })
    }
}

/// The encoder writes a label's value as it is; kinds have nothing to escape.
fn escape(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_selector_may_contain_does_not_break_the_page() {
        assert_eq!(escape("with a=\"\\\n"), r#"with a=\"\\\n"#);
    }
}
