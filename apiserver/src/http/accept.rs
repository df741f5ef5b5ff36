//! Negotiation: in which form an answer goes out, and in which form a body came in.
//!
//! Clients name what they take by preference; a form that is not served is passed over, and only if nothing is left
//! is the request refused.

use crate::status::{Details, Failure, Reason, Result};
use std::cmp::Reverse;

pub(crate) const JSON: &str = "application/json";
pub(crate) const YAML: &str = "application/yaml";
/// Named to clients, as the real server does, but not served.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Yaml,
}

/// What is made of a value before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// As it is.
    Plain,
    /// An object's metadata alone.
    PartialMetadata,
    /// The metadata of a list's objects alone.
    PartialMetadataList,
    /// What `kubectl get` shows.
    Table,
    /// All groups at once.
    AggregatedDiscovery,
}

/// What an answer looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Representation {
    pub(crate) format: Format,
    pub(crate) shape: Shape,
    /// The `apiVersion` of tables and of metadata alone.
    pub(crate) meta: &'static str,
}

/// What kind of answer is to be given: not each comes in every form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// An object or a list.
    Objects,
    /// A stream of events, which is JSON always.
    Watch,
    /// `/api` or `/apis`.
    Discovery,
    /// Anything else.
    Other,
}

/// What the real server has its answers and its watches in.
const FORMATS: [&str; 3] = [JSON, YAML, PROTOBUF];
const STREAMS: [&str; 2] = ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];

/// The version of tables and of metadata alone that clients of today ask for.
pub(crate) const META: &str = "meta.k8s.io/v1";
/// The one before, which is shown the same.
const META_BETA: &str = "meta.k8s.io/v1beta1";

/// The real server finds built-in routes by media types before it looks at anything else of `Accept`, and letter by letter.
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

/// How a failure is told: a wish that cannot be met does not hide it. `None` if it is to be indented JSON.
pub(crate) fn of_failure(accept: Option<&str>) -> Option<Format> {
    Representation::negotiate(accept, Answer::Other).ok().map(|representation| representation.format)
}

impl Representation {
    /// The best form that `accept` allows for the answer; JSON if there is no such header.
    pub(crate) fn negotiate(accept: Option<&str>, answer: Answer) -> Result<Self> {
        let accept = accept.unwrap_or_default();
        if accept.is_empty() {
            return Ok(Self { format: Format::Json, shape: Shape::Plain, meta: META });
        }
        let mut clauses: Vec<_> = accept.split(',').map(Clause::parse).collect();
        clauses.sort_by_key(|clause| (Reverse(clause.quality), clause.wildcards()));
        clauses.iter().find_map(|clause| clause.representation(answer)).ok_or_else(|| match answer {
            Answer::Watch => Failure::not_acceptable(&STREAMS),
            _ => Failure::not_acceptable(&FORMATS),
        })
    }
}

/// `application/json;as=Table;v=v1;g=meta.k8s.io;q=0.9`
struct Clause<'a> {
    media_type: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    /// In thousandths.
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
        // What is no quality is none, which only puts it last: so does the real server's parser.
        let quality = quality.last().map_or(1.0, |(_, value)| value.parse::<f32>().unwrap_or(0.0));
        Self { media_type, parameters, quality: (quality.clamp(0.0, 1.0) * 1000.0) as u16 }
    }

    fn wildcards(&self) -> usize {
        self.media_type.matches('*').count()
    }

    fn parameter(&self, name: &str) -> &'a str {
        self.parameters.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value)
    }

    fn representation(&self, answer: Answer) -> Option<Representation> {
        let format = match self.media_type {
            JSON | "application/*" | "*/*" | "*" => Format::Json,
            YAML if answer != Answer::Watch => Format::Yaml,
            _ => return None,
        };
        if !matches!(self.parameter("stream"), "" | "watch") {
            return None;
        }
        let shape = match (answer, self.parameter("as"), self.parameter("g"), self.parameter("v")) {
            (_, "", "", "") => Shape::Plain,
            (Answer::Objects | Answer::Watch, kind, "meta.k8s.io", "v1" | "v1beta1") => match kind {
                "Table" => Shape::Table,
                "PartialObjectMetadata" => Shape::PartialMetadata,
                "PartialObjectMetadataList" => Shape::PartialMetadataList,
                _ => return None,
            },
            (Answer::Discovery, "APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Shape::AggregatedDiscovery,
            _ => return None,
        };
        let meta = if self.parameter("v") == "v1beta1" { META_BETA } else { META };
        Some(Representation { format, shape, meta })
    }
}

/// The format of an object in a body; JSON if nothing is said.
pub(crate) fn body_format(content_type: Option<&str>) -> Result<Format> {
    match media_type(content_type.unwrap_or_default()).to_ascii_lowercase().as_str() {
        "" | JSON => Ok(Format::Json),
        YAML => Ok(Format::Yaml),
        _ => Err(Failure::unsupported_media_type(&FORMATS)),
    }
}

