//! What a test can do to this server that nobody can do to a real one.

mod faults;
mod fork;
mod idle;
mod idle_threads;
mod journal;
mod options;

use crate::support::*;
use serde_json::{Value, json};

/// A config map that belongs to another.
fn owned(name: &str, owner: &Value) -> Value {
    let mut map = config_map(name);
    let meta = &owner["metadata"];
    map["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"]}]);
    map
}
