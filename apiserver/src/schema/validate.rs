//! What is wrong with an object, in the words of the real server.
//!
//! Violations of unchanged values are forgiven on update. Of several alternatives that all fail, the errors of the one
//! with the fewest are told.

use super::{Additional, Bound, Format, Id, Kind, List, Node, Rules, Schema, is_meta, listtype, path::Path, type_name};
use crate::status::{FieldError, FieldErrorKind, FieldErrors};
use serde_json::{Map, Number, Value, json};
use std::collections::HashMap;

/// What is told when rules in CEL could not be asked. It has no field of its own.
const NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; \
                           correct the existing errors to complete validation";

/// The field of errors that have none.
pub(super) const NO_FIELD: &str = "<nil>";

impl Schema {
    /// Everything that is wrong with an object, given the one it replaces.
    pub(crate) fn validate(&self, object: &Value, old: Option<&Value>) -> FieldErrors {
        let mut errors = FieldErrors::new();
        self.check(self.root, object, None, &Path::ROOT, &mut errors);
        if let (Some(_), false) = (old, errors.is_empty()) {
            errors = FieldErrors::new();
            self.check(self.root, object, old, &Path::ROOT, &mut errors);
        }
        self.finish(object, old, errors)
    }

    /// What is asked once the values are known to be right or wrong.
    fn finish(&self, object: &Value, old: Option<&Value>, mut errors: FieldErrors) -> FieldErrors {
        let lists = self.check_lists(object);
        // A list that was wrong before makes all of them forgiven.
        if !lists.is_empty() && old.is_none_or(|old| self.check_lists(old).is_empty()) {
            errors.extend(lists);
        }
        if self.has_rules && errors.iter().any(is_blocking) {
            errors.push(FieldError::invalid(NO_FIELD, &Value::Null, NOT_CHECKED));
        }
        errors
    }

    /// The same for a request on `/status`: the rest of the object is not looked at. The texts know no more than the status does.
    pub(crate) fn validate_status(&self, object: &Value, old: &Value) -> FieldErrors {
        let Some((id, status)) = self.root().named("status").zip(object.get("status")) else {
            return FieldErrors::new();
        };
        let mut errors = FieldErrors::new();
        self.check(id, status, None, &Path::ROOT, &mut errors);
        if !errors.is_empty() {
            errors = FieldErrors::new();
            self.check(id, status, old.get("status"), &Path::ROOT, &mut errors);
        }
        let in_status = |mut error: FieldError| {
            match error.field.as_str() {
                NO_FIELD => {}
                "" => error.field = "status".into(),
                inner if inner.starts_with('[') => error.field = format!("status{inner}"),
                inner => error.field = format!("status.{inner}"),
            }
            error
        };
        self.finish(object, Some(old), errors.into_iter().map(in_status).collect())
    }

    /// The same for one value, which is forgiven if it is what it was.
    pub(super) fn check(&self, id: Id, value: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut FieldErrors) {
        let before = errors.mark();
        let count = errors.len();
        let node = self.node(id);
        let found = Found { path, errors };
        self.check_value(node, value, old, found);
        if errors.len() > count && old == Some(value) {
            errors.split_off(before);
        }
    }

    fn check_value(&self, node: &Node, value: &Value, old: Option<&Value>, mut found: Found<'_>) {
        check_type(node, value, &mut found);
        if value.is_null() {
            return found.values(node.rules.as_deref(), value);
        }
        if let Some(rules) = &node.rules {
            self.junctors(rules, value, old, &mut found);
        }
        match value {
            Value::String(text) => {
                found.text(node.rules.as_deref(), text);
                if let Some(Format::Text(name, check)) = &node.format
                    && !check(text)
                {
                    found.wrong_type(name, text);
                }
            }
            Value::Number(number) => found.number(node, number),
            Value::Array(list) => self.list(node, list, old, &mut found),
            _ => {}
        }
        found.values(node.rules.as_deref(), value);
        if let Value::Object(map) = value {
            self.map(node, map, old, &mut found);
        }
    }

