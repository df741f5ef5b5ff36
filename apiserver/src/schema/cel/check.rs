//! Type check of expressions, with an estimate of their cost.
//!
//! An expression that names an unknown field or function, or that calls a function with arguments
//! of other types, is rejected when the CRD is created.

use super::{
    calls::{function, no_overload, operator_type, tenth, unify},
    code::{Access, Code, Entry, Operator},
    functions,
    types::{Decl, Params, Type},
    value::Val,
};
use kube_cel::cel::{
    IdedExpr as Expression,
    common::ast::{
        CallExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, SelectExpr, operators,
    },
    parser::Parser,
};
use std::sync::Arc;

/// Maximum nesting of an expression. The evaluator needs about 1 KiB of stack per level.
const MAX_DEPTH: usize = 100;
/// Maximum length of an expression, in bytes.
const MAX_LENGTH: usize = 16 << 10;
/// Maximum number of operators and brackets of an expression.
const MAX_TOKENS: usize = 2_000;
/// Maximum nesting of brackets. The parser limits other nesting itself.
const MAX_BRACKETS: usize = 60;

/// A valid expression.
pub(super) struct Checked {
    pub(super) code: Code,
    pub(super) kind: Type,
    pub(super) uses_old_self: bool,
    /// Estimated number of steps in the worst case.
    pub(super) cost: u64,
}

/// Parses and checks an expression about a value. Call it with a large stack: the parser recurses.
pub(super) fn check(
    text: &str,
    decl: &Arc<Decl>,
    optional_old_self: bool,
) -> Result<Checked, String> {
    check_size(text)?;
    let parser = Parser::default().enable_optional_syntax(true);
    let expression = parser.parse(text).map_err(|errors| errors.to_string())?;
    let value = Type::Decl(decl.clone());
    let old = if optional_old_self {
        Type::optional(value.clone())
    } else {
        value.clone()
    };
    let variable = |name: &str, kind: Type| Variable {
        name: name.into(),
        kind,
        size: decl.max_size,
    };
    let mut checker = Checker {
        variables: vec![variable("self", value), variable("oldSelf", old)],
        uses_old_self: false,
        depth: 0,
    };
    let Typed {
        code, kind, cost, ..
    } = checker.check(&expression)?;
    Ok(Checked {
        code,
        kind,
        cost,
        uses_old_self: checker.uses_old_self,
    })
}

/// Rejects expressions that would need too much of the parser's stack or time.
fn check_size(text: &str) -> Result<(), String> {
    let (mut tokens, mut brackets, mut deepest) = (0, 0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => brackets += 1,
            b')' | b']' | b'}' => brackets = brackets.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(brackets);
        tokens += usize::from(byte.is_ascii_punctuation() && !matches!(byte, b'_' | b'\'' | b'"'));
    }
    if text.len() > MAX_LENGTH {
        return Err(format!(
            "expression is longer than {MAX_LENGTH} bytes; split it"
        ));
    }
    if tokens > MAX_TOKENS {
        return Err(format!(
            "expression has more than {MAX_TOKENS} operators and brackets; split it"
        ));
    }
    if deepest > MAX_BRACKETS {
        return Err("expression recursion limit exceeded; nest fewer brackets".into());
    }
    Ok(())
}

struct Variable {
    name: String,
    kind: Type,
    size: u64,
}

pub(super) struct Checker {
    variables: Vec<Variable>,
    uses_old_self: bool,
    depth: usize,
}

/// An expression with its type and its estimates.
pub(super) struct Typed {
    pub(super) code: Code,
    pub(super) kind: Type,
    /// Largest length of its value.
    pub(super) size: u64,
    /// Largest length of an item of its value.
    pub(super) item_size: u64,
    pub(super) cost: u64,
}

pub(super) type Result<T, E = String> = std::result::Result<T, E>;

