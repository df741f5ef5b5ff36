//! Validation of objects, with the errors of the real server.
//!
//! On update, errors of unchanged values are dropped (ratcheting). If all alternatives fail, the
//! errors of the one with the fewest are reported.

use super::{
    Additional, Bound, ListType, Node, NodeId, Rules, Schema, ValueFormat, ValueType,
    cel::Violations, is_meta, listtype, path::Path, type_name,
};
use crate::status::{FieldError, FieldErrorKind, FieldErrors, StrictErrors};
use serde_json::{Map, Number, Value, json};
use std::collections::HashMap;

/// Error for CEL rules that were not checked. It has no field.
const NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; \
                           correct the existing errors to complete validation";

/// Field of errors that have none.
pub(super) const NO_FIELD: &str = "<nil>";

impl Schema {
    /// Validates an object that replaces `old`, if any.
    pub(crate) fn validate(&self, object: &Value, old: Option<&Value>) -> Violations {
        let mut errors = FieldErrors::new();
        self.check(self.root, object, None, &Path::ROOT, &mut errors);
        if let (Some(_), false) = (old, errors.is_empty()) {
            errors = FieldErrors::new();
            self.check(self.root, object, old, &Path::ROOT, &mut errors);
        }
        self.finish(object, old, errors)
    }

    /// Adds the errors that depend on the whole object or on other errors.
    fn finish(&self, object: &Value, old: Option<&Value>, mut errors: FieldErrors) -> Violations {
        errors.extend(self.check_embedded(object));
        let lists = self.check_lists(object);
        // Duplicates in the old object allow all duplicates.
        if !lists.is_empty() && old.is_none_or(|old| self.check_lists(old).is_empty()) {
            errors.extend(lists);
        }
        let mut warnings = StrictErrors::new();
        if let Some(rules) = &self.rules {
            if errors.iter().any(is_blocking) {
                errors.push(FieldError::invalid(NO_FIELD, &Value::Null, NOT_CHECKED));
            } else {
                let found = rules.check(object, old);
                errors.extend(found.errors);
                warnings = found.warnings;
            }
        }
        Violations { errors, warnings }
    }

    /// Validates only the status, for a request on `/status`. As on the real server, messages
    /// contain paths relative to the status.
    pub(crate) fn validate_status(&self, object: &Value, old: &Value) -> Violations {
        let mut errors = FieldErrors::new();
        if let Some((id, status)) = self.root().named("status").zip(object.get("status")) {
            self.check(id, status, None, &Path::ROOT, &mut errors);
            if !errors.is_empty() {
                errors = FieldErrors::new();
                self.check(id, status, old.get("status"), &Path::ROOT, &mut errors);
            }
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
        self.finish(
            object,
            Some(old),
            errors.into_iter().map(in_status).collect(),
        )
    }

    /// Validates one value. Drops its errors if it equals `old`.
    pub(super) fn check(
        &self,
        id: NodeId,
        value: &Value,
        old: Option<&Value>,
        path: &Path<'_>,
        errors: &mut FieldErrors,
    ) {
        let before = errors.mark();
        let count = errors.len();
        let node = self.node(id);
        let collector = ErrorCollector { path, errors };
        self.check_value(node, value, old, collector);
        if errors.len() > count && old == Some(value) {
            errors.split_off(before);
        }
    }

    fn check_value(
        &self,
        node: &Node,
        value: &Value,
        old: Option<&Value>,
        mut collector: ErrorCollector<'_>,
    ) {
        check_type(node, value, &mut collector);
        if value.is_null() {
            return collector.values(node.rules.as_deref(), value);
        }
        if let Some(rules) = &node.rules {
            self.junctors(rules, value, old, &mut collector);
        }
        match value {
            Value::String(text) => {
                collector.text(node.rules.as_deref(), text);
                if let Some(ValueFormat::Text(name, check)) = &node.format
                    && !check(text)
                {
                    collector.wrong_type(name, text);
                }
            }
            Value::Number(number) => collector.number(node, number),
            Value::Array(list) => self.list(node, list, old, &mut collector),
            _ => {}
        }
        collector.values(node.rules.as_deref(), value);
        if let Value::Object(map) = value {
            self.map(node, map, old, &mut collector);
        }
    }

    fn junctors(
        &self,
        rules: &Rules,
        value: &Value,
        old: Option<&Value>,
        collector: &mut ErrorCollector<'_>,
    ) {
        if rules.any_of.is_empty()
            && rules.one_of.is_empty()
            && rules.all_of.is_empty()
            && rules.not.is_none()
        {
            return;
        }
        let errors_of = |id: &NodeId| {
            let mut errors = FieldErrors::new();
            self.check(*id, value, old, collector.path, &mut errors);
            errors
        };
        let mut summary = FieldErrors::new();
        let quoted = || json!(collector.path.to_string());
        let mut composite =
            |text: String| summary.push(FieldError::invalid(NO_FIELD, &json!(""), text));
        let mut inner = FieldErrors::new();
        if !rules.any_of.is_empty() {
            let failures: Vec<_> = rules.any_of.iter().map(errors_of).collect();
            if failures.iter().all(|errors| !errors.is_empty()) {
                composite(format!(
                    "{} must validate at least one schema (anyOf)",
                    quoted()
                ));
                inner.extend(
                    failures
                        .into_iter()
                        .min_by_key(|errors| errors.len())
                        .into_iter()
                        .flatten(),
                );
            }
        }
        if !rules.one_of.is_empty() {
            let failures: Vec<_> = rules.one_of.iter().map(errors_of).collect();
            let valid = failures.iter().filter(|errors| errors.is_empty()).count();
            if valid != 1 {
                let count = if valid == 0 {
                    "Found none valid".into()
                } else {
                    format!("Found {valid} valid alternatives")
                };
                composite(format!(
                    "{} must validate one and only one schema (oneOf). {count}",
                    quoted()
                ));
            }
            if valid == 0 {
                inner.extend(
                    failures
                        .into_iter()
                        .min_by_key(|errors| errors.len())
                        .into_iter()
                        .flatten(),
                );
            }
        }
        let failures: Vec<_> = rules.all_of.iter().map(errors_of).collect();
        let valid = failures.iter().filter(|errors| errors.is_empty()).count();
        if valid < failures.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            composite(format!(
                "{} must validate all the schemas (allOf){none}",
                quoted()
            ));
            inner.extend(failures.into_iter().flatten());
        }
        if rules
            .not
            .as_ref()
            .is_some_and(|not| errors_of(not).is_empty())
        {
            composite(format!("{} must not validate the schema (not)", quoted()));
        }
        collector.errors.extend(summary);
        collector.errors.extend(inner);
    }

