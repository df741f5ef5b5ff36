//! Tests that nothing is left after the process of an environment ends.

use super::support::{helper, is_helper, lock_machine, processes, wait_for};
use std::path::PathBuf;
use steersman::testing::{Environment, Options, started_or_skipped};

#[tokio::test]
#[ignore = "a helper: started in a process of its own, which is then killed"]
async fn helper_starts_an_environment_and_waits_until_killed() {
    if !is_helper() {
        return;
    }
    let options = Options {
        controller_manager: true,
        ..Options::default()
    };
    let Some(environment) = started_or_skipped(Environment::start(options).await) else {
        return;
    };
    println!("helper: {}", environment.directory().unwrap().display());
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_killed_process_leaves_no_servers_and_no_files() {
    let _lock = lock_machine().await;
    let (mut child, directory) = helper(
        "killed_process::helper_starts_an_environment_and_waits_until_killed",
        &[],
    );
    let Some(directory) = directory.map(PathBuf::from) else {
        // The helper has printed the reason to stderr. With `CI=true` it fails.
        assert!(child.wait().unwrap().success());
        return;
    };
    let running: Vec<_> = processes(&directory)
        .into_iter()
        .map(|(_, program)| program)
        .collect();
    for program in ["etcd", "kube-apiserver", "kube-controller-manager"] {
        assert!(
            running.iter().any(|running| running == program),
            "{program} of {running:?}"
        );
    }
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("no process is left", || {
        processes(&directory).is_empty().then_some(())
    });
    wait_for("no directory is left", || {
        (!directory.exists()).then_some(())
    });
}
