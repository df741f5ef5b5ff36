//! Stored objects: JSON that is encoded once, and the labels for selectors.
//!
//! Invariant: an object is encoded once, when it is written. The JSON begins with a *head* that is
//! not stored: apiVersion, kind and resourceVersion, which differ between responses. The rest, the
//! *tail*, is the same bytes in every get, list and watch event.

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

/// Namespace and name of an object. Sorted by the bytes of `namespace/name`, as in etcd.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(Arc<str>);

impl Key {
    /// Creates a key. An empty namespace means a cluster-scoped object.
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() {
            Self(name.into())
        } else {
            Self(format!("{namespace}/{name}").into())
        }
    }

    /// Parses the text that [`Self::as_str`] returns.
    pub(crate) fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn namespace(&self) -> &str {
        self.0
            .split_once('/')
            .map_or("", |(namespace, _)| namespace)
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
    /// Revision of the last write.
    pub(crate) revision: u64,
    content: Content,
}

/// Encoded content of an object, without its key, revision, apiVersion and kind.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    tail: Bytes,
    labels: Labels,
}

impl Content {
    /// Encodes an object without its apiVersion, kind and resourceVersion.
    pub(crate) fn encode(object: &Map<String, Value>) -> Self {
        let object = if *PRESERVES_ORDER {
            &sorted(object)
        } else {
            object
        };
        let mut tail = Vec::with_capacity(1024);
        let empty = Map::new();
        let meta = object
            .get("metadata")
            .and_then(Value::as_object)
            .unwrap_or(&empty);
        write_entries(
            &mut tail,
            meta.iter().filter(|(name, _)| *name != "resourceVersion"),
        );
        tail.push(b'}');
        write_entries(
            &mut tail,
            object
                .iter()
                .filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata")),
        );
        tail.push(b'}');
        Self {
            tail: tail.into_boxed_slice().into(),
            labels: Labels::from_meta(meta),
        }
    }

    /// Creates the content from bytes that [`Self::tail`] returned.
    pub(crate) fn from_tail(tail: &[u8]) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct LabeledObject {
            metadata: LabeledMeta,
        }
        #[derive(Deserialize)]
        struct LabeledMeta {
            #[serde(default)]
            labels: Map<String, Value>,
        }
        let head = br#"{"metadata":{"resourceVersion":"0""#;
        let object: LabeledObject = serde_json::from_slice(&[head, tail].concat())?;
        Ok(Self {
            tail: Bytes::copy_from_slice(tail),
            labels: Labels::new(&object.metadata.labels),
        })
    }

    pub(crate) fn tail(&self) -> &[u8] {
        &self.tail
    }
}

/// Contents are equal if their JSON is. A write with equal content changes nothing.
impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        self.tail == other.tail
    }
}

/// Whether `serde_json` maps keep the order of insertion. Its feature `preserve_order` is enabled
/// if any crate of the process enables it. Keys are then sorted before encoding, so that equal
/// objects have equal bytes.
static PRESERVES_ORDER: LazyLock<bool> = LazyLock::new(|| {
    let map: Map<_, _> = ["b", "a"]
        .map(|key| (key.to_owned(), Value::Null))
        .into_iter()
        .collect();
    map.keys().next().is_some_and(|first| first == "b")
});

fn sorted(object: &Map<String, Value>) -> Map<String, Value> {
    let mut object = object.clone();
    object.sort_keys();
    object.values_mut().for_each(Value::sort_all_objects);
    object
}

/// Compact JSON with numbers as Go writes them: without a decimal point if there is no fraction.
struct GoNumbers;

impl Formatter for GoNumbers {
    fn write_f64<W: ?Sized + io::Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        if value.fract() == 0.0 && value.abs() < 1e21 {
            write!(out, "{value}")
        } else {
            CompactFormatter.write_f64(out, value)
        }
    }
}

/// Appends `,"name":value` for each entry.
fn write_entries<'a>(out: &mut Vec<u8>, entries: impl Iterator<Item = (&'a String, &'a Value)>) {
    for (name, value) in entries {
        out.push(b',');
        // Neither writing to a vector nor serializing a JSON value fails.
        _ = serde_json::to_writer(&mut *out, name);
        out.push(b':');
        _ = value.serialize(&mut Serializer::with_formatter(&mut *out, GoNumbers));
    }
}

