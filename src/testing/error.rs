//! What can go wrong with a test server. The text says what to do next; errors are cheap to clone, since one failed start is
//! told to every test that waits for it.

use crate::causes::Causes;
use std::{fmt::Write as _, io, path::PathBuf, sync::Arc};

/// Why a test server did not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No programs to start.
    #[error(
        "no etcd and kube-apiserver to start: run `cargo xtask envtest`, or set KUBEBUILDER_ASSETS to a directory that has \
         them (looked in {})",
        listed(looked)
    )]
    NoBinaries {
        /// Where they were looked for.
        looked: Vec<PathBuf>,
    },
    /// A directory was named, but not everything is there.
    #[error(
        "{} has no program {program}: put it there, or set KUBEBUILDER_ASSETS to a directory that has it \
         (`cargo xtask envtest` builds all of them)",
        directory.display()
    )]
    MissingBinary {
        /// What is missing.
        program: &'static str,
        /// Where.
        directory: PathBuf,
    },
    /// A program of the environment is not running, or does not answer.
    #[error("{program} {what}; its logs are kept in {}, the last lines are\n{tail}", logs.display())]
    Program {
        /// `etcd`, `kube-apiserver` or `kube-controller-manager`.
        program: &'static str,
        /// What is the matter with it: `ended with exit status 1`.
        what: String,
        /// The end of its log.
        tail: String,
        /// Where all logs are.
        logs: PathBuf,
    },
    /// The file system or the operating system refused.
    #[error("cannot {doing}: {error}")]
    Io {
        /// What was tried.
        doing: String,
        /// Error of the operating system.
        error: Arc<io::Error>,
    },
    /// Certificates could not be made.
    #[error("{0}")]
    Certificates(String),
    /// The server refused a request, or was not to be reached.
    #[error("cannot {doing}: {}", Causes(&**error))]
    Request {
        /// What was tried.
        doing: String,
        /// Error of the client.
        error: Arc<kube_client::Error>,
    },
    /// No existing cluster is to be found.
    #[error(
        "no kubeconfig for the existing cluster that USE_EXISTING_CLUSTER asks for: set KUBECONFIG, or unset \
         USE_EXISTING_CLUSTER to start a server of your own ({0})"
    )]
    NoCluster(String),
    /// What is no definition of a resource, or is not served.
    #[error("the definition {name} {what}")]
    Definition {
        /// `widgets.example.com`, or what is known of it.
        name: String,
        /// What is the matter with it.
        what: String,
    },
    /// The embedded server refused.
    #[error("the embedded server cannot {doing}: {what}")]
    Embedded {
        /// What was tried.
        doing: &'static str,
        /// What it said.
        what: String,
    },
    /// An existing cluster is not ours to change.
    #[error(
        "an existing cluster cannot {0}: unset USE_EXISTING_CLUSTER, so that a server of the test's own is started"
    )]
    Existing(&'static str),
    /// The environment was stopped.
    #[error("the environment was stopped: start another one")]
    Stopped,
}

impl Error {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        |error| Self::Io { doing, error: error.into() }
    }

    pub(crate) fn request(doing: impl Into<String>) -> impl FnOnce(kube_client::Error) -> Self {
        let doing = doing.into();
        |error| Self::Request { doing, error: error.into() }
    }

    pub(super) fn definition(name: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Definition { name: name.into(), what: what.into() }
    }

    /// There is nothing to start: a test on the real server may be left out on a machine that has none.
    pub fn is_about_missing_binaries(&self) -> bool {
        matches!(self, Self::NoBinaries { .. } | Self::MissingBinary { .. })
    }
}

fn listed(directories: &[PathBuf]) -> String {
    let mut text = String::new();
    for directory in directories {
        let between = if text.is_empty() { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{between}{}", directory.display());
    }
    text
}
