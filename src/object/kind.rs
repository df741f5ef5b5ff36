//! Kinds: what can be watched, read and written, and how a type names its kind.

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube_core::{ApiResource, DynamicObject, GroupVersionKind, Resource};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    any::{Any, TypeId},
    fmt,
};

/// Only the metadata of `K`: name it as the kind, and a body that is not in memory cannot be asked for.
///
/// Use it to watch what is large, many or secret when names, labels and owners are enough.
pub type Metadata<K = DynamicObject> = kube_core::metadata::PartialObjectMeta<K>;

/// Any kind that can be watched, read and written: typed, [`DynamicObject`] or [`Metadata`] of either.
///
/// Every type that can be one is one: never implement it.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use steersman::object::KubeObject;
///
/// assert_eq!(Pod::default().gvk().unwrap().kind, "Pod");
/// ```
pub trait KubeObject:
    Resource<DynamicType: KindId> + Clone + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The object's own kind; `None` for a dynamic object without `apiVersion` and `kind`.
    fn gvk(&self) -> Option<GroupVersionKind> {
        Self::DynamicType::gvk_of(self)
    }

    /// The resource and whether it has namespaces, if the type says both.
    #[doc(hidden)]
    fn static_resource() -> Option<(ApiResource, bool)> {
        Self::DynamicType::resource_of::<Self>()
    }
}
impl<K> KubeObject for K where
    K: Resource<DynamicType: KindId> + Clone + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

/// A kind known at compile time: what a turbofish alone can name. Everything else is named by a [`GroupVersionKind`].
///
/// ```
/// use k8s_openapi::api::core::v1::{Node, Pod};
/// use steersman::object::{Metadata, StaticKind};
///
/// assert!(Pod::NAMESPACED && !Node::NAMESPACED);
/// assert_eq!(Metadata::<Pod>::static_gvk(), Pod::static_gvk());
/// ```
pub trait StaticKind: KubeObject + Resource<DynamicType = (), Scope: StaticScope> {
    /// Whether objects of this kind live in namespaces.
    const NAMESPACED: bool = Self::Scope::NAMESPACED;

    /// The kind's name, from the type alone.
    fn static_gvk() -> GroupVersionKind {
        GroupVersionKind::gvk(&Self::group(&()), &Self::version(&()), &Self::kind(&()))
    }
}
impl<K: KubeObject + Resource<DynamicType = (), Scope: StaticScope>> StaticKind for K {}

/// A scope known at compile time. Never implement it.
pub trait StaticScope {
    /// Whether objects live in namespaces.
    const NAMESPACED: bool;
}
impl StaticScope for NamespaceResourceScope {
    const NAMESPACED: bool = true;
}
impl StaticScope for ClusterResourceScope {
    const NAMESPACED: bool = false;
}

/// How a type names its kind: `()` by itself, [`ApiResource`] by a run-time value. Never implement it.
pub trait KindId: Send + Sync + 'static {
    #[doc(hidden)]
    fn gvk_of<K: Resource<DynamicType = Self> + 'static>(object: &K) -> Option<GroupVersionKind>;
    #[doc(hidden)]
    fn resource_of<K: Resource<DynamicType = Self> + 'static>() -> Option<(ApiResource, bool)>;
}
impl KindId for () {
    fn gvk_of<K: Resource<DynamicType = ()> + 'static>(_: &K) -> Option<GroupVersionKind> {
        Some(GroupVersionKind::gvk(&K::group(&()), &K::version(&()), &K::kind(&())))
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
        let dynamic = object.downcast_ref::<DynamicObject>().map(|object| &object.types);
        let types = dynamic.or_else(|| object.downcast_ref::<Metadata>().map(|object| &object.types))?;
        types.as_ref()?.try_into().ok()
    }
    fn resource_of<K: Resource<DynamicType = Self> + 'static>() -> Option<(ApiResource, bool)> {
        None
    }
}

/// Stands for "whatever kind": what predicates and events that serve every kind are typed with.
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
    fn a_dynamic_object_is_of_the_kind_it_says() {
        let value = dynamic(r#"{"apiVersion": "shop.example/v1", "kind": "Order"}"#);
        let gvk = Some(GroupVersionKind::gvk("shop.example", "v1", "Order"));
        assert_eq!(serde_json::from_value::<DynamicObject>(value.clone()).unwrap().gvk(), gvk);
        assert_eq!(serde_json::from_value::<Metadata>(value).unwrap().gvk(), gvk);
        assert_eq!(serde_json::from_value::<DynamicObject>(dynamic("{}")).unwrap().gvk(), None);
    }
}
