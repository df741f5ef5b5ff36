//! References from Cluster API objects to objects of providers.

use k8s_openapi::api::core::v1::ObjectReference;
use serde::{Deserialize, Serialize};
use steersman::{object::KubeObject, prelude::GroupVersionKind};

/// Reference to an object in the same namespace, without a version.
///
/// The version follows from the contract labels of the kind's CRD.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContractVersionedObjectReference {
    /// Group of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// Kind of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

impl ContractVersionedObjectReference {
    /// Returns whether any of the fields is set.
    pub fn is_defined(&self) -> bool {
        !(self.api_group.is_empty() && self.kind.is_empty() && self.name.is_empty())
    }

    /// Creates a reference to an object.
    ///
    /// Group and kind are empty for a dynamic object without `apiVersion` and `kind`.
    pub fn to(object: &impl KubeObject) -> Self {
        let (api_group, kind) = object
            .gvk()
            .map(|gvk| (gvk.group, gvk.kind))
            .unwrap_or_default();
        Self {
            api_group,
            kind,
            name: object.meta().name.clone().unwrap_or_default(),
        }
    }
}

/// Creates a reference with the version, namespace and name of an object.
///
/// Use it for fields of type `ObjectReference`. It has no uid and no resource version, as in
/// upstream's `ObjToRef`.
pub fn object_reference(object: &impl KubeObject) -> ObjectReference {
    let gvk = object.gvk();
    ObjectReference {
        api_version: gvk.as_ref().map(GroupVersionKind::api_version),
        kind: gvk.map(|gvk| gvk.kind),
        name: object.meta().name.clone(),
        namespace: object.meta().namespace.clone(),
        ..ObjectReference::default()
    }
}
