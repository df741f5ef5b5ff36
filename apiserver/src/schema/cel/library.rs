//! Functions: those of CEL here, and those of Kubernetes' libraries in kube-cel.
//!
//! A few functions of kube-cel are not used, since some arguments make them panic or return
//! gigabytes: those of quantities, `sum` and `replace`. Arguments of others are checked first.

use super::{
    super::{pattern, quantity},
    convert::{convert, overflow},
    eval::{Evaluation, Failure, Result},
    value::{Key, Val},
};
use jiff::{Zoned, tz::TimeZone};
use kube_cel::{
    KubeCelExt as _,
    cel::{
        Context, ExecutionError, IdedExpr as Expression, Value,
        common::ast::{CallExpr, Expr},
        objects::{self, OptionalValue},
    },
};
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

/// kube-cel's functions.
static KUBERNETES: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());

/// Largest precision in a format: `%.3f`.
const MAX_PRECISION: usize = 100;

/// Calls a function. The first argument of a method is its target.
pub(super) fn call(
    evaluation: &mut Evaluation,
    name: &str,
    is_method: bool,
    arguments: &[Val],
) -> Result<Val> {
    if let Some(result) = core(evaluation, name, arguments)? {
        return Ok(result);
    }
    guard(evaluation, name, arguments)?;
    kubernetes(name, is_method, arguments)
}

/// Calls a function of CEL. Returns `None` if there is none with this name and these types.
fn core(evaluation: &mut Evaluation, name: &str, arguments: &[Val]) -> Result<Option<Val>> {
    let value = match (name, arguments) {
        ("size", [Val::String(text)]) => {
            evaluation.charge(text.len())?;
            Val::length(text.chars().count())
        }
        ("size", [value @ (Val::Bytes(_) | Val::List(_) | Val::Map(_))]) => {
            Val::length(value.size())
        }
        ("contains" | "startsWith" | "endsWith", [Val::String(text), Val::String(part)]) => {
            evaluation.charge(text.len())?;
            Val::Bool(match name {
                "contains" => text.contains(&**part),
                "startsWith" => text.starts_with(&**part),
                _ => text.ends_with(&**part),
            })
        }
        ("matches", [Val::String(text), Val::String(source)]) => {
            let pattern = compile(evaluation, text, source)?;
            Val::Bool(pattern.is_match(text))
        }
        ("find", [Val::String(text), Val::String(source)]) => {
            let pattern = compile(evaluation, text, source)?;
            Val::text(pattern.find(text).map_or("", |found| found.as_str()))
        }
        ("findAll", [Val::String(text), Val::String(source), limit @ ..]) => {
            let pattern = compile(evaluation, text, source)?;
            let limit = match limit {
                [Val::Int(limit)] => usize::try_from(*limit).unwrap_or(usize::MAX),
                _ => usize::MAX,
            };
            let found = pattern.find_iter(text).take(limit);
            Val::list(found.map(|found| Val::text(found.as_str())).collect())
        }
        (
            "replace",
            [
                Val::String(text),
                Val::String(from),
                Val::String(to),
                limit @ ..,
            ],
        ) => {
            let limit = match limit {
                [Val::Int(limit)] => usize::try_from(*limit).unwrap_or(usize::MAX),
                _ => usize::MAX,
            };
            evaluation.charge(text.len())?;
            let count = text.matches(&**from).take(limit).count();
            evaluation.charge(count.saturating_mul(to.len()))?;
            Val::text(text.replacen(&**from, to, limit))
        }
        ("sum", [Val::List(list)]) => {
            evaluation.count(list.items.len() as u64)?;
            return sum(&list.items).map(Some);
        }
        ("dyn", [value]) => value.clone(),
        ("type", [value]) => Val::Type(value.type_name()),
        ("optional.none", []) => Val::Optional(None),
        ("optional.ofNonZeroValue", [value]) if value.is_zero() => Val::Optional(None),
        ("optional.of" | "optional.ofNonZeroValue", [value]) => Val::some(value.clone()),
        ("hasValue", [Val::Optional(value)]) => Val::Bool(value.is_some()),
        ("value", [Val::Optional(value)]) => match value {
            Some(value) => (**value).clone(),
            None => return Err(Failure::new("optional.none() dereference")),
        },
        ("or", [Val::Optional(Some(_)), _]) => arguments[0].clone(),
        ("orValue", [Val::Optional(Some(value)), _]) => (**value).clone(),
        ("or" | "orValue", [Val::Optional(None), other]) => other.clone(),
        (_, [Val::Timestamp(time)]) if name.starts_with("get") => {
            match time_part(name, &time.to_zoned(TimeZone::UTC)) {
                Some(part) => Val::Int(part),
                None => return Ok(None),
            }
        }
        (_, [Val::Duration(duration)]) if name.starts_with("get") => Val::Int(match name {
            "getHours" => duration.as_hours(),
            "getMinutes" => duration.as_mins(),
            "getSeconds" => duration.as_secs(),
            "getMilliseconds" => i64::from(duration.subsec_millis()),
            _ => return Ok(None),
        }),
        ("quantity" | "isQuantity", [Val::String(text)]) => {
            evaluation.charge(text.len())?;
            match (name, quantity::parse(text)) {
                ("isQuantity", parsed) => Val::Bool(parsed.is_ok()),
                (_, Ok(quantity)) => Val::Quantity(quantity),
                (_, Err(error)) => return Err(Failure::new(error.to_string())),
            }
        }
        (_, [Val::Quantity(one), rest @ ..]) => return quantities(name, *one, rest),
        (_, [value]) => return convert(name, value).transpose(),
        _ => return Ok(None),
    };
    Ok(Some(value))
}

