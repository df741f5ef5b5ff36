//! Objects as arguments: a reference to an object or to an `Arc`.

use kube_core::Resource;
use std::sync::Arc;

/// Argument that is an object or an `Arc` of one, as returned by cached reads.
///
/// Not meant to be implemented by users. `M` separates the two implementations. The compiler infers
/// it.
pub trait AsObject<M> {
    /// Type of the object.
    type Object: Resource;

    /// Returns the object.
    fn as_object(&self) -> &Self::Object;
}

/// Marks an object that is passed directly.
#[derive(Debug)]
pub enum Owned {}

/// Marks an object that is passed in an `Arc`.
#[derive(Debug)]
pub enum Shared {}

impl<K: Resource> AsObject<Owned> for K {
    type Object = K;

    fn as_object(&self) -> &K {
        self
    }
}

impl<K: Resource> AsObject<Shared> for Arc<K> {
    type Object = K;

    fn as_object(&self) -> &K {
        self
    }
}
