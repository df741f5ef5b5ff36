//! Types of expressions, and the declarations that rules see of a structural schema.

use super::super::ListType;
use serde_json::Value as Json;
use std::{collections::BTreeMap, fmt, sync::Arc};

/// Largest request that the real server accepts. It bounds values without a limit of their own.
pub(super) const MAX_REQUEST: u64 = 3 << 20;

/// Keywords that are escaped in expressions: `self.__namespace__`.
const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// Declaration of a value: the part of its schema that matters to rules.
#[derive(Debug)]
pub(super) struct Decl {
    pub(super) kind: Kind,
    /// `type` of the schema. Empty for int-or-string.
    pub(super) schema_type: Box<str>,
    pub(super) nullable: bool,
    /// Fields of an object, by the name in JSON.
    pub(super) fields: BTreeMap<Box<str>, Arc<Decl>>,
    /// Items of a list or values of a map.
    pub(super) element: Option<Arc<Decl>>,
    pub(super) list: ListType,
    /// Largest length of a string, list or map.
    pub(super) max_size: u64,
    /// Size of the smallest valid value in JSON.
    min_bytes: u64,
}

/// How rules see a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Rules do not see the value, since its schema has no type.
    Hidden,
    IntOrString,
    Bool,
    Int,
    Double,
    String,
    Bytes,
    Date,
    DateTime,
    Duration,
    List,
    Map,
    Object,
}

impl Decl {
    /// Creates the declarations of a schema. `resource` is set for the root of a resource, of which
    /// rules also see the kind and the name.
    pub(super) fn new(schema: &Json, resource: bool) -> Arc<Self> {
        let schema_type = schema["type"].as_str().unwrap_or_default();
        let count = |key: &str| {
            schema[key]
                .as_i64()
                .map(|count| count.max(0).cast_unsigned())
        };
        let mut decl = Self {
            kind: Kind::Hidden,
            schema_type: schema_type.into(),
            nullable: schema["nullable"] == true,
            fields: BTreeMap::new(),
            element: None,
            list: super::super::compile::list(schema),
            max_size: 0,
            min_bytes: 0,
        };
        if schema["x-kubernetes-int-or-string"] == true {
            let max_size =
                count("maxLength").map_or(MAX_REQUEST, |length| length.saturating_mul(4));
            (decl.kind, decl.max_size, decl.min_bytes) = (Kind::IntOrString, max_size, 1);
            return Arc::new(decl);
        }
        match schema_type {
            "boolean" => (decl.kind, decl.min_bytes) = (Kind::Bool, 4),
            "integer" => (decl.kind, decl.min_bytes) = (Kind::Int, 1),
            "number" => (decl.kind, decl.min_bytes) = (Kind::Double, 1),
            "string" => decl.string(schema, count("maxLength")),
            "array" if schema["items"].is_object() => {
                let items = Self::of_child(&schema["items"]);
                if items.kind != Kind::Hidden {
                    decl.kind = Kind::List;
                    decl.max_size =
                        count("maxItems").unwrap_or((MAX_REQUEST - 2) / (items.min_bytes + 1));
                }
                (decl.element, decl.min_bytes) = (Some(items), 2);
            }
            "object" if schema["additionalProperties"].is_object() => {
                let values = Self::of_child(&schema["additionalProperties"]);
                if values.kind != Kind::Hidden {
                    decl.kind = Kind::Map;
                    decl.max_size = count("maxProperties")
                        .unwrap_or((MAX_REQUEST - 2) / (values.min_bytes + 6));
                }
                (decl.element, decl.min_bytes) = (Some(values), 2);
            }
            "object" => decl.object(schema, resource),
            _ if resource => decl.object(schema, resource),
            _ => {}
        }
        Arc::new(decl)
    }

    fn of_child(schema: &Json) -> Arc<Self> {
        Self::new(schema, schema["x-kubernetes-embedded-resource"] == true)
    }