impl Object {
    /// Returns the approximate number of bytes that the object takes in memory.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>() + self.key.0.len() + self.content.tail.len()
    }

    pub(crate) fn new(key: Key, revision: u64, content: Content) -> Self {
        Self {
            key,
            revision,
            content,
        }
    }

    pub(crate) fn content(&self) -> &Content {
        &self.content
    }

    /// Reports whether the object's JSON contains `word`. Avoids decoding most objects that do not
    /// have a certain field.
    pub(crate) fn mentions(&self, word: &[u8]) -> bool {
        memmem::find(&self.content.tail, word).is_some()
    }

    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.content.labels.get(name)
    }

    /// Appends the object's JSON, with `revision` as its resource version.
    pub(crate) fn write(&self, out: &mut BytesMut, head: &Head, revision: u64) {
        out.reserve(head.0.len() + 20 + self.content.tail.len());
        out.put_slice(&head.0);
        out.put_slice(itoa(&mut [0; 20], revision));
        out.put_u8(b'"');
        out.put_slice(&self.content.tail);
    }

    /// Decodes the object.
    pub(crate) fn decode(&self, head: &Head) -> Map<String, Value> {
        self.decode_at(head, self.revision)
    }

    /// Decodes the object, with `revision` as its resource version.
    pub(crate) fn decode_at(&self, head: &Head, revision: u64) -> Map<String, Value> {
        let mut out = BytesMut::new();
        self.write(&mut out, head, revision);
        serde_json::from_slice(&out).expect("stored objects are valid JSON")
    }
}

/// JSON of an object up to the digits of its resource version.
#[derive(Clone, Debug)]
pub(crate) struct Head(Bytes);

impl Head {
    pub(crate) fn new(api_version: &str, kind: &str) -> Self {
        let api_version = Value::from(api_version);
        let kind = Value::from(kind);
        Self(
            format!(
                r#"{{"apiVersion":{api_version},"kind":{kind},"metadata":{{"resourceVersion":""#
            )
            .into(),
        )
    }

    /// Returns a head without apiVersion and kind, for items of built-in lists.
    pub(crate) fn bare() -> Self {
        Self(Bytes::from_static(br#"{"metadata":{"resourceVersion":""#))
    }
}

/// An object's labels, sorted by name.
#[derive(Clone, Debug, Default)]
struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    fn from_meta(meta: &Map<String, Value>) -> Self {
        meta.get("labels")
            .and_then(Value::as_object)
            .map(Self::new)
            .unwrap_or_default()
    }

    fn new(labels: &Map<String, Value>) -> Self {
        Self(
            labels
                .iter()
                .filter_map(|(name, value)| Some((name.as_str().into(), value.as_str()?.into())))
                .collect(),
        )
    }

    fn get(&self, name: &str) -> Option<&str> {
        let at = self
            .0
            .binary_search_by(|(label, _)| -> Ordering { (**label).cmp(name) })
            .ok()?;
        Some(&self.0[at].1)
    }
}

/// Formats a number without an allocation. Every response formats one per object.
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
        Object::new(
            Key::new("ns", "a"),
            7,
            Content::encode(value.as_object().unwrap()),
        )
    }

    #[test]
    fn an_object_is_written_with_the_requested_apiversion_kind_and_revision() {
        let stored = object(
            &json!({"apiVersion": "x", "kind": "y", "metadata": {"name": "a", "resourceVersion": "3"}, "data": {"k": "v\n"}}),
        );
        let mut written = BytesMut::new();
        stored.write(&mut written, &Head::new("example.com/v1", "Widget"), 7);
        let expected = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"resourceVersion":"7","name":"a"},"data":{"k":"v\n"}}"#;
        assert_eq!(written, expected);
        assert_eq!(
            Value::Object(stored.decode_at(&Head::bare(), 9))["metadata"]["resourceVersion"],
            "9"
        );
    }

    #[test]
    fn content_equality_ignores_revision_and_apiversion() {
        let one = object(
            &json!({"apiVersion": "v1", "metadata": {"name": "a", "resourceVersion": "3"}, "spec": 1}),
        );
        let other = object(
            &json!({"apiVersion": "v2", "spec": 1, "metadata": {"resourceVersion": "4", "name": "a"}}),
        );
        let changed = object(&json!({"metadata": {"name": "a"}, "spec": 2}));
        assert!(one.content() == other.content());
        assert!(one.content() != changed.content());
    }

    #[test]
    fn labels_are_found_by_name() {
        let stored = object(
            &json!({"metadata": {"labels": {"b": "2", "a": "1", "app.kubernetes.io/name": "x"}}}),
        );
        assert_eq!(
            ["a", "b", "app.kubernetes.io/name", "c"].map(|name| stored.label(name)),
            [Some("1"), Some("2"), Some("x"), None]
        );
    }

    #[test]
    fn keys_sort_by_the_bytes_of_namespace_slash_name() {
        // "-" sorts before "/", so namespace "a-b" sorts before "a", as in etcd.
        assert!(Key::new("a-b", "x") < Key::new("a", "x"));
        assert_eq!(
            (Key::new("a", "x").namespace(), Key::new("a", "x").name()),
            ("a", "x")
        );
        assert_eq!(
            (Key::new("", "x").namespace(), Key::new("", "x").name()),
            ("", "x")
        );
    }

    #[test]
    fn content_from_a_tail_equals_the_original() {
        let stored = object(
            &json!({"metadata": {"name": "a", "labels": {"l": "1"}}, "spec": {"z": [1, 2.5, null]}}),
        );
        let restored = Content::from_tail(stored.content().tail()).unwrap();
        assert!(restored == *stored.content());
        assert_eq!(restored.labels.get("l"), Some("1"));
    }
}
