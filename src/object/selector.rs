//! Label selectors, parsed as by `kubectl -l` and matched on any representation.
//!
//! `kube_core::Selector` has no parser, and matches only a `BTreeMap`.

use super::Pairs;
use std::fmt;

/// Label selector. All requirements must match; without any it matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector(Vec<Requirement>);

/// The label selector is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid label selector `{selector}`: {reason}; use the syntax of `kubectl -l`, such as \
     `app=web,tier in (a,b)`"
)]
#[non_exhaustive]
pub struct SelectorError {
    /// Text of the selector.
    pub selector: String,
    /// Reason why the selector is invalid.
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Requirement {
    key: String,
    test: Test,
}

/// Test of a label's value. As on the API server, a missing label passes negative tests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Test {
    Exists,
    Absent,
    /// Sorted values.
    In(Vec<String>),
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

impl Selector {
    /// Parses a selector. Requirements are sorted, so that equal selectors print alike.
    pub(crate) fn parse(text: &str) -> Result<Self, SelectorError> {
        let error = |reason: String| SelectorError {
            selector: text.to_owned(),
            reason,
        };
        let parts = split(text).map_err(|reason| error(reason.to_owned()))?;
        let mut requirements: Vec<_> = parts
            .into_iter()
            .map(requirement)
            .collect::<Result<_, _>>()
            .map_err(error)?;
        requirements.sort();
        requirements.dedup();
        Ok(Self(requirements))
    }