    fn string(&mut self, schema: &Json, max_length: Option<u64>) {
        let (kind, max_size, min_bytes) = match schema["format"].as_str() {
            Some("byte") => (Kind::Bytes, max_length.unwrap_or(MAX_REQUEST - 2), 2),
            Some("duration") => (Kind::Duration, 32, 4),
            Some("date") => (Kind::Date, 12, 12),
            Some("date-time") => (Kind::DateTime, 32, 21),
            _ => {
                let values = schema["enum"]
                    .as_array()
                    .filter(|values| !values.is_empty());
                let longest = values.map(|values| {
                    let lengths = values.iter().filter_map(Json::as_str).map(str::len);
                    lengths.max().unwrap_or(0) as u64
                });
                let max_size = max_length
                    .map(|length| length.saturating_mul(4))
                    .or(longest);
                (Kind::String, max_size.unwrap_or(MAX_REQUEST - 2), 2)
            }
        };
        (self.kind, self.max_size, self.min_bytes) = (kind, max_size, min_bytes);
    }

    fn object(&mut self, schema: &Json, resource: bool) {
        (self.kind, self.min_bytes) = (Kind::Object, 2);
        let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let field = Self::of_child(property);
            let is_required = required.iter().any(|required| required == name);
            if is_required && property["default"].is_null() && field.kind != Kind::Hidden {
                let bytes = name.len() as u64 + field.min_bytes + 4;
                self.min_bytes = self.min_bytes.saturating_add(bytes);
            }
            self.fields.insert(name.as_str().into(), field);
        }
        if !resource {
            return;
        }
        let text = Self::of_child(&serde_json::json!({"type": "string"}));
        let is_text =
            |decl: Option<&Arc<Self>>| decl.is_some_and(|it| &*it.schema_type == "string");
        let is_complete = ["kind", "apiVersion"]
            .iter()
            .all(|name| is_text(self.fields.get(*name)))
            && self.fields.get("metadata").is_some_and(|metadata| {
                ["name", "generateName"]
                    .iter()
                    .all(|name| is_text(metadata.fields.get(*name)))
            });
        if is_complete {
            return;
        }
        let metadata = Self::of_child(&serde_json::json!({"type": "object", "properties":
            {"name": {"type": "string"}, "generateName": {"type": "string"}}}));
        self.fields.insert("kind".into(), text.clone());
        self.fields.insert("apiVersion".into(), text);
        self.fields.insert("metadata".into(), metadata);
    }

    /// Returns a field by its name in expressions, with its name in JSON. A keyword need not be
    /// escaped.
    pub(super) fn select(&self, name: &str) -> Option<(&str, &Arc<Self>)> {
        let visible = |(field, decl): &(&str, &Arc<Self>)| {
            decl.kind != Kind::Hidden
                && (escape(field).as_deref() == Some(name)
                    || RESERVED.contains(&name) && *field == name)
        };
        let mut fields = self.fields.iter().map(|(field, decl)| (&**field, decl));
        fields.find(visible)
    }

    /// Returns how many such values fit into a request.
    pub(super) fn max_per_request(&self) -> u64 {
        MAX_REQUEST / (self.min_bytes + 1)
    }
}

/// Returns a field's name in expressions: `self.a__dot__b`. `None` if expressions cannot name it.
fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let (text, consumed) = match c {
            '_' if rest.starts_with("__") => ("__underscores__", 2),
            '.' => ("__dot__", 1),
            '-' => ("__dash__", 1),
            '/' => ("__slash__", 1),
            _ if c.is_ascii_alphanumeric() || c == '_' => (&rest[..1], 1),
            _ => return None,
        };
        escaped.push_str(text);
        rest = &rest[consumed..];
    }
    Some(escaped)
}

/// Type of an expression.
#[derive(Clone, Debug)]
pub(super) enum Type {
    /// Checked only when evaluated.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    /// A type as a value: `type(self) == int`.
    Meta,
    List(Arc<Type>),
    Map(Arc<Type>, Arc<Type>),
    Optional(Arc<Type>),
    /// A value of the schema.
    Decl(Arc<Decl>),
    /// A value of a library, such as an IP address.
    Opaque(&'static str),
    /// Parameter of a signature.
    Param(usize),
}

/// Types bound to the parameters of a signature.
pub(super) type Params = [Option<Type>; 2];

impl Type {
    pub(super) fn list(items: Self) -> Self {
        Self::List(Arc::new(items))
    }

    pub(super) fn optional(value: Self) -> Self {
        Self::Optional(Arc::new(value))
    }

