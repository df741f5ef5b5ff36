//! Values of expressions, and their conversion from JSON.

use super::{
    super::{ListType, quantity::Quantity},
    types::{Decl, Kind},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::{SignedDuration, Timestamp};
use kube_cel::cel::objects::Opaque;
use serde_json::Value as Json;
use std::{cmp::Ordering, collections::BTreeMap, fmt, sync::Arc};

/// Value of an expression. Copies share their content.
#[derive(Clone)]
pub(super) enum Val {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    Timestamp(Timestamp),
    Duration(SignedDuration),
    List(Arc<List>),
    Map(Arc<BTreeMap<Key, Val>>),
    /// A type: `int`.
    Type(&'static str),
    Optional(Option<Arc<Val>>),
    Quantity(Quantity),
    /// A value of kube-cel's libraries.
    Opaque(Arc<dyn Opaque>),
    /// A value that does not match its schema, with the reason. Using it is an error.
    Invalid(Arc<str>),
}

/// Items of a list, and how they are compared.
pub(super) struct List {
    pub(super) items: Vec<Val>,
    pub(super) kind: ListType,
}

/// Key of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Bool(bool),
    Int(i64),
    Uint(u64),
    String(Arc<str>),
}

impl Val {
    pub(super) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::String(text.into())
    }

    pub(super) fn list(items: Vec<Self>) -> Self {
        Self::List(Arc::new(List {
            items,
            kind: ListType::Atomic,
        }))
    }

    pub(super) fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// Returns a number of items or an index.
    #[expect(clippy::cast_possible_wrap, reason = "no value has 2^63 items")]
    pub(super) fn length(count: usize) -> Self {
        Self::Int(count as i64)
    }

    /// Converts a value of an object.
    pub(super) fn new(value: &Json, decl: &Decl) -> Self {
        if value.is_null() {
            return if decl.nullable {
                Self::Null
            } else {
                Self::Invalid("invalid data, got null for schema with nullable=false".into())
            };
        }
        let converted = match decl.kind {
            Kind::Hidden => Some(Self::untyped(value)),
            Kind::IntOrString if value.is_string() || value.is_i64() => Some(Self::untyped(value)),
            Kind::IntOrString => None,
            Kind::Bool => value.as_bool().map(Self::Bool),
            Kind::Int => value.as_i64().map(Self::Int),
            Kind::Double => value.as_f64().map(Self::Double),
            Kind::String => value.as_str().map(Self::text),
            Kind::Bytes => value
                .as_str()
                .and_then(|text| STANDARD.decode(text).ok())
                .map(|bytes| Self::Bytes(bytes.into())),
            Kind::Date => value
                .as_str()
                .and_then(|text| format!("{text}T00:00:00Z").parse().ok())
                .map(Self::Timestamp),
            Kind::DateTime => value
                .as_str()
                .and_then(|text| text.parse().ok())
                .map(Self::Timestamp),
            Kind::Duration => value
                .as_str()
                .and_then(super::convert::parse_duration)
                .map(Self::Duration),
            Kind::List => value.as_array().map(|items| {
                let items = items
                    .iter()
                    .map(|item| Self::of_child(item, decl.element.as_deref()))
                    .collect();
                let kind = decl.list.clone();
                Self::List(Arc::new(List { items, kind }))
            }),
            Kind::Map | Kind::Object => value.as_object().map(|map| {
                let field = |name: &str| match decl.kind {
                    Kind::Map => decl.element.as_deref(),
                    _ => decl.fields.get(name).map(|field| &**field),
                };
                let entries = map.iter().map(|(name, value)| {
                    let key = Key::String(name.as_str().into());
                    (key, Self::of_child(value, field(name)))
                });
                Self::Map(Arc::new(entries.collect()))
            }),
        };
        converted.unwrap_or_else(|| Self::Invalid(mismatch(value, decl.kind).into()))
    }

    fn of_child(value: &Json, decl: Option<&Decl>) -> Self {
        decl.map_or_else(|| Self::untyped(value), |decl| Self::new(value, decl))
    }

    fn untyped(value: &Json) -> Self {
        match value {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(number), _) => Self::Int(number),
                (None, number) => Self::Double(number.unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::text(text.as_str()),
            Json::Array(items) => Self::list(items.iter().map(Self::untyped).collect()),
            Json::Object(map) => {
                let entries = map
                    .iter()
                    .map(|(key, value)| (Key::String(key.as_str().into()), Self::untyped(value)));
                Self::Map(Arc::new(entries.collect()))
            }
        }
    }

    /// Returns the number of characters, bytes, items or entries; 1 of other values.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::String(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(list) => list.items.len(),
            Self::Map(map) => map.len(),
            Self::Optional(Some(value)) => value.size(),
            _ => 1,
        }
    }

    /// Returns an upper bound of the number of values and bytes in this value.
    pub(super) fn weight(&self) -> usize {
        let inner: usize = match self {
            Self::List(list) => list.items.iter().map(Self::weight).sum(),
            Self::Map(map) => map.values().map(|value| value.weight() + 8).sum(),
            Self::Optional(Some(value)) => value.weight(),
            other => other.size(),
        };
        inner + 1
    }

    /// Returns the value of `type(…)`.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Opaque(_) => "opaque",
            Self::Invalid(_) => "error",
        }
    }

    /// Returns the name of the type in Go, for errors.
    pub(super) fn go_type(&self) -> &'static str {
        match self {
            Self::Null => "types.Null",
            Self::Bool(_) => "types.Bool",
            Self::Int(_) => "types.Int",
            Self::Uint(_) => "types.Uint",
            Self::Double(_) => "types.Double",
            Self::String(_) => "types.String",
            Self::Bytes(_) => "types.Bytes",
            Self::Timestamp(_) => "types.Timestamp",
            Self::Duration(_) => "types.Duration",
            _ => "ref.Val",
        }
    }

    /// Reports whether the value is the default of its type.
    pub(super) fn is_zero(&self) -> bool {
        match self {
            Self::Null | Self::Bool(false) | Self::Int(0) | Self::Uint(0) => true,
            Self::Double(number) => *number == 0.0,
            Self::Duration(duration) => duration.is_zero(),
            Self::String(_) | Self::Bytes(_) | Self::List(_) | Self::Map(_) => self.size() == 0,
            Self::Optional(value) => value.is_none(),
            _ => false,
        }
    }

    /// Compares two values of one type, or two numbers. `None` if they have no order.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(one), Self::Bool(other)) => Some(one.cmp(other)),
            (Self::Int(one), Self::Int(other)) => Some(one.cmp(other)),
            (Self::Uint(one), Self::Uint(other)) => Some(one.cmp(other)),
            (Self::Int(one), Self::Uint(other)) => Some(i128::from(*one).cmp(&i128::from(*other))),
            (Self::Uint(one), Self::Int(other)) => Some(i128::from(*one).cmp(&i128::from(*other))),
            (Self::Double(one), Self::Double(other)) => one.partial_cmp(other),
            (Self::Int(_) | Self::Uint(_), Self::Double(other)) => self.float()?.partial_cmp(other),
            (Self::Double(one), Self::Int(_) | Self::Uint(_)) => one.partial_cmp(&other.float()?),
            (Self::String(one), Self::String(other)) => Some(one.cmp(other)),
            (Self::Bytes(one), Self::Bytes(other)) => Some(one.cmp(other)),
            (Self::Timestamp(one), Self::Timestamp(other)) => Some(one.cmp(other)),
            (Self::Duration(one), Self::Duration(other)) => Some(one.cmp(other)),
            _ => None,
        }
    }

    /// Returns a number as a double.
    #[expect(clippy::cast_precision_loss, reason = "as on the real server")]
    pub(super) fn float(&self) -> Option<f64> {
        match self {
            Self::Int(number) => Some(*number as f64),
            Self::Uint(number) => Some(*number as f64),
            Self::Double(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the value as a key of a map. A double equals the integer of the same value.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "compared with the original"
    )]
    #[expect(clippy::cast_precision_loss, reason = "compared with the original")]
    #[expect(clippy::float_cmp, reason = "only equal numbers are the same key")]
    pub(super) fn key(&self) -> Option<Key> {
        match self {
            Self::Bool(value) => Some(Key::Bool(*value)),
            Self::Int(number) => Some(Key::Int(*number)),
            Self::Uint(number) => Some(Key::Uint(*number)),
            Self::String(text) => Some(Key::String(text.clone())),
            Self::Double(number) if (*number as i64) as f64 == *number => {
                Some(Key::Int(*number as i64))
            }
            _ => None,
        }
    }
}

