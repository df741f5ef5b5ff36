//! Label and field selectors of lists and watches.
//!
//! A negative requirement also selects objects that do not have the key.

mod field;

pub(crate) use field::FieldSelector;

use crate::{
    meta::names,
    status::{Failure, FieldError, Result},
};
use serde_json::Value;
use std::{collections::BTreeSet, iter::Peekable, vec};

/// A label selector: all requirements hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    Exists,
    Absent,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    /// Parses `a=b,c!=d,e in (f,g),h notin (),i,!j,k>1,l<2`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        requirements(text).map(Self).map_err(Failure::bad_request)
    }

    /// Reports whether it selects all objects.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reports whether it selects an object. `get` returns the value of a label.
    pub(crate) fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        let number = |value: Option<&str>| value?.parse::<i64>().ok();
        self.0.iter().all(|Requirement { key, operator }| {
            let found = get(key);
            match operator {
                Operator::Exists => found.is_some(),
                Operator::Absent => found.is_none(),
                Operator::In(values) => found.is_some_and(|value| values.contains(value)),
                Operator::NotIn(values) => found.is_none_or(|value| !values.contains(value)),
                Operator::Greater(bound) => number(found).is_some_and(|value| value > *bound),
                Operator::Less(bound) => number(found).is_some_and(|value| value < *bound),
            }
        })
    }
}

/// A symbol, or a word: a key, a value, `in` or `notin`, depending on its position.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SelectorToken {
    Symbol(&'static str),
    Word(String),
}

impl SelectorToken {
    fn text(token: Option<&Self>) -> &str {
        match token {
            None => "",
            Some(Self::Symbol(symbol)) => symbol,
            Some(Self::Word(word)) => word,
        }
    }
}

type Tokens = Peekable<vec::IntoIter<SelectorToken>>;

/// Longer symbols are before their prefixes.
const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

fn tokens(mut rest: &str) -> Tokens {
    let is_blank = |c: char| " \t\r\n".contains(c);
    let ends_word = |c: char| is_blank(c) || "=!(),><".contains(c);
    let mut tokens = Vec::new();
    loop {
        rest = rest.trim_start_matches(is_blank);
        if rest.is_empty() {
            return tokens.into_iter().peekable();
        }
        let token = match SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) {
            Some(symbol) => SelectorToken::Symbol(symbol),
            None => SelectorToken::Word(rest[..rest.find(ends_word).unwrap_or(rest.len())].into()),
        };
        rest = &rest[SelectorToken::text(Some(&token)).len()..];
        tokens.push(token);
    }
}

fn requirements(text: &str) -> Result<Vec<Requirement>, String> {
    let mut tokens = tokens(text);
    let mut found = Vec::new();
    let starts_requirement = |token: Option<&SelectorToken>| {
        matches!(
            token,
            Some(SelectorToken::Word(_) | SelectorToken::Symbol("!"))
        )
    };
    match tokens.peek() {
        None => return Ok(found),
        first if starts_requirement(first) => {}
        first => {
            return Err(format!(
                "found '{}', expected: !, identifier, or 'end of string'",
                SelectorToken::text(first)
            ));
        }
    }
    loop {
        found.push(
            requirement(&mut tokens)
                .map_err(|error| format!("unable to parse requirement: {error}"))?,
        );
        match tokens.next() {
            None => return Ok(found),
            Some(SelectorToken::Symbol(",")) if starts_requirement(tokens.peek()) => {}
            Some(SelectorToken::Symbol(",")) => {
                return Err(format!(
                    "found '{}', expected: identifier after ','",
                    SelectorToken::text(tokens.peek())
                ));
            }
            other => {
                return Err(format!(
                    "found '{}', expected: ',' or 'end of string'",
                    SelectorToken::text(other.as_ref())
                ));
            }
        }
    }
}

fn requirement(tokens: &mut Tokens) -> Result<Requirement, String> {
    let negated = tokens.next_if_eq(&SelectorToken::Symbol("!")).is_some();
    let key = match tokens.next() {
        Some(SelectorToken::Word(key)) => key,
        other => {
            return Err(format!(
                "found '{}', expected: identifier",
                SelectorToken::text(other.as_ref())
            ));
        }
    };
    let problems = names::qualified(&key);
    if !problems.is_empty() {
        return Err(
            FieldError::invalid("<nil>", &Value::from(key), problems.join("; ")).to_string(),
        );
    }
    if negated {
        return Ok(Requirement {
            key,
            operator: Operator::Absent,
        });
    }
    if ends_requirement(tokens.peek()) {
        return Ok(Requirement {
            key,
            operator: Operator::Exists,
        });
    }
    let symbol = tokens.next();
    let values = match SelectorToken::text(symbol.as_ref()) {
        "in" | "notin" => value_set(tokens)?,
        "=" | "==" | "!=" | ">" | "<" => BTreeSet::from([single_value(tokens)?]),
        other => {
            return Err(format!(
                "found '{other}', expected: in, notin, =, ==, !=, gt, lt"
            ));
        }
    };
    let mut errors = Vec::new();
    let mut number = || {
        let value = values.first().map_or("", String::as_str);
        value.parse().unwrap_or_else(|_| {
            let why = "for 'Gt', 'Lt' operators, the value must be an integer";
            errors.push(FieldError::invalid("values[0]", &Value::from(value), why).to_string());
            0
        })
    };
    let operator = match SelectorToken::text(symbol.as_ref()) {
        ">" => Operator::Greater(number()),
        "<" => Operator::Less(number()),
        "!=" | "notin" => Operator::NotIn(values.clone()),
        _ => Operator::In(values.clone()),
    };
    errors.extend(validate_values(&key, &values));
    match &errors[..] {
        [] => Ok(Requirement { key, operator }),
        [one] => Err(one.clone()),
        all => Err(format!("[{}]", all.join(", "))),
    }
}

