//! What a kind needs of other objects before it can be checked: addresses that nobody else has, numbers that a class gives.
//!
//! It runs after the object has been prepared and before it is validated. Whatever it gives out is held only by being
//! stored, so whoever runs it for a kind that takes from a pool holds [`Core::allocation`] until then.

use super::{
    pods,
    services::{self, AllocationError},
};
use crate::{
    catalog::table_name,
    object::Head,
    server::Core,
    status::{Failure, Result},
    store::Range,
};
use rand::RngExt;
use serde_json::Value;

/// What a kind asks others for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// An address and ports, out of pools.
    Addresses,
    /// The number of a priority class.
    Priority,
}

/// Fills into an object what it needs of others.
pub(crate) fn settle(core: &Core, needs: Needs, name: &str, object: &mut Value, old: Option<&Value>) -> Result<()> {
    match needs {
        Needs::Addresses => {
            let others = all(core, "", "services", object["metadata"]["uid"].as_str().unwrap_or_default());
            let mut draw = |below| core.random(|random| random.random_range(0..below));
            services::allocate(object, &others, &mut draw).map_err(|error| match error {
                AllocationError::Invalid(error) => Failure::invalid("", "Service", name, [error]),
                AllocationError::NodePortsExhausted => {
                    Failure::internal("failed to allocate a nodePort: range is full")
                }
            })
        }
        Needs::Priority if old.is_none() => {
            let classes = all(core, "scheduling.k8s.io", "priorityclasses", "");
            pods::prioritise(object, &classes).map_err(|why| Failure::forbidden("", "pods", name, why))
        }
        Needs::Nothing | Needs::Priority => Ok(()),
    }
}

/// The objects of a resource, but for one.
fn all(core: &Core, group: &str, plural: &str, except: &str) -> Vec<Value> {
    let Ok(scan) = core.store.scan(&table_name(group, plural), Range::default(), None) else { return Vec::new() };
    let bare = Head::bare();
    let objects = scan.objects.iter().map(|object| Value::Object(object.decode(&bare)));
    objects.filter(|object| object["metadata"]["uid"] != except).collect()
}
