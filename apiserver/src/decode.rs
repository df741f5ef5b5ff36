//! Decoding of JSON and YAML request bodies, with duplicate fields reported.

use crate::status::{Failure, MAX_BYTES, Result, StrictErrors};
use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{Error, options::DuplicateKeyPolicy};
use std::{cell::RefCell, fmt};

/// Maximum number of bytes of errors that are formatted for one body. Most of them are dropped if the
/// same field is repeated many times.
const MAX_FORMATTED: usize = 16 * MAX_BYTES;

/// A decoded request body. The last value of a duplicate field wins, as on the real server.
#[derive(Debug, PartialEq)]
pub(crate) struct DecodedBody {
    pub(crate) value: Value,
    /// Errors about duplicate fields, such as `duplicate field "spec.a"`.
    pub(crate) strict_errors: StrictErrors,
    /// Bytes of the request.
    pub(crate) raw: Bytes,
}

impl DecodedBody {
    /// Creates a body that was not received over HTTP.
    pub(crate) fn from_value(value: Value) -> Self {
        Self {
            value,
            strict_errors: StrictErrors::new(),
            raw: Bytes::new(),
        }
    }
}

/// Returns the beginning of an undecodable body as the real server's errors show it: as hexadecimal
/// digits if it does not look like JSON.
pub(crate) fn summary(raw: &[u8]) -> String {
    const MAX_SHOWN: usize = 30;
    let start = &raw[..raw.len().min(MAX_SHOWN)];
    let more = if raw.len() > MAX_SHOWN { " ..." } else { "" };
    match raw.first() {
        None => "<empty>".into(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
        Some(_) => {
            let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or_default();
            start
                .iter()
                .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
                .chain(more.chars())
                .collect()
        }
    }
}

/// Decodes a JSON body. Invalid UTF-8 becomes U+FFFD, as on the real server: accepted inside of
/// strings, an error elsewhere.
pub(crate) fn json(bytes: &Bytes) -> Result<DecodedBody> {
    let duplicates = RefCell::new(Duplicates::default());
    let text = String::from_utf8_lossy(bytes);
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    let seed = Seed {
        duplicates: &duplicates,
        path: BodyPath::Root,
    };
    let value = seed
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    let value =
        value.map_err(|error| Failure::bad_request(format!("json parse error: {error}")))?;
    Ok(DecodedBody {
        value,
        strict_errors: duplicates.into_inner().errors,
        raw: bytes.clone(),
    })
}

/// Decodes a YAML body.
pub(crate) fn yaml(bytes: &Bytes) -> Result<DecodedBody> {
    let invalid = |error: &Error| Failure::bad_request(format!("yaml: {}", one_line(error)));
    let error = match serde_saphyr::from_slice(bytes) {
        // An empty document is valid, but a tab is not.
        Ok(Value::Null) if bytes.contains(&b'\t') => {
            return Err(Failure::bad_request(
                "yaml: found character that cannot start any token",
            ));
        }
        Ok(value) => {
            return Ok(DecodedBody {
                value,
                strict_errors: StrictErrors::new(),
                raw: bytes.clone(),
            });
        }
        Err(error) => error,
    };
    // Reports the first duplicate key only, then decodes with duplicates allowed.
    let Error::DuplicateMappingKey { key, location } = error.without_snippet() else {
        return Err(invalid(&error));
    };
    let strict_error = format!(
        "line {}: key {:?} already set in map",
        location.line(),
        key.as_deref().unwrap_or_default()
    );
    let lenient = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    let value =
        serde_saphyr::from_slice_with_options(bytes, lenient).map_err(|error| invalid(&error))?;
    Ok(DecodedBody {
        value,
        strict_errors: strict_error.into(),
        raw: bytes.clone(),
    })
}

fn one_line(error: &Error) -> String {
    error
        .without_snippet()
        .to_string()
        .lines()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Path of a value in the body. It is kept on the stack and formatted only for a duplicate.
#[derive(Clone, Copy)]
enum BodyPath<'a> {
    Root,
    Field(&'a BodyPath<'a>, &'a str),
    Item(&'a BodyPath<'a>, usize),
}

impl fmt::Display for BodyPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(BodyPath::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// Errors about duplicate fields, one for each path.
#[derive(Default)]
struct Duplicates {
    errors: StrictErrors,
    /// Bytes of the errors that were formatted, including those that were dropped.
    formatted: usize,
}

impl Duplicates {
    fn add(&mut self, path: BodyPath<'_>) {
        if self.errors.is_full() || self.formatted >= MAX_FORMATTED {
            return;
        }
        let error = format!("duplicate field \"{path}\"");
        self.formatted += error.len();
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }
}

struct Seed<'a> {
    duplicates: &'a RefCell<Duplicates>,
    path: BodyPath<'a>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        // Go decodes integers beyond `i64` as floating point.
        Ok(if i64::try_from(value).is_ok() {
            value.into()
        } else {
            Value::from(value as f64)
        })
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        // Only `-0` is an integer literal that reaches `visit_f64`.
        if value == 0.0 {
            return Ok(0.into());
        }
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("not a number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Seed {
            duplicates: self.duplicates,
            path: BodyPath::Item(&self.path, list.len()),
        })? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let path = BodyPath::Field(&self.path, &name);
            let value = fields.next_value_seed(Seed {
                duplicates: self.duplicates,
                path,
            })?;
            if map.contains_key(&name) {
                self.duplicates.borrow_mut().add(path);
            }
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn duplicate_fields_are_reported_with_their_path_and_the_last_one_wins() {
        let text = br#"{"spec":{"a":1,"list":[{"b":1},{"b":1,"b":2}],"a":3}}"#;
        let body = json(&Bytes::from_static(text)).unwrap();
        assert_eq!(
            body.value,
            json!({"spec": {"a": 3, "list": [{"b": 1}, {"b": 2}]}})
        );
        assert_eq!(
            *body.strict_errors,
            [
                "duplicate field \"spec.list[1].b\"",
                "duplicate field \"spec.a\""
            ]
        );
    }

    #[test]
    fn invalid_json_is_a_bad_request() {
        for body in ["", "{", "{}{}", "{\"a\":}", "nul", "\u{feff}{}"] {
            assert_eq!(json(&Bytes::from(body)).unwrap_err().code, 400, "{body}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(json(&Bytes::from(deep)).unwrap_err().code, 400);
    }

    #[test]
    fn a_body_decodes_to_the_same_value_as_with_serde_json() {
        let text = r#"{"n":[1,-1,1.5,9223372036854775807,1e3],"s":"\u00e9\n","t":true,"z":null}"#;
        assert_eq!(
            json(&Bytes::from(text)).unwrap().value,
            serde_json::from_str::<Value>(text).unwrap()
        );
    }
}
