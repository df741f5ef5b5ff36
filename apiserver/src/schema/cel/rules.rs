//! Rules of a schema, compiled when its CRD is created.

use super::{
    super::{
        path::Path,
        structural::{entries, is_set},
    },
    check::{self, Checked},
    code::Code,
    field_path,
    types::{Decl, Kind, Type},
    validate,
};
use crate::status::{FieldError, FieldErrors};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// Largest estimated cost of a rule, and of all rules of a schema, as on the real server.
const MAX_RULE_COST: u64 = 10_000_000;
const MAX_TOTAL_COST: u64 = 100_000_000;
/// Number of most expensive rules that are named if all rules together are too expensive.
const MAX_NAMED: usize = 4;

/// Stack of the thread that compiles rules. The parser needs several KiB per level.
const STACK: usize = 64 << 20;
/// Longest time to compile the rules of a schema.
const MAX_TIME: Duration = Duration::from_secs(10);

const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// Rules of a value and of the values in it. Values without rules have no node.
pub(super) struct Node {
    pub(super) decl: Arc<Decl>,
    pub(super) rules: Vec<Rule>,
    pub(super) fields: BTreeMap<Box<str>, Node>,
    /// Rules of the items of a list or the values of a map.
    pub(super) element: Option<Box<Node>>,
}

/// A rule.
pub(super) struct Rule {
    pub(super) code: Code,
    pub(super) message_expression: Option<Code>,
    /// Message, empty if there is none.
    pub(super) message: String,
    /// Text of the rule.
    pub(super) text: String,
    pub(super) reason: Reason,
    /// Path of the error below the value, empty if there is none.
    pub(super) field_path: String,
    pub(super) uses_old_self: bool,
    pub(super) optional_old_self: bool,
}

/// Reason of a rule's error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Reason {
    #[default]
    Invalid,
    Required,
    Forbidden,
    Duplicate,
}

/// Compiles the rules of a schema on a thread with a large stack.
pub(super) fn compile(schema: &Value, path: &str, is_valid: bool) -> (Option<Node>, FieldErrors) {
    let run = || {
        let mut compiler = Compiler {
            errors: FieldErrors::new(),
            total_cost: 0,
            expensive: Vec::new(),
            started: Instant::now(),
        };
        let position = Position {
            max_count: Some(1),
            is_valid,
            uncorrelated: None,
        };
        let decl = Decl::new(schema, true);
        let (node, _) = compiler.node(schema, path, decl, &position);
        compiler.check_total(path);
        let mut errors = compiler.errors;
        if is_valid
            && errors.is_empty()
            && let Some(node) = &node
        {
            check_defaults(node, schema, path, &mut errors);
        }
        (node, errors)
    };
    let failed = |reason: &str| {
        let at = format!("{path}.x-kubernetes-validations");
        (None, FieldErrors::from(FieldError::forbidden(at, reason)))
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("cel".into()).stack_size(STACK);
        match thread.spawn_scoped(scope, run) {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|_| failed("the parser failed on a rule; simplify the rules")),
            Err(_) => failed("cannot start a thread to compile the rules; create the CRD again"),
        }
    })
}

/// Position of a schema.
#[derive(Clone, Copy)]
struct Position<'a> {
    /// How many such values an object can have. `None` if that is not limited.
    max_count: Option<u64>,
    /// The schema is valid apart from its rules.
    is_valid: bool,
    /// Path of the list whose items cannot be matched with old ones.
    uncorrelated: Option<&'a str>,
}

struct Compiler {
    errors: FieldErrors,
    total_cost: u64,
    /// Paths of expensive rules, with their cost.
    expensive: Vec<(u64, String)>,
    started: Instant,
}

