//! JSON Patch as the real server implements it, which differs from RFC 6902.
//!
//! In an object a missing field equals null: `replace` sets it, `test` finds null and `copy` copies
//! null. Only `remove` and `move` require that it exists. In a list `-1` is the last item. The
//! document as a whole can only be tested and replaced.

use super::decoding_error;
use crate::status::{Details, Failure, Reason, Result};
use serde_json::Value;

const MAX_OPERATIONS: usize = 10_000;

/// Maximum number of bytes that the `copy` operations of one patch add. Without a limit each can
/// double the document.
const MAX_COPIED: usize = 3 << 20;

/// Maximum number of values that the operations of one patch visit or shift, besides those that the
/// patch or its copies contain. Without a limit, 10,000 operations on a large document take minutes.
///
/// Sufficient to remove 10,000 items from the front of a list of 10,000.
const MAX_STEPS: usize = 1 << 26;

/// Maximum depth of a document. Parsers stop at 128, and a list or an event is wrapped around it.
const MAX_DEPTH: usize = 120;

/// A list of operations.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonPatch(Vec<PatchOperation>);

#[derive(Clone, Debug, PartialEq)]
struct PatchOperation {
    kind: OperationKind,
    path: Option<Pointer>,
    from: Option<Pointer>,
    value: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OperationKind {
    Add,
    Remove,
    Replace,
    Move,
    Copy,
    Test,
    Unknown,
}

/// Keys from the root to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pointer(Vec<String>);

/// Error of applying an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatchError {
    /// The operation does not match the document. The real server has one message for all such
    /// errors.
    DoesNotApply,
    CopyLimitExceeded,
    StepLimitExceeded,
}

impl From<PatchError> for Box<Failure> {
    fn from(error: PatchError) -> Self {
        match error {
            PatchError::DoesNotApply => {
                let message = "the server rejected our request due to an error in our request";
                Failure::new(422, Reason::Invalid, message).about(Details::default())
            }
            PatchError::CopyLimitExceeded => Failure::too_large(MAX_COPIED),
            PatchError::StepLimitExceeded => Failure::new(
                413,
                Reason::RequestEntityTooLarge,
                format!(
                    "The operations of a JSON patch may move at most {MAX_STEPS} values in all"
                ),
            ),
        }
    }
}

impl JsonPatch {
    /// Parses a list of operations. An unknown operation and a missing path are errors only when
    /// they are applied.
    pub(super) fn parse(patch: Value) -> Result<Self> {
        let operations = match patch {
            Value::Array(operations) => operations,
            Value::Null => Vec::new(),
            _ => return Err(decoding_error("json: the patch must be a list")),
        };
        if operations.len() > MAX_OPERATIONS {
            let message = format!(
                "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                operations.len()
            );
            return Err(Failure::new(413, Reason::RequestEntityTooLarge, message));
        }
        operations
            .into_iter()
            .map(PatchOperation::parse)
            .collect::<Result<_>>()
            .map(Self)
    }

    pub(super) fn apply(&self, document: &mut Value) -> Result<()> {
        let mut work = Work::default();
        self.0
            .iter()
            .try_for_each(|operation| operation.apply(document, &mut work))
            .map_err(Into::into)
    }
}

/// Work of the operations of one patch.
#[derive(Debug, Default)]
struct Work {
    copied: usize,
    steps: usize,
}

impl Work {
    fn copy(&mut self, bytes: usize) -> Result<(), PatchError> {
        self.copied += bytes;
        if self.copied > MAX_COPIED {
            return Err(PatchError::CopyLimitExceeded);
        }
        Ok(())
    }

    fn step(&mut self, values: usize) -> Result<(), PatchError> {
        self.steps += values;
        if self.steps > MAX_STEPS {
            return Err(PatchError::StepLimitExceeded);
        }
        Ok(())
    }
}

