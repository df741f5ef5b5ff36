//! Selectors: which objects a list or a watch is about.
//!
//! A negative requirement holds for an object that does not have the key at all.

mod field;

pub(crate) use field::FieldSelector;

use crate::{
    meta::names,
    status::{Failure, FieldError, Result},
};
use serde_json::Value;
use std::{collections::BTreeSet, iter::Peekable, vec};

/// What labels have to be like: all requirements hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
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

    /// Whether it selects everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it selects an object of which `get` tells the labels.
    pub(crate) fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        let number = |value: Option<&str>| value?.parse::<i64>().ok();
        self.0.iter().all(|Requirement { key, test }| {
            let found = get(key);
            match test {
                Test::Exists => found.is_some(),
                Test::Absent => found.is_none(),
                Test::In(values) => found.is_some_and(|value| values.contains(value)),
                Test::NotIn(values) => found.is_none_or(|value| !values.contains(value)),
                Test::Greater(bound) => number(found).is_some_and(|value| value > *bound),
                Test::Less(bound) => number(found).is_some_and(|value| value < *bound),
            }
        })
    }
}

/// A symbol, or a word: a key, a value, `in` or `notin`, by where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Symbol(&'static str),
    Word(String),
}

impl Token {
    fn text(token: Option<&Self>) -> &str {
        match token {
            None => "",
            Some(Self::Symbol(symbol)) => symbol,
            Some(Self::Word(word)) => word,
        }
    }
}

type Tokens = Peekable<vec::IntoIter<Token>>;

/// Longer ones before those that they begin with.
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
            Some(symbol) => Token::Symbol(symbol),
            None => Token::Word(rest[..rest.find(ends_word).unwrap_or(rest.len())].into()),
        };
        rest = &rest[Token::text(Some(&token)).len()..];
        tokens.push(token);
    }
}

fn requirements(text: &str) -> Result<Vec<Requirement>, String> {
    let mut tokens = tokens(text);
    let mut found = Vec::new();
    let begins = |token: Option<&Token>| matches!(token, Some(Token::Word(_) | Token::Symbol("!")));
    match tokens.peek() {
        None => return Ok(found),
        first if begins(first) => {}
        first => return Err(format!("found '{}', expected: !, identifier, or 'end of string'", Token::text(first))),
    }
    loop {
        found.push(requirement(&mut tokens).map_err(|error| format!("unable to parse requirement: {error}"))?);
        match tokens.next() {
            None => return Ok(found),
            Some(Token::Symbol(",")) if begins(tokens.peek()) => {}
            Some(Token::Symbol(",")) => {
                return Err(format!("found '{}', expected: identifier after ','", Token::text(tokens.peek())));
            }
            other => return Err(format!("found '{}', expected: ',' or 'end of string'", Token::text(other.as_ref()))),
        }
    }
}