    /// Returns the type without its declaration, except for objects.
    pub(super) fn plain(&self) -> Self {
        let Self::Decl(decl) = self else {
            return self.clone();
        };
        let element = || decl.element.clone().map_or(Self::Dyn, Self::Decl);
        match decl.kind {
            Kind::Hidden | Kind::IntOrString => Self::Dyn,
            Kind::Bool => Self::Bool,
            Kind::Int => Self::Int,
            Kind::Double => Self::Double,
            Kind::String => Self::String,
            Kind::Bytes => Self::Bytes,
            Kind::Date | Kind::DateTime => Self::Timestamp,
            Kind::Duration => Self::Duration,
            Kind::List => Self::list(element()),
            Kind::Map => Self::Map(Arc::new(Self::String), Arc::new(element())),
            Kind::Object => self.clone(),
        }
    }

    pub(super) fn is_dyn(&self) -> bool {
        matches!(self.plain(), Self::Dyn)
    }

    /// Returns the largest size of a value of this type, as declared.
    pub(super) fn max_size(&self) -> Option<u64> {
        match self {
            Self::Decl(decl) => Some(decl.max_size),
            _ => None,
        }
    }

    /// Reports whether a value of type `found` can be used as this type. Binds parameters.
    pub(super) fn accepts(&self, found: &Self, params: &mut Params) -> bool {
        let found = found.plain();
        match (self.plain(), &found) {
            (Self::Param(index), _) => match params[index].clone() {
                Some(bound) if !bound.is_dyn() => bound.accepts(&found, params),
                _ => {
                    params[index] = Some(found);
                    true
                }
            },
            (Self::Dyn, _)
            | (_, Self::Dyn)
            | (
                Self::Decl(_)
                | Self::Timestamp
                | Self::Duration
                | Self::Optional(_)
                | Self::Opaque(_),
                Self::Null,
            ) => true,
            (Self::List(one), Self::List(other)) | (Self::Optional(one), Self::Optional(other)) => {
                one.accepts(other, params)
            }
            (Self::Map(key, value), Self::Map(other_key, other_value)) => {
                key.accepts(other_key, params) && value.accepts(other_value, params)
            }
            (Self::Decl(one), Self::Decl(other)) => Arc::ptr_eq(&one, other),
            (Self::Opaque(one), Self::Opaque(other)) => one == *other,
            (one, other) => std::mem::discriminant(&one) == std::mem::discriminant(other),
        }
    }

    /// Replaces the parameters of a signature by the types bound to them.
    pub(super) fn resolve(&self, params: &Params) -> Self {
        match self {
            Self::Param(index) => params[*index].clone().unwrap_or(Self::Dyn),
            Self::List(items) => Self::list(items.resolve(params)),
            Self::Optional(value) => Self::optional(value.resolve(params)),
            Self::Map(key, value) => Self::Map(
                Arc::new(key.resolve(params)),
                Arc::new(value.resolve(params)),
            ),
            other => other.clone(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.plain() {
            Self::Dyn | Self::Param(_) => f.write_str("dyn"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Duration => f.write_str("duration"),
            Self::Meta => f.write_str("type"),
            Self::List(items) => write!(f, "list({items})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(value) => write!(f, "optional_type({value})"),
            Self::Decl(_) => f.write_str("object"),
            Self::Opaque(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_escaped_as_on_the_real_server() {
        let escaped = |name: &str| escape(name).unwrap_or_else(|| "-".into());
        assert_eq!(escaped("namespace"), "__namespace__");
        assert_eq!(escaped("a.b-c/d"), "a__dot__b__dash__c__slash__d");
        assert_eq!(escaped("a__b_c"), "a__underscores__b_c");
        assert_eq!(escaped("9a"), "-");
        assert_eq!(escaped("a b"), "-");
    }

    #[test]
    fn rules_see_only_names_of_the_metadata() {
        let decl = Decl::new(
            &json!({"type": "object", "properties": {"metadata": {"type": "object"}}}),
            true,
        );
        let (_, metadata) = decl.select("metadata").expect("metadata");
        assert!(metadata.select("name").is_some() && metadata.select("generateName").is_some());
        assert!(metadata.select("labels").is_none());
    }

    #[test]
    fn values_without_a_type_are_hidden() {
        let schema = json!({"type": "object", "properties": {
            "free": {"x-kubernetes-preserve-unknown-fields": true},
            "list": {"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": true}},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }});
        let decl = Decl::new(&schema, false);
        assert!(decl.select("free").is_none() && decl.select("list").is_none());
        assert!(decl.select("open").is_some());
    }
}
