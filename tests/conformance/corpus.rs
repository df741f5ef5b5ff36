//! Runs the corpus of every fuzz target in `fuzz/` without libFuzzer.
//!
//! A new target needs a body, a corpus and a line in [`TARGETS`]. Add inputs that crashed a target
//! to its corpus.

use std::{collections::BTreeSet, fs, path::Path};
use steersman::fuzz as framework;
use steersman_apiserver::fuzz as server;

/// The body of a target.
type Body = fn(&[u8]);

/// The targets and their bodies, sorted by name.
const TARGETS: [(&str, Body); 9] = [
    ("admin_paths", framework::admin_paths),
    ("bodies", server::bodies),
    ("cel_rules", server::cel_rules),
    ("compact", framework::compact),
    ("patches", server::patches),
    ("quantities", server::quantities),
    ("requests", server::requests),
    ("selectors", selectors),
    ("watch_lines", framework::watch_lines),
];

fn selectors(data: &[u8]) {
    framework::selectors(data);
    server::selectors(data);
}

/// Returns the names of the entries in a directory of `fuzz/`.
fn names(directory: &str) -> BTreeSet<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz")
        .join(directory);
    let entries = fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", directory.display()));
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn run(target: &str) {
    let (_, body) = TARGETS
        .iter()
        .find(|(name, _)| *name == target)
        .expect("a target");
    let inputs = names(&format!("corpus/{target}"));
    assert!(!inputs.is_empty());
    for input in inputs {
        // Printed only if the test fails.
        println!("fuzz/corpus/{target}/{input}");
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("fuzz/corpus")
            .join(target)
            .join(input);
        body(&fs::read(path).unwrap());
    }
}

#[test]
fn every_fuzz_target_has_a_body_and_a_corpus() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let files: BTreeSet<String> = targets.iter().map(|name| format!("{name}.rs")).collect();
    assert_eq!(names("fuzz_targets"), files);
    assert_eq!(names("corpus"), targets);
}

#[test]
fn admin_paths_pass_their_corpus() {
    run("admin_paths");
}

#[test]
fn bodies_pass_their_corpus() {
    run("bodies");
}

#[test]
fn cel_rules_pass_their_corpus() {
    run("cel_rules");
}

#[test]
fn compact_passes_its_corpus() {
    run("compact");
}

#[test]
fn patches_pass_their_corpus() {
    run("patches");
}

#[test]
fn quantities_pass_their_corpus() {
    run("quantities");
}

#[test]
fn requests_pass_their_corpus() {
    run("requests");
}

#[test]
fn selectors_pass_their_corpus() {
    run("selectors");
}

#[test]
fn watch_lines_pass_their_corpus() {
    run("watch_lines");
}
