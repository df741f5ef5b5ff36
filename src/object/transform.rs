//! Transforms: functions that change objects before they are stored.
//!
//! Invariant: a transform cannot change name, namespace, UID, resource version, deletion timestamp
//! and finalizers. The store, its order of events and waits for own writes depend on them.

use super::{
    assemble::assemble,
    compact_meta::CompactMeta,
    kind::{KubeObject, Metadata},
    packed::Packed,
};
use kube_core::TypeMeta;
use std::{
    any::{Any, TypeId},
    fmt,
    marker::PhantomData,
    mem,
    sync::Arc,
};

/// Function that changes objects of one type. Clones are equal.
///
/// A function over [`Metadata`] without a kind applies to the metadata of every kind.
#[derive(Clone)]
pub(crate) struct Transform(Arc<dyn Change>);

trait Change: Send + Sync {
    fn of_type(&self) -> TypeId;
    fn is_of_metadata(&self) -> bool;
    /// Changes an object. Objects of other types stay unchanged.
    fn change(&self, object: &mut dyn Any);
    fn change_parts(
        &self,
        types: &TypeMeta,
        meta: &CompactMeta,
        body: Packed<'_>,
    ) -> Result<Vec<u8>, serde_json::Error>;
}

struct TypedChange<K, F> {
    change: F,
    kind: PhantomData<fn(&mut K)>,
}

impl Transform {
    pub(crate) fn new<K: KubeObject>(change: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        Self(Arc::new(TypedChange {
            change,
            kind: PhantomData,
        }))
    }

    /// Returns whether it applies to objects of this type.
    pub(crate) fn is_of(&self, kind: TypeId) -> bool {
        self.0.of_type() == kind || self.is_of_all()
    }

    /// Returns whether it applies to the metadata of every kind.
    pub(crate) fn is_of_all(&self) -> bool {
        self.0.of_type() == TypeId::of::<Metadata>()
    }

    /// Returns whether it changes only metadata.
    pub(crate) fn is_of_metadata(&self) -> bool {
        self.0.is_of_metadata()
    }

    /// Changes an object of the kind `types`, if the transform applies to it.
    pub(super) fn change<K: KubeObject>(&self, types: &TypeMeta, object: &mut K) {
        if self.0.of_type() == TypeId::of::<K>() || !self.is_of_all() {
            return self.0.change(object);
        }
        let metadata = mem::take(object.meta_mut());
        let mut partial: Metadata = Metadata {
            types: Some(types.clone()),
            metadata,
            _phantom: PhantomData,
        };
        self.0.change(&mut partial);
        *object.meta_mut() = partial.metadata;
    }

    /// Changes an object that is stored in parts, and returns its JSON.
    pub(super) fn change_parts(
        &self,
        types: &TypeMeta,
        meta: &CompactMeta,
        body: Packed<'_>,
    ) -> Result<Vec<u8>, serde_json::Error> {
        self.0.change_parts(types, meta, body)
    }
}

impl<K: KubeObject, F: Fn(&mut K) + Send + Sync> Change for TypedChange<K, F> {
    fn of_type(&self) -> TypeId {
        TypeId::of::<K>()
    }

    fn is_of_metadata(&self) -> bool {
        K::metadata_api()
    }

    fn change(&self, object: &mut dyn Any) {
        let Some(object) = object.downcast_mut::<K>() else {
            return;
        };
        let meta = object.meta();
        let [name, namespace, uid, version] = [
            &meta.name,
            &meta.namespace,
            &meta.uid,
            &meta.resource_version,
        ]
        .map(Clone::clone);
        let (deletion, finalizers) = (meta.deletion_timestamp.clone(), meta.finalizers.clone());
        (self.change)(object);
        let meta = object.meta_mut();
        (meta.name, meta.namespace, meta.uid, meta.resource_version) =
            (name, namespace, uid, version);
        (meta.deletion_timestamp, meta.finalizers) = (deletion, finalizers);
    }

    fn change_parts(
        &self,
        types: &TypeMeta,
        meta: &CompactMeta,
        body: Packed<'_>,
    ) -> Result<Vec<u8>, serde_json::Error> {
        let body = if K::metadata_api() {
            Packed::EMPTY
        } else {
            body
        };
        let mut object: K = assemble(types, meta, body)?;
        self.change(&mut object);
        serde_json::to_vec(&object)
    }
}

/// Compares the identity of the functions.
impl PartialEq for Transform {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
impl Eq for Transform {}

impl fmt::Debug for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transform")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Compact, Decoder, Metadata, MetadataOnly, Payload};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube_core::DynamicObject;

