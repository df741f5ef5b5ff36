//! Paths of fields, list items and set members inside an object.

use crate::{
    go_text::{self, Html},
    value,
};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Number, Value};
use std::{
    cmp::Ordering,
    fmt::{self, Display, Formatter, Write},
    sync::Arc,
};

/// Step from an object or list to one of its children.
///
/// Elements are ordered: fields by name, then keys, then values, then indexes.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// Field of an object or entry of a map. Wire format: `f:name`.
    Field(Arc<str>),
    /// Item of a list with `x-kubernetes-list-type: map`, sorted by name. Wire format:
    /// `k:{"name":"value"}`. Construct it with [`PathElement::key`].
    Key(Arc<[(Arc<str>, Value)]>),
    /// Member of a list with `x-kubernetes-list-type: set`. Wire format: `v:"value"`.
    Value(Value),
    /// Item of a list by position. Wire format: `i:0`.
    Index(i64),
}

/// Error of parsing a [`PathElement`] or [`Set`](crate::Set) from its wire format.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The element has less than two bytes.
    #[error("cannot parse path element {0:?}: too short; use a prefix of `f:`, `k:`, `v:` or `i:`")]
    TooShort(String),
    /// The second byte of the element is not a colon.
    #[error(
        "cannot parse path element {0:?}: missing colon; use a prefix of `f:`, `k:`, `v:` or `i:`"
    )]
    MissingColon(String),
    /// The text after the prefix is not a valid key, value or index.
    #[error("cannot parse path element {element:?}: {reason}")]
    InvalidContent {
        /// Rejected element.
        element: String,
        /// Parser's message.
        reason: String,
    },
}

impl PathElement {
    /// Creates the element of a field or map entry.
    pub fn field(name: impl Into<Arc<str>>) -> Self {
        Self::Field(name.into())
    }

    /// Creates the element of a list item from its key fields, which it sorts by name.
    pub fn key<N: Into<Arc<str>>>(fields: impl IntoIterator<Item = (N, Value)>) -> Self {
        let mut fields: Vec<(Arc<str>, Value)> = fields
            .into_iter()
            .map(|(name, value)| (name.into(), value))
            .collect();
        fields.sort_by(|(left, _), (right, _)| left.cmp(right));
        Self::Key(fields.into())
    }

    /// Parses the wire format.
    ///
    /// Returns `None` for an element of an unknown type, which readers ignore.
    pub fn parse(text: &str) -> Result<Option<Self>, PathError> {
        let bytes = text.as_bytes();
        if bytes.len() < 2 {
            return Err(PathError::TooShort(text.to_owned()));
        }
        if bytes[1] != b':' {
            return Err(PathError::MissingColon(text.to_owned()));
        }
        let content = &text[2..];
        let invalid = |reason: String| PathError::InvalidContent {
            element: text.to_owned(),
            reason,
        };
        match bytes[0] {
            b'f' => Ok(Some(Self::field(content))),
            b'v' => serde_json::from_str(content)
                .map(|value| Some(Self::Value(with_floats(value))))
                .map_err(|error| invalid(error.to_string())),
            b'k' => serde_json::from_str(content)
                .map(|KeyFields(fields)| Some(Self::key(fields)))
                .map_err(|error| invalid(error.to_string())),
            b'i' => content
                .parse()
                .map(|index| Some(Self::Index(index)))
                .map_err(|error: std::num::ParseIntError| invalid(error.to_string())),
            _ => Ok(None),
        }
    }

    /// Returns the wire format that [`PathElement::parse`] reads.
    pub fn to_wire(&self) -> String {
        let mut out = String::new();
        self.write_wire(&mut out);
        out
    }

