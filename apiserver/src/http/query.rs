//! Parses the query of a request.
//!
//! Unknown parameters and pairs that are not properly encoded are ignored. If a parameter is
//! repeated, its first value applies.

pub(crate) mod time_limit;
pub(crate) mod write;

use super::path::decode;
use crate::{
    page::Position,
    selector::{FieldSelector, LabelSelector},
    status::{Failure, FieldError, Result},
};
use serde_json::Value;
use std::time::Duration;

/// The parameters of a request, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the part of a URL after the question mark.
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let decoded = |text: &str| decode(&text.replace('+', " "));
        // kube-apiserver ignores pairs with semicolons.
        let pairs = query
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.contains(';'));
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        Self(
            pairs
                .filter_map(|(key, value)| Some((decoded(key)?, decoded(value)?)))
                .collect(),
        )
    }

    /// Returns the value of a parameter, which may be empty.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    /// Returns all values of a parameter.
    pub(crate) fn all(&self, key: &str) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(move |(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    /// Returns whether to indent the response, if the query says so.
    pub(crate) fn pretty(&self) -> Option<bool> {
        let value = self.get("pretty").filter(|value| !value.is_empty())?;
        Some(matches!(value, "1" | "t" | "T" | "true" | "True" | "TRUE"))
    }

    fn text(&self, key: &str) -> &str {
        self.get(key).unwrap_or_default()
    }

    /// Returns a boolean parameter. Every value except `false` and `0` is true, also the empty one.
    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        self.get(key)
            .map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    fn integer(&self, key: &str) -> Result<Option<i64>> {
        let parse = |value: &str| {
            value.parse().map_err(|_| {
                Failure::bad_request(format!(
                    "strconv.ParseInt: parsing {}: invalid syntax",
                    Value::from(value)
                ))
            })
        };
        self.get(key).map(parse).transpose()
    }
}

/// Meaning of `resourceVersion` in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionMatch {
    Exact,
    NotOlderThan,
}

/// Options of a list or watch. Parsing rejects invalid combinations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListOptions {
    pub(crate) labels: LabelSelector,
    /// Fields to select by. Whether the resource supports them is checked later.
    pub(crate) fields: FieldSelector,
    /// Maximum number of objects in a page. `None` for all.
    pub(crate) limit: Option<usize>,
    /// Position of the requested page.
    pub(crate) position: Option<Position>,
    /// `Some(0)` accepts any state, `None` requests the newest.
    pub(crate) resource_version: Option<u64>,
    pub(crate) version_match: Option<VersionMatch>,
    pub(crate) watch: bool,
    pub(crate) bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
    pub(crate) timeout: Option<Duration>,
}

