//! Reconcilers, their requests, context and results.
//!
//! * A [`Request`] names the object to reconcile. It does not include the event. Other request
//!   types are possible, such as [`ClusterRequest`].
//! * The [`Context`] describes one reconcile: attempt, reasons, deadline, and whether the request
//!   was added again meanwhile.
//! * The [`Outcome`] determines when to reconcile again. An error is retried, and a [`Failure`] in
//!   its chain controls how.
//! * [`by_object`] reads the object before it calls the reconciler.
//!
//! | result | effect |
//! |---|---|
//! | `Ok(Outcome::done())` | waits for an event, and resets the attempts |
//! | `Ok(Outcome::requeue_after(d))` | reconciles after `d` or an event, and resets the attempts |
//! | `Ok(Outcome::requeue())` | reconciles again with backoff |
//! | `Ok(Outcome::requeue_not_before(d))` | reconciles again with backoff, but not before `d` |
//! | `Ok(Outcome::retry_after(d))` | reconciles after `d`, and counts a failed attempt |
//! | an error, a panic or a timeout | reconciles again with backoff |
//! | a conflict | like other errors, but logged at debug level and counted separately |
//! | [`Failure::terminal`] | waits for an event, and resets the attempts |
//!
//! An error with a `Retry-After` of the API server is not retried earlier, up to
//! [`Options::max_retry_after`]. [`Options::on_error`] can replace the reaction to errors.
//!
//! A request is requeued with its previous priority, unless the outcome sets another one.
//!
//! ```
//! use steersman::{prelude::*, reconcile::{Context, Result}};
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
    context::{QueueView, ReconcileRun},
    failure::Instructions,
};
pub use crate::workqueue::{Outcome, Priority, Reason};
pub use anyhow::{Error, Result};

use crate::{object::ObjectKey, workqueue::Key};
use std::{fmt, pin::Pin, sync::Arc};

/// Request of most controllers: the key of an object. Any [`Key`] can replace it.
pub type Request = ObjectKey;

/// Request of a controller that watches several clusters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub struct ClusterRequest {
    /// Name of the cluster.
    pub cluster: Arc<str>,
    /// Object in that cluster.
    pub request: Request,
}

impl fmt::Display for ClusterRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cluster, self.request)
    }
}

/// Brings the actual state closer to the state that an object declares.
///
/// Implement it with an `async fn`.
///
/// Cancel safety: the future can be dropped at any await, after a timeout or at the end of the
/// grace period, so each step must be repeatable. Writes in spawned tasks do not count as own
/// writes: the controller does not wait until the cache has observed them.
pub trait Reconciler<R = Request>: Send + Sync + 'static {
    /// Reconciles one request. Reconciles of the same request never overlap.
    fn reconcile(&self, request: R, cx: &Context) -> impl Future<Output = Result<Outcome>> + Send;
}

/// Lets other code share the state of a reconciler.
impl<R: Key, T: Reconciler<R>> Reconciler<R> for Arc<T> {
    fn reconcile(&self, request: R, cx: &Context) -> impl Future<Output = Result<Outcome>> + Send {
        (**self).reconcile(request, cx)
    }
}

/// Object-safe variant of [`Reconciler`], as controllers store it.
pub(crate) trait DynReconciler<R>: Send + Sync {
    fn reconcile<'a>(&'a self, request: R, cx: &'a Context) -> Reconciling<'a>;
}

pub(crate) type Reconciling<'a> = Pin<Box<dyn Future<Output = Result<Outcome>> + Send + 'a>>;

impl<R: Key, T: Reconciler<R>> DynReconciler<R> for T {
    fn reconcile<'a>(&'a self, request: R, cx: &'a Context) -> Reconciling<'a> {
        Box::pin(Reconciler::reconcile(self, request, cx))
    }
}

/// Creates a reconciler from a closure, for tests and short programs.
///
/// The closure receives the context by value. Clone the captured values that its future needs.
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
