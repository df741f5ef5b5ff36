//! What goes wrong before anything runs: a sentence that says what to do, and a code.

use super::process::{Ended, Process, command, ended, text};
use anyhow::Result;
use serde_json::{Value, json};
use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt, path::PathBuf};
use steersman::testing::{Env, TestServer};
use tempfile::TempDir;

#[track_caller]
fn says(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, Some(code), "{}", ended.stderr);
    let last = ended.stderr.lines().last().unwrap_or_default();
    for word in words {
        assert!(last.contains(word), "{word} in {last}");
    }
}

#[tokio::test]
async fn without_a_cluster_it_says_how_to_name_one_and_how_to_do_without() -> Result<()> {
    for verb in ["run", "doctor"] {
        says(&ended(&[verb]).await?, 3, &["--kubeconfig", "run `steersman` without a command"]);
    }
    Ok(())
}

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_used_is_named() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (absent, bad, empty) =
        (directory.path().join("absent"), directory.path().join("bad"), directory.path().join("empty"));
    fs::write(&bad, "users: [{name: u, user: {token: hunter2}}]\nclusters: {this is: hunter2}\n")?;
    fs::write(&empty, "apiVersion: v1\nkind: Config\nclusters: []\ncontexts: []\nusers: []\n")?;
    for path in [&absent, &bad, &empty] {
        let run = ended(&["run", "--kubeconfig", text(path)]).await?;
        says(&run, 3, &[text(path), "cannot be used", "--kubeconfig"]);
        assert!(!run.stderr.contains("hunter2"), "{}", run.stderr);
    }
    let env = Env::embedded()?;
    let good = env.kubeconfig().await?;
    says(&ended(&["doctor", "--kubeconfig", text(&good), "--context", "nowhere"]).await?, 3, &["nowhere", "--context"]);
    Ok(())
}

#[tokio::test]
async fn a_pod_without_a_token_is_told_what_it_lacks() -> Result<()> {
    let mut run = command(&["run"]);
    run.env("KUBERNETES_SERVICE_HOST", "127.0.0.1").env("KUBERNETES_SERVICE_PORT", "1");
    let output = run.output().await?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("service account"), "{stderr}");
    Ok(())
}

/// For a server on loopback, and a user who is this.
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
async fn a_cluster_that_does_not_answer_is_named() -> Result<()> {
    let directory = tempfile::tempdir()?;
    // Nobody listens there any more.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let path = kubeconfig(&directory, port, &json!({}))?;
    for verb in ["run", "doctor"] {
        says(&ended(&[verb, "--kubeconfig", text(&path)]).await?, 3, &[&port.to_string(), "is it up"]);
    }
    Ok(())
}

#[tokio::test]
async fn while_a_cluster_takes_its_time_it_can_be_stopped() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let path = kubeconfig(&directory, silent.local_addr()?.port(), &json!({}))?;
    let run = Process::start(command(&["run", "--kubeconfig", text(&path)]))?;
    let _asked = silent.accept().await?;
    assert_eq!(run.end_by("TERM").await?.code, Some(0));
    Ok(())
}

#[tokio::test]
async fn what_a_plugin_for_credentials_was_given_and_has_said_is_told_to_nobody() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let plugin = directory.path().join("plugin");
    fs::write(&plugin, "#!/bin/sh\necho '{\"status\": {\"token\": \"hunter2\"}}'; echo hunter2 >&2; exit 7\n")?;
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o700))?;
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": text(&plugin), "args": ["--secret=hunter2"],
    });
    let path = kubeconfig(&directory, 1, &json!({"exec": exec}))?;
    for verb in ["run", "doctor"] {
        let ended = ended(&[verb, "--kubeconfig", text(&path)]).await?;
        says(&ended, 3, &["plugin", "exit status: 7"]);
        assert!(!format!("{ended:?}").contains("hunter2"), "{ended:?}");
    }
    Ok(())
}

#[tokio::test]
async fn who_reads_may_stop_to_at_any_time() -> Result<()> {
    let env = Env::embedded()?;
    let kubeconfig = env.kubeconfig().await?;
    let config = ["--kubeconfig", text(&kubeconfig)];
    for (arguments, code) in [(&["doctor"][..], 4), (&["run"][..], 4), (&["crds"][..], 0)] {
        let flags = if arguments[0] == "crds" { &[][..] } else { &config[..] };
        let mut command = command(&[arguments, flags].concat());
        let mut child = command.spawn()?;
        // Nobody reads either of them.
        drop((child.stdout.take(), child.stderr.take()));
        assert_eq!(child.wait().await?.code(), Some(code), "{arguments:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_cluster_without_the_definitions_is_told_how_to_get_them() -> Result<()> {
    let env = Env::embedded()?;
    let kubeconfig = env.kubeconfig().await?;
    let kubeconfig = text(&kubeconfig);
    says(
        &ended(&["run", "--kubeconfig", kubeconfig]).await?,
        4,
        &["CAPTControlPlane", "steersman crds | kubectl apply"],
    );
    let doctor = ended(&["doctor", "--kubeconfig", kubeconfig]).await?;
    says(&doctor, 4, &["one thing is missing"]);
    assert!(doctor.stdout.contains("missing  definition: CAPTControlPlane"), "{}", doctor.stdout);
    assert!(doctor.stdout.contains("note     definition: Workspace"), "{}", doctor.stdout);
    Ok(())
}

#[tokio::test]
async fn a_port_that_is_taken_is_named_with_what_to_do() -> Result<()> {
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let demo = ended(&["demo", "--admin", &address]).await?;
    says(&demo, 1, &[&address, "--admin", "another port"]);
    assert_eq!(demo.stderr.matches("(os error").count(), 1, "{}", demo.stderr);
    Ok(())
}

#[tokio::test]
async fn a_command_line_that_is_wrong_shows_what_is_right() -> Result<()> {
    let wrong = ended(&["run", "--controllers", "endpoint,nothing"]).await?;
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("possible values: endpoint"), "{}", wrong.stderr);
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
        assert_eq!(ended(line).await?.code, Some(2), "{line:?}");
    }
    let filter = ended(&["demo", "--log-filter", "steersman=loud"]).await?;
    says(&filter, 1, &["is no filter", "steersman::cache=debug"]);
    Ok(())
}