/// The type of a patch, one of the constants above; nothing is assumed. Only built-in types know `strategic` ones.
pub(crate) fn patch_type(content_type: Option<&str>, strategic: bool) -> Result<&'static str> {
    let all = [JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH];
    let served: Vec<_> = all.into_iter().filter(|&known| strategic || known != STRATEGIC_MERGE_PATCH).collect();
    let asked = media_type(content_type.unwrap_or_default());
    served.iter().find(|&&known| known == asked).copied().ok_or_else(|| {
        if strategic {
            // A built-in route is not even found.
            let message = "415: Unsupported Media Type";
            return Failure::new(415, Reason::UnsupportedMediaType, message).about(Details::default());
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
    fn gives(accept: &str, answer: Answer, format: Format, shape: Shape) {
        assert_eq!(
            Representation::negotiate(Some(accept), answer).unwrap(),
            Representation { format, shape, meta: META }
        );
    }

    #[test]
    fn without_a_wish_it_is_json() {
        let plain = Representation { format: Format::Json, shape: Shape::Plain, meta: META };
        assert_eq!(Representation::negotiate(None, Answer::Objects).unwrap(), plain);
        for accept in
            ["", "*/*", "application/*", "application/json", "application/json;stream=watch", "text/html, */*"]
        {
            gives(accept, Answer::Objects, Format::Json, Shape::Plain);
        }
    }

    #[test]
    fn the_shape_is_asked_for_by_parameters() {
        gives(TABLE, Answer::Objects, Format::Json, Shape::Table);
        gives(TABLE, Answer::Watch, Format::Json, Shape::Table);
        let partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        gives(partial, Answer::Objects, Format::Json, Shape::PartialMetadata);
        let list = "application/json; as=PartialObjectMetadataList; g=meta.k8s.io; v=v1";
        gives(list, Answer::Objects, Format::Json, Shape::PartialMetadataList);
        let discovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        gives(discovery, Answer::Discovery, Format::Json, Shape::AggregatedDiscovery);
        gives(discovery, Answer::Objects, Format::Json, Shape::Plain);
    }

    #[test]
    fn the_wish_of_kubectl_is_understood() {
        let accept = format!("{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json");
        gives(&accept, Answer::Objects, Format::Json, Shape::Table);
        gives(&accept, Answer::Other, Format::Json, Shape::Plain);
    }

    #[test]
    fn the_better_quality_and_then_the_more_specific_wins() {
        gives("application/json;q=0.5, application/yaml", Answer::Objects, Format::Yaml, Shape::Plain);
        gives("*/*, application/yaml", Answer::Objects, Format::Yaml, Shape::Plain);
        gives("application/yaml;q=x, application/json;q=0.1", Answer::Objects, Format::Json, Shape::Plain);
        gives("text/html, *; q=.2, application/yaml; q=.2", Answer::Objects, Format::Yaml, Shape::Plain);
        gives("application/vnd.kubernetes.protobuf, application/json", Answer::Objects, Format::Json, Shape::Plain);
    }

    #[test]
    fn what_is_not_served_is_not_acceptable() {
        for accept in [
            "text/html",
            "application/vnd.kubernetes.protobuf",
            "application/json;as=Table;v=v9;g=meta.k8s.io",
            "application/json;stream=other",
            ",",
        ] {
            let failure = Representation::negotiate(Some(accept), Answer::Objects).unwrap_err();
            assert_eq!(failure.code, 406, "{accept}");
            assert_eq!(
                failure.message,
                "only the following media types are accepted: application/json, application/yaml, \
                 application/vnd.kubernetes.protobuf"
            );
        }
        assert_eq!(Representation::negotiate(Some(YAML), Answer::Watch).unwrap_err().code, 406);
    }

    #[test]
    fn a_body_is_json_unless_it_says_otherwise() {
        assert_eq!(body_format(None).unwrap(), Format::Json);
        assert_eq!(body_format(Some("application/json; charset=utf-8")).unwrap(), Format::Json);
        assert_eq!(body_format(Some("application/yaml")).unwrap(), Format::Yaml);
        assert_eq!(body_format(Some("text/plain")).unwrap_err().code, 415);
    }

    #[test]
    fn a_patch_has_to_say_what_it_is() {
        assert_eq!(patch_type(Some("application/merge-patch+json; charset=utf-8"), false).unwrap(), MERGE_PATCH);
        assert_eq!(patch_type(Some(STRATEGIC_MERGE_PATCH), true).unwrap(), STRATEGIC_MERGE_PATCH);
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
            let _ = Representation::negotiate(Some(&accept), Answer::Objects);
        }
    }
}
