//! Calls, and who may come between them and their answers: for tests of what happens when the server says no, or says something else, or is not heard.

use super::{
    Client, Discovered, IgnoreNotFound, Result,
    wire::{decode, unread},
};
use crate::object::{KubeObject, ObjectKey};
use bytes::Bytes;
use kube_core::GroupVersionKind;
use serde::de::Error;
use serde_json::Value;
use std::{any::Any, fmt, pin::Pin, sync::Arc};

type Doing<'a> = Pin<Box<dyn Future<Output = Result<Answer>> + Send + 'a>>;

/// Stands between a client and what it calls, reads from the cache included. It sees each call; it may let it go on, now or after it has done something
/// else, as a write through another client, so that there is a conflict; it may answer in its place, with an error made from a `Status` or with an
/// object; and it sees the answer, and may give another.
///
/// A write that was done, and for which it gives an error, is one whose answer was lost: the client knows nothing of it, and no read
/// [waits](super::Consistency) for it.
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
/// struct Stubborn;
/// impl Interceptor for Stubborn {
///     async fn intercept(&self, call: &Call<'_>, next: Next<'_>) -> Result<Answer> {
///         match (call.verb, call.key.name()) {
///             // It says no, and nothing is sent.
///             (Verb::Create, "red") => Err(Status::failure("no red ones", "Forbidden").with_code(403).into()),
///             // It is done, and nobody hears of it.
///             (Verb::Create, "blue") => {
///                 next.run().await?;
///                 Err(Status::failure("the connection is lost", "Timeout").with_code(504).into())
///             }
///             // There is one, whatever the server has.
///             (Verb::Get, "green") => Ok(json!({"metadata": {"name": "green"}, "data": {"door": "green"}}).into()),
///             _ => next.run().await,
///         }
///     }
/// }
///
/// let client = Client::new(Env::embedded()?.client()?)?.namespace("default").intercepted(Stubborn);
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
    /// Gives the answer. [`next.run().await`](Next::run) does the call; who does not call it answers in its place.
    fn intercept(&self, call: &Call<'_>, next: Next<'_>) -> impl Future<Output = Result<Answer>> + Send;
}

/// A call that is about to be done.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Call<'a> {
    /// What is to be done.
    pub verb: Verb,
    /// To what kind.
    pub kind: &'a GroupVersionKind,
    /// To which object; the name is empty for all of a namespace, and where the server is to find one.
    pub key: &'a ObjectKey,
    /// To which part of it.
    pub subresource: Option<&'a str>,
    /// Nothing will come of it.
    pub dry_run: bool,
    /// What is sent: the object, the patch, or how to delete; null for a read.
    pub body: &'a Value,
}

/// What a client can do.
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

/// The call itself, which is yet to be done. Dropped, it is not.
pub struct Next<'a>(Doing<'a>);

impl Next<'_> {
    /// Do it.
    pub async fn run(self) -> Result<Answer> {
        self.0.await
    }
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Next")
    }
}

/// What a call is answered with. To give another one, make it from JSON: `Ok(json!({…}).into())`.
///
/// It is the object; null if a get has found none; an array of objects for a list; and what the server says of a deletion, where anything means that it is
/// done. An error that is a 404 means, for a get and for a deletion, that there was nothing.
pub struct Answer(Given);

enum Given {
    /// As the call gave it: objects from the cache stay those that are shared.
    Done(Box<dyn Outcome>),
    Made(Value),
}

impl Answer {
    /// As the server writes it.
    pub fn json(&self) -> Value {
        match &self.0 {
            Given::Done(outcome) => outcome.json(),
            Given::Made(json) => json.clone(),
        }
    }

    fn outcome<T: Outcome>(self, kind: &Discovered, key: &ObjectKey) -> Result<T> {
        let json = match self.0 {
            Given::Done(outcome) if (&*outcome as &dyn Any).is::<T>() => {
                let outcome: Box<dyn Any> = outcome;
                return Ok(*outcome.downcast().expect("it is one"));
            }
            Given::Done(outcome) => outcome.json(),
            Given::Made(json) => json,
        };
        T::read(json, kind, key)
    }
}

