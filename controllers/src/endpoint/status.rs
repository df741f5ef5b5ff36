//! Parts of a control plane's status that the endpoint determines.
//!
//! These are one condition, and `ready`, `initialized` and `phase` as they follow from it.
//! `failureReason` and `failureMessage` are not set: the Cluster API treats them as final, copies
//! them to the cluster and never clears them. A phase that they explain is kept.

use super::types::{CAPTControlPlaneStatus, Phase};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};

/// Type of the condition.
pub const ENDPOINT_READY: &str = "EndpointReady";

/// Result of a reconcile that could read and write everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The control plane and its cluster have the endpoint.
    Ready {
        reason: &'static str,
        message: String,
    },
    /// Something that the endpoint depends on does not exist yet.
    Waiting {
        reason: &'static str,
        message: String,
    },
    /// The source of the endpoint has to be corrected.
    Invalid {
        reason: &'static str,
        message: String,
    },
}

impl State {
    pub(crate) fn report(self) -> Report {
        match self {
            Self::Ready { reason, message } => Report {
                phase: Phase::Ready,
                reason,
                message,
            },
            Self::Waiting { reason, message } => Report {
                phase: Phase::Creating,
                reason,
                message,
            },
            Self::Invalid { reason, message } => Report {
                phase: Phase::Failed,
                reason,
                message,
            },
        }
    }
}

/// Content of the condition, and the phase that follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    phase: Phase,
    reason: &'static str,
    message: String,
}

impl Report {
    /// Creates the report of a reconcile that failed and is retried.
    pub(crate) fn failed(message: String) -> Self {
        Self {
            phase: Phase::Creating,
            reason: "EndpointUpdateFailed",
            message,
        }
    }

    /// Returns `status` with this report in it. Conditions and failures of other controllers stay.
    ///
    /// `generation` is the generation of the control plane that was reconciled.
    pub(crate) fn applied(
        &self,
        status: Option<&CAPTControlPlaneStatus>,
        generation: Option<i64>,
        now: Timestamp,
    ) -> CAPTControlPlaneStatus {
        let mut status = status.cloned().unwrap_or_default();
        status.ready = self.phase == Phase::Ready;
        status.initialized |= status.ready;
        let has_failed_otherwise =
            status.phase == Some(Phase::Failed) && status.failure_reason.is_some();
        if !has_failed_otherwise {
            status.phase = Some(self.phase);
        }
        let condition = Condition {
            type_: ENDPOINT_READY.into(),
            status: if status.ready { "True" } else { "False" }.into(),
            reason: self.reason.into(),
            message: self.message.clone(),
            observed_generation: generation,
            last_transition_time: Time(now),
        };
        set(&mut status.conditions, condition);
        status
    }
}

/// Sets a condition. The transition time is kept while the status does not change.
pub(crate) fn set(conditions: &mut Vec<Condition>, mut condition: Condition) {
    match conditions
        .iter_mut()
        .find(|other| other.type_ == condition.type_)
    {
        Some(other) => {
            if other.status == condition.status {
                condition.last_transition_time = other.last_transition_time.clone();
            }
            *other = condition;
        }
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the status that follows `before`.
    fn then(state: &State, before: &CAPTControlPlaneStatus, second: i64) -> CAPTControlPlaneStatus {
        state
            .clone()
            .report()
            .applied(Some(before), Some(3), at(second))
    }

    fn first(state: &State) -> CAPTControlPlaneStatus {
        state.clone().report().applied(None, Some(3), at(1))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn ready() -> State {
        State::Ready {
            reason: "EndpointPropagated",
            message: "host:443".into(),
        }
    }

    fn waiting() -> State {
        State::Waiting {
            reason: "WorkspaceNotReady",
            message: "not yet".into(),
        }
    }

    fn invalid() -> State {
        State::Invalid {
            reason: "InvalidEndpoint",
            message: "no".into(),
        }
    }

    #[test]
    fn each_state_sets_its_phase() {
        let applied = |state: &State| {
            let status = first(state);
            (
                status.ready,
                status.initialized,
                status.phase.expect("a phase"),
                status.conditions[0].status.clone(),
            )
        };
        assert_eq!(applied(&ready()), (true, true, Phase::Ready, "True".into()));
        assert_eq!(
            applied(&waiting()),
            (false, false, Phase::Creating, "False".into())
        );
        assert_eq!(
            applied(&invalid()),
            (false, false, Phase::Failed, "False".into())
        );
    }

    #[test]
    fn initialized_is_never_reset() {
        let status = first(&ready());
        let status = then(&invalid(), &status, 2);
        assert_eq!((status.ready, status.initialized), (false, true));
    }

    #[test]
    fn an_equal_report_changes_nothing() {
        for state in [ready(), waiting(), invalid()] {
            let status = first(&state);
            assert_eq!(then(&state, &status, 2), status);
        }
    }

    #[test]
    fn the_transition_time_changes_with_the_status() {
        let status = first(&waiting());
        let status = then(&invalid(), &status, 2);
        assert_eq!(
            status.conditions[0].last_transition_time.0,
            at(1),
            "still false"
        );
        let status = then(&ready(), &status, 3);
        assert_eq!(status.conditions[0].last_transition_time.0, at(3));
    }

    #[test]
    fn a_report_keeps_failures_and_conditions_of_others() {
        let status = first(&invalid());
        assert_eq!(
            (
                status.failure_reason.as_ref(),
                status.failure_message.as_ref()
            ),
            (None, None)
        );
        assert_eq!(
            then(&ready(), &status, 2).phase,
            Some(Phase::Ready),
            "the failure was ours"
        );

        let mut others = CAPTControlPlaneStatus {
            phase: Some(Phase::Failed),
            failure_reason: Some("SecretError".into()),
            ..CAPTControlPlaneStatus::default()
        };
        let condition = Condition {
            type_: "SecretsReady".into(),
            status: "False".into(),
            reason: "x".into(),
            message: String::new(),
            observed_generation: None,
            last_transition_time: Time(at(0)),
        };
        others.conditions.push(condition.clone());
        let status = then(&ready(), &others, 1);
        assert_eq!(
            (status.failure_reason.as_deref(), status.phase),
            (Some("SecretError"), Some(Phase::Failed))
        );
        assert_eq!(status.conditions[0], condition);
    }
}
