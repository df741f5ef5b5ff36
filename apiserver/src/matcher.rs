//! Request patterns such as `PATCH widgets/status`, for fault rules and the journal.

use std::{fmt, str::FromStr};

/// Syntax of patterns, for error messages.
const SYNTAX: &str = "use `VERB RESOURCE[/SUBRESOURCE] [NAMESPACE/NAME]`, such as `PATCH widgets/status`, \
    `list widgets.example.com` or `* pods default/web`";

const METHODS: [&str; 7] = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"];
const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// The parts of a request that patterns match. Parts that a request does not have are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestInfo<'a> {
    /// HTTP method: `PATCH`.
    pub(crate) method: &'a str,
    /// Kubernetes verb: `list`.
    pub(crate) verb: &'a str,
    /// API group. Empty for the core group.
    pub(crate) group: &'a str,
    /// Plural name: `widgets`.
    pub(crate) resource: &'a str,
    /// Subresource, such as `status`.
    pub(crate) subresource: &'a str,
    /// Namespace. Empty for cluster-scoped requests.
    pub(crate) namespace: &'a str,
    /// Name in the path. Empty for a POST.
    pub(crate) name: &'a str,
}

/// A pattern that matches requests: `VERB RESOURCE[/SUBRESOURCE] [NAMESPACE/NAME]`.
///
/// * The verb is an HTTP method in upper case, a Kubernetes verb in lower case, or `*`. `GET`
///   matches all reads, `get` only reads of one object.
/// * The resource is a plural, `widgets`, in any group, or with its group, `widgets.example.com`.
///   As in RBAC, a resource does not include its subresources: `widgets` does not match
///   `widgets/status`. `widgets/*` matches all subresources. `*` matches all requests, also those
///   without a resource.
/// * The object is `namespace/name`, where each part can be `*`, or a `name` in any namespace. A
///   pattern without an object matches all objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher {
    verb: VerbPattern,
    /// `None` matches all requests.
    resource: Option<ResourcePattern>,
    namespace: TextPattern,
    name: TextPattern,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum VerbPattern {
    Any,
    Method(&'static str),
    Kubernetes(&'static str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ResourcePattern {
    plural: TextPattern,
    group: TextPattern,
    subresource: SubresourcePattern,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SubresourcePattern {
    None,
    Any,
    Is(String),
}

/// A text, or `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TextPattern {
    Any,
    Is(String),
}

impl TextPattern {
    fn new(text: &str) -> Self {
        if text == "*" {
            Self::Any
        } else {
            Self::Is(text.into())
        }
    }

    fn matches(&self, value: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Is(expected) => expected == value,
        }
    }
}

impl Matcher {
    /// Parses a pattern that is part of the program.
    ///
    /// # Panics
    ///
    /// Panics if the pattern is invalid.
    pub(crate) fn from_literal(pattern: &str) -> Self {
        pattern.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Reports whether the pattern matches a request.
    pub(crate) fn matches(&self, call: &RequestInfo<'_>) -> bool {
        let verb = match self.verb {
            VerbPattern::Any => true,
            VerbPattern::Method(method) => method == call.method,
            VerbPattern::Kubernetes(verb) => verb == call.verb,
        };
        verb && self
            .resource
            .as_ref()
            .is_none_or(|resource| resource.matches(call))
            && self.namespace.matches(call.namespace)
            && self.name.matches(call.name)
    }
}

impl ResourcePattern {
    fn matches(&self, call: &RequestInfo<'_>) -> bool {
        let subresource = match &self.subresource {
            SubresourcePattern::None => call.subresource.is_empty(),
            SubresourcePattern::Any => !call.subresource.is_empty(),
            SubresourcePattern::Is(expected) => expected == call.subresource,
        };
        subresource && self.plural.matches(call.resource) && self.group.matches(call.group)
    }
}

/// The text is not a valid request pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError(String);

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {SYNTAX}", self.0)
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
            _ => {
                return Err(PatternError(format!(
                    "pattern `{text}` has {} words instead of two or three",
                    words.len()
                )));
            }
        };
        let (namespace, name) = object.split_once('/').unwrap_or(("*", object));
        Ok(Self {
            verb: parse_verb(verb)?,
            resource: (resource != "*")
                .then(|| parse_resource(resource))
                .transpose()?,
            namespace: TextPattern::new(namespace),
            name: TextPattern::new(name),
        })
    }
}

