//! Features for tests that a real API server does not have.

mod faults;
mod fork;
mod journal;
mod options;
mod wait_idle;
mod wait_idle_threads;

use crate::support::*;
use serde_json::{Value, json};

/// Returns a config map that the config map `owner` owns.
fn owned_config_map(name: &str, owner: &Value) -> Value {
    let mut map = config_map(name);
    let meta = &owner["metadata"];
    map["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"]}]);
    map
}
