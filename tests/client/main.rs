//! The client as its users have it, on both servers.

mod cached;
mod calls;
mod connection;
mod dynamic;
mod finalizer;
mod intercept;
mod lists;
mod modifiers;
mod owner;
mod parts;
mod support;
mod upsert;
mod upsert_status;
mod verbs;
