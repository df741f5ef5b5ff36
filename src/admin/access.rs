//! Who may ask: the cluster is asked who has sent a token, and whether they may read this path.
//!
//! What holds: without an answer nobody is let in. Tokens are kept nowhere, answers under the hash of one and for a short while. A flood of tokens is no flood of
//! questions: so many are asked at once, and those who wait too long are sent away.

use super::memory::Memory;
use crate::client::{Client, Link};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Request, StatusCode, header, request::Parts};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::{sync::Semaphore, time::timeout};

/// Who may ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Everybody who can reach it.
    #[default]
    Open,
    /// Whose token the cluster knows, and whom its rules allow the path: `nonResourceURLs: ["/metrics"]`, `verbs: ["get"]` of a `ClusterRole`. The process needs
    /// the right to ask: bind it to `system:auth-delegator`.
    Reviewed,
}

/// How long a yes holds, and a no.
const YES: Duration = Duration::from_mins(1);
const NO: Duration = Duration::from_secs(10);
/// How many answers are kept, of each question.
const ANSWERS: usize = 1000;
/// How many questions are asked at once, and how long one, with the wait for its turn, may take.
const AT_ONCE: usize = 8;
const PATIENCE: Duration = Duration::from_secs(10);
/// The most bytes of a token, and of a path.
const LONGEST: usize = 16 << 10;

/// Group, kind and resource of a question.
type Review = (&'static str, &'static str, &'static str);
const TOKENS: Review = ("authentication.k8s.io", "TokenReview", "tokenreviews");
const RIGHTS: Review = ("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews");

type Hashed = [u8; 32];

/// As the server answers.
#[derive(Deserialize)]
struct Answer<T> {
    status: T,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WhoIsIt {
    authenticated: bool,
    user: Option<User>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MayThey {
    allowed: bool,
    denied: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: Value,
}

pub(super) struct Gate {
    link: Link,
    review_health: bool,
    people: Memory<Hashed, Option<Arc<User>>>,
    rights: Memory<(Hashed, String, String), bool>,
    asking: Semaphore,
}

/// Why somebody is not let in.
#[derive(Debug, PartialEq)]
enum Refusal {
    Unknown,
    Forbidden { user: String, verb: String, path: String },
    Unanswered,
}

impl Gate {
    pub(super) fn new(client: &Client, review_health: bool) -> Self {
        Self {
            link: client.link().clone(),
            review_health,
            people: Memory::new(ANSWERS),
            rights: Memory::new(ANSWERS),
            asking: Semaphore::new(AT_ONCE),
        }
    }

    /// What is answered in place of the page, if they may not see it.
    pub(super) async fn refuse(&self, request: &Parts) -> Option<Response> {
        if !self.review_health && is_health(request.uri.path()) {
            return None;
        }
        self.admit(request).await.err().map(Refusal::into_response)
    }

    async fn admit(&self, request: &Parts) -> Result<(), Refusal> {
        let token = bearer(request).ok_or(Refusal::Unknown)?;
        let hashed = hash(token);
        let user = match self.people.get(&hashed) {
            Some(known) => known,
            None => self.ask_who(token, hashed).await?,
        };
        let user = user.ok_or(Refusal::Unknown)?;
        let (path, verb) = (request.uri.path().to_owned(), request.method.as_str().to_ascii_lowercase());
        let question = (hashed, verb.clone(), path.clone());
        let may = match self.rights.get(&question) {
            Some(known) => known,
            None => self.ask_whether(&user, question).await?,
        };
        let user = || user.username.clone();
        if may { Ok(()) } else { Err(Refusal::Forbidden { user: user(), verb, path }) }
    }

    async fn ask_who(&self, token: &str, hashed: Hashed) -> Result<Option<Arc<User>>, Refusal> {
        let status: WhoIsIt = self.ask(TOKENS, &json!({ "token": token })).await?;
        let user = status.user.filter(|_| status.authenticated).map(Arc::new);
        self.people.put(hashed, user.clone(), if user.is_some() { YES } else { NO });
        Ok(user)
    }

    async fn ask_whether(&self, user: &User, question: (Hashed, String, String)) -> Result<bool, Refusal> {
        let (_, verb, path) = &question;
        let User { username, uid, groups, extra } = user;
        let attributes = json!({ "path": path, "verb": verb });
        let spec = json!({
            "user": username, "uid": uid, "groups": groups, "extra": extra, "nonResourceAttributes": attributes,
        });
        let status: MayThey = self.ask(RIGHTS, &spec).await?;
        let may = status.allowed && !status.denied;
        self.rights.put(question, may, if may { YES } else { NO });
        Ok(may)
    }

    /// Errors are the server's words, and have no token in them.
    async fn ask<T: DeserializeOwned>(&self, (group, kind, path): Review, spec: &Value) -> Result<T, Refusal> {
        let asked = timeout(PATIENCE, async {
            let _turn = self.asking.acquire().await;
            let body = json!({ "apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec }).to_string();
            let request = Request::post(format!("/apis/{group}/v1/{path}"))
                .header(header::CONTENT_TYPE, "application/json")
                .body(body.into_bytes())
                .map_err(kube_client::Error::HttpError)?;
            self.link.ask::<Answer<T>>(request).await
        });
        let error = match asked.await {
            Ok(Ok(answer)) => return Ok(answer.status),
            Ok(Err(error)) => error.describe(),
            Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
        };
        tracing::warn!(
            review = kind,
            error,
            "who asks for an admin page is not let in: the server did not say whether they may; is this process bound to system:auth-delegator?"
        );
        Err(Refusal::Unanswered)
    }
}

pub(super) fn is_health(path: &str) -> bool {
    ["/healthz", "/readyz"]
        .iter()
        .any(|page| path.strip_prefix(page).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

fn hash(token: &str) -> Hashed {
    digest(&SHA256, token.as_bytes()).as_ref().try_into().unwrap_or_default()
}

fn bearer(request: &Parts) -> Option<&str> {
    let (scheme, token) = request.headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let fits = |text: &str| !text.is_empty() && text.len() <= LONGEST;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && fits(token) && fits(request.uri.path())).then_some(token)
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Unknown => {
                let mut response = (StatusCode::UNAUTHORIZED, "send a bearer token of this cluster\n").into_response();
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                response
            }
            Self::Forbidden { user, verb, path } => {
                let words = format!(
                    "User \"{user}\" cannot {verb} path \"{path}\": bind them to a ClusterRole with it in nonResourceURLs\n"
                );
                (StatusCode::FORBIDDEN, words).into_response()
            }
            Self::Unanswered => {
                (StatusCode::SERVICE_UNAVAILABLE, "the cluster did not say whether you may: see the log\n")
                    .into_response()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn request(authorization: Option<&[u8]>) -> Parts {
        let mut request = Request::builder().uri("/metrics");
        if let Some(value) = authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn only_a_bearer_token_says_who_asks() {
        assert_eq!(bearer(&request(Some(b"bearer t0k"))), Some("t0k"));
        let long = format!("Bearer {}", "x".repeat(LONGEST + 1));
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
    fn health_pages_are_those_and_what_is_below_them() {
        assert!(["/healthz", "/readyz", "/readyz/", "/healthz/a/b"].into_iter().all(is_health));
        assert!(!["/", "/metrics", "/healthzz", "/debug/healthz", "//healthz"].into_iter().any(is_health));
    }
}
