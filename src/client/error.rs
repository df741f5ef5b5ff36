//! What can go wrong with a read or a write. Each text says what to do next, or is the server's own.

use super::{Discovered, ResponseTimeout, discreet::discreet};
use crate::{
    cache::CacheError,
    fence::Fenced,
    object::{DecodeError, ObjectKey},
};
use kube_core::{Status, response::reason};
use std::{fmt, iter::successors, ops::Deref, time::Duration};

/// What a call of the client gives.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Whatever has gone wrong: what closures that are given to the client fail with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A read or a write has failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cache cannot serve it.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The server has refused it, in its own words.
    #[error("{}", .0.message)]
    Refused(#[source] Refusal),
    /// The request got no response, or no client could be created.
    #[error("request to the API server failed")]
    Connection(#[source] ConnectionError),
    /// The response did not arrive in time. See [`ConnectionOptions`](super::ConnectionOptions).
    #[error("request to the API server timed out: {0}; check the load of the API server and the network, or retry")]
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
    /// A live list does not end: the API server returned the same page again, or page after page without
    /// objects, also when it was asked for all objects at once.
    #[error("cannot list {kind}: {reason}; check the proxies between this process and the API server")]
    EndlessList {
        /// Kind of the objects.
        kind: String,
        /// What the API server repeats.
        reason: &'static str,
    },
    /// The answer does not fit the type.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The object or the patch cannot be written as JSON.
    #[error("cannot encode {kind} {key} as JSON; serialize its type with string keys and finite numbers")]
    Encode {
        /// The kind.
        kind: String,
        /// The object.
        key: ObjectKey,
        /// Why.
        #[source]
        error: serde_json::Error,
    },
    /// The server has no such kind, or the kind no such subresource.
    #[error("the server has no {0}: is its definition installed, with that version and subresource?")]
    NoSuchKind(String),
    /// Several resources of the server are of this kind.
    #[error("{kind} is any of {resources} on the server: use a type, which names one of them, or `client.kube()`")]
    AmbiguousKind {
        /// With its group and version.
        kind: String,
        /// Their plurals.
        resources: String,
    },
    /// A dynamic object that does not say what it is.
    #[error("{0} does not say its kind: set `types`, which are `apiVersion` and `kind`")]
    NoKind(ObjectKey),
    /// An object without a name.
    #[error("{kind} has no name: set `metadata.name`")]
    NoName {
        /// The kind.
        kind: String,
    },
    /// What no object can be named, nor a namespace.
    #[error("no {kind} can be named `{key}`: names are neither `.` nor `..`, and have no `/` and no `%` in them")]
    BadName {
        /// The kind.
        kind: String,
        /// As it was given.
        key: ObjectKey,
    },
    /// What no subresource can be named.
    #[error("no part of {kind} is named `{name}`: a subresource is one part of a path, as `status` and `scale` are")]
    BadSubresource {
        /// The kind.
        kind: String,
        /// As it was given.
        name: String,
    },
    /// An object of a kind that lives in namespaces, or a collection of them, without one.
    #[error("{kind} {key} has no namespace: name one, or use `client.namespace(…)`")]
    NoNamespace {
        /// The kind.
        kind: String,
        /// The object.
        key: ObjectKey,
    },
    /// Something outside of the client's namespace.
    #[error(
        "{kind} {key} is outside of namespace {namespace}, which this client is for: use one without `namespace(…)`"
    )]
    OtherNamespace {
        /// The kind.
        kind: String,
        /// The object, or the namespace whose objects were meant, with an empty name.
        key: ObjectKey,
        /// The client's.
        namespace: String,
    },
    /// Who applies has to say who it is.
    #[error("{kind} {key} cannot be applied by nobody: say who owns its fields with `client.field_owner(…)`")]
    NoFieldOwner {
        /// The kind.
        kind: String,
        /// The object.
        key: ObjectKey,
    },
    /// What is known is not the whole object.
    #[error("only the metadata of {kind} {key} is here, and would replace the rest: did you mean to patch?")]
    MetadataOnly {
        /// The kind.
        kind: String,
        /// The object.
        key: ObjectKey,
    },
    /// What has changed cannot be told from what others have changed since.
    #[error("{kind} {key} has no resourceVersion to patch from: use it as it was read")]
    NoResourceVersion {
        /// The kind.
        kind: String,
        /// The object.
        key: ObjectKey,
    },
    /// One object was to be deleted and no other, and which one it is was not said: it was not sent.
    #[error("{kind} {key} has no uid to tell it from another of its name: use `Deleting::only` with it as it was read")]
    NoUid {
        /// The kind.
        kind: String,
        /// The object.
        key: ObjectKey,
    },
    /// The lease that it was to be done under is over: it was not sent.
    #[error("cannot write {kind} {key}: the lease has ended")]
    Fenced {
        /// The kind.
        kind: String,
        /// The object.
        key: ObjectKey,
        /// Which lease.
        #[source]
        fenced: Fenced,
    },
    /// The lease that it was done under was over before there was an answer.
    #[error("write of {kind} {key} may have been done: the lease ended before the response")]
    FencedOnItsWay {
        /// The kind.
        kind: String,
        /// The object.
        key: ObjectKey,
        /// Which lease.
        #[source]
        fenced: Fenced,
    },
    /// What cannot be done in this way.
    #[error("{kind} is not to be had like this: {what}")]
    Unsupported {
        /// The kind.
        kind: String,
        /// What is meant, and what to do.
        what: &'static str,
    },
    /// What was to change an object has failed.
    #[error(transparent)]
    Mutate(BoxError),
    /// What was to change an object has made another one of it.
    #[error(
        "{kind} {key} was changed into {changed}: leave name and namespace as they are, and name the object that is meant"
    )]
    Renamed {
        /// The kind.
        kind: String,
        /// The object.
        key: ObjectKey,
        /// What it is called now.
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

/// What the server has said: its [`Status`]. As the source of an error it is the reason alone; the words are the error's own.
#[derive(Clone, Debug)]
pub struct Refusal(Box<Status>);

impl Deref for Refusal {
    type Target = Status;

    fn deref(&self) -> &Status {
        &self.0
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason.as_str() {
            "" => write!(f, "status {}", self.code),
            reason => f.write_str(reason),
        }
    }
}

impl std::error::Error for Refusal {}

impl Error {
    /// There is no such object: the server has said so, in a `Status` with that reason. A kind that does not exist is [`NoSuchKind`](Self::NoSuchKind), and a 404
    /// without a reason, as a proxy's is that has lost its server, is no word of the server's; both are another matter.
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(|status| status.reason == reason::NOT_FOUND)
    }

    /// That something was not found, but not which object.
    pub(super) fn is_nameless_404(&self) -> bool {
        let nameless = |status: &Status| status.details.as_ref().is_none_or(|details| details.name.is_empty());
        self.status().is_some_and(|status| status.code == 404 && (!self.is_not_found() || nameless(status)))
    }

    /// The server has no such kind, by its own list of what it has, or as far as the cache knows: then there is no such object either. Its definition may be
    /// installed later.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::NoSuchKind(_) | Self::Cache(CacheError::Absent { .. }))
    }

    /// There is such an object already.
    pub fn is_already_exists(&self) -> bool {
        self.status().is_some_and(|status| status.reason == reason::ALREADY_EXISTS)
    }

    /// Somebody else wrote in between, or owns a field that was to be applied. Returned from a reconciler it is retried quietly.
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(|status| status.reason == reason::CONFLICT)
    }

    /// The object is not as it may be: trying again does not help.
    pub fn is_invalid(&self) -> bool {
        self.status().is_some_and(|status| status.reason == reason::INVALID)
    }

    /// It was the leader's to do, and this process does not lead any more. See [`Fence`](crate::manager::election::Fence).
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::Fenced { .. } | Self::FencedOnItsWay { .. })
    }

    /// Whether the response did not arrive in time: [`Timeout`](Self::Timeout) or
    /// [`WriteTimeout`](Self::WriteTimeout).
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout(_) | Self::WriteTimeout { .. })
    }

    /// Returns the message of the API server, or else the text with all causes: for logs and states.
    pub(crate) fn describe(&self) -> String {
        match self.status() {
            Some(status) => status.message.clone(),
            None => causes(Some(self)).map(ToString::to_string).collect::<Vec<_>>().join(": "),
        }
    }

    /// Names the write that timed out.
    pub(super) fn of_write(self, kind: &Discovered, key: &ObjectKey) -> Self {
        match self {
            Self::Timeout(timeout) => {
                Self::WriteTimeout { kind: kind.resource.kind.clone(), key: key.clone(), timeout }
            }
            other => other,
        }
    }

    /// How long the server wants to be left alone for.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.status()?.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    /// The server's own words, if it has refused.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Mutate(error) => error.downcast_ref::<Self>()?.status(),
            _ => None,
        }
    }
}

