//! Parses requests and encodes responses.
//!
//! `handle` takes a request through fault rules, authentication and the journal. `path`, `query`,
//! `accept` and `body` parse it. `objects` serves resources through the registry, and `watch`
//! streams their changes. `documents` and `discovery` serve everything else. `object_encoder` and
//! `table` encode objects, and `reply` becomes the HTTP response.

pub(crate) mod accept;
mod body;
mod discovery;
mod documents;
mod handle;
mod object_encoder;
mod objects;
pub(crate) mod path;
pub(crate) mod query;
mod reply;
mod table;
mod watch;

pub use body::Body;
pub(crate) use body::read_body;
pub(crate) use discovery::priority;