impl From<Value> for Answer {
    fn from(json: Value) -> Self {
        Self(Given::Made(json))
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not what is in it, which may be secret.
        f.write_str("Answer")
    }
}

/// What calls give.
pub(super) trait Outcome: Any + Send {
    fn json(&self) -> Value;
    fn read(json: Value, kind: &Discovered, key: &ObjectKey) -> Result<Self>
    where
        Self: Sized;
}

/// What a server has said, as it came.
impl Outcome for Bytes {
    fn json(&self) -> Value {
        serde_json::from_slice(self).unwrap_or_default()
    }
    fn read(json: Value, _: &Discovered, _: &ObjectKey) -> Result<Self> {
        Ok(json.to_string().into())
    }
}

impl Outcome for Option<Bytes> {
    fn json(&self) -> Value {
        self.as_ref().map(Outcome::json).unwrap_or_default()
    }
    fn read(json: Value, kind: &Discovered, key: &ObjectKey) -> Result<Self> {
        if json.is_null() { Ok(None) } else { Outcome::read(json, kind, key).map(Some) }
    }
}

impl<K: KubeObject> Outcome for Option<Arc<K>> {
    fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
    fn read(json: Value, kind: &Discovered, key: &ObjectKey) -> Result<Self> {
        if json.is_null() { Ok(None) } else { decode(kind, key, json.to_string().as_bytes()).map(Some) }
    }
}

impl<K: KubeObject> Outcome for Vec<Arc<K>> {
    fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
    fn read(json: Value, kind: &Discovered, key: &ObjectKey) -> Result<Self> {
        let Value::Array(items) = json else {
            return Err(unread(kind, key)(Error::custom("an interceptor answers a list with an array")).into());
        };
        items.into_iter().map(|item| decode(kind, key, item.to_string().as_bytes())).collect()
    }
}

/// An [`Interceptor`], whichever it is.
pub(super) trait Intercept: Send + Sync {
    fn intercept<'a>(&'a self, call: &'a Call<'a>, next: Next<'a>) -> Doing<'a>;
}

impl<I: Interceptor> Intercept for I {
    fn intercept<'a>(&'a self, call: &'a Call<'a>, next: Next<'a>) -> Doing<'a> {
        Box::pin(Interceptor::intercept(self, call, next))
    }
}

impl Client {
    /// With somebody who stands between it and what it calls: for tests. The last one counts.
    #[must_use]
    pub fn intercepted(&self, interceptor: impl Interceptor) -> Self {
        let mut client = self.clone();
        Arc::make_mut(&mut client.0).interceptor = Some(Arc::new(interceptor));
        client
    }

    /// What every call goes through. It is pinned, so that those that nobody intercepts are not moved about.
    pub(super) async fn through<T: Outcome>(
        &self,
        verb: Verb,
        kind: impl FnOnce() -> Discovered,
        key: &ObjectKey,
        body: Option<Bytes>,
        doing: Pin<&mut (impl Future<Output = Result<T>> + Send)>,
    ) -> Result<T> {
        let Some(interceptor) = &self.0.interceptor else { return doing.await };
        let (kind, settings) = (kind(), &self.0.settings);
        let (gvk, body) = (kind.gvk(), body.map(|body| body.json()).unwrap_or_default());
        let (subresource, dry_run) = (settings.subresource.as_deref(), settings.dry_run);
        let call = Call { verb, kind: &gvk, key, subresource, dry_run, body: &body };
        let next = Next(Box::pin(async { doing.await.map(|outcome| Answer(Given::Done(Box::new(outcome)))) }));
        interceptor.intercept(&call, next).await?.outcome(&kind, key)
    }

    /// The same of every get: a 404 means that there is none, also if it is the interceptor's.
    pub(super) async fn got<T>(
        &self,
        kind: impl FnOnce() -> Discovered,
        key: &ObjectKey,
        doing: Pin<&mut (impl Future<Output = Result<Option<T>>> + Send)>,
    ) -> Result<Option<T>>
    where
        Option<T>: Outcome,
    {
        Ok(self.through(Verb::Get, kind, key, None, doing).await.ignore_not_found()?.flatten())
    }
}