impl Compiler {
    /// Compiles the rules at and below a schema. Returns also whether their fields are valid.
    fn node(
        &mut self,
        schema: &Value,
        path: &str,
        decl: Arc<Decl>,
        position: &Position<'_>,
    ) -> (Option<Node>, bool) {
        let mut is_valid = true;
        let max_count = position
            .max_count
            .and_then(|count| Some(count.saturating_mul(repetitions(schema)?)));
        let below = Position {
            max_count,
            ..*position
        };
        let mut element = None;
        if schema["additionalProperties"].is_object() {
            let values = &schema["additionalProperties"];
            let at = format!("{path}.additionalProperties");
            element = self.child(values, &at, decl.element.as_ref(), &below, &mut is_valid);
        }
        let mut fields = BTreeMap::new();
        for (name, property) in entries(&schema["properties"]) {
            let at = format!("{path}.properties[{name}]");
            let field = decl.fields.get(name.as_str());
            if let Some(node) = self.child(property, &at, field, &below, &mut is_valid) {
                fields.insert(name.as_str().into(), node);
            }
        }
        if schema["items"].is_object() {
            let uncorrelated = if schema["x-kubernetes-list-type"] == "map" {
                None
            } else {
                Some(path)
            };
            let uncorrelated = position.uncorrelated.or(uncorrelated);
            let below = Position {
                uncorrelated,
                ..below
            };
            let at = format!("{path}.items");
            element = self.child(
                &schema["items"],
                &at,
                decl.element.as_ref(),
                &below,
                &mut is_valid,
            );
        }
        let mut rules = Vec::new();
        let list = rules_of(schema);
        for (index, rule) in list.iter().enumerate() {
            let at = format!("{path}.x-kubernetes-validations[{index}]");
            is_valid &= self.check_fields(rule, schema, &at);
        }
        if is_valid && position.is_valid && !list.is_empty() {
            rules = self.rules(schema, path, &decl, position);
        }
        let is_empty = rules.is_empty() && fields.is_empty() && element.is_none();
        let element = element.map(Box::new);
        (
            (!is_empty).then_some(Node {
                decl,
                rules,
                fields,
                element,
            }),
            is_valid,
        )
    }

    fn child(
        &mut self,
        schema: &Value,
        path: &str,
        decl: Option<&Arc<Decl>>,
        position: &Position<'_>,
        is_valid: &mut bool,
    ) -> Option<Node> {
        let resource = is_set(schema, "x-kubernetes-embedded-resource");
        let decl = decl.cloned().unwrap_or_else(|| Decl::new(schema, resource));
        let (node, child_is_valid) = self.node(schema, path, decl, position);
        *is_valid &= child_is_valid;
        node
    }

