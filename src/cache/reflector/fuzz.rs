//! Body of the fuzz target `watch_lines`.

use super::{
    lines::LineSplitter,
    wire::{self, Line},
};
use crate::object::{Compact, Decoder, MetadataOnly, Payload};
use bytes::Bytes;
use kube_core::TypeMeta;
use serde_json::value::RawValue;

/// Reads the body of a watch. The first byte is the length of its frames.
///
/// Invariants: the lines do not depend on the frames. A line that the fast path accepts is the same
/// event for the slow path. Decoding does not panic.
pub fn watch_lines(data: &[u8]) {
    let Some((length, body)) = data.split_first() else {
        return;
    };
    let lines = split([body]);
    assert_eq!(lines, split(body.chunks(usize::from(*length).max(1))));
    let decoder = Decoder::new(TypeMeta {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
    });
    for line in &lines {
        let parsed = wire::parse_line(line);
        if let Some(object) = wire::parse_put(line)
            && decodes::<Compact>(&decoder, object)
        {
            let same = |raw: &RawValue| raw.get().as_bytes() == object.trim_ascii();
            assert!(
                matches!(&parsed, Ok(Line::Put(raw)) if same(raw)),
                "{parsed:?}"
            );
        }
        match parsed {
            Ok(Line::Put(object) | Line::Deleted(object)) => {
                decodes::<Compact>(&decoder, object.get().as_bytes());
                decodes::<MetadataOnly>(&decoder, object.get().as_bytes());
            }
            Ok(Line::Error(rejection)) => {
                rejection.needs_relist();
                rejection.retry_after();
            }
            Ok(Line::Bookmark { .. }) | Err(_) => {}
        }
    }
}

fn split<'a>(frames: impl IntoIterator<Item = &'a [u8]>) -> Vec<Bytes> {
    let mut lines = LineSplitter::default();
    let mut found = Vec::new();
    for frame in frames {
        lines.push(frame);
        while let Some(line) = lines
            .next()
            .expect("inputs are shorter than the longest line")
        {
            found.push(line);
        }
    }
    found
}

/// Returns whether the object decodes.
///
/// Panics: if the decoder caught a panic, which it returns as an error.
fn decodes<P: Payload>(decoder: &Decoder, object: &[u8]) -> bool {
    let decoded = decoder.decode::<P>(object);
    if let Err(error) = &decoded {
        assert!(!error.error.to_string().contains("panicked"), "{error:?}");
    }
    decoded.is_ok()
}
