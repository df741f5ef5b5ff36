//! Evaluation of the rules of an object.
//!
//! On update, `oldSelf` is the value at the same place of the old object. Items of a list are
//! matched only if the list is a map. Errors of an unchanged value become warnings, unless the rule
//! compares the value with the old one (ratcheting).

use super::{
    super::{ListType, path::Path, validate::NO_FIELD},
    Violations,
    code::Code,
    convert::format_double,
    eval::{self, Failure},
    rules::{Node, Reason, Rule},
    types::{Decl, Kind},
    value::Val,
};
use crate::status::{FieldError, FieldErrorKind};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Most steps of all rules of an object, as on the real server.
const MAX_STEPS: u64 = 10_000_000;
/// Longest message of a message expression, in bytes.
const MAX_MESSAGE: usize = 5 << 10;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Evaluates the rules of an object that replaces `old`, if any.
pub(super) fn validate(root: &Node, object: &Value, old: Option<&Value>) -> Violations {
    validate_at(root, object, old, &Path::ROOT)
}

/// Evaluates the rules of a value at a path.
pub(super) fn validate_at(
    node: &Node,
    value: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
) -> Violations {
    let mut walk = Walk {
        found: Violations::default(),
        steps: 0,
    };
    let pair = old.map(|old| Pair {
        value,
        old,
        decl: &node.decl,
    });
    let ratchet = Ratchet {
        current: pair.filter(|_| path.is_root()),
        nearest: None,
    };
    // An error has been reported if the walk stopped early.
    let _ = walk.value(node, value, old, ratchet, path);
    walk.found
}

/// No further rule is evaluated.
struct Stop;

type Result = std::result::Result<(), Stop>;

struct Walk {
    found: Violations,
    steps: u64,
}

/// A value and the old value at its place.
#[derive(Clone, Copy)]
struct Pair<'a> {
    value: &'a Value,
    old: &'a Value,
    decl: &'a Decl,
}

/// Decides whether errors of a value are only warnings.
#[derive(Clone, Copy)]
struct Ratchet<'a> {
    /// The value with its old value, if it has one.
    current: Option<Pair<'a>>,
    /// The nearest surrounding value that has an old value.
    nearest: Option<Pair<'a>>,
}

