//! Handlers behind one type, which erases the types of their hooks.

use crate::extension_config::{
    FailurePolicy, HookReference,
    catalog::{
        GroupVersionHook, Hook, Response,
        hooks::{DiscoveryHandler, ResponseStatus},
    },
};
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use serde_json::Value;
use std::{any::Any, fmt, net::SocketAddr, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout_at};

/// Time limit that clients use for a handler without `timeoutSeconds`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time that a handler has after the client's time limit.
///
/// The client starts to count earlier. With this time, it reaches its limit first.
const GRACE: Duration = Duration::from_secs(5);

/// Circumstances of one call, passed to its handler.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CallContext {
    /// Name of the handler.
    pub handler: Arc<str>,
    /// Address of the client.
    pub remote: SocketAddr,
    /// Time at which the client stops waiting.
    pub deadline: Instant,
}

/// Result of a handler: a response, or a `Result` of one.
pub trait IntoResponse<R> {
    /// Returns the response to send.
    fn into_response(self) -> R;
}

impl<R: Response> IntoResponse<R> for R {
    fn into_response(mut self) -> R {
        if *self.status() == ResponseStatus::Missing {
            let message = self.message().to_owned();
            self.set_status(ResponseStatus::Success, message);
        }
        self
    }
}

/// An error becomes the message of a response with the status `Failure`.
impl<R: Response, E: fmt::Display> IntoResponse<R> for Result<R, E> {
    fn into_response(self) -> R {
        match self {
            Ok(response) => response.into_response(),
            Err(error) => failure(error.to_string()),
        }
    }
}

/// Response as JSON, or the error of encoding it.
pub(super) type Encoded = Result<Vec<u8>, serde_json::Error>;

type Call = dyn Fn(Bytes, CallContext) -> BoxFuture<'static, Encoded> + Send + Sync;

/// A handler of any hook.
pub(super) struct Handler {
    pub(super) name: String,
    hook: GroupVersionHook,
    pub(super) timeout_seconds: Option<i32>,
    pub(super) failure_policy: Option<FailurePolicy>,
    call: Box<Call>,
    encode_failure: fn(String) -> Encoded,
}

impl Handler {
    pub(super) fn new<H: Hook, F, Fut>(name: String, handler: F) -> Self
    where
        F: Fn(H::Request, CallContext) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: IntoResponse<H::Response>,
    {
        let handler = Arc::new(handler);
        let call = move |body: Bytes, context| {
            let handler = handler.clone();
            async move {
                let request = match serde_json::from_slice(&body) {
                    Ok(request) => request,
                    Err(error) => {
                        return encode_failure::<H>(format!(
                            "error unmarshalling request: {error}"
                        ));
                    }
                };
                drop(body);
                encode::<H>(handler(request, context).await.into_response())
            }
            .boxed()
        };
        Self {
            name,
            hook: H::group_version_hook(),
            timeout_seconds: None,
            failure_policy: None,
            call: Box::new(call),
            encode_failure: encode_failure::<H>,
        }
    }

    /// Returns the path of the handler. It ends with the hook if the handler has no name.
    pub(super) fn path(&self) -> String {
        let hook = self.hook.hook.to_lowercase();
        let mut path = format!("/{}/{hook}", self.hook.api_version());
        if !self.name.is_empty() {
            path.push('/');
            path.push_str(&self.name);
        }
        path
    }

    /// Returns the description of the handler in the answer to discovery.
    pub(super) fn describe(&self) -> DiscoveryHandler {
        DiscoveryHandler {
            name: self.name.clone(),
            request_hook: HookReference {
                api_version: self.hook.api_version(),
                hook: self.hook.hook.clone(),
            },
            timeout_seconds: self.timeout_seconds,
            failure_policy: self.failure_policy.map(|policy| format!("{policy:?}")),
        }
    }

