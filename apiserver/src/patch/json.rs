//! JSON Patch, in the dialect that the real server speaks rather than RFC 6902's.
//!
//! In an object a missing field and null are the same: `replace` of a missing one sets it, `test` finds it null,
//! `copy` copies null; only `remove` and `move` ask that it be there. In a list `-1` is the last item. The document
//! as a whole can be tested and replaced, nothing else.

use super::undecodable;
use crate::status::{Details, Failure, Reason, Result};
use serde_json::Value;

const MAX_OPERATIONS: usize = 10_000;

/// What all `copy` operations of a patch may add together, in bytes: without a bound each can double the document.
const MAX_COPIED: usize = 3 << 20;

/// How deep a document may become: parsers stop at 128, and an event or a list is wrapped around it.
const MAX_DEPTH: usize = 120;

/// Operations, in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonPatch(Vec<Operation>);

#[derive(Clone, Debug, PartialEq)]
struct Operation {
    kind: Kind,
    path: Option<Pointer>,
    from: Option<Pointer>,
    value: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Add,
    Remove,
    Replace,
    Move,
    Copy,
    Test,
    Unknown,
}

/// The keys that lead to a value, from the root.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pointer(Vec<String>);

/// Why an operation does not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The client is not told more.
    DoesNotFit,
    CopiesTooMuch,
}

impl From<Refusal> for Box<Failure> {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::DoesNotFit => {
                let message = "the server rejected our request due to an error in our request";
                Failure::new(422, Reason::Invalid, message).about(Details::default())
            }
            Refusal::CopiesTooMuch => Failure::too_large(MAX_COPIED),
        }
    }
}

impl JsonPatch {
    /// Parses a list of operations. One that names no known operation, or no path, is found out when it is applied.
    pub(super) fn parse(patch: Value) -> Result<Self> {
        let operations = match patch {
            Value::Array(operations) => operations,
            Value::Null => Vec::new(),
            _ => return Err(undecodable("json: cannot unmarshal what is no list")),
        };
        if operations.len() > MAX_OPERATIONS {
            let message =
                format!("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}", operations.len());
            return Err(Failure::new(413, Reason::RequestEntityTooLarge, message));
        }
        operations.into_iter().map(Operation::parse).collect::<Result<_>>().map(Self)
    }

    /// Applies one operation after the other.
    pub(super) fn apply(&self, document: &mut Value) -> Result<()> {
        let mut copied = 0;
        self.0.iter().try_for_each(|operation| operation.apply(document, &mut copied)).map_err(Into::into)
    }
}

impl Operation {
    fn parse(operation: Value) -> Result<Self> {
        let mut fields = match operation {
            Value::Object(fields) => fields,
            Value::Null => serde_json::Map::new(),
            _ => return Err(undecodable("an operation has to be an object")),
        };
        let mut text = |field| match fields.remove(field) {
            Some(Value::String(text)) => Ok(Some(text)),
            None | Some(Value::Null) => Ok(None),
            Some(_) => Err(undecodable(format_args!("{field} of an operation has to be a string"))),
        };
        let kind = match text("op")?.as_deref() {
            Some("add") => Kind::Add,
            Some("remove") => Kind::Remove,
            Some("replace") => Kind::Replace,
            Some("move") => Kind::Move,
            Some("copy") => Kind::Copy,
            Some("test") => Kind::Test,
            _ => Kind::Unknown,
        };
        let (path, from) = (text("path")?, text("from")?);
        let pointer = |text: String| Pointer::parse(&text);
        let value = fields.remove("value").unwrap_or_default();
        Ok(Self { kind, path: path.and_then(pointer), from: from.and_then(pointer), value })
    }

    fn apply(&self, document: &mut Value, copied: &mut usize) -> Result<(), Refusal> {
        let path = self.path.as_ref().ok_or(Refusal::DoesNotFit)?;
        let from = self.from.as_ref().ok_or(Refusal::DoesNotFit);
        match self.kind {
            Kind::Add => path.add(document, self.value.clone()),
            Kind::Remove => path.remove(document).map(drop),
            Kind::Replace => path.replace(document, self.value.clone()),
            Kind::Move => {
                let value = from?.remove(document)?;
                path.add(document, value)
            }
            Kind::Copy => {
                let value = from?.parent(document)?.get(from?.key())?;
                *copied += size(value);
                if *copied > MAX_COPIED {
                    return Err(Refusal::CopiesTooMuch);
                }
                let value = value.clone();
                path.add(document, value)
            }
            Kind::Test if path.0.is_empty() => holds(*document == self.value),
            Kind::Test => holds(*path.parent(document)?.get(path.key())? == self.value),
            Kind::Unknown => Err(Refusal::DoesNotFit),
        }
    }
}

