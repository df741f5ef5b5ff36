//! Authentication and authorization of admin requests by the API server.
//!
//! Invariant: without an answer of the API server the request is rejected. Tokens are not stored;
//! results are cached for a short time under the hash of the token. The number of concurrent
//! reviews is limited, and requests that wait too long are rejected, so a flood of tokens does not
//! become a flood of reviews.

use super::expiring_cache::ExpiringCache;
use crate::client::{Client, CountedClient};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Request, StatusCode, header, request::Parts};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::{sync::Semaphore, time::timeout};

/// Access control of the admin server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Every client that can reach the server may read.
    #[default]
    Open,
    /// Requires a bearer token that the cluster authorizes for the path.
    ///
    /// Grant access with a `ClusterRole` that has `nonResourceURLs: ["/metrics"]` and `verbs:
    /// ["get"]`. The process itself must be bound to `system:auth-delegator`.
    Reviewed,
}

/// Time for which positive and negative results are cached.
const POSITIVE_TTL: Duration = Duration::from_mins(1);
const NEGATIVE_TTL: Duration = Duration::from_secs(10);
/// Results cached per type of review.
const MAX_CACHED: usize = 1000;
/// Concurrent reviews, and the time limit of one, including the wait for a permit.
const MAX_CONCURRENT: usize = 8;
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest token and path in bytes.
const MAX_LENGTH: usize = 16 << 10;

