//! Evaluation of expressions, bounded in steps.

use super::{
    super::ListType,
    code::{Access, Code, Fold, FoldKind, Operator},
    convert::{overflow, unsigned_overflow},
    library,
    value::{Key, List, Val},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Most steps of one expression, as on the real server.
const MAX_STEPS: u64 = 1_000_000;

/// Bytes of text, or items, that count as one step.
const BYTES_PER_STEP: usize = 10;

/// Error of an evaluation.
#[derive(Debug)]
pub(super) enum Failure {
    /// The expression has taken too many steps.
    Limit,
    /// No function has these argument types.
    NoOverload,
    Other(String),
}

pub(super) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self::Other(text.into())
    }

    fn no_such_key(key: &Val) -> Self {
        match key {
            Val::String(text) => Self::Other(format!("no such key: {text}")),
            other => Self::Other(format!("no such key: {other:?}")),
        }
    }
}

/// Evaluates an expression. Returns its result and the number of steps that it took.
pub(super) fn evaluate(code: &Code, variables: Vec<Val>) -> (Result<Val>, u64) {
    let mut evaluation = Evaluation {
        variables,
        steps: 0,
    };
    let result = evaluation.run(code);
    (result, evaluation.steps)
}

/// A running evaluation.
pub(super) struct Evaluation {
    /// `self`, `oldSelf`, and the variables of the surrounding macros.
    variables: Vec<Val>,
    steps: u64,
}

impl Evaluation {
    /// Counts steps for a traversal of text or items.
    pub(super) fn charge(&mut self, size: usize) -> Result<()> {
        self.count((size / BYTES_PER_STEP) as u64)
    }

