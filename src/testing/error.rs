//! Errors of test servers.
//!
//! Errors are cheap to clone, because every test that waits for a failed start receives a copy.

use crate::error_chain::ErrorChain;
use std::{fmt::Write as _, io, path::PathBuf, sync::Arc};

/// Error of a test server.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The binaries of the control plane were not found.
    #[error(
        "cannot find etcd and kube-apiserver in {}; set KUBEBUILDER_ASSETS to a directory with \
         both, such as the one that `setup-envtest use -p path` prints, or run `cargo xtask \
         envtest` in the repository of steersman",
        listed(looked)
    )]
    NoBinaries {
        /// Directories that were searched.
        looked: Vec<PathBuf>,
    },
    /// The configured directory does not have all binaries.
    #[error(
        "cannot find {program} in {}; set KUBEBUILDER_ASSETS to a directory that has it, or run \
         `cargo xtask envtest` in the repository of steersman",
        directory.display()
    )]
    MissingBinary {
        /// Name of the missing binary.
        program: &'static str,
        /// Configured directory.
        directory: PathBuf,
    },
    /// A program of the environment is not running or does not answer.
    #[error("{program} {problem}; its logs are kept in {}, the last lines are\n{tail}", logs.display())]
    Program {
        /// `etcd`, `kube-apiserver` or `kube-controller-manager`.
        program: &'static str,
        /// State of the program, such as `ended with exit status 1`.
        problem: String,
        /// End of the log.
        tail: String,
        /// Directory of all logs.
        logs: PathBuf,
    },
    /// An operation of the operating system failed.
    #[error("cannot {operation}: {error}")]
    Io {
        /// Operation that failed.
        operation: String,
        /// Error of the operating system.
        error: Arc<io::Error>,
    },
    /// Certificates could not be created.
    #[error("{0}")]
    Certificates(String),
    /// A request was rejected, or the server could not be reached.
    #[error("cannot {operation}: {}", ErrorChain(&**error))]
    Request {
        /// Operation that failed.
        operation: String,
        /// Error of the client.
        error: Arc<kube_client::Error>,
    },
    /// No kubeconfig for an existing cluster was found.
    #[error(
        "cannot use the existing cluster of USE_EXISTING_CLUSTER: {0}; set KUBECONFIG, or unset \
         USE_EXISTING_CLUSTER to start a server"
    )]
    NoCluster(String),
    /// A CRD is invalid or not served.
    #[error("CustomResourceDefinition {name} {problem}")]
    Definition {
        /// Name such as `widgets.example.com`, as far as known.
        name: String,
        /// Problem with the CRD.
        problem: String,
    },
    /// The embedded server rejected an operation.
    #[error("embedded API server cannot {operation}: {problem}")]
    Embedded {
        /// Operation that failed.
        operation: &'static str,
        /// Message of the server.
        problem: String,
    },
    /// The operation is not possible on an existing cluster.
    #[error("an existing cluster cannot {0}; unset USE_EXISTING_CLUSTER to start a server")]
    Existing(&'static str),
    /// The environment was stopped.
    #[error("the environment was stopped; start another one")]
    Stopped,
}

impl Error {
    pub(crate) fn io(operation: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let operation = operation.into();
        |error| Self::Io {
            operation,
            error: error.into(),
        }
    }

    pub(crate) fn request(operation: impl Into<String>) -> impl FnOnce(kube_client::Error) -> Self {
        let operation = operation.into();
        |error| Self::Request {
            operation,
            error: error.into(),
        }
    }

    pub(super) fn definition(name: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Definition {
            name: name.into(),
            problem: problem.into(),
        }
    }

    /// Returns whether the binaries of the control plane are not installed.
    ///
    /// A test on the real server may be skipped in that case.
    pub fn is_about_missing_binaries(&self) -> bool {
        matches!(self, Self::NoBinaries { .. } | Self::MissingBinary { .. })
    }
}

fn listed(directories: &[PathBuf]) -> String {
    let mut text = String::new();
    for directory in directories {
        let between = if text.is_empty() { "" } else { ", " };
        // Writing to a `String` does not fail.
        let _ = write!(text, "{between}{}", directory.display());
    }
    text
}