fn parse_verb(text: &str) -> Result<VerbPattern, PatternError> {
    if text == "*" {
        return Ok(VerbPattern::Any);
    }
    if let Some(method) = METHODS.into_iter().find(|method| *method == text) {
        return Ok(VerbPattern::Method(method));
    }
    VERBS.into_iter().find(|verb| *verb == text).map(VerbPattern::Kubernetes).ok_or_else(|| {
        let methods = METHODS.join(", ");
        let verbs = VERBS.join(", ");
        PatternError(format!("`{text}` is not a valid verb; use `*`, a method in upper case ({methods}) or a verb in lower case ({verbs})"))
    })
}

fn parse_resource(text: &str) -> Result<ResourcePattern, PatternError> {
    let (resource, subresource) = match text.split_once('/') {
        None => (text, SubresourcePattern::None),
        Some((resource, "*")) => (resource, SubresourcePattern::Any),
        Some((resource, subresource)) => (resource, SubresourcePattern::Is(subresource.into())),
    };
    let (plural, group) = match resource.split_once('.') {
        None => (resource, TextPattern::Any),
        Some((plural, group)) => (plural, TextPattern::new(group)),
    };
    let empty = |part: &TextPattern| *part == TextPattern::Is(String::new());
    if plural.is_empty() || empty(&group) || subresource == SubresourcePattern::Is(String::new()) {
        return Err(PatternError(format!("`{text}` is not a valid resource")));
    }
    Ok(ResourcePattern {
        plural: TextPattern::new(plural),
        group,
        subresource,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: RequestInfo<'_> = RequestInfo {
        method: "PATCH",
        verb: "patch",
        group: "example.com",
        resource: "widgets",
        subresource: "status",
        namespace: "default",
        name: "a",
    };
    const LIST: RequestInfo<'_> = RequestInfo {
        method: "GET",
        verb: "list",
        group: "",
        resource: "pods",
        subresource: "",
        namespace: "default",
        name: "",
    };

    fn matches(pattern: &str, call: &RequestInfo<'_>) -> bool {
        Matcher::from_literal(pattern).matches(call)
    }

    #[test]
    fn upper_case_is_a_method_and_lower_case_is_a_verb() {
        assert!(
            matches("GET pods", &LIST) && matches("list pods", &LIST) && matches("* pods", &LIST)
        );
        assert!(!matches("get pods", &LIST) && !matches("PATCH pods", &LIST));
    }

    #[test]
    fn a_resource_does_not_match_its_subresources() {
        assert!(matches("PATCH widgets/status", &STATUS) && matches("patch widgets/*", &STATUS));
        assert!(!matches("PATCH widgets", &STATUS) && !matches("PATCH widgets/scale", &STATUS));
        assert!(matches("* pods", &LIST) && !matches("* pods/*", &LIST));
    }

    #[test]
    fn a_pattern_without_a_group_matches_any_group() {
        assert!(matches("PATCH widgets.example.com/status", &STATUS));
        assert!(
            !matches("PATCH widgets.other.com/status", &STATUS)
                && !matches("* pods.example.com", &LIST)
        );
    }

    #[test]
    fn a_star_matches_all_requests_and_a_star_with_a_subresource_only_those() {
        assert!(
            matches("* *", &STATUS)
                && matches(
                    "* *",
                    &RequestInfo {
                        method: "GET",
                        verb: "get",
                        ..RequestInfo::default()
                    }
                )
        );
        assert!(matches("* */status", &STATUS) && !matches("* */status", &LIST));
    }

    #[test]
    fn a_pattern_matches_objects_by_namespace_and_name() {
        for pattern in ["default/a", "default/*", "*/a", "a"] {
            assert!(
                matches(&format!("* widgets/status {pattern}"), &STATUS),
                "{pattern}"
            );
        }
        for pattern in ["other/a", "default/b", "b", "/a"] {
            assert!(
                !matches(&format!("* widgets/status {pattern}"), &STATUS),
                "{pattern}"
            );
        }
        let cluster = RequestInfo {
            resource: "nodes",
            name: "a",
            ..RequestInfo::default()
        };
        assert!(matches("* nodes /a", &cluster) && matches("* nodes a", &cluster));
    }

    #[test]
    fn an_invalid_pattern_is_an_error_that_shows_the_syntax() {
        for (text, expected) in [
            ("", "0 words"),
            ("PATCH", "1 words"),
            ("a b c d", "4 words"),
            ("Patch widgets", "`Patch` is not a valid verb"),
            ("* widgets/", "`widgets/` is not a valid resource"),
            ("* .example.com", "is not a valid resource"),
            ("* widgets.", "is not a valid resource"),
        ] {
            let error = text.parse::<Matcher>().unwrap_err().to_string();
            assert!(
                error.contains(expected) && error.contains("PATCH widgets/status"),
                "{error}"
            );
        }
    }
}