    fn junctors(&self, rules: &Rules, value: &Value, old: Option<&Value>, found: &mut Found<'_>) {
        if rules.any_of.is_empty() && rules.one_of.is_empty() && rules.all_of.is_empty() && rules.not.is_none() {
            return;
        }
        let errors_of = |id: &Id| {
            let mut errors = FieldErrors::new();
            self.check(*id, value, old, found.path, &mut errors);
            errors
        };
        let mut told = FieldErrors::new();
        let quoted = json!(found.path.to_string());
        let mut composite = |text: String| told.push(FieldError::invalid(NO_FIELD, &json!(""), text));
        let mut inner = FieldErrors::new();
        if !rules.any_of.is_empty() {
            let failures: Vec<_> = rules.any_of.iter().map(errors_of).collect();
            if failures.iter().all(|errors| !errors.is_empty()) {
                composite(format!("{quoted} must validate at least one schema (anyOf)"));
                inner.extend(failures.into_iter().min_by_key(|errors| errors.len()).into_iter().flatten());
            }
        }
        if !rules.one_of.is_empty() {
            let failures: Vec<_> = rules.one_of.iter().map(errors_of).collect();
            let valid = failures.iter().filter(|errors| errors.is_empty()).count();
            if valid != 1 {
                let how =
                    if valid == 0 { "Found none valid".into() } else { format!("Found {valid} valid alternatives") };
                composite(format!("{quoted} must validate one and only one schema (oneOf). {how}"));
            }
            if valid == 0 {
                inner.extend(failures.into_iter().min_by_key(|errors| errors.len()).into_iter().flatten());
            }
        }
        let failures: Vec<_> = rules.all_of.iter().map(errors_of).collect();
        let valid = failures.iter().filter(|errors| errors.is_empty()).count();
        if valid < failures.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            composite(format!("{quoted} must validate all the schemas (allOf){none}"));
            inner.extend(failures.into_iter().flatten());
        }
        if rules.not.as_ref().is_some_and(|not| errors_of(not).is_empty()) {
            composite(format!("{quoted} must not validate the schema (not)"));
        }
        found.errors.extend(told);
        found.errors.extend(inner);
    }

    fn list(&self, node: &Node, list: &[Value], old: Option<&Value>, found: &mut Found<'_>) {
        if let Some(items) = node.items {
            // Only the items of list-maps are known to be the same as before; others would have to stay as a whole.
            let keys = match &node.list {
                List::Map(keys) => keys.as_slice(),
                _ => &[],
            };
            let before = old.and_then(Value::as_array).filter(|_| !keys.is_empty());
            let before: HashMap<_, _> = before.into_iter().flatten().map(|item| (key_text(item, keys), item)).collect();
            for (index, item) in list.iter().enumerate() {
                if found.errors.is_full() {
                    break;
                }
                let old = if before.is_empty() { None } else { before.get(&key_text(item, keys)).copied() };
                self.check(items, item, old, &found.path.index(index), found.errors);
            }
        }
        let Some(rules) = &node.rules else { return };
        if let Some(min) = rules.min_items.filter(|min| list.len() < *min) {
            found.invalid(&json!(list.len()), format_args!("should have at least {min} items"));
        }
        if let Some(max) = rules.max_items.filter(|max| list.len() > *max) {
            found.errors.push(FieldError::too_many(found.path.to_string(), list.len(), max));
        }
    }

    fn map(&self, node: &Node, map: &Map<String, Value>, old: Option<&Value>, found: &mut Found<'_>) {
        let (path, root) = (found.path, found.path.is_root());
        if let Some(rules) = &node.rules {
            if let Some(min) = rules.min_properties.filter(|min| map.len() < *min) {
                found.invalid(&json!(map.len()), format_args!("should have at least {min} properties"));
            }
            if let Some(max) = rules.max_properties.filter(|max| map.len() > *max) {
                found.errors.push(FieldError::too_many(path.to_string(), map.len(), max));
            }
        }
        for (key, value) in map {
            if found.errors.is_full() {
                break;
            }
            let Some(id) = node.field(key) else {
                if node.additional == Additional::Refused {
                    let detail = format!("{path}.{key} in body is a forbidden property");
                    found.errors.push(FieldError::invalid(path.to_string(), &json!(key), detail));
                }
                continue;
            };
            // Both versions have been brought to the same apiVersion, so that these cannot be told to be unchanged.
            let old = old.filter(|_| !(node.atomic || root && is_meta(key))).and_then(|old| old.get(key));
            self.check(id, value, old, &path.field(key), found.errors);
        }
        for name in node.rules.iter().flat_map(|rules| &rules.required) {
            if !map.contains_key(name) {
                found.errors.push(FieldError::required(path.field(name).to_string(), ""));
            }
        }
        if node.embedded && !root {
            for name in ["apiVersion", "kind"] {
                if map.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
                    found.errors.push(FieldError::required(path.field(name).to_string(), "must not be empty"));
                }
            }
        }
    }
}

