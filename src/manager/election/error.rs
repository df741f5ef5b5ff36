//! Errors of leader election.

use crate::error_chain::ErrorChain;
use std::time::Duration;

/// Error of a leader election: invalid options, or a failed release.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ElectionError {
    /// The name or namespace is invalid.
    #[error("invalid {field} `{name}` of a Lease; use lower-case letters, digits, `-` and `.`")]
    BadName {
        /// `name` or `namespace`.
        field: &'static str,
        /// Rejected value.
        name: String,
    },
    /// No namespace is set, and the process does not run in a pod.
    #[error(
        "cannot address Lease `{0}`: it has no namespace, and this process does not run in a pod; \
         set `namespace`"
    )]
    NoNamespace(String),
    /// The identity is empty, so candidates cannot be distinguished.
    #[error(
        "invalid leader election options: the identity is empty; set `identity`, or keep the \
         default"
    )]
    NoIdentity,
    /// The Lease could expire before the leader stops renewing it.
    #[error(
        "invalid leader election options: lease_duration {lease:?} is not longer than \
         renew_deadline {renew:?}; set a longer lease_duration"
    )]
    LeaseTooShort {
        /// Configured lease duration.
        lease: Duration,
        /// Configured renew deadline.
        renew: Duration,
    },
    /// A single failed renewal would lose the Lease.
    #[error(
        "invalid leader election options: renew_deadline {renew:?} is not longer than 1.2 times \
         retry_period {retry:?}; set a longer renew_deadline"
    )]
    RenewTooShort {
        /// Configured renew deadline.
        renew: Duration,
        /// Configured retry period.
        retry: Duration,
    },
    /// A duration is too short. The lease duration is at least one second.
    #[error("invalid leader election options: {option} is {is:?}; set at least {least:?}")]
    TooShort {
        /// Name of the option.
        option: &'static str,
        /// Configured value.
        is: Duration,
        /// Smallest valid value.
        least: Duration,
    },
    /// The client could not be created.
    #[error(
        "cannot create a client from the configuration: {}; check server address, certificates and credentials",
        ErrorChain(.0)
    )]
    Connection(kube_client::Error),
    /// The Lease could not be released. Other candidates wait until it expires.
    #[error(
        "cannot release Lease {lease}: {error}; another candidate can take over after {wait:?}"
    )]
    NotReleased {
        /// `namespace/name` of the Lease.
        lease: String,
        /// Error of the last request.
        error: String,
        /// Time after which another candidate can take over.
        wait: Duration,
    },
}

/// Reason why this process no longer leads.
///
/// End the leader's work and the process, or wait to be elected again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// The Lease was not renewed within the renew deadline.
    #[error(
        "leader election lost: Lease {lease} was not renewed within {within:?}{}; check the load \
         of the API server and pauses of this process",
        .last_error.as_ref().map(|error| format!(", last error: {error}")).unwrap_or_default()
    )]
    NotRenewed {
        /// `namespace/name` of the Lease.
        lease: String,
        /// The renew deadline.
        within: Duration,
        /// Error of the last request; `None` if the process was suspended.
        last_error: Option<String>,
    },
    /// Another process has taken the Lease.
    #[error("leader election lost: Lease {lease} is now held by `{holder}`")]
    Taken {
        /// `namespace/name` of the Lease.
        lease: String,
        /// Identity of the holder; empty if the Lease was released.
        holder: String,
    },
}
