//! What the tests share: an environment of their own, one after another; a definition; processes, seen from outside.

use kube_client::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use steersman::testing::{Environment, Options, or_left_out};
use tokio::sync::{Mutex, MutexGuard};

/// One after another: they need the machine.
static TURN: Mutex<()> = Mutex::const_new(());

pub(crate) struct Own {
    pub(crate) environment: Environment,
    _turn: MutexGuard<'static, ()>,
}

/// An environment for one test; none where there is nothing to start.
pub(crate) async fn own(options: Options) -> Option<Own> {
    let turn = TURN.lock().await;
    let since = Instant::now();
    let environment = or_left_out(Environment::start(options).await)?;
    println!("started in {:?}", since.elapsed());
    Some(Own { environment, _turn: turn })
}

pub(crate) async fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().await
}

/// A client by a kubeconfig's text, as another program would read it.
pub(crate) async fn client_of(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// `plural.group`, with one served version.
pub(crate) fn definition(plural: &str, kind: &str, group: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// The processes whose command line names this: their ids and programs.
pub(crate) fn processes(of: &Path) -> Vec<(String, String)> {
    let of = of.to_str().unwrap();
    let entries = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        let program = line.split('\0').next()?.rsplit('/').next()?.to_owned();
        line.contains(of).then(|| (entry.file_name().into_string().unwrap(), program))
    });
    entries.collect()
}

pub(crate) fn soon<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(since.elapsed() < Duration::from_mins(1), "waited for: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// How a helper ended, and all that it said.
pub(crate) struct Output {
    pub(crate) success: bool,
    pub(crate) text: String,
}

/// This binary again, for one of its helpers, to its end.
pub(crate) fn helper_output(name: &str, variables: &[(&str, &str)]) -> Output {
    let output = command(name, variables).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    Output { success: output.status.success(), text: String::from_utf8_lossy(&text).into_owned() }
}

/// This binary again, for one of its helpers, up to the line by which the helper says that it is ready; that line's text.
pub(crate) fn helper(name: &str, variables: &[(&str, &str)]) -> (Child, Option<String>) {
    let mut child = command(name, variables).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.find_map(|line| line.split_once("helper: ").map(|(_, text)| text.to_owned()));
    // Who writes to a pipe that nobody reads fails.
    thread::spawn(move || lines.for_each(drop));
    (child, said)
}

fn command(name: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", name, "--nocapture"]).env("STEERSMAN_TEST_HELPER", "yes");
    command.envs(variables.iter().copied());
    command
}

/// Somebody who asks for ignored tests does not want helpers.
pub(crate) fn is_helper() -> bool {
    std::env::var_os("STEERSMAN_TEST_HELPER").is_some()
}