    /// Calls the handler. After a panic or a timeout, returns a response with status `Failure`.
    pub(super) async fn call(&self, body: Bytes, remote: SocketAddr) -> Encoded {
        let timeout = self.timeout();
        let deadline = Instant::now() + timeout;
        let context = CallContext {
            handler: self.name.as_str().into(),
            remote,
            deadline,
        };
        // Calls the handler inside of the future, to catch panics of the closure as well.
        let call = AssertUnwindSafe(async { (self.call)(body, context).await }).catch_unwind();
        let (handler, hook) = (&self.name, &self.hook.hook);
        match timeout_at(deadline + GRACE, call).await {
            Ok(Ok(encoded)) => encoded,
            Ok(Err(panic)) => {
                let error = panic_message(&*panic);
                tracing::error!(handler, hook, error, "handler panicked");
                self.failure(format!(
                    "handler {handler:?} panicked; see the log of the extension"
                ))
            }
            Err(_) => {
                tracing::warn!(handler, hook, ?timeout, "handler timed out");
                self.failure(format!(
                    "handler {handler:?} did not respond within {timeout:?}"
                ))
            }
        }
    }

    /// Encodes a response with the status `Failure`.
    pub(super) fn failure(&self, message: String) -> Encoded {
        (self.encode_failure)(message)
    }

    fn timeout(&self) -> Duration {
        let seconds = self.timeout_seconds.unwrap_or_default().max(0);
        match Duration::from_secs(seconds.unsigned_abs().into()) {
            Duration::ZERO => DEFAULT_TIMEOUT,
            timeout => timeout,
        }
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handler")
            .field("name", &self.name)
            .field("hook", &self.hook)
            .finish_non_exhaustive()
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("the panic has no message")
}

fn failure<R: Response>(message: String) -> R {
    let mut response = R::default();
    response.set_status(ResponseStatus::Failure, message);
    response
}

fn encode_failure<H: Hook>(message: String) -> Encoded {
    encode::<H>(failure(message))
}

/// Encodes a response with `apiVersion` and `kind`.
fn encode<H: Hook>(response: H::Response) -> Encoded {
    let mut value = serde_json::to_value(response)?;
    if let Value::Object(fields) = &mut value {
        let api_version = H::group_version_hook().api_version();
        fields.insert("apiVersion".into(), api_version.into());
        fields.insert("kind".into(), format!("{}Response", H::NAME).into());
    }
    serde_json::to_vec(&value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extension_config::catalog::hooks::{
        BeforeClusterCreate, BeforeClusterCreateResponse,
    };
    use std::future::pending;

    fn slow(timeout_seconds: Option<i32>) -> Handler {
        let wait = |_, _| pending::<BeforeClusterCreateResponse>();
        let mut handler = Handler::new::<BeforeClusterCreate, _, _>("slow".into(), wait);
        handler.timeout_seconds = timeout_seconds;
        handler
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_is_dropped_5_s_after_the_time_limit_of_clients() {
        let remote = SocketAddr::from(([127, 0, 0, 1], 1));
        for (announced, limit) in [(None, 10), (Some(0), 10), (Some(1), 1), (Some(30), 30)] {
            let begun = Instant::now();
            let response = slow(announced).call("{}".into(), remote).await;
            assert_eq!(begun.elapsed(), Duration::from_secs(limit + 5));
            let response: BeforeClusterCreateResponse =
                serde_json::from_slice(&response.expect("encoded")).expect("a response");
            assert_eq!(response.status, ResponseStatus::Failure);
            let expected = format!("handler \"slow\" did not respond within {limit}s");
            assert_eq!(response.message, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_of_a_handler_is_that_of_its_client() {
        let remote = SocketAddr::from(([127, 0, 0, 1], 1));
        let begun = Instant::now();
        let handler = Handler::new::<BeforeClusterCreate, _, _>(
            "asks".into(),
            move |_, cx: CallContext| async move {
                assert_eq!(cx.deadline - begun, Duration::from_secs(10));
                assert_eq!((&*cx.handler, cx.remote), ("asks", remote));
                BeforeClusterCreateResponse::default()
            },
        );
        let response = handler.call("{}".into(), remote).await.expect("encoded");
        let response: BeforeClusterCreateResponse =
            serde_json::from_slice(&response).expect("a response");
        assert_eq!(response.status, ResponseStatus::Success);
    }
}