fn requirement(tokens: &mut Tokens) -> Result<Requirement, String> {
    let negated = tokens.next_if_eq(&Token::Symbol("!")).is_some();
    let key = match tokens.next() {
        Some(Token::Word(key)) => key,
        other => return Err(format!("found '{}', expected: identifier", Token::text(other.as_ref()))),
    };
    let wrong = names::qualified(&key);
    if !wrong.is_empty() {
        return Err(FieldError::invalid("<nil>", &Value::from(key), wrong.join("; ")).to_string());
    }
    if negated {
        return Ok(Requirement { key, test: Test::Absent });
    }
    if ends_requirement(tokens.peek()) {
        return Ok(Requirement { key, test: Test::Exists });
    }
    let operator = tokens.next();
    let values = match Token::text(operator.as_ref()) {
        "in" | "notin" => value_set(tokens)?,
        "=" | "==" | "!=" | ">" | "<" => BTreeSet::from([single_value(tokens)?]),
        other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
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
    let test = match Token::text(operator.as_ref()) {
        ">" => Test::Greater(number()),
        "<" => Test::Less(number()),
        "!=" | "notin" => Test::NotIn(values.clone()),
        _ => Test::In(values.clone()),
    };
    errors.extend(wrong_values(&key, &values));
    match &errors[..] {
        [] => Ok(Requirement { key, test }),
        [one] => Err(one.clone()),
        all => Err(format!("[{}]", all.join(", "))),
    }
}

fn ends_requirement(token: Option<&Token>) -> bool {
    matches!(token, None | Some(Token::Symbol(",")))
}

/// `key=` asks for the empty value.
fn single_value(tokens: &mut Tokens) -> Result<String, String> {
    if ends_requirement(tokens.peek()) {
        return Ok(String::new());
    }
    match tokens.next() {
        Some(Token::Word(value)) => Ok(value),
        other => Err(format!("found '{}', expected: identifier", Token::text(other.as_ref()))),
    }
}

/// `(a,b)`, where nothing before or after a comma, or between the brackets, is the empty value.
fn value_set(tokens: &mut Tokens) -> Result<BTreeSet<String>, String> {
    let open = tokens.next();
    if open != Some(Token::Symbol("(")) {
        return Err(format!("found '{}' expected: '('", Token::text(open.as_ref())));
    }
    let mut values = BTreeSet::new();
    loop {
        values.insert(match tokens.peek() {
            Some(Token::Word(value)) => {
                let value = value.clone();
                tokens.next();
                value
            }
            _ => String::new(),
        });
        match tokens.next() {
            Some(Token::Symbol(",")) => {}
            Some(Token::Symbol(")")) => return Ok(values),
            other => return Err(format!("found '{}', expected: ',' or ')'", Token::text(other.as_ref()))),
        }
    }
}

fn wrong_values(key: &str, values: &BTreeSet<String>) -> Vec<String> {
    let checked = values.iter().map(|value| (value, names::label_value(value))).enumerate();
    let wrong = checked.filter(|(_, (_, wrong))| !wrong.is_empty());
    let errors = wrong.map(|(index, (value, wrong))| {
        FieldError::invalid(format!("values[{index}][{key}]"), &value.as_str().into(), wrong.join("; ")).to_string()
    });
    errors.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selects(selector: &str, labels: &[(&str, &'static str)]) -> bool {
        let selector = LabelSelector::parse(selector).unwrap();
        selector.matches(|key| labels.iter().find(|(name, _)| *name == key).map(|(_, value)| *value))
    }

    fn refusal(selector: &str) -> String {
        let failure = LabelSelector::parse(selector).unwrap_err();
        assert_eq!(failure.code, 400, "{selector}");
        failure.message
    }

    #[test]
    fn every_operator_selects_what_it_says() {
        let labels = [("app", "web"), ("n", "7"), ("empty", ""), ("example.com/x", "1")];
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
    fn what_makes_no_sense_is_told_in_the_real_words() {
        assert_eq!(refusal("a,"), "found '', expected: identifier after ','");
        assert_eq!(refusal("=a"), "found '=', expected: !, identifier, or 'end of string'");
        assert_eq!(refusal("!a=b"), "found '=', expected: ',' or 'end of string'");
        assert_eq!(refusal("a b"), "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt");
        assert_eq!(refusal("a in b"), "unable to parse requirement: found 'b' expected: '('");
        assert_eq!(refusal("a in (b"), "unable to parse requirement: found '', expected: ',' or ')'");
        assert_eq!(refusal("a=(b)"), "unable to parse requirement: found '(', expected: identifier");
        assert_eq!(
            refusal("a>b"),
            "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be an integer"
        );
        assert!(
            refusal("a/b/c=d").starts_with("unable to parse requirement: <nil>: Invalid value: \"a/b/c\": a valid")
        );
        assert!(
            refusal("a=-d").starts_with("unable to parse requirement: values[0][a]: Invalid value: \"-d\": a valid")
        );
    }

    steersman_testkit::properties! {
        #[test]
        fn parsing_never_panics(text in r"[a-z0-9=!<>(),\\ /.é-]{0,24}|\PC*") {
            let _ = LabelSelector::parse(&text);
        }
    }
}
