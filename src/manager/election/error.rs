//! What can go wrong with an election. Each text says what to do next.

use crate::causes::Causes;
use std::time::Duration;

/// An election cannot begin, or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ElectionError {
    /// No object can be named so.
    #[error("`{name}` is no {what} of a Lease: use lower case letters, digits, `-` and `.`")]
    BadName {
        /// Name or namespace.
        what: &'static str,
        /// As it was given.
        name: String,
    },
    /// Outside of a cluster there is no namespace of one's own.
    #[error("the Lease `{0}` has no namespace, and this process runs in none: set `namespace`")]
    NoNamespace(String),
    /// Everybody would be everybody.
    #[error(
        "a candidate without an identity cannot be told from others: set `identity`, or leave it as it is by default"
    )]
    NoIdentity,
    /// The leader could lose the lease before it has given up.
    #[error(
        "lease_duration {lease:?} is not longer than renew_deadline {renew:?}: the lease would end before its leader gives up"
    )]
    LeaseTooShort {
        /// As it was given.
        lease: Duration,
        /// As it was given.
        renew: Duration,
    },
    /// One failure would be the end.
    #[error("renew_deadline {renew:?} is not longer than 1.2 times retry_period {retry:?}: leave time for another try")]
    RenewTooShort {
        /// As it was given.
        renew: Duration,
        /// As it was given.
        retry: Duration,
    },
    /// Leases count in seconds, and nothing in negative ones.
    #[error("{what} is {is:?}: it has to be at least {least:?}")]
    TooShort {
        /// Which option.
        what: &'static str,
        /// As it was given.
        is: Duration,
        /// What is needed.
        least: Duration,
    },
    /// The client could not be created.
    #[error(
        "cannot create a client from the configuration: {}; check server address, certificates and credentials",
        Causes(.0)
    )]
    Connection(kube_client::Error),
    /// It is still this process's, as far as others know.
    #[error("Lease {lease} was not released: {error}: others wait until it has been left alone for {wait:?}")]
    NotReleased {
        /// `namespace/name`.
        lease: String,
        /// Why.
        error: String,
        /// How long that takes.
        wait: Duration,
    },
}

/// This process does not lead any more: end the leader's work, and the process, or wait for another turn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// It was not renewed in time.
    #[error(
        "leader election lost: Lease {lease} was not renewed within {within:?}{}: look at the server's load, and at stops of this process",
        .last_error.as_ref().map(|error| format!(", last error: {error}")).unwrap_or_default()
    )]
    NotRenewed {
        /// `namespace/name`.
        lease: String,
        /// The renew deadline.
        within: Duration,
        /// What the last attempt met, if it was not this process that did not run.
        last_error: Option<String>,
    },
    /// Somebody else has it.
    #[error("leader election lost: Lease {lease} is not this process's any more, its holder is `{holder}`")]
    Taken {
        /// `namespace/name`.
        lease: String,
        /// Who has it; empty if it was given away.
        holder: String,
    },
}
