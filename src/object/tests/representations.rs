//! Tests that all representations of an object read the same.

use super::{decoder, random::config_map_json};
use crate::object::{
    Compact, Decoder, KubeObject, Meta, Metadata, MetadataOnly, Object, ObjectKey, Payload,
    StaticKind, Undecodable,
};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod},
};
use kube_core::{DynamicObject, Resource, TypeMeta};
use proptest::prelude::*;
use serde::{Deserialize, de::DeserializeSeed};
use std::{fmt::Debug, sync::Arc};

fn compact<K: KubeObject>(decoder: &Decoder, json: &str) -> Arc<K> {
    Arc::new(decoder.decode::<Compact>(json.as_bytes()).unwrap())
        .decode()
        .unwrap()
}

fn typed<K: KubeObject>(decoder: &Decoder, json: &str) -> K {
    decoder.decode(json.as_bytes()).unwrap()
}

fn assert_same_view(one: Meta<'_>, other: Meta<'_>) {
    assert_eq!(format!("{one:?}"), format!("{other:?}"));
    assert_eq!(one.to_object_meta(), other.to_object_meta());
    for (one, other) in [
        (one.labels(), other.labels()),
        (one.annotations(), other.annotations()),
    ] {
        assert_eq!((one, one.len()), (other, other.len()));
        for (key, value) in one.iter() {
            assert_eq!((one.get(key), other.get(key)), (Some(value), Some(value)));
        }
        assert!(!one.contains("no such key") && !other.contains("no such key"));
    }
}

steersman_testkit::properties! {
    #[test]
    fn typed_and_compact_decode_to_the_same(json in config_map_json(), managed in any::<bool>()) {
        let decoder = decoder("v1", "ConfigMap").managed_fields(managed);
        // The reference is kube's own decoding, without managedFields.
        let mut expected: ConfigMap = serde_json::from_str(&json).unwrap();
        if !managed {
            expected.metadata.managed_fields = None;
        }
        prop_assert_eq!(&typed::<ConfigMap>(&decoder, &json), &expected);
        prop_assert_eq!(&*compact::<ConfigMap>(&decoder, &json), &expected);
        prop_assert_eq!(&*compact::<DynamicObject>(&decoder, &json), &typed::<DynamicObject>(&decoder, &json));
        prop_assert_eq!(&compact::<Metadata<ConfigMap>>(&decoder, &json).metadata, &expected.metadata);
        let only = Arc::new(decoder.decode::<MetadataOnly>(json.as_bytes()).unwrap());
        prop_assert_eq!(&only.decode::<Metadata<ConfigMap>>().unwrap().metadata, &expected.metadata);
    }

    #[test]
    fn metadata_reads_the_same_in_every_representation(json in config_map_json()) {
        let decoder = decoder("v1", "ConfigMap");
        let typed: ConfigMap = typed(&decoder, &json);
        let compact: Compact = decoder.decode(json.as_bytes()).unwrap();
        let only: MetadataOnly = decoder.decode(json.as_bytes()).unwrap();
        assert_same_view(Payload::meta(&typed), compact.meta());
        assert_same_view(compact.meta(), only.meta());
        prop_assert_eq!(typed.key(), compact.key());
        prop_assert_eq!(typed.key(), only.key());
        prop_assert_eq!(typed.revision(), compact.revision());
    }

    #[test]
    fn the_decoder_never_panics(
        json in config_map_json(),
        cut in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        whole in any::<bool>(),
    ) {
        fn check<P: Payload, K: KubeObject>(decoder: &Decoder, json: &[u8]) {
            match decoder.decode::<P>(json) {
                Ok(payload) => drop(Arc::new(payload).decode::<K>()),
                Err(error) => assert!(error.to_string().contains("ConfigMap")),
            }
        }
        let mut json = json.into_bytes();
        for (at, byte) in changes {
            let at = at.index(json.len());
            json[at] = byte;
        }
        json.truncate(if whole { json.len() } else { cut.index(json.len()) });
        let decoder = decoder("v1", "ConfigMap");
        check::<ConfigMap, ConfigMap>(&decoder, &json);
        check::<DynamicObject, DynamicObject>(&decoder, &json);
        check::<Compact, ConfigMap>(&decoder, &json);
        check::<Compact, DynamicObject>(&decoder, &json);
        check::<MetadataOnly, Metadata>(&decoder, &json);
    }
}

