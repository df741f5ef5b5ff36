//! Your code: a [`Reconciler`], what it is given, and what it answers.
//!
//! * A [`Request`] says which object; what happened to it does not matter, only what is there now. Any other type can take its place, such as
//!   [`ClusterRequest`].
//! * The [`Context`] is about one run: which attempt it is, why it happens, until when it may take, whether the request was made again meanwhile.
//! * The [`Outcome`] says when to come again; an error that there is something to retry. A [`Failure`] anywhere in its chain says how.
//! * [`by_object`] reads the object first, for reconcilers that want nothing else.
//!
//! | answer | what follows |
//! |---|---|
//! | `Ok(Outcome::done())` | nothing until an event; failed attempts are forgotten |
//! | `Ok(Outcome::requeue_after(d))` | once more after `d`, or sooner if an event comes; failed attempts are forgotten |
//! | `Ok(Outcome::requeue())` | once more with growing backoff |
//! | `Ok(Outcome::requeue_not_before(d))` | the same, and not before `d` |
//! | `Ok(Outcome::retry_after(d))` | once more after `d`, which counts as an attempt that failed |
//! | an error | once more with growing backoff, and not before the server's `Retry-After` in it, capped by [`Options::max_retry_after`]; [`Options::on_error`] may decide otherwise |
//! | an error that is a conflict | the same, but it is logged for debugging only, and counted apart |
//! | [`Failure::terminal`] | nothing until an event; failed attempts are forgotten |
//! | a panic, or no answer in time | as an error |
//!
//! A requeue is at the priority that the request had, unless the answer says another one.
//!
//! ```
//! use steersman::prelude::*;
//! use std::time::Duration;
//!
//! struct Greeter;
//!
//! impl Reconciler for Greeter {
//!     async fn reconcile(&self, request: Request, cx: &Context) -> Result<Outcome> {
//!         if request.name().is_empty() {
//!             return Err(Failure::terminal(anyhow::anyhow!("nobody to greet")).into());
//!         }
//!         println!("hello {request}, for the {}. time", cx.attempt());
//!         Ok(Outcome::requeue_after(Duration::from_secs(300)))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! let outcome = Greeter.reconcile(Request::new("shop", "web"), &Context::default()).await?;
//! assert_eq!(outcome, Outcome::requeue_after(Duration::from_secs(300)));
//! # Ok(())
//! # }
//! ```
//!
//! [`Options::on_error`]: crate::controller::Options::on_error
//! [`Options::max_retry_after`]: crate::controller::Options::max_retry_after

mod context;
mod failure;
mod object;

pub use self::{
    context::Context,
    failure::Failure,
    object::{ObjectReconciler, by_object},
};
pub(crate) use self::{
    context::{Again, Run},
    failure::Instructions,
};
pub use crate::workqueue::{Outcome, Priority, Reason};
pub use anyhow::{Error, Result};

use crate::{object::ObjectKey, workqueue::Key};
use std::{fmt, pin::Pin, sync::Arc};

/// The request of most controllers: which object. Any [`Key`] can take its place.
pub type Request = ObjectKey;

/// The request of a controller over several clusters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub struct ClusterRequest {
    /// Which cluster.
    pub cluster: Arc<str>,
    /// Which object in it.
    pub request: Request,
}

impl fmt::Display for ClusterRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cluster, self.request)
    }
}

/// Brings the world closer to what the request's object asks for. Write it as an `async fn`.
///
/// It may be dropped at any await, after a timeout or at the end of the grace period: each step must be repeatable. What it writes in tasks that it spawns is not
/// its own: the controller does not wait until the cache shows that.
pub trait Reconciler<R = Request>: Send + Sync + 'static {
    /// One run. No other run for the same request is going on.
    fn reconcile(&self, request: R, cx: &Context) -> impl Future<Output = Result<Outcome>> + Send;
}

/// One that is shared with whoever looks at its state.
impl<R: Key, T: Reconciler<R>> Reconciler<R> for Arc<T> {
    fn reconcile(&self, request: R, cx: &Context) -> impl Future<Output = Result<Outcome>> + Send {
        (**self).reconcile(request, cx)
    }
}

/// How a controller keeps one.
pub(crate) trait DynReconciler<R>: Send + Sync {
    fn reconcile<'a>(&'a self, request: R, cx: &'a Context) -> Reconciling<'a>;
}

pub(crate) type Reconciling<'a> = Pin<Box<dyn Future<Output = Result<Outcome>> + Send + 'a>>;

impl<R: Key, T: Reconciler<R>> DynReconciler<R> for T {
    fn reconcile<'a>(&'a self, request: R, cx: &'a Context) -> Reconciling<'a> {
        Box::pin(Reconciler::reconcile(self, request, cx))
    }
}

/// A reconciler from a closure, for tests and short programs. It gets the context by value; what its future needs of the captures it must clone.
pub fn from_fn<R: Key, Fut, F>(reconcile: F) -> impl Reconciler<R> + use<R, Fut, F>
where
    F: Fn(R, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome>> + Send,
{
    FromFn(reconcile)
}

struct FromFn<F>(F);

impl<R: Key, Fut, F> Reconciler<R> for FromFn<F>
where
    F: Fn(R, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome>> + Send,
{
    fn reconcile(&self, request: R, cx: &Context) -> impl Future<Output = Result<Outcome>> + Send {
        (self.0)(request, cx.clone())
    }
}