impl PatchOperation {
    fn parse(operation: Value) -> Result<Self> {
        let mut fields = match operation {
            Value::Object(fields) => fields,
            Value::Null => serde_json::Map::new(),
            _ => return Err(decoding_error("an operation must be an object")),
        };
        let mut text = |field| match fields.remove(field) {
            Some(Value::String(text)) => Ok(Some(text)),
            None | Some(Value::Null) => Ok(None),
            Some(_) => Err(decoding_error(format_args!(
                "{field} of an operation must be a string"
            ))),
        };
        let kind = match text("op")?.as_deref() {
            Some("add") => OperationKind::Add,
            Some("remove") => OperationKind::Remove,
            Some("replace") => OperationKind::Replace,
            Some("move") => OperationKind::Move,
            Some("copy") => OperationKind::Copy,
            Some("test") => OperationKind::Test,
            _ => OperationKind::Unknown,
        };
        let path = text("path")?;
        let from = text("from")?;
        let pointer = |text: String| Pointer::parse(&text);
        let value = fields.remove("value").unwrap_or_default();
        Ok(Self {
            kind,
            path: path.and_then(pointer),
            from: from.and_then(pointer),
            value,
        })
    }

    fn apply(&self, document: &mut Value, work: &mut Work) -> Result<(), PatchError> {
        let path = self.path.as_ref().ok_or(PatchError::DoesNotApply)?;
        let from = self.from.as_ref().ok_or(PatchError::DoesNotApply);
        match self.kind {
            OperationKind::Add => path.add(document, self.value.clone(), work),
            OperationKind::Remove => path.remove(document, work).map(drop),
            OperationKind::Replace => path.replace(document, self.value.clone(), work),
            OperationKind::Move => {
                let value = from?.remove(document, work)?;
                path.add(document, value, work)
            }
            OperationKind::Copy => {
                let value = from?.parent(document)?.get(from?.key())?;
                work.copy(size(value))?;
                let value = value.clone();
                path.add(document, value, work)
            }
            OperationKind::Test if path.0.is_empty() => ensure(*document == self.value),
            OperationKind::Test => ensure(*path.parent(document)?.get(path.key())? == self.value),
            OperationKind::Unknown => Err(PatchError::DoesNotApply),
        }
    }
}

fn ensure(test: bool) -> Result<(), PatchError> {
    if test {
        Ok(())
    } else {
        Err(PatchError::DoesNotApply)
    }
}

impl Pointer {
    /// Returns `None` for a text without a slash, unless it is empty. Text before the first slash
    /// is ignored.
    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self(Vec::new()));
        }
        let (_, keys) = text.split_once('/')?;
        Some(Self(
            keys.split('/')
                .map(|key| key.replace("~1", "/").replace("~0", "~"))
                .collect(),
        ))
    }

    /// Returns the last key, empty for the root.
    fn key(&self) -> &str {
        self.0.last().map_or("", String::as_str)
    }

    /// Returns the object or list that contains the value. The root has no parent.
    fn parent<'a>(&self, document: &'a mut Value) -> Result<Container<'a>, PatchError> {
        let (_, parents) = self.0.split_last().ok_or(PatchError::DoesNotApply)?;
        let mut found = document;
        for key in parents {
            found = match Container::new(found)? {
                Container::Object(fields) => fields.get_mut(key).ok_or(PatchError::DoesNotApply)?,
                Container::List(items) => {
                    let index = index(key, items.len())?;
                    items.get_mut(index).ok_or(PatchError::DoesNotApply)?
                }
            };
        }
        Container::new(found)
    }

    fn add(&self, document: &mut Value, value: Value, work: &mut Work) -> Result<(), PatchError> {
        self.check_depth(&value, work)?;
        match self.parent(document)? {
            Container::Object(fields) => {
                fields.insert(self.key().into(), value);
            }
            Container::List(items) if self.key() == "-" => items.push(value),
            Container::List(items) => {
                // The position after the last item is valid, too.
                let index = index(self.key(), items.len() + 1)?;
                work.step(items.len() - index)?;
                items.insert(index, value);
            }
        }
        Ok(())
    }

    fn remove(&self, document: &mut Value, work: &mut Work) -> Result<Value, PatchError> {
        match self.parent(document)? {
            Container::Object(fields) => fields.remove(self.key()).ok_or(PatchError::DoesNotApply),
            Container::List(items) => {
                let index = index(self.key(), items.len())?;
                work.step(items.len() - index)?;
                Ok(items.remove(index))
            }
        }
    }

    fn replace(
        &self,
        document: &mut Value,
        value: Value,
        work: &mut Work,
    ) -> Result<(), PatchError> {
        self.check_depth(&value, work)?;
        if self.0.is_empty() {
            ensure(value.is_object())?;
            *document = value;
            return Ok(());
        }
        match self.parent(document)? {
            Container::Object(fields) => {
                fields.insert(self.key().into(), value);
            }
            Container::List(items) => {
                let index = index(self.key(), items.len())?;
                items[index] = value;
            }
        }
        Ok(())
    }

    fn check_depth(&self, value: &Value, work: &mut Work) -> Result<(), PatchError> {
        let mut visited = 0;
        let depth = depth(value, &mut visited);
        work.step(visited)?;
        ensure(self.0.len() + depth <= MAX_DEPTH)
    }
}