#[test]
fn the_body_equals_the_message() {
    let spec = r#"{ "big":18446744073709551615, "small":-9223372036854775808,"float":1.10, "exp" : 1E5,"text":"\u00e9\/" }"#;
    let json = format!(
        r#"{{"spec":{spec},"kind":"Order","we\"ird":[1.0],"apiVersion":"shop/v1","metadata":{{"name":"a"}}}}"#
    );
    let decoder = decoder("shop/v1", "Order");
    let compact: Compact = decoder.decode(json.as_bytes()).unwrap();
    let spec = r#"{"big":18446744073709551615,"small":-9223372036854775808,"float":1.1,"exp":100000.0,"text":"é/"}"#;
    assert_eq!(
        compact.body(),
        format!(r#"{{"spec":{spec},"we\"ird":[1.0]}}"#)
    );
    let decoded = Arc::new(compact).decode::<DynamicObject>().unwrap();
    assert_eq!(
        *decoded,
        serde_json::from_str::<DynamicObject>(&json).unwrap()
    );
}

#[test]
fn only_the_managed_fields_of_the_object_itself_are_skipped() {
    let json = r#"{"metadata":{"name":"a","managedFields":[{"manager":"x"}]},
        "managedFields":1,"spec":{"metadata":{"managedFields":2},"template":{"managedFields":3}}}"#;
    let decoder = decoder("shop/v1", "Order");
    for object in [
        Arc::new(typed::<DynamicObject>(&decoder, json)),
        compact(&decoder, json),
    ] {
        assert_eq!(object.metadata.managed_fields, None);
        let kept = serde_json::json!({
            "managedFields": 1, "spec": { "metadata": { "managedFields": 2 }, "template": { "managedFields": 3 } }
        });
        assert_eq!(object.data, kept);
    }
}

