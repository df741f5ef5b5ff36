//! Objects in memory: one informer per kind and selection, shared by everybody, kept up to date by list and watch.
//!
//! `reflect` asks the server and says what it has, `core` puts it into the `store` and tells the handlers through the `fan`.
#![cfg_attr(not(test), expect(dead_code, reason = "the informer's public face is the next step"))]

mod core;
mod fan;
mod reflect;
mod store;
