//! Generated sequences of operations, the same on both servers at once: answers and whole event streams must agree.
//!
//! A sequence is written as a case, in the language of `cases/`: what a failure prints, made as short as it gets, can be kept there.

use crate::{
    differences,
    normal::normalise,
    run::{self, Names},
    script::{self, Case},
    servers,
};
use kube::Client;
use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, RngSeed, TestCaseError, TestError, TestRunner},
};
use std::{cell::Cell, fmt::Write};
use steersman_apiserver::ApiServer;

/// As many operations as every run makes; `cargo xtask conformance` asks for more.
const OPERATIONS: usize = 400;
/// Where generation begins, so that two runs of the same code are the same. `STEERSMAN_CONFORMANCE_SEED` is another one.
const SEED: u64 = 20_261_116;

#[derive(Clone, Copy, Debug)]
enum Kind {
    ConfigMap,
    Widget,
}

/// An object that may or may not be there.
#[derive(Clone, Copy, Debug)]
struct Place {
    kind: Kind,
    namespace: &'static str,
    name: &'static str,
}

impl Place {
    fn collection(self) -> String {
        match self.kind {
            Kind::ConfigMap => format!("/api/v1/namespaces/{}/configmaps", self.namespace),
            Kind::Widget => format!("/apis/conformance.example.com/v1/namespaces/{}/widgets", self.namespace),
        }
    }

