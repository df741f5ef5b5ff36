//! Where the objects of an informer are on the server, and the requests for them.

use super::{Doubts, Failure};
use http::{Request, header::ACCEPT};
use kube_client::client::Body;
use std::time::Duration;

/// What asks for metadata alone; what cannot give that answers in full, which is decoded alike.
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// One kind in one namespace or in all, narrowed by selectors.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// `/apis/apps/v1/namespaces/default/deployments`
    pub(crate) path: String,
    pub(crate) labels: Option<String>,
    pub(crate) fields: Option<String>,
    pub(crate) metadata_only: bool,
    /// Whom to ask if there is no such kind there.
    pub(crate) doubts: Option<Doubts>,
}

impl Place {
    /// A page of everything, as it is now or at the version of the first page; all of it if the size is 0.
    pub(super) fn page(&self, size: u32, token: &str) -> Result<Request<Body>, Failure> {
        let mut query = self.query();
        if size > 0 {
            query.append_pair("limit", &size.to_string());
        }
        if !token.is_empty() {
            query.append_pair("continue", token);
        }
        self.request(&query.finish(), METADATA_LIST)
    }

    /// What happens from a version on.
    pub(super) fn watch(&self, version: &str, timeout: Duration) -> Result<Request<Body>, Failure> {
        let mut query = self.watching(timeout);
        query.append_pair("resourceVersion", version);
        self.request(&query.finish(), METADATA)
    }

    /// Everything as it is now, and then what happens.
    pub(super) fn stream(&self, timeout: Duration) -> Result<Request<Body>, Failure> {
        let mut query = self.watching(timeout);
        query.append_pair("sendInitialEvents", "true").append_pair("resourceVersionMatch", "NotOlderThan");
        self.request(&query.finish(), METADATA)
    }

    fn watching(&self, timeout: Duration) -> form_urlencoded::Serializer<'static, String> {
        let mut query = self.query();
        query.append_pair("watch", "true").append_pair("allowWatchBookmarks", "true");
        query.append_pair("timeoutSeconds", &timeout.as_secs().to_string());
        query
    }

    fn query(&self) -> form_urlencoded::Serializer<'static, String> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, selector) in [("labelSelector", &self.labels), ("fieldSelector", &self.fields)] {
            if let Some(selector) = selector {
                query.append_pair(name, selector);
            }
        }
        query
    }

    /// An error if the path, which is made of what discovery or a type gave, is none.
    fn request(&self, query: &str, metadata: &'static str) -> Result<Request<Body>, Failure> {
        let accept = if self.metadata_only { metadata } else { "application/json" };
        let request = Request::get(format!("{}?{query}", self.path)).header(ACCEPT, accept).body(Body::empty());
        request.map_err(|error| Failure::Broken(format!("`{}` cannot be asked for: {error}", self.path)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_none_is_a_failure_that_names_it() {
        let path = "/api/v1/a b".into();
        let place = Place { path, labels: None, fields: None, metadata_only: false, doubts: None };
        let failure = place.page(0, "").expect_err("a path has no blanks");
        assert!(failure.to_string().starts_with("`/api/v1/a b` cannot be asked for: "), "{failure}");
    }
}