impl Typed {
    pub(super) fn new(code: Code, kind: Type, size: u64, cost: u64) -> Self {
        let size = kind.max_size().unwrap_or(size);
        Self {
            code,
            kind,
            size,
            item_size: size,
            cost,
        }
    }
}

impl Checker {
    /// Checks an expression.
    pub(super) fn check(&mut self, expression: &Expression) -> Result<Typed> {
        if self.depth >= MAX_DEPTH {
            return Err("expression recursion limit exceeded; split the rule".into());
        }
        self.depth += 1;
        let checked = self.check_kind(&expression.expr);
        self.depth -= 1;
        checked
    }

    fn check_kind(&mut self, expression: &Expr) -> Result<Typed> {
        match expression {
            Expr::Literal(literal) => Ok(constant(literal)),
            Expr::Ident(name) => self
                .variable(name)
                .or_else(|| type_value(name))
                .ok_or_else(|| undeclared(name)),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Struct(of) => Err(undeclared(&of.type_name)),
            Expr::Unspecified => Err("empty expression".into()),
        }
    }

    fn variable(&mut self, name: &str) -> Option<Typed> {
        let position = self
            .variables
            .iter()
            .rposition(|variable| variable.name == name)?;
        self.uses_old_self |= position == 1;
        let Variable { kind, size, .. } = &self.variables[position];
        Some(Typed::new(Code::Var(position), kind.clone(), *size, 1))
    }

    /// Declares variables, and checks an expression that can use them.
    pub(super) fn with<T>(
        &mut self,
        variables: impl IntoIterator<Item = (String, Type, u64)>,
        check: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let outer = self.variables.len();
        for (name, kind, size) in variables {
            let size = kind.max_size().unwrap_or(size);
            self.variables.push(Variable { name, kind, size });
        }
        let result = check(self);
        self.variables.truncate(outer);
        result
    }

    fn select(&mut self, select: &SelectExpr) -> Result<Typed> {
        if let Some(value) = qualified(select).as_deref().and_then(type_value) {
            return Ok(value);
        }
        let of = self.check(&select.operand)?;
        let access = if select.test {
            Access::Has
        } else {
            Access::Get
        };
        field(of, &select.field, access)
    }

    fn list(&mut self, list: &ListExpr) -> Result<Typed> {
        let (mut entries, mut kind, mut cost, mut item_size) = (Vec::new(), None, 10_u64, 0);
        for (index, element) in list.elements.iter().enumerate() {
            let item = self.check(element)?;
            let is_optional = list.optional_indices.contains(&index);
            cost = cost.saturating_add(item.cost);
            item_size = item_size.max(item.size);
            kind = Some(join(kind, entry_type(&item.kind, is_optional)?)?);
            entries.push(Entry {
                code: item.code,
                is_optional,
            });
        }
        let size = entries.len() as u64;
        let kind = Type::list(kind.unwrap_or(Type::Dyn));
        Ok(Typed {
            item_size,
            ..Typed::new(Code::List(entries), kind, size, cost)
        })
    }

