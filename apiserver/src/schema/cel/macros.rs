//! Macros: expressions that are evaluated for each item of a list or map.

use super::{
    calls::no_overload,
    check::{Checker, Result, Typed},
    code::{Code, Fold, FoldKind},
    types::{MAX_REQUEST, Type},
};
use kube_cel::cel::{
    IdedExpr as Expression,
    common::ast::{CallExpr, ComprehensionExpr, Expr, LiteralValue, operators},
};
use std::sync::Arc;

/// Cost of one iteration besides the expression.
const ITERATION: u64 = 3;
/// Cost of adding an item to a result.
const ITEM: u64 = 12;

/// Parts of a macro call.
struct Parts<'a> {
    kind: FoldKind,
    variables: Vec<String>,
    filter: Option<&'a Expression>,
    body: &'a Expression,
}

impl Checker {
    /// Checks a macro that the parser has expanded to a loop. The parts of the macro are read from
    /// the loop's step.
    pub(super) fn comprehension(&mut self, of: &ComprehensionExpr) -> Result<Typed> {
        let unknown = || String::from("unsupported macro");
        let Expr::Call(step) = &of.loop_step.expr else {
            return Err(unknown());
        };
        let (kind, filter, body) = match (&of.accu_init.expr, &step.args[..]) {
            (Expr::Literal(LiteralValue::Boolean(initial)), [_, body]) => {
                let kind = if *initial.inner() {
                    FoldKind::All
                } else {
                    FoldKind::Exists
                };
                (kind, None, body)
            }
            (Expr::Literal(LiteralValue::Int(_)), [body, _, _]) => {
                (FoldKind::ExistsOne, None, body)
            }
            (Expr::List(_), [_, item]) => (
                FoldKind::Collect,
                None,
                only_item(item).ok_or_else(unknown)?,
            ),
            (Expr::List(_), [filter, add, _]) => {
                let item = match &add.expr {
                    Expr::Call(add) if add.func_name == operators::ADD => add.args.get(1),
                    _ => None,
                };
                (
                    FoldKind::Collect,
                    Some(filter),
                    item.and_then(only_item).ok_or_else(unknown)?,
                )
            }
            _ => return Err(unknown()),
        };
        let variables = vec![of.iter_var.clone()];
        self.fold(
            &of.iter_range,
            Parts {
                kind,
                variables,
                filter,
                body,
            },
        )
    }

    /// Checks a macro that the parser does not know. `None` if the call is not one.
    pub(super) fn macro_call(&mut self, call: &CallExpr) -> Option<Result<Typed>> {
        let target = call.target.as_deref()?;
        let name = |at: usize| match call.args.get(at).map(|argument| &argument.expr) {
            Some(Expr::Ident(name)) => Some(name.clone()),
            _ => None,
        };
        let one = || Some(vec![name(0)?]);
        let two = || Some(vec![name(0)?, name(1)?]);
        let (kind, variables, filter, body) = match (call.func_name.as_str(), &call.args[..]) {
            ("optMap" | "optFlatMap", [_, body]) => {
                return Some(self.optional_map(
                    target,
                    name(0)?,
                    body,
                    call.func_name == "optFlatMap",
                ));
            }
            ("sortBy", [_, body]) => (FoldKind::Sort, one()?, None, body),
            ("all", [_, _, body]) => (FoldKind::All, two()?, None, body),
            ("exists", [_, _, body]) => (FoldKind::Exists, two()?, None, body),
            ("existsOne" | "exists_one", [_, _, body]) => (FoldKind::ExistsOne, two()?, None, body),
            ("transformList", [_, _, body]) => (FoldKind::Collect, two()?, None, body),
            ("transformList", [_, _, filter, body]) => {
                (FoldKind::Collect, two()?, Some(filter), body)
            }
            ("transformMap", [_, _, body]) => (FoldKind::CollectMap, two()?, None, body),
            ("transformMap", [_, _, filter, body]) => {
                (FoldKind::CollectMap, two()?, Some(filter), body)
            }
            _ => return None,
        };
        Some(self.fold(
            target,
            Parts {
                kind,
                variables,
                filter,
                body,
            },
        ))
    }