/// Returns why a value does not match its schema, with the names of Go's types.
fn mismatch(value: &Json, kind: Kind) -> String {
    let found = match value {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_f64() => "float64",
        Json::Number(_) => "int64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    };
    let expected = match kind {
        Kind::IntOrString => {
            return "invalid data, expected XIntOrString value to be either a string or integer"
                .into();
        }
        Kind::List => {
            return "invalid data, expected an array for the provided schema with type=array"
                .into();
        }
        Kind::Map | Kind::Object => {
            return "invalid data, expected a map for the provided schema with type=object".into();
        }
        Kind::Date if value.is_string() => return format!("Invalid date formatted string {value}"),
        Kind::DateTime if value.is_string() => {
            return format!("Invalid date-time formatted string {value}");
        }
        Kind::Duration if value.is_string() => return format!("Invalid duration {value}"),
        Kind::Bytes if value.is_string() => {
            return format!("Invalid byte formatted string {value}");
        }
        Kind::Bool => "bool",
        Kind::Int => "int",
        Kind::Double => "float",
        _ => "string",
    };
    format!("invalid data, expected {expected}, got {found}")
}

impl Key {
    pub(super) fn value(&self) -> Val {
        match self {
            Self::Bool(value) => Val::Bool(*value),
            Self::Int(number) => Val::Int(*number),
            Self::Uint(number) => Val::Uint(*number),
            Self::String(text) => Val::String(text.clone()),
        }
    }

    /// Looks the key up in a map. Equal numbers of different types are the same key.
    pub(super) fn find<'a>(&self, map: &'a BTreeMap<Self, Val>) -> Option<&'a Val> {
        let other = match self {
            Self::Int(number) => u64::try_from(*number).ok().map(Self::Uint),
            Self::Uint(number) => i64::try_from(*number).ok().map(Self::Int),
            _ => None,
        };
        map.get(self).or_else(|| map.get(&other?))
    }
}

