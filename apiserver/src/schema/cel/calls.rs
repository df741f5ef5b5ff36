//! Types and costs of operators and function calls.

use super::{
    super::pattern,
    check::{Result, Typed},
    code::{Code, Operator},
    functions,
    types::{Params, Type},
    value::Val,
};

/// Returns the type of a binary operator's result. `None` if it does not support the types.
pub(super) fn operator_type(operator: Operator, one: &Type, other: &Type) -> Option<Type> {
    use Operator::{Add, Divide, Equal, In, Modulo, Multiply, NotEqual, Subtract};
    use Type::{Bool, Bytes, Double, Duration, Dyn, Int, List, Map, String, Timestamp, Uint};
    let is_additive = matches!(operator, Add | Subtract);
    let is_arithmetic = is_additive || matches!(operator, Multiply | Divide | Modulo);
    match (one, other) {
        _ if matches!(operator, Equal | NotEqual) => unify(one, other).map(|_| Bool),
        (_, List(item)) if operator == In => unify(one, item).map(|_| Bool),
        (_, Map(key, _)) if operator == In => unify(one, key).map(|_| Bool),
        _ if operator == In => other.is_dyn().then_some(Bool),
        _ if !is_arithmetic => is_comparable(one, other).then_some(Bool),
        (Dyn, _) | (_, Dyn) if is_additive => Some(Dyn),
        (Dyn, other) => Some(other.clone()),
        (one, Dyn) => Some(one.clone()),
        (List(_), List(_)) if operator == Add => unify(one, other),
        (Timestamp, Duration) if is_additive => Some(Timestamp),
        (Duration, Timestamp) if operator == Add => Some(Timestamp),
        (Timestamp, Timestamp) if operator == Subtract => Some(Duration),
        (Int, Int) | (Uint, Uint) => Some(one.clone()),
        (Double, Double) if operator != Modulo => Some(Double),
        (Duration, Duration) if is_additive => Some(Duration),
        (String, String) | (Bytes, Bytes) if operator == Add => Some(one.clone()),
        _ => None,
    }
}

/// Reports whether values of two types have an order. Numbers of all types do.
fn is_comparable(one: &Type, other: &Type) -> bool {
    use Type::{Bool, Bytes, Double, Duration, Dyn, Int, String, Timestamp, Uint};
    matches!(
        (one, other),
        (Dyn, _)
            | (_, Dyn)
            | (Int | Uint | Double, Int | Uint | Double)
            | (Bool, Bool)
            | (String, String)
            | (Bytes, Bytes)
            | (Timestamp, Timestamp)
            | (Duration, Duration)
    )
}

/// Checks a function call. The first argument of a method is its target.
pub(super) fn function(name: &str, is_method: bool, arguments: Vec<Typed>) -> Result<Typed> {
    let kinds: Vec<_> = arguments
        .iter()
        .map(|argument| argument.kind.clone())
        .collect();
    let (name, kind) = functions::resolve(name, is_method, &kinds)
        .ok_or_else(|| no_overload(name, &kinds.iter().collect::<Vec<_>>()))?;
    check_literals(name, &arguments)?;
    let size = |index: usize| arguments.get(index).map_or(0, |argument| argument.size);
    let item_size = arguments
        .iter()
        .map(|argument| argument.item_size)
        .max()
        .unwrap_or(1);
    let total = arguments
        .iter()
        .fold(0_u64, |sum, argument| sum.saturating_add(argument.size));
    let traversal = match name {
        "size" if !matches!(kinds[0].plain(), Type::String) => 0,
        "matches" | "find" | "findAll" => tenth(size(0)).saturating_mul(1 + size(1) / 4),
        "sets.contains" | "sets.equivalent" | "sets.intersects" => size(0).saturating_mul(size(1)),
        "distinct" => size(0).saturating_mul(size(0)),
        _ => tenth(total),
    };
    let result = match (name, &arguments[..]) {
        (
            "lists.range",
            [
                Typed {
                    code: Code::Const(Val::Int(count)),
                    ..
                },
            ],
        ) => u64::try_from(*count).unwrap_or(0),
        ("lists.range", _) => u64::MAX,
        ("join", _) => size(0).saturating_mul(item_size.saturating_add(size(1))),
        ("replace", _) => size(0).saturating_mul(size(2).max(1)),
        ("format", _) => size(0).saturating_add(arguments[1].size.saturating_mul(item_size)),
        // As on the real server, the length of such a text is unknown.
        ("string", _) if !matches!(kinds[0].plain(), Type::String | Type::Bytes) => u64::MAX,
        _ => size(0).max(size(1)),
    };
    let cost = arguments
        .iter()
        .fold(1_u64, |sum, argument| sum.saturating_add(argument.cost));
    let cost = cost.saturating_add(traversal);
    let mut codes: Vec<_> = arguments
        .into_iter()
        .map(|argument| argument.code)
        .collect();
    let code = match (name, &codes[..]) {
        ("matches", [_, Code::Const(Val::String(source))]) => {
            let pattern = pattern::regex(source).map_err(|error| invalid_pattern(&error))?;
            Code::Matches(Box::new(codes.swap_remove(0)), pattern)
        }
        _ => Code::Call {
            name,
            is_method,
            arguments: codes,
        },
    };
    Ok(Typed {
        size: result,
        item_size,
        ..Typed::new(code, kind, result, cost)
    })
}

/// Rejects constant arguments that every evaluation would reject.
fn check_literals(name: &str, arguments: &[Typed]) -> Result<()> {
    let text = |index: usize| match arguments.get(index).map(|argument| &argument.code) {
        Some(Code::Const(Val::String(text))) => Some(text.clone()),
        _ => None,
    };
    match name {
        "find" | "findAll" => {
            let source = text(1).map(|source| pattern::regex(&source)).transpose();
            source.map(drop).map_err(|error| invalid_pattern(&error))
        }
        "duration" | "timestamp" if arguments.len() == 1 => {
            let invalid = text(0).filter(|text| {
                let converted = super::convert::convert(name, &Val::String(text.clone()));
                matches!(converted, Some(Err(_)))
            });
            invalid.map_or(Ok(()), |_| Err(format!("invalid {name} argument")))
        }
        _ => Ok(()),
    }
}

fn invalid_pattern(error: &regex::Error) -> String {
    format!("invalid matches argument: {error}")
}

pub(super) fn no_overload(name: &str, kinds: &[&Type]) -> String {
    let kinds: Vec<_> = kinds.iter().map(ToString::to_string).collect();
    format!(
        "found no matching overload for '{name}' applied to '({})'",
        kinds.join(", ")
    )
}

/// Returns the type that both types can be used as.
pub(super) fn unify(one: &Type, other: &Type) -> Option<Type> {
    if one.is_dyn() || other.is_dyn() {
        return Some(Type::Dyn);
    }
    if one.accepts(other, &mut Params::default()) {
        return Some(one.clone());
    }
    other
        .accepts(one, &mut Params::default())
        .then(|| other.clone())
}

/// Returns the cost of a traversal.
pub(super) fn tenth(size: u64) -> u64 {
    size.div_ceil(10)
}
