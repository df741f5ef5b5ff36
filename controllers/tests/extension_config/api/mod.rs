//! Tests of the API: kind, CRD, conversion, admission, hooks and registry.
//!
//! The files under `fixtures` are what Cluster API v1.14.2 returns for the same input.

mod admission;
mod conversion;
mod definition;
mod hooks;
mod registry;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Returns an object with this content. The type follows from the caller.
fn from<T: DeserializeOwned>(content: &Value) -> T {
    T::deserialize(content).unwrap_or_else(|error| panic!("{content}: {error}"))
}
