//! What is in a slot, and how slots lie in memory.

use crate::object::ObjectKey;
use std::{iter, sync::Arc};

/// Objects in a chunk: few enough to be copied in microseconds, many enough that the list of chunks is short.
pub(super) const CHUNK: usize = 256;

/// A chunk's places. Those that were never used, and those that were given back, are free.
pub(super) type Chunk<P> = Arc<[Option<Entry<P>>]>;
pub(super) type Spine<P> = Arc<Vec<Chunk<P>>>;

/// With nothing in it.
pub(super) fn chunk<P>() -> Chunk<P> {
    iter::repeat_with(|| None).take(CHUNK).collect()
}

/// An object and its key.
#[derive(Debug)]
pub(crate) struct Entry<P> {
    pub(crate) key: ObjectKey,
    pub(crate) object: Arc<P>,
    /// About how much memory it takes.
    pub(crate) bytes: u32,
    /// The key's, in the store that it is in: a key's text is far away, and whoever looks at many must not go there.
    pub(super) hash: u32,
}

impl<P> Entry<P> {
    pub(crate) fn new(key: ObjectKey, object: Arc<P>, bytes: u32) -> Self {
        Self { key, object, bytes, hash: 0 }
    }

    /// Whether this is the one with that key.
    pub(super) fn is(&self, hash: u32, key: &ObjectKey) -> bool {
        // Who finds it is going to change the object's count: that is fetched while the key's text is, because both are far away. It is never 0.
        self.hash == hash && Arc::strong_count(&self.object) > 0 && self.key == *key
    }
}

impl<P> Clone for Entry<P> {
    fn clone(&self) -> Self {
        Self { key: self.key.clone(), object: self.object.clone(), ..*self }
    }
}