/// What a test lets the server say.
impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Self::Refused(Refusal(Box::new(status)))
    }
}

/// For what is done with [`Client::kube`](super::Client::kube).
impl From<kube_client::Error> for Error {
    fn from(error: kube_client::Error) -> Self {
        match discreet(error) {
            kube_client::Error::Api(status) => Self::Refused(Refusal(status)),
            other => Self::Connection(ConnectionError(other)),
        }
    }
}

impl From<ResponseTimeout> for Error {
    fn from(timeout: ResponseTimeout) -> Self {
        Self::Timeout(timeout)
    }
}

/// For writes of what need not be there.
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
    /// `None` if there was no such object.
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
    use crate::fence::Fence;
    use kube_client::client::AuthError;
    use std::io;

    fn fenced() -> Fenced {
        let deadline = tokio::time::Instant::now();
        Fence::new("default/web".into(), 7, deadline).check().expect_err("the deadline has passed")
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
            (kube_client::Error::Service(Box::new(refused())).into(), "connection refused"),
            (kube_client::Error::ReadEvents(io::Error::other(refused())).into(), "connection refused"),
            (kube_client::Error::Auth(unauthorized).into(), "connection refused"),
            (Error::Encode { kind: kind(), key: key(), error: no_json }, "expected value"),
            (Error::Fenced { kind: kind(), key: key(), fenced: fenced() }, "no longer leads"),
            (Error::FencedOnItsWay { kind: kind(), key: key(), fenced: fenced() }, "no longer leads"),
            (ResponseTimeout::Headers(Duration::from_secs(65)).into(), "no response within 65s"),
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
