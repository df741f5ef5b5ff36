//! Field selectors, as in `kubectl --field-selector`.
//!
//! The API server evaluates the field selectors of informers, and decides which fields a kind
//! supports. This module evaluates selectors on cached objects by the same rules: the operators are
//! `=`, `==` and `!=`; a missing field equals the empty string; `\,`, `\=` and `\\` escape a comma,
//! an equals sign and a backslash in a value.

use super::CacheError;
use kube_core::GroupVersionKind;
use serde_json::Value;
use std::{borrow::Cow, fmt};

/// Conjunction of terms. Matches everything if it is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Term {
    path: String,
    value: String,
    /// Whether the operator is `=` (`true`) or `!=`.
    equal: bool,
}

impl FieldSelector {
    /// Parses a selector. Sorts the terms, so that equivalent selectors display alike.
    pub(crate) fn parse(text: &str) -> Result<Self, CacheError> {
        let error = |what| CacheError::InvalidFieldSelector {
            selector: text.to_owned(),
            reason: what,
        };
        let terms = split(text)
            .into_iter()
            .filter(|part| !part.trim().is_empty());
        let mut terms: Vec<_> = terms.map(term).collect::<Result<_, _>>().map_err(error)?;
        terms.sort();
        terms.dedup();
        Ok(Self(terms))
    }

    /// Returns the paths of all terms.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|term| &*term.path)
    }

    /// Returns whether all terms hold. `field` returns the text of the field at a path.
    pub(crate) fn matches<'a>(&self, field: impl Fn(&str) -> Option<Cow<'a, str>>) -> bool {
        self.0
            .iter()
            .all(|term| (field(&term.path).unwrap_or_default() == term.value) == term.equal)
    }
}

/// Splits a selector at the commas that are not escaped.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut escaped) = (Vec::new(), 0, false);
    for (at, character) in text.char_indices() {
        if character == ',' && !escaped {
            parts.push(&text[begin..at]);
            begin = at + 1;
        }
        escaped = character == '\\' && !escaped;
    }
    parts.push(&text[begin..]);
    parts
}

fn term(text: &str) -> Result<Term, String> {
    let at = text
        .find('=')
        .ok_or_else(|| format!("`{text}` has none of =, ==, !="))?;
    let (path, rest) = match text[..at].strip_suffix('!') {
        Some(path) => (path, &text[at + 1..]),
        None => (
            &text[..at],
            text[at + 1..].strip_prefix('=').unwrap_or(&text[at + 1..]),
        ),
    };
    let equal = !text[..at].ends_with('!');
    let path = path.trim();
    let is_path = |character: char| character.is_ascii_alphanumeric() || "-_./".contains(character);
    if path.is_empty() || !path.chars().all(is_path) {
        return Err(format!("`{path}` is not a valid field path"));
    }
    Ok(Term {
        path: path.to_owned(),
        value: unescape(rest.trim())?,
        equal,
    })
}

fn unescape(text: &str) -> Result<String, String> {
    let mut characters = text.chars();
    let mut value = String::with_capacity(text.len());
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => value.push(escaped),
                _ => {
                    return Err(format!(
                        r"`{text}` has an invalid escape, only `\,`, `\=` and `\\` are valid"
                    ));
                }
            },
            '=' => {
                return Err(format!(
                    r"`{text}` has an equals sign that is not escaped as `\=`"
                ));
            }
            other => value.push(other),
        }
    }
    Ok(value)
}

/// Formats the selector for a request.
impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Term { path, value, equal }) in self.0.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            let value = value
                .replace('\\', r"\\")
                .replace(',', r"\,")
                .replace('=', r"\=");
            write!(f, "{comma}{path}{}{value}", if *equal { "=" } else { "!=" })?;
        }
        Ok(())
    }
}

