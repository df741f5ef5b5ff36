//! Tests of the API: kind, CRD, conversion, admission, hooks and registry.
//!
//! The files under `fixtures` have the output of Cluster API v1.14.2 for the inputs of the tests.

mod admission;
mod conversion;
mod definition;
mod hooks;
mod registry;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Decodes an object from JSON.
fn from<T: DeserializeOwned>(content: &Value) -> T {
    T::deserialize(content).unwrap_or_else(|error| panic!("{content}: {error}"))
}
