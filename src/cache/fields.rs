//! Field selectors as in `kubectl --field-selector`, parsed once and matched on whatever can say what a field is.
//!
//! The server alone knows what a kind can be selected by, and it answers for what is selected there. Here is the same for objects in hand, with its
//! rules: only `=`, `==` and `!=`; a field that an object does not have is the empty text; `\,`, `\=` and `\\` are a comma, an equals sign and a
//! backslash in a value.

use super::CacheError;
use kube_core::GroupVersionKind;
use serde_json::Value;
use std::{borrow::Cow, fmt};

/// All of its terms must hold; without any it matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Term {
    path: String,
    value: String,
    /// Whether the field must have the value, or must not.
    equal: bool,
}

impl FieldSelector {
    /// The terms are sorted, so that two texts of one meaning are displayed alike.
    pub(crate) fn parse(text: &str) -> Result<Self, CacheError> {
        let error = |what| CacheError::FieldSelector { selector: text.to_owned(), what };
        let terms = split(text).into_iter().filter(|part| !part.trim().is_empty());
        let mut terms: Vec<_> = terms.map(term).collect::<Result<_, _>>().map_err(error)?;
        terms.sort();
        terms.dedup();
        Ok(Self(terms))
    }

    /// What it asks for.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|term| &*term.path)
    }

    /// `field` says what is at a path, as text.
    pub(crate) fn matches<'a>(&self, field: impl Fn(&str) -> Option<Cow<'a, str>>) -> bool {
        self.0.iter().all(|term| (field(&term.path).unwrap_or_default() == term.value) == term.equal)
    }
}

/// At the commas that nothing escapes.
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
    let at = text.find('=').ok_or_else(|| format!("`{text}` has none of =, ==, !="))?;
    let (path, rest) = match text[..at].strip_suffix('!') {
        Some(path) => (path, &text[at + 1..]),
        None => (&text[..at], text[at + 1..].strip_prefix('=').unwrap_or(&text[at + 1..])),
    };
    let equal = !text[..at].ends_with('!');
    let path = path.trim();
    let is_path = |character: char| character.is_ascii_alphanumeric() || "-_./".contains(character);
    if path.is_empty() || !path.chars().all(is_path) {
        return Err(format!("`{path}` is no field: it is a path with dots"));
    }
    Ok(Term { path: path.to_owned(), value: unescape(rest.trim())?, equal })
}

fn unescape(text: &str) -> Result<String, String> {
    let mut characters = text.chars();
    let mut value = String::with_capacity(text.len());
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => value.push(escaped),
                _ => return Err(format!(r"`{text}` escapes what needs none: only \, \= and \\ are written so")),
            },
            '=' => return Err(format!(r"`{text}` has an equals sign: write it as \=")),
            other => value.push(other),
        }
    }
    Ok(value)
}

/// As the server reads it.
impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Term { path, value, equal }) in self.0.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            let value = value.replace('\\', r"\\").replace(',', r"\,").replace('=', r"\=");
            write!(f, "{comma}{path}{}{value}", if *equal { "=" } else { "!=" })?;
        }
        Ok(())
    }
}

/// What an object's JSON has at a path, as the server says it of the kind. What it leaves out of the JSON because it is false or 0 is said as well.
pub(crate) fn field<'a>(kind: &GroupVersionKind, object: &'a Value, path: &str) -> Option<Cow<'a, str>> {
    let at = |path: &str| match path.split('.').try_fold(object, |value, name| value.get(name))? {
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
        ("", "Event", "source") => {
            at("source.component").filter(|name| !name.is_empty()).or_else(|| at("reportingComponent"))
        }
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
        FieldSelector::parse(selector).expect("a selector").matches(|path| field(&pods, object, path))
    }

    #[test]
    fn each_term_says_what_it_wants_of_a_field() {
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
        for no in ["metadata.name=b", "metadata.name!=a", "status.phase!=", "spec.nodeName=n1,metadata.name=b"] {
            assert!(!matches(no, &pod), "{no}");
        }
    }

    #[test]
    fn fields_that_the_server_names_otherwise_are_found() {
        let jobs = GroupVersionKind::gvk("batch", "v1", "Job");
        assert_eq!(field(&jobs, &json!({"status": {"succeeded": 2}}), "status.successful").as_deref(), Some("2"));
        assert_eq!(field(&jobs, &json!({}), "status.successful").as_deref(), Some("0"));
        let events = GroupVersionKind::gvk("", "v1", "Event");
        let event = json!({"source": {"component": ""}, "reportingComponent": "kubelet"});
        assert_eq!(field(&events, &event, "source").as_deref(), Some("kubelet"));
    }

    #[test]
    fn what_is_no_selector_is_refused_with_the_reason() {
        for (text, reason) in [
            ("metadata.name", "none of"),
            ("=a", "no field"),
            ("a b=c", "no field"),
            ("metadata.name=a=b", r"write it as \="),
            (r"metadata.name=a\b", "needs none"),
            (r"metadata.name=a\", "needs none"),
        ] {
            let error = FieldSelector::parse(text).expect_err(text).to_string();
            assert!(error.contains(reason) && error.contains(text), "{text}: {error}");
        }
    }

    #[test]
    fn two_texts_of_one_meaning_are_displayed_alike() {
        let shown = |text| FieldSelector::parse(text).expect("a selector").to_string();
        assert_eq!(shown("b!=2, a == 1,,a=1"), "a=1,b!=2");
    }

    steersman_testkit::properties! {
        #[test]
        fn what_is_displayed_is_read_as_the_same(
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
