//! Schedule and results of the checks of one endpoint. Nothing here waits.

use super::{super::address::Address, Health, HealthState};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Endpoint to check, and the CA certificate that verifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) address: Address,
    pub(super) authority: Arc<[u8]>,
}

/// Checks of one control plane.
#[derive(Debug, Default)]
pub(super) struct CheckSchedule {
    pub(super) target: Option<Target>,
    /// `None` until enough checks were made.
    pub(super) state: Option<HealthState>,
    failures: u32,
    due: Option<Instant>,
}

impl CheckSchedule {
    /// Returns whether a check is due. A new target is checked at once.
    pub(super) fn is_due(&self, target: &Target, now: Instant) -> bool {
        self.target.as_ref() != Some(target) || self.wait(now).is_zero()
    }

    /// Returns the time until the next check.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.due
            .map_or(Duration::ZERO, |due| due.saturating_duration_since(now))
    }

    pub(super) fn record(
        &mut self,
        target: Target,
        result: Result<(), String>,
        now: Instant,
        health: &Health,
    ) {
        if self.target.as_ref() != Some(&target) {
            *self = Self {
                target: Some(target),
                ..Self::default()
            };
        }
        self.due = Some(
            now + if result.is_ok() {
                health.every
            } else {
                health.every_when_failing
            },
        );
        match result {
            Ok(()) => (self.failures, self.state) = (0, Some(HealthState::Healthy)),
            Err(message) => {
                self.failures = self.failures.saturating_add(1);
                if self.failures == health.failures.max(1) {
                    self.state = Some(HealthState::Unhealthy(message));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(address: &str) -> Target {
        Target {
            address: address.parse().expect(address),
            authority: Arc::from(b"authority".as_slice()),
        }
    }

    /// Returns the state after each of the results.
    fn states(
        schedule: &mut CheckSchedule,
        results: &[Result<(), &str>],
    ) -> Vec<Option<HealthState>> {
        let record = |result: &Result<(), &str>| {
            schedule.record(
                target("host"),
                result.map_err(Into::into),
                Instant::now(),
                &Health::default(),
            );
            schedule.state.clone()
        };
        results.iter().map(record).collect()
    }

    #[test]
    fn three_consecutive_failures_are_unhealthy_and_one_success_is_healthy() {
        let (healthy, unhealthy) = (
            Some(HealthState::Healthy),
            Some(HealthState::Unhealthy("third".into())),
        );
        let mut schedule = CheckSchedule::default();
        let results = [
            Ok(()),
            Err("first"),
            Err("second"),
            Ok(()),
            Err("first"),
            Err("second"),
            Err("third"),
            Err("4."),
        ];
        let expected = [
            &healthy, &healthy, &healthy, &healthy, &healthy, &healthy, &unhealthy, &unhealthy,
        ];
        assert_eq!(states(&mut schedule, &results), expected.map(Clone::clone));
        assert_eq!(states(&mut schedule, &[Ok(())]), [healthy]);
    }

    #[test]
    fn two_failures_have_no_result() {
        assert_eq!(
            states(
                &mut CheckSchedule::default(),
                &[Err("first"), Err("second")]
            ),
            [None, None]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn checks_are_due_every_minute_and_every_ten_seconds_during_failures() {
        let (mut schedule, now) = (CheckSchedule::default(), Instant::now());
        assert!(
            schedule.is_due(&target("host"), now),
            "a new target is checked at once"
        );
        for (result, seconds) in [
            (Ok(()), 60),
            (Err("no".into()), 10),
            (Err("no".into()), 10),
            (Ok(()), 60),
        ] {
            schedule.record(target("host"), result, now, &Health::default());
            assert_eq!(schedule.wait(now), Duration::from_secs(seconds));
            assert!(!schedule.is_due(&target("host"), now + Duration::from_secs(seconds - 1)));
            assert!(schedule.is_due(&target("host"), now + Duration::from_secs(seconds)));
        }
    }

    #[test]
    fn a_changed_endpoint_or_authority_is_checked_at_once() {
        let now = Instant::now();
        let mut schedule = CheckSchedule::default();
        states(&mut schedule, &[Err("first"), Err("second")]);
        assert!(schedule.is_due(&target("other"), now));
        let renewed = Target {
            authority: Arc::from(b"renewed".as_slice()),
            ..target("host")
        };
        assert!(schedule.is_due(&renewed, now));
        schedule.record(
            renewed,
            Err("first failure of this target".into()),
            now,
            &Health::default(),
        );
        assert_eq!(schedule.state, None);
    }
}
