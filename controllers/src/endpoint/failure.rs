//! What a pass has failed by, in words for everybody: what could not be done, and the class of the error. Nothing that was read is in them.

use std::fmt;
use steersman::{client, reconcile};

/// What could not be done, to objects of this kind: the context of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    Reading(&'static str),
    Writing(&'static str),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reading(kind) => write!(f, "{kind} cannot be read"),
            Self::Writing(kind) => write!(f, "{kind} cannot be written"),
        }
    }
}

/// `None` if it is nobody's failure: somebody else was faster, or leads now.
pub(super) fn words(error: &reconcile::Error) -> Option<String> {
    let what = error.downcast_ref::<Failed>().map_or_else(|| "it has failed".to_owned(), Failed::to_string);
    let class = match error.chain().find_map(|cause| cause.downcast_ref::<client::Error>()) {
        Some(error) if error.is_conflict() || error.is_fenced() => return None,
        Some(client::Error::Refused(refusal)) => refusal.to_string(),
        Some(client::Error::Connection(_)) => "no answer".into(),
        Some(error) if error.is_timeout() => "no answer".into(),
        Some(client::Error::Cache(_)) => "not synced".into(),
        Some(client::Error::Decode(_)) => "it does not fit its type".into(),
        Some(_) => "it was not sent".into(),
        None => "it is not as it was written".into(),
    };
    Some(format!("{what}: {class}; it is tried again"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use kube::core::Status;

    #[test]
    fn the_words_are_kind_and_class_and_nothing_of_the_servers() {
        let failed = |status: Status| Err::<(), _>(client::Error::from(status)).context(Failed::Reading("Secret"));
        let error = failed(Status::failure("hunter2 is forbidden", "Forbidden").with_code(403)).expect_err("it is one");
        assert_eq!(words(&error).as_deref(), Some("Secret cannot be read: Forbidden; it is tried again"));
        let error = failed(Status::failure("hunter2 has changed", "Conflict").with_code(409)).expect_err("it is one");
        assert_eq!(words(&error), None, "somebody else was faster");
        let timeout = client::ResponseTimeout::Headers(std::time::Duration::from_secs(65));
        let error = anyhow::Error::new(client::Error::from(timeout)).context(Failed::Reading("Secret"));
        assert_eq!(words(&error).as_deref(), Some("Secret cannot be read: no answer; it is tried again"));
        let error = anyhow::anyhow!("hunter2").context(Failed::Writing("Cluster"));
        assert!(words(&error).is_some_and(|words| words.starts_with("Cluster cannot be written: it is not as")));
    }
}
