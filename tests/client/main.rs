//! The client as its users have it, on both servers.

mod cached;
mod dynamic;
mod intercept;
mod lists;
mod modifiers;
mod parts;
mod support;
mod verbs;
