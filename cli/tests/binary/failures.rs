//! What goes wrong before anything runs: a sentence that says what to do, and a code.

use super::process::{Ended, command, ended, text};
use anyhow::Result;
use std::{fs, net::TcpListener};
use steersman::testing::{Env, TestServer};

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

#[tokio::test]
async fn a_cluster_that_does_not_answer_is_named() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("kubeconfig");
    // Nobody listens there any more.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let cluster = format!("{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}");
    fs::write(
        &path,
        format!(
            "apiVersion: v1\nkind: Config\nclusters: [{cluster}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{}}}}]\ncurrent-context: c\n"
        ),
    )?;
    for verb in ["run", "doctor"] {
        says(&ended(&[verb, "--kubeconfig", text(&path)]).await?, 3, &[&port.to_string(), "is it up"]);
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
    says(&ended(&["demo", "--admin", &address]).await?, 1, &[&address, "--admin", "another port"]);
    Ok(())
}

#[tokio::test]
async fn a_command_line_that_is_wrong_shows_what_is_right() -> Result<()> {
    let wrong = ended(&["run", "--controllers", "endpoint,nothing"]).await?;
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("possible values: endpoint"), "{}", wrong.stderr);
    for line in
        [&["run", "--workers", "0"][..], &["fly"], &["run", "--log", "loud"], &["run", "--leader-elect-namespace", "x"]]
    {
        assert_eq!(ended(line).await?.code, Some(2), "{line:?}");
    }
    let filter = ended(&["demo", "--log-filter", "steersman=loud"]).await?;
    says(&filter, 1, &["is no filter", "steersman::cache=debug"]);
    Ok(())
}
