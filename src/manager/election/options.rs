//! Options of leader election: client-go's names, defaults and rules.

use super::ElectionError;
use crate::jitter;
use std::{collections::BTreeMap, fs, time::Duration};

/// Jitter of the delay between attempts, as in client-go.
///
/// The renew deadline must exceed the retry period by this factor.
pub(super) const JITTER: f64 = 1.2;

/// File in which a pod finds its namespace.
const OWN_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Options of leader election.
///
/// All candidates of a Lease should use the same durations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElection {
    /// Name of the Lease, which is created if it does not exist.
    pub name: String,
    /// Namespace of the Lease. Default: that of the pod.
    pub namespace: String,
    /// Unique identity of this process. Default: host name, `_` and a random UUID.
    pub identity: String,
    /// Time without a renewal after which other candidates take the Lease.
    ///
    /// Stored in the Lease in whole seconds, rounded up. Default: 15 s.
    pub lease_duration: Duration,
    /// Time for which the leader tries to renew before it gives up. Default: 10 s.
    pub renew_deadline: Duration,
    /// Time between renewals of the leader.
    ///
    /// Candidates poll after 1 to 2.2 times as long, unless the watch wakes them earlier. Default:
    /// 2 s.
    pub retry_period: Duration,
    /// Makes [`release`](super::Leadership::release) give up the Lease. Default: true.
    pub release_on_cancel: bool,
    /// Labels that are added to the Lease. Default: none.
    pub labels: BTreeMap<String, String>,
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            name: String::new(),
            namespace: String::new(),
            identity: format!("{}_{}", host(), uuid()),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release_on_cancel: true,
            labels: BTreeMap::new(),
        }
    }
}

impl LeaderElection {
    /// Creates options for a Lease, with defaults for the rest.
    pub fn new(name: impl Into<String>, namespace: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            namespace: namespace.into(),
            ..Self::default()
        }
    }

    /// Validates the options and resolves the namespace.
    pub(super) fn checked(mut self) -> Result<Self, ElectionError> {
        named("name", &self.name)?;
        if self.namespace.is_empty() {
            let own = fs::read_to_string(OWN_NAMESPACE)
                .map_err(|_| ElectionError::NoNamespace(self.name.clone()))?;
            own.trim().clone_into(&mut self.namespace);
        }
        named("namespace", &self.namespace)?;
        if self.identity.is_empty() {
            return Err(ElectionError::NoIdentity);
        }
        let (lease, renew, retry) = (self.lease_duration, self.renew_deadline, self.retry_period);
        let tick = Duration::from_nanos(1);
        let least = [
            ("lease_duration", lease, Duration::from_secs(1)),
            ("renew_deadline", renew, tick),
            ("retry_period", retry, tick),
        ];
        if let Some((option, is, least)) = least.into_iter().find(|(_, is, least)| is < least) {
            return Err(ElectionError::TooShort { option, is, least });
        }
        if lease <= renew {
            return Err(ElectionError::LeaseTooShort { lease, renew });
        }
        if renew.as_secs_f64() <= JITTER * retry.as_secs_f64() {
            return Err(ElectionError::RenewTooShort { renew, retry });
        }
        Ok(self)
    }

    /// Returns `namespace/name` of the Lease.
    pub(super) fn lease(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns the lease duration in seconds.
    ///
    /// Rounded up, so that no candidate takes the Lease too early.
    pub(super) fn seconds(&self) -> i32 {
        i32::try_from(self.lease_duration.as_millis().div_ceil(1000)).unwrap_or(i32::MAX)
    }

    /// Returns the timeout of a request, which allows a retry before the deadline.
    pub(super) fn request_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(Duration::from_secs(1))
    }

    /// Returns the time from sending a renewal until the fence closes.
    ///
    /// It is half way between loss and takeover. The rest allows for clocks of different speed and
    /// for writes in flight.
    pub(super) fn fenced_after(&self) -> Duration {
        (self.lease_duration + self.renew_deadline) / 2
    }

    /// Returns the delay before the next attempt, with jitter.
    pub(super) fn jittered(&self) -> Duration {
        self.retry_period.mul_f64(jitter::factor(1.0..1.0 + JITTER))
    }
}

fn named(field: &'static str, name: &str) -> Result<(), ElectionError> {
    let fits =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let ends = |name: &str| name.starts_with(['-', '.']) || name.ends_with(['-', '.']);
    if name.is_empty() || !name.bytes().all(fits) || ends(name) {
        return Err(ElectionError::BadName {
            field,
            name: name.to_owned(),
        });
    }
    Ok(())
}