    /// Checks the fields of a rule, except for its expressions.
    fn check_fields(&mut self, rule: &Value, schema: &Value, path: &str) -> bool {
        let text = |key: &str| rule[key].as_str().unwrap_or_default();
        let at = |key: &str| format!("{path}.{key}");
        let before = self.errors.len();
        let (trimmed, message) = (text("rule").trim(), text("message").trim());
        if trimmed.is_empty() {
            self.errors
                .push(FieldError::required(at("rule"), "rule is not specified"));
        } else if !text("message").is_empty() && message.is_empty() {
            self.errors.push(FieldError::invalid(
                at("message"),
                &rule["message"],
                "must be non-empty if specified",
            ));
        } else if has_line_breaks(message) {
            self.errors.push(FieldError::invalid(
                at("message"),
                &rule["message"],
                "must not contain line breaks",
            ));
        } else if has_line_breaks(trimmed) && message.is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            self.errors
                .push(FieldError::required(at("message"), detail));
        }
        let expression = text("messageExpression");
        if !expression.is_empty() && expression.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            self.errors
                .push(FieldError::required(at("messageExpression"), detail));
        }
        if rule["reason"].is_string() && !REASONS.contains(&text("reason")) {
            self.errors.push(FieldError::not_supported(
                at("reason"),
                &rule["reason"],
                REASONS,
            ));
        }
        let field_path = text("fieldPath");
        if !field_path.is_empty() {
            if field_path.trim().is_empty() {
                let detail = "must be non-empty if specified";
                self.errors.push(FieldError::invalid(
                    at("fieldPath"),
                    &rule["fieldPath"],
                    detail,
                ));
            }
            if has_line_breaks(field_path) {
                let detail = "must not contain line breaks";
                self.errors.push(FieldError::invalid(
                    at("fieldPath"),
                    &rule["fieldPath"],
                    detail,
                ));
            }
            if field_path::normalize(field_path, schema).is_none() {
                let detail = "must be a valid path";
                self.errors.push(FieldError::invalid(
                    at("fieldPath"),
                    &rule["fieldPath"],
                    detail,
                ));
            }
        }
        self.errors.len() == before
    }

    /// Compiles the rules of one value.
    fn rules(
        &mut self,
        schema: &Value,
        path: &str,
        decl: &Arc<Decl>,
        position: &Position<'_>,
    ) -> Vec<Rule> {
        let mut compiled = Vec::new();
        if decl.kind == Kind::Hidden {
            let detail = "internal error: failed to construct type information for x-kubernetes-validations rules: \
                          unable to convert structural schema to CEL declarations";
            let at = format!("{path}.x-kubernetes-validations");
            self.errors.push(FieldError::internal(at, detail));
            return compiled;
        }
        for (index, rule) in rules_of(schema).iter().enumerate() {
            let at = format!("{path}.x-kubernetes-validations[{index}]");
            if self.errors.is_full() {
                break;
            }
            if self.started.elapsed() > MAX_TIME {
                let detail = "compiling the rules takes too long; use fewer or simpler rules";
                self.errors
                    .push(FieldError::forbidden(format!("{at}.rule"), detail));
                break;
            }
            compiled.extend(self.rule(rule, schema, &at, decl, position));
        }
        compiled
    }

    fn rule(
        &mut self,
        rule: &Value,
        schema: &Value,
        path: &str,
        decl: &Arc<Decl>,
        position: &Position<'_>,
    ) -> Option<Rule> {
        let text = |key: &str| rule[key].as_str().unwrap_or_default();
        let at = |key: &str| format!("{path}.{key}");
        let optional_old_self = rule["optionalOldSelf"] == true;
        let checked = check::check(text("rule"), decl, optional_old_self)
            .map_err(|error| format!("compilation failed: {error}"))
            .and_then(|checked| match checked.kind.plain() {
                Type::Bool => Ok(checked),
                _ => Err("cel expression must evaluate to a bool".into()),
            });
        let uses_old_self = checked.as_ref().is_ok_and(|checked| checked.uses_old_self);
        if !uses_old_self && !rule["optionalOldSelf"].is_null() {
            let detail = "may not be set if oldSelf is not used in rule";
            let value = &rule["optionalOldSelf"];
            self.errors
                .push(FieldError::invalid(at("optionalOldSelf"), value, detail));
        }
        let Checked { code, cost, .. } = match checked {
            Ok(checked) => checked,
            Err(detail) => {
                self.errors.push(FieldError::invalid_formatted(
                    at("rule"),
                    &formatted(rule),
                    detail,
                ));
                return None;
            }
        };
        let max_count = position.max_count.unwrap_or_else(|| decl.max_per_request());
        let cost = cost.saturating_mul(max_count);
        self.check_cost(cost, at("rule"), "estimated rule cost");
        let message_expression = self.message_expression(rule, path, decl);
        if uses_old_self && let Some(list) = position.uncorrelated {
            let detail = format!(
                "oldSelf cannot be used on the uncorrelatable portion of the schema within {list}"
            );
            self.errors
                .push(FieldError::invalid(at("rule"), &rule["rule"], detail));
        }
        let field_path = text("fieldPath");
        Some(Rule {
            code,
            message_expression,
            message: text("message").trim().into(),
            text: text("rule").trim().into(),
            reason: match text("reason") {
                "FieldValueRequired" => Reason::Required,
                "FieldValueForbidden" => Reason::Forbidden,
                "FieldValueDuplicate" => Reason::Duplicate,
                _ => Reason::Invalid,
            },
            field_path: match field_path {
                "" => String::new(),
                path => field_path::normalize(path, schema).unwrap_or_default(),
            },
            uses_old_self,
            optional_old_self,
        })
    }

    fn message_expression(&mut self, rule: &Value, path: &str, decl: &Arc<Decl>) -> Option<Code> {
        let text = rule["messageExpression"]
            .as_str()
            .filter(|text| !text.is_empty())?;
        let at = format!("{path}.messageExpression");
        let checked = check::check(text, decl, rule["optionalOldSelf"] == true)
            .map_err(|error| format!("messageExpression compilation failed: {error}"))
            .and_then(|checked| match checked.kind.plain() {
                Type::String => Ok(checked),
                _ => Err("messageExpression must evaluate to a string".into()),
            });
        match checked {
            Ok(checked) => {
                self.check_cost(checked.cost, at, "estimated messageExpression cost");
                Some(checked.code)
            }
            Err(detail) => {
                self.errors
                    .push(FieldError::invalid_formatted(at, &formatted(rule), detail));
                None
            }
        }
    }

    /// Checks the cost of an expression, and adds it to the total.
    fn check_cost(&mut self, cost: u64, path: String, name: &str) {
        if cost > MAX_RULE_COST {
            self.errors.push(FieldError::forbidden(
                path.clone(),
                exceeds(name, cost, MAX_RULE_COST),
            ));
        }
        self.total_cost = self.total_cost.saturating_add(cost);
        if cost >= MAX_TOTAL_COST / 100 {
            self.expensive.push((cost, path));
        }
    }

    fn check_total(&mut self, path: &str) {
        if self.total_cost <= MAX_TOTAL_COST {
            return;
        }
        self.expensive
            .sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
        for (_, path) in self.expensive.drain(..).take(MAX_NAMED) {
            let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            self.errors.push(FieldError::forbidden(path, detail));
        }
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        self.errors.push(FieldError::forbidden(
            path,
            exceeds(name, self.total_cost, MAX_TOTAL_COST),
        ));
    }
}

