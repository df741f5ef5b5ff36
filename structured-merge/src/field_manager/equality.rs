//! Equality of objects, without the times in their managed fields.

use serde_json::Value;

/// Returns whether two objects differ in nothing but the times in their managed fields.
///
/// An API server does not store a change of these times alone. An apply that changes nothing
/// therefore keeps the resource version and the old times.
pub fn equal_ignoring_timestamps(old: &Value, new: &Value) -> bool {
    equal_but(old, new, &["metadata", "managedFields"])
}

/// Compares two values. Entries of managed fields at `path` are compared without their times.
fn equal_but(old: &Value, new: &Value, path: &[&str]) -> bool {
    let [name, rest @ ..] = path else {
        return equal_entries(old, new);
    };
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            old.len() == new.len()
                && old.iter().all(|(key, old)| {
                    new.get(key).is_some_and(|new| {
                        if key == name {
                            equal_but(old, new, rest)
                        } else {
                            old == new
                        }
                    })
                })
        }
        _ => old == new,
    }
}

fn equal_entries(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| equal_entry(old, new))
        }
        _ => old == new,
    }
}

fn equal_entry(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let fields = |entry: &serde_json::Map<String, Value>| {
                entry.len() - usize::from(entry.contains_key("time"))
            };
            fields(old) == fields(new)
                && old
                    .iter()
                    .all(|(name, value)| name == "time" || new.get(name) == Some(value))
        }
        _ => old == new,
    }
}
