//! One leader among several processes, by a Lease.
//!
//! * [`LeaderElection`] says which Lease, who this is, and how long things may take: client-go's parameters and rules.
//! * An [`Elector`] waits for its turn, watching the Lease, and gives a [`Leadership`].
//! * [`Leadership::hold`] renews it while the work is done beside; after the work has ended, [`Leadership::release`] lets somebody else lead at once.
//! * The work is done in the scope of a [`Fence`]: when the lease may be over, its writes are refused.
//!
//! # Why there are never two
//! A leader counts its time from *before* it has sent a renewal that succeeded. Who waits counts from when it has *seen* the last change of the Lease, which is
//! later, and takes the Lease on condition that it has not changed since. Both measure by their own monotonic clock: what a clock on a wall says does not
//! matter, here or there. That the clocks run at about the same speed does: [`Fence::deadline`] is before the end of the lease by half of what the
//! lease lasts longer than the renew deadline.
//!
//! Who deletes the Lease or empties it by hand takes the lead away: a process that has not seen it held takes it at once, and the leader notices at its next renewal.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! use steersman::{manager::election::{Elector, LeaderElection}, testing::{Env, TestServer}};
//! use std::future::pending;
//!
//! let connection = Env::embedded()?.client()?; // or a `Config`
//! let elector = Elector::new(connection, LeaderElection::new("web-operator", "default"))?;
//! let mut leadership = elector.acquire(pending()).await.expect("nobody has stopped it");
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
mod metrics;
mod news;
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
pub use crate::fence::{Fence, Fenced};
