//! JSON patches and merge patches.
//!
//! A patch that fails can leave its document half changed. Apply it to a copy.

mod json;
mod merge;

use crate::{
    decode,
    http::accept::{JSON_PATCH, MERGE_PATCH},
    status::{Failure, Result, StrictErrors},
};
use bytes::Bytes;
use serde_json::{Map, Value};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Patch {
    /// JSON patch: a list of operations.
    Json(json::JsonPatch),
    /// Merge patch: the new values. Null removes a field.
    Merge(Value),
}

impl Patch {
    /// Parses a body of the media type `content_type`, which has no parameters. Also returns errors
    /// about unknown and duplicate fields.
    pub(crate) fn parse(content_type: &str, body: &Bytes) -> Result<(Self, StrictErrors)> {
        let body = decode::json(body).map_err(|_| Failure::bad_request("invalid JSON patch"))?;
        match content_type {
            JSON_PATCH => {
                let mut strict_errors = unknown_fields(&body.value);
                strict_errors.extend(
                    body.strict_errors
                        .iter()
                        .map(|error| format!("json patch {error}")),
                );
                Ok((
                    Self::Json(json::JsonPatch::parse(body.value)?),
                    strict_errors,
                ))
            }
            MERGE_PATCH => Ok((Self::Merge(merge::parse(body.value)?), body.strict_errors)),
            _ => Err(Failure::unsupported_media_type(&[JSON_PATCH, MERGE_PATCH])),
        }
    }

    /// Applies the patch to a document.
    pub(crate) fn apply(&self, document: &mut Value) -> Result<()> {
        match self {
            Self::Json(patch) => patch.apply(document)?,
            Self::Merge(patch) => merge::apply(patch, document),
        }
        Ok(())
    }
}

/// Reports unknown fields of operations.
fn unknown_fields(patch: &Value) -> StrictErrors {
    let mut strict_errors = StrictErrors::new();
    for (index, operation) in patch.as_array().into_iter().flatten().enumerate() {
        let fields = operation.as_object().into_iter().flat_map(Map::keys);
        let unknown =
            fields.filter(|field| !matches!(field.as_str(), "op" | "path" | "from" | "value"));
        strict_errors
            .extend(unknown.map(|field| format!("json patch unknown field \"[{index}].{field}\"")));
    }
    strict_errors
}

fn decoding_error(error: impl std::fmt::Display) -> Box<Failure> {
    Failure::bad_request(format!("error decoding patch: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn other_media_types_are_not_supported() {
        let failure = Patch::parse(
            "application/strategic-merge-patch+json",
            &Bytes::from_static(b"{}"),
        )
        .unwrap_err();
        assert_eq!(failure.code, 415);
        assert!(
            failure
                .message
                .ends_with("application/json-patch+json, application/merge-patch+json")
        );
    }

    #[test]
    fn both_types_of_patches_change_the_document() {
        for (content_type, body) in [
            (JSON_PATCH, json!([{"op": "add", "path": "/a", "value": 1}])),
            (MERGE_PATCH, json!({"a": 1})),
        ] {
            let mut document = json!({});
            Patch::parse(content_type, &body.to_string().into())
                .unwrap()
                .0
                .apply(&mut document)
                .unwrap();
            assert_eq!(document, json!({"a": 1}));
        }
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..3).prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..4)
                    .prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    fn object() -> impl Strategy<Value = Value> {
        prop::collection::btree_map("[a-c]", document(), 0..4)
            .prop_map(|map| map.into_iter().collect())
    }

    fn operation() -> impl Strategy<Value = Value> {
        let pointer = "(/([a-c]|-|-?[0-3])){0,4}";
        let op = prop::sample::select(vec![
            "add", "remove", "replace", "move", "copy", "test", "other",
        ]);
        (op, pointer, pointer, document()).prop_map(
            |(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}),
        )
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

        /// The second time can drop the nulls of a list that replaced an object the first time.
        #[test]
        fn a_merge_patch_does_nothing_the_third_time(document in object(), patch in object()) {
            let patch = Patch::Merge(patch);
            let mut twice = document;
            patch.apply(&mut twice).unwrap();
            patch.apply(&mut twice).unwrap();
            let mut thrice = twice.clone();
            patch.apply(&mut thrice).unwrap();
            prop_assert_eq!(twice, thrice);
        }
    }
}