    fn list(
        &self,
        node: &Node,
        list: &[Value],
        old: Option<&Value>,
        collector: &mut ErrorCollector<'_>,
    ) {
        if let Some(items) = node.items {
            // Only items of list-maps can be matched with old ones. Other lists must be unchanged
            // as a whole.
            let keys = match &node.list {
                ListType::Map(keys) => keys.as_slice(),
                _ => &[],
            };
            let before = old.and_then(Value::as_array).filter(|_| !keys.is_empty());
            let before: HashMap<_, _> = before
                .into_iter()
                .flatten()
                .map(|item| (item_key_text(item, keys), item))
                .collect();
            for (index, item) in list.iter().enumerate() {
                if collector.errors.is_full() {
                    break;
                }
                let old = if before.is_empty() {
                    None
                } else {
                    before.get(&item_key_text(item, keys)).copied()
                };
                self.check(
                    items,
                    item,
                    old,
                    &collector.path.index(index),
                    collector.errors,
                );
            }
        }
        let Some(rules) = &node.rules else { return };
        if let Some(min) = rules.min_items.filter(|min| list.len() < *min) {
            collector.invalid(
                &json!(list.len()),
                format_args!("should have at least {min} items"),
            );
        }
        if let Some(max) = rules.max_items.filter(|max| list.len() > *max) {
            collector.errors.push(FieldError::too_many(
                collector.path.to_string(),
                list.len(),
                max,
            ));
        }
    }

    fn map(
        &self,
        node: &Node,
        map: &Map<String, Value>,
        old: Option<&Value>,
        collector: &mut ErrorCollector<'_>,
    ) {
        let path = collector.path;
        let root = path.is_root();
        if let Some(rules) = &node.rules {
            if let Some(min) = rules.min_properties.filter(|min| map.len() < *min) {
                collector.invalid(
                    &json!(map.len()),
                    format_args!("should have at least {min} properties"),
                );
            }
            if let Some(max) = rules.max_properties.filter(|max| map.len() > *max) {
                collector
                    .errors
                    .push(FieldError::too_many(path.to_string(), map.len(), max));
            }
        }
        for (key, value) in map {
            if collector.errors.is_full() {
                break;
            }
            let Some(id) = node.field(key) else {
                if node.additional == Additional::Forbidden {
                    let detail = format!("{path}.{key} in body is a forbidden property");
                    collector.errors.push(FieldError::invalid(
                        path.to_string(),
                        &json!(key),
                        detail,
                    ));
                }
                continue;
            };
            // These fields always count as changed, since conversion to the stored version changes
            // apiVersion.
            let old = old
                .filter(|_| !(node.atomic || root && is_meta(key)))
                .and_then(|old| old.get(key));
            self.check(id, value, old, &path.field(key), collector.errors);
        }
        for name in node.rules.iter().flat_map(|rules| &rules.required) {
            if !map.contains_key(name) {
                collector
                    .errors
                    .push(FieldError::required(path.field(name).to_string(), ""));
            }
        }
    }
}

