//! Kinds that can be watched, read and written, and their Rust types.

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube_core::{ApiResource, DynamicObject, GroupVersionKind, Resource};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    any::{Any, TypeId},
    fmt,
};

/// Metadata of `K`, without a body.
///
/// Use it as the kind to watch objects that are large, numerous or secret if names, labels and
/// owners are sufficient.
pub type Metadata<K = DynamicObject> = kube_core::metadata::PartialObjectMeta<K>;

/// Kind that can be watched, read and written: typed, dynamic or metadata-only.
///
/// Implemented for every suitable type, including [`DynamicObject`] and [`Metadata`]. Not meant to
/// be implemented by users.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use steersman::object::KubeObject;
///
/// assert_eq!(Pod::default().gvk().unwrap().kind, "Pod");
/// ```
pub trait KubeObject:
    Resource<DynamicType: KindId>
    + Clone
    + fmt::Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// Returns the kind; `None` for a dynamic object without `apiVersion` and `kind`.
    fn gvk(&self) -> Option<GroupVersionKind> {
        Self::DynamicType::gvk_of(self)
    }

    /// Returns the resource and whether it is namespaced, if the type determines both.
    #[doc(hidden)]
    fn static_resource() -> Option<(ApiResource, bool)> {
        Self::DynamicType::resource_of::<Self>()
    }
}
impl<K> KubeObject for K where
    K: Resource<DynamicType: KindId>
        + Clone
        + fmt::Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// Kind that is known at compile time and can be named by a type parameter.
///
/// Other kinds are named by a [`GroupVersionKind`].
///
/// ```
/// use k8s_openapi::api::core::v1::{Node, Pod};
/// use steersman::object::{Metadata, StaticKind};
///
/// assert!(Pod::NAMESPACED && !Node::NAMESPACED);
/// assert_eq!(Metadata::<Pod>::static_gvk(), Pod::static_gvk());
/// ```
pub trait StaticKind: KubeObject + Resource<DynamicType = (), Scope: StaticScope> {
    /// Whether objects of this kind have a namespace.
    const NAMESPACED: bool = Self::Scope::NAMESPACED;

    /// Returns group, version and kind of the type.
    fn static_gvk() -> GroupVersionKind {
        GroupVersionKind::gvk(&Self::group(&()), &Self::version(&()), &Self::kind(&()))
    }
}
impl<K: KubeObject + Resource<DynamicType = (), Scope: StaticScope>> StaticKind for K {}

/// Scope that is known at compile time. Not meant to be implemented by users.
pub trait StaticScope {
    /// Whether objects have a namespace.
    const NAMESPACED: bool;
}
impl StaticScope for NamespaceResourceScope {
    const NAMESPACED: bool = true;
}
impl StaticScope for ClusterResourceScope {
    const NAMESPACED: bool = false;
}

/// Source of the kind of a type: `()` for static, [`ApiResource`] for dynamic kinds.
///
/// Not meant to be implemented by users.
pub trait KindId: Send + Sync + 'static {
    #[doc(hidden)]
    fn gvk_of<K: Resource<DynamicType = Self> + 'static>(object: &K) -> Option<GroupVersionKind>;
    #[doc(hidden)]
    fn resource_of<K: Resource<DynamicType = Self> + 'static>() -> Option<(ApiResource, bool)>;
}
impl KindId for () {
    fn gvk_of<K: Resource<DynamicType = ()> + 'static>(_: &K) -> Option<GroupVersionKind> {
        Some(GroupVersionKind::gvk(
            &K::group(&()),
            &K::version(&()),
            &K::kind(&()),
        ))
    }
    fn resource_of<K: Resource<DynamicType = ()> + 'static>() -> Option<(ApiResource, bool)> {
        let scope = TypeId::of::<K::Scope>();
        let namespaced = scope == TypeId::of::<NamespaceResourceScope>();
        let known = namespaced || scope == TypeId::of::<ClusterResourceScope>();
        known.then(|| (ApiResource::erase::<K>(&()), namespaced))
    }
}
impl KindId for ApiResource {
    fn gvk_of<K: Resource<DynamicType = Self> + 'static>(object: &K) -> Option<GroupVersionKind> {
        let object: &dyn Any = object;
        let dynamic = object
            .downcast_ref::<DynamicObject>()
            .map(|object| &object.types);
        let types = dynamic.or_else(|| {
            object
                .downcast_ref::<Metadata>()
                .map(|object| &object.types)
        })?;
        types.as_ref()?.try_into().ok()
    }
    fn resource_of<K: Resource<DynamicType = Self> + 'static>() -> Option<(ApiResource, bool)> {
        None
    }
}

/// Placeholder for any kind, used by predicates and events that handle every kind.
#[derive(Clone, Copy, Debug)]
pub enum AnyKind {}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};

    fn dynamic(types: &str) -> serde_json::Value {
        let mut object: serde_json::Value = serde_json::from_str(types).unwrap();
        object["metadata"] = serde_json::json!({ "name": "web" });
        object
    }

    #[test]
    fn a_typed_kind_knows_its_name() {
        let gvk = GroupVersionKind::gvk("apps", "v1", "Deployment");
        assert_eq!(Deployment::default().gvk(), Some(gvk.clone()));
        assert_eq!(Deployment::static_gvk(), gvk);
        assert_eq!(Metadata::<Secret>::default().gvk().unwrap().kind, "Secret");
    }

    #[test]
    fn a_dynamic_object_has_the_kind_of_its_types() {
        let value = dynamic(r#"{"apiVersion": "shop.example/v1", "kind": "Order"}"#);
        let gvk = Some(GroupVersionKind::gvk("shop.example", "v1", "Order"));
        assert_eq!(
            serde_json::from_value::<DynamicObject>(value.clone())
                .unwrap()
                .gvk(),
            gvk
        );
        assert_eq!(
            serde_json::from_value::<Metadata>(value).unwrap().gvk(),
            gvk
        );
        assert_eq!(
            serde_json::from_value::<DynamicObject>(dynamic("{}"))
                .unwrap()
                .gvk(),
            None
        );
    }
}