/// Returns the part of a time that a function such as `getHours` returns.
fn time_part(name: &str, time: &Zoned) -> Option<i64> {
    Some(match name {
        "getFullYear" => time.year().into(),
        "getMonth" => i64::from(time.month()) - 1,
        "getDayOfYear" => i64::from(time.day_of_year()) - 1,
        "getDayOfMonth" => i64::from(time.day()) - 1,
        "getDate" => time.day().into(),
        "getDayOfWeek" => time.weekday().to_sunday_zero_offset().into(),
        "getHours" => time.hour().into(),
        "getMinutes" => time.minute().into(),
        "getSeconds" => time.second().into(),
        "getMilliseconds" => time.millisecond().into(),
        _ => return None,
    })
}

fn quantities(name: &str, one: quantity::Quantity, rest: &[Val]) -> Result<Option<Val>> {
    const NANO: i128 = 1_000_000_000;
    let (left, order) = (one.nanos(), |other: &quantity::Quantity| {
        one.nanos().cmp(&other.nanos())
    });
    let value = match (name, rest) {
        ("sign", []) => Val::Int(left.signum() as i64),
        ("isGreaterThan", [Val::Quantity(other)]) => Val::Bool(order(other).is_gt()),
        ("isLessThan", [Val::Quantity(other)]) => Val::Bool(order(other).is_lt()),
        ("compareTo", [Val::Quantity(other)]) => Val::Int(order(other) as i64),
        ("isInteger", []) => Val::Bool(one.is_whole() && i64::try_from(left / NANO).is_ok()),
        ("asInteger", []) => match i64::try_from(left / NANO) {
            Ok(number) if one.is_whole() => Val::Int(number),
            _ => return Err(Failure::new("cannot convert value to integer")),
        },
        #[expect(clippy::cast_precision_loss, reason = "the result is approximate")]
        ("asApproximateFloat", []) => Val::Double(left as f64 / NANO as f64),
        ("add" | "sub", [other]) => {
            let right = match other {
                Val::Quantity(other) => other.nanos(),
                Val::Int(number) => i128::from(*number) * NANO,
                _ => return Err(Failure::NoOverload),
            };
            let nanos = if name == "add" {
                left.checked_add(right)
            } else {
                left.checked_sub(right)
            };
            let result = nanos.and_then(|nanos| one.with_nanos(nanos));
            Val::Quantity(result.ok_or_else(overflow)?)
        }
        _ => return Ok(None),
    };
    Ok(Some(value))
}

fn sum(items: &[Val]) -> Result<Val> {
    let mut items = items.iter();
    let Some(first) = items.next() else {
        return Ok(Val::Int(0));
    };
    items.try_fold(first.clone(), |sum, item| match (&sum, item) {
        (Val::Int(one), Val::Int(other)) => {
            one.checked_add(*other).map(Val::Int).ok_or_else(overflow)
        }
        (Val::Uint(one), Val::Uint(other)) => {
            one.checked_add(*other).map(Val::Uint).ok_or_else(overflow)
        }
        (Val::Double(one), Val::Double(other)) => Ok(Val::Double(one + other)),
        (Val::Duration(one), Val::Duration(other)) => one
            .checked_add(*other)
            .map(Val::Duration)
            .ok_or_else(overflow),
        _ => Err(Failure::NoOverload),
    })
}

