//! What a queue counts, kept under the lock it holds anyway: counting costs an addition, and the numbers fit each other.

use super::{Band, serialize_seconds};
use serde::{Serialize, Serializer};
use std::time::Duration;

/// A queue's numbers at one moment; no two of them contradict each other.
///
/// Counters only grow. The histograms of [`waited`](Self::waited) and [`worked`](Self::worked) stay empty in a queue without [`Metrics`](super::Metrics), which reads the clock less.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stats {
    /// Ready keys per band, lowest first; those that run and were added again count too.
    pub bands: [BandStats; 3],
    /// Keys waiting for a time.
    pub delayed: usize,
    /// Keys parked.
    pub parked: usize,
    /// Keys in a worker.
    pub running: usize,
    /// How often a key became ready.
    pub adds: u64,
    /// How often a key was added with a delay, of its own or the limiter's.
    pub retries: u64,
    /// Adds ignored because the queue was shut down.
    pub rejected: u64,
    /// Panics of the limiter, each answered with the default delay.
    pub limiter_panics: u64,
    /// How long keys were to wait that were added with a delay; not those that were ready already, or parked.
    pub delays: Histogram,
    /// From becoming ready to a worker.
    pub waited: Histogram,
    /// From a worker to finished.
    pub worked: Histogram,
    /// The ages of all runs, added up.
    #[serde(serialize_with = "serialize_seconds")]
    pub unfinished: Duration,
    /// The age of the longest run.
    #[serde(serialize_with = "serialize_seconds")]
    pub longest_running: Duration,
}

impl Stats {
    /// All ready keys: [`WorkQueue::len`](super::WorkQueue::len).
    pub fn depth(&self) -> usize {
        self.bands.iter().map(|band| band.depth).sum()
    }

    /// The numbers of one band.
    pub fn band(&self, band: Band) -> BandStats {
        self.bands[band as usize]
    }
}

/// One band's part of [`Stats`].
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct BandStats {
    /// Ready keys.
    pub depth: usize,
    /// How long the one that is next in its line has been ready, the longest of all lines; zero if there is none.
    #[serde(serialize_with = "serialize_seconds")]
    pub oldest: Duration,
}

/// Durations in buckets that end at 10 ns, 100 ns … 1000 s.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Histogram {
    counts: [u64; Self::BOUNDS.len() + 1],
    #[serde(rename = "seconds", serialize_with = "nanos_as_seconds")]
    nanos: u128,
}

fn nanos_as_seconds<S: Serializer>(nanos: &u128, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(*nanos as f64 * 1e-9)
}

/// By its index.
const POWERS_OF_TEN: [u64; 20] = {
    let mut powers = [1; 20];
    let mut index = 1;
    while index < powers.len() {
        powers[index] = powers[index - 1] * 10;
        index += 1;
    }
    powers
};

/// How many digits a number has beyond the first; 0 of 0. Without a division, and without a branch.
#[inline]
fn digits_beyond_first(number: u64) -> usize {
    let bits = u64::BITS - (number | 1).leading_zeros();
    // 1233/4096 is a little more than the logarithm of 2: right, or one too many.
    let guess = ((bits * 1233) >> 12) as usize;
    guess - usize::from((number | 1) < POWERS_OF_TEN[guess])
}

impl Histogram {
    /// Where the buckets end, in seconds; one more bucket has no end.
    pub const BOUNDS: [f64; 12] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3];

    /// Observations per bucket, the last without end; each is counted in one bucket.
    pub fn counts(&self) -> &[u64; Self::BOUNDS.len() + 1] {
        &self.counts
    }

    /// All observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All observations added up.
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

/// What is counted as it happens; the rest of [`Stats`] is read off the queue. On lines of the caches of its own.
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

    #[test]
    fn digits_are_counted_right_at_every_power_of_ten_and_of_two() {
        assert_eq!(digits_beyond_first(0), 0);
        let powers = POWERS_OF_TEN.into_iter().chain((0..u64::BITS).map(|bit| 1 << bit));
        for number in powers.flat_map(|power| [power.max(2) - 1, power, power + 1]).chain([u64::MAX]) {
            assert_eq!(digits_beyond_first(number), number.ilog10() as usize, "{number}");
        }
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
