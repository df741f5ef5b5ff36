//! Deprecated conditions of objects whose type is not known.

use super::DeprecatedCondition;
use kube::core::DynamicObject;
use serde::Deserialize;

/// Returns the deprecated conditions of an object, as far as it has any.
///
/// They are read from `status.deprecated.v1beta1.conditions`, else from `status.conditions`, whose
/// entries can have the current format. A list that cannot be read is ignored.
pub fn reported(object: &DynamicObject) -> Vec<DeprecatedCondition> {
    let places = [
        "/status/deprecated/v1beta1/conditions",
        "/status/conditions",
    ];
    let mut lists = places.iter().filter_map(|place| object.data.pointer(place));
    lists
        .find_map(|list| Vec::deserialize(list).ok())
        .unwrap_or_default()
}
