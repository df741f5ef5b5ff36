//! The client as its users have it, on both servers.

mod cached;
mod connection;
mod dynamic;
mod held;
mod intercept;
mod lists;
mod matrix;
mod modifiers;
mod own_writes;
mod parts;
mod support;
mod verbs;
