//! Counters of a queue, updated under its lock and therefore consistent.

use super::{Band, serialize_seconds};
use serde::{Serialize, Serializer};
use std::time::Duration;

/// Consistent counters of a queue.
///
/// Counters only grow. The histograms [`waited`](Self::waited) and [`worked`](Self::worked) stay
/// empty without [`Metrics`](super::Metrics), because the queue then reads the clock less often.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stats {
    /// Ready keys per band, lowest first, including those added again while processed.
    ///
    /// Serialized as an object with the names of the bands.
    #[serde(serialize_with = "serialize_bands")]
    pub bands: [BandStats; 3],
    /// Number of delayed keys.
    pub delayed: usize,
    /// Number of parked keys.
    pub parked: usize,
    /// Number of keys that workers have.
    pub running: usize,
    /// Number of times that a key became ready.
    pub adds: u64,
    /// Number of times that a key was added with a delay, its own or the limiter's.
    pub retries: u64,
    /// Adds ignored because the queue was shut down.
    pub rejected: u64,
    /// Panics of the limiter, after each of which the default delay was used.
    pub limiter_panics: u64,
    /// Delays of keys that were added with one and were neither ready nor parked.
    pub delays: Histogram,
    /// Times from becoming ready to being handed out.
    pub waited: Histogram,
    /// Times from being handed out to being finished.
    pub worked: Histogram,
    /// Sum of the times for which workers have had their current keys.
    #[serde(serialize_with = "serialize_seconds")]
    pub unfinished: Duration,
    /// Longest time for which a worker has had its current key.
    #[serde(serialize_with = "serialize_seconds")]
    pub longest_running: Duration,
}

impl Stats {
    /// Returns the number of ready keys, as [`WorkQueue::len`](super::WorkQueue::len).
    pub fn depth(&self) -> usize {
        self.bands.iter().map(|band| band.depth).sum()
    }

    /// Returns the counters of one band.
    pub fn band(&self, band: Band) -> BandStats {
        self.bands[band as usize]
    }
}

/// Counters of one band of [`Stats`].
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct BandStats {
    /// Number of ready keys.
    pub depth: usize,
    /// Longest time that a key has been ready; zero if there is none.
    ///
    /// Only the next key of each priority is considered.
    #[serde(serialize_with = "serialize_seconds")]
    pub oldest: Duration,
}

fn serialize_bands<S: Serializer>(
    bands: &[BandStats; 3],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(Band::ALL.into_iter().zip(bands))
}

/// Durations in buckets that end at 10 ns, 100 ns … 1000 s.
///
/// Serialized with the buckets that are not empty, each with its upper bound in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Histogram {
    counts: [u64; Self::BOUNDS.len() + 1],
    nanos: u128,
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_histogram(&Self::BOUNDS, &self.counts, self.seconds(), serializer)
    }
}

/// Serializes a histogram of durations with the buckets that are not empty.
///
/// `counts` has one bucket more than `bounds`, which has no upper bound.
pub(crate) fn serialize_histogram<S: Serializer>(
    bounds: &[f64],
    counts: &[u64],
    seconds: f64,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Labelled {
        count: u64,
        seconds: f64,
        buckets: Vec<Bucket>,
    }
    #[derive(Serialize)]
    struct Bucket {
        up_to_seconds: Option<f64>,
        count: u64,
    }
    let bounds = bounds.iter().copied().map(Some).chain([None]);
    let buckets = bounds.zip(counts).filter(|(_, count)| **count > 0);
    let labelled = Labelled {
        count: counts.iter().sum(),
        seconds,
        buckets: buckets
            .map(|(up_to_seconds, &count)| Bucket {
                up_to_seconds,
                count,
            })
            .collect(),
    };
    labelled.serialize(serializer)
}

/// Powers of ten by exponent.
const POWERS_OF_TEN: [u64; 20] = {
    let mut powers = [1; 20];
    let mut index = 1;
    while index < powers.len() {
        powers[index] = powers[index - 1] * 10;
        index += 1;
    }
    powers
};

/// Returns the number of decimal digits minus one; 0 for 0. Branch-free.
#[inline]
fn digits_beyond_first(number: u64) -> usize {
    let bits = u64::BITS - (number | 1).leading_zeros();
    // 1233/4096 is slightly more than log10(2), so the guess is right or one too high.
    let guess = ((bits * 1233) >> 12) as usize;
    guess - usize::from((number | 1) < POWERS_OF_TEN[guess])
}

impl Histogram {
    /// Upper bounds of the buckets in seconds, but for the last, unbounded one.
    pub const BOUNDS: [f64; 12] = [
        1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3,
    ];

    /// Returns the observations per bucket, not cumulated.
    pub fn counts(&self) -> &[u64; Self::BOUNDS.len() + 1] {
        &self.counts
    }

    /// Returns the number of observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all observations.
    pub fn seconds(&self) -> f64 {
        self.nanos as f64 * 1e-9
    }

    #[inline]
    pub(super) fn observe(&mut self, nanos: u64) {
        let bucket = digits_beyond_first(nanos.saturating_sub(1));
        self.counts[bucket.min(Self::BOUNDS.len())] += 1;
        self.nanos += u128::from(nanos);
    }
}

/// Counters that are updated by events, padded to their own cache lines.
///
/// The rest of [`Stats`] is computed from the state of the queue.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Counters {
    pub(super) adds: u64,
    pub(super) retries: u64,
    pub(super) rejected: u64,
    pub(super) limiter_panics: u64,
    pub(super) delays: Histogram,
    pub(super) waited: Histogram,
    pub(super) worked: Histogram,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn digits_are_counted_right_at_every_power_of_ten_and_of_two() {
        assert_eq!(digits_beyond_first(0), 0);
        let powers = POWERS_OF_TEN
            .into_iter()
            .chain((0..u64::BITS).map(|bit| 1 << bit));
        for number in powers
            .flat_map(|power| [power.max(2) - 1, power, power + 1])
            .chain([u64::MAX])
        {
            assert_eq!(
                digits_beyond_first(number),
                number.ilog10() as usize,
                "{number}"
            );
        }
    }

    #[test]
    fn a_histogram_is_serialized_with_the_bounds_of_its_buckets() {
        let mut histogram = Histogram::default();
        for nanos in [5, 1_000_000, 1_000_000, u64::MAX] {
            histogram.observe(nanos);
        }
        let json = serde_json::to_value(histogram).expect("valid JSON");
        let bucket = |bound: Option<f64>, count| json!({"up_to_seconds": bound, "count": count});
        assert_eq!(json["count"], 4);
        assert_eq!(
            json["buckets"],
            json!([
                bucket(Some(1e-8), 1),
                bucket(Some(1e-3), 2),
                bucket(None, 1)
            ])
        );
    }

    #[test]
    fn an_observation_falls_into_the_first_bucket_that_ends_no_earlier() {
        for (nanos, bucket) in [
            (0, 0),
            (1, 0),
            (10, 0),
            (11, 1),
            (100, 1),
            (101, 2),
            (1_000_000_000, 8),
            (1_000_000_001, 9),
            (1_000_000_000_000, 11),
            (1_000_000_000_001, 12),
            (u64::MAX, 12),
        ] {
            let mut histogram = Histogram::default();
            histogram.observe(nanos);
            assert_eq!(histogram.counts()[bucket], 1, "{nanos} ns");
            assert_eq!(histogram.count(), 1);
            assert!((histogram.seconds() - nanos as f64 * 1e-9).abs() < 1e-6);
        }
    }
}