    /// Counts steps.
    pub(super) fn count(&mut self, steps: u64) -> Result<()> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > MAX_STEPS {
            Err(Failure::Limit)
        } else {
            Ok(())
        }
    }

    fn run(&mut self, code: &Code) -> Result<Val> {
        self.count(1)?;
        match code {
            Code::Const(value) => Ok(value.clone()),
            Code::Var(position) => valid(self.variables[*position].clone()),
            Code::Select(of, field, access) => {
                let of = self.run(of)?;
                get(of, &Val::String(field.clone()), *access)
            }
            Code::Index(of, index, access) => {
                let of = self.run(of)?;
                let index = self.run(index)?;
                get(of, &index, *access)
            }
            Code::Not(of) => self.bool(of).map(|value| Val::Bool(!value)),
            Code::Negate(of) => match self.run(of)? {
                Val::Int(number) => number.checked_neg().map(Val::Int).ok_or_else(overflow),
                Val::Double(number) => Ok(Val::Double(-number)),
                Val::Duration(duration) => duration
                    .checked_neg()
                    .map(Val::Duration)
                    .ok_or_else(overflow),
                _ => Err(Failure::NoOverload),
            },
            Code::And(sides) => self.logic(sides, false),
            Code::Or(sides) => self.logic(sides, true),
            Code::Conditional(parts) => {
                let condition = self.bool(&parts[0])?;
                self.run(&parts[if condition { 1 } else { 2 }])
            }
            Code::Binary(operator, sides) => {
                let left = self.run(&sides[0])?;
                let right = self.run(&sides[1])?;
                self.binary(*operator, left, right)
            }
            Code::List(entries) => {
                let mut items = Vec::with_capacity(entries.len());
                for entry in entries {
                    let value = self.run(&entry.code)?;
                    items.extend(if entry.is_optional {
                        present(&value)?
                    } else {
                        Some(value)
                    });
                }
                Ok(Val::list(items))
            }
            Code::Map(entries) => {
                let mut map = BTreeMap::new();
                for entry in entries {
                    let key = self.run(&entry.code.0)?.key().ok_or(Failure::NoOverload)?;
                    let value = self.run(&entry.code.1)?;
                    let value = if entry.is_optional {
                        present(&value)?
                    } else {
                        Some(value)
                    };
                    if let Some(value) = value
                        && map.insert(key, value).is_some()
                    {
                        return Err(Failure::new("insert failed: key already exists"));
                    }
                }
                Ok(Val::Map(map.into()))
            }
            Code::Fold(fold) => self.fold(fold),
            Code::OptionalMap { of, body, is_flat } => match self.run(of)? {
                Val::Optional(None) => Ok(Val::Optional(None)),
                Val::Optional(Some(value)) => {
                    self.variables.push((*value).clone());
                    let result = self.run(body);
                    self.variables.pop();
                    Ok(if *is_flat {
                        result?
                    } else {
                        Val::some(result?)
                    })
                }
                _ => Err(Failure::NoOverload),
            },
            Code::Matches(text, pattern) => match self.run(text)? {
                Val::String(text) => {
                    self.charge(text.len().saturating_mul(1 + pattern.as_str().len() / 4))?;
                    Ok(Val::Bool(pattern.is_match(&text)))
                }
                _ => Err(Failure::NoOverload),
            },
            Code::Call {
                name,
                is_method,
                arguments,
            } => {
                let values = arguments.iter().map(|argument| self.run(argument));
                let values: Vec<_> = values.collect::<Result<_>>()?;
                library::call(self, name, *is_method, &values)
            }
        }
    }

    fn bool(&mut self, code: &Code) -> Result<bool> {
        match self.run(code)? {
            Val::Bool(value) => Ok(value),
            _ => Err(Failure::NoOverload),
        }
    }

    /// Evaluates `&&` or `||`. The side that decides the result makes an error of the other
    /// irrelevant.
    fn logic(&mut self, sides: &[Code; 2], decisive: bool) -> Result<Val> {
        let left = self.bool(&sides[0]);
        if matches!(left, Ok(value) if value == decisive) || matches!(left, Err(Failure::Limit)) {
            return left.map(Val::Bool);
        }
        match (left, self.bool(&sides[1])) {
            (_, Ok(right)) if right == decisive => Ok(Val::Bool(decisive)),
            (_, Err(Failure::Limit)) => Err(Failure::Limit),
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(_), Ok(_)) => Ok(Val::Bool(!decisive)),
        }
    }

    fn fold(&mut self, fold: &Fold) -> Result<Val> {
        let range = self.run(&fold.range)?;
        let pairs: Vec<(Val, Val)> = match &range {
            Val::List(list) => {
                let items = list.items.iter().enumerate();
                items
                    .map(|(index, item)| (Val::length(index), item.clone()))
                    .collect()
            }
            Val::Map(map) => map
                .iter()
                .map(|(key, value)| (key.value(), value.clone()))
                .collect(),
            other => {
                let text = format!("got '{}', expected iterable type", other.go_type());
                return Err(Failure::new(text));
            }
        };
        let is_map = matches!(range, Val::Map(_));
        let depth = self.variables.len();
        let mut state = FoldState::default();
        for (key, item) in pairs {
            self.count(1)?;
            let value = item.clone();
            if fold.has_two_variables {
                self.variables.extend([key.clone(), item]);
            } else {
                self.variables.push(if is_map { key.clone() } else { item });
            }
            let is_last = self.step(fold, &mut state, &key, value);
            self.variables.truncate(depth);
            if is_last? {
                break;
            }
        }
        state.finish(fold.kind)
    }

    /// Evaluates a macro for one item. Returns whether the result is known.
    fn step(&mut self, fold: &Fold, state: &mut FoldState, key: &Val, item: Val) -> Result<bool> {
        if let Some(filter) = &fold.filter
            && !self.bool(filter)?
        {
            return Ok(false);
        }
        match fold.kind {
            FoldKind::All | FoldKind::Exists => {
                let decisive = fold.kind == FoldKind::Exists;
                match self.bool(&fold.body) {
                    Ok(value) if value == decisive => state.is_decided = true,
                    Ok(_) => {}
                    Err(Failure::Limit) => return Err(Failure::Limit),
                    Err(error) => state.error = state.error.take().or(Some(error)),
                }
            }
            FoldKind::ExistsOne => state.count += usize::from(self.bool(&fold.body)?),
            FoldKind::Collect => state.items.push(self.run(&fold.body)?),
            FoldKind::CollectMap => {
                let value = self.run(&fold.body)?;
                state
                    .map
                    .insert(key.key().ok_or(Failure::NoOverload)?, value);
            }
            FoldKind::Sort => state.sorted.push((self.run(&fold.body)?, item)),
        }
        Ok(state.is_decided)
    }

    fn binary(&mut self, operator: Operator, left: Val, right: Val) -> Result<Val> {
        use std::cmp::Ordering::{Greater, Less};
        match operator {
            Operator::Equal | Operator::NotEqual => {
                self.charge(left.weight().min(right.weight()))?;
                if let Some(reason) = invalid(&left).or_else(|| invalid(&right)) {
                    return Err(Failure::new(reason));
                }
                Ok(Val::Bool((left == right) == (operator == Operator::Equal)))
            }
            Operator::Less | Operator::LessEqual | Operator::Greater | Operator::GreaterEqual => {
                self.charge(left.size().min(right.size()))?;
                let is_number = |value: &Val| value.float().is_some();
                let order = match left.compare(&right) {
                    // A comparison with NaN is false.
                    None if is_number(&left) && is_number(&right) => return Ok(Val::Bool(false)),
                    None => return Err(Failure::NoOverload),
                    Some(order) => order,
                };
                Ok(Val::Bool(match operator {
                    Operator::Less => order == Less,
                    Operator::LessEqual => order != Greater,
                    Operator::Greater => order == Greater,
                    _ => order != Less,
                }))
            }
            Operator::In => match &right {
                Val::List(list) => {
                    let limit = left.weight();
                    for item in &list.items {
                        self.count(1 + (limit.min(item.weight()) / BYTES_PER_STEP) as u64)?;
                        if *item == left {
                            return Ok(Val::Bool(true));
                        }
                    }
                    Ok(Val::Bool(false))
                }
                Val::Map(map) => Ok(Val::Bool(
                    left.key().is_some_and(|key| key.find(map).is_some()),
                )),
                _ => Err(Failure::NoOverload),
            },
            Operator::Add => self.add(&left, &right),
            _ => arithmetic(operator, &left, &right),
        }
    }

    fn add(&mut self, left: &Val, right: &Val) -> Result<Val> {
        self.charge(left.size().saturating_add(right.size()))?;
        match (left, right) {
            (Val::String(left), Val::String(right)) => Ok(Val::text([&**left, &**right].concat())),
            (Val::Bytes(left), Val::Bytes(right)) => {
                Ok(Val::Bytes([&**left, &**right].concat().into()))
            }
            (Val::List(left), Val::List(right)) => {
                self.charge(left.items.len().saturating_add(right.items.len()))?;
                Ok(concatenate(left, right))
            }
            (Val::Timestamp(time), Val::Duration(duration))
            | (Val::Duration(duration), Val::Timestamp(time)) => time
                .checked_add(*duration)
                .map(Val::Timestamp)
                .map_err(|_| Failure::new("timestamp overflow")),
            _ => arithmetic(Operator::Add, left, right),
        }
    }
}