/// Returns the rules of a schema, without those below it.
fn rules_of(schema: &Value) -> &[Value] {
    schema["x-kubernetes-validations"]
        .as_array()
        .map_or(&[], Vec::as_slice)
}

/// Returns the factor by which a schema multiplies the number of values in it. `None` if it has no
/// limit.
fn repetitions(schema: &Value) -> Option<u64> {
    match schema["type"].as_str() {
        Some("object") if !schema["additionalProperties"].is_null() => {
            schema["maxProperties"].as_u64()
        }
        Some("array") => schema["maxItems"].as_u64(),
        _ => Some(1),
    }
}

#[expect(clippy::cast_precision_loss, reason = "the factor is approximate")]
fn exceeds(name: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".into()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, \
         and maxLength where arrays, maps, and strings are declared)"
    )
}

/// Returns a rule as the real server writes it in an error.
fn formatted(rule: &Value) -> String {
    let text = |key: &str| json!(rule[key].as_str().unwrap_or_default());
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        text("rule"),
        text("message"),
        text("messageExpression"),
        rule["reason"],
        text("fieldPath"),
        rule["optionalOldSelf"]
    )
    .replace('<', "\\u003c")
    .replace('>', "\\u003e")
    .replace('&', "\\u0026")
}

fn has_line_breaks(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

/// Evaluates the rules on the defaults of the schema.
fn check_defaults(node: &Node, schema: &Value, path: &str, errors: &mut FieldErrors) {
    let default = &schema["default"];
    if !default.is_null() {
        let at = format!("{path}.default");
        // Also as an update, so that rules about changes are evaluated.
        for old in [Some(default), None] {
            let found = validate::validate_at(node, default, old, &Path::ROOT.field(&at));
            let failed = !found.errors.is_empty();
            errors.extend(found.errors);
            if failed {
                break;
            }
        }
    }
    for (name, field) in &node.fields {
        let at = format!("{path}.properties[{name}]");
        check_defaults(field, &schema["properties"][&**name], &at, errors);
    }
    if let Some(element) = &node.element {
        for key in ["items", "additionalProperties"] {
            if schema[key].is_object() {
                check_defaults(element, &schema[key], &format!("{path}.{key}"), errors);
            }
        }
    }
}
