//! Parses the path of a request.
//!
//! The path is decoded before it is split, as in kube-apiserver. An encoded slash is therefore a
//! separator, and no segment contains one.

use crate::{
    meta::names,
    status::{Failure, Result},
};
use percent_encoding::percent_decode_str;

/// Target of a request's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// `/`: the list of paths.
    Root,
    /// `/version`
    Version,
    /// `/healthz`, `/livez` or `/readyz`, or one of their checks.
    Health {
        which: Health,
        check: Option<String>,
    },
    /// `/openapi/v3`: the list of documents.
    Openapi,
    /// `/openapi/v3/api/v1` or `/openapi/v3/apis/G/V`
    OpenapiDocument { group: String, version: String },
    /// `/api`: the versions of the core group.
    CoreVersions,
    /// `/apis`: all other groups.
    Groups,
    /// `/apis/G`
    Group(String),
    /// `/api/v1` or `/apis/G/V`: the resources of a version.
    Resources { group: String, version: String },
    /// A resource or object.
    Resource(Location),
    /// No target: `404 page not found` as plain text.
    NotFound,
}

/// Health endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Healthz,
    Livez,
    Readyz,
}

/// Resource or object that a path names. The resource need not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Location {
    /// API group. Empty for the core group.
    pub(crate) group: String,
    pub(crate) version: String,
    /// `None` for cluster-scoped resources, including a namespace itself, and for all namespaces.
    pub(crate) namespace: Option<String>,
    /// Plural name, such as `pods`.
    pub(crate) resource: String,
    /// Name of the object. `None` for the collection.
    pub(crate) name: Option<String>,
    /// Subresource, such as `status`.
    pub(crate) subresource: Option<String>,
    /// The path begins with `/watch/`, the deprecated form of a watch.
    pub(crate) legacy_watch: bool,
}

impl Target {
    /// Parses the path of a URL. Trailing slashes are ignored.
    pub(crate) fn parse(path: &str) -> Result<Self> {
        let path =
            decode(path).ok_or_else(|| Failure::bad_request("the path is not properly encoded"))?;
        let path = path.trim_matches('/');
        let segments: Vec<&str> = if path.is_empty() {
            Vec::new()
        } else {
            path.split('/').collect()
        };
        // As in kube-apiserver, unknown paths get a `Status` in the core group and plain text
        // elsewhere.
        Ok(match segments[..] {
            ["api", ..] if segments.contains(&"") => return Err(Failure::no_resource()),
            _ if segments.contains(&"") => Self::NotFound,
            [] => Self::Root,
            ["version"] => Self::Version,
            ["healthz", ref check @ ..] => health(Health::Healthz, check),
            ["livez", ref check @ ..] => health(Health::Livez, check),
            ["readyz", ref check @ ..] => health(Health::Readyz, check),
            ["openapi", "v3"] => Self::Openapi,
            ["openapi", "v3", "api", version] => Self::OpenapiDocument {
                group: String::new(),
                version: version.into(),
            },
            ["openapi", "v3", "apis", group, version] => Self::OpenapiDocument {
                group: group.into(),
                version: version.into(),
            },
            ["api"] => Self::CoreVersions,
            ["api", version] => Self::Resources {
                group: String::new(),
                version: version.into(),
            },
            ["api", version, ref rest @ ..] => Self::Resource(
                Location::parse("", version, rest)?.ok_or_else(Failure::no_resource)?,
            ),
            ["apis"] => Self::Groups,
            ["apis", group] => Self::Group(group.into()),
            ["apis", group, version] => Self::Resources {
                group: group.into(),
                version: version.into(),
            },
            ["apis", group, version, ref rest @ ..] => {
                Location::parse(group, version, rest)?.map_or(Self::NotFound, Self::Resource)
            }
            _ => Self::NotFound,
        })
    }
}

fn health(which: Health, check: &[&str]) -> Target {
    let check = if check.is_empty() {
        None
    } else {
        Some(check.join("/"))
    };
    Target::Health { which, check }
}