    fn map(&mut self, map: &MapExpr) -> Result<Typed> {
        let (mut entries, mut key, mut value) = (Vec::new(), None, None);
        let (mut cost, mut item_size) = (30_u64, 0);
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return Err("a map has no fields; use quoted keys".into());
            };
            let (one, other) = (self.check(&entry.key)?, self.check(&entry.value)?);
            cost = cost.saturating_add(one.cost).saturating_add(other.cost);
            item_size = item_size.max(other.size);
            key = Some(join(key, one.kind.plain())?);
            value = Some(join(value, entry_type(&other.kind, entry.optional)?)?);
            entries.push(Entry {
                code: (one.code, other.code),
                is_optional: entry.optional,
            });
        }
        let size = entries.len() as u64;
        let [key, value] = [key, value].map(|kind| Arc::new(kind.unwrap_or(Type::Dyn)));
        Ok(Typed {
            item_size,
            ..Typed::new(Code::Map(entries), Type::Map(key, value), size, cost)
        })
    }

    fn call(&mut self, call: &CallExpr) -> Result<Typed> {
        if let Some(checked) = self.macro_call(call) {
            return checked;
        }
        if call.target.is_none()
            && let Some(checked) = self.operator(&call.func_name, &call.args)
        {
            return checked;
        }
        let mut name = call.func_name.clone();
        let mut target = call.target.as_deref();
        // The target may be a namespace: `sets.contains(…)`.
        if let Some(Expr::Ident(prefix)) = target.map(|target| &target.expr)
            && functions::exists(&format!("{prefix}.{name}"))
            && self
                .variables
                .iter()
                .all(|variable| variable.name != *prefix)
        {
            name = format!("{prefix}.{name}");
            target = None;
        }
        if !functions::exists(&name) {
            return Err(undeclared(&name));
        }
        let arguments = target.into_iter().chain(&call.args);
        let arguments: Vec<_> = arguments.map(|it| self.check(it)).collect::<Result<_>>()?;
        function(&name, target.is_some(), arguments)
    }

    fn operator(&mut self, name: &str, arguments: &[Expression]) -> Option<Result<Typed>> {
        let operator = match (name, arguments) {
            (operators::LOGICAL_NOT, [of]) => return Some(self.check(of).and_then(not)),
            (operators::NEGATE, [of]) => return Some(self.check(of).and_then(negate)),
            (operators::LOGICAL_AND | operators::LOGICAL_OR, [one, other]) => {
                return Some(self.logic(name, one, other));
            }
            (operators::CONDITIONAL, [condition, yes, no]) => {
                return Some(self.conditional(condition, yes, no));
            }
            (operators::INDEX | operators::OPT_INDEX, [of, index]) => {
                return Some(self.index(of, index, name == operators::OPT_INDEX));
            }
            (operators::OPT_SELECT, [of, name]) => return Some(self.optional_select(of, name)),
            (operators::ADD, [_, _]) => Operator::Add,
            (operators::SUBSTRACT, [_, _]) => Operator::Subtract,
            (operators::MULTIPLY, [_, _]) => Operator::Multiply,
            (operators::DIVIDE, [_, _]) => Operator::Divide,
            (operators::MODULO, [_, _]) => Operator::Modulo,
            (operators::EQUALS, [_, _]) => Operator::Equal,
            (operators::NOT_EQUALS, [_, _]) => Operator::NotEqual,
            (operators::LESS, [_, _]) => Operator::Less,
            (operators::LESS_EQUALS, [_, _]) => Operator::LessEqual,
            (operators::GREATER, [_, _]) => Operator::Greater,
            (operators::GREATER_EQUALS, [_, _]) => Operator::GreaterEqual,
            (operators::IN, [_, _]) => Operator::In,
            _ => return None,
        };
        Some(self.binary(name, operator, &arguments[0], &arguments[1]))
    }

    fn logic(&mut self, name: &str, one: &Expression, other: &Expression) -> Result<Typed> {
        let (one, other) = (self.check(one)?, self.check(other)?);
        for side in [&one, &other] {
            expect_bool(name, side)?;
        }
        let cost = one.cost.saturating_add(other.cost);
        let sides = Box::new([one.code, other.code]);
        let code = if name == operators::LOGICAL_AND {
            Code::And(sides)
        } else {
            Code::Or(sides)
        };
        Ok(Typed::new(code, Type::Bool, 1, cost))
    }

    fn conditional(
        &mut self,
        condition: &Expression,
        yes: &Expression,
        no: &Expression,
    ) -> Result<Typed> {
        let condition = self.check(condition)?;
        expect_bool(operators::CONDITIONAL, &condition)?;
        let (yes, no) = (self.check(yes)?, self.check(no)?);
        let kind = unify(&yes.kind, &no.kind).ok_or_else(|| {
            no_overload(
                operators::CONDITIONAL,
                &[&condition.kind, &yes.kind, &no.kind],
            )
        })?;
        let cost = condition.cost.saturating_add(yes.cost.max(no.cost));
        let (size, item_size) = (yes.size.max(no.size), yes.item_size.max(no.item_size));
        let code = Code::Conditional(Box::new([condition.code, yes.code, no.code]));
        Ok(Typed {
            size,
            item_size,
            ..Typed::new(code, kind, size, cost)
        })
    }

    fn index(&mut self, of: &Expression, index: &Expression, is_optional: bool) -> Result<Typed> {
        let (of, index) = (self.check(of)?, self.check(index)?);
        let (of_kind, is_chained) = match of.kind.plain() {
            Type::Optional(inner) => (inner.plain(), true),
            kind => (kind, false),
        };
        let mismatch = || no_overload(operators::INDEX, &[&of.kind, &index.kind]);
        let item = match &of_kind {
            Type::List(item) if Type::Int.accepts(&index.kind, &mut Params::default()) => {
                (**item).clone()
            }
            Type::Map(key, value) if key.accepts(&index.kind, &mut Params::default()) => {
                (**value).clone()
            }
            Type::Dyn => Type::Dyn,
            _ => return Err(mismatch()),
        };
        let access = if is_optional {
            Access::Optional
        } else {
            Access::Get
        };
        let kind = if is_optional || is_chained {
            Type::optional(item.clone())
        } else {
            item.clone()
        };
        let cost = of.cost.saturating_add(index.cost).saturating_add(1);
        let size = item.max_size().unwrap_or(of.item_size);
        let code = Code::Index(Box::new(of.code), Box::new(index.code), access);
        Ok(Typed::new(code, kind, size, cost))
    }

    fn optional_select(&mut self, of: &Expression, name: &Expression) -> Result<Typed> {
        let Expr::Literal(LiteralValue::String(name)) = &name.expr else {
            return Err("unsupported optional field selection".into());
        };
        field(self.check(of)?, name.inner(), Access::Optional)
    }

    fn binary(
        &mut self,
        name: &str,
        operator: Operator,
        one: &Expression,
        other: &Expression,
    ) -> Result<Typed> {
        let (one, other) = (self.check(one)?, self.check(other)?);
        let kind = operator_type(operator, &one.kind.plain(), &other.kind.plain())
            .ok_or_else(|| no_overload(name, &[&one.kind, &other.kind]))?;
        let traversal = match operator {
            Operator::In => other.size,
            Operator::Add => tenth(one.size.saturating_add(other.size)),
            _ => tenth(one.size.min(other.size)),
        };
        let cost = one
            .cost
            .saturating_add(other.cost)
            .saturating_add(1)
            .saturating_add(traversal);
        let size = match operator {
            Operator::Add => one.size.saturating_add(other.size),
            _ => 1,
        };
        let item_size = one.item_size.max(other.item_size);
        let code = Code::Binary(operator, Box::new([one.code, other.code]));
        Ok(Typed {
            size,
            item_size,
            ..Typed::new(code, kind, size, cost)
        })
    }
}

