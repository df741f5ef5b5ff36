//! Tests against Cluster API's own Runtime SDK: the Go program in `tests/peers/capi`.
//!
//! Each test runs both runtime clients against both extension servers, and expects the same result
//! from all four pairs. The tests are skipped if Go is not installed.

mod discovery;
mod failures;
mod fixture;
mod go;
mod hooks;
mod process;
mod responses;

use serde_json::{Value, json};

/// Returns a handler of `BeforeClusterCreate`. `options` are fields of the peer's `handler`.
fn handler(name: &str, response: Value, options: Value) -> Value {
    let mut handler = json!({"name": name, "hook": "BeforeClusterCreate", "response": response});
    if let (Value::Object(handler), Value::Object(options)) = (&mut handler, options) {
        handler.extend(options);
    }
    handler
}

fn success() -> Value {
    json!({"status": "Success"})
}
