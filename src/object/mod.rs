//! Objects as the framework sees them: a key, metadata that is always there, a body decoded on demand.
//!
//! * [`ObjectKey`] names an object that is not held;
//! * [`Object`] is one that is: what predicates and handlers get, with [`Meta`], a view of its metadata;
//! * [`KubeObject`] is what an object can be read as: a type, a `DynamicObject`, or only its [`Metadata`];
//!   [`StaticKind`] is a kind that a type alone names, [`AnyKind`] stands for all of them.
//!
//! An informer keeps an object in one of three forms: the type itself; packed, with parsed metadata, decoded when it is
//! read; metadata only. [`Object`] and [`Meta`] read the same whichever it is.
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
//! assert!(object.meta().labels().contains("app")); // looks only at metadata
//! assert!(object.decode()?.data.is_none());        // looks at all of it
//! # Ok::<_, steersman::object::DecodeError>(())
//! ```

mod assemble;
mod by_namespace;
mod compact;
mod compact_meta;
mod decode;
mod decoded;
mod error;
#[cfg(feature = "bench-internals")]
pub(crate) mod fuzz;
mod handle;
mod key;
mod kind;
mod lean;
mod meta;
mod packed;
mod payload;
mod redact;
mod selector;
mod size;
mod snug;
mod transform;
mod undecoded;
mod weight;
mod wire_meta;

#[cfg(test)]
mod tests;

pub(crate) use self::{
    by_namespace::ByNamespace,
    compact::Compact,
    decode::Decoder,
    error::Undecodable,
    handle::Body,
    payload::{MetadataOnly, Payload},
    selector::Selector,
    transform::Transform,
    undecoded::Undecoded,
};
pub use self::{
    error::DecodeError,
    handle::Object,
    key::ObjectKey,
    kind::{AnyKind, KindId, KubeObject, Metadata, StaticKind, StaticScope},
    meta::{Meta, Owner, Pairs, Timestamp},
    selector::SelectorError,
};
