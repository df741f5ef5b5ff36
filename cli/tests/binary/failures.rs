//! Tests of failures before the start: error message and exit code.

use super::process::{ExitOutput, Process, command, run_to_exit, text};
use anyhow::Result;
use serde_json::{Value, json};
use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt, path::PathBuf};
use steersman::testing::{Env, TestServer};
use tempfile::TempDir;

#[track_caller]
fn assert_fails(run_to_exit: &ExitOutput, code: i32, words: &[&str]) {
    assert_eq!(run_to_exit.code, Some(code), "{}", run_to_exit.stderr);
    let last = run_to_exit.stderr.lines().last().unwrap_or_default();
    for word in words {
        assert!(last.contains(word), "{word} in {last}");
    }
}

#[tokio::test]
async fn an_error_without_a_cluster_names_the_flag_and_the_demo() -> Result<()> {
    for verb in ["run", "doctor"] {
        assert_fails(
            &run_to_exit(&[verb]).await?,
            3,
            &["--kubeconfig", "run `steersman` without a command"],
        );
    }
    Ok(())
}

#[tokio::test]
async fn an_error_names_the_invalid_kubeconfig() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (absent, bad, empty) = (
        directory.path().join("absent"),
        directory.path().join("bad"),
        directory.path().join("empty"),
    );
    fs::write(
        &bad,
        "users: [{name: u, user: {token: hunter2}}]\nclusters: {this is: hunter2}\n",
    )?;
    fs::write(
        &empty,
        "apiVersion: v1\nkind: Config\nclusters: []\ncontexts: []\nusers: []\n",
    )?;
    for path in [&absent, &bad, &empty] {
        let run = run_to_exit(&["run", "--kubeconfig", text(path)]).await?;
        assert_fails(
            &run,
            3,
            &[text(path), "cannot use kubeconfig", "--kubeconfig"],
        );
        assert!(!run.stderr.contains("hunter2"), "{}", run.stderr);
    }
    let env = Env::embedded()?;
    let good = env.kubeconfig().await?;
    assert_fails(
        &run_to_exit(&[
            "doctor",
            "--kubeconfig",
            text(&good),
            "--context",
            "nowhere",
        ])
        .await?,
        3,
        &["nowhere", "--context"],
    );
    Ok(())
}

#[tokio::test]
async fn an_error_in_a_pod_without_a_token_names_the_service_account() -> Result<()> {
    let mut run = command(&["run"]);
    run.env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        .env("KUBERNETES_SERVICE_PORT", "1");
    let output = run.output().await?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("service account"), "{stderr}");
    Ok(())
}

/// Writes a kubeconfig for a server on loopback with these credentials.
fn kubeconfig(directory: &TempDir, port: u16, user: &Value) -> Result<PathBuf> {
    let path = directory.path().join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
    });
    fs::write(&path, config.to_string())?;
    Ok(path)
}

#[tokio::test]
async fn an_error_names_the_unreachable_cluster() -> Result<()> {
    let directory = tempfile::tempdir()?;
    // The listener is closed, so nothing listens on the port.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let path = kubeconfig(&directory, port, &json!({}))?;
    for verb in ["run", "doctor"] {
        assert_fails(
            &run_to_exit(&[verb, "--kubeconfig", text(&path)]).await?,
            3,
            &[&port.to_string(), "check that it runs"],
        );
    }
    Ok(())
}

#[tokio::test]
async fn run_can_be_stopped_while_it_waits_for_the_cluster() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let path = kubeconfig(&directory, silent.local_addr()?.port(), &json!({}))?;
    let run = Process::start(command(&["run", "--kubeconfig", text(&path)]))?;
    let _asked = silent.accept().await?;
    assert_eq!(run.stop_with("TERM").await?.code, Some(0));
    Ok(())
}

