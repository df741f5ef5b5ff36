//! The pods of the cache benches: 3.8 KB of JSON, 6.2 KB with managed fields.
//!
//! The programs in Rust and Go generate the same bytes from the same two files: they remove line
//! breaks and indentation, then replace each `@NAME@`. Each prints a hash of its first pods with
//! `--objects`, and `cargo xtask bench` compares the hashes.

use std::fmt::Write;

const POD: &str = include_str!("../peers/cache/pod.json");
const MANAGED_FIELDS: &str = include_str!("../peers/cache/managed-fields.json");

// Of 100,000 pods, each namespace and each node has 1,000, each set 100, and each app 10,000.
pub(crate) const NAMESPACES: usize = 100;
const NODES: usize = 100;
const SETS: usize = 1_000;
const APPS: usize = 10;

/// First revision of an object. All revisions have the same number of digits.
pub(crate) const FIRST_REVISION: u64 = 10_000_000;

pub(crate) struct Pods {
    /// Literal text at even indexes, names of placeholders at odd ones.
    parts: Vec<String>,
    managed_fields: String,
}

impl Pods {
    pub(crate) fn new() -> Self {
        Self {
            parts: minify(POD).split('@').map(Into::into).collect(),
            managed_fields: String::new(),
        }
    }

    pub(crate) fn with_managed_fields() -> Self {
        Self {
            managed_fields: format!(r#","managedFields":{}"#, minify(MANAGED_FIELDS)),
            ..Self::new()
        }
    }

    pub(crate) fn json(&self, number: usize, revision: u64) -> String {
        let mut text = String::with_capacity(8_192);
        for (at, part) in self.parts.iter().enumerate() {
            let written = match part.as_str() {
                between if at % 2 == 0 => text.write_str(between),
                "NUMBER" => write!(text, "{number:08}"),
                "NAMESPACE" => write!(text, "{:03}", number % NAMESPACES),
                "NODE" => write!(text, "{:03}", number / 100 % NODES),
                "SET" => write!(text, "{:04}", number % SETS),
                "APP" => write!(text, "{}", number % APPS),
                "REVISION" => write!(text, "{revision}"),
                "MANAGED" => text.write_str(&self.managed_fields),
                other => panic!("pod.json has an unknown @{other}@"),
            };
            written.expect("writing to a string does not fail");
        }
        text
    }
}

/// Returns namespace and name of a pod.
pub(crate) fn key(number: usize) -> (String, String) {
    (
        format!("namespace-{:03}", number % NAMESPACES),
        format!("object-{number:08}"),
    )
}

/// Iterates over the numbers below `count` in a scattered order, again and again. `count` must be a
/// power of ten.
pub(crate) fn shuffled(count: usize) -> impl Iterator<Item = usize> + Clone {
    (0..).map(move |number: usize| number * 7_919 % count)
}

/// Returns the FNV-1a hash of the first thousand pods, without and with managed fields.
pub(crate) fn hash() -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for pods in [Pods::new(), Pods::with_managed_fields()] {
        for number in 0..1_000 {
            for byte in pods.json(number, FIRST_REVISION + number as u64).bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    format!("{hash:016x}")
}

fn minify(file: &str) -> String {
    file.lines()
        .map(|line| line.trim_start_matches(' '))
        .collect()
}