/// Returns the text of the field at a path of an object's JSON.
///
/// Follows the API server for fields that it derives, and for fields that are omitted from the JSON
/// because they are `false` or 0.
pub(crate) fn field<'a>(
    kind: &GroupVersionKind,
    object: &'a Value,
    path: &str,
) -> Option<Cow<'a, str>> {
    let at = |path: &str| match path
        .split('.')
        .try_fold(object, |value, name| value.get(name))?
    {
        Value::String(text) => Some(Cow::Borrowed(text.as_str())),
        Value::Bool(yes) => Some(Cow::Borrowed(if *yes { "true" } else { "false" })),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    match (&*kind.group, &*kind.kind, path) {
        ("", "Pod", "spec.hostNetwork") | ("", "Node", "spec.unschedulable") => {
            Some(at(path).unwrap_or("false".into()))
        }
        ("batch", "Job", "status.successful") => Some(at("status.succeeded").unwrap_or("0".into())),
        ("", "Event", "source") => at("source.component")
            .filter(|name| !name.is_empty())
            .or_else(|| at("reportingComponent")),
        _ => at(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn matches(selector: &str, object: &Value) -> bool {
        let pods = GroupVersionKind::gvk("", "v1", "Pod");
        FieldSelector::parse(selector)
            .expect("a selector")
            .matches(|path| field(&pods, object, path))
    }

    #[test]
    fn each_term_is_evaluated_on_its_field() {
        let pod = json!({
            "metadata": {"name": "a", "odd": r"x,y=z\"},
            "spec": {"nodeName": "n1", "containers": [], "replicas": 3, "paused": true},
        });
        for yes in [
            "",
            "metadata.name=a",
            "metadata.name == a",
            "metadata.name!=b",
            "spec.nodeName=n1,metadata.name=a",
            "status.phase=",
            "status.phase!=Running",
            "spec.containers=",
            "spec.replicas=3",
            "spec.paused=true",
            "spec.hostNetwork=false",
            r"metadata.odd=x\,y\=z\\",
        ] {
            assert!(matches(yes, &pod), "{yes}");
        }
        for no in [
            "metadata.name=b",
            "metadata.name!=a",
            "status.phase!=",
            "spec.nodeName=n1,metadata.name=b",
        ] {
            assert!(!matches(no, &pod), "{no}");
        }
    }

    #[test]
    fn fields_with_other_names_on_the_server_are_found() {
        let jobs = GroupVersionKind::gvk("batch", "v1", "Job");
        assert_eq!(
            field(
                &jobs,
                &json!({"status": {"succeeded": 2}}),
                "status.successful"
            )
            .as_deref(),
            Some("2")
        );
        assert_eq!(
            field(&jobs, &json!({}), "status.successful").as_deref(),
            Some("0")
        );
        let events = GroupVersionKind::gvk("", "v1", "Event");
        let event = json!({"source": {"component": ""}, "reportingComponent": "kubelet"});
        assert_eq!(field(&events, &event, "source").as_deref(), Some("kubelet"));
    }

    #[test]
    fn an_invalid_selector_is_rejected_with_the_reason() {
        for (text, reason) in [
            ("metadata.name", "none of"),
            ("=a", "not a valid field path"),
            ("a b=c", "not a valid field path"),
            ("metadata.name=a=b", r"not escaped as `\=`"),
            (r"metadata.name=a\b", "invalid escape"),
            (r"metadata.name=a\", "invalid escape"),
        ] {
            let error = FieldSelector::parse(text).expect_err(text).to_string();
            assert!(
                error.contains(reason) && error.contains(text),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn equivalent_selectors_are_displayed_alike() {
        let shown = |text| FieldSelector::parse(text).expect("a selector").to_string();
        assert_eq!(shown("b!=2, a == 1,,a=1"), "a=1,b!=2");
    }

    steersman_testkit::properties! {
        #[test]
        fn a_displayed_selector_parses_to_the_same(
            terms in proptest::collection::vec(("[ab][.]c", r"[ab,=\\]{0,4}", any::<bool>()), 0..4),
        ) {
            let mut terms: Vec<_> = terms.into_iter().map(|(path, value, equal)| Term { path, value, equal }).collect();
            terms.sort();
            terms.dedup();
            let selector = FieldSelector(terms);
            prop_assert_eq!(&FieldSelector::parse(&selector.to_string()).expect("its own text"), &selector);
        }
    }
}
