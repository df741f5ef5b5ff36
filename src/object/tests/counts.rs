//! Tests of how often objects are decoded, and of their memory.

use super::decoder;
use crate::object::{
    Compact, DecodeError, Decoder, Metadata, MetadataOnly, Object, ObjectKey, Payload,
};
use k8s_openapi::{NamespaceResourceScope, api::core::v1::ConfigMap};
use kube_core::{DynamicObject, ObjectMeta, Resource};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{Arc, Barrier},
    thread,
};

/// Number of decodes by name.
static DECODES: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

fn decodes(name: &str) -> usize {
    DECODES.lock().get(name).copied().unwrap_or_default()
}

/// Type that counts how often it is decoded.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Plain")]
struct Counted {
    metadata: ObjectMeta,
}

#[derive(Deserialize)]
struct Plain {
    metadata: ObjectMeta,
}

impl From<Plain> for Counted {
    fn from(Plain { metadata }: Plain) -> Self {
        *DECODES
            .lock()
            .entry(metadata.name.clone().unwrap_or_default())
            .or_default() += 1;
        // Lets other threads call it concurrently.
        (0..100).for_each(|_| thread::yield_now());
        Self { metadata }
    }
}

impl Resource for Counted {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;
    fn kind((): &()) -> Cow<'_, str> {
        "Counted".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "test".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "counteds".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

fn compact(decoder: &Decoder, name: &str) -> Arc<Compact> {
    Arc::new(
        decoder
            .decode(format!(r#"{{"metadata":{{"name":"{name}"}}}}"#).as_bytes())
            .unwrap(),
    )
}

#[test]
fn an_object_is_decoded_once_while_the_result_is_in_use() {
    let object = compact(&decoder("test/v1", "Counted"), "held");
    let handle = Object::<Counted>::stored(object.key(), object.clone());
    assert_eq!(handle.meta().labels().len(), 0);
    assert_eq!(decodes("held"), 0, "metadata alone decodes nothing");
    let first = handle.decode().unwrap();
    assert!(Arc::ptr_eq(&first, &handle.clone().decode().unwrap()));
    assert_eq!(decodes("held"), 1);
    drop(first);
    handle.decode().unwrap();
    assert_eq!(decodes("held"), 2);
}

#[test]
fn a_decoded_value_of_another_type_does_not_evict_the_first() {
    let object = compact(&decoder("test/v1", "Counted"), "two");
    let first: Arc<Counted> = object.decode().unwrap();
    let dynamic: Arc<DynamicObject> = object.decode().unwrap();
    let metadata: Arc<Metadata> = object.decode().unwrap();
    assert!(Arc::ptr_eq(&first, &object.decode().unwrap()));
    assert!(Arc::ptr_eq(&dynamic, &object.decode().unwrap()));
    assert!(Arc::ptr_eq(&metadata, &object.decode().unwrap()));
    assert_eq!(decodes("two"), 1);
}

#[test]
fn concurrent_decodes_share_the_result() {
    const THREADS: usize = 8;
    let object = compact(&decoder("test/v1", "Counted"), "race");
    let start = Barrier::new(THREADS);
    let all: Vec<Arc<Counted>> = thread::scope(|scope| {
        let decode = || {
            start.wait();
            object.decode().unwrap()
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(decode)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(all.iter().all(|object| Arc::ptr_eq(object, &all[0])));
    assert_eq!(decodes("race"), 1);
}

#[test]
fn dropped_results_are_swept() {
    let decoder = decoder("v1", "Pod");
    let objects: Vec<_> = (0..5_000)
        .map(|number| compact(&decoder, &format!("pod-{number}")))
        .collect();
    let held: Arc<DynamicObject> = objects[7].decode().unwrap();
    for object in &objects {
        object.decode::<DynamicObject>().unwrap();
    }
    assert!(
        decoder.common().registry.len() <= 512,
        "{} remembered",
        decoder.common().registry.len()
    );
    decoder.sweep();
    assert_eq!(decoder.common().registry.len(), 1);
    assert!(
        Arc::ptr_eq(&held, &objects[7].decode().unwrap()),
        "a sweep keeps the metadata that an object holds"
    );
    drop(held);
    decoder.sweep();
    assert_eq!(decoder.common().registry.len(), 0);
}

#[test]
fn every_representation_reports_its_size() {
    fn size<P: Payload>(json: &str) -> usize {
        decoder("v1", "ConfigMap")
            .decode::<P>(json.as_bytes())
            .unwrap()
            .heap_bytes()
    }
    let json = |label: &str, data: &str| {
        format!(
            r#"{{"metadata":{{"name":"a","labels":{{"l":"{label}"}}}},"data":{{"d":"{data}"}}}}"#
        )
    };
    let (label, data) = ("x".repeat(1_000), "x".repeat(100_000));
    let [empty, full] = [json("", ""), json(&label, &data)];
    assert_eq!(
        size::<ConfigMap>(&full) - size::<ConfigMap>(&empty),
        101_000
    );
    // The length of a long string takes three digits.
    assert_eq!(size::<Compact>(&full) - size::<Compact>(&empty), 101_003);
    assert_eq!(
        size::<MetadataOnly>(&full) - size::<MetadataOnly>(&empty),
        1_000
    );
    assert!(size::<MetadataOnly>(&empty) < size::<Compact>(&empty));
    assert!(size::<Compact>(&empty) < size::<ConfigMap>(&empty));
}

/// Kind whose own code panics for some sizes.
#[derive(kube::CustomResource, Clone, Debug, serde::Deserialize, serde::Serialize)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Fragile",
    namespaced,
    schema = "disabled"
)]
struct FragileSpec {
    #[serde(deserialize_with = "small")]
    size: u32,
}

fn small<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let size = serde::Deserialize::deserialize(deserializer)?;
    assert!(size < 10, "too large");
    Ok(size)
}

#[test]
fn a_panic_in_a_types_decoder_is_a_decode_error() {
    let decoder = Decoder::new(kube_core::TypeMeta::resource::<Fragile>());
    let text = |size: u32| {
        serde_json::json!({"metadata": {"name": "f", "namespace": "n", "resourceVersion": "7"}, "spec": {"size": size}})
            .to_string()
    };
    assert_eq!(
        decoder
            .decode::<Fragile>(text(3).as_bytes())
            .expect("a small one")
            .spec
            .size,
        3
    );
    let what = decoder
        .decode::<Fragile>(text(30).as_bytes())
        .expect_err("a large one");
    assert_eq!(
        (what.key.clone(), what.revision),
        (Some(ObjectKey::new("n", "f")), Some(7))
    );
    assert!(what.to_string().contains("panicked"), "{what}");

    let compact = |size| {
        Arc::new(
            decoder
                .decode::<Compact>(text(size).as_bytes())
                .expect("any size"),
        )
    };
    assert_eq!(
        compact(3)
            .decode::<Fragile>()
            .expect("a small one")
            .spec
            .size,
        3
    );
    let large = compact(30);
    for _ in 0..2 {
        let error = large.decode::<Fragile>().expect_err("a large one");
        assert!(
            matches!(&error, DecodeError::Mismatch { key, .. } if key.name() == "f"),
            "{error}"
        );
        assert!(error.to_string().contains("panicked"), "{error}");
    }
}
