//! Fields of an object whose values come from other objects: addresses and ports of services,
//! priorities of pods.
//!
//! Runs between preparation and validation. An allocated value is reserved only once it is stored,
//! so the caller holds [`Core::allocation`] until then for [`Dependencies::Addresses`].

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

/// Data that a kind takes from other objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dependencies {
    Nothing,
    /// An unused address and unused ports.
    Addresses,
    /// The value of a priority class.
    Priority,
}

/// Sets the fields of an object that depend on other objects.
pub(crate) fn resolve_dependencies(
    core: &Core,
    dependencies: Dependencies,
    name: &str,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<()> {
    match dependencies {
        Dependencies::Addresses => {
            let others = all(
                core,
                "",
                "services",
                object["metadata"]["uid"].as_str().unwrap_or_default(),
            );
            let mut draw = |below| core.random(|random| random.random_range(0..below));
            services::allocate(object, &others, &mut draw).map_err(|error| match error {
                AllocationError::Invalid(error) => Failure::invalid("", "Service", name, [error]),
                AllocationError::NodePortsExhausted => {
                    Failure::internal("failed to allocate a nodePort: range is full")
                }
            })
        }
        Dependencies::Priority if old.is_none() => {
            let classes = all(core, "scheduling.k8s.io", "priorityclasses", "");
            pods::set_priority(object, &classes)
                .map_err(|why| Failure::forbidden("", "pods", name, why))
        }
        Dependencies::Nothing | Dependencies::Priority => Ok(()),
    }
}

/// Returns the objects of a resource, except for the one with the uid `except`.
fn all(core: &Core, group: &str, plural: &str, except: &str) -> Vec<Value> {
    let Ok(scan) = core
        .store
        .scan(&table_name(group, plural), Range::default(), None)
    else {
        return Vec::new();
    };
    let bare = Head::bare();
    let objects = scan
        .objects
        .iter()
        .map(|object| Value::Object(object.decode(&bare)));
    objects
        .filter(|object| object["metadata"]["uid"] != except)
        .collect()
}
