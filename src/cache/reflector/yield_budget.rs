//! Budget of objects and bytes that a reflector decodes before it yields.

/// Budget: about a third of a millisecond, or one object if it is larger.
pub(super) const OBJECTS: usize = 16;
pub(super) const BYTES: usize = 128 << 10;

/// Objects and bytes decoded since the last yield.
#[derive(Default)]
pub(super) struct YieldBudget {
    objects: usize,
    bytes: usize,
}

impl YieldBudget {
    /// Counts an object of this length.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.objects += 1;
        self.bytes += bytes;
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.objects >= OBJECTS || self.bytes > BYTES
    }
}
