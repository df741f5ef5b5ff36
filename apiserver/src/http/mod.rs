//! What a request asks for, told by its path, its query and its headers; and what it is answered with.

pub(crate) mod accept;
mod body;
mod discovery;
mod documents;
mod handle;
mod objects;
pub(crate) mod path;
pub(crate) mod query;
mod reply;
mod show;
mod table;
mod watch;

pub use body::Body;
pub(crate) use body::read_body;
pub(crate) use discovery::priority;
