//! Subject of an event.
//!
//! Invariant: two references are equal if they name the same object, in any API version.

use crate::object::{AsObject, KubeObject, Object, ObjectKey};
use k8s_openapi::api::core::v1::ObjectReference;
use kube_core::{GroupVersionKind, Resource};
use std::hash::{Hash, Hasher};

/// Reference to an object by kind and name.
///
/// Created from any type that implements [`Regarding`], or with [`Self::new`].
///
/// ```
/// use kube_core::GroupVersionKind;
/// use steersman::{object::ObjectKey, recorder::Reference};
///
/// let web = Reference::new(&GroupVersionKind::gvk("apps", "v1", "Deployment"), &ObjectKey::new("shop", "web"));
/// assert_eq!(web.key(), ObjectKey::new("shop", "web"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Reference(ObjectReference);

impl Reference {
    /// Creates a reference from kind and name.
    ///
    /// Add a [uid](Self::uid) if possible, because tools select events by it.
    pub fn new(kind: &GroupVersionKind, key: &ObjectKey) -> Self {
        Self::of_parts(Some(kind.clone()), key, None, None)
    }

    /// Sets the uid of the object.
    #[must_use]
    pub fn uid(mut self, uid: &str) -> Self {
        self.0.uid = some(uid);
        self
    }

    /// Returns namespace and name.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(self.0.namespace.as_deref().unwrap_or_default(), self.name())
    }

    pub(super) fn name(&self) -> &str {
        self.0.name.as_deref().unwrap_or_default()
    }

    pub(super) fn inner(&self) -> &ObjectReference {
        &self.0
    }

    fn of_parts(
        kind: Option<GroupVersionKind>,
        key: &ObjectKey,
        uid: Option<&str>,
        resource_version: Option<&str>,
    ) -> Self {
        Self(ObjectReference {
            api_version: kind.as_ref().map(GroupVersionKind::api_version),
            kind: kind.map(|kind| kind.kind),
            namespace: key.namespace().map(str::to_owned),
            name: some(key.name()),
            uid: uid.and_then(some),
            resource_version: resource_version.and_then(some),
            field_path: None,
        })
    }

    fn identity(&self) -> [Option<&str>; 6] {
        let ObjectReference {
            api_version,
            kind,
            namespace,
            name,
            uid,
            field_path,
            ..
        } = &self.0;
        [api_version, kind, namespace, name, uid, field_path].map(Option::as_deref)
    }
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

impl PartialEq for Reference {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}
impl Eq for Reference {}

impl Hash for Reference {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl From<ObjectReference> for Reference {
    fn from(reference: ObjectReference) -> Self {
        Self(reference)
    }
}

/// Subject of an event: any object, an `Arc` of one, an [`Object`], or a [`Reference`].
///
/// `M` keeps the implementations apart. The compiler infers it.
pub trait Regarding<M> {
    /// Returns the reference that the event carries.
    fn reference(&self) -> Reference;
}

impl<M, O: AsObject<M, Object: KubeObject>> Regarding<M> for O {
    fn reference(&self) -> Reference {
        let object = self.as_object();
        let meta = object.meta();
        let (uid, version) = (meta.uid.as_deref(), meta.resource_version.as_deref());
        Reference::of_parts(object.gvk(), &ObjectKey::of(object), uid, version)
    }
}

/// Marks a subject that names an object instead of being one.
#[derive(Debug)]
pub enum Named {}

impl<K> Regarding<Named> for Object<K> {
    fn reference(&self) -> Reference {
        Reference::of_parts(self.gvk(), self.key(), self.meta().uid(), None)
    }
}

impl Regarding<Named> for Reference {
    fn reference(&self) -> Reference {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Node, Pod};

    #[test]
    fn an_object_in_another_version_is_the_same_object_and_recreated_it_is_another() {
        let mut pod = Pod::default();
        pod.metadata.namespace = Some("shop".into());
        pod.metadata.name = Some("web".into());
        pod.metadata.uid = Some("1".into());
        let first = pod.reference();
        pod.metadata.resource_version = Some("7".into());
        assert_eq!(pod.reference(), first);
        assert_eq!(Object::from(pod.clone()).reference(), first);
        assert_eq!(std::sync::Arc::new(pod.clone()).reference(), first);
        assert_eq!(
            Reference::new(&GroupVersionKind::gvk("", "v1", "Pod"), &first.key()).uid("1"),
            first
        );
        assert_eq!(Reference::from(first.inner().clone()), first);
        pod.metadata.uid = Some("2".into());
        assert_ne!(pod.reference(), first);
    }

    #[test]
    fn a_cluster_scoped_reference_has_no_namespace() {
        let mut node = Node::default();
        node.metadata.name = Some("n1".into());
        assert_eq!(
            serde_json::to_value(node.reference().inner()).unwrap(),
            serde_json::json!({
                "apiVersion": "v1", "kind": "Node", "name": "n1",
            })
        );
    }
}