    pub(crate) fn matches(&self, labels: Pairs<'_>) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels))
    }
}

impl Requirement {
    fn matches(&self, labels: Pairs<'_>) -> bool {
        let value = labels.get(&self.key);
        let is_in =
            |values: &[String]| value.is_some_and(|value| values.iter().any(|one| one == value));
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::In(values) => is_in(values),
            Test::NotIn(values) => !is_in(values),
            Test::Greater(bound) => number().is_some_and(|number| number > *bound),
            Test::Less(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// Splits the text at commas outside of parentheses.
fn split(text: &str) -> Result<Vec<&str>, &'static str> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let (mut parts, mut begin, mut inside) = (Vec::new(), 0, false);
    for (at, character) in text.char_indices() {
        match character {
            '(' if inside => return Err("nested parenthesis"),
            '(' => inside = true,
            ')' if !inside => return Err("closing parenthesis without an opening one"),
            ')' => inside = false,
            ',' if !inside => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    if inside {
        Err("unclosed parenthesis")
    } else {
        Ok(parts)
    }
}

fn requirement(text: &str) -> Result<Requirement, String> {
    let text = text.trim();
    let made = |key_text: &str, test| {
        Ok(Requirement {
            key: key(key_text)?,
            test,
        })
    };
    if let Some(rest) = text.strip_prefix('!') {
        return made(rest, Test::Absent);
    }
    let Some(at) =
        text.find(|character: char| character.is_whitespace() || "=!<>(".contains(character))
    else {
        return made(text, Test::Exists);
    };
    let (name, rest) = (&text[..at], text[at..].trim_start());
    let operator = |operator: &str| rest.strip_prefix(operator).map(str::trim);
    if let Some(one) = operator("!=") {
        made(name, Test::NotIn(vec![value(one)?]))
    } else if let Some(one) = operator("==").or_else(|| operator("=")) {
        made(name, Test::In(vec![value(one)?]))
    } else if let Some(bound) = operator(">") {
        made(name, Test::Greater(number(bound)?))
    } else if let Some(bound) = operator("<") {
        made(name, Test::Less(number(bound)?))
    } else if let Some(set) = operator("notin") {
        made(name, Test::NotIn(values(set)?))
    } else if let Some(set) = operator("in") {
        made(name, Test::In(values(set)?))
    } else {
        Err(format!("`{text}` has none of =, ==, !=, in, notin, <, >"))
    }
}

fn key(text: &str) -> Result<String, String> {
    let text = text.trim();
    let name = text.rsplit('/').next().unwrap_or_default();
    if name.is_empty()
        || text.matches('/').count() > 1
        || !text.chars().all(|character| is_label(character, "/"))
    {
        return Err(format!(
            "`{text}` is not a valid label key, which is a name after an optional prefix and slash"
        ));
    }
    Ok(text.to_owned())
}

fn value(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.len() > 63 || !text.chars().all(|character| is_label(character, "")) {
        return Err(format!(
            "`{text}` is not a valid label value, which has at most 63 letters, digits, dots, \
             dashes and underscores"
        ));
    }
    Ok(text.to_owned())
}

fn is_label(character: char, more: &str) -> bool {
    character.is_ascii_alphanumeric() || "-_.".contains(character) || more.contains(character)
}

fn number(text: &str) -> Result<i64, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not a number"))
}

fn values(text: &str) -> Result<Vec<String>, String> {
    let list = text
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'));
    let list = list.ok_or_else(|| format!("`{text}` is not a set such as (a,b)"))?;
    let mut values: Vec<_> = list.split(',').map(value).collect::<Result<_, _>>()?;
    values.sort();
    values.dedup();
    Ok(values)
}

/// Prints the selector in the format of the API server.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Requirement { key, test }) in self.0.iter().enumerate() {
            if number > 0 {
                f.write_str(",")?;
            }
            match test {
                Test::Exists => write!(f, "{key}"),
                Test::Absent => write!(f, "!{key}"),
                Test::In(values) if values.len() == 1 => write!(f, "{key}={}", values[0]),
                Test::In(values) => write!(f, "{key} in ({})", values.join(",")),
                Test::NotIn(values) if values.len() == 1 => write!(f, "{key}!={}", values[0]),
                Test::NotIn(values) => write!(f, "{key} notin ({})", values.join(",")),
                Test::Greater(bound) => write!(f, "{key}>{bound}"),
                Test::Less(bound) => write!(f, "{key}<{bound}"),
            }?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Meta;
    use kube_core::{ObjectMeta, SelectorExt};
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let meta = ObjectMeta {
            labels: Some(labels),
            ..ObjectMeta::default()
        };
        Selector::parse(selector)
            .expect("a selector")
            .matches(Meta::from(&meta).labels())
    }

    #[test]
    fn each_requirement_is_evaluated_on_its_label() {
        let web = [("app", "web"), ("tier", "3"), ("example.com/team", "")];
        for yes in [
            "",
            "app",
            "!other",
            "app=web",
            "app == web",
            "app!=db",
            "other!=db",
            "app in (db, web)",
            "app notin (db)",
            "other notin (db)",
            "tier>2",
            "tier < 4",
            "example.com/team=",
            "app=web,tier in (1,3),!other",
        ] {
            assert!(matches(yes, &web), "{yes}");
        }
        for no in [
            "other",
            "!app",
            "app=db",
            "other=",
            "app!=web",
            "app in (db)",
            "app notin (web)",
            "tier>3",
            "app>1",
        ] {
            assert!(!matches(no, &web), "{no}");
        }
    }

    #[test]
    fn an_invalid_selector_is_rejected_with_the_reason() {
        for (text, reason) in [
            ("app=web,", "not a valid label key"),
            ("a b", "none of"),
            ("app in web", "not a set"),
            ("app in (web", "unclosed"),
            ("app in ((web))", "nested"),
            ("app)", "without an opening one"),
            ("a/b/c=d", "not a valid label key"),
            ("app=a b", "not a valid label value"),
            ("tier>high", "not a number"),
            ("=web", "not a valid label key"),
        ] {
            let error = Selector::parse(text).expect_err(text).to_string();
            assert!(
                error.contains(reason) && error.contains(text),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn equivalent_selectors_are_displayed_alike() {
        let shown = |text| Selector::parse(text).expect("a selector").to_string();
        assert_eq!(shown("b in (y,x), a == 1"), "a=1,b in (x,y)");
        assert_eq!(shown("a=1,b in (x, y, x),a=1"), shown("b in (y,x), a == 1"));
    }

    steersman_testkit::properties! {
        /// Compares with kube's own matching, through the text.
        #[test]
        fn selectors_match_like_kubes(
            tests in proptest::collection::vec((0u8..6, "[ab]", proptest::collection::btree_set("[xyz]", 1..3)), 0..4),
            labels in proptest::collection::btree_map("[ab]", "[xyz]", 0..3),
        ) {
            let expression = |(test, key, values): (u8, String, BTreeSet<String>)| {
                let one = values.first().cloned().unwrap_or_default();
                match test {
                    0 => kube_core::Expression::In(key, values),
                    1 => kube_core::Expression::NotIn(key, values),
                    2 => kube_core::Expression::Equal(key, one),
                    3 => kube_core::Expression::NotEqual(key, one),
                    4 => kube_core::Expression::Exists(key),
                    _ => kube_core::Expression::DoesNotExist(key),
                }
            };
            let kubes: kube_core::Selector = tests.into_iter().map(expression).collect();
            let ours = Selector::parse(&kubes.to_string()).expect("a selector");
            let labels: BTreeMap<String, String> = labels;
            let meta = ObjectMeta { labels: Some(labels.clone()), ..ObjectMeta::default() };
            prop_assert_eq!(ours.matches(Meta::from(&meta).labels()), kubes.matches(&labels));
            prop_assert_eq!(&Selector::parse(&ours.to_string()).expect("its own text"), &ours);
        }
    }
}
