//! kubectl of the pinned Kubernetes release against the binary. Skipped if kubectl is missing,
//! except on CI.

use crate::{
    process::{Process, Scratch},
    support::{config_map, widget, widgets},
};
use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Returns the path of kubectl: in the directory of `KUBEBUILDER_ASSETS`, which `cargo xtask test`
/// sets, or in the cache of `cargo xtask envtest`.
///
/// Does not search PATH, where kubectl can have any version.
fn find_kubectl() -> Option<PathBuf> {
    let variable = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let caches =
        variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
    let cached = caches.map(|caches| caches.join("steersman/envtest").join(pinned_release()));
    let mut paths = variable("KUBEBUILDER_ASSETS")
        .into_iter()
        .chain(cached)
        .map(|directory| directory.join("kubectl"));
    paths.find(|kubectl| kubectl.is_file())
}

/// Returns the Kubernetes release that `cargo xtask envtest` builds, such as `v1.37.1`.
fn pinned_release() -> &'static str {
    let requirements = include_str!("../../xtask/envtest/go.mod");
    let mut words = requirements
        .split_whitespace()
        .skip_while(|word| *word != "k8s.io/kubernetes");
    words.nth(1).expect("a required release")
}

/// kubectl with a kubeconfig and a discovery cache of its own.
struct Kubectl<'a> {
    program: PathBuf,
    kubeconfig: &'a Path,
    cache: PathBuf,
}

impl Kubectl<'_> {
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env("KUBECONFIG", self.kubeconfig)
            .arg("--cache-dir")
            .arg(&self.cache)
            .args(line.split_whitespace());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs a command with `input` on stdin and returns stdout. Panics if the command fails.
    fn run(&self, line: &str, input: &str) -> String {
        let mut child = self.command(line).spawn().expect("kubectl starts");
        child
            .stdin
            .take()
            .expect("a pipe")
            .write_all(input.as_bytes())
            .expect("kubectl reads stdin");
        let output = child.wait_with_output().expect("the exit status");
        assert!(
            output.status.success(),
            "kubectl {line}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

fn check_commands(kubectl: &Kubectl<'_>) {
    assert!(kubectl.run("get namespaces", "").contains("kube-system"));
    let output = kubectl.run("create --validate=false -f -", &config_map("a").to_string());
    assert_eq!(output, "configmap/a created\n");
    let output = kubectl.run("create --validate=false -f -", &widget("w").to_string());
    assert_eq!(output, "widget.example.com/w created\n");

    let mut watch = kubectl
        .command("get wd -w --no-headers")
        .spawn()
        .expect("kubectl starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("a pipe"))
        .lines()
        .map_while(Result::ok);
    assert!(
        lines.next().expect("a line").contains("red"),
        "existing objects are listed first"
    );
    kubectl.run(
        "patch widget w --type=merge -p {\"spec\":{\"color\":\"blue\"}}",
        "",
    );
    assert!(
        lines.next().expect("a line").contains("blue"),
        "changes are printed"
    );
    watch.kill().expect("a running process");
    watch.wait().expect("the exit status");

    assert_eq!(
        kubectl.run("get widgets w -o jsonpath={.spec.color}", ""),
        "blue"
    );
    assert!(
        kubectl.run("get configmaps a", "").contains("DATA"),
        "output is a table"
    );
    assert!(
        kubectl
            .run("get widgets w", "")
            .to_uppercase()
            .contains("COLOR"),
        "output has the columns of the CRD"
    );
    kubectl.run("scale widget w --replicas=3", "");
    assert_eq!(
        kubectl.run("get widgets w -o jsonpath={.spec.replicas}", ""),
        "3"
    );
    assert!(kubectl.run("describe configmap a", "").contains("Name:"));
    kubectl.run(
        "wait widget w --for=jsonpath={.spec.replicas}=3 --timeout=10s",
        "",
    );
    let output = kubectl.run("delete widget w", "");
    assert_eq!(
        output,
        "widget.example.com \"w\" deleted from default namespace\n"
    );
    assert_eq!(
        kubectl.run("delete configmaps --all", "").lines().count(),
        1
    );
    assert_eq!(kubectl.run("get configmaps,widgets -o name", ""), "");
}

#[test]
fn kubectl_gets_creates_patches_watches_and_deletes() {
    let Some(program) = find_kubectl() else {
        return steersman_testkit::skip(
            "no kubectl",
            "run `cargo xtask envtest`, or variable KUBEBUILDER_ASSETS",
        );
    };
    let scratch = Scratch::new();
    let crd = scratch.write("widgets.json", &widgets().to_string());
    let crd = crd.to_str().expect("a path");
    for flags in [&["--crd", crd][..], &["--tls", "--crd", crd][..]] {
        let process = Process::start(&scratch, flags);
        let kubectl = Kubectl {
            program: program.clone(),
            kubeconfig: process.kubeconfig(),
            cache: scratch.path("cache"),
        };
        check_commands(&kubectl);
    }
}
