//! Selectors of fields: which fields a resource can be selected by is not known here.

use crate::status::{Failure, Result};
use std::borrow::Cow;

/// What fields have to be: all requirements hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector(Vec<FieldRequirement>);

/// A field, and what it has to be or may not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldRequirement {
    /// Such as `metadata.name`.
    pub(crate) field: String,
    /// `=` if so, `!=` if not.
    pub(crate) equal: bool,
    /// Free of escapes.
    pub(crate) value: String,
}

impl FieldSelector {
    /// Parses `a=b,c==d,e!=f`; a backslash takes the meaning from a comma, an equals sign and a backslash in a value.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        // In the order of their text: so does the real server, and clients see which one it stumbles over.
        let mut terms = split_terms(text);
        terms.sort_unstable();
        let found = terms.into_iter().filter(|term| !term.is_empty()).map(|term| field_requirement(text, term));
        found.collect::<Result<_, _>>().map(Self).map_err(Failure::bad_request)
    }

    /// From now on also this has to hold.
    pub(crate) fn require(&mut self, field: &str, value: &str) {
        self.0.push(FieldRequirement { field: field.into(), equal: true, value: value.into() });
    }

    /// Whether it selects everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What has to hold.
    pub(crate) fn requirements(&self) -> &[FieldRequirement] {
        &self.0
    }

    /// The one value that it lets `field` have, if it names one.
    pub(crate) fn exact(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|wanted| wanted.equal && wanted.field == field).map(|wanted| &*wanted.value)
    }

    /// Whether it selects an object of which `get` tells the fields; one that is not there is the empty text.
    pub(crate) fn matches<'a>(&self, get: impl Fn(&str) -> Cow<'a, str>) -> bool {
        self.0.iter().all(|wanted| (get(&wanted.field) == wanted.value) == wanted.equal)
    }
}

/// At the commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
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
    // The first operator counts: a field's name has no escapes.
    let not_understood = || format!("invalid selector: '{whole}'; can't understand '{term}'");
    let equals = term.find('=').ok_or_else(not_understood)?;
    let (field, equal) = match term[..equals].strip_suffix('!') {
        Some(field) => (field, false),
        None => (&term[..equals], true),
    };
    let value = &term[equals + 1..];
    let value = if equal { value.strip_prefix('=').unwrap_or(value) } else { value };
    Ok(FieldRequirement { field: field.into(), equal, value: unescape(value)? })
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
                    return Err(format!("invalid field selector: invalid escape sequence: \\{other}"));
                }
            },
            ',' | '=' => {
                return Err(format!("invalid field selector: unescaped character in value: {}", u32::from(c)));
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
    fn a_field_selector_has_its_terms_in_order() {
        let selector = FieldSelector::parse(r"metadata.name=a,,b==c\,\=\\,d!=e").unwrap();
        let terms: Vec<_> =
            selector.requirements().iter().map(|term| (&*term.field, term.equal, &*term.value)).collect();
        assert_eq!(terms, [("b", true, r"c,=\"), ("d", false, "e"), ("metadata.name", true, "a")]);
        assert_eq!(selector.exact("metadata.name"), Some("a"));
        assert_eq!(selector.exact("d"), None);
        assert!(FieldSelector::parse("").unwrap().is_empty());
        assert!(!selector.is_empty());
    }

    #[test]
    fn a_field_that_is_not_there_is_empty() {
        let get = |field: &str| Cow::from(if field == "a" { "1" } else { "" });
        for (selector, holds) in [("a=1", true), ("a!=1", false), ("b=", true), ("b!=1", true), ("a=1,b=1", false)] {
            assert_eq!(FieldSelector::parse(selector).unwrap().matches(get), holds, "{selector}");
        }
    }

    #[test]
    fn a_bad_field_selector_is_refused() {
        for (bad, why) in [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
            (r"a=b\", r"invalid field selector: invalid escape sequence: \"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
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
