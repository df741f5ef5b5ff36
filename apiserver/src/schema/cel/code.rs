//! Checked expressions, as the evaluator runs them.

use super::value::{Key, Val};
use regex::Regex;
use std::sync::Arc;

/// An expression.
#[derive(Debug)]
pub(super) enum Code {
    Const(Val),
    /// A variable, by its position.
    Var(usize),
    /// A field, by its name in JSON.
    Select(Box<Code>, Arc<str>, Access),
    Index(Box<Code>, Box<Code>, Access),
    Not(Box<Code>),
    Negate(Box<Code>),
    And(Box<[Code; 2]>),
    Or(Box<[Code; 2]>),
    Conditional(Box<[Code; 3]>),
    Binary(Operator, Box<[Code; 2]>),
    List(Vec<Entry<Code>>),
    Map(Vec<Entry<(Code, Code)>>),
    Fold(Box<Fold>),
    /// `optMap` and `optFlatMap`: the optional, and the expression of its value.
    OptionalMap {
        of: Box<Code>,
        body: Box<Code>,
        is_flat: bool,
    },
    /// `matches` with a constant pattern.
    Matches(Box<Code>, Regex),
    /// A function by its name. The first argument of a method is its target.
    Call {
        name: &'static str,
        is_method: bool,
        arguments: Vec<Code>,
    },
}

/// What to do with a field or an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Return it. Missing is an error.
    Get,
    /// Return it as an optional.
    Optional,
    /// Report whether it exists.
    Has,
}

/// Entry of a list or map literal.
#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) code: T,
    /// The entry exists only if its optional value does: `[?x]`.
    pub(super) is_optional: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
}

/// A macro that evaluates an expression for each item.
#[derive(Debug)]
pub(super) struct Fold {
    pub(super) kind: FoldKind,
    pub(super) range: Code,
    /// The expression sees the index or key and the item. Otherwise it sees the item of a list or
    /// the key of a map.
    pub(super) has_two_variables: bool,
    pub(super) filter: Option<Code>,
    pub(super) body: Code,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoldKind {
    All,
    Exists,
    ExistsOne,
    /// `map`, `filter` and `transformList`.
    Collect,
    /// `transformMap`: a map with the same keys.
    CollectMap,
    /// `sortBy`.
    Sort,
}

impl Key {
    /// Returns the key as an index of a list.
    pub(super) fn index(&self) -> Option<usize> {
        match self {
            Self::Int(index) => usize::try_from(*index).ok(),
            Self::Uint(index) => usize::try_from(*index).ok(),
            _ => None,
        }
    }
}
