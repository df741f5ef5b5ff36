//! How the program ends: a sentence on stderr, and a code.

use std::process::ExitCode;

/// What a script can go by. Everything else that fails is 1.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ending {
    /// No cluster is named, its kubeconfig cannot be used, or it does not answer.
    #[error("{0}")]
    Unreachable(String),
    /// The cluster answers, and does not have or allow what is needed.
    #[error("{0}")]
    Lacking(String),
}

pub(crate) const HELP: &str = "\
Exit codes:
  0  done, or stopped by a first SIGINT or SIGTERM
  1  it failed, or was ended by a second signal
  2  the command line is wrong
  3  the cluster cannot be reached, or its kubeconfig cannot be used
  4  the cluster lacks definitions or permissions: `steersman doctor` says which";

pub(crate) fn code(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(match error.downcast_ref::<Ending>() {
        Some(Ending::Unreachable(_)) => 3,
        Some(Ending::Lacking(_)) => 4,
        None => 1,
    })
}
