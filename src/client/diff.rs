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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn what_is_set_changed_or_removed_is_sent_and_nothing_else() {
        let base = json!({"spec": {"count": 1, "note": "soon", "labels": {"a": "1"}, "list": [1, 2]}, "kind": "Order"});
        let changed = json!({"spec": {"count": 2, "labels": {"a": "1", "b": "2"}, "list": [1]}, "kind": "Order"});
        let patch = json!({"spec": {"count": 2, "note": null, "labels": {"b": "2"}, "list": [1]}});
        assert_eq!(diff(&base, &changed), Some(patch));
        assert_eq!(diff(&base, &base), None);
    }

    #[test]
    fn numbers_beyond_doubles_differ_by_one() {
        let (base, changed) = (json!({"n": 9_007_199_254_740_992_i64}), json!({"n": 9_007_199_254_740_993_i64}));
        assert_eq!(diff(&base, &changed), Some(changed));
        let (base, changed) = (json!({"n": i64::MIN}), json!({"n": u64::MAX}));
        assert_eq!(diff(&base, &changed).map(|patch| patch.to_string()), Some(r#"{"n":18446744073709551615}"#.into()));
    }

    #[test]
    fn null_is_the_same_as_nothing() {
        assert_eq!(diff(&json!({"a": null}), &json!({})), None);
        assert_eq!(diff(&json!({}), &json!({"a": null})), None);
        assert_eq!(diff(&json!({"a": 1}), &json!({"a": null})), Some(json!({"a": null})));
        assert_eq!(diff(&json!({"a": {}}), &json!({})), Some(json!({"a": null})), "an empty object is something");
        assert_eq!(diff(&json!({}), &json!({"a": {}})), Some(json!({"a": {}})));
    }

    /// RFC 7386, as it is written there.
    fn merge(target: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else { return target.clone_from(patch) };
        if !target.is_object() {
            *target = json!({});
        }
        for (key, value) in patch {
            if value.is_null() {
                target.as_object_mut().expect("an object").remove(key);
            } else {
                merge(&mut target[key], value);
            }
        }
    }

    /// Without the nulls in objects; in lists they count.
    fn bare(value: &Value) -> Value {
        match value {
            Value::Object(map) => map
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key.clone(), bare(value)))
                .collect(),
            other => other.clone(),
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), any::<i64>().prop_map(Value::from)];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map("[abc]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    steersman_testkit::properties! {
        #[test]
        fn who_merges_the_difference_has_the_other(
            base in proptest::collection::btree_map("[abc]", value(), 0..4),
            changed in proptest::collection::btree_map("[abc]", value(), 0..4),
        ) {
            let object = |map: std::collections::BTreeMap<String, Value>| Value::Object(map.into_iter().collect());
            let (base, changed) = (object(base), object(changed));
            let patch = diff(&base, &changed);
            prop_assert_eq!(patch.is_none(), bare(&base) == bare(&changed));
            let mut merged = base;
            merge(&mut merged, &patch.unwrap_or(json!({})));
            prop_assert_eq!(bare(&merged), bare(&changed));
        }
    }
}
