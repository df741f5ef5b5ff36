//! Order and equality of JSON values.
//!
//! Numbers compare by value: the integer 1 equals the float 1.0. The wire format of field sets does
//! not distinguish the two.

use serde_json::{Map, Number, Value};
use std::{cmp::Ordering, collections::BTreeSet};

/// Number as Kubernetes decodes it: an integer that fits `i64`, otherwise a float.
#[derive(Clone, Copy)]
pub(crate) enum Numeric {
    Int(i64),
    Float(f64),
}

impl Numeric {
    pub(crate) fn of(number: &Number) -> Self {
        match number.as_i64() {
            Some(int) => Self::Int(int),
            None => Self::Float(number.as_f64().unwrap_or(f64::MAX)),
        }
    }

    pub(crate) fn float(self) -> f64 {
        match self {
            Self::Int(int) => int as f64,
            Self::Float(float) => float,
        }
    }
}

fn compare_numbers(left: &Number, right: &Number) -> Ordering {
    match (Numeric::of(left), Numeric::of(right)) {
        (Numeric::Int(left), Numeric::Int(right)) => left.cmp(&right),
        (left, right) => left
            .float()
            .partial_cmp(&right.float())
            .unwrap_or(Ordering::Equal),
    }
}

/// Returns the position of a value's type in the order of types.
fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// Compares values in a total order of types: numbers, strings, booleans, lists, maps, null.
pub(crate) fn compare(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare_numbers(left, right),
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => {
            for (left, right) in left.iter().zip(right) {
                let order = compare(left, right);
                if order.is_ne() {
                    return order;
                }
            }
            left.len().cmp(&right.len())
        }
        (Value::Object(left), Value::Object(right)) => compare_maps(left, right),
        _ => rank(left).cmp(&rank(right)),
    }
}

/// Compares the entries of both maps in the order of their keys.
fn compare_maps(left: &Map<String, Value>, right: &Map<String, Value>) -> Ordering {
    let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    for (index, key) in keys.into_iter().enumerate() {
        let order = match (left.get(key), right.get(key)) {
            _ if index == left.len() => Ordering::Less,
            _ if index == right.len() => Ordering::Greater,
            (None, _) => Ordering::Greater,
            (_, None) => Ordering::Less,
            (Some(left), Some(right)) => compare(left, right),
        };
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

/// Returns whether two values are equal. Numbers are compared by value.
pub(crate) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare_numbers(left, right).is_eq(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(l, r)| equal(l, r))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(key, value)| right.get(key).is_some_and(|other| equal(value, other)))
        }
        _ => left == right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_ordered_by_type_and_then_by_content() {
        let sorted = [
            json!(-1),
            json!(0.5),
            json!(1),
            json!("a"),
            json!("b"),
            json!(false),
            json!(true),
            json!([1]),
            json!([1, 2]),
            json!([2]),
            json!({"a": 1}),
            json!({"a": 1, "b": 1}),
            json!({"b": 0}),
            json!(null),
        ];
        for (i, left) in sorted.iter().enumerate() {
            for (j, right) in sorted.iter().enumerate() {
                assert_eq!(compare(left, right), i.cmp(&j), "{left} and {right}");
                assert_eq!(equal(left, right), i == j, "{left} and {right}");
            }
        }
    }

    #[test]
    fn an_integer_equals_the_float_of_the_same_value() {
        assert!(equal(&json!({"a": [1]}), &json!({"a": [1.0]})));
        assert_eq!(compare(&json!(80), &json!(80.0)), Ordering::Equal);
    }
}
