//! The client as its users have it, on both servers.

mod finalizer;
mod owner;
mod support;
mod upsert;
mod verbs;
