//! Writes of an object as the difference to the state in which it was read.
//!
//! ```text
//! snapshot -> change the object -> 1. conditions         status, with the resource version
//!                                  2. metadata and spec
//!                                  3. rest of the status
//! ```
//!
//! A [`PatchHelper`] keeps the state before the changes of a reconcile, and sends up to three merge
//! patches afterwards, each only if it is not empty. The conditions come first, because their patch
//! has a resource version, which the other two change.
//!
//! Conditions are merged with the latest state of the object: only those that changed in this
//! reconcile are changed there, so that several controllers can have conditions on one object. A
//! condition that another client changed as well is an error, unless it is
//! [owned](PatchOptions::owned). With [`joined_status`](PatchOptions::joined_status), the first
//! patch contains the rest of the status.
//!
//! ```no_run
//! # use steersman::{conditions::{new, Status}, prelude::*, reconcile::{Context, Result}};
//! use steersman_controllers::cluster_api::{conditions, Cluster, PatchHelper, PatchOptions};
//!
//! # async fn example(client: Client, mut cluster: Cluster, cx: &Context) -> Result<()> {
//! let helper = PatchHelper::new(&client, &cluster);
//! cluster.metadata.finalizers.get_or_insert_default().push("example.com/shop".into());
//! conditions::set(&mut cluster, new("ShopReady", Status::True, "Ready", "", cx.now()));
//! let options = PatchOptions { owned: &["ShopReady"], ..PatchOptions::default() };
//! helper.patch(&cluster, &options).await?;
//! # Ok(())
//! # }
//! ```

mod error;
mod helper;
mod merge;

pub use self::{
    error::{ConditionConflict, ConditionsError, Operation, PatchError, PatchStepError},
    helper::{PatchHelper, PatchOptions},
};
