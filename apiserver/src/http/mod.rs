//! What goes over the wire beside objects.

pub(crate) mod discovery;
pub(crate) mod table;
