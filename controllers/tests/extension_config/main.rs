//! Tests of `ExtensionConfig` and of the Runtime SDK.

mod api;
mod client;
mod controller;
mod peer;
mod server;
mod support;
