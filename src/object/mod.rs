//! Objects: a key, metadata that is always in memory, and a body decoded on demand.
//!
//! * [`ObjectKey`] is the namespace and name of an object.
//! * [`Object`] is an object in memory, passed to predicates and handlers. [`Meta`] is a view of
//!   its metadata.
//! * [`KubeObject`] is a type as which an object can be read: a Rust type, a `DynamicObject`, or
//!   only its [`Metadata`]. [`StaticKind`] is a kind that a Rust type determines, and [`AnyKind`]
//!   stands for all of them.
//!
//! An informer stores objects in one of three representations: typed; compact, with parsed metadata
//! and a body that is decoded on read; or metadata-only. [`Object`] and [`Meta`] hide the
//! difference.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use steersman::object::{Object, ObjectKey};
//!
//! let mut config = ConfigMap::default();
//! config.metadata.namespace = Some("shop".into());
//! config.metadata.name = Some("colors".into());
//! config.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
//!
//! let object = Object::from(config);
//! assert_eq!(*object.key(), ObjectKey::new("shop", "colors"));
//! assert!(object.meta().labels().contains("app")); // reads only metadata
//! assert!(object.decode()?.data.is_none());        // reads the body
//! # Ok::<_, steersman::object::DecodeError>(())
//! ```

// The API: keys, kinds, objects and their metadata.
mod as_object;
mod error;
mod handle;
mod key;
mod kind;
mod label_query;
mod meta;
mod selector;
mod transform;

// Representations of an object in a store.
mod compact;
mod compact_meta;
mod decoded;
mod packed;
mod payload;
mod undecoded;
mod wire_meta;

// Decoding.
mod assemble;
mod decode;
mod exact_vec;
mod redact;
mod skip_managed_fields;

// Helpers of the cache.
mod by_namespace;
mod size;
mod size_estimate;

#[cfg(feature = "__internals")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;

#[doc(hidden)]
pub use self::as_object::{Owned, Shared};
pub use self::{
    as_object::AsObject,
    error::DecodeError,
    handle::Object,
    key::ObjectKey,
    kind::{AnyKind, KindId, KubeObject, Metadata, StaticKind, StaticScope},
    label_query::LabelQuery,
    meta::{Meta, Owner, Pairs, Timestamp},
    selector::SelectorError,
};
pub(crate) use self::{
    by_namespace::ByNamespace,
    compact::Compact,
    decode::Decoder,
    error::Undecodable,
    handle::{Body, ObjectId},
    payload::{MetadataOnly, Payload},
    redact::redacted,
    selector::Selector,
    transform::Transform,
    undecoded::Undecoded,
};