    pub(crate) fn write_wire(&self, out: &mut String) {
        match self {
            Self::Field(name) => {
                out.push_str("f:");
                out.push_str(name);
            }
            Self::Key(fields) => {
                out.push_str("k:{");
                for (index, (name, value)) in fields.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    go_text::json_string(out, name, Html::Plain);
                    out.push(':');
                    go_text::json(out, value);
                }
                out.push('}');
            }
            Self::Value(value) => {
                out.push_str("v:");
                go_text::json(out, value);
            }
            Self::Index(index) => {
                // Writing to a String does not fail.
                let _ = write!(out, "i:{index}");
            }
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(left), Self::Field(right)) => left.cmp(right),
            (Self::Key(left), Self::Key(right)) => {
                for ((left_name, left), (right_name, right)) in left.iter().zip(right.iter()) {
                    let order = left_name
                        .cmp(right_name)
                        .then_with(|| value::compare(left, right));
                    if order.is_ne() {
                        return order;
                    }
                }
                left.len().cmp(&right.len())
            }
            (Self::Value(left), Self::Value(right)) => value::compare(left, right),
            (Self::Index(left), Self::Index(right)) => left.cmp(right),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement {}

/// Formats the element as in the API server's messages: `.name`, `[name="value"]`, `[="value"]`,
/// `[0]`.
impl Display for PathElement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_char('[')?;
                for (index, (name, value)) in fields.iter().enumerate() {
                    if index > 0 {
                        f.write_char(',')?;
                    }
                    write!(f, "{name}={}", go_text::path_value(value))?;
                }
                f.write_char(']')
            }
            Self::Value(value) => write!(f, "[={}]", go_text::path_value(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// Steps from the root of an object to one of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<PathElement>);

impl Path {
    /// Creates a path of nested fields, such as `["spec", "replicas"]`.
    pub fn fields<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        names.into_iter().map(PathElement::field).collect()
    }
}

impl FromIterator<PathElement> for Path {
    fn from_iter<I: IntoIterator<Item = PathElement>>(elements: I) -> Self {
        Self(elements.into_iter().collect())
    }
}

impl Display for Path {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}

/// Converts each number to a float, because the wire format has no integers.
///
/// Messages therefore print large numbers in paths of managed fields with an exponent.
fn with_floats(value: Value) -> Value {
    match value {
        Value::Number(number) => number
            .as_f64()
            .and_then(Number::from_f64)
            .map_or(Value::Number(number), Value::Number),
        Value::Array(items) => items.into_iter().map(with_floats).collect(),
        Value::Object(entries) => Value::Object(
            entries
                .into_iter()
                .map(|(key, value)| (key, with_floats(value)))
                .collect(),
        ),
        other => other,
    }
}

/// Fields of a key in the order of the parsed text, including repeated names.
struct KeyFields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for KeyFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = KeyFields;

            fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
                f.write_str("an object of key fields")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(KeyFields(Vec::new()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, value)) = map.next_entry()? {
                    fields.push((name, with_floats(value)));
                }
                Ok(KeyFields(fields))
            }
        }

        deserializer.deserialize_any(Fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_element_is_written_and_parsed_in_its_wire_format() {
        let elements = [
            (PathElement::field("a:b"), "f:a:b"),
            (PathElement::field(""), "f:"),
            (
                PathElement::key([("protocol", json!("TCP")), ("containerPort", json!(80))]),
                r#"k:{"containerPort":80,"protocol":"TCP"}"#,
            ),
            (PathElement::Value(json!("a<b")), r#"v:"a\u003cb""#),
            (PathElement::Value(json!(1.5)), "v:1.5"),
            (PathElement::Value(json!(true)), "v:true"),
            (PathElement::Index(-3), "i:-3"),
        ];
        for (element, wire) in elements {
            assert_eq!(element.to_wire(), wire);
            assert_eq!(PathElement::parse(wire).unwrap(), Some(element));
        }
    }

    #[test]
    fn an_element_of_an_unknown_type_is_ignored() {
        assert_eq!(PathElement::parse("x:future").unwrap(), None);
    }

    #[test]
    fn a_malformed_element_is_rejected() {
        for text in [
            "",
            "f",
            "fa",
            "é",
            "v:",
            "v:1 2",
            "k:[]",
            "k:{\"a\":1}x",
            "i:a",
            "i:1.5",
        ] {
            assert!(PathElement::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_path_reads_as_in_messages() {
        let path = Path(vec![
            PathElement::field("spec"),
            PathElement::key([("name", json!("a")), ("port", json!(80))]),
            PathElement::Value(json!("x")),
            PathElement::Index(2),
        ]);
        assert_eq!(path.to_string(), r#".spec[name="a",port=80][="x"][2]"#);
    }

    #[test]
    fn elements_are_ordered_by_type_and_numbers_by_value() {
        let sorted = [
            PathElement::field("a"),
            PathElement::field("b"),
            PathElement::key([("a", json!(9))]),
            PathElement::key([("a", json!(10))]),
            PathElement::key([("a", json!(10)), ("b", json!(1))]),
            PathElement::Value(json!(9)),
            PathElement::Value(json!(10)),
            PathElement::Index(0),
        ];
        assert!(sorted.is_sorted_by(|left, right| left < right));
    }
}