/// Where something may be wrong, and what was.
struct Found<'a> {
    path: &'a Path<'a>,
    errors: &'a mut FieldErrors,
}

impl Found<'_> {
    fn invalid(&mut self, value: &Value, what: std::fmt::Arguments<'_>) {
        self.errors.push(FieldError::invalid(self.path.to_string(), value, format!("{} in body {what}", self.path)));
    }

    /// Not of the type `wanted`; `found` is a type's name, or the text that does not have a format.
    fn wrong_type(&mut self, wanted: &str, found: &str) {
        let shown = json!(found);
        let body = format!("Invalid value: {shown}: {} in body must be of type {wanted}: {shown}", self.path);
        self.errors.push(FieldError { kind: FieldErrorKind::TypeInvalid, field: self.path.to_string(), body });
    }

    fn text(&mut self, rules: Option<&Rules>, text: &str) {
        let Some(rules) = rules else { return };
        let value = || Value::String(text.into());
        // Counting is needed only where the number of bytes leaves it open.
        let longer = |max: usize| text.len() > max && text.chars().count() > max;
        if let Some(max) = rules.max_length.filter(|max| longer(*max)) {
            self.errors.push(FieldError::too_long(self.path.to_string(), max));
        } else if let Some(min) = rules.min_length.filter(|min| text.chars().count() < *min) {
            self.invalid(&value(), format_args!("should be at least {min} chars long"));
        } else if let Some(pattern) = rules.pattern.as_ref().filter(|pattern| !pattern.regex.is_match(text)) {
            self.invalid(&value(), format_args!("should match '{}'", pattern.text));
        }
    }

    fn number(&mut self, node: &Node, number: &Number) {
        let value = || Value::Number(number.clone());
        let Some(float) = number.as_f64() else { return };
        let (name, fits) = match (node.kind, &node.format) {
            (Kind::Integer, Some(Format::Int32)) => {
                ("int32", integer(number).is_some_and(|number| i32::try_from(number).is_ok()))
            }
            (Kind::Integer, Some(_)) => ("int64", integer(number).is_some()),
            (Kind::Integer, None) => ("", integer(number).is_some()),
            (_, Some(Format::Float)) => ("float", float.abs() <= f64::from(f32::MAX)),
            _ => ("", true),
        };
        if !fits {
            let kind = kind_name(node.kind);
            let format = if name.is_empty() { "(default format)".into() } else { format!("with format {name}") };
            let detail = format!("Checked value must be of type {kind} {format} in {}", self.path);
            self.errors.push(FieldError::invalid(NO_FIELD, &json!(""), detail));
        }
        let Some(rules) = &node.rules else { return };
        if let Some(factor) = rules.multiple_of.filter(|factor| !is_multiple(number, *factor)) {
            self.invalid(&value(), format_args!("should be a multiple of {factor}"));
        }
        let below = |bound: &Bound| if bound.exclusive { float <= bound.at } else { float < bound.at };
        if let Some(bound) = rules.minimum.filter(below) {
            let or = if bound.exclusive { "" } else { " or equal to" };
            self.invalid(&value(), format_args!("should be greater than{or} {}", bound.at));
        }
        let above = |bound: &Bound| if bound.exclusive { float >= bound.at } else { float > bound.at };
        if let Some(bound) = rules.maximum.filter(above) {
            let or = if bound.exclusive { "" } else { " or equal to" };
            self.invalid(&value(), format_args!("should be less than{or} {}", bound.at));
        }
    }

    /// The values that are allowed. As in the real server null is never among them.
    fn values(&mut self, rules: Option<&Rules>, value: &Value) {
        let Some(rules) = rules.filter(|rules| !rules.one_of_values.is_empty()) else { return };
        if value.is_null() || !rules.one_of_values.iter().any(|allowed| same(allowed, value)) {
            let allowed = rules.one_of_values.iter().map(|allowed| match allowed {
                Value::String(text) => escaped(text),
                other => escaped(&other.to_string()),
            });
            self.errors.push(FieldError::not_supported(self.path.to_string(), value, allowed));
        }
    }
}

