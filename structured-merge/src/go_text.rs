//! Go's text formats of values, for messages and field names of the API server.

use crate::value::Numeric;
use serde_json::Value;
use std::fmt::Write;

/// Quotes a string like Go's `%q`.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{07}' => out.push_str("\\a"),
            '\u{08}' => out.push_str("\\b"),
            '\u{0c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{0b}' => out.push_str("\\v"),
            ' '..='~' => out.push(character),
            '\0'..='\u{7f}' => append(&mut out, format_args!("\\x{:02x}", character as u32)),
            _ if is_printable(character) => out.push(character),
            '\u{80}'..='\u{ffff}' => append(&mut out, format_args!("\\u{:04x}", character as u32)),
            _ => append(&mut out, format_args!("\\U{:08x}", character as u32)),
        }
    }
    out.push('"');
    out
}

fn is_printable(character: char) -> bool {
    // `Debug` escapes characters that are not printable. It escapes a combining mark only at the
    // start of a text.
    let mut text = String::from("x");
    text.push(character);
    text.escape_debug().count() == 2
}

fn append(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String does not fail.
    let _ = out.write_fmt(arguments);
}

/// Formats a list of strings like Go's `%q` of a slice.
pub(crate) fn quote_list(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quote(text)).collect();
    format!("[{}]", quoted.join(" "))
}

/// Formats a float like Go's `%v`: with an exponent below 1e-4 and from 1e6.
pub(crate) fn float(value: f64) -> String {
    let exponent = decimal_exponent(value);
    if value != 0.0 && !(-4..6).contains(&exponent) {
        exponential(value)
    } else {
        format!("{value}")
    }
}

/// Formats a float like Go's JSON encoders: with an exponent below 1e-6 and from 1e21.
fn json_float(value: f64) -> String {
    let absolute = value.abs();
    if absolute != 0.0 && !(1e-6..1e21).contains(&absolute) {
        exponential(value)
    } else {
        format!("{value}")
    }
}

fn decimal_exponent(value: f64) -> i32 {
    let text = format!("{value:e}");
    text.split_once('e')
        .and_then(|(_, exponent)| exponent.parse().ok())
        .unwrap_or(0)
}

/// Formats with a signed exponent of at least two digits.
fn exponential(value: f64) -> String {
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => match exponent.strip_prefix('-') {
            Some(negative) => format!("{digits}e-{negative:0>2}"),
            None => format!("{digits}e+{exponent:0>2}"),
        },
        None => text,
    }
}

/// Formats a value as in a field path of the API server's messages.
pub(crate) fn path_value(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(bool) => bool.to_string(),
        Value::Number(number) => plain_number(Numeric::of(number)),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(path_value).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            let entries: Vec<String> = entries
                .into_iter()
                .map(|(key, value)| format!("{key}={}", path_value(value)))
                .collect();
            entries.concat()
        }
    }
}

fn plain_number(number: Numeric) -> String {
    match number {
        Numeric::Int(int) => int.to_string(),
        Numeric::Float(value) => float(value),
    }
}

/// Formats a value like Go's `%v`.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(bool) => bool.to_string(),
        Value::Number(number) => plain_number(Numeric::of(number)),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(plain).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            let entries: Vec<String> = entries
                .into_iter()
                .map(|(key, value)| format!("{key}:{}", plain(value)))
                .collect();
            format!("map[{}]", entries.join(" "))
        }
    }
}

/// Formats a value like Go's `%#v`.
pub(crate) fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Bool(_) | Value::Number(_) => plain(value),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            let entries: Vec<String> = entries
                .into_iter()
                .map(|(key, value)| format!("{}:{}", quote(key), syntax(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", entries.join(", "))
        }
    }
}

/// Returns the name of a value's Go type.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) => match Numeric::of(number) {
            Numeric::Int(_) => "int64",
            Numeric::Float(_) => "float64",
        },
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Whether a JSON string escapes characters that are special in HTML or JavaScript.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Html {
    Escaped,
    Plain,
}

/// Appends `text` as a JSON string in the escapes of Go's encoders.
pub(crate) fn json_string(out: &mut String, text: &str, html: Html) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1f}' => append(out, format_args!("\\u{:04x}", character as u32)),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' if html == Html::Escaped => {
                append(out, format_args!("\\u{:04x}", character as u32));
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}

/// Appends `value` as JSON with sorted keys and the escapes of Go's encoders.
pub(crate) fn json(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => match Numeric::of(number) {
            Numeric::Int(int) => append(out, format_args!("{int}")),
            Numeric::Float(float) => out.push_str(&json_float(float)),
        },
        Value::String(text) => json_string(out, text, Html::Escaped),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                json(out, item);
            }
            out.push(']');
        }
        Value::Object(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (index, (key, value)) in entries.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                json_string(out, key, Html::Escaped);
                out.push(':');
                json(out, value);
            }
            out.push('}');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn floats_have_the_exponents_of_go() {
        let floats = [
            (0.0, "0"),
            (80.0, "80"),
            (0.5, "0.5"),
            (1e-5, "1e-05"),
            (1e5, "100000"),
            (1e6, "1e+06"),
            (1_234_567.0, "1.234567e+06"),
        ];
        for (value, text) in floats {
            assert_eq!(float(value), text);
        }
        assert_eq!(json_float(1e21), "1e+21");
        assert_eq!(json_float(1e-7), "1e-07");
        assert_eq!(json_float(1e20), "100000000000000000000");
        assert_eq!(json_float(-0.000_001), "-0.000001");
    }

    #[test]
    fn strings_are_quoted_like_go() {
        assert_eq!(
            quote("a\"b\\\n\u{1}\u{7f}a\u{301}\u{a0}\u{200b}\u{1f600}"),
            "\"a\\\"b\\\\\\n\\x01\\x7fa\u{301}\\u00a0\\u200b\u{1f600}\""
        );
        assert_eq!(
            quote_list(&["a".to_owned(), "b c".to_owned()]),
            "[\"a\" \"b c\"]"
        );
    }

    #[test]
    fn values_have_the_text_of_go() {
        let value = json!({"b": [1, "x", null], "a": true});
        assert_eq!(plain(&value), "map[a:true b:[1 x <nil>]]");
        assert_eq!(
            syntax(&value),
            "map[string]interface {}{\"a\":true, \"b\":[]interface {}{1, \"x\", interface {}(nil)}}"
        );
        let mut out = String::new();
        json(&mut out, &json!({"b": "<&>\u{8}", "a": [1.5, null]}));
        assert_eq!(out, r#"{"a":[1.5,null],"b":"\u003c\u0026\u003e\u0008"}"#);
    }
}
