//! Typed fields of objects whose type is not known.
//!
//! Texts of errors are those of Go's `unstructured` accessors, including how Go prints values and
//! names their types.

use kube::core::DynamicObject;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fmt::Write;

/// Error of reading a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// The field, or one that contains it, has another type.
    #[error("{path} accessor error: {value} is of the type {found}, expected {expected}")]
    Type {
        /// Path from the root of the object, such as `.status.ready`.
        path: String,
        /// Value with the wrong type, as Go prints it.
        value: String,
        /// Go's name of the value's type.
        found: &'static str,
        /// Go's name of the type that is required.
        expected: &'static str,
    },
    /// The field has the right type, but its content does not.
    #[error("failed to unmarshal field at {path} to json: {error}")]
    Content {
        /// Path from the root of the object.
        path: String,
        /// Message of the decoder.
        error: String,
    },
    /// A field that a contract names cannot be read.
    #[error("failed to get {path} from object: {cause}")]
    OfContract {
        /// Path from the root of the object.
        path: String,
        /// Reason.
        cause: Box<FieldError>,
    },
}

impl FieldError {
    fn of_type(path: &[&str], value: &Value, expected: &'static str) -> Self {
        Self::Type {
            path: print_path(path),
            value: print(value),
            found: type_name(value),
            expected,
        }
    }
}

/// Returns the field at `path`; `None` if it or a field that contains it is missing.
///
/// A field that contains it and is null counts as missing.
fn nested<'a>(object: &'a DynamicObject, path: &[&str]) -> Result<Option<&'a Value>, FieldError> {
    let mut value = &object.data;
    for (depth, name) in path.iter().enumerate() {
        let fields = match value {
            Value::Null => return Ok(None),
            Value::Object(fields) => fields,
            other => return Err(FieldError::of_type(&path[..=depth], other, MAP)),
        };
        match fields.get(*name) {
            Some(next) => value = next,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

/// Name of Go's type of objects in error texts that require one.
const MAP: &str = "map[string]interface{}";

pub(super) fn text<'a>(
    object: &'a DynamicObject,
    path: &[&str],
) -> Result<Option<&'a str>, FieldError> {
    typed(object, path, "string", Value::as_str)
}

pub(super) fn boolean(object: &DynamicObject, path: &[&str]) -> Result<Option<bool>, FieldError> {
    typed(object, path, "bool", Value::as_bool)
}

pub(super) fn map<'a>(
    object: &'a DynamicObject,
    path: &[&str],
) -> Result<Option<&'a Map<String, Value>>, FieldError> {
    typed(object, path, MAP, Value::as_object)
}

/// Returns the map at `path`, unless it is missing or null.
pub(super) fn map_if_set<'a>(
    object: &'a DynamicObject,
    path: &[&str],
) -> Result<Option<&'a Map<String, Value>>, FieldError> {
    match nested(object, path)? {
        None | Some(Value::Null) => Ok(None),
        Some(_) => map(object, path),
    }
}

pub(super) fn list<'a>(
    object: &'a DynamicObject,
    path: &[&str],
) -> Result<Option<&'a Vec<Value>>, FieldError> {
    typed(object, path, "[]interface{}", Value::as_array)
}

/// Returns the field at `path`, unless it is missing. A field that is null has the wrong type.
fn typed<'a, T>(
    object: &'a DynamicObject,
    path: &[&str],
    expected: &'static str,
    convert: fn(&'a Value) -> Option<T>,
) -> Result<Option<T>, FieldError> {
    let Some(value) = nested(object, path)? else {
        return Ok(None);
    };
    match convert(value) {
        Some(converted) => Ok(Some(converted)),
        None => Err(FieldError::of_type(path, value, expected)),
    }
}

/// Decodes the content of a field.
pub(super) fn decode<T: DeserializeOwned>(path: &[&str], value: Value) -> Result<T, FieldError> {
    serde_json::from_value(value).map_err(|error| FieldError::Content {
        path: print_path(path),
        error: error.to_string(),
    })
}

/// Returns a path as `.status.ready`.
pub(super) fn print_path(path: &[&str]) -> String {
    path.iter().fold(String::new(), |mut printed, name| {
        printed.push('.');
        printed.push_str(name);
        printed
    })
}

