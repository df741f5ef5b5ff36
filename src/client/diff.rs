//! What differs between two objects, as a JSON merge patch (RFC 7386).
//!
//! What holds: whoever has `base` and merges the difference has `changed`, but for nulls, which are the same as nothing; if that is so without it, there is
//! none. Numbers are compared and sent as they are, also beyond 2^53.

use serde_json::{Map, Value};

/// `None` if nothing differs. Both are objects.
pub(super) fn diff(base: &Value, changed: &Value) -> Option<Value> {
    let (Value::Object(base), Value::Object(changed)) = (base, changed) else {
        return (base != changed).then(|| changed.clone());
    };
    let mut patch = Map::new();
    for (key, old) in base {
        if !old.is_null() && changed.get(key).is_none_or(Value::is_null) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    for (key, new) in changed {
        let differs = match base.get(key).unwrap_or(&Value::Null) {
            _ if new.is_null() => None,
            Value::Null => Some(new.clone()),
            old => diff(old, new),
        };
        patch.extend(differs.map(|value| (key.clone(), value)));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}
