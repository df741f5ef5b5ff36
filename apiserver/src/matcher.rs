//! Patterns over requests, `PATCH widgets/status`: what fault rules and the journal pick requests by.

use std::{fmt, str::FromStr};

/// What is accepted, for error messages.
const ACCEPTED: &str = "a pattern is `VERB RESOURCE[/SUBRESOURCE] [NAMESPACE/NAME]`, such as `PATCH widgets/status`, \
    `list widgets.example.com` or `* pods default/web`";

const METHODS: [&str; 7] = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"];
const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// A request as patterns see it. What a request does not have is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Call<'a> {
    /// The HTTP method: `PATCH`.
    pub(crate) method: &'a str,
    /// The Kubernetes verb: `list`.
    pub(crate) verb: &'a str,
    /// Empty for the core group.
    pub(crate) group: &'a str,
    /// The plural: `widgets`.
    pub(crate) resource: &'a str,
    /// Such as `status`.
    pub(crate) subresource: &'a str,
    /// Empty where the request is not about one.
    pub(crate) namespace: &'a str,
    /// As the path gives it: a POST has none.
    pub(crate) name: &'a str,
}

/// A pattern over requests, read from text: `VERB RESOURCE[/SUBRESOURCE] [NAMESPACE/NAME]`.
///
/// * The verb is an HTTP method in capitals, a Kubernetes verb in small letters, or `*`. The difference matters: `GET`
///   is every read, `get` only that of one object.
/// * The resource is a plural, `widgets`, in any group, or with its group, `widgets.example.com`. As in RBAC, a
///   subresource is something else than its resource: `widgets` does not match `widgets/status`. `widgets/*` matches
///   every subresource, and `*` every request, those for no resource included.
/// * The object is `namespace/name`, where each may be `*`, or just a `name`. Nothing matches every object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher {
    verb: Verb,
    /// `None` is every request.
    resource: Option<Resource>,
    namespace: Part,
    name: Part,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Verb {
    Any,
    Method(&'static str),
    Kubernetes(&'static str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Resource {
    plural: Part,
    group: Part,
    subresource: Subresource,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Subresource {
    None,
    Any,
    Is(String),
}

/// One word, or `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Any,
    Is(String),
}

impl Part {
    fn new(text: &str) -> Self {
        if text == "*" { Self::Any } else { Self::Is(text.into()) }
    }

    fn matches(&self, value: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Is(wanted) => wanted == value,
        }
    }
}

impl Matcher {
    /// A pattern written in code.
    ///
    /// # Panics
    ///
    /// If it is not one: the message says what is.
    pub(crate) fn written(pattern: &str) -> Self {
        pattern.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The pattern covers this request.
    pub(crate) fn matches(&self, call: &Call<'_>) -> bool {
        let verb = match self.verb {
            Verb::Any => true,
            Verb::Method(method) => method == call.method,
            Verb::Kubernetes(verb) => verb == call.verb,
        };
        verb && self.resource.as_ref().is_none_or(|resource| resource.matches(call))
            && self.namespace.matches(call.namespace)
            && self.name.matches(call.name)
    }
}

impl Resource {
    fn matches(&self, call: &Call<'_>) -> bool {
        let subresource = match &self.subresource {
            Subresource::None => call.subresource.is_empty(),
            Subresource::Any => !call.subresource.is_empty(),
            Subresource::Is(wanted) => wanted == call.subresource,
        };
        subresource && self.plural.matches(call.resource) && self.group.matches(call.group)
    }
}

/// A text that is no pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError(String);

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {ACCEPTED}", self.0)
    }
}

impl std::error::Error for PatternError {}

impl FromStr for Matcher {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let words: Vec<_> = text.split_whitespace().collect();
        let (verb, resource, object) = match words[..] {
            [verb, resource] => (verb, resource, "*"),
            [verb, resource, object] => (verb, resource, object),
            _ => return Err(PatternError(format!("`{text}` has {} words, not two or three", words.len()))),
        };
        let (namespace, name) = object.split_once('/').unwrap_or(("*", object));
        Ok(Self {
            verb: parse_verb(verb)?,
            resource: (resource != "*").then(|| parse_resource(resource)).transpose()?,
            namespace: Part::new(namespace),
            name: Part::new(name),
        })
    }
}