#[tokio::test]
async fn an_error_contains_no_input_or_output_of_a_credential_plugin() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let plugin = directory.path().join("plugin");
    fs::write(
        &plugin,
        "#!/bin/sh\necho '{\"status\": {\"token\": \"hunter2\"}}'; echo hunter2 >&2; exit 7\n",
    )?;
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o700))?;
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": text(&plugin), "args": ["--secret=hunter2"],
    });
    let path = kubeconfig(&directory, 1, &json!({"exec": exec}))?;
    for verb in ["run", "doctor"] {
        let run_to_exit = run_to_exit(&[verb, "--kubeconfig", text(&path)]).await?;
        assert_fails(&run_to_exit, 3, &["plugin", "exit status: 7"]);
        assert!(
            !format!("{run_to_exit:?}").contains("hunter2"),
            "{run_to_exit:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_closed_pipe_does_not_change_the_exit_code() -> Result<()> {
    let env = Env::embedded()?;
    let kubeconfig = env.kubeconfig().await?;
    let config = ["--kubeconfig", text(&kubeconfig)];
    for (arguments, code) in [(&["doctor"][..], 4), (&["run"][..], 4), (&["crds"][..], 0)] {
        let flags = if arguments[0] == "crds" {
            &[][..]
        } else {
            &config[..]
        };
        let mut command = command(&[arguments, flags].concat());
        let mut child = command.spawn()?;
        // Closes both pipes.
        drop((child.stdout.take(), child.stderr.take()));
        assert_eq!(child.wait().await?.code(), Some(code), "{arguments:?}");
    }
    Ok(())
}

#[tokio::test]
async fn an_error_without_crds_names_the_command_that_installs_them() -> Result<()> {
    let env = Env::embedded()?;
    let kubeconfig = env.kubeconfig().await?;
    let kubeconfig = text(&kubeconfig);
    assert_fails(
        &run_to_exit(&["run", "--kubeconfig", kubeconfig]).await?,
        4,
        &["CAPTControlPlane", "steersman crds | kubectl apply"],
    );
    let doctor = run_to_exit(&["doctor", "--kubeconfig", kubeconfig]).await?;
    assert_fails(&doctor, 4, &["1 requirement is missing"]);
    assert!(
        doctor.stdout.contains("missing  CRD: CAPTControlPlane"),
        "{}",
        doctor.stdout
    );
    assert!(
        doctor.stdout.contains("note     CRD: Workspace"),
        "{}",
        doctor.stdout
    );
    Ok(())
}

#[tokio::test]
async fn an_error_names_the_port_in_use_and_the_flag() -> Result<()> {
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let demo = run_to_exit(&["demo", "--admin", &address]).await?;
    assert_fails(&demo, 1, &[&address, "--admin", "another port"]);
    assert_eq!(
        demo.stderr.matches("(os error").count(),
        1,
        "{}",
        demo.stderr
    );
    Ok(())
}

#[tokio::test]
async fn an_invalid_command_line_shows_the_valid_values() -> Result<()> {
    let wrong = run_to_exit(&["run", "--controllers", "endpoint,nothing"]).await?;
    assert_eq!(wrong.code, Some(2));
    assert!(
        wrong.stderr.contains("possible values: endpoint"),
        "{}",
        wrong.stderr
    );
    for line in [
        &["run", "--workers", "0"][..],
        &["fly"],
        &["run", "--log", "loud"],
        &["run", "--leader-elect-namespace", "x"],
        &["run", "--namespaces", ""],
        &["run", "--admin-tls-cert", "tls.crt"],
        &["run", "--admin-access", "nobody"],
        &["doctor", "--namespaces", "a,B"],
    ] {
        assert_eq!(run_to_exit(line).await?.code, Some(2), "{line:?}");
    }
    let filter = run_to_exit(&["demo", "--log-filter", "steersman=loud"]).await?;
    assert_fails(
        &filter,
        1,
        &["invalid log filter", "steersman::cache=debug"],
    );
    Ok(())
}
