//! How much is read without a pause, so that the other tasks of a runtime get their turn.

/// Objects, and bytes of them, that are read in one go: a third of a millisecond, or one object if that is larger.
pub(super) const OBJECTS: usize = 16;
pub(super) const BYTES: usize = 128 << 10;

/// What was read since the last pause.
#[derive(Default)]
pub(super) struct Turn {
    objects: usize,
    bytes: usize,
}

impl Turn {
    /// One more object, of this length.
    pub(super) fn took(&mut self, bytes: usize) {
        self.objects += 1;
        self.bytes += bytes;
    }

    pub(super) fn is_over(&self) -> bool {
        self.objects >= OBJECTS || self.bytes > BYTES
    }
}