impl Location {
    /// Returns `None` if the path cannot name a resource.
    fn parse(group: &str, version: &str, mut rest: &[&str]) -> Result<Option<Self>> {
        let mut found = Self {
            group: group.into(),
            version: version.into(),
            ..Self::default()
        };
        if let ["watch", tail @ ..] = rest {
            found.legacy_watch = true;
            rest = tail;
        }
        match rest {
            // Only these two are subresources of a namespace. Anything else after its name is a
            // resource in it.
            ["namespaces", _, "status" | "finalize", ..] => {}
            ["namespaces", namespace, tail @ ..] if !tail.is_empty() => {
                found.namespace = Some((*namespace).into());
                rest = tail;
            }
            _ => {}
        }
        let (resource, name, subresource) = match *rest {
            [resource] => (resource, None, None),
            [resource, name] => (resource, Some(name), None),
            [resource, name, subresource] if !found.legacy_watch => {
                (resource, Some(name), Some(subresource))
            }
            _ => return Ok(None),
        };
        if found
            .namespace
            .as_deref()
            .is_some_and(|namespace| !names::path_segment(namespace).is_empty())
        {
            return Ok(None);
        }
        if let Some(name) = name {
            let errors = names::path_segment(name);
            if !errors.is_empty() {
                return Err(Failure::bad_request(format!(
                    "Name parameter invalid: {name:?}: {}",
                    errors.join(";")
                )));
            }
        }
        found.resource = resource.into();
        found.name = name.map(Into::into);
        found.subresource = subresource.map(Into::into);
        Ok(Some(found))
    }
}

