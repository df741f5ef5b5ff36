//! Generated sequences of operations on both servers at once. Responses and event streams must
//! agree.
//!
//! A sequence is generated as text in the language of `cases/`. A failure prints the shrunk
//! sequence, which can be added there as a case.

use crate::{
    differences,
    normalize::normalize,
    runner::{self, Names},
    script::{self, Case},
    servers,
};
use kube::Client;
use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, RngSeed, TestCaseError, TestError, TestRunner},
};
use std::{cell::Cell, fmt::Write};
use steersman_apiserver::Fault;
use steersman_testkit::{Seeds, this_test};
use tokio::runtime;

/// Default number of operations. `cargo xtask conformance` sets more.
const OPERATIONS: usize = 400;

#[derive(Clone, Copy, Debug)]
enum Kind {
    ConfigMap,
    Widget,
}

/// Kind, namespace and name of an object that may or may not exist.
#[derive(Clone, Copy, Debug)]
struct Target {
    kind: Kind,
    namespace: &'static str,
    name: &'static str,
}

impl Target {
    fn collection(self) -> String {
        match self.kind {
            Kind::ConfigMap => format!("/api/v1/namespaces/{}/configmaps", self.namespace),
            Kind::Widget => format!(
                "/apis/conformance.example.com/v1/namespaces/{}/widgets",
                self.namespace
            ),
        }
    }

