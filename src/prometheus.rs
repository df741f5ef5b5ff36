//! Writer of Prometheus metrics.

use prometheus_client::{
    encoding::{
        DescriptorEncoder, EncodeLabel, EncodeLabelSet, LabelSetEncoder, MetricEncoder, NoLabelSet,
    },
    metrics::MetricType,
};
use std::fmt;

/// Name of a metric, without the suffix that the encoder adds, and its help text.
pub(crate) type Named = (&'static str, &'static str);

/// Labels and value of one series.
pub(crate) type Sample<T> = (Vec<(&'static str, String)>, T);

pub(crate) struct Page<'a, 'b>(pub(crate) &'b mut DescriptorEncoder<'a>);

/// Histogram: upper bound and count of each bucket, and the sum.
pub(crate) struct Buckets {
    pub(crate) buckets: Vec<(f64, u64)>,
    pub(crate) sum: f64,
}

impl Page<'_, '_> {
    pub(crate) fn gauges(
        &mut self,
        (name, help): Named,
        samples: impl IntoIterator<Item = Sample<f64>>,
    ) -> fmt::Result {
        let mut metric = self
            .0
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        samples.into_iter().try_for_each(|(labels, value)| {
            series(&mut metric, &labels, |one| one.encode_gauge(&value))
        })
    }

    pub(crate) fn counters(
        &mut self,
        (name, help): Named,
        samples: impl IntoIterator<Item = Sample<u64>>,
    ) -> fmt::Result {
        let mut metric = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        samples.into_iter().try_for_each(|(labels, value)| {
            series(&mut metric, &labels, |one| {
                one.encode_counter::<NoLabelSet, _, u64>(&value, None)
            })
        })
    }

    pub(crate) fn histograms(
        &mut self,
        (name, help): Named,
        samples: impl IntoIterator<Item = Sample<Buckets>>,
    ) -> fmt::Result {
        let mut metric = self
            .0
            .encode_descriptor(name, help, None, MetricType::Histogram)?;
        samples
            .into_iter()
            .try_for_each(|(labels, Buckets { buckets, sum })| {
                let count = buckets.iter().map(|(_, many)| many).sum();
                series(&mut metric, &labels, |one| {
                    one.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
                })
            })
    }
}

/// Encodes one series. Without labels there are no braces.
fn series(
    metric: &mut MetricEncoder<'_>,
    labels: &[(&'static str, String)],
    encode: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    if labels.is_empty() {
        encode(metric)
    } else {
        encode(&mut metric.encode_family(&Labels(labels))?)
    }
}

/// Escapes label values, which the encoder does not do.
#[derive(Debug)]
struct Labels<'a>(&'a [(&'static str, String)]);

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, value)| {
            let value = value
                .replace('\\', r"\\")
                .replace('"', r#"\""#)
                .replace('\n', r"\n");
            (*name, value).encode(encoder.encode_label())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::{collector::Collector, encoding::text::encode, registry::Registry};

    #[derive(Debug)]
    struct One;

    impl Collector for One {
        fn encode(&self, mut page: DescriptorEncoder) -> fmt::Result {
            Page(&mut page).gauges(
                ("a", "help"),
                [(vec![("scope", "with a=\"\\\n".to_owned())], 1.5)],
            )
        }
    }

    #[test]
    fn label_values_are_escaped() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(One));
        let mut page = String::new();
        encode(&mut page, &registry).expect("into a string");
        assert!(page.contains(r#"a{scope="with a=\"\\\n"} 1.5"#), "{page}");
    }
}