/// Decodes percent encoding. Returns `None` if it is invalid or the result is not UTF-8.
pub(super) fn decode(text: &str) -> Option<String> {
    let is_hex = |at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_hexdigit);
    let is_valid = text
        .match_indices('%')
        .all(|(at, _)| is_hex(at + 1) && is_hex(at + 2));
    if !is_valid {
        return None;
    }
    Some(percent_decode_str(text).decode_utf8().ok()?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn location(path: &str) -> Location {
        match Target::parse(path).unwrap() {
            Target::Resource(location) => location,
            other => panic!("{path} is {other:?}"),
        }
    }

    /// Formats the location of a path as `namespace resource/name/subresource`.
    fn shape(path: &str) -> String {
        let found = location(path);
        let tail = |part: &Option<String>| {
            part.as_deref()
                .map(|part| format!("/{part}"))
                .unwrap_or_default()
        };
        let watch = if found.legacy_watch { "watch " } else { "" };
        let namespace = found.namespace.as_deref().unwrap_or("*");
        format!(
            "{watch}{namespace} {}{}{}",
            found.resource,
            tail(&found.name),
            tail(&found.subresource)
        )
    }

    #[test]
    fn a_namespace_is_an_object_and_contains_resources() {
        for (path, expected) in [
            ("/api/v1/namespaces", "* namespaces"),
            ("/api/v1/namespaces/x", "* namespaces/x"),
            ("/api/v1/namespaces/x/status", "* namespaces/x/status"),
            ("/api/v1/namespaces/x/finalize", "* namespaces/x/finalize"),
            ("/api/v1/namespaces/x/pods", "x pods"),
            ("/api/v1/namespaces/x/pods/y", "x pods/y"),
            ("/api/v1/namespaces/x/pods/y/status", "x pods/y/status"),
            ("/api/v1/pods", "* pods"),
            ("/api/v1/pods/", "* pods"),
            ("/api/v1/nodes/n/status", "* nodes/n/status"),
            ("/api/v1/watch/namespaces/x/pods", "watch x pods"),
            ("/api/v1/watch/namespaces/x/pods/y", "watch x pods/y"),
            ("/api/v1/watch/namespaces/x", "watch * namespaces/x"),
            (
                "/apis/example.com/v1/namespaces/x/widgets/w/scale",
                "x widgets/w/scale",
            ),
            ("/api/v1/namespaces/x/%70ods/a%3Ab", "x pods/a:b"),
        ] {
            assert_eq!(shape(path), expected, "{path}");
        }
        let found = location("/apis/example.com/v1/widgets");
        assert_eq!((&*found.group, &*found.version), ("example.com", "v1"));
    }

    #[test]
    fn paths_other_than_resources_have_targets_of_their_own() {
        let pair = |group: &str, version: &str| (group.to_owned(), version.to_owned());
        let (group, version) = pair("apps", "v1");
        let health = |which, check: Option<&str>| Target::Health {
            which,
            check: check.map(Into::into),
        };
        for (path, expected) in [
            ("/", Target::Root),
            ("/version", Target::Version),
            ("/healthz", health(Health::Healthz, None)),
            ("/livez/ping", health(Health::Livez, Some("ping"))),
            (
                "/readyz/poststarthook/x",
                health(Health::Readyz, Some("poststarthook/x")),
            ),
            ("/api", Target::CoreVersions),
            ("/apis/", Target::Groups),
            ("/apis/apps", Target::Group("apps".into())),
            (
                "/api/v1",
                Target::Resources {
                    group: String::new(),
                    version: "v1".into(),
                },
            ),
            (
                "/apis/apps/v1",
                Target::Resources {
                    group: group.clone(),
                    version: version.clone(),
                },
            ),
            ("/openapi/v3", Target::Openapi),
            (
                "/openapi/v3/api/v1",
                Target::OpenapiDocument {
                    group: String::new(),
                    version: "v1".into(),
                },
            ),
            (
                "/openapi/v3/apis/apps/v1",
                Target::OpenapiDocument { group, version },
            ),
            ("/openapi/v2", Target::NotFound),
            ("/nope", Target::NotFound),
        ] {
            assert_eq!(Target::parse(path).unwrap(), expected, "{path}");
        }
    }

    #[test]
    fn paths_with_dot_or_empty_segments_are_rejected() {
        for (path, code) in [
            ("/api/v1/namespaces//pods", 404),
            ("/api//pods", 404),
            ("/api/v1/namespaces/../pods", 404),
            ("/api/v1/namespaces/a%2525/pods", 404),
            ("/api/v1/pods/a/b/c/d", 404),
            ("/api/v1/watch/pods/a/status", 404),
            ("/api/v1/watch", 404),
            ("/api/v1/namespaces/x/pods/..", 400),
            ("/api/v1/namespaces/x/pods/%2e", 400),
            ("/api/v1/namespaces/x/pods/a%25", 400),
            ("/api/v1/pods/%zz", 400),
            ("/api/v1/pods/%f", 400),
            ("/api/v1/pods/%ff", 400),
        ] {
            assert_eq!(Target::parse(path).unwrap_err().code, code, "{path}");
        }
        for path in [
            "/apis/apps/v1/namespaces//deployments",
            "/apis//v1/pods",
            "/apis//v1",
            "/openapi/v3/apis//v1",
        ] {
            assert_eq!(Target::parse(path).unwrap(), Target::NotFound, "{path}");
        }
        assert_eq!(
            Target::parse("/api/v1/namespaces/x/pods/..")
                .unwrap_err()
                .message,
            r#"Name parameter invalid: "..": may not be '..'"#
        );
    }

    #[test]
    fn an_encoded_slash_is_a_slash() {
        assert_eq!(shape("/api/v1/namespaces/x%2Fpods"), "x pods");
    }

    steersman_testkit::properties! {
        #[test]
        fn no_segment_contains_a_slash_and_parsing_never_panics(path in r"/apis?(/(watch|namespaces|v1|\.\.?|[a-z%2f]{0,6})){0,8}|\PC*") {
            if let Ok(Target::Resource(found)) = Target::parse(&path) {
                for part in [Some(found.resource), found.namespace, found.name, found.subresource].into_iter().flatten() {
                    prop_assert!(!part.is_empty() && !part.contains('/'));
                }
            }
        }
    }
}
