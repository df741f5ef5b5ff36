//! What the server says of itself: health, version, what it serves.

use super::{
    accept::{self, Answer as AnswerKind, Representation, Shape},
    body::Body,
    discovery::{self, Document},
    handle::Request,
    path::Target,
    reply::Reply,
};
use crate::status::{Failure, Result};
use bytes::Bytes;
use http::{Method, header};
use serde_json::Value;

/// What aggregated discovery is sent as.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

impl Request {
    /// Everything that is not about objects.
    pub(super) fn document(&self, target: &Target) -> Result<Reply> {
        let catalog = self.core.catalog();
        let served = || catalog.iter().map(|served| &served.resource);
        let asked = |kind| Representation::negotiate(self.header(&header::ACCEPT), kind);
        // What the real server has routes for can only be got; behind the rest is one handler for all methods.
        let route = match target {
            Target::Version | Target::CoreVersions => true,
            Target::Resources { group, .. } => catalog.has_built_in(group),
            _ => false,
        };
        if route && self.parts.method != Method::GET {
            return Err(Failure::method_not_allowed());
        }
        if route {
            accept::check_route(self.header(&header::ACCEPT), false)?;
        }
        let document = match target {
            Target::Health { check: Some(check), .. } if !is_check(check) => return Ok(Reply::nothing()),
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
                None if catalog.has_built_in(group) => return Err(Failure::no_resource()),
                None => return Ok(Reply::nothing()),
            },
            Target::Openapi | Target::OpenapiDocument { .. } | Target::Nothing | Target::Resource(_) => {
                return Ok(Reply::nothing());
            }
        };
        let format = asked(AnswerKind::Other)?.format;
        Reply::value(200, &document, format, self.pretty())
    }

    /// Aggregated discovery, which clients keep and ask for again by its tag.
    fn tagged(&self, document: &Value) -> Reply {
        let document = Document::new(document);
        let known = self.header(&header::IF_NONE_MATCH).is_some_and(|tags| document.is_known_by(tags));
        let (code, body) = if known { (304, Body::default()) } else { (200, Bytes::from(document.body).into()) };
        Reply { etag: Some(document.etag), ..Reply::new(code, AGGREGATED, body) }
    }
}

/// Whether the real server has a check of that name, too.
fn is_check(name: &str) -> bool {
    matches!(name, "ping" | "log" | "etcd") || name.starts_with("poststarthook/")
}
