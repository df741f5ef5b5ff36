//! The client as its users have it, on both servers.

mod cached;
mod calls;
mod connection;
mod dynamic;
mod finalizer;
mod held;
mod intercept;
mod left;
mod limits;
mod lists;
mod matrix;
mod modifiers;
mod own_writes;
mod owner;
mod parts;
mod support;
mod unfound;
mod upsert;
mod upsert_status;
mod upsert_transform;
mod verbs;
