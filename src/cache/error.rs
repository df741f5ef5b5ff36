//! Errors of declaring and reading kinds.

use super::Representation;
use crate::{
    error_chain::ErrorChain,
    object::{DecodeError, ObjectKey, SelectorError, redacted},
};
use std::time::Duration;

/// Error of declaring or reading a cached kind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The informer of this kind and scope has another representation.
    #[error(
        "cannot cache {kind} as {requested}: it is already cached as {cached}; declare it with \
         `.compact()` everywhere to serve both"
    )]
    RepresentationMismatch {
        /// Kind of the objects.
        kind: String,
        /// Representation of the existing informer.
        cached: Representation,
        /// Representation of the rejected declaration.
        requested: Representation,
    },
    /// The informer of this kind and scope has another Rust type.
    #[error(
        "cannot cache {kind} as this Rust type: it is already cached as another one; declare it \
         with `.compact()` everywhere to serve both"
    )]
    TypeMismatch {
        /// Kind of the objects.
        kind: String,
    },
    /// The informer of this kind and scope drops managed fields.
    #[error(
        "cannot cache {kind} with managed fields: it is already cached without them; declare it \
         with `.managed_fields()` everywhere"
    )]
    ManagedFieldsDropped {
        /// Kind of the objects.
        kind: String,
    },
    /// The declaration selects no namespace.
    #[error("cannot cache {kind}: no namespace selected; name one or use `Namespaces::All`")]
    NoNamespace {
        /// Kind of the objects.
        kind: String,
    },
    /// The declaration has an invalid namespace name.
    #[error(
        "cannot cache {kind}: `{namespace}` is not a valid namespace name; use at most 63 of a-z, \
         0-9 and `-`, without `-` at either end, or `NamespaceScope::others()` for all namespaces \
         that are not named"
    )]
    InvalidNamespace {
        /// Kind of the objects.
        kind: String,
        /// Rejected name.
        namespace: String,
    },
    /// The declaration selects namespaces, but its kind is cluster-scoped.
    #[error("cannot select namespaces of {kind}: it is cluster-scoped; remove `.namespaces(…)`")]
    NotNamespaced {
        /// Kind of the objects.
        kind: String,
    },
    /// The informer of this kind and scope has another transform, or none.
    #[error(
        "cannot cache {kind} with this transform: it is already cached with another one or none; \
         declare it with clones of one `Select`, or once in `CacheOptions::kinds`"
    )]
    TransformMismatch {
        /// Kind of the objects.
        kind: String,
    },
    /// The transform is for another type than the informer stores.
    #[error(
        "cannot transform {kind}: it is cached as {cached}, and the transform is for another type; \
         pass a transform for the cached type"
    )]
    TransformTypeMismatch {
        /// Kind of the objects.
        kind: String,
        /// Representation of the existing informer.
        cached: Representation,
    },
    /// The default namespaces of all kinds have a transform for one type.
    #[error(
        "cannot use a transform for one type in `CacheOptions::namespaces`: it applies to every \
         kind; move it to a `Select` in `CacheOptions::kinds`, or transform `Metadata`"
    )]
    TransformNotForAllKinds,
    /// The label selector is invalid.
    #[error(transparent)]
    InvalidLabelSelector(#[from] SelectorError),
    /// The field selector is invalid.
    #[error(
        "invalid field selector `{selector}`: {reason}; use the syntax of `kubectl \
         --field-selector`, such as `metadata.name=web,status.phase!=Failed`"
    )]
    InvalidFieldSelector {
        /// Rejected selector.
        selector: String,
        /// Reason for the rejection.
        reason: String,
    },
    /// The query selects by a body field, but the informer stores metadata only.
    #[error(
        "cannot select {kind} by `{field}`: only its metadata is cached; declare the kind itself, \
         or select by `metadata.name` or `metadata.namespace`"
    )]
    FieldNotCached {
        /// Kind of the objects.
        kind: String,
        /// Path of the field.
        field: String,
    },
    /// The first list has not completed, so reads cannot be answered.
    #[error("cannot read {kind} while its informer is not synced: {last_error}")]
    NotSynced {
        /// Kind of the objects.
        kind: String,
        /// Reason, with the message of the API server if it has rejected the list.
        last_error: String,
    },
    /// The API server has not served the kind since the cache was started.
    ///
    /// The informer syncs when the kind is installed.
    #[error("cannot read {kind}: {last_error}")]
    KindNotFound {
        /// Kind of the objects.
        kind: String,
        /// Missing kind, and the event that triggers the next discovery.
        last_error: String,
    },
    /// Some informers have not synced within the limit.
    #[error("informers not synced after {limit:?}: {}; grant list and watch where forbidden, \
             install the CRD where missing", .waiting.join(", "))]
    SyncTimeout {
        /// Time limit of the wait.
        limit: Duration,
        /// Kinds that have not synced, each with the reason.
        waiting: Vec<String>,
    },
    /// The kind of the read is not declared.
    #[error(
        "cannot read {api_version} {kind} from the cache: no informer declared; call \
         `cache.informer()`, watch the kind, or read with `client.live()`"
    )]
    NotCached {
        /// Group and version of the kind.
        api_version: String,
        /// Kind of the objects.
        kind: String,
    },
    /// The namespace of the read is outside of the informer's scope.
    #[error(
        "cannot read {kind} in namespace {namespace}: the namespace is not cached; add it to the \
         cache's namespaces, or read with `client.live()`"
    )]
    NamespaceNotCached {
        /// Kind of the objects.
        kind: String,
        /// Namespace of the read.
        namespace: String,
    },
    /// The informer did not observe an own write in time.
    #[error(
        "cache has not observed the write of {kind} {key} after {waited:?}; check the informer's \
         state, use `client.live()`, or set another `Consistency`"
    )]
    WriteNotObserved {
        /// Kind of the objects.
        kind: String,
        /// Key of an object whose write is not observed yet.
        key: ObjectKey,
        /// Time that the read has waited.
        waited: Duration,
    },
    /// The query uses an index of another informer.
    #[error(
        "cannot list {kind} by an index of another informer; create it with `index` of this one"
    )]
    IndexMismatch {
        /// Kind of the objects.
        kind: String,
    },
    /// The cache is running or closed.
    #[error("cannot run the cache: it runs or was closed; create another one")]
    AlreadyRun,
    /// The cache is closed.
    ///
    /// It accepts no declarations. Informers that are not synced never will be, and own writes
    /// since then are not observed.
    #[error("cache is closed; keep `run_until` running, or read with `client.live()`")]
    Closed,
    /// The informer was removed by [`Cache::remove`](super::Cache::remove).
    ///
    /// If it was not synced, it never will be. Own writes since then are not observed.
    #[error("informer of {kind} was removed by `Cache::remove`; declare the kind again")]
    Removed {
        /// Kind of the objects.
        kind: String,
    },
    /// The client could not be created.
    #[error(
        "cannot create a client from the configuration: {}; check server address, certificates and credentials",
        ErrorChain(.0)
    )]
    Connection(kube_client::Error),
    /// The object exists, and its current version does not decode. `get` returns no older version.
    #[error(
        "cannot decode {kind} {key}: {error}; make the type accept what the API server returns, or declare the kind with `.compact()` and read a `DynamicObject`"
    )]
    Undecodable {
        /// Kind of the object.
        kind: String,
        /// Key of the object.
        key: ObjectKey,
        /// Message of the decoder, without field values, which may be secret.
        error: String,
    },
    /// The informer keeps the object in a representation that the type cannot be read from.
    #[error(transparent)]
    Decode(DecodeError),
}

impl From<DecodeError> for CacheError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Mismatch { kind, key, error } => Self::Undecodable {
                error: redacted(&kind, &error),
                kind,
                key,
            },
            other => Self::Decode(other),
        }
    }
}
