//! What a write that may be needless has come to.

/// What was done to make an object as it is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Change {
    /// It was so already.
    None,
    /// There was none.
    Created,
    /// Everything but its status.
    Updated,
    /// Only its status.
    UpdatedStatus,
    /// Its status and the rest.
    Both,
}