/// Intermediate results of a macro.
#[derive(Default)]
struct FoldState {
    is_decided: bool,
    error: Option<Failure>,
    count: usize,
    items: Vec<Val>,
    map: BTreeMap<Key, Val>,
    /// Items with the values by which they are sorted.
    sorted: Vec<(Val, Val)>,
}

impl FoldState {
    fn finish(mut self, kind: FoldKind) -> Result<Val> {
        match (kind, self.error) {
            (FoldKind::All | FoldKind::Exists, Some(error)) if !self.is_decided => Err(error),
            (FoldKind::All, _) => Ok(Val::Bool(!self.is_decided)),
            (FoldKind::Exists, _) => Ok(Val::Bool(self.is_decided)),
            (FoldKind::ExistsOne, _) => Ok(Val::Bool(self.count == 1)),
            (FoldKind::Collect, _) => Ok(Val::list(self.items)),
            (FoldKind::CollectMap, _) => Ok(Val::Map(self.map.into())),
            (FoldKind::Sort, _) => {
                let mut is_ordered = true;
                self.sorted.sort_by(|(one, _), (other, _)| {
                    one.compare(other).unwrap_or_else(|| {
                        is_ordered = false;
                        std::cmp::Ordering::Equal
                    })
                });
                if !is_ordered {
                    return Err(Failure::NoOverload);
                }
                Ok(Val::list(
                    self.sorted.into_iter().map(|(_, item)| item).collect(),
                ))
            }
        }
    }
}

/// Returns the value unless it does not match its schema.
fn valid(value: Val) -> Result<Val> {
    match value {
        Val::Invalid(reason) => Err(Failure::Other(reason.to_string())),
        value => Ok(value),
    }
}

/// Returns why a part of the value does not match its schema.
fn invalid(value: &Val) -> Option<String> {
    match value {
        Val::Invalid(reason) => Some(reason.to_string()),
        Val::List(list) => list.items.iter().find_map(invalid),
        Val::Map(map) => map.values().find_map(invalid),
        Val::Optional(Some(value)) => invalid(value),
        _ => None,
    }
}

/// Returns the value of an optional.
fn present(value: &Val) -> Result<Option<Val>> {
    match value {
        Val::Optional(value) => Ok(value.as_deref().cloned()),
        _ => Err(Failure::NoOverload),
    }
}