impl ListOptions {
    /// Parses the query. `legacy_watch`: the path requests a watch.
    pub(crate) fn parse(query: &Query, legacy_watch: bool) -> Result<Self> {
        let positive = |value: i64| u64::try_from(value).ok().filter(|&value| value > 0);
        let watch = legacy_watch || query.flag("watch").unwrap_or(false);
        let send_initial_events = query.flag("sendInitialEvents");
        let labels = LabelSelector::parse(query.text("labelSelector"))?;
        let fields = FieldSelector::parse(query.text("fieldSelector"))?;
        let limit = query.integer("limit")?.and_then(positive);
        let timeout = query.integer("timeoutSeconds")?.and_then(positive);
        let errors = if watch {
            forbidden_in_watch(query)
        } else {
            forbidden_in_list(query)
        };
        if !errors.is_empty() {
            return Err(Failure::invalid("meta.k8s.io", "ListOptions", "", errors));
        }
        // As in kube-apiserver, only lists add this prefix.
        let resource_version =
            resource_version(query.text("resourceVersion")).map_err(|failure| {
                let prefixed = || {
                    Failure::bad_request(format!("invalid resource version: {}", failure.message))
                };
                if watch { failure.clone() } else { prefixed() }
            })?;
        let position = match query.text("continue") {
            "" => None,
            // Watches have no pages.
            _ if watch => None,
            _ if resource_version.is_some_and(|version| version > 0) => {
                return Err(Failure::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            token => Some(Position::decode(token)?),
        };
        Ok(Self {
            labels,
            fields,
            limit: limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
            position,
            resource_version,
            version_match: match query.text("resourceVersionMatch") {
                "Exact" => Some(VersionMatch::Exact),
                "NotOlderThan" => Some(VersionMatch::NotOlderThan),
                _ => None,
            },
            watch,
            bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            send_initial_events,
            timeout: timeout.map(Duration::from_secs),
        })
    }
}

impl ListOptions {
    /// Restricts the options to the object `name`.
    pub(crate) fn select_name(&mut self, name: &str) {
        self.fields.require("metadata.name", name);
    }
}

/// Parses a resource version, `None` if it is empty. An invalid one is a 500, as in kube-apiserver.
pub(crate) fn resource_version(text: &str) -> Result<Option<u64>> {
    if text.is_empty() {
        return Ok(None);
    }
    let invalid = |_| {
        let value = Value::from(text);
        let reason = format!("strconv.ParseUint: parsing {value}: invalid syntax");
        Failure::new(
            500,
            None,
            FieldError::invalid("resourceVersion", &value, reason).to_string(),
        )
    };
    text.parse().map(Some).map_err(invalid)
}

const MATCH: &str = "resourceVersionMatch";

fn forbidden_in_list(query: &Query) -> Vec<FieldError> {
    let version = query.text("resourceVersion");
    let wanted = query.text(MATCH);
    let mut errors = Vec::new();
    let mut forbid = |field: &str, reason: &str| errors.push(FieldError::forbidden(field, reason));
    if !wanted.is_empty() {
        if version.is_empty() {
            forbid(
                MATCH,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            );
        }
        if !query.text("continue").is_empty() {
            forbid(
                MATCH,
                "resourceVersionMatch is forbidden when continue is provided",
            );
        }
        if wanted == "Exact" && version == "0" {
            forbid(
                MATCH,
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            );
        }
    }
    if query.flag("sendInitialEvents").is_some() {
        forbid(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for list",
        );
    }
    if !matches!(wanted, "" | "Exact" | "NotOlderThan") {
        errors.push(FieldError::not_supported(
            MATCH,
            &wanted.into(),
            ["Exact", "NotOlderThan", ""],
        ));
    }
    errors
}

fn forbidden_in_watch(query: &Query) -> Vec<FieldError> {
    let wanted = query.text(MATCH);
    let initial = query.flag("sendInitialEvents").is_some();
    let mut errors = Vec::new();
    let mut forbid = |reason: &str| errors.push(FieldError::forbidden(MATCH, reason));
    if initial && wanted != "NotOlderThan" {
        forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
    }
    if !wanted.is_empty() {
        if !initial {
            forbid(
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            );
        }
        if !query.text("continue").is_empty() {
            forbid("resourceVersionMatch is forbidden when continue is provided");
        }
        if wanted != "NotOlderThan" {
            errors.push(FieldError::not_supported(
                MATCH,
                &wanted.into(),
                ["NotOlderThan"],
            ));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(query: &str) -> Result<ListOptions> {
        ListOptions::parse(&Query::parse(Some(query)), false)
    }

    fn fields(failure: &Failure) -> Vec<&str> {
        let details = failure.details.as_ref().unwrap();
        details
            .causes
            .iter()
            .map(|cause| cause.field.as_str())
            .collect()
    }

    #[test]
    fn invalid_pairs_are_ignored() {
        let query = Query::parse(Some("a=1&a=2&b&c=%zz&d=%20+x&e;f=1&=g"));
        assert_eq!(query.get("a"), Some("1"));
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(query.get("b"), Some(""));
        assert_eq!(query.get("c"), None);
        assert_eq!(query.get("d"), Some("  x"));
        assert_eq!(query.get("f"), None);
        assert_eq!(Query::parse(None), Query::default());
    }

    #[test]
    fn pretty_is_true_false_or_unset() {
        let pretty = |query| Query::parse(Some(query)).pretty();
        assert_eq!(
            [
                pretty("pretty=true"),
                pretty("pretty=0"),
                pretty("pretty="),
                pretty("")
            ],
            [Some(true), Some(false), None, None]
        );
    }

    #[test]
    fn all_options_of_a_list_are_parsed() {
        let options = list(
            "labelSelector=a%3Db&fieldSelector=metadata.name%3Dx&limit=2&resourceVersion=7\
             &resourceVersionMatch=Exact&timeoutSeconds=8&allowWatchBookmarks=true&unknown=1",
        )
        .unwrap();
        assert!(!options.labels.is_empty());
        assert_eq!(options.fields.exact("metadata.name"), Some("x"));
        assert_eq!(
            (options.limit, options.resource_version),
            (Some(2), Some(7))
        );
        assert_eq!(options.version_match, Some(VersionMatch::Exact));
        assert_eq!(options.timeout, Some(Duration::from_secs(8)));
        assert!(options.bookmarks && !options.watch);
        assert_eq!(
            list("limit=0&resourceVersion=").unwrap(),
            ListOptions::default()
        );
    }

    #[test]
    fn any_watch_value_except_false_requests_a_watch() {
        for (query, watch) in [
            ("watch", true),
            ("watch=1", true),
            ("watch=False", false),
            ("watch=0", false),
            ("", false),
        ] {
            assert_eq!(list(query).unwrap().watch, watch, "{query}");
        }
        assert!(ListOptions::parse(&Query::default(), true).unwrap().watch);
        let options =
            list("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan").unwrap();
        assert_eq!(options.send_initial_events, Some(true));
    }

    #[test]
    fn invalid_values_have_the_status_and_text_of_kube_apiserver() {
        let token = Position::after(Some(1), "a").encode();
        for (query, code, message) in [
            (
                "limit=abc",
                400,
                "strconv.ParseInt: parsing \"abc\": invalid syntax",
            ),
            (
                "timeoutSeconds=",
                400,
                "strconv.ParseInt: parsing \"\": invalid syntax",
            ),
            (
                "labelSelector=a%2C",
                400,
                "found '', expected: identifier after ','",
            ),
            (
                "watch=1&resourceVersion=x",
                500,
                "resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax",
            ),
            (
                &format!("continue={token}&resourceVersion=3"),
                400,
                "specifying resource version is not allowed when using continue",
            ),
        ] {
            let failure = list(query).unwrap_err();
            assert_eq!((failure.code, &*failure.message), (code, message));
        }
        assert_eq!(list("continue=garbage").unwrap_err().code, 400);
        assert!(
            list(&format!("continue={token}&resourceVersion=0"))
                .unwrap()
                .position
                .is_some()
        );
    }

    #[test]
    fn forbidden_combinations_are_invalid() {
        for (query, expected) in [
            ("resourceVersionMatch=Exact", &["resourceVersionMatch"][..]),
            (
                "resourceVersionMatch=Exact&resourceVersion=0",
                &["resourceVersionMatch"],
            ),
            (
                "resourceVersionMatch=Sometimes&resourceVersion=1",
                &["resourceVersionMatch"],
            ),
            ("sendInitialEvents=true", &["sendInitialEvents"]),
            ("watch=1&sendInitialEvents=true", &["resourceVersionMatch"]),
            (
                "watch=1&resourceVersionMatch=NotOlderThan",
                &["resourceVersionMatch"],
            ),
            (
                "watch=1&resourceVersionMatch=Exact",
                &["resourceVersionMatch", "resourceVersionMatch"],
            ),
        ] {
            let failure = list(query).unwrap_err();
            assert_eq!(
                (failure.code, fields(&failure)),
                (422, expected.to_vec()),
                "{query}"
            );
        }
        assert_eq!(
            list("resourceVersionMatch=Exact").unwrap_err().message,
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
             resourceVersionMatch is forbidden unless resourceVersion is provided"
        );
    }

    steersman_testkit::properties! {
        #[test]
        fn parsing_never_panics(query in r"((watch|limit|continue|labelSelector)=[a-z0-9%=]{0,6}&){0,4}|\PC*") {
            let _ = list(&query);
        }
    }
}
