//! Content negotiation: the format of a response, and the format of a body.
//!
//! Media types that are not supported are skipped. The request is rejected only if none is left.

use crate::status::{Details, Failure, Reason, Result};
use std::cmp::Reverse;

pub(crate) const JSON: &str = "application/json";
pub(crate) const YAML: &str = "application/yaml";
/// Listed to clients, as kube-apiserver does, but not supported.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// Encoding of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Yaml,
}

/// Conversion of a value before it is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// None.
    Plain,
    /// Metadata of an object only.
    PartialMetadata,
    /// Metadata of a list's objects only.
    PartialMetadataList,
    /// The table that `kubectl get` prints.
    Table,
    /// All API groups in one document.
    AggregatedDiscovery,
}

/// Negotiated form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Representation {
    pub(crate) format: Format,
    pub(crate) shape: Shape,
    /// `apiVersion` of tables and partial metadata.
    pub(crate) meta: &'static str,
}

/// Kind of a response, which determines the available representations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseKind {
    /// An object or a list.
    Objects,
    /// A stream of watch events, always JSON.
    Watch,
    /// `/api` or `/apis`.
    Discovery,
    /// Any other document.
    Other,
}

/// Media types that kube-apiserver lists for responses and for watches.
const FORMATS: [&str; 3] = [JSON, YAML, PROTOBUF];
const STREAMS: [&str; 2] = [
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];

/// `apiVersion` of tables and partial metadata that current clients request.
pub(crate) const META: &str = "meta.k8s.io/v1";
/// The older version, with the same content.
const META_BETA: &str = "meta.k8s.io/v1beta1";

/// Checks that `accept` allows a media type of a built-in route. kube-apiserver does so first, and
/// compares exactly.
pub(crate) fn check_route(accept: Option<&str>, collection: bool) -> Result<()> {
    let accept = accept.filter(|accept| !accept.is_empty()).unwrap_or("*/*");
    let produced = |kind: &str| kind == "*/*" || FORMATS.contains(&kind);
    if accept.split(',').any(|clause| produced(media_type(clause))) {
        return Ok(());
    }
    let streams: &[&str] = if collection { &STREAMS } else { &[] };
    let available = [&FORMATS, streams].concat().join(", ");
    let message = format!("406: Not Acceptable\n\nAvailable representations: {available}");
    Err(Failure::new(406, Reason::NotAcceptable, message).about(Details::default()))
}

/// Returns the format of a failure, `None` for indented JSON if `accept` allows nothing that is
/// supported.
pub(crate) fn failure_format(accept: Option<&str>) -> Option<Format> {
    Representation::negotiate(accept, ResponseKind::Other)
        .ok()
        .map(|representation| representation.format)
}

impl Representation {
    /// Returns the preferred representation that `accept` allows, JSON if the header is missing.
    pub(crate) fn negotiate(accept: Option<&str>, answer: ResponseKind) -> Result<Self> {
        let accept = accept.unwrap_or_default();
        if accept.is_empty() {
            return Ok(Self {
                format: Format::Json,
                shape: Shape::Plain,
                meta: META,
            });
        }
        let mut clauses: Vec<_> = accept.split(',').map(Clause::parse).collect();
        clauses.sort_by_key(|clause| (Reverse(clause.quality), clause.wildcards()));
        clauses
            .iter()
            .find_map(|clause| clause.representation(answer))
            .ok_or_else(|| match answer {
                ResponseKind::Watch => Failure::not_acceptable(&STREAMS),
                _ => Failure::not_acceptable(&FORMATS),
            })
    }
}

