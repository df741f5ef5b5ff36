//! kubectl against the program: the one of the release that the project compares itself with, if it is there; on CI it
//! has to be.

use crate::{
    process::{Process, Scratch},
    support::{config_map, widget, widgets},
};
use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Where it is: in the directory that `cargo xtask test` names, or where `cargo xtask envtest` keeps the one of the pinned
/// release. Not on PATH: what has that name there may be of any version, or a vendor's program that chooses one.
fn find() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let cached = caches.map(|caches| caches.join("steersman/envtest").join(pinned()));
    let mut places = set("KUBEBUILDER_ASSETS").into_iter().chain(cached).map(|place| place.join("kubectl"));
    places.find(|kubectl| kubectl.is_file())
}

/// The release that the project builds, as in `v1.37.1`.
fn pinned() -> &'static str {
    let requirements = include_str!("../../xtask/envtest/go.mod");
    let mut words = requirements.split_whitespace().skip_while(|word| *word != "k8s.io/kubernetes");
    words.nth(1).expect("a required release")
}

/// A kubectl that knows the server.
struct Kubectl<'a> {
    program: PathBuf,
    kubeconfig: &'a Path,
    cache: PathBuf,
}

impl Kubectl<'_> {
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.env("KUBECONFIG", self.kubeconfig).arg("--cache-dir").arg(&self.cache).args(line.split_whitespace());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// What it says; it has to succeed.
    fn run(&self, line: &str, input: &str) -> String {
        let mut child = self.command(line).spawn().expect("kubectl starts");
        child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("its end");
        assert!(output.status.success(), "kubectl {line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

fn lives_and_dies(kubectl: &Kubectl<'_>) {
    assert!(kubectl.run("get namespaces", "").contains("kube-system"));
    let said = kubectl.run("create --validate=false -f -", &config_map("a").to_string());
    assert_eq!(said, "configmap/a created\n");
    let said = kubectl.run("create --validate=false -f -", &widget("w").to_string());
    assert_eq!(said, "widget.example.com/w created\n");

    let mut watching = kubectl.command("get wd -w --no-headers").spawn().expect("kubectl starts");
    let mut lines = BufReader::new(watching.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(lines.next().expect("a line").contains("red"), "what is there");
    kubectl.run("patch widget w --type=merge -p {\"spec\":{\"color\":\"blue\"}}", "");
    assert!(lines.next().expect("a line").contains("blue"), "what changes");
    watching.kill().expect("it runs");
    watching.wait().expect("its end");

    assert_eq!(kubectl.run("get widgets w -o jsonpath={.spec.color}", ""), "blue");
    assert!(kubectl.run("get configmaps a", "").contains("DATA"), "a table");
    assert!(kubectl.run("get widgets w", "").to_uppercase().contains("COLOR"), "with the definition's columns");
    kubectl.run("scale widget w --replicas=3", "");
    assert_eq!(kubectl.run("get widgets w -o jsonpath={.spec.replicas}", ""), "3");
    assert!(kubectl.run("describe configmap a", "").contains("Name:"));
    kubectl.run("wait widget w --for=jsonpath={.spec.replicas}=3 --timeout=10s", "");
    let said = kubectl.run("delete widget w", "");
    assert_eq!(said, "widget.example.com \"w\" deleted from default namespace\n");
    assert_eq!(kubectl.run("delete configmaps --all", "").lines().count(), 1);
    assert_eq!(kubectl.run("get configmaps,widgets -o name", ""), "");
}

#[test]
fn kubectl_gets_creates_patches_watches_and_deletes() {
    let Some(program) = find() else {
        return steersman_testkit::skip("no kubectl", "run `cargo xtask envtest`, or set KUBEBUILDER_ASSETS");
    };
    let scratch = Scratch::new();
    let definition = scratch.write("widgets.json", &widgets().to_string());
    let definition = definition.to_str().expect("a path");
    for flags in [&["--crd", definition][..], &["--tls", "--crd", definition][..]] {
        let process = Process::start(&scratch, flags);
        let kubectl =
            Kubectl { program: program.clone(), kubeconfig: process.kubeconfig(), cache: scratch.path("cache") };
        lives_and_dies(&kubectl);
    }
}
