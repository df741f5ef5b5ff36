//! Structural schemas: what an object's fields may be.

/// The schema of a resource.
#[derive(Debug, Default)]
pub struct Schema {}