fn check_type(node: &Node, value: &Value, found: &mut Found<'_>) {
    let fits = match (node.kind, value) {
        (Kind::Any, _)
        | (Kind::Array, Value::Array(_))
        | (Kind::Boolean, Value::Bool(_))
        | (Kind::Number, Value::Number(_))
        | (Kind::Object, Value::Object(_))
        | (Kind::String | Kind::IntOrString, Value::String(_)) => true,
        (Kind::Integer | Kind::IntOrString, Value::Number(number)) => integer(number).is_some(),
        (_, Value::Null) => node.nullable,
        _ => false,
    };
    if !fits {
        match (number_format(node), value) {
            // Of a number with a format it is the format that is missed, unless a text or a list is there instead.
            (Some(format), Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
                found.wrong_type(format, if value.is_number() { "float64" } else { "" });
            }
            _ => found.wrong_type(kind_name(node.kind), type_name(value)),
        }
    }
}

fn number_format(node: &Node) -> Option<&'static str> {
    match (node.kind, &node.format) {
        (Kind::Integer, Some(Format::Int32)) => Some("int32"),
        (Kind::Integer, Some(Format::Int64)) => Some("int64"),
        (Kind::Number, Some(Format::Float)) => Some("float"),
        (Kind::Number, Some(Format::Double)) => Some("double"),
        _ => None,
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Any => "",
        Kind::Array => "array",
        Kind::Boolean => "boolean",
        Kind::Integer => "integer",
        Kind::IntOrString => "integer,string",
        Kind::Number => "number",
        Kind::Object => "object",
        Kind::String => "string",
    }
}

/// A number without a fraction; a float counts as long as it is exact.
fn integer(number: &Number) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_991.0;
    let float = |float: &f64| float.fract() == 0.0 && float.abs() <= EXACT;
    number.as_i64().or_else(|| number.as_f64().filter(float).map(|float| float as i64))
}

fn is_multiple(number: &Number, factor: f64) -> bool {
    if factor <= 0.0 {
        return false;
    }
    match (number.as_i64(), factor.fract() == 0.0) {
        (Some(number), true) => number % (factor as i64) == 0,
        _ => number.as_f64().is_some_and(|number| {
            let times = if factor < 1.0 { 1.0 / factor * number } else { number / factor };
            (times - times.round()).abs() < 1e-9
        }),
    }
}

/// As it stands between quotes.
fn escaped(text: &str) -> String {
    let quoted = json!(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// 1 and 1.0 are the same.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

fn key_text(item: &Value, keys: &[String]) -> String {
    listtype::key_of(item, keys).to_string()
}

/// Errors after which rules are not asked: the object is not even of the shape that they expect.
fn is_blocking(error: &FieldError) -> bool {
    use FieldErrorKind::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
    matches!(error.kind, NotSupported | Required | TooLong | TooMany | TypeInvalid)
}
