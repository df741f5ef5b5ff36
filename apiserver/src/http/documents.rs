//! Documents that describe the server: health, version and discovery.

use super::{
    accept::{self, Representation, ResponseKind, Shape},
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

/// Content type of aggregated discovery.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

impl Request {
    /// Serves a request that is not for a resource.
    pub(super) fn document(&self, target: &Target) -> Result<Reply> {
        let catalog = self.core.catalog();
        let served = || catalog.iter().map(|served| &served.resource);
        let representation = |kind| Representation::negotiate(self.header(&header::ACCEPT), kind);
        // kube-apiserver has routes, which allow only GET, for some documents. Others have one
        // handler for all methods.
        let route = match target {
            Target::Version | Target::CoreVersions => true,
            Target::Resources { group, .. } => catalog.has_builtin(group),
            _ => false,
        };
        if route && self.parts.method != Method::GET {
            return Err(Failure::method_not_allowed());
        }
        if route {
            accept::check_route(self.header(&header::ACCEPT), false)?;
        }
        let document = match target {
            Target::Health {
                check: Some(check), ..
            } if !is_check(check) => return Ok(Reply::page_not_found()),
            Target::Health { .. } => return Ok(Reply::text(200, "ok")),
            Target::Version => discovery::version(),
            Target::Root => discovery::paths(served()),
            Target::CoreVersions | Target::Groups => {
                let core = matches!(target, Target::CoreVersions);
                match representation(ResponseKind::Discovery)?.shape {
                    Shape::AggregatedDiscovery => {
                        return Ok(self.tagged(&discovery::aggregated(served(), core)));
                    }
                    _ if core => discovery::api_versions(
                        served(),
                        self.header(&header::HOST).unwrap_or_default(),
                    ),
                    _ => discovery::group_list(served()),
                }
            }
            Target::Group(group) => match discovery::group(served(), group) {
                Some(document) => document,
                None => return Ok(Reply::page_not_found()),
            },
            Target::Resources { group, version } => {
                match discovery::resource_list(served(), group, version) {
                    Some(document) => document,
                    None if catalog.has_builtin(group) => return Err(Failure::no_resource()),
                    None => return Ok(Reply::page_not_found()),
                }
            }
            Target::Openapi
            | Target::OpenapiDocument { .. }
            | Target::NotFound
            | Target::Resource(_) => {
                return Ok(Reply::page_not_found());
            }
        };
        let format = representation(ResponseKind::Other)?.format;
        Reply::value(200, &document, format, self.pretty())
    }

    /// Returns aggregated discovery, or 304 if the client has the current document.
    fn tagged(&self, document: &Value) -> Reply {
        let document = Document::new(document);
        let known = self
            .header(&header::IF_NONE_MATCH)
            .is_some_and(|tags| document.is_known_by(tags));
        let (code, body) = if known {
            (304, Body::default())
        } else {
            (200, Bytes::from(document.body).into())
        };
        Reply {
            etag: Some(document.etag),
            ..Reply::new(code, AGGREGATED, body)
        }
    }
}

/// Returns whether kube-apiserver has a health check of this name.
fn is_check(name: &str) -> bool {
    matches!(name, "ping" | "log" | "etcd") || name.starts_with("poststarthook/")
}
