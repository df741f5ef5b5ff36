//! Rate limit of the events of each object.

use super::{Rate, Reference};
use crate::rate_limit::{RateLimiter, TokioClock};
use governor::{
    nanos::Nanos,
    state::{StateStore, keyed::ShrinkableKeyedStateStore},
};
use hashbrown::HashMap;
use parking_lot::Mutex;

/// A [`Rate`] for each object.
pub(super) struct ObjectLimiter(RateLimiter<Reference, BoundedStore>);

impl ObjectLimiter {
    /// Creates a limiter that remembers at most `max_objects`.
    pub(super) fn new(rate: Rate, max_objects: usize) -> Self {
        let store = BoundedStore {
            max_objects,
            arrivals: Mutex::default(),
        };
        Self(RateLimiter::new(rate.quota(), store, TokioClock))
    }

    /// Takes a permit of `object`. Returns whether there was one.
    pub(super) fn take(&self, object: &Reference) -> bool {
        self.0.check_key(object).is_ok()
    }

    /// Forgets objects whose burst is replenished.
    pub(super) fn forget_replenished(&self) {
        self.0.retain_recent();
        self.0.shrink_to_fit();
    }
}

/// State of governor's algorithm for the objects with recent events.
///
/// governor's own stores grow with the number of objects until `retain_recent` is called. This one
/// also forgets an object for each new one over its limit: the one whose burst is replenished
/// first, whose limit is affected least.
struct BoundedStore {
    max_objects: usize,
    /// Time at which the burst of an object is replenished.
    arrivals: Mutex<HashMap<Reference, Nanos>>,
}

impl StateStore for BoundedStore {
    type Key = Reference;

    fn measure_and_replace<T, F, E>(&self, object: &Reference, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let mut arrivals = self.arrivals.lock();
        if let Some(arrival) = arrivals.get_mut(object) {
            let (decision, next) = decide(Some(*arrival))?;
            *arrival = next;
            return Ok(decision);
        }
        let (decision, next) = decide(None)?;
        if arrivals.len() >= self.max_objects {
            let earliest = arrivals.iter().min_by_key(|(_, arrival)| **arrival);
            if let Some(object) = earliest.map(|(object, _)| object.clone()) {
                arrivals.remove(&object);
            }
        }
        arrivals.insert(object.clone(), next);
        Ok(decision)
    }
}

impl ShrinkableKeyedStateStore<Reference> for BoundedStore {
    fn retain_recent(&self, drop_below: Nanos) {
        let mut arrivals = self.arrivals.lock();
        arrivals.retain(|_, arrival| *arrival > drop_below);
    }

    fn shrink_to_fit(&self) {
        self.arrivals.lock().shrink_to_fit();
    }

    fn len(&self) -> usize {
        self.arrivals.lock().len()
    }

    fn is_empty(&self) -> bool {
        self.arrivals.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectKey;
    use kube_core::GroupVersionKind;
    use std::time::Duration;
    use tokio::time::advance;

    const RATE: Rate = Rate {
        burst: 25,
        every: Duration::from_mins(5),
    };

    fn object(name: &str) -> Reference {
        Reference::new(
            &GroupVersionKind::gvk("", "v1", "Pod"),
            &ObjectKey::new("shop", name),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_has_25_permits_at_once_and_one_more_every_five_minutes() {
        let limiter = ObjectLimiter::new(RATE, 10);
        let take = |name: &str| limiter.take(&object(name));
        assert!((0..25).all(|_| take("web")));
        assert!(!take("web"));
        assert!(take("db"), "another object has a limit of its own");
        advance(Duration::from_secs(299)).await;
        assert!(!take("web"));
        advance(Duration::from_secs(1)).await;
        assert!(take("web"));
        assert!(!take("web"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_object_over_the_limit_replaces_the_one_that_is_replenished_first() {
        let limiter = ObjectLimiter::new(Rate { burst: 1, ..RATE }, 2);
        for name in ["a", "b", "c"] {
            assert!(limiter.take(&object(name)));
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(limiter.0.len(), 2);
        assert!(!limiter.take(&object("b")));
        assert!(limiter.take(&object("a")), "the object was forgotten");
        assert_eq!(limiter.0.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn replenished_objects_are_forgotten_with_their_memory() {
        let limiter = ObjectLimiter::new(RATE, 4096);
        for number in 0..1000 {
            assert!(limiter.take(&object(&number.to_string())));
        }
        advance(Duration::from_mins(9)).await;
        assert!((0..3).all(|_| limiter.take(&object("busy"))));
        limiter.forget_replenished();
        assert_eq!(limiter.0.len(), 1001);
        advance(Duration::from_mins(6)).await;
        limiter.forget_replenished();
        assert_eq!(limiter.0.len(), 1);
        let store = limiter.0.into_state_store();
        assert!(store.arrivals.into_inner().capacity() < 10);
    }
}