/// An object or a list.
enum Container<'a> {
    Object(&'a mut serde_json::Map<String, Value>),
    List(&'a mut Vec<Value>),
}

impl<'a> Container<'a> {
    fn new(value: &'a mut Value) -> Result<Self, PatchError> {
        match value {
            Value::Object(fields) => Ok(Self::Object(fields)),
            Value::Array(items) => Ok(Self::List(items)),
            _ => Err(PatchError::DoesNotApply),
        }
    }

    fn get(self, key: &str) -> Result<&'a Value, PatchError> {
        match self {
            Self::Object(fields) => Ok(fields.get(key).unwrap_or(&Value::Null)),
            Self::List(items) => Ok(&items[index(key, items.len())?]),
        }
    }
}

/// Resolves an index into a list of `len` items. A negative one counts from the end.
fn index(key: &str, len: usize) -> Result<usize, PatchError> {
    let index: isize = key.parse().map_err(|_| PatchError::DoesNotApply)?;
    let index = if index < 0 {
        len.checked_add_signed(index)
    } else {
        usize::try_from(index).ok()
    };
    index
        .filter(|&index| index < len)
        .ok_or(PatchError::DoesNotApply)
}

/// Returns the depth of a value, and adds the number of values in it to `visited`.
fn depth(value: &Value, visited: &mut usize) -> usize {
    *visited += 1;
    let mut inner = |value| depth(value, visited);
    match value {
        Value::Object(fields) => 1 + fields.values().map(&mut inner).max().unwrap_or(0),
        Value::Array(items) => 1 + items.iter().map(&mut inner).max().unwrap_or(0),
        _ => 0,
    }
}

