//! Tests of the lifecycle of an environment that belongs to one test.

use super::support::{definition, exclusive_environment, lock_machine, processes, wait_for};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::{
    Api,
    api::{ApiResource, DynamicObject, PostParams},
    core::GroupVersionKind,
};
use std::{fs, process::Command, time::Duration};
use steersman::testing::{Environment, Error, Options, started_or_skipped};
use tokio::time::timeout;

fn config_map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.into());
    map
}

#[tokio::test]
async fn a_restart_keeps_data_and_port_and_recovers_a_crashed_server() {
    let Some(exclusive_environment) = exclusive_environment(Options::default()).await else {
        return;
    };
    let environment = &exclusive_environment.environment;
    let directory = environment.directory().unwrap().to_owned();
    let url = environment.config().cluster_url;
    let api: Api<ConfigMap> = Api::default_namespaced(environment.client().unwrap());
    api.create(&PostParams::default(), &config_map("kept"))
        .await
        .unwrap();
    environment.restart_apiserver().await.unwrap();
    assert_eq!(environment.config().cluster_url, url);
    api.get("kept").await.expect("the client reconnects");

    let server = processes(&directory)
        .into_iter()
        .find(|(_, program)| program == "kube-apiserver")
        .unwrap()
        .0;
    assert!(
        Command::new("/bin/sh")
            .args(["-c", "kill -9 $0", &server])
            .status()
            .unwrap()
            .success()
    );
    let error = wait_for("the crash is detected", || environment.check().err());
    let Error::Program {
        program,
        problem,
        tail,
        logs,
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!(
        (*program, problem.as_str(), logs),
        ("kube-apiserver", "was ended by signal 9", &directory)
    );
    assert!(tail.lines().count() > 5, "{tail}");
    let error = environment
        .install([definition("a", "A", "a.example.com")])
        .await
        .unwrap_err();
    assert!(
        matches!(error, Error::Program { .. }),
        "requests report the crash: {error}"
    );

    environment.restart_apiserver().await.unwrap();
    environment.check().unwrap();
    api.get("kept").await.unwrap();
    environment.stop().await.unwrap();
    assert!(
        directory.join("kube-apiserver.log").exists(),
        "logs of a crash are kept"
    );
    fs::remove_dir_all(directory).unwrap();
}

#[tokio::test]
async fn two_environments_are_independent_and_stop_without_leftovers() {
    let Some(exclusive_environment) = exclusive_environment(Options::default()).await else {
        return;
    };
    let first = &exclusive_environment.environment;
    let second = Environment::start(Options::default()).await.unwrap();
    let api = |environment: &Environment| -> Api<ConfigMap> {
        Api::default_namespaced(environment.client().unwrap())
    };
    api(first)
        .create(&PostParams::default(), &config_map("one"))
        .await
        .unwrap();
    assert_eq!(api(&second).get_opt("one").await.unwrap(), None);
    for environment in [first, &second] {
        let directory = environment.directory().unwrap().to_owned();
        assert!(
            processes(&directory).len() >= 2,
            "at least a program and its supervisor"
        );
        environment.stop().await.unwrap();
        wait_for("no process is left", || {
            processes(&directory).is_empty().then_some(())
        });
        assert!(!directory.exists());
        assert!(matches!(environment.check(), Err(Error::Stopped)));
        assert!(matches!(
            environment.restart_apiserver().await,
            Err(Error::Stopped)
        ));
    }
}

#[tokio::test]
async fn a_paused_server_does_not_respond_until_it_is_resumed() {
    let Some(exclusive_environment) = exclusive_environment(Options::default()).await else {
        return;
    };
    let client = exclusive_environment.environment.client().unwrap();
    client.apiserver_version().await.unwrap();
    let paused = exclusive_environment.environment.pause_apiserver().unwrap();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Namespace"));
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    // The signal takes effect with a delay.
    while timeout(Duration::from_secs(1), api.get("default"))
        .await
        .is_ok()
    {}
    drop(paused);
    api.get("default").await.unwrap();
}

#[tokio::test]
async fn an_invalid_flag_is_reported_with_the_path_of_the_logs() {
    let _lock = lock_machine().await;
    let options = Options {
        api_server_flags: vec!["--no-such-flag".into()],
        ..Options::default()
    };
    let error = Environment::start(options).await.unwrap_err();
    if error.is_about_missing_binaries() {
        started_or_skipped::<()>(Err(error));
        return;
    }
    let Error::Program {
        program: "kube-apiserver",
        logs,
        ..
    } = &error
    else {
        panic!("{error}")
    };
    let text = error.to_string();
    assert!(
        text.contains("ended with exit status: 1") && text.contains("unknown flag: --no-such-flag"),
        "{text}"
    );
    assert!(text.contains(logs.to_str().unwrap()), "{text}");
    assert!(logs.join("etcd.log").exists() && !logs.join("data").exists());
    assert!(processes(logs).is_empty());
    fs::remove_dir_all(logs).unwrap();
}
