//! How much may be said: token buckets, one for each object and one for all.
//!
//! Not governor's: those run on a clock of their own, and tests run on tokio's, paused.

use super::Reference;
use hashbrown::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// So many at once, and one more each time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// How many at once, after a silence.
    pub burst: u32,
    /// How long until there is one more.
    pub every: Duration,
}

#[derive(Clone, Copy)]
pub(super) struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    pub(super) fn full(rate: Rate, now: Instant) -> Self {
        Self { left: f64::from(rate.burst), at: now }
    }

    fn refill(&mut self, rate: Rate, now: Instant) {
        // A rate without a pause has no limit.
        let every = rate.every.as_secs_f64().max(1e-9);
        let more = now.duration_since(self.at).as_secs_f64() / every;
        self.left = (self.left + more).min(f64::from(rate.burst));
        self.at = now;
    }

    /// Take one, or say how long there is none.
    pub(super) fn take(&mut self, rate: Rate, now: Instant) -> Result<(), Duration> {
        self.refill(rate, now);
        // Sums of fractions miss a whole by a little.
        if self.left >= 1.0 - 1e-6 {
            self.left -= 1.0;
            return Ok(());
        }
        Err(rate.every.mul_f64(1.0 - self.left).max(Duration::from_millis(1)))
    }

    fn is_full(&mut self, rate: Rate, now: Instant) -> bool {
        self.refill(rate, now);
        self.left >= f64::from(rate.burst)
    }
}

/// One for each object that something was said of lately; what is not here is full.
pub(super) struct Buckets {
    rate: Rate,
    most: usize,
    known: HashMap<Reference, Bucket>,
}

impl Buckets {
    pub(super) fn new(rate: Rate, most: usize) -> Self {
        Self { rate, most, known: HashMap::new() }
    }

    pub(super) fn take(&mut self, object: &Reference, now: Instant) -> bool {
        if let Some(bucket) = self.known.get_mut(object) {
            return bucket.take(self.rate, now).is_ok();
        }
        if self.known.len() >= self.most {
            self.forget_full(now);
        }
        // Who was silent longest is nearest to full.
        if self.known.len() >= self.most
            && let Some(oldest) = self.known.iter().min_by_key(|(_, bucket)| bucket.at).map(|(key, _)| key.clone())
        {
            self.known.remove(&oldest);
        }
        let mut bucket = Bucket::full(self.rate, now);
        let taken = bucket.take(self.rate, now).is_ok();
        self.known.insert(object.clone(), bucket);
        taken
    }

    pub(super) fn forget_full(&mut self, now: Instant) {
        let rate = self.rate;
        // Refilling changes when a bucket was last used, so look at a copy.
        self.known.retain(|_, bucket| !bucket.clone().is_full(rate, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectKey;
    use kube_core::GroupVersionKind;
    use tokio::time::advance;

    const RATE: Rate = Rate { burst: 25, every: Duration::from_mins(5) };

    fn object(name: &str) -> Reference {
        Reference::new(&GroupVersionKind::gvk("", "v1", "Pod"), &ObjectKey::new("shop", name))
    }

    #[tokio::test(start_paused = true)]
    async fn of_one_object_25_at_once_and_one_more_every_five_minutes() {
        let mut buckets = Buckets::new(RATE, 10);
        let mut take = |name: &str| buckets.take(&object(name), Instant::now());
        assert!((0..25).all(|_| take("web")));
        assert!(!take("web") && take("db"), "another object has a bucket of its own");
        advance(Duration::from_secs(299)).await;
        assert!(!take("web"));
        advance(Duration::from_secs(1)).await;
        assert!(take("web") && !take("web"));
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_objects_are_remembered_than_allowed_and_the_longest_silent_one_goes() {
        let rate = Rate { burst: 1, ..RATE };
        let mut buckets = Buckets::new(rate, 2);
        for name in ["a", "b", "c"] {
            assert!(buckets.take(&object(name), Instant::now()));
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(buckets.known.len(), 2);
        assert!(!buckets.take(&object("b"), Instant::now()) && buckets.take(&object("a"), Instant::now()));
        advance(Duration::from_mins(5)).await;
        buckets.forget_full(Instant::now());
        assert!(buckets.known.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_as_long_as_told_gets_one() {
        let rate = Rate { burst: 2, every: Duration::from_millis(100) };
        let mut bucket = Bucket::full(rate, Instant::now());
        assert!(bucket.take(rate, Instant::now()).is_ok() && bucket.take(rate, Instant::now()).is_ok());
        let wait = bucket.take(rate, Instant::now()).unwrap_err();
        advance(wait).await;
        assert!(bucket.take(rate, Instant::now()).is_ok());
    }
}