/// Returns the field of a value.
fn field(of: Typed, name: &str, access: Access) -> Result<Typed> {
    let (of_kind, is_chained) = match of.kind.plain() {
        Type::Optional(inner) => (inner.plain(), true),
        kind => (kind, false),
    };
    let (key, kind) = match &of_kind {
        Type::Decl(decl) => {
            let found = decl
                .select(name)
                .ok_or_else(|| format!("undefined field '{name}'"))?;
            (found.0, Type::Decl(found.1.clone()))
        }
        Type::Map(_, value) => (name, (**value).clone()),
        Type::Dyn => (name, Type::Dyn),
        other => return Err(format!("type '{other}' does not support field selection")),
    };
    let size = kind.max_size().unwrap_or(of.item_size);
    let kind = match access {
        Access::Has => Type::Bool,
        Access::Optional => Type::optional(kind),
        Access::Get if is_chained => Type::optional(kind),
        Access::Get => kind,
    };
    // As on the real server, `has` itself is free.
    let cost = of.cost.saturating_add(u64::from(access != Access::Has));
    let code = Code::Select(Box::new(of.code), key.into(), access);
    Ok(Typed::new(code, kind, size, cost))
}

fn not(of: Typed) -> Result<Typed> {
    expect_bool(operators::LOGICAL_NOT, &of)?;
    let cost = of.cost.saturating_add(1);
    Ok(Typed::new(
        Code::Not(Box::new(of.code)),
        Type::Bool,
        1,
        cost,
    ))
}

