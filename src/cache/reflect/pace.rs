//! Delay before the next request to the server: up to a second after a watch that worked, growing delays after failures.

use rand::RngExt;
use std::time::Duration;
use tokio::time::Instant;

/// The waits after failures in a row, as client-go has them: from 0.8 s, doubled each time, up to 30 s, and up to twice that by chance so that
/// many informers do not come back at once.
const FIRST: Duration = Duration::from_millis(800);
const LONGEST: Duration = Duration::from_secs(30);
/// A failure so long after the last wait counts as the first.
const HEALTHY: Duration = Duration::from_mins(2);
/// Longest delay before a watch that worked is reopened. It is random, so that not all informers return at once when a proxy or a server restarts.
const RECONNECT: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Pace {
    failures: u32,
    /// The end of the last wait, which may have been none.
    waited: Option<Instant>,
}

impl Pace {
    /// Something went wrong: how long to wait. `at_least` is what the server asked for.
    pub(crate) fn failed(&mut self, at_least: Option<Duration>) -> Duration {
        let now = Instant::now();
        if self.is_healthy(now) {
            self.failures = 0;
        }
        let wait = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures += 1;
        let wait = wait.mul_f64(rand::rng().random_range(1.0..2.0));
        let wait = wait.max(at_least.unwrap_or_default());
        self.waited = Some(now + wait);
        wait
    }

    /// Returns the delay before a watch that worked is reopened, and resets the failure count.
    pub(crate) fn succeeded(&mut self) -> Duration {
        self.failures = 0;
        RECONNECT.mul_f64(rand::rng().random_range(0.0..1.0))
    }

    /// The server has forgotten what comes next, and everything is to be asked for anew: how long to wait. That is normal once in a while, whatever the watch had been
    /// told before; a server that says it again so soon is failing, however long it thinks about it.
    pub(crate) fn forgotten(&mut self, at_least: Option<Duration>) -> Duration {
        let now = Instant::now();
        if !self.is_healthy(now) {
            return self.failed(at_least);
        }
        let wait = at_least.unwrap_or_default();
        (self.failures, self.waited) = (0, Some(now + wait));
        wait
    }

    fn is_healthy(&self, now: Instant) -> bool {
        self.waited.is_none_or(|waited| now.saturating_duration_since(waited) >= HEALTHY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_half_a_minute_and_vary_up_to_twice_that() {
        let mut pace = Pace::default();
        for base in [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0] {
            let wait = pace.failed(None).as_secs_f64();
            assert!((base..2.0 * base).contains(&wait), "{wait} for {base}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn two_healthy_minutes_forget_what_was() {
        let mut pace = Pace::default();
        for _ in 0..10 {
            tokio::time::advance(pace.failed(None)).await;
        }
        tokio::time::advance(HEALTHY).await;
        assert!(pace.failed(None) < 2 * FIRST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_resets_the_failure_count_and_waits_for_less_than_a_second() {
        let mut pace = Pace::default();
        for _ in 0..100 {
            for _ in 0..10 {
                pace.failed(None);
            }
            assert!(pace.succeeded() < RECONNECT);
            assert!(pace.failed(None) < 2 * FIRST);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_is_not_health() {
        let mut pace = Pace::default();
        for _ in 0..10 {
            tokio::time::advance(pace.failed(Some(2 * HEALTHY))).await;
        }
        assert!(pace.failed(None) >= LONGEST);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_forgotten_once_in_a_while_is_asked_for_at_once_and_what_always_is_at_a_pace() {
        let mut pace = Pace::default();
        for _ in 0..3 {
            assert_eq!(pace.forgotten(None), Duration::ZERO);
            for base in [0.8, 1.6, 3.2] {
                tokio::time::advance(HEALTHY / 2).await;
                let wait = pace.forgotten(None);
                assert!((base..2.0 * base).contains(&wait.as_secs_f64()), "{wait:?} for {base}");
                tokio::time::advance(wait).await;
            }
            tokio::time::advance(HEALTHY).await;
        }
        assert_eq!(pace.forgotten(Some(FIRST)), FIRST);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_server_asks_for_is_the_least() {
        assert_eq!(Pace::default().failed(Some(Duration::from_secs(90))), Duration::from_secs(90));
    }
}
