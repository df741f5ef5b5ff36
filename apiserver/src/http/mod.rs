//! What a request asks for, told by its path, its query and its headers.

pub(crate) mod accept;
pub(crate) mod path;
pub(crate) mod query;
