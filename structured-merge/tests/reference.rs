//! Comparison with recordings of the Go packages.
//!
//! `tests/fixtures` holds random inputs and the results of `sigs.k8s.io/structured-merge-diff` and
//! `k8s.io/apimachinery/pkg/util/managedfields`, one JSON object per line. `tests/recorder` records
//! them, and pins the versions.

mod fixtures {
    use flate2::read::GzDecoder;
    use serde_json::Value;
    use std::{
        fs::File,
        io::{BufRead, BufReader},
        path::Path,
    };

    /// Returns the cases of a file.
    pub(crate) fn read(name: &str) -> Vec<Value> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures")
            .join(name);
        let file = File::open(path).expect("the fixture exists");
        BufReader::new(GzDecoder::new(file))
            .lines()
            .map(|line| serde_json::from_str(&line.expect("the fixture is gzip")).expect("JSON"))
            .collect()
    }

    /// Returns a string field of a case. Empty if it is absent.
    pub(crate) fn text<'c>(case: &'c Value, name: &str) -> &'c str {
        case.get(name).and_then(Value::as_str).unwrap_or("")
    }
}

#[path = "reference/built_in_kinds.rs"]
mod built_in_kinds;
#[path = "reference/managers.rs"]
mod managers;
#[path = "reference/scale.rs"]
mod scale;
#[path = "reference/typed_values.rs"]
mod typed_values;
#[path = "reference/wire_format.rs"]
mod wire_format;
