//! Errors of reads and writes.

use super::{Discovered, ResponseTimeout, redact::redact};
use crate::{
    cache::CacheError,
    fencing::Fenced,
    object::{DecodeError, ObjectKey},
};
use kube_core::{Status, response::reason};
use std::{fmt, iter::successors, ops::Deref, time::Duration};

/// Result of a call of the client.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of a closure that is passed to the client.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Error of a read or a write.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cache cannot serve the read.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The API server rejected the request.
    #[error("{}", .0.message)]
    Api(#[source] StatusError),
    /// The request got no response, or no client could be created.
    #[error("request to the API server failed")]
    Connection(#[source] ConnectionError),
    /// The response did not arrive in time. See [`ConnectionOptions`](super::ConnectionOptions).
    #[error(
        "request to the API server timed out: {0}; check the load of the API server and the network, or retry"
    )]
    Timeout(ResponseTimeout),
    /// The response to a write did not arrive in time. The server may have applied the write.
    ///
    /// The client does not know the result, so no read [waits](super::Consistency) for the write.
    #[error(
        "write of {kind} {key} timed out and may have been done: {timeout}; read the object with `client.live()` before writing it again"
    )]
    WriteTimeout {
        /// Kind of the object.
        kind: String,
        /// Key of the object, without a name for a collection and for a generated name.
        key: ObjectKey,
        /// The part of the response that did not arrive.
        timeout: ResponseTimeout,
    },
    /// A live list does not end.
    ///
    /// The API server returned the same page again, or page after page without objects, also when
    /// it was asked for all objects at once.
    #[error(
        "cannot list {kind}: {reason}; check the proxies between this process and the API server"
    )]
    EndlessList {
        /// Kind of the objects.
        kind: String,
        /// Repeated part of the list.
        reason: &'static str,
    },
    /// The response does not match the Rust type.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The object or the patch cannot be encoded as JSON.
    #[error(
        "cannot encode {kind} {key} as JSON; serialize its type with string keys and finite numbers"
    )]
    Encode {
        /// Kind of the object.
        kind: String,
        /// Key of the object.
        key: ObjectKey,
        /// Cause of the failure.
        #[source]
        error: serde_json::Error,
    },
    /// The API server does not serve the kind or the subresource.
    #[error(
        "the API server does not serve {0}; install its CRD, and check the version and the \
         subresource"
    )]
    NoSuchKind(String),
    /// Several resources of the API server have this kind.
    #[error(
        "cannot choose a resource of {kind}: the API server serves {resources}; use a type that \
         names one of them, or `client.kube()`"
    )]
    AmbiguousKind {
        /// Group, version and kind.
        kind: String,
        /// Plural names of the resources.
        resources: String,
    },
    /// A dynamic object does not declare its kind.
    #[error("cannot send {0}: it has no kind; set `types`, which are `apiVersion` and `kind`")]
    NoKind(ObjectKey),
    /// The object has no name.
    #[error("cannot address {kind}: it has no name; set `metadata.name`")]
    NoName {
        /// Kind of the object.
        kind: String,
    },
    /// The name or the namespace is not a valid path segment.
    #[error(
        "invalid name `{key}` of {kind}; use a name other than `.` and `..`, without `/` and `%`"
    )]
    BadName {
        /// Kind of the object.
        kind: String,
        /// Invalid key.
        key: ObjectKey,
    },
    /// The name of the subresource is not a valid path segment.
    #[error("invalid subresource `{name}` of {kind}; use one path segment such as `status`")]
    BadSubresource {
        /// Kind of the object.
        kind: String,
        /// Invalid name.
        name: String,
    },
    /// The namespace of a namespaced object or collection is missing.
    #[error(
        "cannot address {kind} {key}: it has no namespace; name one, or use `client.namespace(…)`"
    )]
    NoNamespace {
        /// Kind of the object.
        kind: String,
        /// Key of the object.
        key: ObjectKey,
    },
    /// The object is outside of the client's namespace.
    #[error(
        "cannot access {kind} {key}: the client is restricted to namespace {namespace}; use a \
         client without `namespace(…)`"
    )]
    OtherNamespace {
        /// Kind of the object.
        kind: String,
        /// Key of the object, without a name for a collection.
        key: ObjectKey,
        /// Namespace of the client.
        namespace: String,
    },
    /// Server-side apply needs a field manager.
    #[error("cannot apply {kind} {key}: no field manager set; call `client.field_owner(…)`")]
    NoFieldOwner {
        /// Kind of the object.
        kind: String,
        /// Key of the object.
        key: ObjectKey,
    },
    /// An update with only the metadata would remove the rest of the object.
    #[error(
        "cannot update {kind} {key}: only its metadata is known, and the update would remove the \
         rest; use a patch"
    )]
    MetadataOnly {
        /// Kind of the object.
        kind: String,
        /// Key of the object.
        key: ObjectKey,
    },
    /// The base of a patch has no resource version, so conflicts cannot be detected.
    #[error(
        "cannot patch {kind} {key}: the base has no resourceVersion; pass the object as it was read"
    )]
    NoResourceVersion {
        /// Kind of the object.
        kind: String,
        /// Key of the object.
        key: ObjectKey,
    },
    /// The precondition of a deletion has no UID. The request was not sent.
    #[error(
        "cannot delete {kind} {key}: the precondition has no uid; pass the object to `delete_only` \
         as it was read"
    )]
    NoUid {
        /// Kind of the object.
        kind: String,
        /// Key of the object.
        key: ObjectKey,
    },
    /// The lease has ended. The request was not sent.
    #[error("cannot write {kind} {key}: the lease has ended")]
    Fenced {
        /// Kind of the object.
        kind: String,
        /// Key of the object.
        key: ObjectKey,
        /// Lease that has ended.
        #[source]
        fenced: Fenced,
    },
    /// The lease ended before the response. The write may have been applied.
    #[error("write of {kind} {key} may have been done: the lease ended before the response")]
    FencedOnItsWay {
        /// Kind of the object.
        kind: String,
        /// Key of the object.
        key: ObjectKey,
        /// Lease that has ended.
        #[source]
        fenced: Fenced,
    },
    /// The client does not support the operation.
    #[error("unsupported operation on {kind}: {reason}")]
    Unsupported {
        /// Kind of the object.
        kind: String,
        /// Reason and fix.
        reason: &'static str,
    },
    /// The closure that changes the object failed.
    #[error(transparent)]
    Mutate(BoxError),
    /// The closure changed the name or namespace of the object.
    #[error(
        "cannot write {kind} {key}: the closure renamed it to {changed}; keep name and namespace, \
         and call the client with the intended key"
    )]
    Renamed {
        /// Kind of the object.
        kind: String,
        /// Key of the object before the change.
        key: ObjectKey,
        /// Key after the change.
        changed: ObjectKey,
    },
}