/// Compiles a pattern that is known only now, and counts the steps of matching it.
fn compile(evaluation: &mut Evaluation, text: &str, source: &str) -> Result<regex::Regex> {
    evaluation.charge(text.len().saturating_mul(1 + source.len() / 4))?;
    // Compilation is far slower than a step.
    evaluation.count(1_000 + source.len() as u64 * 10)?;
    pattern::regex(source).map_err(|error| Failure::new(format!("error parsing regexp: {error}")))
}

/// Counts the steps of a function of kube-cel, and rejects arguments that it cannot handle.
fn guard(evaluation: &mut Evaluation, name: &str, arguments: &[Val]) -> Result<()> {
    // Conversion and work are linear, with few exceptions.
    let weight = |value: &Val| value.weight() as u64;
    let total: u64 = arguments.iter().map(weight).sum();
    evaluation.count(5 + total / 5)?;
    match (name, arguments) {
        ("distinct", [list]) => evaluation.count(weight(list).saturating_mul(list.size() as u64)),
        ("sets.contains" | "sets.equivalent" | "sets.intersects", [one, other]) => {
            evaluation.count(weight(one).saturating_mul(other.size() as u64))
        }
        ("indexOf" | "lastIndexOf", [Val::String(text), Val::String(part), ..]) => {
            evaluation.charge(text.len().saturating_mul(part.len()))
        }
        ("join", [Val::List(list), Val::String(separator)]) => {
            evaluation.charge(list.items.len().saturating_mul(separator.len()))
        }
        ("lists.range", [Val::Int(count)]) => evaluation.count(u64::try_from(*count).unwrap_or(0)),
        ("charAt" | "substring", [Val::String(text), Val::Int(start), end @ ..]) => {
            let length = text.chars().count();
            let range = |index: i64| {
                if usize::try_from(index).is_ok_and(|index| index <= length) {
                    Ok(())
                } else {
                    Err(Failure::new(format!("index out of range: {index}")))
                }
            };
            match end {
                [Val::Int(end)] if start > end => {
                    let text = format!("invalid substring range. start: {start}, end: {end}");
                    Err(Failure::new(text))
                }
                [Val::Int(end)] => range(*start).and_then(|()| range(*end)),
                _ => range(*start),
            }
        }
        ("slice", [Val::List(list), Val::Int(start), Val::Int(end)]) => {
            let length = list.items.len();
            let reason = if *start < 0 || *end < 0 {
                "negative indexes not supported".into()
            } else if start > end {
                "start index must be less than or equal to end index".into()
            } else if usize::try_from(*end).is_ok_and(|end| end > length) {
                format!("list is length {length}")
            } else {
                return Ok(());
            };
            Err(Failure::new(format!(
                "cannot slice({start}, {end}), {reason}"
            )))
        }
        ("min" | "max", [Val::List(list)]) if list.items.is_empty() => {
            Err(Failure::new(format!("{name} called on empty list")))
        }
        ("sort" | "min" | "max" | "isSorted", [Val::List(list)]) => {
            let mut pairs = list.items.windows(2);
            if pairs.all(|pair| pair[0].compare(&pair[1]).is_some()) {
                Ok(())
            } else {
                Err(Failure::NoOverload)
            }
        }
        ("format", [Val::String(format), ..]) => {
            let is_long = |part: &str| {
                let digits = part.bytes().take_while(u8::is_ascii_digit).count();
                part[..digits]
                    .parse::<usize>()
                    .is_ok_and(|precision| precision > MAX_PRECISION)
                    || digits > 3
            };
            if format.split("%.").skip(1).any(is_long) {
                return Err(Failure::new(format!(
                    "precision of format is above {MAX_PRECISION}"
                )));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Calls a function of kube-cel.
fn kubernetes(name: &str, is_method: bool, arguments: &[Val]) -> Result<Val> {
    // Invariant: at most 4 arguments, since no signature has more.
    const NAMES: [&str; 4] = ["@0", "@1", "@2", "@3"];
    let mut context = KUBERNETES.new_inner_scope();
    let mut expressions = Vec::with_capacity(arguments.len());
    for (name, value) in NAMES.into_iter().zip(arguments) {
        context.add_variable_from_value(name, to_cel(value)?);
        let expr = Expr::Ident(name.into());
        expressions.push(Expression { id: 0, expr });
    }
    let target = is_method.then(|| Box::new(expressions.remove(0)));
    let call = CallExpr {
        func_name: name.into(),
        target,
        args: expressions,
    };
    let result = context.resolve(&Expression {
        id: 0,
        expr: Expr::Call(call),
    });
    result
        .map_err(|error| match error {
            ExecutionError::FunctionError { message, .. } => Failure::Other(message),
            ExecutionError::NoSuchOverload | ExecutionError::UnexpectedType { .. } => {
                Failure::NoOverload
            }
            other => Failure::Other(other.to_string()),
        })
        .and_then(|value| from_cel(&value))
}

fn to_cel(value: &Val) -> Result<Value> {
    Ok(match value {
        Val::Null => Value::Null,
        Val::Bool(value) => Value::Bool(*value),
        Val::Int(number) => Value::Int(*number),
        Val::Uint(number) => Value::UInt(*number),
        Val::Double(number) => Value::Float(*number),
        Val::String(text) => Value::String(Arc::new(text.to_string())),
        Val::Bytes(bytes) => Value::Bytes(Arc::new(bytes.to_vec())),
        Val::List(list) => {
            let items = list.items.iter().map(to_cel).collect::<Result<Vec<_>>>()?;
            Value::List(Arc::new(items))
        }
        Val::Map(map) => {
            let entries = map
                .iter()
                .map(|(key, value)| Ok((to_cel_key(key), to_cel(value)?)));
            let map: HashMap<_, _> = entries.collect::<Result<_>>()?;
            Value::Map(objects::Map { map: Arc::new(map) })
        }
        Val::Optional(None) => Value::Opaque(Arc::new(OptionalValue::none())),
        Val::Optional(Some(value)) => Value::Opaque(Arc::new(OptionalValue::of(to_cel(value)?))),
        Val::Opaque(value) => Value::Opaque(value.clone()),
        // Texts, for `format`.
        Val::Timestamp(_) | Val::Duration(_) => match convert("string", value) {
            Some(Ok(Val::String(text))) => Value::String(Arc::new(text.to_string())),
            _ => return Err(Failure::NoOverload),
        },
        Val::Quantity(quantity) => Value::String(Arc::new(quantity.to_string())),
        Val::Type(name) => Value::String(Arc::new((*name).into())),
        Val::Invalid(reason) => return Err(Failure::Other(reason.to_string())),
    })
}

fn to_cel_key(key: &Key) -> objects::Key {
    match key {
        Key::Bool(value) => objects::Key::Bool(*value),
        Key::Int(number) => objects::Key::Int(*number),
        Key::Uint(number) => objects::Key::Uint(*number),
        Key::String(text) => objects::Key::String(Arc::new(text.to_string())),
    }
}

fn from_cel(value: &Value) -> Result<Val> {
    Ok(match value {
        Value::Null => Val::Null,
        Value::Bool(value) => Val::Bool(*value),
        Value::Int(number) => Val::Int(*number),
        Value::UInt(number) => Val::Uint(*number),
        Value::Float(number) => Val::Double(*number),
        Value::String(text) => Val::text(text.as_str()),
        Value::Bytes(bytes) => Val::Bytes(bytes.as_slice().into()),
        Value::List(items) => Val::list(items.iter().map(from_cel).collect::<Result<_>>()?),
        Value::Opaque(opaque) => match opaque.downcast_ref::<OptionalValue>() {
            Some(optional) => match optional.value() {
                Some(value) => Val::some(from_cel(value)?),
                None => Val::Optional(None),
            },
            None => Val::Opaque(opaque.clone()),
        },
        Value::Map(map) => {
            let entries = map.map.iter().map(|(key, value)| {
                let key = match key {
                    objects::Key::Bool(value) => Key::Bool(*value),
                    objects::Key::Int(number) => Key::Int(*number),
                    objects::Key::Uint(number) => Key::Uint(*number),
                    objects::Key::String(text) => Key::String(text.as_str().into()),
                };
                Ok((key, from_cel(value)?))
            });
            Val::Map(Arc::new(entries.collect::<Result<_>>()?))
        }
        // No function returns one of these.
        _ => return Err(Failure::NoOverload),
    })
}