fn negate(of: Typed) -> Result<Typed> {
    if !matches!(
        of.kind.plain(),
        Type::Int | Type::Double | Type::Duration | Type::Dyn
    ) {
        return Err(no_overload(operators::NEGATE, &[&of.kind]));
    }
    let cost = of.cost.saturating_add(1);
    Ok(Typed::new(
        Code::Negate(Box::new(of.code)),
        of.kind,
        1,
        cost,
    ))
}

fn constant(literal: &LiteralValue) -> Typed {
    let (value, kind) = match literal {
        LiteralValue::Boolean(value) => (Val::Bool(*value.inner()), Type::Bool),
        LiteralValue::Bytes(bytes) => (Val::Bytes(bytes.inner().into()), Type::Bytes),
        LiteralValue::Double(number) => (Val::Double(*number.inner()), Type::Double),
        LiteralValue::Int(number) => (Val::Int(*number.inner()), Type::Int),
        LiteralValue::Null => (Val::Null, Type::Null),
        LiteralValue::String(text) => (Val::text(text.inner()), Type::String),
        LiteralValue::UInt(number) => (Val::Uint(*number.inner()), Type::Uint),
    };
    let size = value.size() as u64;
    Typed::new(Code::Const(value), kind, size, 0)
}

/// Returns a type as a value.
fn type_value(name: &str) -> Option<Typed> {
    const NAMES: [&str; 13] = [
        "bool",
        "bytes",
        "double",
        "google.protobuf.Duration",
        "google.protobuf.Timestamp",
        "int",
        "list",
        "map",
        "null_type",
        "optional_type",
        "string",
        "type",
        "uint",
    ];
    let name = NAMES.into_iter().find(|it| *it == name)?;
    Some(Typed::new(Code::Const(Val::Type(name)), Type::Meta, 1, 1))
}

/// Returns a chain of names: `google.protobuf.Duration`.
fn qualified(select: &SelectExpr) -> Option<String> {
    let outer = match &select.operand.expr {
        Expr::Ident(name) => name.clone(),
        Expr::Select(inner) => match &inner.operand.expr {
            Expr::Ident(name) => format!("{name}.{}", inner.field),
            _ => return None,
        },
        _ => return None,
    };
    Some(format!("{outer}.{}", select.field))
}

/// Returns the type of an entry of a literal.
fn entry_type(kind: &Type, is_optional: bool) -> Result<Type> {
    match kind.plain() {
        Type::Optional(value) if is_optional => Ok((*value).clone()),
        Type::Dyn if is_optional => Ok(Type::Dyn),
        other if is_optional => Err(format!("expected type 'optional_type' but found '{other}'")),
        _ => Ok(kind.clone()),
    }
}

/// Returns the type of all entries of a literal, which must have one type.
fn join(previous: Option<Type>, next: Type) -> Result<Type> {
    let Some(previous) = previous else {
        return Ok(next);
    };
    unify(&previous, &next).ok_or_else(|| format!("expected type '{previous}' but found '{next}'"))
}

fn expect_bool(name: &str, of: &Typed) -> Result<()> {
    match of.kind.plain() {
        Type::Bool | Type::Dyn => Ok(()),
        _ => Err(no_overload(name, &[&of.kind])),
    }
}

fn undeclared(name: &str) -> String {
    format!(
        "undeclared reference to '{name}' (in container ''); see the differences of the embedded \
         server for functions that it does not have"
    )
}