impl Walk {
    fn value(
        &mut self,
        node: &Node,
        value: &Value,
        old: Option<&Value>,
        ratchet: Ratchet<'_>,
        path: &Path<'_>,
    ) -> Result {
        if value.is_null() {
            return Ok(());
        }
        let old = old.filter(|old| !old.is_null());
        self.rules(node, value, old, ratchet, path)?;
        match value {
            Value::Array(items) => {
                let Some(element) = &node.element else {
                    return Ok(());
                };
                let before = OldItems::new(&node.decl, old);
                for (index, item) in items.iter().enumerate() {
                    let old = before.find(item);
                    let ratchet = ratchet.below(|pair| pair.item(item, old));
                    self.value(element, item, old, ratchet, &path.index(index))?;
                }
            }
            Value::Object(map) => {
                for (name, value) in map {
                    let (below, path) = match (node.fields.get(name.as_str()), &node.element) {
                        (Some(below), _) => (below, path.field(name)),
                        (None, Some(below)) => (&**below, path.key(name)),
                        _ => continue,
                    };
                    let old = old.and_then(|old| old.get(name));
                    self.value(below, value, old, ratchet.field(name), &path)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Evaluates the rules of one value.
    fn rules(
        &mut self,
        node: &Node,
        value: &Value,
        old: Option<&Value>,
        ratchet: Ratchet<'_>,
        path: &Path<'_>,
    ) -> Result {
        if node.rules.is_empty() {
            return Ok(());
        }
        if self.found.errors.is_full() {
            return Err(Stop);
        }
        let site = Site {
            node,
            value,
            path,
            this: Val::new(value, &node.decl),
            old: old
                .filter(|_| node.rules.iter().any(|rule| rule.uses_old_self))
                .map(|old| Val::new(old, &node.decl)),
            has_old: old.is_some(),
        };
        for rule in &node.rules {
            if rule.uses_old_self && !site.has_old && !rule.optional_old_self {
                continue;
            }
            let old = if rule.optional_old_self {
                Val::Optional(site.old.clone().map(std::sync::Arc::new))
            } else {
                site.old()
            };
            let result = match self.run(&rule.code, &site, old) {
                Ok(result) => result,
                Err(failure) => {
                    let (detail, stop) = describe(&failure, rule);
                    self.found.errors.push(site.failure(detail));
                    if stop {
                        return Err(Stop);
                    }
                    continue;
                }
            };
            if matches!(result, Val::Bool(true)) {
                continue;
            }
            let is_unchanged = !rule.uses_old_self && ratchet.is_unchanged();
            let (error, stop) = match self.message(rule, &site) {
                Ok(message) => {
                    let default = if rule.message.is_empty() {
                        format!("failed rule: {}", rule.text)
                    } else {
                        rule.message.clone()
                    };
                    (site.error(rule, &message.unwrap_or(default)), false)
                }
                Err(detail) => (site.failure(detail).at(site.field(rule)), true),
            };
            if is_unchanged {
                self.found.warnings.push(error.to_string());
            } else {
                self.found.errors.push(error);
            }
            if stop {
                return Err(Stop);
            }
        }
        Ok(())
    }

    /// Evaluates an expression. Fails if all expressions together have taken too many steps.
    fn run(&mut self, code: &Code, site: &Site<'_>, old: Val) -> eval::Result<Val> {
        if self.steps > MAX_STEPS {
            return Err(Failure::new(OUT_OF_BUDGET));
        }
        let (result, steps) = eval::evaluate(code, vec![site.this.clone(), old]);
        self.steps = self.steps.saturating_add(steps);
        if self.steps > MAX_STEPS {
            return Err(Failure::new(OUT_OF_BUDGET));
        }
        result
    }

    /// Returns the message of the rule's expression, or `None` if it has no usable message.
    ///
    /// Errors: no further rules can be evaluated.
    fn message(
        &mut self,
        rule: &Rule,
        site: &Site<'_>,
    ) -> std::result::Result<Option<String>, String> {
        let Some(code) = &rule.message_expression else {
            return Ok(None);
        };
        match self.run(code, site, site.old()) {
            Ok(Val::String(text)) => {
                let text = text.trim();
                let is_usable = !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains(['\n', '\r']);
                Ok(is_usable.then(|| text.into()))
            }
            Err(Failure::Limit) => Err(
                "no further validation rules will be run due to call cost exceeds limit for messageExpression".into(),
            ),
            Err(Failure::Other(text)) if text == OUT_OF_BUDGET => Err(
                "messageExpression evaluation failed due to running out of cost budget, no further validation \
                 rules will be run"
                    .into(),
            ),
            _ => Ok(None),
        }
    }
}

/// A value with rules.
struct Site<'a> {
    node: &'a Node,
    value: &'a Value,
    path: &'a Path<'a>,
    this: Val,
    old: Option<Val>,
    has_old: bool,
}

impl Site<'_> {
    /// Returns `oldSelf`. Using it is an error if there is none.
    fn old(&self) -> Val {
        let missing = || Val::Invalid("no such attribute(s): oldSelf".into());
        self.old.clone().unwrap_or_else(missing)
    }

    /// Returns the path of a rule's error.
    fn field(&self, rule: &Rule) -> String {
        match (self.path.is_root(), &*rule.field_path) {
            (true, "") => NO_FIELD.into(),
            (true, field) => field.into(),
            (false, "") => self.path.to_string(),
            (false, field) => format!("{}.{field}", self.path),
        }
    }

    /// Returns an error of the evaluation.
    fn failure(&self, detail: String) -> FieldError {
        let field = if self.path.is_root() {
            NO_FIELD.into()
        } else {
            self.path.to_string()
        };
        FieldError::invalid(field, &json!(self.node.decl.schema_type), detail)
    }

    /// Returns the error of a rule that the value violates.
    fn error(&self, rule: &Rule, message: &str) -> FieldError {
        let field = self.field(rule);
        let shown = match self.node.decl.kind {
            Kind::List | Kind::Map | Kind::Object => String::new(),
            _ => match self.value.as_f64().filter(|_| self.value.is_f64()) {
                Some(number) => format!(": {}", format_double(number)),
                None => format!(": {}", self.value),
            },
        };
        let (kind, body) = match rule.reason {
            Reason::Required => return FieldError::required(field, message),
            Reason::Forbidden => return FieldError::forbidden(field, message),
            Reason::Invalid => (
                FieldErrorKind::Invalid,
                format!("Invalid value{shown}: {message}"),
            ),
            Reason::Duplicate => (FieldErrorKind::Duplicate, format!("Duplicate value{shown}")),
        };
        FieldError { kind, field, body }
    }
}

impl FieldError {
    fn at(self, field: String) -> Self {
        Self { field, ..self }
    }
}

/// Returns the text of an error, and whether no further rules are evaluated.
fn describe(failure: &Failure, rule: &Rule) -> (String, bool) {
    let name = if rule.message.is_empty() {
        &rule.text
    } else {
        &rule.message
    };
    match failure {
        Failure::Limit => (
            format!(
                "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to \
                 call cost exceeds limit for rule: {name}"
            ),
            true,
        ),
        Failure::NoOverload => (
            format!(
                "'no such overload': call arguments did not match a supported operator, function or macro signature \
                 for rule: {name}"
            ),
            false,
        ),
        Failure::Other(text) if text == OUT_OF_BUDGET => (text.clone(), true),
        Failure::Other(text) => (format!("{text} evaluating rule: {name}"), false),
    }
}

impl<'a> Ratchet<'a> {
    fn is_unchanged(&self) -> bool {
        self.current
            .or(self.nearest)
            .is_some_and(Pair::is_unchanged)
    }

    /// Returns the state for a field. The type of an object always counts as changed, since it is
    /// converted.
    fn field(self, name: &str) -> Self {
        if self.current.is_some() && self.nearest.is_none() && matches!(name, "apiVersion" | "kind")
        {
            return Ratchet {
                current: None,
                nearest: None,
            };
        }
        self.below(|pair| pair.field(name))
    }

    fn below(self, find: impl FnOnce(Pair<'a>) -> Option<Pair<'a>>) -> Self {
        match self.current {
            None => self,
            Some(pair) => Ratchet {
                current: find(pair),
                nearest: Some(pair),
            },
        }
    }
}

impl<'a> Pair<'a> {
    fn field(self, name: &str) -> Option<Self> {
        let decl = self.decl.fields.get(name).or(self.decl.element.as_ref())?;
        Some(Pair {
            value: self.value.get(name)?,
            old: self.old.get(name)?,
            decl,
        })
    }

    fn item(self, value: &'a Value, old: Option<&'a Value>) -> Option<Self> {
        Some(Pair {
            value,
            old: old?,
            decl: self.decl.element.as_deref()?,
        })
    }

    /// Reports whether the value equals the old one. Unknown fields count as changed, and items of
    /// maps may change their order.
    fn is_unchanged(self) -> bool {
        match (self.value, self.old) {
            (Value::Array(items), Value::Array(old)) => {
                if items.len() != old.len() {
                    return false;
                }
                if !matches!(self.decl.list, ListType::Map(_)) {
                    return items == old;
                }
                let before = OldItems::new(self.decl, Some(self.old));
                items.iter().all(|item| {
                    let pair = self.item(item, before.find(item));
                    pair.is_some_and(Pair::is_unchanged)
                })
            }
            (Value::Object(map), Value::Object(old)) => {
                let is_unchanged = |name: &String| self.field(name).is_some_and(Pair::is_unchanged);
                map.len() == old.len() && map.keys().all(is_unchanged)
            }
            (value, old) => value == old,
        }
    }
}

/// Items of an old list, by their keys.
struct OldItems<'a> {
    keys: &'a [String],
    items: HashMap<String, &'a Value>,
}

impl<'a> OldItems<'a> {
    fn new(decl: &'a Decl, old: Option<&'a Value>) -> Self {
        let ListType::Map(keys) = &decl.list else {
            return Self {
                keys: &[],
                items: HashMap::new(),
            };
        };
        let items = old.and_then(Value::as_array).into_iter().flatten();
        let items = items.filter_map(|item| Some((key_text(item.as_object()?, keys), item)));
        Self {
            keys,
            items: items.collect(),
        }
    }

    fn find(&self, item: &Value) -> Option<&'a Value> {
        self.items
            .get(&key_text(item.as_object()?, self.keys))
            .copied()
    }
}

/// Returns a text that identifies an item.
fn key_text(item: &Map<String, Value>, keys: &[String]) -> String {
    let values: Vec<_> = keys.iter().map(|key| item.get(key)).collect();
    json!(values).to_string()
}
