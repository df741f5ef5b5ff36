//! What is tried again, what ends a test that hangs, and what is said and kept of one that fails.

use super::support::{helper_output, is_helper, processes, soon, turn};
use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};
use steersman::testing::{Env, Environment, Error, Options, run_embedded, run_real};

#[test]
#[ignore = "a helper: it fails, in a process of its own"]
fn helper_hangs() {
    if is_helper() {
        run_embedded(|_| std::future::pending::<()>());
    }
}

#[test]
fn a_test_that_hangs_is_ended() {
    let output = helper_output("fails::helper_hangs", &[("STEERSMAN_TEST_SECONDS", "1")]);
    assert!(!output.success && output.text.contains("the test was still running after 1 s"), "{}", output.text);
}

#[test]
#[ignore = "a helper: it fails, in a process of its own"]
fn helper_fails_on_the_real_server() {
    if !is_helper() {
        return;
    }
    run_real(async |env| {
        let Env::Real(real) = &env else { panic!("another server") };
        println!("helper: {}", real.environment().directory().unwrap().display());
        anyhow::bail!("the door is green")
    });
}

#[tokio::test]
async fn the_logs_of_a_test_that_fails_on_the_real_server_are_kept_and_it_is_said_where() {
    let _turn = turn().await;
    let output = helper_output("fails::helper_fails_on_the_real_server", &[("USE_EXISTING_CLUSTER", "false")]);
    let said = output.text.lines().find_map(|line| line.split_once("helper: "));
    let Some(directory) = said.map(|(_, directory)| PathBuf::from(directory)) else {
        // It has said that there is nothing to start; with `CI=true` it has failed.
        assert!(output.success, "{}", output.text);
        return;
    };
    assert!(!output.success && output.text.contains("the door is green"), "{}", output.text);
    let place = format!("the logs of the test servers are kept in {}", directory.display());
    assert!(output.text.contains(&place), "{}", output.text);
    soon("no process is left", || processes(&directory).is_empty().then_some(()));
    soon("the data is removed", || (!directory.join("data").exists()).then_some(()));
    assert!(directory.join("etcd.log").exists() && directory.join("kube-apiserver.log").exists());
    fs::remove_dir_all(directory).unwrap();
}

/// A directory with programs; each adds its arguments to a file `tries`, says this and ends.
fn programs_that_say(words: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let script =
        format!("#!/bin/sh\necho \"$@\" >> {}\necho '{words}' >&2\nexit 1\n", directory.path().join("tries").display());
    for program in ["etcd", "kube-apiserver"] {
        // By another process: a program that this one has open for writing, if only in a fork of a test beside, is not started.
        let write = "printf %s \"$0\" > \"$1\" && chmod +x \"$1\"";
        let path = directory.path().join(program);
        assert!(Command::new("/bin/sh").args(["-c", write, &script]).arg(path).status().unwrap().success());
    }
    directory
}

/// What the starts of etcd were given for a directory, in order, and how the last of them failed.
async fn tries(words: &str) -> (Vec<PathBuf>, Error) {
    let programs = programs_that_say(words);
    let binaries = Some(programs.path().to_owned());
    let options = Options { binaries, existing_cluster: Some(false), ..Options::default() };
    let error = Environment::start(options).await.unwrap_err();
    let tries = fs::read_to_string(programs.path().join("tries")).unwrap();
    let directory = |line: &str| -> Option<PathBuf> {
        let data = line.split(' ').find_map(|flag| flag.strip_prefix("--data-dir="))?;
        data.strip_suffix("/data/etcd").map(Into::into)
    };
    let ports: BTreeSet<_> = tries.lines().map(|line| line.split("--listen-client-urls=").nth(1)).collect();
    assert_eq!(ports.len(), tries.lines().count(), "other ports each time: {tries}");
    (tries.lines().filter_map(directory).collect(), error)
}

#[tokio::test]
async fn a_port_that_was_taken_meanwhile_is_tried_again_with_others_a_few_times() {
    let (tries, error) = tries("listen tcp 127.0.0.1:1: bind: address already in use").await;
    let Error::Program { program: "etcd", logs, .. } = &error else { panic!("{error}") };
    assert_eq!((tries.len(), tries.last()), (3, Some(logs)));
    let left: Vec<_> = tries.iter().filter(|directory| directory.exists()).collect();
    assert_eq!(left, [logs], "only the logs of the last one are kept");
    fs::remove_dir_all(logs).unwrap();
}

#[tokio::test]
async fn what_fails_for_another_reason_is_not_tried_again() {
    let (tries, error) = tries("no space left on device").await;
    assert!(error.to_string().contains("no space left on device"), "{error}");
    assert_eq!(tries.len(), 1);
    fs::remove_dir_all(&tries[0]).unwrap();
}

#[test]
fn a_test_without_a_real_server_is_recorded_as_skipped_and_fails_on_ci() {
    let directory = tempfile::tempdir().unwrap();
    let record = directory.path().join("skipped");
    let empty = directory.path().to_str().unwrap();
    let run = |ci: &str| {
        let record = record.to_str().unwrap();
        let variables = [
            ("CI", ci),
            ("KUBEBUILDER_ASSETS", empty),
            ("USE_EXISTING_CLUSTER", "false"),
            ("STEERSMAN_SKIPPED_TESTS", record),
        ];
        helper_output("fails::helper_fails_on_the_real_server", &variables)
    };
    let on_ci = run("true");
    assert!(
        !on_ci.success && on_ci.text.contains("cannot skip a test with CI=true: no kube-apiserver"),
        "{}",
        on_ci.text
    );
    assert!(!record.exists());
    let elsewhere = run("false");
    assert!(elsewhere.success, "{}", elsewhere.text);
    let records = fs::read_to_string(&record).unwrap();
    assert_eq!(records.lines().count(), 1);
    assert!(records.starts_with("no kube-apiserver\t"), "{records}");
}
