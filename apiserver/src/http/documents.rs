//! What the server says of itself: health, version, what it serves.

use super::{
    accept::{Answer as AnswerKind, Representation, Shape},
    body::Body,
    discovery::{self, Document},
    handle::Request,
    path::Target,
    reply::Reply,
};
use crate::status::Result;
use bytes::Bytes;
use http::header;
use serde_json::Value;

/// What aggregated discovery is sent as.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

impl Request<'_> {
    /// Everything that is not about objects.
    pub(super) fn document(&self, target: &Target) -> Result<Reply> {
        let catalog = self.core.catalog();
        let served = || catalog.iter().map(|served| &served.resource);
        let asked = |kind| Representation::negotiate(self.header(&header::ACCEPT), kind);
        let document = match target {
            Target::Health { .. } => return Ok(Reply::text(200, "ok")),
            Target::Version => discovery::version(),
            Target::Root => discovery::paths(served()),
            Target::CoreVersions | Target::Groups => {
                let core = matches!(target, Target::CoreVersions);
                match asked(AnswerKind::Discovery)?.shape {
                    Shape::AggregatedDiscovery => return Ok(self.tagged(&discovery::aggregated(served(), core))),
                    _ if core => discovery::api_versions(served(), self.header(&header::HOST).unwrap_or_default()),
                    _ => discovery::group_list(served()),
                }
            }
            Target::Group(group) => match discovery::group(served(), group) {
                Some(document) => document,
                None => return Ok(Reply::nothing()),
            },
            Target::Resources { group, version } => match discovery::resource_list(served(), group, version) {
                Some(document) => document,
                None => return Ok(Reply::nothing()),
            },
            Target::Openapi | Target::OpenapiDocument { .. } | Target::Nothing | Target::Resource(_) => {
                return Ok(Reply::nothing());
            }
        };
        let format = asked(AnswerKind::Other)?.format;
        Reply::value(200, &document, format, self.query.pretty() == Some(true))
    }

    /// Aggregated discovery, which clients keep and ask for again by its tag.
    fn tagged(&self, document: &Value) -> Reply {
        let document = Document::new(document);
        let known = self.header(&header::IF_NONE_MATCH).is_some_and(|tags| document.is_known_by(tags));
        let (code, body) = if known { (304, Body::default()) } else { (200, Bytes::from(document.body).into()) };
        Reply { etag: Some(document.etag), ..Reply::new(code, AGGREGATED, body) }
    }
}
