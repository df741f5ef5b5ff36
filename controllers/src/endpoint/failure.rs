//! Messages of failed reconciles: the operation and the class of the error.
//!
//! They contain nothing that was read.

use std::fmt;
use steersman::{client, reconcile};

/// Failed operation and the kind of its object, as the context of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailedOperation {
    Reading(&'static str),
    Writing(&'static str),
}

impl fmt::Display for FailedOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reading(kind) => write!(f, "cannot read {kind}"),
            Self::Writing(kind) => write!(f, "cannot write {kind}"),
        }
    }
}

/// Returns the message of an error.
///
/// Returns `None` for a conflict with another writer and for a lost leadership, which are not
/// reported.
pub(super) fn message(error: &reconcile::Error) -> Option<String> {
    let operation = error
        .downcast_ref::<FailedOperation>()
        .map_or_else(|| "reconcile failed".to_owned(), FailedOperation::to_string);
    let class = match error
        .chain()
        .find_map(|cause| cause.downcast_ref::<client::Error>())
    {
        Some(error) if error.is_conflict() || error.is_fenced() => return None,
        Some(client::Error::Api(status)) => status.to_string(),
        Some(client::Error::Connection(_)) => "no response".into(),
        Some(error) if error.is_timeout() => "no response".into(),
        Some(client::Error::Cache(_)) => "not synced".into(),
        Some(client::Error::Decode(_)) => "invalid response".into(),
        Some(_) => "request not sent".into(),
        None => "the write had another result".into(),
    };
    Some(format!("{operation}: {class}; retrying"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use kube::core::Status;

    #[test]
    fn a_message_has_operation_and_class_but_no_text_of_the_server() {
        let failed = |status: Status| {
            Err::<(), _>(client::Error::from(status)).context(FailedOperation::Reading("Secret"))
        };
        let error = failed(Status::failure("hunter2 is forbidden", "Forbidden").with_code(403))
            .expect_err("an error");
        assert_eq!(
            message(&error).as_deref(),
            Some("cannot read Secret: Forbidden; retrying")
        );
        let error = failed(Status::failure("hunter2 has changed", "Conflict").with_code(409))
            .expect_err("an error");
        assert_eq!(message(&error), None, "conflicts are not reported");
        let timeout = client::ResponseTimeout::Headers(std::time::Duration::from_secs(65));
        let error = anyhow::Error::new(client::Error::from(timeout))
            .context(FailedOperation::Reading("Secret"));
        assert_eq!(
            message(&error).as_deref(),
            Some("cannot read Secret: no response; retrying")
        );
        let error = anyhow::anyhow!("hunter2").context(FailedOperation::Writing("Cluster"));
        assert!(
            message(&error)
                .is_some_and(|message| message.starts_with("cannot write Cluster: the write had"))
        );
    }
}