fn host() -> String {
    hostname::get().map_or_else(
        |_| "unknown".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// Returns a random UUID.
fn uuid() -> String {
    let random: u128 = rand::random();
    let hex = format!(
        "{:032x}",
        (random & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62)
    );
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_equal_client_gos_and_identities_are_unique() {
        let options = LeaderElection::new("web", "default");
        let seconds = [
            options.lease_duration,
            options.renew_deadline,
            options.retry_period,
        ]
        .map(|it| it.as_secs());
        assert_eq!((seconds, options.release_on_cancel), ([15, 10, 2], true));
        let (host, uuid) = options.identity.rsplit_once('_').expect("two parts");
        assert!(
            !host.is_empty() && uuid.len() == 36 && uuid.as_bytes()[14] == b'4',
            "{}",
            options.identity
        );
        assert_ne!(options.identity, LeaderElection::default().identity);
        assert!(options.checked().is_ok());
    }

    #[test]
    fn invalid_options_are_rejected_as_by_client_go() {
        let seconds = Duration::from_secs_f64;
        let timed = |lease: f64, renew: f64, retry: f64| {
            let (lease_duration, renew_deadline) = (seconds(lease), seconds(renew));
            let times = LeaderElection {
                lease_duration,
                renew_deadline,
                retry_period: seconds(retry),
                ..LeaderElection::default()
            };
            LeaderElection {
                name: "web".into(),
                namespace: "default".into(),
                ..times
            }
        };
        let base = || LeaderElection::new("web", "default");
        let cases = [
            (timed(15., 10., 2.), None),
            (timed(2., 1.5, 0.25), None),
            (
                timed(10., 10., 2.),
                Some("lease_duration 10s is not longer than renew_deadline 10s"),
            ),
            (timed(9., 10., 2.), Some("lease_duration 9s is not longer")),
            (
                timed(15., 2.4, 2.),
                Some("renew_deadline 2.4s is not longer than 1.2 times retry_period 2s"),
            ),
            (timed(15., 2.5, 2.), None),
            (
                timed(0.5, 0.4, 0.1),
                Some("lease_duration is 500ms; set at least 1s"),
            ),
            (timed(15., 0., 0.), Some("renew_deadline is 0ns")),
            (timed(15., 10., 0.), Some("retry_period is 0ns")),
            (
                LeaderElection {
                    name: String::new(),
                    ..base()
                },
                Some("invalid name `` of a Lease"),
            ),
            (
                LeaderElection {
                    name: "a/b".into(),
                    ..base()
                },
                Some("invalid name `a/b`"),
            ),
            (
                LeaderElection {
                    name: "..".into(),
                    ..base()
                },
                Some("invalid name `..`"),
            ),
            (
                LeaderElection {
                    namespace: "A".into(),
                    ..base()
                },
                Some("invalid namespace `A`"),
            ),
            (
                LeaderElection {
                    identity: String::new(),
                    ..base()
                },
                Some("the identity is empty"),
            ),
        ];
        for (options, rejected) in cases {
            match (options.clone().checked(), rejected) {
                (Ok(_), None) => {}
                (Err(error), Some(message)) => {
                    assert!(error.to_string().contains(message), "{error}");
                }
                (checked, _) => panic!("{options:?}: {checked:?}"),
            }
        }
    }

    #[test]
    fn without_a_namespace_it_has_to_run_in_one() {
        if fs::exists(OWN_NAMESPACE).is_ok_and(|exists| exists) {
            return;
        }
        let error = LeaderElection::new("web", "")
            .checked()
            .expect_err("not in a pod");
        assert!(
            error.to_string().contains("`web`: it has no namespace"),
            "{error}"
        );
    }

    #[test]
    fn the_published_duration_covers_the_renew_deadline() {
        let of = |lease: u64, renew: u64| LeaderElection {
            lease_duration: Duration::from_millis(lease),
            renew_deadline: Duration::from_millis(renew),
            ..LeaderElection::default()
        };
        assert_eq!(
            [of(1000, 900), of(1001, 900), of(15_000, 10_000)].map(|it| it.seconds()),
            [1, 2, 15]
        );
        assert_eq!(
            of(15_000, 10_000).fenced_after(),
            Duration::from_millis(12_500)
        );
        assert_eq!(
            [of(15_000, 10_000), of(1500, 1000)].map(|it| it.request_timeout().as_secs()),
            [5, 1]
        );
    }

    #[test]
    fn waits_are_between_one_and_two_point_two_retry_periods() {
        let options = LeaderElection::default();
        for _ in 0..1000 {
            let wait = options.jittered().as_secs_f64();
            assert!((2.0..4.4).contains(&wait), "{wait}");
        }
    }
}