/// Returns a value as Go's `%v` prints it.
fn print(value: &Value) -> String {
    let mut printed = String::new();
    print_to(&mut printed, value);
    printed
}

fn print_to(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::String(text) => out.push_str(text),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => drop(write!(out, "{integer}")),
            (None, Some(float)) => out.push_str(&print_float(float)),
            (None, None) => drop(write!(out, "{number}")),
        },
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                print_to(out, item);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            out.push_str("map[");
            for (index, (name, field)) in fields.into_iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                out.push_str(name);
                out.push(':');
                print_to(out, field);
            }
            out.push(']');
        }
    }
}

/// Returns a float as Go's `%v`: the shortest digits, with an exponent below -4 or from 6 on.
///
/// The exponent has a sign and at least two digits.
fn print_float(float: f64) -> String {
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..EXPONENT_FROM).contains(&exponent) {
        return format!("{float}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Smallest exponent that Go prints.
const EXPONENT_FROM: i32 = 6;

/// Returns Go's name of the type of a value, with which it prints the type of any value.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(content: Value) -> DynamicObject {
        let mut object: DynamicObject =
            serde_json::from_value(json!({"metadata": {"name": "a"}})).expect("an object");
        object.data = content;
        object
    }

    fn error<T: std::fmt::Debug>(result: Result<T, FieldError>) -> String {
        result.expect_err("a field of the wrong type").to_string()
    }

    #[test]
    fn a_missing_field_is_not_an_error() {
        for content in [
            json!({}),
            json!({"status": null}),
            json!({"status": {}}),
            json!(null),
        ] {
            let object = object(content);
            assert_eq!(boolean(&object, &["status", "ready"]), Ok(None));
            assert_eq!(text(&object, &["status", "ready"]), Ok(None));
        }
        let null = object(json!({"status": {"initialization": null}}));
        let path = ["status", "initialization", "provisioned"];
        assert_eq!(boolean(&null, &path), Ok(None));
    }

    #[test]
    fn a_field_of_another_type_is_described_as_in_go() {
        let values = [
            (json!("true"), "true is of the type string"),
            (json!(null), "<nil> is of the type <nil>"),
            (json!(7), "7 is of the type int64"),
            (json!(-2.5), "-2.5 is of the type float64"),
            (
                json!([1, "a", null]),
                "[1 a <nil>] is of the type []interface {}",
            ),
            (
                json!({"b": true, "a": {}}),
                "map[a:map[] b:true] is of the type map[string]interface {}",
            ),
        ];
        for (value, described) in values {
            let object = object(json!({"status": {"ready": value}}));
            assert_eq!(
                error(boolean(&object, &["status", "ready"])),
                format!(".status.ready accessor error: {described}, expected bool")
            );
        }
    }

    #[test]
    fn a_container_that_is_not_a_map_is_described_with_the_path_of_the_field() {
        let object = object(json!({"status": "up"}));
        assert_eq!(
            error(text(&object, &["status", "failureReason"])),
            ".status.failureReason accessor error: up is of the type string, expected \
             map[string]interface{}"
        );
        assert_eq!(
            error(map(&object, &["status"])),
            ".status accessor error: up is of the type string, expected map[string]interface{}"
        );
        assert_eq!(
            error(list(&object, &["status"])),
            ".status accessor error: up is of the type string, expected []interface{}"
        );
    }

    #[test]
    fn floats_are_printed_as_in_go() {
        let printed = [
            (1.0, "1"),
            (0.0, "0"),
            (1.5, "1.5"),
            (-2.5, "-2.5"),
            (123_456.789, "123456.789"),
            (999_999.0, "999999"),
            (1e6, "1e+06"),
            (123_456_789.0, "1.23456789e+08"),
            (1e20, "1e+20"),
            (1.5e21, "1.5e+21"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (18_446_744_073_709_551_615.0, "1.8446744073709552e+19"),
            (1e-300, "1e-300"),
        ];
        for (float, text) in printed {
            assert_eq!(print_float(float), text);
        }
        assert_eq!(print(&json!(u64::MAX)), "1.8446744073709552e+19");
        assert_eq!(type_name(&json!(u64::MAX)), "float64");
    }
}