    fn fold(&mut self, range: &Expression, parts: Parts<'_>) -> Result<Typed> {
        let range = self.check(range)?;
        let (key, item) = match range.kind.plain() {
            Type::List(item) => (Type::Int, (*item).clone()),
            Type::Map(key, value) => ((*key).clone(), (*value).clone()),
            Type::Dyn => (Type::Dyn, Type::Dyn),
            other => {
                return Err(format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or \
                     dynamic)"
                ));
            }
        };
        let is_map = matches!(range.kind.plain(), Type::Map(..));
        let has_two_variables = parts.variables.len() == 2;
        let kinds = match (has_two_variables, is_map) {
            (true, _) => vec![key.clone(), item.clone()],
            (false, true) => vec![key.clone()],
            (false, false) => vec![item.clone()],
        };
        let item_size = if is_map {
            range.item_size.max(MAX_REQUEST)
        } else {
            range.item_size
        };
        let variables = parts
            .variables
            .into_iter()
            .zip(kinds)
            .map(|(name, kind)| (name, kind, item_size));
        let (filter, body) = self.with(variables, |checker| {
            let filter = parts
                .filter
                .map(|filter| checker.check(filter))
                .transpose()?;
            Ok((filter, checker.check(parts.body)?))
        })?;
        let conditions = filter.iter().chain(
            matches!(
                parts.kind,
                FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne
            )
            .then_some(&body),
        );
        for condition in conditions {
            if !matches!(condition.kind.plain(), Type::Bool | Type::Dyn) {
                return Err(format!(
                    "expected type 'bool' but found '{}'",
                    condition.kind
                ));
            }
        }
        let (result, added) = match parts.kind {
            FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne => (Type::Bool, 0),
            FoldKind::Collect => (Type::list(body.kind.clone()), ITEM),
            FoldKind::CollectMap => (Type::Map(Arc::new(key), Arc::new(body.kind.clone())), ITEM),
            FoldKind::Sort => (Type::list(item), ITEM),
        };
        let filter_cost = filter.as_ref().map_or(0, |filter| filter.cost);
        let each = filter_cost
            .saturating_add(body.cost)
            .saturating_add(ITERATION + added);
        let cost = range
            .cost
            .saturating_add(range.size.saturating_mul(each))
            .saturating_add(1);
        let item_size = if parts.kind == FoldKind::Sort {
            item_size
        } else {
            body.size
        };
        let size = range.size;
        let code = Code::Fold(Box::new(Fold {
            kind: parts.kind,
            range: range.code,
            has_two_variables,
            filter: filter.map(|filter| filter.code),
            body: body.code,
        }));
        Ok(Typed {
            size,
            item_size,
            ..Typed::new(code, result, size, cost)
        })
    }

    fn optional_map(
        &mut self,
        of: &Expression,
        name: String,
        body: &Expression,
        is_flat: bool,
    ) -> Result<Typed> {
        let of = self.check(of)?;
        let value = match of.kind.plain() {
            Type::Optional(value) => (*value).clone(),
            Type::Dyn => Type::Dyn,
            _ => return Err(no_overload("optMap", &[&of.kind])),
        };
        let body = self.with([(name, value, of.size)], |checker| checker.check(body))?;
        let kind = match body.kind.plain() {
            Type::Optional(_) | Type::Dyn if is_flat => body.kind.clone(),
            other if is_flat => return Err(no_overload("optFlatMap", &[&of.kind, &other])),
            _ => Type::optional(body.kind.clone()),
        };
        let cost = of.cost.saturating_add(body.cost).saturating_add(1);
        let code = Code::OptionalMap {
            of: Box::new(of.code),
            body: Box::new(body.code),
            is_flat,
        };
        Ok(Typed {
            item_size: body.item_size,
            ..Typed::new(code, kind, body.size, cost)
        })
    }
}

/// Returns the item of a list literal with one item.
fn only_item(list: &Expression) -> Option<&Expression> {
    match &list.expr {
        Expr::List(list) => list.elements.first(),
        _ => None,
    }
}