/// Returns a field of a map or an item of a list. That of an optional is an optional.
fn get(of: Val, key: &Val, access: Access) -> Result<Val> {
    let of = match of {
        Val::Optional(None) if access == Access::Has => return Ok(Val::Bool(false)),
        Val::Optional(None) => return Ok(Val::Optional(None)),
        Val::Optional(Some(value)) => {
            let access = if access == Access::Get {
                Access::Optional
            } else {
                access
            };
            return get((*value).clone(), key, access);
        }
        of => of,
    };
    let found = match &of {
        Val::Map(map) => key.key().and_then(|key| key.find(map)),
        Val::List(list) => {
            let index = key.key().ok_or(Failure::NoOverload)?;
            index.index().and_then(|index| list.items.get(index))
        }
        // A value whose type is known only now.
        _ => None,
    };
    match (access, found) {
        (Access::Has, found) => Ok(Val::Bool(found.is_some())),
        (Access::Get, Some(found)) => valid(found.clone()),
        (Access::Optional, Some(found)) => valid(found.clone()).map(Val::some),
        (Access::Optional, None) => Ok(Val::Optional(None)),
        (Access::Get, None) if matches!(of, Val::List(_)) => {
            Err(Failure::new(format!("index out of bounds: {key:?}")))
        }
        (Access::Get, None) => Err(Failure::no_such_key(key)),
    }
}

/// Appends a list. Sets are united, and items of maps replace those with the same keys.
fn concatenate(left: &List, right: &List) -> Val {
    let mut items = left.items.clone();
    match &left.kind {
        ListType::Atomic => items.extend(right.items.iter().cloned()),
        ListType::Set => {
            let mut seen: BTreeSet<_> = items.iter().map(|item| format!("{item:?}")).collect();
            let new = right
                .items
                .iter()
                .filter(|item| seen.insert(format!("{item:?}")));
            items.extend(new.cloned());
        }
        ListType::Map(keys) => {
            let mut positions: BTreeMap<_, _> = (0..)
                .zip(&left.items)
                .map(|(at, item)| (item.key_text(keys), at))
                .collect();
            for item in &right.items {
                let at = *positions.entry(item.key_text(keys)).or_insert(items.len());
                if at < items.len() {
                    items[at] = item.clone();
                } else {
                    items.push(item.clone());
                }
            }
        }
    }
    let kind = left.kind.clone();
    Val::List(Arc::new(List { items, kind }))
}

fn arithmetic(operator: Operator, left: &Val, right: &Val) -> Result<Val> {
    use Operator::{Add, Divide, Modulo, Multiply, Subtract};
    let zero = match operator {
        Divide => "division by zero",
        _ => "modulus by zero",
    };
    let is_division = matches!(operator, Divide | Modulo);
    match (left, right) {
        (Val::Int(_), Val::Int(0)) | (Val::Uint(_), Val::Uint(0)) if is_division => {
            Err(Failure::new(zero))
        }
        (Val::Int(left), Val::Int(right)) => match operator {
            Add => left.checked_add(*right),
            Subtract => left.checked_sub(*right),
            Multiply => left.checked_mul(*right),
            Divide => left.checked_div(*right),
            Modulo => left.checked_rem(*right),
            _ => return Err(Failure::NoOverload),
        }
        .map(Val::Int)
        .ok_or_else(overflow),
        (Val::Uint(left), Val::Uint(right)) => match operator {
            Add => left.checked_add(*right),
            Subtract => left.checked_sub(*right),
            Multiply => left.checked_mul(*right),
            Divide => left.checked_div(*right),
            Modulo => left.checked_rem(*right),
            _ => return Err(Failure::NoOverload),
        }
        .map(Val::Uint)
        .ok_or_else(unsigned_overflow),
        (Val::Double(left), Val::Double(right)) => Ok(Val::Double(match operator {
            Add => left + right,
            Subtract => left - right,
            Multiply => left * right,
            Divide => left / right,
            _ => return Err(Failure::NoOverload),
        })),
        (Val::Duration(left), Val::Duration(right)) => match operator {
            Add => left.checked_add(*right),
            Subtract => left.checked_sub(*right),
            _ => return Err(Failure::NoOverload),
        }
        .map(Val::Duration)
        .ok_or_else(overflow),
        (Val::Timestamp(left), Val::Timestamp(right)) if operator == Subtract => {
            Ok(Val::Duration(left.duration_since(*right)))
        }
        (Val::Timestamp(left), Val::Duration(right)) if operator == Subtract => left
            .checked_sub(*right)
            .map(Val::Timestamp)
            .map_err(|_| Failure::new("timestamp overflow")),
        _ => Err(Failure::NoOverload),
    }
}
