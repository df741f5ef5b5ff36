//! Result of a write that is skipped if the object is already up to date.

/// Change that was necessary to bring an object into its desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Change {
    /// The object was already up to date.
    None,
    /// The object did not exist and was created.
    Created,
    /// The object was updated, but not its status.
    Updated,
    /// Only the status was updated.
    UpdatedStatus,
    /// The object and its status were updated.
    Both,
}
