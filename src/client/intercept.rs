//! Calls, and who may stop them: for tests of what happens when the server says no.

use super::{Client, Result};
use crate::object::ObjectKey;
use kube_core::GroupVersionKind;
use std::{fmt, pin::Pin, sync::Arc};

/// Sees every call of a client before it is done, reads from the cache included, and may answer it with an error. What an error is to be, it makes from a
/// `Status`; it may also do something first: write through another client, so that there is a conflict.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> anyhow::Result<()> {
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube_core::Status;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use steersman::{client::{Call, Client, Interceptor, Result, Verb}, testing::{Env, TestServer}};
///
/// #[derive(Default)]
/// struct FirstFails(AtomicU32);
/// impl Interceptor for FirstFails {
///     async fn before(&self, call: &Call<'_>) -> Result<()> {
///         if call.verb == Verb::Create && self.0.fetch_add(1, Ordering::Relaxed) == 0 {
///             return Err(Status::failure("come back later", "ServerTimeout").with_code(500).into());
///         }
///         Ok(())
///     }
/// }
///
/// let client = Client::new(Env::embedded()?.client()?)?.namespace("default").intercepted(FirstFails::default());
/// let map: ConfigMap = serde_json::from_value(serde_json::json!({"metadata": {"name": "colors"}}))?;
/// assert_eq!(client.create(&map).await.unwrap_err().to_string(), "come back later");
/// client.create(&map).await?;
/// # Ok(())
/// # }
/// ```
pub trait Interceptor: Send + Sync + 'static {
    /// `Ok` lets the call go on.
    fn before(&self, call: &Call<'_>) -> impl Future<Output = Result<()>> + Send;
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

/// An [`Interceptor`], whichever it is.
pub(super) trait Intercept: Send + Sync {
    fn before<'a>(&'a self, call: &'a Call<'a>) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;
}

impl<I: Interceptor> Intercept for I {
    fn before<'a>(&'a self, call: &'a Call<'a>) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>> {
        Box::pin(Interceptor::before(self, call))
    }
}

impl Client {
    /// With somebody who sees every call before it is done: for tests. The last one counts.
    #[must_use]
    pub fn intercepted(&self, interceptor: impl Interceptor) -> Self {
        let mut client = self.clone();
        Arc::make_mut(&mut client.0).interceptor = Some(Arc::new(interceptor));
        client
    }

    pub(super) async fn intercept(
        &self,
        verb: Verb,
        kind: impl FnOnce() -> GroupVersionKind,
        key: &ObjectKey,
    ) -> Result<()> {
        let Some(interceptor) = &self.0.interceptor else { return Ok(()) };
        let settings = &self.0.settings;
        let (kind, subresource, dry_run) = (&kind(), settings.subresource.as_deref(), settings.dry_run);
        interceptor.before(&Call { verb, kind, key, subresource, dry_run }).await
    }
}