fn ends_requirement(token: Option<&SelectorToken>) -> bool {
    matches!(token, None | Some(SelectorToken::Symbol(",")))
}

/// Parses the value of `key=value`, which can be empty.
fn single_value(tokens: &mut Tokens) -> Result<String, String> {
    if ends_requirement(tokens.peek()) {
        return Ok(String::new());
    }
    match tokens.next() {
        Some(SelectorToken::Word(value)) => Ok(value),
        other => Err(format!(
            "found '{}', expected: identifier",
            SelectorToken::text(other.as_ref())
        )),
    }
}

/// Parses `(a,b)`. A value that is missing beside a comma or between the parentheses is the empty
/// value.
fn value_set(tokens: &mut Tokens) -> Result<BTreeSet<String>, String> {
    let open = tokens.next();
    if open != Some(SelectorToken::Symbol("(")) {
        return Err(format!(
            "found '{}' expected: '('",
            SelectorToken::text(open.as_ref())
        ));
    }
    let mut values = BTreeSet::new();
    loop {
        values.insert(match tokens.peek() {
            Some(SelectorToken::Word(value)) => {
                let value = value.clone();
                tokens.next();
                value
            }
            _ => String::new(),
        });
        match tokens.next() {
            Some(SelectorToken::Symbol(",")) => {}
            Some(SelectorToken::Symbol(")")) => return Ok(values),
            other => {
                return Err(format!(
                    "found '{}', expected: ',' or ')'",
                    SelectorToken::text(other.as_ref())
                ));
            }
        }
    }
}

fn validate_values(key: &str, values: &BTreeSet<String>) -> Vec<String> {
    let checked = values
        .iter()
        .map(|value| (value, names::label_value(value)))
        .enumerate();
    let problems = checked.filter(|(_, (_, problems))| !problems.is_empty());
    let errors = problems.map(|(index, (value, problems))| {
        FieldError::invalid(
            format!("values[{index}][{key}]"),
            &value.as_str().into(),
            problems.join("; "),
        )
        .to_string()
    });
    errors.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selects(selector: &str, labels: &[(&str, &'static str)]) -> bool {
        let selector = LabelSelector::parse(selector).unwrap();
        selector.matches(|key| {
            labels
                .iter()
                .find(|(name, _)| *name == key)
                .map(|(_, value)| *value)
        })
    }

    fn parse_error(selector: &str) -> String {
        let failure = LabelSelector::parse(selector).unwrap_err();
        assert_eq!(failure.code, 400, "{selector}");
        failure.message
    }

    #[test]
    fn every_operator_selects_its_objects() {
        let labels = [
            ("app", "web"),
            ("n", "7"),
            ("empty", ""),
            ("example.com/x", "1"),
        ];
        for holds in [
            "",
            " ",
            "app=web",
            "app==web",
            "app != db",
            "app in (db, web)",
            "app notin (db)",
            "app",
            "!gone",
            "gone!=web",
            "gone notin (web)",
            "n>6",
            "n<8",
            "empty=",
            "empty in ()",
            "empty in (a,)",
            "app,n,!gone",
            "example.com/x=1",
        ] {
            assert!(selects(holds, &labels), "{holds}");
        }
        for fails in [
            "app=db",
            "app!=web",
            "app in (db)",
            "app notin (web,db)",
            "!app",
            "gone",
            "gone=web",
            "gone in (web)",
            "n>7",
            "n<7",
            "app>1",
            "gone>1",
            "app=",
            "empty!=",
            "app=web,n=8",
        ] {
            assert!(!selects(fails, &labels), "{fails}");
        }
    }

    #[test]
    fn an_invalid_selector_has_the_error_of_the_real_server() {
        assert_eq!(
            parse_error("a,"),
            "found '', expected: identifier after ','"
        );
        assert_eq!(
            parse_error("=a"),
            "found '=', expected: !, identifier, or 'end of string'"
        );
        assert_eq!(
            parse_error("!a=b"),
            "found '=', expected: ',' or 'end of string'"
        );
        assert_eq!(
            parse_error("a b"),
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"
        );
        assert_eq!(
            parse_error("a in b"),
            "unable to parse requirement: found 'b' expected: '('"
        );
        assert_eq!(
            parse_error("a in (b"),
            "unable to parse requirement: found '', expected: ',' or ')'"
        );
        assert_eq!(
            parse_error("a=(b)"),
            "unable to parse requirement: found '(', expected: identifier"
        );
        assert_eq!(
            parse_error("a>b"),
            "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be an integer"
        );
        assert!(
            parse_error("a/b/c=d").starts_with(
                "unable to parse requirement: <nil>: Invalid value: \"a/b/c\": a valid"
            )
        );
        assert!(parse_error("a=-d").starts_with(
            "unable to parse requirement: values[0][a]: Invalid value: \"-d\": a valid"
        ));
    }

    steersman_testkit::properties! {
        #[test]
        fn parsing_never_panics(text in r"[a-z0-9=!<>(),\\ /.é-]{0,24}|\PC*") {
            let _ = LabelSelector::parse(&text);
        }
    }
}
