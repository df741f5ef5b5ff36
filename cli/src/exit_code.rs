//! Exit codes of the program.

use std::process::ExitCode;

/// Errors with their own exit code. Other errors exit with 1.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExitError {
    /// No cluster is configured, its kubeconfig cannot be used, or it does not respond.
    #[error("{0}")]
    Unreachable(String),
    /// The cluster responds, but a CRD or a permission is missing.
    #[error("{0}")]
    MissingRequirement(String),
}

pub(crate) const HELP: &str = "\
Exit codes:
  0  success, or stopped by the first SIGINT or SIGTERM
  1  failure, or stopped by a second signal
  2  invalid command line
  3  the cluster cannot be reached, or its kubeconfig cannot be used
  4  CRDs or permissions are missing on the cluster; run `steersman doctor`";

pub(crate) fn code(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(match error.downcast_ref::<ExitError>() {
        Some(ExitError::Unreachable(_)) => 3,
        Some(ExitError::MissingRequirement(_)) => 4,
        None => 1,
    })
}