/// Error of a request that got no response. Dereferences to kube's error.
///
/// kube's errors print their cause and also return it from `source()`. `ConnectionError` returns
/// the first cause that its text does not contain.
#[derive(Debug)]
pub struct ConnectionError(kube_client::Error);

impl Deref for ConnectionError {
    type Target = kube_client::Error;

    fn deref(&self) -> &kube_client::Error {
        &self.0
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ConnectionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let text = self.to_string();
        causes(self.0.source()).find(|cause| !text.ends_with(&cause.to_string()))
    }
}

fn causes<'a>(
    first: Option<&'a (dyn std::error::Error + 'static)>,
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    successors(first, |error| error.source())
}

/// Response that rejects a request, dereferences to its [`Status`].
///
/// Prints only the reason. The message is the text of [`Error::Api`].
#[derive(Clone, Debug)]
pub struct StatusError(Box<Status>);

impl Deref for StatusError {
    type Target = Status;

    fn deref(&self) -> &Status {
        &self.0
    }
}

impl fmt::Display for StatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason.as_str() {
            "" => write!(f, "status {}", self.code),
            reason => f.write_str(reason),
        }
    }
}

impl std::error::Error for StatusError {}

impl Error {
    /// Returns whether the API server reported that the object does not exist.
    ///
    /// False for a missing kind, which is [`NoSuchKind`](Self::NoSuchKind), and for a 404 without
    /// the reason `NotFound`, such as that of a proxy without a backend.
    pub fn is_not_found(&self) -> bool {
        self.status()
            .is_some_and(|status| status.reason == reason::NOT_FOUND)
    }

    /// Returns whether the error is a 404 that does not name an object.
    pub(super) fn is_nameless_404(&self) -> bool {
        let nameless = |status: &Status| {
            status
                .details
                .as_ref()
                .is_none_or(|details| details.name.is_empty())
        };
        self.status()
            .is_some_and(|status| status.code == 404 && (!self.is_not_found() || nameless(status)))
    }

    /// Returns whether the kind is missing, according to discovery or the cache.
    ///
    /// An object of the kind does not exist either. The CRD may be installed later.
    pub fn is_kind_not_found(&self) -> bool {
        matches!(
            self,
            Self::NoSuchKind(_) | Self::Cache(CacheError::KindNotFound { .. })
        )
    }

    /// Returns whether an object of that name already exists.
    pub fn is_already_exists(&self) -> bool {
        self.status()
            .is_some_and(|status| status.reason == reason::ALREADY_EXISTS)
    }

    /// Returns whether another client changed the object, or owns an applied field.
    ///
    /// A reconciler can return such an error: it is retried and logged at debug level only.
    pub fn is_conflict(&self) -> bool {
        self.status()
            .is_some_and(|status| status.reason == reason::CONFLICT)
    }

    /// Returns whether validation rejected the object, so that a retry does not help.
    pub fn is_invalid(&self) -> bool {
        self.status()
            .is_some_and(|status| status.reason == reason::INVALID)
    }

