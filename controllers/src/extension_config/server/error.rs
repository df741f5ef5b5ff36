//! Errors of registering handlers and of starting the server.

use crate::extension_config::catalog::GroupVersionHook;
use std::{io, net::SocketAddr};
use steersman::tls::TlsError;

/// Error of registering a handler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistrationError {
    /// The name is not a DNS label, so clients would reject the discovery.
    #[error(
        "cannot register handler `{0}`: its name is not a DNS label; use at most 63 lower case letters, digits and `-`, starting and ending with a letter or digit"
    )]
    InvalidName(String),
    /// Another handler has the name, so clients would reject the discovery.
    #[error(
        "cannot register handler `{0}`: another handler has this name; use a name that is unique across hooks"
    )]
    DuplicateName(String),
    /// The catalog does not contain the hook.
    #[error(
        "cannot register handler `{handler}`: hook {hook} is not in the catalog; add it with `Catalog::with`"
    )]
    UnknownHook {
        /// Name of the handler.
        handler: String,
        /// Hook of the handler.
        hook: GroupVersionHook,
    },
    /// The hook is `Discovery`, which the server itself answers.
    #[error(
        "cannot register handler `{0}`: the server answers Discovery itself; register a handler of another hook"
    )]
    ReservedHook(String),
    /// The time limit is out of range, so clients would reject the discovery.
    #[error(
        "cannot register handler `{handler}`: invalid time limit of {seconds} s; use 0 to 30, where 0 means 10"
    )]
    InvalidTimeout {
        /// Name of the handler.
        handler: String,
        /// Time limit in seconds.
        seconds: i32,
    },
    /// An option of a handler was set before a handler was added.
    #[error("cannot set an option of a handler: no handler was added; call `Extension::on` first")]
    NoHandler,
}

/// Error of starting the server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A handler cannot be registered.
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    /// There is no certificate.
    #[error("cannot serve the extension: no certificate; call `Extension::tls`")]
    NoCertificate,
    /// The certificate files cannot be used.
    #[error(transparent)]
    Files(#[from] TlsError),
    /// The certificate in memory cannot be used. The reason contains none of its bytes.
    #[error(
        "cannot use the certificate of the extension: {0}; pass a certificate chain and its key as PEM"
    )]
    Certificate(String),
    /// The CA of client certificates cannot be used.
    #[error("cannot use the CA of client certificates: {0}; pass certificates as PEM")]
    ClientCa(String),
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}; use a free port and an address of this machine")]
    Bind {
        /// Address to listen on.
        address: SocketAddr,
        /// Reason.
        source: io::Error,
    },
}
