//! Why there is no server.

use crate::{manager::ManagerError, tls::TlsError};
use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
};

/// Why there is no admin server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The address is not to be had.
    #[error("cannot listen on {address}: {error}; {hint} `Admin::address`")]
    Bind {
        /// Where it was to listen.
        address: SocketAddr,
        /// Error of the operating system.
        error: io::Error,
        /// What to do.
        hint: &'static str,
    },
    /// There is no certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Whoever is on the way could use the tokens of those who ask.
    #[error(
        "refusing to ask for tokens on {0} without TLS, where others can read them: set `Admin::tls`, or listen on loopback behind what has TLS"
    )]
    Readable(SocketAddr),
    /// An entry of [`Admin::hosts`](super::Admin::hosts) is neither a DNS name nor an IP address.
    #[error("invalid host `{0}` in `Admin::hosts`; use a DNS name or an IP address, without scheme and port")]
    InvalidHost(String),
    /// The manager is stopping.
    #[error(transparent)]
    Manager(#[from] ManagerError),
}

impl AdminError {
    pub(super) fn bind(address: SocketAddr, error: io::Error) -> Self {
        let hint = match error.kind() {
            ErrorKind::AddrInUse => "end what listens there, or choose another port, 0 for any that is free, in",
            ErrorKind::PermissionDenied => "choose a port above 1023 in",
            ErrorKind::AddrNotAvailable => "choose an address of this machine in",
            _ => "choose another one in",
        };
        Self::Bind { address, error, hint }
    }
}
