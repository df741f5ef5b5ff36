//! Helpers of the environment tests: environments, a CRD, child processes.

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
use steersman::testing::{Environment, Options, started_or_skipped};
use tokio::sync::{Mutex, MutexGuard};

/// Serializes tests that need the whole machine.
static MACHINE: Mutex<()> = Mutex::const_new(());

pub(crate) struct ExclusiveEnvironment {
    pub(crate) environment: Environment,
    _lock: MutexGuard<'static, ()>,
}

/// Starts an environment for one test.
///
/// Returns `None` if the real server is not installed.
pub(crate) async fn exclusive_environment(options: Options) -> Option<ExclusiveEnvironment> {
    let lock = MACHINE.lock().await;
    let started = Instant::now();
    let environment = started_or_skipped(Environment::start(options).await)?;
    println!("started in {:?}", started.elapsed());
    Some(ExclusiveEnvironment {
        environment,
        _lock: lock,
    })
}

pub(crate) async fn lock_machine() -> MutexGuard<'static, ()> {
    MACHINE.lock().await
}

/// Creates a client from the text of a kubeconfig, as another program would.
pub(crate) async fn client_of(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

/// Returns the CRD `plural.group` with one served version.
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

/// Returns ids and programs of processes whose command line has this path.
pub(crate) fn processes(path: &Path) -> Vec<(String, String)> {
    let path = path.to_str().unwrap();
    let entries = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).into_owned();
            let program = line.split('\0').next()?.rsplit('/').next()?.to_owned();
            line.contains(path)
                .then(|| (entry.file_name().into_string().unwrap(), program))
        });
    entries.collect()
}

pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(output) = look() {
            return output;
        }
        assert!(
            started.elapsed() < Duration::from_mins(1),
            "waited for: {what}"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// Exit status and output of a helper.
pub(crate) struct Output {
    pub(crate) success: bool,
    pub(crate) text: String,
}

/// Runs a helper in a child process until it ends.
pub(crate) fn helper_output(name: &str, variables: &[(&str, &str)]) -> Output {
    let output = command(name, variables).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    Output {
        success: output.status.success(),
        text: String::from_utf8_lossy(&text).into_owned(),
    }
}

/// Starts a helper in a child process.
///
/// Returns the text of the line with which it reports that it is ready.
pub(crate) fn helper(name: &str, variables: &[(&str, &str)]) -> (Child, Option<String>) {
    let mut child = command(name, variables)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let text = lines.find_map(|line| line.split_once("helper: ").map(|(_, text)| text.to_owned()));
    // Drain the pipe, because writing to a closed pipe fails.
    thread::spawn(move || lines.for_each(drop));
    (child, text)
}

fn command(name: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", name, "--nocapture"])
        .env("STEERSMAN_TEST_HELPER", "yes");
    command.envs(variables.iter().copied());
    command
}

/// Returns whether this process was started as a helper.
///
/// A run of all ignored tests does not count.
pub(crate) fn is_helper() -> bool {
    std::env::var_os("STEERSMAN_TEST_HELPER").is_some()
}