/// A clause of `Accept`, such as `application/json;as=Table;v=v1;g=meta.k8s.io;q=0.9`.
struct Clause<'a> {
    media_type: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    /// Quality in thousandths.
    quality: u16,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let (quality, parameters): (Vec<_>, Vec<_>) = parts
            .filter_map(|part| part.split_once('='))
            .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
            .partition(|(name, _)| *name == "q");
        // An invalid quality counts as 0, which is tried last, as in kube-apiserver.
        let quality = quality
            .last()
            .map_or(1.0, |(_, value)| value.parse::<f32>().unwrap_or(0.0));
        Self {
            media_type,
            parameters,
            quality: (quality.clamp(0.0, 1.0) * 1000.0) as u16,
        }
    }

    fn wildcards(&self) -> usize {
        self.media_type.matches('*').count()
    }

    fn parameter(&self, name: &str) -> &'a str {
        self.parameters
            .iter()
            .find(|(key, _)| *key == name)
            .map_or("", |(_, value)| value)
    }

    fn representation(&self, answer: ResponseKind) -> Option<Representation> {
        let format = match self.media_type {
            JSON | "application/*" | "*/*" | "*" => Format::Json,
            YAML if answer != ResponseKind::Watch => Format::Yaml,
            _ => return None,
        };
        if !matches!(self.parameter("stream"), "" | "watch") {
            return None;
        }
        let shape = match (
            answer,
            self.parameter("as"),
            self.parameter("g"),
            self.parameter("v"),
        ) {
            (_, "", "", "") => Shape::Plain,
            (
                ResponseKind::Objects | ResponseKind::Watch,
                kind,
                "meta.k8s.io",
                "v1" | "v1beta1",
            ) => match kind {
                "Table" => Shape::Table,
                "PartialObjectMetadata" => Shape::PartialMetadata,
                "PartialObjectMetadataList" => Shape::PartialMetadataList,
                _ => return None,
            },
            (ResponseKind::Discovery, "APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => {
                Shape::AggregatedDiscovery
            }
            _ => return None,
        };
        let meta = if self.parameter("v") == "v1beta1" {
            META_BETA
        } else {
            META
        };
        Some(Representation {
            format,
            shape,
            meta,
        })
    }
}

/// Returns the format of a body, JSON if there is no content type.
pub(crate) fn body_format(content_type: Option<&str>) -> Result<Format> {
    match media_type(content_type.unwrap_or_default())
        .to_ascii_lowercase()
        .as_str()
    {
        "" | JSON => Ok(Format::Json),
        YAML => Ok(Format::Yaml),
        // Does not list protobuf, as kube-apiserver does, to a client that can only send protobuf.
        PROTOBUF => Err(Failure::unsupported_media_type(&[JSON, YAML])),
        _ => Err(Failure::unsupported_media_type(&FORMATS)),
    }
}

/// Returns the type of a patch, one of the constants above. Only built-in resources support
/// `strategic` ones.
pub(crate) fn patch_type(content_type: Option<&str>, strategic: bool) -> Result<&'static str> {
    let all = [JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH];
    let served: Vec<_> = all
        .into_iter()
        .filter(|&known| strategic || known != STRATEGIC_MERGE_PATCH)
        .collect();
    let requested = media_type(content_type.unwrap_or_default());
    served
        .iter()
        .find(|&&known| known == requested)
        .copied()
        .ok_or_else(|| {
            if strategic {
                // kube-apiserver does not find a route for a built-in resource.
                let message = "415: Unsupported Media Type";
                return Failure::new(415, Reason::UnsupportedMediaType, message)
                    .about(Details::default());
            }
            Failure::unsupported_media_type(&served)
        })
}

fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

    #[track_caller]
    fn assert_negotiated(accept: &str, answer: ResponseKind, format: Format, shape: Shape) {
        assert_eq!(
            Representation::negotiate(Some(accept), answer).unwrap(),
            Representation {
                format,
                shape,
                meta: META
            }
        );
    }

    #[test]
    fn without_a_preference_the_response_is_json() {
        let plain = Representation {
            format: Format::Json,
            shape: Shape::Plain,
            meta: META,
        };
        assert_eq!(
            Representation::negotiate(None, ResponseKind::Objects).unwrap(),
            plain
        );
        for accept in [
            "",
            "*/*",
            "application/*",
            "application/json",
            "application/json;stream=watch",
            "text/html, */*",
        ] {
            assert_negotiated(accept, ResponseKind::Objects, Format::Json, Shape::Plain);
        }
    }

    #[test]
    fn parameters_of_the_media_type_select_the_shape() {
        assert_negotiated(TABLE, ResponseKind::Objects, Format::Json, Shape::Table);
        assert_negotiated(TABLE, ResponseKind::Watch, Format::Json, Shape::Table);
        let partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_negotiated(
            partial,
            ResponseKind::Objects,
            Format::Json,
            Shape::PartialMetadata,
        );
        let list = "application/json; as=PartialObjectMetadataList; g=meta.k8s.io; v=v1";
        assert_negotiated(
            list,
            ResponseKind::Objects,
            Format::Json,
            Shape::PartialMetadataList,
        );
        let discovery =
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        assert_negotiated(
            discovery,
            ResponseKind::Discovery,
            Format::Json,
            Shape::AggregatedDiscovery,
        );
        assert_negotiated(discovery, ResponseKind::Objects, Format::Json, Shape::Plain);
    }

    #[test]
    fn the_accept_header_of_kubectl_selects_a_table() {
        let accept =
            format!("{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json");
        assert_negotiated(&accept, ResponseKind::Objects, Format::Json, Shape::Table);
        assert_negotiated(&accept, ResponseKind::Other, Format::Json, Shape::Plain);
    }

    #[test]
    fn quality_and_then_specificity_decide() {
        assert_negotiated(
            "application/json;q=0.5, application/yaml",
            ResponseKind::Objects,
            Format::Yaml,
            Shape::Plain,
        );
        assert_negotiated(
            "*/*, application/yaml",
            ResponseKind::Objects,
            Format::Yaml,
            Shape::Plain,
        );
        assert_negotiated(
            "application/yaml;q=x, application/json;q=0.1",
            ResponseKind::Objects,
            Format::Json,
            Shape::Plain,
        );
        assert_negotiated(
            "text/html, *; q=.2, application/yaml; q=.2",
            ResponseKind::Objects,
            Format::Yaml,
            Shape::Plain,
        );
        assert_negotiated(
            "application/vnd.kubernetes.protobuf, application/json",
            ResponseKind::Objects,
            Format::Json,
            Shape::Plain,
        );
    }

    #[test]
    fn unsupported_media_types_are_not_acceptable() {
        for accept in [
            "text/html",
            "application/vnd.kubernetes.protobuf",
            "application/json;as=Table;v=v9;g=meta.k8s.io",
            "application/json;stream=other",
            ",",
        ] {
            let failure =
                Representation::negotiate(Some(accept), ResponseKind::Objects).unwrap_err();
            assert_eq!(failure.code, 406, "{accept}");
            assert_eq!(
                failure.message,
                "only the following media types are accepted: application/json, application/yaml, \
                 application/vnd.kubernetes.protobuf"
            );
        }
        assert_eq!(
            Representation::negotiate(Some(YAML), ResponseKind::Watch)
                .unwrap_err()
                .code,
            406
        );
    }

    #[test]
    fn a_body_without_content_type_is_json() {
        assert_eq!(body_format(None).unwrap(), Format::Json);
        assert_eq!(
            body_format(Some("application/json; charset=utf-8")).unwrap(),
            Format::Json
        );
        assert_eq!(body_format(Some("application/yaml")).unwrap(), Format::Yaml);
        assert_eq!(body_format(Some("text/plain")).unwrap_err().code, 415);
    }

    #[test]
    fn a_protobuf_body_is_told_the_types_that_the_server_accepts() {
        let failure = body_format(Some(PROTOBUF)).unwrap_err();
        assert_eq!(failure.code, 415);
        assert!(
            failure
                .message
                .ends_with("accepted media types include: application/json, application/yaml")
        );
    }

    #[test]
    fn a_patch_requires_a_supported_content_type() {
        assert_eq!(
            patch_type(Some("application/merge-patch+json; charset=utf-8"), false).unwrap(),
            MERGE_PATCH
        );
        assert_eq!(
            patch_type(Some(STRATEGIC_MERGE_PATCH), true).unwrap(),
            STRATEGIC_MERGE_PATCH
        );
        let failure = patch_type(Some(STRATEGIC_MERGE_PATCH), false).unwrap_err();
        assert_eq!(failure.code, 415);
        assert!(
            failure
                .message
                .ends_with("application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml")
        );
        assert_eq!(patch_type(None, true).unwrap_err().code, 415);
        assert_eq!(patch_type(Some(JSON), true).unwrap_err().code, 415);
    }

    steersman_testkit::properties! {
        #[test]
        fn negotiation_never_panics(accept in r"[a-z/*;=,q0-9. -]{0,40}|\PC*") {
            let _ = Representation::negotiate(Some(&accept), ResponseKind::Objects);
        }
    }
}