/// Collects errors about the value at `path`.
struct ErrorCollector<'a> {
    path: &'a Path<'a>,
    errors: &'a mut FieldErrors,
}

impl ErrorCollector<'_> {
    fn invalid(&mut self, value: &Value, what: std::fmt::Arguments<'_>) {
        self.errors.push(FieldError::invalid(
            self.path.to_string(),
            value,
            format!("{} in body {what}", self.path),
        ));
    }

    /// Adds an error about a value that is not of type `expected`. `found` is the name of its type,
    /// or the text that does not match the format.
    fn wrong_type(&mut self, expected: &str, found: &str) {
        let quoted = json!(found);
        let body = format!(
            "Invalid value: {quoted}: {} in body must be of type {expected}: {quoted}",
            self.path
        );
        self.errors.push(FieldError {
            kind: FieldErrorKind::TypeInvalid,
            field: self.path.to_string(),
            body,
        });
    }

    fn text(&mut self, rules: Option<&Rules>, text: &str) {
        let Some(rules) = rules else { return };
        let value = || Value::String(text.into());
        // Characters are counted only if the number of bytes exceeds the limit.
        let longer = |max: usize| text.len() > max && text.chars().count() > max;
        if let Some(max) = rules.max_length.filter(|max| longer(*max)) {
            self.errors
                .push(FieldError::too_long(self.path.to_string(), max));
        } else if let Some(min) = rules.min_length.filter(|min| text.chars().count() < *min) {
            self.invalid(
                &value(),
                format_args!("should be at least {min} chars long"),
            );
        } else if let Some(pattern) = rules
            .pattern
            .as_ref()
            .filter(|pattern| !pattern.regex.is_match(text))
        {
            self.invalid(&value(), format_args!("should match '{}'", pattern.text));
        }
    }

    fn number(&mut self, node: &Node, number: &Number) {
        let value = || Value::Number(number.clone());
        let Some(float) = number.as_f64() else { return };
        let (name, is_valid) = match (node.kind, &node.format) {
            (ValueType::Integer, Some(ValueFormat::Int32)) => (
                "int32",
                integer(number).is_some_and(|number| i32::try_from(number).is_ok()),
            ),
            (ValueType::Integer, Some(_)) => ("int64", integer(number).is_some()),
            (ValueType::Integer, None) => ("", integer(number).is_some()),
            (_, Some(ValueFormat::Float)) => ("float", float.abs() <= f64::from(f32::MAX)),
            _ => ("", true),
        };
        if !is_valid {
            let kind = kind_name(node.kind);
            let format = if name.is_empty() {
                "(default format)".into()
            } else {
                format!("with format {name}")
            };
            let detail = format!(
                "Checked value must be of type {kind} {format} in {}",
                self.path
            );
            self.errors
                .push(FieldError::invalid(NO_FIELD, &json!(""), detail));
        }
        let Some(rules) = &node.rules else { return };
        // As on the real server, whole numbers are compared with the whole part of a bound.
        let whole = |bound: f64| {
            if number.is_i64() {
                bound.trunc()
            } else {
                bound
            }
        };
        let factor = rules.multiple_of.map(whole);
        if factor == Some(0.0) {
            let path = self.path.to_string();
            let detail = format!("factor MultipleOf declared for {path} must be positive: 0");
            self.errors
                .push(FieldError::invalid(path, &json!(0), detail));
        } else if let Some(factor) = factor.filter(|factor| !is_multiple(number, *factor)) {
            self.invalid(&value(), format_args!("should be a multiple of {factor}"));
        }
        let minimum = rules.minimum.as_ref().map(|bound| Bound {
            at: whole(bound.at),
            ..*bound
        });
        let maximum = rules.maximum.as_ref().map(|bound| Bound {
            at: whole(bound.at),
            ..*bound
        });
        let below = |bound: &Bound| {
            if bound.exclusive {
                float <= bound.at
            } else {
                float < bound.at
            }
        };
        if let Some(bound) = minimum.filter(below) {
            let or = if bound.exclusive { "" } else { " or equal to" };
            self.invalid(
                &value(),
                format_args!("should be greater than{or} {}", bound.at),
            );
        }
        let above = |bound: &Bound| {
            if bound.exclusive {
                float >= bound.at
            } else {
                float > bound.at
            }
        };
        if let Some(bound) = maximum.filter(above) {
            let or = if bound.exclusive { "" } else { " or equal to" };
            self.invalid(
                &value(),
                format_args!("should be less than{or} {}", bound.at),
            );
        }
    }

    /// Checks the enumeration. As on the real server, null is never allowed.
    fn values(&mut self, rules: Option<&Rules>, value: &Value) {
        let Some(rules) = rules.filter(|rules| !rules.one_of_values.is_empty()) else {
            return;
        };
        if value.is_null()
            || !rules
                .one_of_values
                .iter()
                .any(|allowed| values_equal(allowed, value))
        {
            let allowed = rules.one_of_values.iter().map(|allowed| match allowed {
                Value::String(text) => escaped(text),
                other => escaped(&other.to_string()),
            });
            self.errors.push(FieldError::not_supported(
                self.path.to_string(),
                value,
                allowed,
            ));
        }
    }
}