    const JSON: &[u8] =
        br#"{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","labels":{"app":"web"},
        "deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["a.example/b"],
        "annotations":{"big":"text"}},"data":{"door":"blue","wall":"red"},"unknown":1}"#;

    fn decoder<K: KubeObject>(change: impl Fn(&mut K) + Send + Sync + 'static) -> Decoder {
        let types = TypeMeta {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
        };
        Decoder::new(types).transform(Some(Transform::new(change)))
    }

    fn drop_wall(map: &mut ConfigMap) {
        map.data.as_mut().expect("data").remove("wall");
        map.metadata = kube_core::ObjectMeta {
            labels: map.metadata.labels.clone(),
            ..kube_core::ObjectMeta::default()
        };
        map.metadata.name = Some("other".into());
    }

    fn drop_annotations<K: KubeObject>(object: &mut K) {
        object.meta_mut().annotations = None;
    }

    fn check(map: &ConfigMap) {
        let meta = &map.metadata;
        let named = [
            &meta.name,
            &meta.namespace,
            &meta.uid,
            &meta.resource_version,
        ]
        .map(|text| text.as_deref());
        assert_eq!(
            named,
            ["a", "n", "u", "7"].map(Some),
            "a transform cannot change identity and version"
        );
        let finalizers = meta.finalizers.as_deref().unwrap_or_default();
        assert!(
            meta.deletion_timestamp.is_some() && finalizers == ["a.example/b"],
            "a transform cannot change deletion and finalizers"
        );
        assert_eq!(
            (
                &meta.annotations,
                meta.labels.as_ref().expect("labels")["app"].as_str()
            ),
            (&None, "web")
        );
        assert_eq!(
            map.data.as_ref().expect("data").keys().collect::<Vec<_>>(),
            ["door"]
        );
    }

    #[test]
    fn a_transform_cannot_change_the_identity_of_an_object() {
        check(&decoder(drop_wall).decode::<ConfigMap>(JSON).expect("a map"));
    }

    #[test]
    fn a_transformed_compact_object_is_read_as_any_type() {
        let kept = Arc::new(decoder(drop_wall).decode::<Compact>(JSON).expect("a map"));
        check(&kept.decode::<ConfigMap>().expect("a map"));
        let dynamic = kept.decode::<DynamicObject>().expect("an object");
        assert_eq!(
            (&dynamic.data["data"]["door"], dynamic.data.get("unknown")),
            (&"blue".into(), None)
        );
        assert_eq!(dynamic.types.as_ref().expect("types").kind, "ConfigMap");
        let dynamic = decoder(|object: &mut DynamicObject| {
            drop(object.data.as_object_mut().unwrap().remove("data"));
        });
        let kept = Arc::new(dynamic.decode::<Compact>(JSON).expect("a map"));
        assert_eq!(kept.body(), r#"{"unknown":1}"#);
    }

    #[test]
    fn a_transform_of_metadata_keeps_the_body() {
        let decoder = decoder(drop_annotations::<Metadata<ConfigMap>>);
        let kept = decoder.decode::<Compact>(JSON).expect("a map");
        assert_eq!(
            (
                kept.meta().annotations().iter().count(),
                kept.meta().labels().get("app")
            ),
            (0, Some("web"))
        );
        assert_eq!(
            kept.body(),
            r#"{"data":{"door":"blue","wall":"red"},"unknown":1}"#
        );
        let kept = decoder.decode::<MetadataOnly>(JSON).expect("a map");
        assert_eq!(
            (kept.meta().annotations().iter().count(), kept.meta().uid()),
            (0, Some("u"))
        );
    }

    #[test]
    fn a_transform_of_any_metadata_applies_to_every_representation() {
        let decoder = decoder(|object: &mut Metadata| {
            assert_eq!(object.types.as_ref().expect("types").kind, "ConfigMap");
            object.metadata = kube_core::ObjectMeta {
                annotations: None,
                ..object.metadata.clone()
            };
            object.metadata.uid = None;
        });
        let typed = decoder.decode::<ConfigMap>(JSON).expect("a map");
        assert_eq!(
            (&typed.metadata.annotations, typed.metadata.uid.as_deref()),
            (&None, Some("u"))
        );
        assert_eq!(
            (
                typed.metadata.labels.map(|all| all.len()),
                typed.data.map(|all| all.len())
            ),
            (Some(1), Some(2))
        );
        let kept = decoder.decode::<Compact>(JSON).expect("a map");
        assert_eq!(
            (kept.meta().annotations().iter().count(), kept.meta().uid()),
            (0, Some("u"))
        );
        assert_eq!(
            kept.body(),
            r#"{"data":{"door":"blue","wall":"red"},"unknown":1}"#
        );
        let kept = decoder.decode::<MetadataOnly>(JSON).expect("a map");
        assert_eq!(
            (
                kept.meta().annotations().iter().count(),
                kept.meta().labels().get("app")
            ),
            (0, Some("web"))
        );
    }

    #[test]
    fn a_transform_that_panics_makes_the_object_undecodable() {
        let decoder = decoder(|map: &mut ConfigMap| assert!(map.data.is_none(), "no"));
        for error in [
            decoder.decode::<ConfigMap>(JSON).err(),
            decoder.decode::<Compact>(JSON).err(),
        ] {
            let error = error.expect("panicked").to_string();
            assert!(
                error.contains("n/a") && error.contains("transform"),
                "{error}"
            );
        }
    }
}
