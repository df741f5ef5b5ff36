//! kubectl against the program, if there is a kubectl.

use crate::{
    process::{Process, Scratch},
    support::{config_map, widget, widgets},
};
use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Where it is, if it is one: on PATH there may be something else of that name.
fn find() -> Option<PathBuf> {
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = assets.into_iter().chain(std::env::split_paths(&path)).map(|place| place.join("kubectl"));
    places.find(|kubectl| {
        let version = Command::new(kubectl).args(["version", "--client"]).stderr(Stdio::null()).output();
        version.is_ok_and(|output| output.status.success())
    })
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
    assert_eq!(kubectl.run("delete widget w", ""), "widget.example.com \"w\" deleted\n");
    assert_eq!(kubectl.run("delete configmaps --all", "").lines().count(), 1);
    assert_eq!(kubectl.run("get configmaps,widgets -o name", ""), "");
}

#[test]
fn kubectl_gets_creates_patches_watches_and_deletes() {
    let Some(program) = find() else {
        println!("skipped: there is no kubectl on PATH or in KUBEBUILDER_ASSETS");
        return;
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
