//! A stored object: its JSON as it goes over the wire, and what selectors ask of it.
//!
//! Invariant: an object is encoded once, when it is written. What differs between the answers that show it, its apiVersion, kind
//! and resourceVersion, comes first in the JSON and is not stored; the rest, the *tail*, is the same bytes in every get, list and
//! watch event.

use bytes::{BufMut, Bytes, BytesMut};
use memchr::memmem;
use serde::{Deserialize, Serialize};
use serde_json::{
    Map, Serializer, Value,
    ser::{CompactFormatter, Formatter},
};
use std::{
    cmp::Ordering,
    fmt, io,
    sync::{Arc, LazyLock},
};

/// Namespace and name, ordered as the real server's storage is: by the bytes of `namespace/name`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(Arc<str>);

impl Key {
    /// An empty namespace means a cluster-scoped object.
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() { Self(name.into()) } else { Self(format!("{namespace}/{name}").into()) }
    }

    /// A key as [`Self::as_str`] shows it.
    pub(crate) fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    pub(crate) fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }
}

impl std::borrow::Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An object in the store.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) key: Key,
    /// Of its last write.
    pub(crate) revision: u64,
    content: Content,
}

/// An object's content, encoded: all but its place, revision, apiVersion and kind.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    tail: Bytes,
    labels: Labels,
}

impl Content {
    /// Encode an object. Its apiVersion, kind and resourceVersion are left out.
    pub(crate) fn encode(object: &Map<String, Value>) -> Self {
        let object = if *KEEPS_ORDER { &sorted(object) } else { object };
        let mut tail = Vec::with_capacity(1024);
        let empty = Map::new();
        let meta = object.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
        entries(&mut tail, meta.iter().filter(|(name, _)| *name != "resourceVersion"));
        tail.push(b'}');
        entries(
            &mut tail,
            object.iter().filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata")),
        );
        tail.push(b'}');
        Self { tail: tail.into_boxed_slice().into(), labels: Labels::of(meta) }
    }

    /// From a tail that [`Self::tail`] gave before.
    pub(crate) fn from_tail(tail: &[u8]) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Object {
            metadata: Meta,
        }
        #[derive(Deserialize)]
        struct Meta {
            #[serde(default)]
            labels: Map<String, Value>,
        }
        let head = br#"{"metadata":{"resourceVersion":"0""#;
        let object: Object = serde_json::from_slice(&[head, tail].concat())?;
        Ok(Self { tail: Bytes::copy_from_slice(tail), labels: Labels::new(&object.metadata.labels) })
    }

    pub(crate) fn tail(&self) -> &[u8] {
        &self.tail
    }
}

/// Two contents are equal if nothing would change on the wire: a write of an equal one is none.
impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        self.tail == other.tail
    }
}

/// Whether maps of `serde_json` are in the order of insertion: `preserve_order` is on if any crate of the process wants it. Equal
/// objects have equal bytes even then.
static KEEPS_ORDER: LazyLock<bool> = LazyLock::new(|| {
    let map: Map<_, _> = ["b", "a"].map(|key| (key.to_owned(), Value::Null)).into_iter().collect();
    map.keys().next().is_some_and(|first| first == "b")
});

fn sorted(object: &Map<String, Value>) -> Map<String, Value> {
    let mut object = object.clone();
    object.sort_keys();
    object.values_mut().for_each(Value::sort_all_objects);
    object
}

/// Compact, with numbers written as Go does: what has no fraction has no point.
struct Numbers;

impl Formatter for Numbers {
    fn write_f64<W: ?Sized + io::Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        if value.fract() == 0.0 && value.abs() < 1e21 {
            write!(out, "{value}")
        } else {
            CompactFormatter.write_f64(out, value)
        }
    }
}

/// `,"name":value` for each.
fn entries<'a>(out: &mut Vec<u8>, entries: impl Iterator<Item = (&'a String, &'a Value)>) {
    for (name, value) in entries {
        out.push(b',');
        // Writing to a vector does not fail, and neither does a value made of JSON.
        _ = serde_json::to_writer(&mut *out, name);
        out.push(b':');
        _ = value.serialize(&mut Serializer::with_formatter(&mut *out, Numbers));
    }
}

