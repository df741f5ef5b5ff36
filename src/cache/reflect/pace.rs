//! How long to wait before the server is asked again: not at all after something that went well, longer and longer while it goes wrong.

use rand::RngExt;
use std::time::Duration;
use tokio::time::Instant;

/// The waits after failures in a row, as client-go has them: from 0.8 s, doubled each time, up to 30 s, and up to twice that by chance so that
/// many informers do not come back at once.
const FIRST: Duration = Duration::from_millis(800);
const LONGEST: Duration = Duration::from_secs(30);
/// After so long without a failure the next one counts as the first.
const HEALTHY: Duration = Duration::from_mins(2);

#[derive(Debug, Default)]
pub(crate) struct Pace {
    failures: u32,
    last: Option<Instant>,
}

impl Pace {
    /// Something went wrong: how long to wait. `at_least` is what the server asked for.
    pub(crate) fn failed(&mut self, at_least: Option<Duration>) -> Duration {
        let now = Instant::now();
        if self.last.is_some_and(|last| now.duration_since(last) >= HEALTHY) {
            self.failures = 0;
        }
        self.last = Some(now);
        let wait = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures += 1;
        let wait = wait.mul_f64(rand::rng().random_range(1.0..2.0));
        wait.max(at_least.unwrap_or_default())
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
            pace.failed(None);
        }
        tokio::time::advance(HEALTHY).await;
        assert!(pace.failed(None) < 2 * FIRST);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_server_asks_for_is_the_least() {
        assert_eq!(Pace::default().failed(Some(Duration::from_secs(90))), Duration::from_secs(90));
    }
}
