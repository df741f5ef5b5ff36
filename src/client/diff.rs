//! Difference of two objects as a JSON merge patch (RFC 7386).
//!
//! Invariant: applying the patch to `base` yields `changed`, where a null field is equal to a
//! missing one. There is no patch if both are equal. Numbers are compared and sent without loss,
//! also beyond 2^53.

use serde_json::{Map, Value};

/// Returns the patch between two objects; `None` if they are equal.
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
    fn a_diff_has_the_set_changed_and_removed_fields() {
        let base = json!({"spec": {"count": 1, "note": "soon", "labels": {"a": "1"}, "list": [1, 2]}, "kind": "Order"});
        let changed = json!({"spec": {"count": 2, "labels": {"a": "1", "b": "2"}, "list": [1]}, "kind": "Order"});
        let patch = json!({"spec": {"count": 2, "note": null, "labels": {"b": "2"}, "list": [1]}});
        assert_eq!(diff(&base, &changed), Some(patch));
        assert_eq!(diff(&base, &base), None);
    }

    #[test]
    fn integers_beyond_doubles_are_compared_exactly() {
        let (base, changed) = (
            json!({"n": 9_007_199_254_740_992_i64}),
            json!({"n": 9_007_199_254_740_993_i64}),
        );
        assert_eq!(diff(&base, &changed), Some(changed));
        let (base, changed) = (json!({"n": i64::MIN}), json!({"n": u64::MAX}));
        assert_eq!(
            diff(&base, &changed).map(|patch| patch.to_string()),
            Some(r#"{"n":18446744073709551615}"#.into())
        );
    }

    #[test]
    fn null_equals_a_missing_field() {
        assert_eq!(diff(&json!({"a": null}), &json!({})), None);
        assert_eq!(diff(&json!({}), &json!({"a": null})), None);
        assert_eq!(
            diff(&json!({"a": 1}), &json!({"a": null})),
            Some(json!({"a": null}))
        );
        assert_eq!(
            diff(&json!({"a": {}}), &json!({})),
            Some(json!({"a": null})),
            "an empty object is something"
        );
        assert_eq!(diff(&json!({}), &json!({"a": {}})), Some(json!({"a": {}})));
    }

    /// Applies a merge patch with the algorithm of RFC 7386.
    fn merge(target: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            return target.clone_from(patch);
        };
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

    /// Removes nulls from objects, but not from lists.
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
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from)
        ];
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
        fn merging_the_diff_yields_the_changed_object(
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
