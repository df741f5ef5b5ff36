//! Nothing is left, however the process that started an environment ends.

use super::support::{helper, is_helper, processes, soon, turn};
use std::path::PathBuf;
use steersman::testing::{Environment, Options, or_left_out};

#[tokio::test]
#[ignore = "a helper: started in a process of its own, which is then killed"]
async fn helper_starts_an_environment_and_waits() {
    if !is_helper() {
        return;
    }
    let options = Options { controller_manager: true, ..Options::default() };
    let Some(environment) = or_left_out(Environment::start(options).await) else { return };
    println!("helper: {}", environment.directory().unwrap().display());
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_process_that_is_killed_leaves_neither_processes_nor_files() {
    let _turn = turn().await;
    let (mut child, directory) = helper("ends::helper_starts_an_environment_and_waits", &[]);
    let Some(directory) = directory.map(PathBuf::from) else {
        // It has said why on stderr; with `CI=true` it has failed.
        assert!(child.wait().unwrap().success());
        return;
    };
    let running: Vec<_> = processes(&directory).into_iter().map(|(_, program)| program).collect();
    for program in ["etcd", "kube-apiserver", "kube-controller-manager"] {
        assert!(running.iter().any(|running| running == program), "{program} of {running:?}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    soon("no process is left", || processes(&directory).is_empty().then_some(()));
    soon("no directory is left", || (!directory.exists()).then_some(()));
}