fn check_type(node: &Node, value: &Value, collector: &mut ErrorCollector<'_>) {
    let is_valid = match (node.kind, value) {
        (ValueType::Any, _)
        | (ValueType::Array, Value::Array(_))
        | (ValueType::Boolean, Value::Bool(_))
        | (ValueType::Number, Value::Number(_))
        | (ValueType::Object, Value::Object(_))
        | (ValueType::String | ValueType::IntOrString, Value::String(_)) => true,
        (ValueType::Integer | ValueType::IntOrString, Value::Number(number)) => {
            integer(number).is_some()
        }
        (_, Value::Null) => node.nullable,
        _ => false,
    };
    if !is_valid {
        match (number_format(node), value) {
            // The error of a number with a format contains the format, except for texts and lists.
            (Some(format), Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
                collector.wrong_type(format, if value.is_number() { "float64" } else { "" });
            }
            _ => collector.wrong_type(kind_name(node.kind), type_name(value)),
        }
    }
}

fn number_format(node: &Node) -> Option<&'static str> {
    match (node.kind, &node.format) {
        (ValueType::Integer, Some(ValueFormat::Int32)) => Some("int32"),
        (ValueType::Integer, Some(ValueFormat::Int64)) => Some("int64"),
        (ValueType::Number, Some(ValueFormat::Float)) => Some("float"),
        (ValueType::Number, Some(ValueFormat::Double)) => Some("double"),
        _ => None,
    }
}

fn kind_name(kind: ValueType) -> &'static str {
    match kind {
        ValueType::Any => "",
        ValueType::Array => "array",
        ValueType::Boolean => "boolean",
        ValueType::Integer => "integer",
        ValueType::IntOrString => "integer,string",
        ValueType::Number => "number",
        ValueType::Object => "object",
        ValueType::String => "string",
    }
}

/// Returns a number without a fraction. Floating point is accepted if it is exact.
fn integer(number: &Number) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_991.0;
    let float = |float: &f64| float.fract() == 0.0 && float.abs() <= EXACT;
    number
        .as_i64()
        .or_else(|| number.as_f64().filter(float).map(|float| float as i64))
}

fn is_multiple(number: &Number, factor: f64) -> bool {
    if factor <= 0.0 {
        return false;
    }
    match (number.as_i64(), factor.fract() == 0.0) {
        (Some(number), true) => number % (factor as i64) == 0,
        _ => number.as_f64().is_some_and(|number| {
            let times = if factor < 1.0 {
                1.0 / factor * number
            } else {
                number / factor
            };
            (times - times.round()).abs() < 1e-9
        }),
    }
}

/// Escapes a text for use between quotes.
fn escaped(text: &str) -> String {
    let quoted = json!(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Compares values, with 1 equal to 1.0.
fn values_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

fn item_key_text(item: &Value, keys: &[String]) -> String {
    listtype::item_key(item, keys).to_string()
}

/// Reports whether CEL rules are skipped after this error because the object has the wrong shape.
fn is_blocking(error: &FieldError) -> bool {
    use FieldErrorKind::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
    matches!(
        error.kind,
        NotSupported | Required | TooLong | TooMany | TypeInvalid
    )
}
