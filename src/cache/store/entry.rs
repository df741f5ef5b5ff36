//! Entries and chunks of the store.

use crate::object::ObjectKey;
use std::{iter, sync::Arc};

/// Objects per chunk.
///
/// Few enough to copy in microseconds, and enough for a short list of chunks.
pub(super) const CHUNK: usize = 256;

/// Slots of a chunk. `None` is a free slot.
pub(super) type Chunk<P> = Arc<[Option<Entry<P>>]>;
pub(super) type Spine<P> = Arc<Vec<Chunk<P>>>;

/// Creates an empty chunk.
pub(super) fn chunk<P>() -> Chunk<P> {
    iter::repeat_with(|| None).take(CHUNK).collect()
}

/// Object with its key.
#[derive(Debug)]
pub(crate) struct Entry<P> {
    pub(crate) key: ObjectKey,
    pub(crate) object: Arc<P>,
    /// Approximate memory of the object.
    pub(crate) bytes: u32,
    /// Hash of the key in its store. Avoids a cache miss on the key when tables are scanned.
    pub(super) hash: u32,
}

impl<P> Entry<P> {
    pub(crate) fn new(key: ObjectKey, object: Arc<P>, bytes: u32) -> Self {
        Self {
            key,
            object,
            bytes,
            hash: 0,
        }
    }

    /// Returns whether the entry has this key.
    pub(super) fn is(&self, hash: u32, key: &ObjectKey) -> bool {
        // The caller will change the reference count, which is never 0. Reading it here overlaps
        // its cache miss with that of the key.
        self.hash == hash && Arc::strong_count(&self.object) > 0 && self.key == *key
    }
}

impl<P> Clone for Entry<P> {
    fn clone(&self) -> Self {
        Self {
            key: self.key.clone(),
            object: self.object.clone(),
            ..*self
        }
    }
}
