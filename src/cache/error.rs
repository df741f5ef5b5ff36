//! What can go wrong when a kind is declared or read. Each text says what to do next.

use super::Representation;
use crate::{
    causes::Causes,
    object::{DecodeError, ObjectKey, SelectorError},
};
use std::time::Duration;

/// A kind cannot be declared, or not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The same kind and scope is kept in another form.
    #[error("{kind} is cached as {have}, not as {want}: declare it with `.compact()` everywhere to have both")]
    Representation {
        /// The kind.
        kind: String,
        /// How it is kept.
        have: Representation,
        /// How it was to be kept.
        want: Representation,
    },
    /// The same kind and scope is kept as another Rust type.
    #[error("{kind} is cached as another type of that kind: declare it with `.compact()` everywhere to have both")]
    OtherType {
        /// The kind.
        kind: String,
    },
    /// The same kind and scope is kept without what is asked for now.
    #[error("{kind} is cached without its managed fields: declare it with `.managed_fields()` everywhere")]
    ManagedFields {
        /// The kind.
        kind: String,
    },
    /// A selection of no namespace.
    #[error("no namespace is selected for {kind}: name some, or choose `Namespaces::All`")]
    NoNamespace {
        /// The kind.
        kind: String,
    },
    /// A selection of what cannot be a namespace.
    #[error(
        "`{namespace}` is selected for {kind}, and is no name of a namespace: use at most 63 of a-z, 0-9 and `-`, \
         and no `-` at either end; all that are not named are `InNamespace::others()`"
    )]
    NamespaceName {
        /// The kind.
        kind: String,
        /// As it was given.
        namespace: String,
    },
    /// A selection of namespaces of a kind that has none.
    #[error("{kind} has no namespaces: leave `.namespaces(…)` out of its selection")]
    NotNamespaced {
        /// The kind.
        kind: String,
    },
    /// The same kind and scope is kept with another transform, or with none.
    #[error(
        "{kind} is cached with another transform: declare it with clones of one `Select`, or once in `CacheOptions::kinds`"
    )]
    OtherTransform {
        /// The kind.
        kind: String,
    },
    /// A transform of objects that are not kept.
    #[error("{kind} is cached as {have}, which the transform is not for: give it one for the type that is kept")]
    TransformType {
        /// The kind.
        kind: String,
        /// How it is kept.
        have: Representation,
    },
    /// A transform of one kind in the cache's own namespaces, which are those of all.
    #[error(
        "`CacheOptions::namespaces` is for all kinds, and has a transform for one type: say it in a `Select` in `CacheOptions::kinds`, or of `Metadata`"
    )]
    TransformOfAll,
    /// A label selector that is none.
    #[error(transparent)]
    Selector(#[from] SelectorError),
    /// A field selector that is none.
    #[error(
        "`{selector}` is no field selector: {what}: write it as for `kubectl --field-selector`, for instance `metadata.name=web,status.phase!=Failed`"
    )]
    FieldSelector {
        /// As it was given.
        selector: String,
        /// What is wrong with it.
        what: String,
    },
    /// A query by a field of which nothing is in memory.
    #[error(
        "only the metadata of {kind} is in memory, so that nothing can be found by `{field}`: declare the kind itself, \
         or select by `metadata.name` and `metadata.namespace`"
    )]
    FieldOfMetadata {
        /// The kind.
        kind: String,
        /// What was asked for.
        field: String,
    },
    /// The first list has not come yet, so that nothing is known; not even that there is nothing.
    #[error("{kind} is not synced: {last_error}")]
    NotSynced {
        /// The kind.
        kind: String,
        /// Why, in the server's own words if it has said something.
        last_error: String,
    },
    /// The server has no such kind, and never had since the cache runs: there are no objects, and they come when it does.
    #[error("{kind} is not synced: {last_error}")]
    Absent {
        /// The kind.
        kind: String,
        /// What is missing, and how it is looked for.
        last_error: String,
    },
    /// Some kinds have not synced in the time they were given.
    #[error("not synced within {limit:?}: {}: what is refused needs a role, what is absent its definition", .waiting.join(", "))]
    SyncTimeout {
        /// How long they were waited for.
        limit: Duration,
        /// The kinds, each with the reason.
        waiting: Vec<String>,
    },
    /// A read of a kind that nobody has declared.
    #[error(
        "{api_version} {kind} is not cached: declare it with `cache.informer()`, watch it, or read it with `client.live()`"
    )]
    NotCached {
        /// Its group and version.
        api_version: String,
        /// The kind.
        kind: String,
    },
    /// A read from a namespace that is not kept: nothing is known of it.
    #[error(
        "{kind} of namespace {namespace} are not cached: add it to the cache's namespaces, or read with `client.live()`"
    )]
    NotKept {
        /// The kind.
        kind: String,
        /// The namespace.
        namespace: String,
    },
    /// A read was to show what was written before, and the informer does not have that yet.
    #[error(
        "{kind} {key} was written, and is not in the cache after {waited:?}: look at the informer's state, read with `client.live()`, or choose \
         another `Consistency`"
    )]
    Behind {
        /// The kind.
        kind: String,
        /// An object that was written, and is not shown yet.
        key: ObjectKey,
        /// How long the read has waited for it.
        waited: Duration,
    },
    /// A query by an index of another informer.
    #[error("the index is of another informer than {kind} is listed from: make it with the `index` of this one")]
    OtherIndex {
        /// The kind.
        kind: String,
    },
    /// The cache runs already, or has ended.
    #[error("this cache runs already, or has ended: make another one to run again")]
    AlreadyRun,
    /// The cache has ended: it declares nothing, what is not synced never will be, and what was written since cannot be shown.
    #[error("the cache has ended: keep `run_until` running for as long as it is used, or read with `client.live()`")]
    Ended,
    /// The informer was removed: what is not synced never will be, and what was written since cannot be shown.
    #[error("{kind} was removed from the cache by `remove`: declare it again to go on")]
    Removed {
        /// The kind.
        kind: String,
    },
    /// The client could not be created.
    #[error(
        "cannot create a client from the configuration: {}; check server address, certificates and credentials",
        Causes(.0)
    )]
    Connection(kube_client::Error),
    /// The object exists, and its current version does not decode. A typed informer keeps no older
    /// version for `get`.
    #[error(
        "cannot decode {kind} {key}: {error}; make the type accept what the API server returns, or declare the kind with `.compact()`"
    )]
    Undecodable {
        /// Kind of the object.
        kind: String,
        /// Key of the object.
        key: ObjectKey,
        /// Message of the decoder, without values of the object's fields, which may be secret.
        error: String,
    },
    /// An object is there, and cannot be read as what it is asked for.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}
