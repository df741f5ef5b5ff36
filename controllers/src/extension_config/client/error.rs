//! Errors of the runtime client, with the texts of Cluster API.
//!
//! The texts become messages of conditions. Equal failures have equal texts. Texts from an
//! extension server are cut.

use super::{TlsConfigError, UrlError};
use crate::{
    cluster_api::joined,
    extension_config::{
        catalog::{GroupHook, GroupVersionHook},
        registry::RegistryError,
    },
};
use std::time::Duration;
use steersman::{client, object::ObjectKey};

/// Error of registering or unregistering an `ExtensionConfig`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The `ExtensionConfig` cannot be registered.
    #[error("failed to register ExtensionConfig {config:?}: {error}")]
    Register {
        /// Name of the `ExtensionConfig`.
        config: String,
        /// Error of the registry.
        error: RegistryError,
    },
    /// The `ExtensionConfig` cannot be unregistered.
    #[error("failed to unregister ExtensionConfig {config:?}: {error}")]
    Unregister {
        /// Name of the `ExtensionConfig`.
        config: String,
        /// Error of the registry.
        error: RegistryError,
    },
}

/// Error before a request is sent. Failure policies do not apply to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The `clientConfig` has no valid address.
    #[error("failed to get http client: {0}")]
    Url(#[from] UrlError),
    /// The `clientConfig` has no valid CA certificates.
    #[error("failed to get http client: {0}")]
    Tls(#[from] TlsConfigError),
    /// The request cannot be encoded as JSON.
    #[error("http call failed: failed to marshall request object: {0}")]
    Encode(String),
    /// The request is larger than extension servers accept.
    #[error("http call failed: request body of {size} bytes is larger than {limit} bytes")]
    RequestTooLarge {
        /// Size of the request in bytes.
        size: usize,
        /// Maximum size in bytes.
        limit: usize,
    },
}

/// Error of the HTTP step of a call: there is no valid response.
///
/// The failure policy `Ignore` ignores only these errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The connection failed, or the server closed it.
    #[error("http call failed: Post {url:?}: {cause}")]
    Connection {
        /// URL of the request.
        url: String,
        /// Cause of the failure.
        cause: String,
    },
    /// The response was not complete within the time limit.
    #[error("http call failed: Post {url:?}: no complete response within {timeout:?}")]
    Timeout {
        /// URL of the request.
        url: String,
        /// Time limit of the call.
        timeout: Duration,
    },
    /// The response has another status code than 200. Redirects are not followed.
    #[error("http call failed: got response with status code {code} != 200: response : {body}")]
    Status {
        /// Status code.
        code: u16,
        /// Start of the body, quoted.
        body: String,
    },
    /// The response has another status code than 200, and its body is too large or not complete.
    #[error(
        "http call failed: got response with status code {code} != 200: failed to read response body"
    )]
    StatusBody {
        /// Status code.
        code: u16,
    },
    /// The body is too large, not complete, or not a response of the hook.
    #[error("http call failed: failed to decode response: {cause}")]
    Decode {
        /// Cause of the failure.
        cause: String,
    },
}

/// Error of a response without the status `Success`. Failure policies do not apply to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResponseError {
    /// The status is `Failure`.
    #[error("got failure response with message: {message}")]
    Failure {
        /// Message of the response. Long messages are cut.
        message: String,
    },
    /// The status is neither `Success` nor `Failure`.
    #[error("got unknown response status {status:?} with message: {message}")]
    UnknownStatus {
        /// Status of the response, empty if it has none. Long ones are cut.
        status: String,
        /// Message of the response. Long messages are cut.
        message: String,
    },
}

/// Error of the discovery of an extension server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to discover extension {extension:?}: {reason}")]
pub struct DiscoveryError {
    /// Name of the `ExtensionConfig`.
    pub extension: String,
    /// Reason of the failure.
    pub reason: DiscoveryFailure,
}

