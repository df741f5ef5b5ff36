//! Patches: a change told as the difference.
//!
//! A patch that fails leaves its document half changed: it is applied to a copy.

mod json;
mod merge;

use crate::{
    decode,
    http::accept::{JSON_PATCH, MERGE_PATCH},
    status::{Failure, Result, StrictErrors},
};
use bytes::Bytes;
use serde_json::{Map, Value};

/// A change to a document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Patch {
    /// A list of operations.
    Json(json::JsonPatch),
    /// What shall be: null removes.
    Merge(Value),
}

impl Patch {
    /// Parses the body of a request of that media type, without parameters.
    /// Gives what is doubtful in it as well.
    pub(crate) fn parse(content_type: &str, body: &Bytes) -> Result<(Self, StrictErrors)> {
        let body = decode::json(body).map_err(|_| Failure::bad_request("invalid JSON patch"))?;
        match content_type {
            JSON_PATCH => {
                let mut faults = unknown_fields(&body.value);
                faults.extend(body.faults.iter().map(|fault| format!("json patch {fault}")));
                Ok((Self::Json(json::JsonPatch::parse(body.value)?), faults))
            }
            MERGE_PATCH => Ok((Self::Merge(merge::parse(body.value)?), body.faults)),
            _ => Err(Failure::unsupported_media_type(&[JSON_PATCH, MERGE_PATCH])),
        }
    }

    /// Changes the document.
    pub(crate) fn apply(&self, document: &mut Value) -> Result<()> {
        match self {
            Self::Json(patch) => patch.apply(document)?,
            Self::Merge(patch) => merge::apply(patch, document),
        }
        Ok(())
    }
}

/// The fields of operations that mean nothing.
fn unknown_fields(patch: &Value) -> StrictErrors {
    let mut faults = StrictErrors::new();
    for (index, operation) in patch.as_array().into_iter().flatten().enumerate() {
        let fields = operation.as_object().into_iter().flat_map(Map::keys);
        let unknown = fields.filter(|field| !matches!(field.as_str(), "op" | "path" | "from" | "value"));
        faults.extend(unknown.map(|field| format!("json patch unknown field \"[{index}].{field}\"")));
    }
    faults
}

fn undecodable(error: impl std::fmt::Display) -> Box<Failure> {
    Failure::bad_request(format!("error decoding patch: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn other_types_are_not_for_here() {
        let failure = Patch::parse("application/strategic-merge-patch+json", &Bytes::from_static(b"{}")).unwrap_err();
        assert_eq!(failure.code, 415);
        assert!(failure.message.ends_with("application/json-patch+json, application/merge-patch+json"));
    }

    #[test]
    fn both_types_change_the_document() {
        for (content_type, body) in
            [(JSON_PATCH, json!([{"op": "add", "path": "/a", "value": 1}])), (MERGE_PATCH, json!({"a": 1}))]
        {
            let mut document = json!({});
            Patch::parse(content_type, &body.to_string().into()).unwrap().0.apply(&mut document).unwrap();
            assert_eq!(document, json!({"a": 1}));
        }
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), (0..3).prop_map(Value::from)];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..4).prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    fn object() -> impl Strategy<Value = Value> {
        prop::collection::btree_map("[a-c]", document(), 0..4).prop_map(|map| map.into_iter().collect())
    }

    fn operation() -> impl Strategy<Value = Value> {
        let pointer = "(/([a-c]|-|-?[0-3])){0,4}";
        let op = prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test", "other"]);
        (op, pointer, pointer, document())
            .prop_map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
    }

    steersman_testkit::properties! {
        #[test]
        fn parsing_never_panics(body in prop::collection::vec(any::<u8>(), 0..64)) {
            let body = Bytes::from(body);
            let _ = Patch::parse(JSON_PATCH, &body);
            let _ = Patch::parse(MERGE_PATCH, &body);
        }

        #[test]
        fn a_json_patch_never_panics_and_leaves_an_object(
            document in object(),
            operations in prop::collection::vec(operation(), 0..8),
        ) {
            let (patch, _) = Patch::parse(JSON_PATCH, &Value::from(operations).to_string().into()).unwrap();
            let mut patched = document;
            if patch.apply(&mut patched).is_ok() {
                prop_assert!(patched.is_object());
            }
        }

        #[test]
        fn a_merge_patch_does_nothing_the_second_time(document in object(), patch in object()) {
            let patch = Patch::Merge(patch);
            let mut once = document;
            patch.apply(&mut once).unwrap();
            let mut twice = once.clone();
            patch.apply(&mut twice).unwrap();
            prop_assert_eq!(once, twice);
        }
    }
}
