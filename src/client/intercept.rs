//! Interceptors: replace or drop responses in tests.

use super::{
    Client, Discovered, IgnoreNotFound, Result,
    wire::{decode, decode_error},
};
use crate::object::{KubeObject, ObjectKey};
use bytes::Bytes;
use kube_core::GroupVersionKind;
use serde::de::Error;
use serde_json::Value;
use std::{any::Any, fmt, pin::Pin, sync::Arc};

type CallFuture<'a> = Pin<Box<dyn Future<Output = Result<Answer>> + Send + 'a>>;

/// Intercepts the calls of a client, including reads from the cache.
///
/// An interceptor can run the call, now or after another action such as a conflicting write. It can
/// return an error made from a `Status`, or an object, instead of running the call. It can also
/// replace the answer.
///
/// If it runs a write and returns an error, the response is lost: the client does not record the
/// write, and no read [waits](super::Consistency) for it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> anyhow::Result<()> {
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube_core::Status;
/// use serde_json::json;
/// use steersman::{
///     client::{Answer, Call, Client, Interceptor, Next, Result, Verb},
///     object::ObjectKey,
///     testing::{Env, TestServer},
/// };
///
/// struct ColorFaults;
/// impl Interceptor for ColorFaults {
///     async fn intercept(&self, call: &Call<'_>, next: Next<'_>) -> Result<Answer> {
///         match (call.verb, call.key.name()) {
///             // Reject the create without sending it.
///             (Verb::Create, "red") => Err(Status::failure("no red ones", "Forbidden").with_code(403).into()),
///             // Send the create, and drop its response.
///             (Verb::Create, "blue") => {
///                 next.run().await?;
///                 Err(Status::failure("the connection is lost", "Timeout").with_code(504).into())
///             }
///             // Return an object that does not exist on the server.
///             (Verb::Get, "green") => Ok(json!({"metadata": {"name": "green"}, "data": {"door": "green"}}).into()),
///             _ => next.run().await,
///         }
///     }
/// }
///
/// let client = Client::new(Env::embedded()?.client()?)?.namespace("default").intercepted(ColorFaults);
/// let map = |name: &str| serde_json::from_value::<ConfigMap>(json!({"metadata": {"name": name}}));
/// let key = ObjectKey::cluster_scoped;
///
/// assert_eq!(client.create(&map("red")?).await.unwrap_err().to_string(), "no red ones");
/// assert!(client.get::<ConfigMap>(&key("red")).await?.is_none());
/// assert_eq!(client.create(&map("blue")?).await.unwrap_err().to_string(), "the connection is lost");
/// assert!(client.get::<ConfigMap>(&key("blue")).await?.is_some());
/// assert!(client.get::<ConfigMap>(&key("green")).await?.is_some());
/// # Ok(())
/// # }
/// ```
pub trait Interceptor: Send + Sync + 'static {
    /// Returns the answer to a call. [`next.run().await`](Next::run) performs the call.
    fn intercept(
        &self,
        call: &Call<'_>,
        next: Next<'_>,
    ) -> impl Future<Output = Result<Answer>> + Send;
}

/// Call that is about to be performed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Call<'a> {
    /// Verb of the call.
    pub verb: Verb,
    /// Kind of the object.
    pub kind: &'a GroupVersionKind,
    /// Key of the object, without a name for a collection or a generated name.
    pub key: &'a ObjectKey,
    /// Name of the subresource.
    pub subresource: Option<&'a str>,
    /// Whether the call is a dry run.
    pub dry_run: bool,
    /// Body of the request: object, patch or delete options; null for a read.
    pub body: &'a Value,
}

/// Operations of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// [`Client::get`]
    Get,
    /// [`Client::list`]
    List,
    /// [`Client::create`]
    Create,
    /// [`Client::update`]
    Update,
    /// [`Client::patch`] and [`Client::patch_from`]
    Patch,
    /// [`Client::apply`]
    Apply,
    /// [`Client::delete`]
    Delete,
    /// [`Client::delete_collection`]
    DeleteCollection,
}

impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {}", self.verb, self.kind.kind, self.key)?;
        self.subresource.map_or(Ok(()), |part| write!(f, " {part}"))
    }
}

/// The intercepted call. It is not performed if this is dropped.
pub struct Next<'a>(CallFuture<'a>);

impl Next<'_> {
    /// Performs the call.
    pub async fn run(self) -> Result<Answer> {
        self.0.await
    }
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Next")
    }
}

/// Answer to a call. Convert one from JSON with `Ok(json!({…}).into())`.
///
/// An answer is an object, null if a get finds nothing, or an array of objects for a list. For a
/// deletion, any value means success. A 404 error for a get or a deletion means that the object
/// does not exist.
pub struct Answer(AnswerSource);

enum AnswerSource {
    /// Result of the call itself, so that objects of the cache stay shared.
    Performed(Box<dyn CallOutput>),
    Replaced(Value),
}

impl Answer {
    /// Returns the answer in the JSON format of the API server.
    pub fn json(&self) -> Value {
        match &self.0 {
            AnswerSource::Performed(outcome) => outcome.json(),
            AnswerSource::Replaced(json) => json.clone(),
        }
    }