    fn path(self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    /// An object with that content; `metadata` goes after the name.
    fn object(self, content: u8, metadata: &str) -> String {
        let name = self.name;
        let label = ["x", "y", "z"][usize::from(content) % 3];
        let metadata = format!(r#""metadata": {{"name": "{name}", "labels": {{"l": "{label}"}}{metadata}}}"#);
        match self.kind {
            Kind::ConfigMap => format!(r#"{{{metadata}, "data": {{"k": "{content}"}}}}"#),
            Kind::Widget => format!(
                r#"{{"apiVersion": "conformance.example.com/v1", "kind": "Widget", {metadata}, "spec": {}}}"#,
                spec(content)
            ),
        }
    }
}

/// Some of them are refused.
fn spec(content: u8) -> &'static str {
    match content % 6 {
        0 => r#"{"color": "red"}"#,
        1 => r#"{"color": "green", "replicas": 3}"#,
        2 => r#"{"color": "blue", "tags": ["a", "b"], "unknown": 1}"#,
        3 => r#"{"color": "red", "note": null, "ports": [{"name": "http", "port": 80}]}"#,
        4 => r#"{"color": "pink"}"#,
        _ => r#"{"color": "red", "size": "50%", "free": {"any": [1, {"thing": true}]}}"#,
    }
}

/// Which version a write says it knows.
#[derive(Clone, Copy, Debug)]
enum Version {
    /// The one a read just before it gave.
    Current,
    /// That of an earlier answer.
    Earlier(usize),
    Unsaid,
}

#[derive(Clone, Debug)]
enum Operation {
    Create(Place, u8),
    CreateFinalized(Place, u8),
    Put(Place, Version, u8),
    PutStatus(Place, Version, u8),
    Merge(Place, &'static str),
    MergeStatus(Place, &'static str),
    Json(Place, &'static str),
    Get(Place),
    List(Place, &'static str),
    Delete(Place, &'static str),
    DeleteAll(Place, &'static str),
    WatchFrom(Place, usize, &'static str),
}

const MERGES: &[&str] = &[
    r#"{"metadata": {"labels": {"l": "x"}}}"#,
    r#"{"metadata": {"labels": {"l": null, "m": "1"}}}"#,
    r#"{"metadata": {"annotations": {"a": "1"}}}"#,
    r#"{"metadata": {"finalizers": ["example.com/a"]}}"#,
    r#"{"metadata": {"finalizers": ["example.com/a", "example.com/b"]}}"#,
    r#"{"metadata": {"finalizers": null}}"#,
    r#"{"metadata": {"resourceVersion": "1"}}"#,
    r#"{"metadata": {"generation": 7, "creationTimestamp": null}}"#,
    r#"{"data": {"k": "merged", "more": "1"}, "spec": {"color": "blue"}}"#,
    r#"{"data": {"k": null}, "spec": {"replicas": 11}}"#,
    r#"{"spec": {"replicas": null, "tags": ["a", "a"]}, "binaryData": {"b": "AAAA"}}"#,
    r#"{"spec": {"free": {"deep": {"er": null}}, "size": 3}, "immutable": false}"#,
    r"{}",
];

const STATUSES: &[&str] = &[
    r#"{"status": {"phase": "Ready"}}"#,
    r#"{"status": {"phase": "Ready", "replicas": 2}, "spec": {"color": "green"}, "metadata": {"labels": {"s": "1"}}}"#,
    r#"{"status": null}"#,
    r#"{"status": {"phase": 3}}"#,
];

const JSON_PATCHES: &[&str] = &[
    r#"[{"op": "add", "path": "/metadata/labels", "value": {"l": "y"}}]"#,
    r#"[{"op": "test", "path": "/metadata/labels/l", "value": "x"}, {"op": "remove", "path": "/metadata/labels/l"}]"#,
    r#"[{"op": "replace", "path": "/spec/color", "value": "green"}]"#,
    r#"[{"op": "add", "path": "/data/j", "value": "1"}]"#,
    r#"[{"op": "remove", "path": "/metadata/finalizers"}]"#,
    r#"[{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/j"]}]"#,
    r#"[{"op": "copy", "from": "/metadata/name", "path": "/metadata/labels/copied"}]"#,
    r"[]",
];

const SELECTIONS: &[&str] = &[
    "",
    "?labelSelector=l%3Dx",
    "?labelSelector=l%21%3Dx",
    "?labelSelector=%21l",
    "?fieldSelector=metadata.name%3Da",
    "?labelSelector=l+in+(x,y)",
];

const DELETIONS: &[&str] = &[
    "",
    r#"{"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}"#,
    r#"{"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"resourceVersion": "1"}}"#,
    r#"{"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}"#,
    r#"{"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}"#,
];

fn place() -> impl Strategy<Value = Place> {
    let kind = prop_oneof![Just(Kind::ConfigMap), Just(Kind::Widget)];
    let namespace = prop_oneof![Just("{ns}"), Just("{ns2}")];
    let name = prop_oneof![Just("a"), Just("b"), Just("c")];
    (kind, namespace, name).prop_map(|(kind, namespace, name)| Place { kind, namespace, name })
}

fn operation() -> impl Strategy<Value = Operation> {
    let version = || prop_oneof![3 => Just(Version::Current), 1 => (0usize..64).prop_map(Version::Earlier), 1 => Just(Version::Unsaid)];
    let one_of = |texts: &'static [&'static str]| proptest::sample::select(texts);
    prop_oneof![
        6 => (place(), any::<u8>()).prop_map(|(place, content)| Operation::Create(place, content)),
        2 => (place(), any::<u8>()).prop_map(|(place, content)| Operation::CreateFinalized(place, content)),
        4 => (place(), version(), any::<u8>()).prop_map(|(place, version, content)| Operation::Put(place, version, content)),
        2 => (place(), version(), any::<u8>()).prop_map(|(place, version, content)| Operation::PutStatus(place, version, content)),
        5 => (place(), one_of(MERGES)).prop_map(|(place, patch)| Operation::Merge(place, patch)),
        2 => (place(), one_of(STATUSES)).prop_map(|(place, patch)| Operation::MergeStatus(place, patch)),
        3 => (place(), one_of(JSON_PATCHES)).prop_map(|(place, patch)| Operation::Json(place, patch)),
        1 => place().prop_map(Operation::Get),
        2 => (place(), one_of(SELECTIONS)).prop_map(|(place, selection)| Operation::List(place, selection)),
        3 => (place(), one_of(DELETIONS)).prop_map(|(place, options)| Operation::Delete(place, options)),
        1 => (place(), one_of(SELECTIONS)).prop_map(|(place, selection)| Operation::DeleteAll(place, selection)),
        1 => (place(), 0usize..64, one_of(SELECTIONS)).prop_map(|(place, from, selection)| Operation::WatchFrom(place, from, selection)),
    ]
}

/// Operations as the text of a case. At its end every event of every collection is read, up to an object that is made last.
fn script(operations: &[Operation]) -> String {
    let collections: Vec<_> = ["{ns}", "{ns2}"]
        .into_iter()
        .flat_map(|namespace| [Kind::ConfigMap, Kind::Widget].map(|kind| Place { kind, namespace, name: "last" }))
        .collect();
    let mut text = String::from("=== generated\n\n");
    for (number, place) in collections.iter().enumerate() {
        let _ = writeln!(text, "GET {}\n-> list{number}\n", place.collection());
    }
    // Answers that hold an object, if all went well.
    let mut objects: Vec<String> = Vec::new();
    let mut watches = Vec::new();
    for (number, operation) in operations.iter().enumerate() {
        let kept = format!("o{number}");
        let mut step = |line: String, body: &str, keep: bool| {
            let _ = writeln!(text, "{line}");
            if !body.is_empty() {
                let _ = writeln!(text, "{body}");
            }
            let _ = writeln!(text, "-> {kept}\n");
            if keep {
                objects.push(kept.clone());
            }
        };
        match operation {
            Operation::Create(place, content) => {
                step(format!("POST {}", place.collection()), &place.object(*content, ""), true);
            }
            Operation::CreateFinalized(place, content) => {
                let object = place.object(*content, r#", "finalizers": ["example.com/a"]"#);
                step(format!("POST {}", place.collection()), &object, true);
            }
            Operation::Put(place, version, content) | Operation::PutStatus(place, version, content) => {
                let metadata = match version {
                    Version::Unsaid => String::new(),
                    Version::Current => {
                        step(format!("GET {}", place.path()), "", false);
                        format!(r#", "resourceVersion": "{{{kept}.metadata.resourceVersion}}""#)
                    }
                    Version::Earlier(_) if objects.is_empty() => r#", "resourceVersion": "1""#.into(),
                    Version::Earlier(back) => {
                        let earlier = &objects[objects.len() - 1 - back % objects.len()];
                        format!(r#", "resourceVersion": "{{{earlier}.metadata.resourceVersion}}""#)
                    }
                };
                let of_status = matches!(operation, Operation::PutStatus(..));
                let object = place.object(*content, &metadata);
                let object =
                    if of_status { object.replacen('{', r#"{"status": {"phase": "Put"}, "#, 1) } else { object };
                let path = place.path() + if of_status { "/status" } else { "" };
                let mut step = |line: String, body: &str| {
                    let _ = writeln!(text, "{line}\n{body}\n-> p{number}\n");
                };
                step(format!("PUT {path}"), &object);
                objects.push(format!("p{number}"));
            }
            Operation::Merge(place, patch) => step(format!("MERGE {}", place.path()), patch, true),
            Operation::MergeStatus(place, patch) => step(format!("MERGE {}/status", place.path()), patch, true),
            Operation::Json(place, patch) => step(format!("JSON {}", place.path()), patch, true),
            Operation::Get(place) => step(format!("GET {}", place.path()), "", true),
            Operation::List(place, selection) => step(format!("GET {}{selection}", place.collection()), "", false),
            Operation::Delete(place, options) => step(format!("DELETE {}", place.path()), options, false),
            Operation::DeleteAll(place, selection) => {
                step(format!("DELETE {}{selection}", place.collection()), "", false);
            }
            Operation::WatchFrom(place, back, selection) if !objects.is_empty() => {
                let from = &objects[objects.len() - 1 - back % objects.len()];
                let joint = if selection.is_empty() { '?' } else { '&' };
                watches.push((
                    place.collection(),
                    format!("{selection}{joint}"),
                    format!("{from}.metadata.resourceVersion"),
                ));
            }
            Operation::WatchFrom(..) => {}
        }
    }
    for (number, place) in collections.iter().enumerate() {
        // Seen by every selection but that of the name.
        let last = place.object(0, "");
        let _ = writeln!(text, "POST {}\n{last}\n", place.collection());
        watches.push((place.collection(), "?".into(), format!("list{number}.metadata.resourceVersion")));
    }
    for (number, (collection, query, from)) in watches.iter().enumerate() {
        let end = if query.contains("labelSelector=l%3Dx") || query == "?" || query.contains("in+") {
            "to last"
        } else {
            "end"
        };
        let timeout = if end == "end" { "&timeoutSeconds=1" } else { "" };
        let _ = writeln!(
            text,
            "WATCH w{number} {collection}{query}resourceVersion={{{from}}}{timeout}\n\nEVENTS w{number} {end}\n"
        );
    }
    text
}

fn number(variable: &str, otherwise: u64) -> u64 {
    let said = std::env::var(variable).ok();
    said.map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not `{text}`")))
}

#[test]
fn generated_operations_are_answered_alike_by_both_servers() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let Some(real) = runtime.block_on(servers::real()) else { return };
    let embedded = runtime.block_on(servers::embedded());

    let operations = number("STEERSMAN_CONFORMANCE_OPERATIONS", OPERATIONS as u64) as usize;
    let seed = number("STEERSMAN_CONFORMANCE_SEED", SEED);
    let made = Cell::new(0);
    let config = Config {
        cases: u32::MAX,
        max_shrink_iters: 150,
        failure_persistence: None,
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(seed),
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let sequences = proptest::collection::vec(operation(), 1..40);
    while made.get() < operations {
        let tree = sequences.new_tree(&mut runner).expect("a sequence");
        let outcome = runner.run_one(tree, |operations| {
            made.set(made.get() + operations.len());
            let text = script(&operations);
            let case = script::parse(&text).expect("a well-formed script").remove(0);
            runtime
                .block_on(agree(&real, &embedded, &case))
                .map_err(|differences| TestCaseError::fail(format!("{differences}\n\n{text}")))
        });
        if let Err(TestError::Fail(reason, _)) = outcome {
            panic!("seed {seed}: the servers differ, expected is the real one\n{reason}");
        }
    }
    println!("{} generated operations, all answered alike (seed {seed})", made.get());
}

async fn agree(real: &Client, embedded: &ApiServer, case: &Case) -> Result<(), String> {
    let embedded = servers::client_of(&embedded.fork());
    let on = async |client| {
        let names = Names::new(&servers::word());
        run::namespaces(client, &names).await;
        normalise(run::run(client, case, &names).await, &names)
    };
    let (expected, got) = tokio::join!(on(real), on(&embedded));
    let differences = differences::between(&expected, &got);
    if differences.is_empty() {
        return Ok(());
    }
    let lines: Vec<_> = differences.iter().map(|difference| format!("    {difference}")).collect();
    Err(lines.join("\n"))
}