/// Group, kind and resource of a review.
type Review = (&'static str, &'static str, &'static str);
const TOKENS: Review = ("authentication.k8s.io", "TokenReview", "tokenreviews");
const ACCESS: Review = (
    "authorization.k8s.io",
    "SubjectAccessReview",
    "subjectaccessreviews",
);

type Hashed = [u8; 32];

/// Response of the API server.
#[derive(Deserialize)]
struct ReviewResponse<T> {
    status: T,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenReviewStatus {
    authenticated: bool,
    user: Option<ReviewedUser>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AccessReviewStatus {
    allowed: bool,
    denied: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReviewedUser {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: Value,
}

pub(super) struct Authorizer {
    client: CountedClient,
    review_health: bool,
    users: ExpiringCache<Hashed, Option<Arc<ReviewedUser>>>,
    decisions: ExpiringCache<(Hashed, String, String), bool>,
    reviews: Semaphore,
}

/// Reason for which a request is rejected.
#[derive(Debug, PartialEq)]
enum AccessError {
    Unauthenticated,
    Forbidden {
        user: String,
        verb: String,
        path: String,
    },
    ReviewFailed,
}

impl Authorizer {
    pub(super) fn new(client: &Client, review_health: bool) -> Self {
        Self {
            client: client.counted().clone(),
            review_health,
            users: ExpiringCache::new(MAX_CACHED),
            decisions: ExpiringCache::new(MAX_CACHED),
            reviews: Semaphore::new(MAX_CONCURRENT),
        }
    }

    /// Returns the response to a rejected request; `None` if it is allowed.
    pub(super) async fn reject(&self, request: &Parts) -> Option<Response> {
        if !self.review_health && is_health(request.uri.path()) {
            return None;
        }
        self.authorize(request)
            .await
            .err()
            .map(AccessError::into_response)
    }

    async fn authorize(&self, request: &Parts) -> Result<(), AccessError> {
        let token = bearer(request).ok_or(AccessError::Unauthenticated)?;
        let hashed = hash(token);
        let user = match self.users.get(&hashed) {
            Some(known) => known,
            None => self.review_token(token, hashed).await?,
        };
        let user = user.ok_or(AccessError::Unauthenticated)?;
        let (path, verb) = (
            request.uri.path().to_owned(),
            request.method.as_str().to_ascii_lowercase(),
        );
        let key = (hashed, verb.clone(), path.clone());
        let allowed = match self.decisions.get(&key) {
            Some(known) => known,
            None => self.review_access(&user, key).await?,
        };
        let user = || user.username.clone();
        if allowed {
            Ok(())
        } else {
            Err(AccessError::Forbidden {
                user: user(),
                verb,
                path,
            })
        }
    }

    async fn review_token(
        &self,
        token: &str,
        hashed: Hashed,
    ) -> Result<Option<Arc<ReviewedUser>>, AccessError> {
        let status: TokenReviewStatus = self.review(TOKENS, &json!({ "token": token })).await?;
        let user = status.user.filter(|_| status.authenticated).map(Arc::new);
        self.users.put(
            hashed,
            user.clone(),
            if user.is_some() {
                POSITIVE_TTL
            } else {
                NEGATIVE_TTL
            },
        );
        Ok(user)
    }

    async fn review_access(
        &self,
        user: &ReviewedUser,
        key: (Hashed, String, String),
    ) -> Result<bool, AccessError> {
        let (_, verb, path) = &key;
        let ReviewedUser {
            username,
            uid,
            groups,
            extra,
        } = user;
        let attributes = json!({ "path": path, "verb": verb });
        let spec = json!({
            "user": username, "uid": uid, "groups": groups, "extra": extra, "nonResourceAttributes": attributes,
        });
        let status: AccessReviewStatus = self.review(ACCESS, &spec).await?;
        let allowed = status.allowed && !status.denied;
        self.decisions.put(
            key,
            allowed,
            if allowed { POSITIVE_TTL } else { NEGATIVE_TTL },
        );
        Ok(allowed)
    }

    /// Sends a review. Logged errors are those of the API server and contain no token.
    async fn review<T: DeserializeOwned>(
        &self,
        (group, kind, path): Review,
        spec: &Value,
    ) -> Result<T, AccessError> {
        let response = timeout(REVIEW_TIMEOUT, async {
            let _permit = self.reviews.acquire().await;
            let body = json!({ "apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec })
                .to_string();
            let request = Request::post(format!("/apis/{group}/v1/{path}"))
                .header(header::CONTENT_TYPE, "application/json")
                .body(body.into_bytes())
                .map_err(kube_client::Error::HttpError)?;
            self.client.send_json::<ReviewResponse<T>>(request).await
        });
        let error = match response.await {
            Ok(Ok(answer)) => return Ok(answer.status),
            Ok(Err(error)) => error.describe(),
            Err(_) => format!("no response within {} s", REVIEW_TIMEOUT.as_secs()),
        };
        tracing::warn!(
            review = kind,
            error,
            "access review failed, request rejected, check binding to system:auth-delegator"
        );
        Err(AccessError::ReviewFailed)
    }
}

pub(super) fn is_health(path: &str) -> bool {
    ["/healthz", "/readyz"].iter().any(|page| {
        path.strip_prefix(page)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

fn hash(token: &str) -> Hashed {
    digest(&SHA256, token.as_bytes())
        .as_ref()
        .try_into()
        .unwrap_or_default()
}

fn bearer(request: &Parts) -> Option<&str> {
    let (scheme, token) = request
        .headers
        .get(header::AUTHORIZATION)?
        .to_str()
        .ok()?
        .split_once(' ')?;
    let fits = |text: &str| !text.is_empty() && text.len() <= MAX_LENGTH;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && fits(token) && fits(request.uri.path()))
        .then_some(token)
}

impl IntoResponse for AccessError {
    fn into_response(self) -> Response {
        match self {
            Self::Unauthenticated => {
                let mut response = (
                    StatusCode::UNAUTHORIZED,
                    "send a bearer token of this cluster\n",
                )
                    .into_response();
                response
                    .headers_mut()
                    .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                response
            }
            Self::Forbidden { user, verb, path } => {
                let text = format!(
                    "User \"{user}\" cannot {verb} path \"{path}\"; bind a ClusterRole with the \
                     path in nonResourceURLs\n"
                );
                (StatusCode::FORBIDDEN, text).into_response()
            }
            Self::ReviewFailed => (
                StatusCode::SERVICE_UNAVAILABLE,
                "cannot check access: the access review failed; see the log of this process\n",
            )
                .into_response(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures::{future::join_all, stream};
    use http::Request;
    use http_body_util::{BodyExt as _, Full, StreamBody};
    use kube_client::client::Body;
    use std::{convert::Infallible, future::pending};
    use tokio::time::Instant;
    use tower::service_fn;

    fn request(authorization: Option<&[u8]>) -> Parts {
        let mut request = Request::builder().uri("/metrics");
        if let Some(value) = authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn only_a_bearer_token_authenticates() {
        assert_eq!(bearer(&request(Some(b"bearer t0k"))), Some("t0k"));
        let long = format!("Bearer {}", "x".repeat(MAX_LENGTH + 1));
        for header in [
            None,
            Some(&b"Basic YTpi"[..]),
            Some(b"Bearer "),
            Some(b"Bearer"),
            Some(b"Bearer \xff"),
            Some(long.as_bytes()),
        ] {
            assert_eq!(bearer(&request(header)), None);
        }
    }

    #[test]
    fn health_pages_include_their_subpaths() {
        assert!(
            ["/healthz", "/readyz", "/readyz/", "/healthz/a/b"]
                .into_iter()
                .all(is_health)
        );
        assert!(
            !["/", "/metrics", "/healthzz", "/debug/healthz", "//healthz"]
                .into_iter()
                .any(is_health)
        );
    }

    /// Gate whose API server stalls reviews of a resource, maybe after the headers.
    fn stalling(resource: &'static str, sends_headers: bool) -> Authorizer {
        let service = service_fn(move |request: Request<Body>| async move {
            let body = if !request.uri().path().ends_with(resource) {
                let user = json!({"status": {"authenticated": true, "user": {"username": "eve"}}});
                Full::new(Bytes::from(user.to_string())).boxed_unsync()
            } else if sends_headers {
                StreamBody::new(stream::pending()).boxed_unsync()
            } else {
                return pending().await;
            };
            Ok::<_, Infallible>(http::Response::new(body))
        });
        let kube = kube_client::Client::new(service, "default");
        Authorizer::new(&Client::new(kube).expect("a ready client"), false)
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_that_stalls_is_rejected_after_ten_seconds_also_if_many_wait() {
        for (_, _, resource) in [TOKENS, ACCESS] {
            for sends_headers in [false, true] {
                let gate = stalling(resource, sends_headers);
                let begun = Instant::now();
                let parts = request(Some(b"bearer t0k"));
                let admitted =
                    join_all((0..3 * MAX_CONCURRENT).map(|_| gate.authorize(&parts))).await;
                assert!(
                    admitted
                        .iter()
                        .all(|admitted| *admitted == Err(AccessError::ReviewFailed)),
                    "{admitted:?}"
                );
                assert_eq!(begun.elapsed(), REVIEW_TIMEOUT, "{resource}");
            }
        }
    }
}