fn parse_verb(text: &str) -> Result<Verb, PatternError> {
    if text == "*" {
        return Ok(Verb::Any);
    }
    if let Some(method) = METHODS.into_iter().find(|method| *method == text) {
        return Ok(Verb::Method(method));
    }
    VERBS.into_iter().find(|verb| *verb == text).map(Verb::Kubernetes).ok_or_else(|| {
        let (methods, verbs) = (METHODS.join(", "), VERBS.join(", "));
        PatternError(format!("`{text}` is no verb: write `*`, a method in capitals ({methods}) or a verb ({verbs})"))
    })
}

fn parse_resource(text: &str) -> Result<Resource, PatternError> {
    let (resource, subresource) = match text.split_once('/') {
        None => (text, Subresource::None),
        Some((resource, "*")) => (resource, Subresource::Any),
        Some((resource, subresource)) => (resource, Subresource::Is(subresource.into())),
    };
    let (plural, group) = match resource.split_once('.') {
        None => (resource, Part::Any),
        Some((plural, group)) => (plural, Part::new(group)),
    };
    let empty = |part: &Part| *part == Part::Is(String::new());
    if plural.is_empty() || empty(&group) || subresource == Subresource::Is(String::new()) {
        return Err(PatternError(format!("`{text}` is no resource")));
    }
    Ok(Resource { plural: Part::new(plural), group, subresource })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: Call<'_> = Call {
        method: "PATCH",
        verb: "patch",
        group: "example.com",
        resource: "widgets",
        subresource: "status",
        namespace: "default",
        name: "a",
    };
    const LIST: Call<'_> = Call {
        method: "GET",
        verb: "list",
        group: "",
        resource: "pods",
        subresource: "",
        namespace: "default",
        name: "",
    };

    fn matches(pattern: &str, call: &Call<'_>) -> bool {
        Matcher::written(pattern).matches(call)
    }

    #[test]
    fn capitals_are_methods_and_small_letters_are_verbs() {
        assert!(matches("GET pods", &LIST) && matches("list pods", &LIST) && matches("* pods", &LIST));
        assert!(!matches("get pods", &LIST) && !matches("PATCH pods", &LIST));
    }

    #[test]
    fn a_subresource_is_another_resource() {
        assert!(matches("PATCH widgets/status", &STATUS) && matches("patch widgets/*", &STATUS));
        assert!(!matches("PATCH widgets", &STATUS) && !matches("PATCH widgets/scale", &STATUS));
        assert!(matches("* pods", &LIST) && !matches("* pods/*", &LIST));
    }

    #[test]
    fn a_group_narrows_and_its_absence_does_not() {
        assert!(matches("PATCH widgets.example.com/status", &STATUS));
        assert!(!matches("PATCH widgets.other.com/status", &STATUS) && !matches("* pods.example.com", &LIST));
    }

    #[test]
    fn a_star_covers_every_request_and_a_star_with_subresource_only_that_one() {
        assert!(matches("* *", &STATUS) && matches("* *", &Call { method: "GET", verb: "get", ..Call::default() }));
        assert!(matches("* */status", &STATUS) && !matches("* */status", &LIST));
    }

    #[test]
    fn an_object_is_picked_by_namespace_and_name() {
        for pattern in ["default/a", "default/*", "*/a", "a"] {
            assert!(matches(&format!("* widgets/status {pattern}"), &STATUS), "{pattern}");
        }
        for pattern in ["other/a", "default/b", "b", "/a"] {
            assert!(!matches(&format!("* widgets/status {pattern}"), &STATUS), "{pattern}");
        }
        let cluster = Call { resource: "nodes", name: "a", ..Call::default() };
        assert!(matches("* nodes /a", &cluster) && matches("* nodes a", &cluster));
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_what_is() {
        for (text, told) in [
            ("", "0 words"),
            ("PATCH", "1 words"),
            ("a b c d", "4 words"),
            ("Patch widgets", "`Patch` is no verb"),
            ("* widgets/", "`widgets/` is no resource"),
            ("* .example.com", "is no resource"),
            ("* widgets.", "is no resource"),
        ] {
            let error = text.parse::<Matcher>().unwrap_err().to_string();
            assert!(error.contains(told) && error.contains("PATCH widgets/status"), "{error}");
        }
    }
}
