//! The client as its users have it, on both servers.

mod support;
mod verbs;
