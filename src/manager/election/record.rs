//! Contents of a Lease.
//!
//! Invariant: timestamps in a Lease are only compared for equality, because they are from the clock
//! of another machine.

use super::LeaderElection;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

/// Part of the `spec` on which candidates agree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Record {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i32>,
    lease_transitions: Option<i32>,
    acquire_time: Option<String>,
    renew_time: Option<String>,
}

impl Record {
    /// Returns the record of a candidate that takes the Lease now.
    pub(super) fn taken(options: &LeaderElection, transitions: i32) -> Self {
        let now = micro_time(Timestamp::now());
        Self {
            holder_identity: Some(options.identity.clone()),
            lease_duration_seconds: Some(options.seconds()),
            lease_transitions: Some(transitions),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
        }
    }

    /// Returns the record with a later renew time.
    ///
    /// It differs from the old one even if the clock stands still, so that candidates observe the
    /// renewal.
    pub(super) fn renewed(&self) -> Self {
        let before = self
            .renew_time
            .as_ref()
            .and_then(|time| time.parse::<Timestamp>().ok());
        let before =
            before.and_then(|before| before.checked_add(SignedDuration::from_micros(1)).ok());
        let now = Timestamp::now();
        Self {
            renew_time: Some(micro_time(before.map_or(now, |before| before.max(now)))),
            ..self.clone()
        }
    }

    /// Returns the record of a released Lease, as client-go writes it.
    ///
    /// It has no holder and a duration of one second.
    pub(super) fn released(&self) -> Self {
        let now = micro_time(Timestamp::now());
        Self {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            lease_transitions: self.lease_transitions,
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
        }
    }

    /// Returns whether both records are of the same term.
    ///
    /// Compares the time as well, because identities may not be unique.
    pub(super) fn is_of(&self, taken: &Self) -> bool {
        let what = |record: &Self| {
            (
                record.holder_identity.clone(),
                record.transitions(),
                record.acquire_time.clone(),
            )
        };
        what(self) == what(taken)
    }

    /// Sets the acquire time to that of an earlier attempt whose response was lost.
    pub(super) fn at_the_time_of(self, taken: &Self) -> Self {
        Self {
            acquire_time: taken.acquire_time.clone(),
            ..self
        }
    }

    pub(super) fn holder(&self) -> Option<&str> {
        self.holder_identity
            .as_deref()
            .filter(|holder| !holder.is_empty())
    }

    pub(super) fn transitions(&self) -> i32 {
        self.lease_transitions.unwrap_or_default()
    }

    /// Returns the lease duration of the holder.
    pub(super) fn lasts(&self) -> Option<Duration> {
        let seconds = self
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok());
        seconds
            .filter(|seconds| *seconds > 0)
            .map(Duration::from_secs)
    }
}

/// A Lease with all of its fields, so that an update keeps unknown ones.
#[derive(Clone, Debug)]
pub(super) struct Lease(Value);

impl Lease {
    pub(super) fn read(object: Value) -> Self {
        Self(object)
    }

    /// Returns the Lease to create.
    pub(super) fn to_create(options: &LeaderElection, record: &Record) -> Value {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": options.name, "namespace": options.namespace},
        });
        Self(lease).with(options, record)
    }

    /// Returns the Lease to write, with the resource version that was read.
    pub(super) fn with(&self, options: &LeaderElection, record: &Record) -> Value {
        let mut lease = self.0.clone();
        let fields = [
            ("holderIdentity", json!(record.holder_identity)),
            ("leaseDurationSeconds", json!(record.lease_duration_seconds)),
            ("leaseTransitions", json!(record.lease_transitions)),
            ("acquireTime", json!(record.acquire_time)),
            ("renewTime", json!(record.renew_time)),
        ];
        for (field, value) in fields {
            lease["spec"][field] = value;
        }
        for (label, value) in &options.labels {
            lease["metadata"]["labels"][label] = json!(value);
        }
        lease
    }

    pub(super) fn record(&self) -> Record {
        // The API server rejects Leases of another shape.
        self.0
            .get("spec")
            .and_then(|spec| Record::deserialize(spec).ok())
            .unwrap_or_default()
    }

    pub(super) fn version(&self) -> &str {
        self.0["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
    }
}

/// Formats a `MicroTime`: always with six digits of the fraction.
pub(super) fn micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::{
        api::coordination::v1::Lease as Typed, apimachinery::pkg::apis::meta::v1::MicroTime,
    };

    #[test]
    fn a_renewal_is_detected_if_the_holders_clock_stops() {
        let taken = Record::taken(&LeaderElection::new("web", "default"), 0);
        let ahead = Record {
            renew_time: Some("2999-01-01T00:00:00.000000Z".into()),
            ..taken
        };
        let renewed = ahead.renewed();
        assert_eq!(
            renewed.renew_time.as_deref(),
            Some("2999-01-01T00:00:00.000001Z")
        );
        assert_ne!(renewed.renewed().renew_time, renewed.renew_time);
    }

    #[test]
    fn a_micro_time_has_six_digits() {
        for (nanos, text) in [
            (0, "2026-01-02T03:04:05.000000Z"),
            (120_000_000, "2026-01-02T03:04:05.120000Z"),
            (123_456_789, "2026-01-02T03:04:05.123456Z"),
            (999_999_999, "2026-01-02T03:04:05.999999Z"),
        ] {
            let at = Timestamp::new(1_767_323_045, nanos).expect("a time");
            assert_eq!(micro_time(at), text);
            assert_eq!(json!(MicroTime(at)), text, "as k8s-openapi encodes it");
        }
    }

    #[test]
    fn an_update_keeps_unknown_fields() {
        let options = LeaderElection {
            labels: [("app".into(), "web".into())].into(),
            ..LeaderElection::new("web", "default")
        };
        let lease = Lease::read(json!({
            "metadata": {"name": "web", "resourceVersion": "7", "labels": {"team": "red"}},
            "spec": {"holderIdentity": "other", "strategy": "OldestEmulationVersion", "leaseTransitions": 4},
        }));
        let record = Record::taken(&options, lease.record().transitions() + 1);
        let changed = lease.with(&options, &record);
        assert_eq!(
            changed["metadata"]["labels"],
            json!({"team": "red", "app": "web"})
        );
        assert_eq!(changed["spec"]["strategy"], "OldestEmulationVersion");
        assert_eq!(
            (
                changed["spec"]["leaseTransitions"].clone(),
                changed["metadata"]["resourceVersion"].clone()
            ),
            (json!(5), json!("7"))
        );
        let typed: Typed = serde_json::from_value(changed).expect("a Lease");
        assert_eq!(
            typed.spec.and_then(|spec| spec.holder_identity),
            Some(options.identity)
        );
    }

    #[test]
    fn a_released_lease_has_no_holder_and_keeps_its_transitions() {
        let taken = Record::taken(&LeaderElection::new("web", "default"), 3);
        let released = taken.released();
        assert_eq!(
            (released.holder(), released.transitions(), released.lasts()),
            (None, 3, Some(Duration::from_secs(1)))
        );
        assert!(!released.is_of(&taken) && taken.renewed().is_of(&taken));
    }

    #[test]
    fn an_empty_lease_has_no_holder() {
        for object in [
            json!({}),
            json!({"spec": {}}),
            json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 0}}),
        ] {
            let record = Lease::read(object).record();
            assert_eq!(
                (record.holder(), record.transitions(), record.lasts()),
                (None, 0, None)
            );
        }
    }
}
