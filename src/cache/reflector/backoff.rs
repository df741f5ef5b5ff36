//! Delays between requests.
//!
//! A watch that worked is reopened within a second. Failures are retried with backoff.

use crate::jitter;
use std::time::Duration;
use tokio::time::Instant;

/// Backoff as in client-go: 0.8 s, doubled up to 30 s.
///
/// Multiplied by a random factor from 1 to 2, so that informers do not retry at once.
const INITIAL_DELAY: Duration = Duration::from_millis(800);
const MAX_DELAY: Duration = Duration::from_secs(30);
/// Time after the last delay from which a failure counts as the first one.
const RESET_AFTER: Duration = Duration::from_mins(2);
/// Maximum delay before a watch that worked is reopened. It is random, so that not all informers
/// reconnect at once when a proxy or an API server restarts.
pub(super) const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    /// End of the last delay, which may have been zero.
    delayed_until: Option<Instant>,
}

impl Backoff {
    /// Records a failure, and returns the delay. `at_least` is the server's `Retry-After`.
    pub(crate) fn next_delay(&mut self, at_least: Option<Duration>) -> Duration {
        let now = Instant::now();
        if self.is_healthy(now) {
            self.failures = 0;
        }
        let wait = INITIAL_DELAY
            .saturating_mul(1 << self.failures.min(16))
            .min(MAX_DELAY);
        self.failures += 1;
        let wait = wait.mul_f64(jitter::factor(1.0..2.0));
        let wait = wait.max(at_least.unwrap_or_default());
        self.delayed_until = Some(now + wait);
        wait
    }

    /// Resets the failures, and returns the delay before a watch is reopened.
    pub(crate) fn reconnect_delay(&mut self) -> Duration {
        self.failures = 0;
        MAX_RECONNECT_DELAY.mul_f64(jitter::factor(0.0..1.0))
    }

    /// Records that a relist is needed, and returns the delay before it.
    ///
    /// Occasional relists are normal and have no delay. A server that requires one again within
    /// [`RESET_AFTER`] is failing, even if it delivered events in between.
    pub(crate) fn relist_delay(&mut self, at_least: Option<Duration>) -> Duration {
        let now = Instant::now();
        if !self.is_healthy(now) {
            return self.next_delay(at_least);
        }
        let wait = at_least.unwrap_or_default();
        (self.failures, self.delayed_until) = (0, Some(now + wait));
        wait
    }

    fn is_healthy(&self, now: Instant) -> bool {
        self.delayed_until
            .is_none_or(|waited| now.saturating_duration_since(waited) >= RESET_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn delays_double_up_to_30_s_and_are_jittered_up_to_twice_that() {
        let mut backoff = Backoff::default();
        for base in [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0] {
            let wait = backoff.next_delay(None).as_secs_f64();
            assert!((base..2.0 * base).contains(&wait), "{wait} for {base}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn two_healthy_minutes_reset_the_backoff() {
        let mut backoff = Backoff::default();
        for _ in 0..10 {
            tokio::time::advance(backoff.next_delay(None)).await;
        }
        tokio::time::advance(RESET_AFTER).await;
        assert!(backoff.next_delay(None) < 2 * INITIAL_DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_resets_the_failure_count_and_waits_for_less_than_a_second() {
        let mut backoff = Backoff::default();
        for _ in 0..100 {
            for _ in 0..10 {
                backoff.next_delay(None);
            }
            assert!(backoff.reconnect_delay() < MAX_RECONNECT_DELAY);
            assert!(backoff.next_delay(None) < 2 * INITIAL_DELAY);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_delay_itself_does_not_count_as_healthy_time() {
        let mut backoff = Backoff::default();
        for _ in 0..10 {
            tokio::time::advance(backoff.next_delay(Some(2 * RESET_AFTER))).await;
        }
        assert!(backoff.next_delay(None) >= MAX_DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn occasional_relists_are_immediate_and_frequent_ones_back_off() {
        let mut backoff = Backoff::default();
        for _ in 0..3 {
            assert_eq!(backoff.relist_delay(None), Duration::ZERO);
            for base in [0.8, 1.6, 3.2] {
                tokio::time::advance(RESET_AFTER / 2).await;
                let wait = backoff.relist_delay(None);
                assert!(
                    (base..2.0 * base).contains(&wait.as_secs_f64()),
                    "{wait:?} for {base}"
                );
                tokio::time::advance(wait).await;
            }
            tokio::time::advance(RESET_AFTER).await;
        }
        assert_eq!(backoff.relist_delay(Some(INITIAL_DELAY)), INITIAL_DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn the_delay_is_at_least_that_of_the_server() {
        assert_eq!(
            Backoff::default().next_delay(Some(Duration::from_secs(90))),
            Duration::from_secs(90)
        );
    }
}