    fn path(self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    /// Returns an object with the given content. `metadata` is inserted after the labels.
    fn object(self, content: u8, metadata: &str) -> String {
        let name = self.name;
        let label = ["x", "y", "z"][usize::from(content) % 3];
        let metadata =
            format!(r#""metadata": {{"name": "{name}", "labels": {{"l": "{label}"}}{metadata}}}"#);
        match self.kind {
            Kind::ConfigMap => format!(r#"{{{metadata}, "data": {{"k": "{content}"}}}}"#),
            Kind::Widget => format!(
                r#"{{"apiVersion": "conformance.example.com/v1", "kind": "Widget", {metadata}, "spec": {}}}"#,
                spec(content)
            ),
        }
    }
}

/// Returns the spec of a widget. Some are invalid.
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

/// Resource version that a write sends.
#[derive(Clone, Copy, Debug)]
enum Version {
    /// Version of a GET right before the write.
    Current,
    /// Version of an earlier response.
    Earlier(usize),
    None,
}

#[derive(Clone, Debug)]
enum Operation {
    Create(Target, u8),
    CreateFinalized(Target, u8),
    Put(Target, Version, u8),
    PutStatus(Target, Version, u8),
    Merge(Target, &'static str),
    MergeStatus(Target, &'static str),
    Json(Target, &'static str),
    Get(Target),
    List(Target, &'static str),
    Delete(Target, &'static str),
    DeleteAll(Target, &'static str),
    WatchFrom(Target, usize, &'static str),
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

const SELECTORS: &[&str] = &[
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

fn target() -> impl Strategy<Value = Target> {
    let kind = prop_oneof![Just(Kind::ConfigMap), Just(Kind::Widget)];
    let namespace = prop_oneof![Just("{ns}"), Just("{ns2}")];
    let name = prop_oneof![Just("a"), Just("b"), Just("c")];
    (kind, namespace, name).prop_map(|(kind, namespace, name)| Target {
        kind,
        namespace,
        name,
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    let version = || prop_oneof![3 => Just(Version::Current), 1 => (0usize..64).prop_map(Version::Earlier), 1 => Just(Version::None)];
    let one_of = |texts: &'static [&'static str]| proptest::sample::select(texts);
    prop_oneof![
        6 => (target(), any::<u8>()).prop_map(|(target, content)| Operation::Create(target, content)),
        2 => (target(), any::<u8>()).prop_map(|(target, content)| Operation::CreateFinalized(target, content)),
        4 => (target(), version(), any::<u8>()).prop_map(|(target, version, content)| Operation::Put(target, version, content)),
        2 => (target(), version(), any::<u8>()).prop_map(|(target, version, content)| Operation::PutStatus(target, version, content)),
        5 => (target(), one_of(MERGES)).prop_map(|(target, patch)| Operation::Merge(target, patch)),
        2 => (target(), one_of(STATUSES)).prop_map(|(target, patch)| Operation::MergeStatus(target, patch)),
        3 => (target(), one_of(JSON_PATCHES)).prop_map(|(target, patch)| Operation::Json(target, patch)),
        1 => target().prop_map(Operation::Get),
        2 => (target(), one_of(SELECTORS)).prop_map(|(target, selector)| Operation::List(target, selector)),
        3 => (target(), one_of(DELETIONS)).prop_map(|(target, options)| Operation::Delete(target, options)),
        1 => (target(), one_of(SELECTORS)).prop_map(|(target, selector)| Operation::DeleteAll(target, selector)),
        1 => (target(), 0usize..64, one_of(SELECTORS)).prop_map(|(target, from, selector)| Operation::WatchFrom(target, from, selector)),
    ]
}

/// Returns operations as the text of a case. At its end it reads the events of every collection, up
/// to an object that is created last.
fn script(operations: &[Operation]) -> String {
    let collections: Vec<_> = ["{ns}", "{ns2}"]
        .into_iter()
        .flat_map(|namespace| {
            [Kind::ConfigMap, Kind::Widget].map(|kind| Target {
                kind,
                namespace,
                name: "last",
            })
        })
        .collect();
    let mut text = String::from("=== generated\n\n");
    for (number, target) in collections.iter().enumerate() {
        let _ = writeln!(text, "GET {}\n-> list{number}\n", target.collection());
    }
    // Names of responses that hold an object if the request succeeded.
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
            Operation::Create(target, content) => {
                step(
                    format!("POST {}", target.collection()),
                    &target.object(*content, ""),
                    true,
                );
            }
            Operation::CreateFinalized(target, content) => {
                let object = target.object(*content, r#", "finalizers": ["example.com/a"]"#);
                step(format!("POST {}", target.collection()), &object, true);
            }
            Operation::Put(target, version, content)
            | Operation::PutStatus(target, version, content) => {
                let metadata = match version {
                    Version::None => String::new(),
                    Version::Current => {
                        step(format!("GET {}", target.path()), "", false);
                        format!(r#", "resourceVersion": "{{{kept}.metadata.resourceVersion}}""#)
                    }
                    Version::Earlier(_) if objects.is_empty() => {
                        r#", "resourceVersion": "1""#.into()
                    }
                    Version::Earlier(back) => {
                        let earlier = &objects[objects.len() - 1 - back % objects.len()];
                        format!(r#", "resourceVersion": "{{{earlier}.metadata.resourceVersion}}""#)
                    }
                };
                let is_status = matches!(operation, Operation::PutStatus(..));
                let object = target.object(*content, &metadata);
                let object = if is_status {
                    object.replacen('{', r#"{"status": {"phase": "Put"}, "#, 1)
                } else {
                    object
                };
                let path = target.path() + if is_status { "/status" } else { "" };
                let mut step = |line: String, body: &str| {
                    let _ = writeln!(text, "{line}\n{body}\n-> p{number}\n");
                };
                step(format!("PUT {path}"), &object);
                objects.push(format!("p{number}"));
            }
            Operation::Merge(target, patch) => {
                step(format!("MERGE {}", target.path()), patch, true);
            }
            Operation::MergeStatus(target, patch) => {
                step(format!("MERGE {}/status", target.path()), patch, true);
            }
            Operation::Json(target, patch) => step(format!("JSON {}", target.path()), patch, true),
            Operation::Get(target) => step(format!("GET {}", target.path()), "", true),
            Operation::List(target, selector) => {
                step(format!("GET {}{selector}", target.collection()), "", false);
            }
            Operation::Delete(target, options) => {
                step(format!("DELETE {}", target.path()), options, false);
            }
            Operation::DeleteAll(target, selector) => {
                step(
                    format!("DELETE {}{selector}", target.collection()),
                    "",
                    false,
                );
            }
            Operation::WatchFrom(target, back, selector) if !objects.is_empty() => {
                let from = &objects[objects.len() - 1 - back % objects.len()];
                let separator = if selector.is_empty() { '?' } else { '&' };
                watches.push((
                    target.collection(),
                    format!("{selector}{separator}"),
                    format!("{from}.metadata.resourceVersion"),
                ));
            }
            Operation::WatchFrom(..) => {}
        }
    }
    for (number, target) in collections.iter().enumerate() {
        // Matches every selector except the field selector by name.
        let last = target.object(0, "");
        let _ = writeln!(text, "POST {}\n{last}\n", target.collection());
        watches.push((
            target.collection(),
            "?".into(),
            format!("list{number}.metadata.resourceVersion"),
        ));
    }
    for (number, (collection, query, from)) in watches.iter().enumerate() {
        let end = if query.contains("labelSelector=l%3Dx") || query == "?" || query.contains("in+")
        {
            "to last"
        } else {
            "end"
        };
        let timeout = if end == "end" {
            "&timeoutSeconds=1"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "WATCH w{number} {collection}{query}resourceVersion={{{from}}}{timeout}\n\nEVENTS w{number} {end}\n"
        );
    }
    text
}

fn number(variable: &str, default: u64) -> u64 {
    let value = std::env::var(variable).ok();
    value.map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("invalid {variable} `{text}`; set a number"))
    })
}

/// Generates sequences until `operations` operations ran. Returns the shrunk text of the first
/// sequence that `agree` rejects as the error.
fn search(
    operations: usize,
    seed: u64,
    agree: impl Fn(&Case) -> Result<(), String>,
) -> Result<usize, String> {
    let config = Config {
        max_shrink_iters: 150,
        failure_persistence: None,
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(seed),
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let sequences = proptest::collection::vec(operation(), 1..40);
    let count = Cell::new(0);
    while count.get() < operations {
        let tree = sequences.new_tree(&mut runner).expect("a sequence");
        let outcome = runner.run_one(tree, |operations| {
            count.set(count.get() + operations.len());
            let text = script(&operations);
            let case = script::parse(&text)
                .expect("a well-formed script")
                .remove(0);
            agree(&case)
                .map_err(|differences| TestCaseError::fail(format!("{differences}\n\n{text}")))
        });
        if let Err(TestError::Fail(reason, _)) = outcome {
            return Err(reason.to_string());
        }
    }
    Ok(count.get())
}

#[test]
fn soak_both_servers_agree_on_generated_operations() {
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let Some(real) = runtime.block_on(servers::connect_real()) else {
        return;
    };
    let embedded = runtime.block_on(servers::start_embedded());

    let operations = number("STEERSMAN_CONFORMANCE_OPERATIONS", OPERATIONS as u64) as usize;
    let agree = |case: &Case| {
        runtime.block_on(async { agree(&real, &servers::client(&embedded.fork()), case).await })
    };
    for seed in Seeds::new(this_test!(), 1) {
        match search(operations, seed, agree) {
            Ok(count) => println!("{count} generated operations without differences (seed {seed})"),
            Err(reason) => {
                panic!(
                    "the servers differ with seed {seed}; expected values are of the real server\n{reason}"
                )
            }
        }
    }
}

#[test]
fn a_difference_is_shrunk_to_a_minimal_case() {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let server = runtime.block_on(servers::start_embedded());
    let agree = |case: &Case| {
        runtime.block_on(async {
            let good = server.fork();
            let bad = server.fork();
            bad.faults()
                .add(Fault::on("patch widgets/status").status(500));
            agree(&servers::client(&good), &servers::client(&bad), case).await
        })
    };
    let reason = search(10_000, 1, agree).expect_err("a difference");
    let patches = reason.matches("\nMERGE ").count();
    let others = ["\nPUT ", "\nJSON ", "\nDELETE "].map(|verb| reason.matches(verb).count());
    assert_eq!((patches, others), (1, [0, 0, 0]), "{reason}");
    assert!(reason.contains("/status\n"), "{reason}");
}

async fn agree(expected: &Client, got: &Client, case: &Case) -> Result<(), String> {
    let run = async |client| {
        let names = Names::new(&servers::unique_word());
        runner::create_namespaces(client, &names).await;
        normalize(runner::run(client, case, &names).await, &names)
    };
    let (expected, got) = tokio::join!(run(expected), run(got));
    let differences = differences::compare(&expected, &got);
    if differences.is_empty() {
        return Ok(());
    }
    let lines: Vec<_> = differences
        .iter()
        .map(|difference| format!("    {difference}"))
        .collect();
    Err(lines.join("\n"))
}
