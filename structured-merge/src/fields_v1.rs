//! `FieldsV1`, the wire format of field sets.
//!
//! Each key of a JSON object is a path element. Its value is an object with the elements below it.
//! An element without children is a member of the set. An element with children is a member only
//! if its object has the key `.`.

use crate::{MAX_DEPTH, path::PathElement, set::Set};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::{Map, Value};
use std::fmt::{self, Formatter};

/// Members below one element, and whether the element itself is a member.
struct Level<'a> {
    member: bool,
    set: &'a Set,
}

impl Serialize for Level<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let dot = self.member && !self.set.is_empty();
        let mut map = serializer.serialize_map(Some(self.set.nodes().len() + usize::from(dot)))?;
        if dot {
            map.serialize_entry(".", &NoChildren)?;
        }
        let mut key = String::new();
        for node in self.set.nodes() {
            key.clear();
            node.element.write_wire(&mut key);
            let level = Level {
                member: node.member,
                set: &node.children,
            };
            map.serialize_entry(&key, &level)?;
        }
        map.end()
    }
}

struct NoChildren;

impl Serialize for NoChildren {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_map(Some(0))?.end()
    }
}

impl Set {
    /// Returns the wire format of the set as a JSON value.
    pub fn to_value(&self) -> Value {
        self.level_value(false)
    }

    fn level_value(&self, member: bool) -> Value {
        let mut map = Map::new();
        if member && !self.is_empty() {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for node in self.nodes() {
            map.insert(
                node.element.to_wire(),
                node.children.level_value(node.member),
            );
        }
        Value::Object(map)
    }
}

impl Serialize for Set {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let level = Level {
            member: false,
            set: self,
        };
        level.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Set {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (_, set) = Reader { depth: 0 }.deserialize(deserializer)?;
        Ok(set)
    }
}

/// Deserializes the object of one element: whether the element is a member, and its children.
struct Reader {
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Reader {
    type Value = (bool, Set);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader {
    type Value = (bool, Set);

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("an object of path elements")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok((true, Set::new()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let depth = self.depth + 1;
        if depth > MAX_DEPTH {
            return Err(A::Error::custom(format_args!(
                "managed fields are nested deeper than {MAX_DEPTH} levels; remove the entry"
            )));
        }
        let mut member = false;
        let mut set = Set::new();
        while let Some(key) = map.next_key::<String>()? {
            if key == "." {
                member = true;
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let Some(element) = PathElement::parse(&key).map_err(A::Error::custom)? else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let (is_member, children) = map.next_value_seed(Reader { depth })?;
            if !is_member && children.is_empty() {
                continue;
            }
            let node = set.node_mut(&element);
            node.member |= is_member;
            if !children.is_empty() {
                node.children = children;
            }
        }
        Ok((member || set.is_empty(), set))
    }
}
