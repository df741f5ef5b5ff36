//! Bodies of the fuzz targets `compact` and `selectors`.

use super::{
    Compact, Decoder, Payload, Selector,
    packed::{Names, Packed},
};
use kube_core::TypeMeta;
use serde::{
    Deserialize,
    de::{DeserializeSeed, IgnoredAny},
};
use serde_json::Value;

/// Packs JSON, and reads any text as packed JSON.
///
/// Invariants: packed JSON reads as the same value, and JSON that `serde_json` rejects is not
/// packed. An object is decoded with its values unchanged. Reading text that is not packed JSON
/// does not panic.
pub fn compact(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    let names = Names::default();
    // Ignore the result: any text may be valid.
    drop(Value::deserialize(&mut Packed::new(text, &names.known())));

    let expected = serde_json::from_str::<Value>(text).ok();
    assert_eq!(repacked(text), expected, "{text:?}");

    let decoder = Decoder::new(TypeMeta {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
    });
    match decoder.decode::<Compact>(data) {
        Ok(object) => {
            serde_json::from_str::<IgnoredAny>(text).expect("an object is JSON");
            // Numbers that do not fit are accepted in metadata that is not read.
            let Some(expected) = expected else { return };
            let decoded = object.to_json().expect("packed values can be read");
            for (field, value) in expected.as_object().expect("an object") {
                // The type is that of the informer, and metadata is normalized.
                if !matches!(&**field, "apiVersion" | "kind" | "metadata") {
                    assert_eq!(&decoded[field], value, "{field} of {text:?}");
                }
            }
            let _ = object.meta().to_object_meta();
        }
        Err(error) => assert!(!error.error.to_string().contains("panicked"), "{error:?}"),
    }
}

/// Returns the JSON after packing and reading it, or `None` if it cannot be packed.
fn repacked(json: &str) -> Option<Value> {
    #[derive(Deserialize)]
    struct Fields {
        value: Value,
    }

    let names = Names::default();
    let mut packer = names.packer();
    let mut deserializer = serde_json::Deserializer::from_str(json);
    packer.field("value").deserialize(&mut deserializer).ok()?;
    deserializer.end().ok()?;
    let packed = packer.finish();
    let known = names.known();
    let mut reader = Packed::new(&packed, &known);
    let Fields { value } = Fields::deserialize(&mut reader).expect("packed values can be read");
    reader.end().expect("all of it is read");
    Some(value)
}

/// Parses a label selector. Its text is parsed as the same selector.
pub fn selectors(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    let Ok(selector) = Selector::parse(text) else {
        return;
    };
    let shown = selector.to_string();
    assert_eq!(
        Selector::parse(&shown).expect("its own text is valid"),
        selector,
        "{text:?} and {shown:?}"
    );
}