fn holds(test: bool) -> Result<(), Refusal> {
    if test { Ok(()) } else { Err(Refusal::DoesNotFit) }
}

impl Pointer {
    /// `None` for what is neither empty nor has a slash. What stands before the first slash does not count.
    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self(Vec::new()));
        }
        let (_, keys) = text.split_once('/')?;
        Some(Self(keys.split('/').map(|key| key.replace("~1", "/").replace("~0", "~")).collect()))
    }

    /// The last key; of the root none.
    fn key(&self) -> &str {
        self.0.last().map_or("", String::as_str)
    }

    /// What holds the value; the root is held by nothing.
    fn parent<'a>(&self, document: &'a mut Value) -> Result<Container<'a>, Refusal> {
        let (_, way) = self.0.split_last().ok_or(Refusal::DoesNotFit)?;
        let mut found = document;
        for key in way {
            found = match Container::of(found)? {
                Container::Object(fields) => fields.get_mut(key).ok_or(Refusal::DoesNotFit)?,
                Container::List(items) => {
                    let index = index(key, items.len())?;
                    items.get_mut(index).ok_or(Refusal::DoesNotFit)?
                }
            };
        }
        Container::of(found)
    }

    fn add(&self, document: &mut Value, value: Value) -> Result<(), Refusal> {
        self.check_depth(&value)?;
        match self.parent(document)? {
            Container::Object(fields) => {
                fields.insert(self.key().into(), value);
            }
            Container::List(items) if self.key() == "-" => items.push(value),
            Container::List(items) => {
                // There is one place more to add at than there are items.
                let index = index(self.key(), items.len() + 1)?;
                items.insert(index, value);
            }
        }
        Ok(())
    }

    fn remove(&self, document: &mut Value) -> Result<Value, Refusal> {
        match self.parent(document)? {
            Container::Object(fields) => fields.remove(self.key()).ok_or(Refusal::DoesNotFit),
            Container::List(items) => Ok(items.remove(index(self.key(), items.len())?)),
        }
    }

    fn replace(&self, document: &mut Value, value: Value) -> Result<(), Refusal> {
        self.check_depth(&value)?;
        if self.0.is_empty() {
            holds(value.is_object())?;
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

    fn check_depth(&self, value: &Value) -> Result<(), Refusal> {
        holds(self.0.len() + depth(value) <= MAX_DEPTH)
    }
}

/// A value with values in it.
enum Container<'a> {
    Object(&'a mut serde_json::Map<String, Value>),
    List(&'a mut Vec<Value>),
}

impl<'a> Container<'a> {
    fn of(value: &'a mut Value) -> Result<Self, Refusal> {
        match value {
            Value::Object(fields) => Ok(Self::Object(fields)),
            Value::Array(items) => Ok(Self::List(items)),
            _ => Err(Refusal::DoesNotFit),
        }
    }

    fn get(self, key: &str) -> Result<&'a Value, Refusal> {
        match self {
            Self::Object(fields) => Ok(fields.get(key).unwrap_or(&Value::Null)),
            Self::List(items) => Ok(&items[index(key, items.len())?]),
        }
    }
}

/// Which of `places` is meant; from the end if negative.
fn index(key: &str, places: usize) -> Result<usize, Refusal> {
    let index: isize = key.parse().map_err(|_| Refusal::DoesNotFit)?;
    let index = if index < 0 { places.checked_add_signed(index) } else { usize::try_from(index).ok() };
    index.filter(|&index| index < places).ok_or(Refusal::DoesNotFit)
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// About what it takes as JSON.
fn size(value: &Value) -> usize {
    match value {
        Value::Object(fields) => 2 + fields.iter().map(|(key, value)| key.len() + 4 + size(value)).sum::<usize>(),
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
    fn gives(document: Value, operation: Value, expected: Value) {
        assert_eq!(patched(document, json!([operation])).unwrap(), expected);
    }

    #[track_caller]
    fn is_refused(document: Value, operation: Value) {
        let failure = patched(document, json!([operation])).unwrap_err();
        assert_eq!((failure.code, failure.reason), (422, Some(Reason::Invalid)));
        assert_eq!(failure.message, "the server rejected our request due to an error in our request");
    }

    #[test]
    fn each_operation_does_what_it_says() {
        gives(json!({}), json!({"op": "add", "path": "/a", "value": 1}), json!({"a": 1}));
        gives(json!({"a": [1, 3]}), json!({"op": "add", "path": "/a/1", "value": 2}), json!({"a": [1, 2, 3]}));
        gives(json!({"a": [1]}), json!({"op": "add", "path": "/a/-", "value": 2}), json!({"a": [1, 2]}));
        gives(json!({"a": 1, "b": 2}), json!({"op": "remove", "path": "/a"}), json!({"b": 2}));
        gives(json!({"a": [1, 2]}), json!({"op": "remove", "path": "/a/0"}), json!({"a": [2]}));
        gives(json!({"a": 1}), json!({"op": "replace", "path": "/a", "value": 2}), json!({"a": 2}));
        gives(json!({"a": 1}), json!({"op": "replace", "path": "", "value": {}}), json!({}));
        gives(json!({"a": 1}), json!({"op": "move", "from": "/a", "path": "/b"}), json!({"b": 1}));
        gives(json!({"a": [1]}), json!({"op": "copy", "from": "/a/0", "path": "/b"}), json!({"a": [1], "b": 1}));
        gives(json!({"a": 1}), json!({"op": "test", "path": "", "value": {"a": 1}}), json!({"a": 1}));
    }

    #[test]
    fn a_missing_field_is_null_except_when_it_is_removed() {
        gives(json!({}), json!({"op": "replace", "path": "/a", "value": 1}), json!({"a": 1}));
        gives(json!({}), json!({"op": "test", "path": "/a", "value": null}), json!({}));
        gives(json!({}), json!({"op": "copy", "from": "/a", "path": "/b"}), json!({"b": null}));
        gives(json!({}), json!({"op": "add", "path": "/a"}), json!({"a": null}));
        is_refused(json!({}), json!({"op": "remove", "path": "/a"}));
        is_refused(json!({}), json!({"op": "move", "from": "/a", "path": "/b"}));
    }

    #[test]
    fn the_first_finalizer_can_be_added_the_way_that_kube_does_it() {
        let patch = json!([
            {"op": "test", "path": "/metadata/finalizers", "value": null},
            {"op": "add", "path": "/metadata/finalizers", "value": ["a/b"]},
        ]);
        assert_eq!(patched(json!({"metadata": {}}), patch).unwrap(), json!({"metadata": {"finalizers": ["a/b"]}}));
    }

    #[test]
    fn a_negative_index_counts_from_the_end() {
        let document = || json!({"a": [1, 2]});
        gives(document(), json!({"op": "replace", "path": "/a/-1", "value": 9}), json!({"a": [1, 9]}));
        gives(document(), json!({"op": "remove", "path": "/a/-2"}), json!({"a": [2]}));
        gives(document(), json!({"op": "add", "path": "/a/-1", "value": 9}), json!({"a": [1, 2, 9]}));
        gives(document(), json!({"op": "test", "path": "/a/-1", "value": 2}), document());
        is_refused(document(), json!({"op": "replace", "path": "/a/-3", "value": 9}));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
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
            is_refused(document(), operation);
        }
    }

    #[test]
    fn escaped_keys_are_found() {
        gives(json!({"a/b": 1, "~1": 1}), json!({"op": "remove", "path": "/a~1b"}), json!({"~1": 1}));
        gives(json!({"a/b": 1, "~1": 1}), json!({"op": "remove", "path": "/~01"}), json!({"a/b": 1}));
        gives(json!({"": {"": 1}}), json!({"op": "remove", "path": "//"}), json!({"": {}}));
    }

    #[test]
    fn a_body_that_is_no_list_of_operations_is_a_bad_request() {
        for body in [json!({}), json!([1]), json!([[]]), json!([{"op": 1}]), json!([{"op": "add", "path": {}}])] {
            let failure = JsonPatch::parse(body.clone()).unwrap_err();
            assert_eq!((failure.code, failure.reason), (400, Some(Reason::BadRequest)), "{body}");
        }
    }

    #[test]
    fn ten_thousand_operations_are_enough() {
        let patch = |count| Value::from(vec![json!({"op": "test", "path": "/a"}); count]);
        assert!(patched(json!({}), patch(10_000)).is_ok());
        assert_eq!(patched(json!({}), patch(10_001)).unwrap_err().code, 413);
    }

    #[test]
    fn copies_cannot_blow_the_document_up() {
        let doubling = json!({"op": "copy", "from": "/a", "path": "/a/-"});
        let failure = patched(json!({"a": ["x"]}), Value::from(vec![doubling; 100])).unwrap_err();
        assert_eq!(failure.code, 413);
    }

    #[test]
    fn a_document_cannot_become_too_deep_to_be_parsed() {
        let nesting = json!({"op": "copy", "from": "/a", "path": "/a/a"});
        assert!(patched(json!({"a": {}}), Value::from(vec![nesting.clone(); 3])).is_ok());
        let deep = (0..100).fold(json!({}), |inner, _| json!({"a": inner}));
        is_refused(deep, json!({"op": "copy", "from": "/a", "path": "/a".repeat(101)}));
    }
}
