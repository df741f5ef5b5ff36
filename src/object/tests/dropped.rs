//! Tests of deleted objects whose body was dropped.

use super::{decoder, random::config_map_json};
use crate::object::{Compact, DecodeError, Decoder, Metadata, MetadataOnly, Object, Payload};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::DynamicObject;
use proptest::prelude::*;
use std::sync::Arc;

fn dropped<P: Payload>(decoder: &Decoder, json: &str) -> Object<ConfigMap> {
    let object = Arc::new(decoder.decode::<P>(json.as_bytes()).expect("a config map"));
    let key = object.key();
    let metadata = object.to_metadata(decoder.types(), &key);
    Object::dropped(key, metadata)
}

steersman_testkit::properties! {
    #[test]
    fn the_metadata_of_a_dropped_object_is_complete_in_every_representation(json in config_map_json(), managed in any::<bool>()) {
        let decoder = decoder("v1", "ConfigMap").managed_fields(managed);
        let mut expected: ConfigMap = serde_json::from_str(&json).expect("a config map");
        expected.metadata.managed_fields = None;
        for object in [dropped::<ConfigMap>(&decoder, &json), dropped::<Compact>(&decoder, &json)] {
            prop_assert_eq!(object.meta().to_object_meta(), expected.metadata.clone());
            prop_assert_eq!(object.gvk().expect("a kind").kind, "ConfigMap");
            let read = object.erase().assume::<Metadata<ConfigMap>>().decode().expect("metadata is there");
            prop_assert_eq!(&read.metadata, &expected.metadata);
            prop_assert!(object.failed_decode().is_none());
        }
    }
}

#[test]
fn decoding_a_dropped_object_fails_with_an_error_that_names_it() {
    let json = r#"{"metadata": {"namespace": "shop", "name": "colors"}, "data": {"door": "blue"}}"#;
    let decoder = decoder("v1", "ConfigMap");
    for object in [
        dropped::<ConfigMap>(&decoder, json),
        dropped::<Compact>(&decoder, json),
    ] {
        assert!(object.failed_decode().is_none());
        let error = object.clone().decode().expect_err("the object has no body");
        assert!(
            matches!(&error, DecodeError::BodyDropped { kind, .. } if kind == "ConfigMap"),
            "{error:?}"
        );
        assert_eq!(error.key(), object.key());
        assert!(
            error
                .to_string()
                .starts_with("cannot decode ConfigMap shop/colors: "),
            "{error}"
        );
        assert!(object.failed_decode().is_some(), "a clone failed");
        let dynamic = object.erase().assume::<DynamicObject>().decode();
        assert!(matches!(dynamic, Err(DecodeError::BodyDropped { .. })));
    }
}

#[test]
fn metadata_is_not_copied() {
    let decoder = decoder("v1", "ConfigMap");
    let object = decoder
        .decode::<MetadataOnly>(br#"{"metadata": {"name": "colors"}}"#)
        .expect("metadata");
    let object = Arc::new(object);
    assert!(Arc::ptr_eq(
        &object,
        &object.to_metadata(decoder.types(), &object.key())
    ));
}