/// Returns the approximate size as JSON.
fn size(value: &Value) -> usize {
    match value {
        Value::Object(fields) => {
            2 + fields
                .iter()
                .map(|(key, value)| key.len() + 4 + size(value))
                .sum::<usize>()
        }
        Value::Array(items) => 2 + items.iter().map(|item| 1 + size(item)).sum::<usize>(),
        Value::String(text) => 2 + text.len(),
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn patched(mut document: Value, patch: Value) -> Result<Value> {
        JsonPatch::parse(patch)?.apply(&mut document)?;
        Ok(document)
    }

    #[track_caller]
    fn assert_patched(document: Value, operation: Value, expected: Value) {
        assert_eq!(patched(document, json!([operation])).unwrap(), expected);
    }

    #[track_caller]
    fn assert_rejected(document: Value, operation: Value) {
        let failure = patched(document, json!([operation])).unwrap_err();
        assert_eq!((failure.code, failure.reason), (422, Some(Reason::Invalid)));
        assert_eq!(
            failure.message,
            "the server rejected our request due to an error in our request"
        );
    }

    #[test]
    fn each_operation_changes_the_document() {
        assert_patched(
            json!({}),
            json!({"op": "add", "path": "/a", "value": 1}),
            json!({"a": 1}),
        );
        assert_patched(
            json!({"a": [1, 3]}),
            json!({"op": "add", "path": "/a/1", "value": 2}),
            json!({"a": [1, 2, 3]}),
        );
        assert_patched(
            json!({"a": [1]}),
            json!({"op": "add", "path": "/a/-", "value": 2}),
            json!({"a": [1, 2]}),
        );
        assert_patched(
            json!({"a": 1, "b": 2}),
            json!({"op": "remove", "path": "/a"}),
            json!({"b": 2}),
        );
        assert_patched(
            json!({"a": [1, 2]}),
            json!({"op": "remove", "path": "/a/0"}),
            json!({"a": [2]}),
        );
        assert_patched(
            json!({"a": 1}),
            json!({"op": "replace", "path": "/a", "value": 2}),
            json!({"a": 2}),
        );
        assert_patched(
            json!({"a": 1}),
            json!({"op": "replace", "path": "", "value": {}}),
            json!({}),
        );
        assert_patched(
            json!({"a": 1}),
            json!({"op": "move", "from": "/a", "path": "/b"}),
            json!({"b": 1}),
        );
        assert_patched(
            json!({"a": [1]}),
            json!({"op": "copy", "from": "/a/0", "path": "/b"}),
            json!({"a": [1], "b": 1}),
        );
        assert_patched(
            json!({"a": 1}),
            json!({"op": "test", "path": "", "value": {"a": 1}}),
            json!({"a": 1}),
        );
    }

    #[test]
    fn a_missing_field_is_null_except_when_it_is_removed() {
        assert_patched(
            json!({}),
            json!({"op": "replace", "path": "/a", "value": 1}),
            json!({"a": 1}),
        );
        assert_patched(
            json!({}),
            json!({"op": "test", "path": "/a", "value": null}),
            json!({}),
        );
        assert_patched(
            json!({}),
            json!({"op": "copy", "from": "/a", "path": "/b"}),
            json!({"b": null}),
        );
        assert_patched(
            json!({}),
            json!({"op": "add", "path": "/a"}),
            json!({"a": null}),
        );
        assert_rejected(json!({}), json!({"op": "remove", "path": "/a"}));
        assert_rejected(json!({}), json!({"op": "move", "from": "/a", "path": "/b"}));
    }

    #[test]
    fn the_patch_of_kube_rs_adds_the_first_finalizer() {
        let patch = json!([
            {"op": "test", "path": "/metadata/finalizers", "value": null},
            {"op": "add", "path": "/metadata/finalizers", "value": ["a/b"]},
        ]);
        assert_eq!(
            patched(json!({"metadata": {}}), patch).unwrap(),
            json!({"metadata": {"finalizers": ["a/b"]}})
        );
    }

    #[test]
    fn a_negative_index_counts_from_the_end() {
        let document = || json!({"a": [1, 2]});
        assert_patched(
            document(),
            json!({"op": "replace", "path": "/a/-1", "value": 9}),
            json!({"a": [1, 9]}),
        );
        assert_patched(
            document(),
            json!({"op": "remove", "path": "/a/-2"}),
            json!({"a": [2]}),
        );
        assert_patched(
            document(),
            json!({"op": "add", "path": "/a/-1", "value": 9}),
            json!({"a": [1, 2, 9]}),
        );
        assert_patched(
            document(),
            json!({"op": "test", "path": "/a/-1", "value": 2}),
            document(),
        );
        assert_rejected(
            document(),
            json!({"op": "replace", "path": "/a/-3", "value": 9}),
        );
    }

    #[test]
    fn operations_that_do_not_apply_are_rejected() {
        let document = || json!({"a": [1], "b": 1});
        for operation in [
            json!({"op": "test", "path": "/b", "value": 2}),
            json!({"op": "test", "path": "/a/7", "value": null}),
            json!({"op": "test", "path": "/c/d", "value": null}),
            json!({"op": "replace", "path": "/a/1", "value": 2}),
            json!({"op": "replace", "path": "/a/x", "value": 2}),
            json!({"op": "replace", "path": "", "value": []}),
            json!({"op": "add", "path": "/a/2", "value": 2}),
            json!({"op": "add", "path": "/b/c", "value": 2}),
            json!({"op": "add", "path": "/c/d", "value": 2}),
            json!({"op": "add", "path": "", "value": {}}),
            json!({"op": "remove", "path": ""}),
            json!({"op": "remove", "path": "b"}),
            json!({"op": "copy", "path": "/c"}),
            json!({"op": "add", "value": 1}),
            json!({"op": "merge", "path": "/b"}),
            json!({}),
        ] {
            assert_rejected(document(), operation);
        }
    }

    #[test]
    fn escaped_keys_are_unescaped() {
        assert_patched(
            json!({"a/b": 1, "~1": 1}),
            json!({"op": "remove", "path": "/a~1b"}),
            json!({"~1": 1}),
        );
        assert_patched(
            json!({"a/b": 1, "~1": 1}),
            json!({"op": "remove", "path": "/~01"}),
            json!({"a/b": 1}),
        );
        assert_patched(
            json!({"": {"": 1}}),
            json!({"op": "remove", "path": "//"}),
            json!({"": {}}),
        );
    }

    #[test]
    fn a_body_that_is_not_a_list_of_operations_is_a_bad_request() {
        for body in [
            json!({}),
            json!([1]),
            json!([[]]),
            json!([{"op": 1}]),
            json!([{"op": "add", "path": {}}]),
        ] {
            let failure = JsonPatch::parse(body.clone()).unwrap_err();
            assert_eq!(
                (failure.code, failure.reason),
                (400, Some(Reason::BadRequest)),
                "{body}"
            );
        }
    }

    #[test]
    fn a_patch_is_limited_to_ten_thousand_operations() {
        let patch = |count| Value::from(vec![json!({"op": "test", "path": "/a"}); count]);
        assert!(patched(json!({}), patch(10_000)).is_ok());
        assert_eq!(patched(json!({}), patch(10_001)).unwrap_err().code, 413);
    }

    #[test]
    fn the_size_of_copies_is_limited() {
        let doubling = json!({"op": "copy", "from": "/a", "path": "/a/-"});
        let failure = patched(json!({"a": ["x"]}), Value::from(vec![doubling; 100])).unwrap_err();
        assert_eq!(failure.code, 413);
    }

    #[test]
    fn the_work_of_a_patch_is_limited() {
        let list = |count: usize| json!({"a": vec![0; count]});
        let repeated = |operations: Value| -> Value {
            let operations = operations.as_array().unwrap();
            operations.iter().cycle().take(10_000).cloned().collect()
        };
        let remove = json!([{"op": "remove", "path": "/a/0"}]);
        let insert = json!([
            {"op": "add", "path": "/a/0", "value": 1},
            {"op": "remove", "path": "/a/0"},
        ]);
        let rename = json!([
            {"op": "move", "from": "/a", "path": "/b"},
            {"op": "move", "from": "/b", "path": "/a"},
        ]);
        for operations in [&remove, &insert, &rename] {
            let failure = patched(list(100_000), repeated(operations.clone())).unwrap_err();
            assert_eq!(failure.code, 413, "{operations}");
            assert_eq!(failure.reason, Some(Reason::RequestEntityTooLarge));
        }
        assert!(patched(list(10_000), repeated(remove)).is_ok());
        for operations in [insert, rename] {
            assert!(patched(list(5_000), repeated(operations)).is_ok());
        }
    }

    #[test]
    fn the_depth_of_a_document_is_limited() {
        let nesting = json!({"op": "copy", "from": "/a", "path": "/a/a"});
        assert!(patched(json!({"a": {}}), Value::from(vec![nesting.clone(); 3])).is_ok());
        let deep = (0..100).fold(json!({}), |inner, _| json!({"a": inner}));
        assert_rejected(
            deep,
            json!({"op": "copy", "from": "/a", "path": "/a".repeat(101)}),
        );
    }
}