impl PartialEq for Val {
    /// Numbers of different types are equal if their values are. Sets and maps are compared
    /// without regard to the order of their items.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Type(one), Self::Type(other)) => one == other,
            (Self::List(one), Self::List(other)) => one == other,
            (Self::Map(one), Self::Map(other)) => {
                let is_same = |(key, value): (&Key, &Self)| key.find(other) == Some(value);
                one.len() == other.len() && one.iter().all(is_same)
            }
            (Self::Optional(one), Self::Optional(other)) => one == other,
            (Self::Quantity(one), Self::Quantity(other)) => one.is_equal_amount(*other),
            (Self::Opaque(one), Self::Opaque(other)) => one.opaque_eq(&**other),
            _ => self.compare(other) == Some(Ordering::Equal),
        }
    }
}

impl PartialEq for List {
    fn eq(&self, other: &Self) -> bool {
        if self.items.len() != other.items.len() {
            return false;
        }
        let key: &dyn Fn(&Val) -> String = match (&self.kind, &other.kind) {
            (ListType::Set, ListType::Set) => &|item| format!("{item:?}"),
            (ListType::Map(keys), ListType::Map(_)) => &|item| item.key_text(keys),
            _ => return self.items == other.items,
        };
        let others: BTreeMap<_, _> = other.items.iter().map(|item| (key(item), item)).collect();
        self.items
            .iter()
            .all(|item| others.get(&key(item)) == Some(&item))
    }
}

impl Val {
    /// Returns a text that identifies an item of a list with these keys.
    pub(super) fn key_text(&self, keys: &[String]) -> String {
        let Self::Map(map) = self else {
            return format!("{self:?}");
        };
        let values = keys
            .iter()
            .map(|key| map.get(&Key::String(key.as_str().into())));
        format!("{:?}", values.collect::<Vec<_>>())
    }
}

impl fmt::Debug for Val {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Uint(number) => write!(f, "{number}u"),
            Self::Double(number) => write!(f, "{number:?}"),
            Self::String(text) => write!(f, "{text:?}"),
            Self::Bytes(bytes) => write!(f, "b{bytes:?}"),
            Self::Timestamp(time) => write!(f, "{time}"),
            Self::Duration(duration) => write!(f, "{duration:?}"),
            Self::List(list) => f.debug_list().entries(&list.items).finish(),
            Self::Map(map) => f.debug_map().entries(map.iter()).finish(),
            Self::Type(name) => f.write_str(name),
            Self::Optional(value) => write!(f, "{value:?}"),
            Self::Quantity(quantity) => write!(f, "{quantity:?}"),
            Self::Opaque(value) => f.write_str(value.runtime_type_name()),
            Self::Invalid(reason) => f.write_str(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn val(schema: &Json, value: &Json) -> Val {
        Val::new(value, &Decl::new(schema, false))
    }

    #[test]
    fn sets_and_maps_are_equal_in_any_order() {
        let mut list = json!({"type": "array", "items": {"type": "string"}});
        assert_ne!(
            val(&list, &json!(["a", "b"])),
            val(&list, &json!(["b", "a"]))
        );
        list["x-kubernetes-list-type"] = json!("set");
        assert_eq!(
            val(&list, &json!(["a", "b"])),
            val(&list, &json!(["b", "a"]))
        );
        assert_ne!(
            val(&list, &json!(["a", "b"])),
            val(&list, &json!(["b", "c"]))
        );
        let map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}});
        let one = json!([{"k": "a", "v": 1}, {"k": "b", "v": 2}]);
        assert_eq!(val(&map, &one), val(&map, &json!([one[1], one[0]])));
        assert_ne!(
            val(&map, &one),
            val(&map, &json!([one[1], {"k": "a", "v": 3}]))
        );
    }

    #[test]
    fn a_value_of_another_type_is_invalid() {
        let found = val(&json!({"type": "integer"}), &json!("x"));
        assert_eq!(
            format!("{found:?}"),
            "invalid data, expected int, got string"
        );
        assert!(matches!(
            val(&json!({"type": "string"}), &json!(null)),
            Val::Invalid(_)
        ));
        assert!(matches!(
            val(&json!({"type": "string", "nullable": true}), &json!(null)),
            Val::Null
        ));
    }

    #[test]
    fn numbers_of_different_types_are_compared_by_value() {
        assert_eq!(Val::Int(1), Val::Double(1.0));
        assert_eq!(Val::Uint(1), Val::Int(1));
        assert_eq!(
            Val::Int(-1).compare(&Val::Uint(u64::MAX)),
            Some(Ordering::Less)
        );
        assert_ne!(Val::Int(1), Val::text("1"));
    }
}
