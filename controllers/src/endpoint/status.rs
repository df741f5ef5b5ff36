//! What the endpoint decides of a control plane's status: one condition, and `ready`, `initialized`, `phase` and the failure as far as they follow from it.

use super::types::{CAPTControlPlane, CAPTControlPlaneStatus, Phase};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};

/// The condition.
pub const ENDPOINT_READY: &str = "EndpointReady";

/// What a pass has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The endpoint is where it belongs.
    Ready { reason: &'static str, message: String },
    /// Something is not there yet.
    Waiting { reason: &'static str, message: String },
    /// Somebody has to mend it.
    Invalid { message: String },
    /// Something could not be read or written, and is tried again.
    Failed { message: String },
}

/// The reason of the failure that is ours: another one's is left alone.
const INVALID: &str = "InvalidEndpoint";

impl State {
    /// The status with this in it. What others have written stays.
    pub(crate) fn applied(&self, plane: &CAPTControlPlane, now: Timestamp) -> CAPTControlPlaneStatus {
        let mut status = plane.status.clone().unwrap_or_default();
        let (met, reason, message) = match self {
            Self::Ready { reason, message } => ("True", *reason, message),
            Self::Waiting { reason, message } => ("False", *reason, message),
            Self::Invalid { message } => ("False", INVALID, message),
            Self::Failed { message } => ("False", "EndpointUpdateFailed", message),
        };
        status.ready = matches!(self, Self::Ready { .. });
        status.initialized |= status.ready;
        status.phase = Some(match self {
            Self::Ready { .. } => Phase::Ready,
            Self::Waiting { .. } | Self::Failed { .. } => Phase::Creating,
            Self::Invalid { .. } => Phase::Failed,
        });
        if let Self::Invalid { message } = self {
            status.failure_reason = Some(INVALID.into());
            status.failure_message = Some(message.clone());
        } else if status.failure_reason.as_deref() == Some(INVALID) {
            (status.failure_reason, status.failure_message) = (None, None);
        }
        let condition = Condition {
            type_: ENDPOINT_READY.into(),
            status: met.into(),
            reason: reason.into(),
            message: message.clone(),
            observed_generation: plane.metadata.generation,
            last_transition_time: Time(now),
        };
        set(&mut status.conditions, condition);
        status
    }
}

/// The time stays as long as the answer does.
pub(crate) fn set(conditions: &mut Vec<Condition>, mut condition: Condition) {
    match conditions.iter_mut().find(|other| other.type_ == condition.type_) {
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
    use super::{super::types::CAPTControlPlaneSpec, *};

    fn plane(status: CAPTControlPlaneStatus) -> CAPTControlPlane {
        let mut plane = CAPTControlPlane::new("plane", CAPTControlPlaneSpec::default());
        plane.metadata.generation = Some(3);
        plane.status = Some(status);
        plane
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn ready() -> State {
        State::Ready { reason: "EndpointPropagated", message: "host:443".into() }
    }

    fn waiting() -> State {
        State::Waiting { reason: "WorkspaceNotReady", message: "not yet".into() }
    }

    fn invalid() -> State {
        State::Invalid { message: "no".into() }
    }

    #[test]
    fn each_state_has_its_phase() {
        let applied = |state: State| {
            let status = state.applied(&plane(CAPTControlPlaneStatus::default()), at(1));
            (status.ready, status.initialized, status.phase.expect("one"), status.conditions[0].status.clone())
        };
        assert_eq!(applied(ready()), (true, true, Phase::Ready, "True".into()));
        assert_eq!(applied(waiting()), (false, false, Phase::Creating, "False".into()));
        assert_eq!(applied(invalid()), (false, false, Phase::Failed, "False".into()));
    }

    #[test]
    fn what_was_initialized_stays_so() {
        let status = ready().applied(&plane(CAPTControlPlaneStatus::default()), at(1));
        let status = invalid().applied(&plane(status), at(2));
        assert_eq!((status.ready, status.initialized), (false, true));
    }

    #[test]
    fn the_same_said_again_changes_nothing() {
        for state in [ready(), waiting(), invalid()] {
            let status = state.applied(&plane(CAPTControlPlaneStatus::default()), at(1));
            assert_eq!(state.applied(&plane(status.clone()), at(2)), status);
        }
    }

    #[test]
    fn the_time_of_a_condition_is_that_of_its_answer() {
        let status = waiting().applied(&plane(CAPTControlPlaneStatus::default()), at(1));
        let status = invalid().applied(&plane(status), at(2));
        assert_eq!(status.conditions[0].last_transition_time.0, at(1), "still false");
        let status = ready().applied(&plane(status), at(3));
        assert_eq!(status.conditions[0].last_transition_time.0, at(3));
    }

    #[test]
    fn a_failure_is_taken_back_if_it_was_ours_and_conditions_of_others_stay() {
        let status = invalid().applied(&plane(CAPTControlPlaneStatus::default()), at(1));
        assert_eq!(status.failure_reason.as_deref(), Some(INVALID));
        assert_eq!(waiting().applied(&plane(status), at(2)).failure_message, None);

        let mut others = CAPTControlPlaneStatus { failure_reason: Some("SecretError".into()), ..Default::default() };
        let condition = Condition {
            type_: "SecretsReady".into(),
            status: "False".into(),
            reason: "x".into(),
            message: String::new(),
            observed_generation: None,
            last_transition_time: Time(at(0)),
        };
        others.conditions.push(condition.clone());
        let status = ready().applied(&plane(others), at(1));
        assert_eq!(status.failure_reason.as_deref(), Some("SecretError"));
        assert_eq!(status.conditions[0], condition);
    }
}
