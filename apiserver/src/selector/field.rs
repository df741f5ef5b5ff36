//! Field selectors. The resource decides which fields it supports.

use crate::status::{Failure, Result};
use std::borrow::Cow;

/// A field selector: all requirements hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector(Vec<FieldRequirement>);

/// A field and the value that it must or must not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldRequirement {
    /// Name of the field, such as `metadata.name`.
    pub(crate) field: String,
    /// `true` for `=`, `false` for `!=`.
    pub(crate) equal: bool,
    /// Value without escapes.
    pub(crate) value: String,
}

impl FieldSelector {
    /// Parses `a=b,c==d,e!=f`. A backslash escapes a comma, an equals sign and a backslash in a
    /// value.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        // Sorted as on the real server, so that an error is about the same term.
        let mut terms = split_terms(text);
        terms.sort_unstable();
        let found = terms
            .into_iter()
            .filter(|term| !term.is_empty())
            .map(|term| field_requirement(text, term));
        found
            .collect::<Result<_, _>>()
            .map(Self)
            .map_err(Failure::bad_request)
    }

    /// Adds a requirement.
    pub(crate) fn require(&mut self, field: &str, value: &str) {
        self.0.push(FieldRequirement {
            field: field.into(),
            equal: true,
            value: value.into(),
        });
    }

    /// Reports whether it selects all objects.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn requirements(&self) -> &[FieldRequirement] {
        &self.0
    }

    /// Returns the value that the selector requires of `field`, if there is one.
    pub(crate) fn exact(&self, field: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|requirement| requirement.equal && requirement.field == field)
            .map(|requirement| &*requirement.value)
    }

    /// Reports whether it selects an object. `get` returns the value of a field, empty if it is
    /// missing.
    pub(crate) fn matches<'a>(&self, get: impl Fn(&str) -> Cow<'a, str>) -> bool {
        self.0
            .iter()
            .all(|requirement| (get(&requirement.field) == requirement.value) == requirement.equal)
    }
}

/// Splits at the commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if c == ',' && !escaped {
            terms.push(&text[start..at]);
            start = at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    terms.push(&text[start..]);
    terms
}

fn field_requirement(whole: &str, term: &str) -> Result<FieldRequirement, String> {
    // The first operator ends the name: names have no escapes.
    let invalid = || format!("invalid selector: '{whole}'; can't understand '{term}'");
    let equals = term.find('=').ok_or_else(invalid)?;
    let (field, equal) = match term[..equals].strip_suffix('!') {
        Some(field) => (field, false),
        None => (&term[..equals], true),
    };
    let value = &term[equals + 1..];
    let value = if equal {
        value.strip_prefix('=').unwrap_or(value)
    } else {
        value
    };
    Ok(FieldRequirement {
        field: field.into(),
        equal,
        value: unescape(value)?,
    })
}

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        plain.push(match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => c,
                other => {
                    let other = other.map(String::from).unwrap_or_default();
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: \\{other}"
                    ));
                }
            },
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(c)
                ));
            }
            c => c,
        });
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terms_of_a_field_selector_are_sorted() {
        let selector = FieldSelector::parse(r"metadata.name=a,,b==c\,\=\\,d!=e").unwrap();
        let terms: Vec<_> = selector
            .requirements()
            .iter()
            .map(|term| (&*term.field, term.equal, &*term.value))
            .collect();
        assert_eq!(
            terms,
            [
                ("b", true, r"c,=\"),
                ("d", false, "e"),
                ("metadata.name", true, "a")
            ]
        );
        assert_eq!(selector.exact("metadata.name"), Some("a"));
        assert_eq!(selector.exact("d"), None);
        assert!(FieldSelector::parse("").unwrap().is_empty());
        assert!(!selector.is_empty());
    }

    #[test]
    fn a_missing_field_is_empty() {
        let get = |field: &str| Cow::from(if field == "a" { "1" } else { "" });
        for (selector, holds) in [
            ("a=1", true),
            ("a!=1", false),
            ("b=", true),
            ("b!=1", true),
            ("a=1,b=1", false),
        ] {
            assert_eq!(
                FieldSelector::parse(selector).unwrap().matches(get),
                holds,
                "{selector}"
            );
        }
    }

    #[test]
    fn an_invalid_field_selector_is_a_bad_request() {
        for (bad, why) in [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            (
                r"a=\x",
                r"invalid field selector: invalid escape sequence: \x",
            ),
            (
                r"a=b\",
                r"invalid field selector: invalid escape sequence: \",
            ),
            (
                "a=b=c",
                "invalid field selector: unescaped character in value: 61",
            ),
        ] {
            let failure = FieldSelector::parse(bad).unwrap_err();
            assert_eq!((failure.code, &*failure.message), (400, why));
        }
    }

    steersman_testkit::properties! {
        #[test]
        fn parsing_never_panics(text in r"[a-c=!,\\é]{0,16}|\PC*") {
            let _ = FieldSelector::parse(&text);
        }
    }
}