/// Reason of a [`DiscoveryError`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoveryFailure {
    /// The request cannot be made.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The HTTP step failed.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The response does not have the status `Success`.
    #[error(transparent)]
    Response(#[from] ResponseError),
    /// The response has handlers that are not valid. Contains a bounded text for each problem.
    #[error("failed to validate discovery response: {}", joined(.0.iter().cloned()))]
    Invalid(Vec<String>),
}

/// Error of a call of one handler, or of all handlers of a hook.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The call of one handler failed.
    #[error("failed to call extension handler {handler:?}: {reason}")]
    Handler {
        /// Name of the handler.
        handler: String,
        /// Reason of the failure.
        reason: CallFailure,
    },
    /// The call of all handlers of a hook failed at one of them.
    #[error("failed to call extension handlers for hook \"{hook}\": {error}")]
    Handlers {
        /// Hook.
        hook: GroupHook,
        /// First error.
        error: Box<CallError>,
    },
    /// The handlers of a hook cannot be listed.
    #[error("failed to get extension handlers for hook \"{hook}\": {reason}")]
    List {
        /// Hook.
        hook: GroupHook,
        /// Reason of the failure.
        reason: ListFailure,
    },
}

/// Reason why the call of one handler failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallFailure {
    /// The catalog of the client does not have the hook.
    #[error("failed to compute GroupVersionHook: {0} is not in the catalog of the client")]
    UnknownHook(GroupVersionHook),
    /// No such handler is registered, or the registry is not ready.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The handler serves another hook.
    #[error("handler does not match GroupHook \"{0}\"")]
    OtherHook(GroupHook),
    /// The handler serves another version of the hook, and there is no conversion.
    #[error("handler serves {0}; call it with a hook of that version")]
    OtherVersion(GroupVersionHook),
    /// The labels of the namespace are not known.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The handler does not select the namespace of the object.
    #[error("namespaceSelector did not match object {0}")]
    NotSelected(ObjectKey),
    /// The request cannot be made.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The HTTP step failed, and the failure policy is `Fail`.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The response does not have the status `Success`.
    #[error(transparent)]
    Response(#[from] ResponseError),
}

/// Reason why the handlers of a hook cannot be listed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListFailure {
    /// The catalog of the client does not have the hook.
    #[error("failed to compute GroupVersionHook: {0} is not in the catalog of the client")]
    UnknownHook(GroupVersionHook),
    /// The registry is not ready.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The labels of the namespace are not known.
    #[error("failed to get extension handler {handler:?}: {error}")]
    Namespace {
        /// Name of the first handler whose selector needs the labels of the Namespace.
        handler: String,
        /// Error of the read.
        error: NamespaceError,
    },
}

/// Error of matching a Namespace with a selector.
#[derive(Debug, thiserror::Error)]
#[error("failed to match namespace: failed to get namespace {namespace}: {reason}")]
pub struct NamespaceError {
    /// Name of the Namespace. Empty for a cluster-scoped object.
    pub namespace: String,
    /// Reason of the failure.
    pub reason: NamespaceFailure,
}

/// Reason of a [`NamespaceError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NamespaceFailure {
    /// The object is not in a namespace.
    #[error("the object is not in a namespace")]
    ClusterScoped,
    /// The Namespace does not exist.
    #[error("the Namespace does not exist")]
    NotFound,
    /// The read failed.
    #[error("{0}")]
    Read(client::Error),
}

impl CallError {
    /// Returns the error of the HTTP step; `None` if another step failed.
    pub fn http_error(&self) -> Option<&HttpError> {
        match self {
            Self::Handler {
                reason: CallFailure::Http(error),
                ..
            } => Some(error),
            Self::Handlers { error, .. } => error.http_error(),
            Self::Handler { .. } | Self::List { .. } => None,
        }
    }

    /// Returns the error of the response status; `None` if something else failed.
    pub fn response_error(&self) -> Option<&ResponseError> {
        match self {
            Self::Handler {
                reason: CallFailure::Response(error),
                ..
            } => Some(error),
            Self::Handlers { error, .. } => error.response_error(),
            Self::Handler { .. } | Self::List { .. } => None,
        }
    }
}