impl Object {
    /// Returns the approximate number of bytes that the object takes in memory.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>() + self.key.0.len() + self.content.tail.len()
    }

    pub(crate) fn new(key: Key, revision: u64, content: Content) -> Self {
        Self { key, revision, content }
    }

    pub(crate) fn content(&self) -> &Content {
        &self.content
    }

    /// Whether the object's JSON has a word in it: most objects need not be decoded to know that they have no such field.
    pub(crate) fn mentions(&self, word: &[u8]) -> bool {
        memmem::find(&self.content.tail, word).is_some()
    }

    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.content.labels.get(name)
    }

    /// Append the object's JSON, as of `revision`.
    pub(crate) fn write(&self, out: &mut BytesMut, head: &Head, revision: u64) {
        out.reserve(head.0.len() + 20 + self.content.tail.len());
        out.put_slice(&head.0);
        out.put_slice(itoa(&mut [0; 20], revision));
        out.put_u8(b'"');
        out.put_slice(&self.content.tail);
    }

    /// The object, to be changed or looked into.
    pub(crate) fn decode(&self, head: &Head) -> Map<String, Value> {
        self.decode_at(head, self.revision)
    }

    /// The object, shown as of `revision`.
    pub(crate) fn decode_at(&self, head: &Head, revision: u64) -> Map<String, Value> {
        let mut out = BytesMut::new();
        self.write(&mut out, head, revision);
        serde_json::from_slice(&out).expect("what is stored is JSON")
    }
}

/// What comes before the revision: the way an object is shown.
#[derive(Clone, Debug)]
pub(crate) struct Head(Bytes);

impl Head {
    pub(crate) fn new(api_version: &str, kind: &str) -> Self {
        let (api_version, kind) = (Value::from(api_version), Value::from(kind));
        Self(format!(r#"{{"apiVersion":{api_version},"kind":{kind},"metadata":{{"resourceVersion":""#).into())
    }

    /// Without apiVersion and kind, as items of built-in lists are.
    pub(crate) fn bare() -> Self {
        Self(Bytes::from_static(br#"{"metadata":{"resourceVersion":""#))
    }
}

/// An object's labels, sorted by name.
#[derive(Clone, Debug, Default)]
struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    fn of(meta: &Map<String, Value>) -> Self {
        meta.get("labels").and_then(Value::as_object).map(Self::new).unwrap_or_default()
    }

    fn new(labels: &Map<String, Value>) -> Self {
        Self(labels.iter().filter_map(|(name, value)| Some((name.as_str().into(), value.as_str()?.into()))).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(label, _)| -> Ordering { (**label).cmp(name) }).ok()?;
        Some(&self.0[at].1)
    }
}

/// A number in decimal, without an allocation: every answer writes one per object.
fn itoa(buffer: &mut [u8; 20], mut number: u64) -> &[u8] {
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &buffer[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: &Value) -> Object {
        Object::new(Key::new("ns", "a"), 7, Content::encode(value.as_object().unwrap()))
    }

    #[test]
    fn an_object_comes_back_with_the_apiversion_kind_and_revision_it_is_asked_for_with() {
        let stored = object(
            &json!({"apiVersion": "x", "kind": "y", "metadata": {"name": "a", "resourceVersion": "3"}, "data": {"k": "v\n"}}),
        );
        let mut shown = BytesMut::new();
        stored.write(&mut shown, &Head::new("example.com/v1", "Widget"), 7);
        let expected = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"resourceVersion":"7","name":"a"},"data":{"k":"v\n"}}"#;
        assert_eq!(shown, expected);
        assert_eq!(Value::Object(stored.decode_at(&Head::bare(), 9))["metadata"]["resourceVersion"], "9");
    }

    #[test]
    fn contents_are_equal_whatever_their_revision_and_version() {
        let one = object(&json!({"apiVersion": "v1", "metadata": {"name": "a", "resourceVersion": "3"}, "spec": 1}));
        let other = object(&json!({"apiVersion": "v2", "spec": 1, "metadata": {"resourceVersion": "4", "name": "a"}}));
        let changed = object(&json!({"metadata": {"name": "a"}, "spec": 2}));
        assert!(one.content() == other.content());
        assert!(one.content() != changed.content());
    }

    #[test]
    fn labels_are_found_by_name() {
        let stored = object(&json!({"metadata": {"labels": {"b": "2", "a": "1", "app.kubernetes.io/name": "x"}}}));
        assert_eq!(
            ["a", "b", "app.kubernetes.io/name", "c"].map(|name| stored.label(name)),
            [Some("1"), Some("2"), Some("x"), None]
        );
    }

    #[test]
    fn keys_sort_by_the_bytes_of_namespace_slash_name() {
        // "-" comes before "/": a namespace "a-b" sorts before "a", as in the real server's storage.
        assert!(Key::new("a-b", "x") < Key::new("a", "x"));
        assert_eq!((Key::new("a", "x").namespace(), Key::new("a", "x").name()), ("a", "x"));
        assert_eq!((Key::new("", "x").namespace(), Key::new("", "x").name()), ("", "x"));
    }

    #[test]
    fn a_tail_read_back_is_the_same_content() {
        let stored = object(&json!({"metadata": {"name": "a", "labels": {"l": "1"}}, "spec": {"z": [1, 2.5, null]}}));
        let again = Content::from_tail(stored.content().tail()).unwrap();
        assert!(again == *stored.content());
        assert_eq!(again.labels.get("l"), Some("1"));
    }
}