#[test]
fn managed_fields_are_dropped_for_every_metadata_type() {
    #[derive(Debug, Deserialize)]
    struct Flat {
        #[serde(flatten)]
        rest: serde_json::Value,
    }
    #[derive(Debug, Deserialize)]
    struct Wrapped(Option<Box<Inner>>);
    #[derive(Debug, Deserialize)]
    struct Inner {
        metadata: Option<serde_json::Value>,
        kind: String,
    }

    fn read<T: for<'de> Deserialize<'de>>(json: &str) -> T {
        let types = TypeMeta {
            api_version: "shop/v1".into(),
            kind: "Order".into(),
        };
        let mut json = serde_json::Deserializer::from_str(json);
        T::deserialize(crate::object::skip_managed_fields::SkipManagedFields::new(
            &mut json, &types, false,
        ))
        .unwrap()
    }

    let json = r#"{"metadata":{"name":"a","managedFields":[{"manager":"x"}]}}"#;
    let named = serde_json::json!({ "name": "a" });
    assert_eq!(read::<Flat>(json).rest["metadata"], named);
    let inner = read::<Wrapped>(json).0.unwrap();
    assert_eq!((inner.metadata, &*inner.kind), (Some(named), "Order"));
    assert_eq!(read::<Inner>(r#"{"metadata":null}"#).metadata, None);
}

#[test]
fn an_item_of_a_list_is_of_the_kind_of_the_list() {
    let decoder = decoder("shop/v1", "Order");
    let json = r#"{"metadata":{"name":"a"}}"#;
    for object in [
        Arc::new(typed::<DynamicObject>(&decoder, json)),
        compact(&decoder, json),
    ] {
        assert_eq!(
            object.gvk().unwrap(),
            kube_core::GroupVersionKind::gvk("shop", "v1", "Order")
        );
    }
}

#[test]
fn partial_metadata_has_the_kind_of_its_object() {
    let json = br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}"#;
    let object = Arc::new(
        decoder("shop/v1", "Order")
            .decode::<MetadataOnly>(json)
            .unwrap(),
    );
    assert_eq!(
        object.decode::<Metadata>().unwrap().gvk().unwrap().kind,
        "Order"
    );
}

#[test]
fn a_type_does_not_decode_objects_of_another_kind() {
    let json = r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a","namespace":"b"}}"#;
    let decoder = decoder("v1", "ConfigMap");
    assert!(decoder.decode::<ConfigMap>(json.as_bytes()).is_err());
    let compact = Arc::new(decoder.decode::<Compact>(json.as_bytes()).unwrap());
    assert!(
        compact
            .decode::<ConfigMap>()
            .unwrap_err()
            .to_string()
            .starts_with("cannot decode Secret b/a: ")
    );
    assert_eq!(
        compact
            .decode::<DynamicObject>()
            .unwrap()
            .types
            .as_ref()
            .unwrap()
            .kind,
        "Secret"
    );
}

#[test]
fn an_object_is_read_inside_of_a_larger_message() {
    struct Event<'a>(&'a Decoder);
    impl<'de> serde::de::Visitor<'de> for Event<'_> {
        type Value = Compact;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an event")
        }
        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Compact, A::Error> {
            assert_eq!(
                map.next_entry::<String, String>()?,
                Some(("type".into(), "ADDED".into()))
            );
            assert_eq!(map.next_key::<String>()?, Some("object".into()));
            map.next_value_seed(self.0.seed())
        }
    }
    impl<'de> DeserializeSeed<'de> for Event<'_> {
        type Value = Compact;
        fn deserialize<D: serde::Deserializer<'de>>(
            self,
            deserializer: D,
        ) -> Result<Compact, D::Error> {
            deserializer.deserialize_map(self)
        }
    }
    let line = r#"{"type":"ADDED","object":{"metadata":{"name":"a"},"spec":1}}"#;
    let decoder = decoder("shop/v1", "Order");
    let object = Event(&decoder)
        .deserialize(&mut serde_json::Deserializer::from_str(line))
        .unwrap();
    assert_eq!(
        (object.key(), object.body()),
        (ObjectKey::cluster_scoped("a"), r#"{"spec":1}"#.to_owned())
    );
}

#[test]
fn the_last_value_of_a_duplicate_label_counts() {
    let json = r#"{"metadata":{"name":"a","labels":{"z":"1","b":"2","z":"3","b":"4","b":"5"}}}"#;
    let compact: Compact = decoder("v1", "Pod").decode(json.as_bytes()).unwrap();
    assert_eq!(
        compact.meta().labels().iter().collect::<Vec<_>>(),
        [("b", "5"), ("z", "3")]
    );
    let typed: Pod = typed(&decoder("v1", "Pod"), json);
    assert_same_view(Payload::meta(&typed), compact.meta());
}

#[test]
fn an_object_without_a_name_is_rejected() {
    fn check<P: Payload + Debug>() {
        for json in [
            r"{}",
            r#"{"metadata":null}"#,
            r#"{"metadata":{"name":""}}"#,
            r#"{"metadata":{"name":null}}"#,
        ] {
            let error = decoder("v1", "Pod")
                .decode::<P>(json.as_bytes())
                .unwrap_err();
            assert!(
                error.to_string().contains("metadata.name is missing"),
                "{error}"
            );
        }
    }
    check::<Pod>();
    check::<Compact>();
    check::<MetadataOnly>();
}