    fn into_output<T: CallOutput>(self, kind: &Discovered, key: &ObjectKey) -> Result<T> {
        let json = match self.0 {
            AnswerSource::Performed(outcome) if (&*outcome as &dyn Any).is::<T>() => {
                let outcome: Box<dyn Any> = outcome;
                return Ok(*outcome.downcast().expect("the type was checked"));
            }
            AnswerSource::Performed(outcome) => outcome.json(),
            AnswerSource::Replaced(json) => json,
        };
        T::read(json, kind, key)
    }
}

impl From<Value> for Answer {
    fn from(json: Value) -> Self {
        Self(AnswerSource::Replaced(json))
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The content may be secret.
        f.write_str("Answer")
    }
}

/// Results of calls.
pub(super) trait CallOutput: Any + Send {
    fn json(&self) -> Value;
    fn read(json: Value, kind: &Discovered, key: &ObjectKey) -> Result<Self>
    where
        Self: Sized;
}

/// Unparsed response of the API server.
impl CallOutput for Bytes {
    fn json(&self) -> Value {
        serde_json::from_slice(self).unwrap_or_default()
    }
    fn read(json: Value, _: &Discovered, _: &ObjectKey) -> Result<Self> {
        Ok(json.to_string().into())
    }
}

impl CallOutput for Option<Bytes> {
    fn json(&self) -> Value {
        self.as_ref().map(CallOutput::json).unwrap_or_default()
    }
    fn read(json: Value, kind: &Discovered, key: &ObjectKey) -> Result<Self> {
        if json.is_null() {
            Ok(None)
        } else {
            CallOutput::read(json, kind, key).map(Some)
        }
    }
}

impl<K: KubeObject> CallOutput for Option<Arc<K>> {
    fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
    fn read(json: Value, kind: &Discovered, key: &ObjectKey) -> Result<Self> {
        if json.is_null() {
            Ok(None)
        } else {
            decode(kind, key, json.to_string().as_bytes()).map(Some)
        }
    }
}

impl<K: KubeObject> CallOutput for Vec<Arc<K>> {
    fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
    fn read(json: Value, kind: &Discovered, key: &ObjectKey) -> Result<Self> {
        let Value::Array(items) = json else {
            return Err(decode_error(kind, key)(Error::custom(
                "the interceptor must return an array for a list",
            ))
            .into());
        };
        items
            .into_iter()
            .map(|item| decode(kind, key, item.to_string().as_bytes()))
            .collect()
    }
}

/// Object-safe variant of [`Interceptor`].
pub(super) trait Intercept: Send + Sync {
    fn intercept<'a>(&'a self, call: &'a Call<'a>, next: Next<'a>) -> CallFuture<'a>;
}

impl<I: Interceptor> Intercept for I {
    fn intercept<'a>(&'a self, call: &'a Call<'a>, next: Next<'a>) -> CallFuture<'a> {
        Box::pin(Interceptor::intercept(self, call, next))
    }
}

impl Client {
    /// Returns a client with an interceptor, which replaces a previous one. For tests.
    #[must_use]
    pub fn intercepted(&self, interceptor: impl Interceptor) -> Self {
        let mut client = self.clone();
        Arc::make_mut(&mut client.0).interceptor = Some(Arc::new(interceptor));
        client
    }

    /// Passes a call to the interceptor, if there is one.
    ///
    /// The future is pinned by the caller, so that it is not moved if there is none.
    pub(super) async fn intercept_call<T: CallOutput>(
        &self,
        verb: Verb,
        kind: impl FnOnce() -> Discovered,
        key: &ObjectKey,
        body: Option<Bytes>,
        operation: Pin<&mut (impl Future<Output = Result<T>> + Send)>,
    ) -> Result<T> {
        let Some(interceptor) = &self.0.interceptor else {
            return operation.await;
        };
        let (kind, settings) = (kind(), &self.0.settings);
        let (gvk, body) = (kind.gvk(), body.map(|body| body.json()).unwrap_or_default());
        let (subresource, dry_run) = (settings.subresource.as_deref(), settings.dry_run);
        let call = Call {
            verb,
            kind: &gvk,
            key,
            subresource,
            dry_run,
            body: &body,
        };
        let next = Next(Box::pin(async {
            operation
                .await
                .map(|outcome| Answer(AnswerSource::Performed(Box::new(outcome))))
        }));
        interceptor
            .intercept(&call, next)
            .await?
            .into_output(&kind, key)
    }

    /// Passes a get to the interceptor. A 404, also that of an interceptor, is `None`.
    pub(super) async fn intercept_get<T>(
        &self,
        kind: impl FnOnce() -> Discovered,
        key: &ObjectKey,
        operation: Pin<&mut (impl Future<Output = Result<Option<T>>> + Send)>,
    ) -> Result<Option<T>>
    where
        Option<T>: CallOutput,
    {
        Ok(self
            .intercept_call(Verb::Get, kind, key, None, operation)
            .await
            .ignore_not_found()?
            .flatten())
    }
}