    /// Returns whether the write needs a lease that this process has lost.
    ///
    /// See [`Fence`](crate::manager::election::Fence).
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::Fenced { .. } | Self::FencedOnItsWay { .. })
    }

    /// Returns whether the response did not arrive in time.
    ///
    /// True for [`Timeout`](Self::Timeout) and [`WriteTimeout`](Self::WriteTimeout).
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout(_) | Self::WriteTimeout { .. })
    }

    /// Returns the message of the API server, or the text with all causes, for logs.
    pub(crate) fn describe(&self) -> String {
        match self.status() {
            Some(status) => status.message.clone(),
            None => causes(Some(self))
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(": "),
        }
    }

    /// Converts a timeout to that of a write of `key`.
    pub(super) fn of_write(self, kind: &Discovered, key: &ObjectKey) -> Self {
        match self {
            Self::Timeout(timeout) => Self::WriteTimeout {
                kind: kind.resource.kind.clone(),
                key: key.clone(),
                timeout,
            },
            other => other,
        }
    }

    /// Returns the delay that the API server requests before a retry.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.status()?.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    /// Returns the response, if the API server rejected the request.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Api(status) => Some(status),
            Self::Mutate(error) => error.downcast_ref::<Self>()?.status(),
            _ => None,
        }
    }
}

/// Lets a test simulate a response of the API server.
impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Self::Api(StatusError(Box::new(status)))
    }
}

/// Converts errors of requests with [`Client::kube`](super::Client::kube).
impl From<kube_client::Error> for Error {
    fn from(error: kube_client::Error) -> Self {
        match redact(error) {
            kube_client::Error::Api(status) => Self::Api(StatusError(status)),
            other => Self::Connection(ConnectionError(other)),
        }
    }
}

impl From<ResponseTimeout> for Error {
    fn from(timeout: ResponseTimeout) -> Self {
        Self::Timeout(timeout)
    }
}

/// Turns "not found" errors into `None`, for objects that need not exist.
///
/// ```
/// use kube_core::Status;
/// use steersman::client::{Error, IgnoreNotFound};
///
/// let gone: Result<(), Error> = Err(Status::failure("pods \"web\" not found", "NotFound").into());
/// assert!(gone.ignore_not_found()?.is_none());
/// # Ok::<_, Error>(())
/// ```
pub trait IgnoreNotFound<T> {
    /// Returns `None` if the object does not exist.
    fn ignore_not_found(self) -> Result<Option<T>>;
}

impl<T> IgnoreNotFound<T> for Result<T> {
    fn ignore_not_found(self) -> Result<Option<T>> {
        match self {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fencing::Fence;
    use kube_client::client::AuthError;
    use std::io;

    fn fenced() -> Fenced {
        let deadline = tokio::time::Instant::now();
        Fence::new("default/web".into(), 7, deadline)
            .check()
            .expect_err("the deadline has passed")
    }

    /// Returns the text of an error with its causes, as a program prints it.
    fn printed(error: Error) -> String {
        format!("{:#}", anyhow::Error::new(error))
    }

    #[test]
    fn an_error_prints_its_cause_once() {
        let (kind, key) = (|| "Pod".to_owned(), || ObjectKey::new("shop", "web"));
        let refused = || io::Error::other("connection refused");
        let unauthorized = AuthError::ReadTokenFile(refused(), "/token".into());
        let no_json = serde_json::from_str::<u8>("x").expect_err("not a number");
        for (error, cause) in [
            (
                kube_client::Error::Service(Box::new(refused())).into(),
                "connection refused",
            ),
            (
                kube_client::Error::ReadEvents(io::Error::other(refused())).into(),
                "connection refused",
            ),
            (
                kube_client::Error::Auth(unauthorized).into(),
                "connection refused",
            ),
            (
                Error::Encode {
                    kind: kind(),
                    key: key(),
                    error: no_json,
                },
                "expected value",
            ),
            (
                Error::Fenced {
                    kind: kind(),
                    key: key(),
                    fenced: fenced(),
                },
                "no longer leads",
            ),
            (
                Error::FencedOnItsWay {
                    kind: kind(),
                    key: key(),
                    fenced: fenced(),
                },
                "no longer leads",
            ),
            (
                ResponseTimeout::Headers(Duration::from_secs(65)).into(),
                "no response within 65s",
            ),
        ] {
            let (described, printed) = (error.describe(), printed(error));
            assert_eq!(printed.matches(cause).count(), 1, "{printed}");
            assert_eq!(described, printed);
        }
    }

    #[test]
    fn a_failed_connection_prints_all_of_its_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("client error (Connect)")]
        struct Connect(#[source] io::Error);

        let failed = Connect(io::Error::other("connection refused"));
        let error = Error::from(kube_client::Error::Service(Box::new(failed)));
        assert_eq!(error.to_string(), "request to the API server failed");
        assert_eq!(
            printed(error),
            "request to the API server failed: ServiceError: client error (Connect): connection refused"
        );
    }
}
