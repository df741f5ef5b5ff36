//! When an endpoint is asked, and what follows from the answers. Nothing here waits.

use super::{super::address::Address, Health, Verdict};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Whom to ask, and by which authority they are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) address: Address,
    pub(super) authority: Arc<[u8]>,
}

/// What one control plane has been through.
#[derive(Debug, Default)]
pub(super) struct Course {
    pub(super) target: Option<Target>,
    /// `None` until enough is known.
    pub(super) verdict: Option<Verdict>,
    failures: u32,
    due: Option<Instant>,
}

impl Course {
    /// Another one is asked at once.
    pub(super) fn is_due(&self, target: &Target, now: Instant) -> bool {
        self.target.as_ref() != Some(target) || self.wait(now).is_zero()
    }

    /// Until it is asked again.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now))
    }

    pub(super) fn record(&mut self, target: Target, answer: Result<(), String>, now: Instant, health: &Health) {
        if self.target.as_ref() != Some(&target) {
            *self = Self { target: Some(target), ..Self::default() };
        }
        self.due = Some(now + if answer.is_ok() { health.every } else { health.every_when_failing });
        match answer {
            Ok(()) => (self.failures, self.verdict) = (0, Some(Verdict::Healthy)),
            Err(why) => {
                self.failures = self.failures.saturating_add(1);
                if self.failures == health.failures.max(1) {
                    self.verdict = Some(Verdict::Unhealthy(why));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(address: &str) -> Target {
        Target { address: address.parse().expect(address), authority: Arc::from(b"authority".as_slice()) }
    }

    /// What it says after each of these.
    fn verdicts(course: &mut Course, answers: &[Result<(), &str>]) -> Vec<Option<Verdict>> {
        let record = |answer: &Result<(), &str>| {
            course.record(target("host"), answer.map_err(Into::into), Instant::now(), &Health::default());
            course.verdict.clone()
        };
        answers.iter().map(record).collect()
    }

    #[test]
    fn three_failures_in_a_row_make_it_unhealthy_and_one_answer_healthy() {
        let (healthy, unhealthy) = (Some(Verdict::Healthy), Some(Verdict::Unhealthy("third".into())));
        let mut course = Course::default();
        let answers =
            [Ok(()), Err("first"), Err("second"), Ok(()), Err("first"), Err("second"), Err("third"), Err("4.")];
        let expected = [&healthy, &healthy, &healthy, &healthy, &healthy, &healthy, &unhealthy, &unhealthy];
        assert_eq!(verdicts(&mut course, &answers), expected.map(Clone::clone));
        assert_eq!(verdicts(&mut course, &[Ok(())]), [healthy]);
    }

    #[test]
    fn nothing_is_said_before_enough_is_known() {
        assert_eq!(verdicts(&mut Course::default(), &[Err("first"), Err("second")]), [None, None]);
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_asked_every_minute_and_every_ten_seconds_while_it_fails() {
        let (mut course, now) = (Course::default(), Instant::now());
        assert!(course.is_due(&target("host"), now), "at first at once");
        for (answer, seconds) in [(Ok(()), 60), (Err("no".into()), 10), (Err("no".into()), 10), (Ok(()), 60)] {
            course.record(target("host"), answer, now, &Health::default());
            assert_eq!(course.wait(now), Duration::from_secs(seconds));
            assert!(!course.is_due(&target("host"), now + Duration::from_secs(seconds - 1)));
            assert!(course.is_due(&target("host"), now + Duration::from_secs(seconds)));
        }
    }

    #[test]
    fn another_endpoint_or_authority_is_asked_at_once_and_begins_anew() {
        let now = Instant::now();
        let mut course = Course::default();
        verdicts(&mut course, &[Err("first"), Err("second")]);
        assert!(course.is_due(&target("other"), now));
        let renewed = Target { authority: Arc::from(b"renewed".as_slice()), ..target("host") };
        assert!(course.is_due(&renewed, now));
        course.record(renewed, Err("third, but the first of these".into()), now, &Health::default());
        assert_eq!(course.verdict, None);
    }
}
