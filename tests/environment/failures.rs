//! Tests of retries, timeouts and the reports of failed tests.

use super::support::{helper_output, is_helper, lock_machine, processes, wait_for};
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
fn a_hanging_test_is_cancelled() {
    let output = helper_output("failures::helper_hangs", &[("STEERSMAN_TEST_SECONDS", "1")]);
    assert!(
        !output.success && output.text.contains("the test was cancelled after 1 s"),
        "{}",
        output.text
    );
}

#[test]
#[ignore = "a helper: it fails, in a process of its own"]
fn helper_fails_on_the_real_server() {
    if !is_helper() {
        return;
    }
    run_real(async |env| {
        let Env::Real(real) = &env else {
            panic!("another server")
        };
        println!(
            "helper: {}",
            real.environment().directory().unwrap().display()
        );
        anyhow::bail!("the color is green")
    });
}

#[tokio::test]
async fn a_failed_test_on_the_real_server_keeps_the_logs_and_prints_their_path() {
    let _lock = lock_machine().await;
    let output = helper_output(
        "failures::helper_fails_on_the_real_server",
        &[("USE_EXISTING_CLUSTER", "false")],
    );
    let helper_line = output
        .text
        .lines()
        .find_map(|line| line.split_once("helper: "));
    let Some(directory) = helper_line.map(|(_, directory)| PathBuf::from(directory)) else {
        // The helper has printed that there is nothing to start. With `CI=true` it fails.
        assert!(output.success, "{}", output.text);
        return;
    };
    assert!(
        !output.success && output.text.contains("the color is green"),
        "{}",
        output.text
    );
    let expected = format!(
        "logs of the test servers are kept in {}",
        directory.display()
    );
    assert!(output.text.contains(&expected), "{}", output.text);
    wait_for("no process is left", || {
        processes(&directory).is_empty().then_some(())
    });
    wait_for("the data is removed", || {
        (!directory.join("data").exists()).then_some(())
    });
    assert!(directory.join("etcd.log").exists() && directory.join("kube-apiserver.log").exists());
    fs::remove_dir_all(directory).unwrap();
}

/// Creates a directory with programs that print `message` and fail.
///
/// Each of them appends its arguments to the file `starts`.
fn create_failing_programs(message: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> {}\necho '{message}' >&2\nexit 1\n",
        directory.path().join("starts").display()
    );
    for program in ["etcd", "kube-apiserver"] {
        // Written by another process: a program that is open for writing cannot be executed, not
        // even if only a concurrently forked child has it open.
        let write = "printf %s \"$0\" > \"$1\" && chmod +x \"$1\"";
        let path = directory.path().join(program);
        assert!(
            Command::new("/bin/sh")
                .args(["-c", write, &script])
                .arg(path)
                .status()
                .unwrap()
                .success()
        );
    }
    directory
}

/// Returns the data directories of all starts of etcd, and the last error.
async fn start_failing_programs(message: &str) -> (Vec<PathBuf>, Error) {
    let programs = create_failing_programs(message);
    let binaries = Some(programs.path().to_owned());
    let options = Options {
        binaries,
        existing_cluster: Some(false),
        ..Options::default()
    };
    let error = Environment::start(options).await.unwrap_err();
    let starts = fs::read_to_string(programs.path().join("starts")).unwrap();
    let directory = |line: &str| -> Option<PathBuf> {
        let data = line
            .split(' ')
            .find_map(|flag| flag.strip_prefix("--data-dir="))?;
        data.strip_suffix("/data/etcd").map(Into::into)
    };
    let ports: BTreeSet<_> = starts
        .lines()
        .map(|line| line.split("--listen-client-urls=").nth(1))
        .collect();
    assert_eq!(
        ports.len(),
        starts.lines().count(),
        "other ports each time: {starts}"
    );
    (starts.lines().filter_map(directory).collect(), error)
}

#[tokio::test]
async fn a_start_on_a_port_in_use_is_retried_three_times_with_other_ports() {
    let (directories, error) =
        start_failing_programs("listen tcp 127.0.0.1:1: bind: address already in use").await;
    let Error::Program {
        program: "etcd",
        logs,
        ..
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!((directories.len(), directories.last()), (3, Some(logs)));
    let left: Vec<_> = directories
        .iter()
        .filter(|directory| directory.exists())
        .collect();
    assert_eq!(left, [logs], "only the logs of the last one are kept");
    fs::remove_dir_all(logs).unwrap();
}

#[tokio::test]
async fn a_start_that_fails_for_another_reason_is_not_retried() {
    let (directories, error) = start_failing_programs("no space left on device").await;
    assert!(
        error.to_string().contains("no space left on device"),
        "{error}"
    );
    assert_eq!(directories.len(), 1);
    fs::remove_dir_all(&directories[0]).unwrap();
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
        helper_output("failures::helper_fails_on_the_real_server", &variables)
    };
    let on_ci = run("true");
    assert!(
        !on_ci.success
            && on_ci
                .text
                .contains("cannot skip a test with CI=true: no kube-apiserver"),
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