#[test]
fn an_undecodable_object_has_its_key() {
    let wrong =
        r#"{"metadata":{"labels":{"a":1},"resourceVersion":"7","namespace":"shop","name":"web"}}"#;
    let cut =
        r#"{"metadata":{"namespace":"shop","name":"web","resourceVersion":"7"},"spec":{"cont"#;
    let decoder = decoder("v1", "Pod");
    for json in [wrong, cut] {
        let errors = [
            decoder.decode::<Pod>(json.as_bytes()).map(drop),
            decoder.decode::<Compact>(json.as_bytes()).map(drop),
        ];
        for error in errors.map(Result::unwrap_err) {
            assert_eq!(
                (&error.key, error.revision),
                (&Some(ObjectKey::new("shop", "web")), Some(7))
            );
            assert!(
                error
                    .to_string()
                    .starts_with("cannot decode Pod shop/web: "),
                "{error}"
            );
        }
    }
    let error: Undecodable = decoder.decode::<Pod>(br#"{"metadata":{"#).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot decode an object of kind Pod: "),
        "{error}"
    );
}

#[test]
fn an_undecodable_object_has_its_uid() {
    for (uid, expected) in [
        (r#""one""#, Some("one")),
        (r#""""#, None),
        ("null", None),
        ("5", None),
        (r#"{"a":1}"#, None),
    ] {
        let json = format!(
            r#"{{"metadata":{{"name":"web","uid":{uid},"resourceVersion":"7"}},"spec":5}}"#
        );
        let error = decoder("v1", "Pod")
            .decode::<Pod>(json.as_bytes())
            .unwrap_err();
        let object = error.object.expect("the object has a name");
        assert_eq!(
            (object.uid(), error.revision),
            (expected, Some(7)),
            "{json}"
        );
    }
}

#[test]
fn a_typed_object_is_handed_out_as_it_is() {
    let pod = Arc::new(Pod::default());
    let object = Object::from(pod.clone());
    assert!(Arc::ptr_eq(&object.clone().decode().unwrap(), &pod));
}

#[test]
fn a_typed_object_serves_its_type_and_metadata_and_nothing_else() {
    let mut deployment = Deployment::default();
    deployment.metadata.name = Some("web".into());
    deployment.metadata.generation = Some(3);
    let deployment = Arc::new(deployment);
    let metadata = deployment.decode::<Metadata<Deployment>>().unwrap();
    assert_eq!(
        (&metadata.metadata, &metadata.types),
        (
            Resource::meta(&*deployment),
            &Some(TypeMeta::resource::<Deployment>())
        )
    );
    let error = deployment.decode::<DynamicObject>().unwrap_err();
    assert!(
        error
            .to_string()
            .contains("cannot decode Deployment web: it is cached as another Rust type"),
        "{error}"
    );
    assert!(error.to_string().contains("`.compact()`"), "{error}");
}

#[test]
fn metadata_does_not_decode_as_a_whole_object() {
    let json = br#"{"metadata":{"name":"web"}}"#;
    let object = Arc::new(decoder("v1", "Pod").decode::<MetadataOnly>(json).unwrap());
    let error = object.decode::<Pod>().unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot decode Pod web: only its metadata is cached"),
        "{error}"
    );
    assert_eq!(error.key(), &object.key());
    assert_eq!(
        Metadata::<Pod>::static_gvk().kind,
        object
            .decode::<Metadata<Pod>>()
            .unwrap()
            .gvk()
            .unwrap()
            .kind
    );
}

#[test]
fn an_object_returns_the_stored_content() {
    let json = br#"{"metadata":{"name":"web","namespace":"shop","ownerReferences":[
        {"apiVersion":"v1","kind":"Node","name":"n","uid":"1"},
        {"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-1","uid":"2","controller":true}]},"spec":{}}"#;
    let compact = Arc::new(decoder("v1", "Pod").decode::<Compact>(json).unwrap());
    let object = Object::<Pod>::stored(compact.key(), compact.clone());
    assert_eq!((object.namespace(), object.name()), (Some("shop"), "web"));
    assert_eq!(object.meta().controller().unwrap().name, "web-1");
    assert_eq!(object.erase().meta().owners().count(), 2);
    let decoded = object.decode().unwrap();
    assert!(Arc::ptr_eq(&decoded, &compact.decode().unwrap()));
    assert!(!format!("{object:?}").contains("spec"));
}
