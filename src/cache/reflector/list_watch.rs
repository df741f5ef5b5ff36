//! URL path and selectors of a reflector, and the requests for them.

use super::{Failure, KindChecks};
use http::{Request, header::ACCEPT};
use kube_client::client::Body;
use std::time::Duration;

/// `Accept` headers for metadata only. Servers that do not support it send whole objects, which
/// decode alike.
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// URL path of a kind, in one namespace or in all, with selectors.
#[derive(Clone, Debug)]
pub(crate) struct ListWatch {
    /// Path such as `/apis/apps/v1/namespaces/default/deployments`.
    pub(crate) path: String,
    pub(crate) labels: Option<String>,
    pub(crate) fields: Option<String>,
    pub(crate) metadata_only: bool,
    /// Channel to confirm that the kind is missing after a 404.
    pub(crate) kind_checks: Option<KindChecks>,
}

impl ListWatch {
    /// Returns the request for a page of a list. A size of 0 disables paging.
    ///
    /// `token` is the continue token, or empty for the first page.
    pub(super) fn list_page(&self, size: u32, token: &str) -> Result<Request<Body>, Failure> {
        let mut query = self.query();
        if size > 0 {
            query.append_pair("limit", &size.to_string());
        }
        if !token.is_empty() {
            query.append_pair("continue", token);
        }
        self.request(&query.finish(), METADATA_LIST)
    }

    /// Returns the request for a watch from a resource version.
    pub(super) fn watch(&self, version: &str, timeout: Duration) -> Result<Request<Body>, Failure> {
        let mut query = self.watch_query(timeout);
        query.append_pair("resourceVersion", version);
        self.request(&query.finish(), METADATA)
    }

    /// Returns the request for a streamed list that is followed by a watch.
    pub(super) fn streamed_list(&self, timeout: Duration) -> Result<Request<Body>, Failure> {
        let mut query = self.watch_query(timeout);
        query
            .append_pair("sendInitialEvents", "true")
            .append_pair("resourceVersionMatch", "NotOlderThan");
        self.request(&query.finish(), METADATA)
    }

    fn watch_query(&self, timeout: Duration) -> form_urlencoded::Serializer<'static, String> {
        let mut query = self.query();
        query
            .append_pair("watch", "true")
            .append_pair("allowWatchBookmarks", "true");
        query.append_pair("timeoutSeconds", &timeout.as_secs().to_string());
        query
    }

    fn query(&self) -> form_urlencoded::Serializer<'static, String> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, selector) in [
            ("labelSelector", &self.labels),
            ("fieldSelector", &self.fields),
        ] {
            if let Some(selector) = selector {
                query.append_pair(name, selector);
            }
        }
        query
    }

    /// Builds a request. Fails if the path, from discovery or from a type, is invalid.
    fn request(&self, query: &str, metadata: &'static str) -> Result<Request<Body>, Failure> {
        let accept = if self.metadata_only {
            metadata
        } else {
            "application/json"
        };
        let request = Request::get(format!("{}?{query}", self.path))
            .header(ACCEPT, accept)
            .body(Body::empty());
        request.map_err(|error| {
            Failure::Broken(format!(
                "cannot create a request for `{}`: {error}",
                self.path
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_path_is_a_failure_that_names_it() {
        let path = "/api/v1/a b".into();
        let list_watch = ListWatch {
            path,
            labels: None,
            fields: None,
            metadata_only: false,
            kind_checks: None,
        };
        let failure = list_watch
            .list_page(0, "")
            .expect_err("a path has no blanks");
        assert!(
            failure
                .to_string()
                .starts_with("cannot create a request for `/api/v1/a b`: "),
            "{failure}"
        );
    }
}
