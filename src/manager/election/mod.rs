//! Leader election with a Lease.
//!
//! * [`LeaderElection`] has the options: the Lease, the identity of this process and the durations.
//!   Names, defaults and rules are those of client-go.
//! * An [`Elector`] watches the Lease, waits until it can be taken, and returns a [`Leadership`].
//! * [`Leadership::hold`] renews the Lease beside the leader's work. [`Leadership::release`] lets
//!   another process lead at once when the work has ended.
//! * The work runs in the scope of a [`Fence`], which rejects its writes when the Lease may have
//!   expired.
//!
//! # Why there is at most one leader
//! A leader measures its time from *before* it sends a successful renewal. A candidate measures
//! from when it has *observed* the last change of the Lease, which is later, and takes the Lease
//! only if it has not changed since. Both use their own monotonic clock, so wall clocks do not
//! matter. The clocks must run at about the same speed: [`Fence::deadline`] precedes the end of the
//! Lease by half of the difference between lease duration and renew deadline.
//!
//! Deleting or clearing the Lease by hand ends the leadership. A process that has not seen the
//! Lease held takes it at once, and the leader notices at its next renewal.
//!
//! # Readiness
//! With leader election, a manager has the readiness check `lease`. It fails while the Lease cannot
//! be read, or cannot be written although no other process holds it: at once if the API server
//! answers 401 or 403, and after [`LeaderElection::renew_deadline`] of any other errors in a row.
//! The first success ends the failure.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! use steersman::{manager::election::{Elector, LeaderElection}, testing::{Env, TestServer}};
//! use std::future::pending;
//!
//! let connection = Env::embedded()?.client()?; // or a `Config`
//! let elector = Elector::new(connection, LeaderElection::new("web-operator", "default"))?;
//! let mut leadership = elector.acquire(pending()).await.expect("acquired, because it is never stopped");
//! let fence = leadership.fence();
//! tokio::select! {
//!     lost = leadership.hold(pending()) => lost?,
//!     () = fence.scope(async { /* … what only the leader does … */ }) => {}
//! }
//! leadership.release().await?;
//! assert_eq!(elector.report().holder, None);
//! # Ok(())
//! # }
//! ```

mod elector;
mod error;
mod leadership;
mod lease;
mod lease_watch;
mod metrics;
mod options;
mod record;
mod report;
#[cfg(test)]
mod tests;

pub use self::{
    elector::Elector,
    error::{ElectionError, Lost},
    leadership::Leadership,
    metrics::ElectionMetrics,
    options::LeaderElection,
    report::LeaseReport,
};
pub use crate::fencing::{Fence, Fenced};
