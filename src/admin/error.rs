//! Errors of the admin server.

use crate::{manager::ManagerError, tls::TlsError};
use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
};

/// Error that prevents the start of the admin server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {error}; {hint} `Admin::address`")]
    Bind {
        /// Configured address.
        address: SocketAddr,
        /// Error of the operating system.
        error: io::Error,
        /// Suggested fix.
        hint: &'static str,
    },
    /// The certificate cannot be loaded.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Tokens would be sent over plain HTTP to an address that is not loopback.
    #[error(
        "cannot accept tokens on {0} without TLS: others could read them; set `Admin::tls`, or \
         listen on loopback"
    )]
    Readable(SocketAddr),
    /// An entry of [`Admin::hosts`](super::Admin::hosts) is neither a DNS name nor an IP address.
    #[error(
        "invalid host `{0}` in `Admin::hosts`; use a DNS name or an IP address, without scheme and port"
    )]
    InvalidHost(String),
    /// The manager is stopping.
    #[error(transparent)]
    Manager(#[from] ManagerError),
}

impl AdminError {
    pub(super) fn bind(address: SocketAddr, error: io::Error) -> Self {
        let hint = match error.kind() {
            ErrorKind::AddrInUse => {
                "stop the process that listens there, or choose another port, 0 for any free one, \
                 in"
            }
            ErrorKind::PermissionDenied => "choose a port above 1023 in",
            ErrorKind::AddrNotAvailable => "choose an address of this machine in",
            _ => "choose another one in",
        };
        Self::Bind {
            address,
            error,
            hint,
        }
    }
}
