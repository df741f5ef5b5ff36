//! Tests of the public API of the client, on both servers.

mod cached;
mod connection;
mod dynamic;
mod finalizer;
mod intercept;
mod interceptors;
mod limits;
mod lists;
mod modifiers;
mod not_found;
mod outside_selector;
mod own_writes;
mod owner;
mod read_your_writes;
mod subresources;
mod support;
mod upsert;
mod upsert_status;
mod upsert_transform;
mod verbs;
mod watch_gate;
