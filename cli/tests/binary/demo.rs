//! Tests of the demonstration, which continues to serve after its last step.

use super::{
    kubectl::kubectl,
    process::{Process, command},
};
use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::{os::unix::fs::PermissionsExt, path::Path};
use steersman::prelude::*;
use steersman_controllers::{cluster_api::Cluster, endpoint::CAPTControlPlane};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const LAST: &str = "Stop:";

async fn page(address: &str, path: &str) -> Result<String> {
    page_of(address, address, path).await
}

async fn page_of(address: &str, host: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes(),
        )
        .await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Returns the text between two markers in the output.
fn text_between<'a>(output: &'a str, before: &str, after: &str) -> Result<&'a str> {
    let (_, rest) = output
        .split_once(before)
        .with_context(|| format!("{before} in {output}"))?;
    Ok(rest
        .split_once(after)
        .with_context(|| format!("{after} in {rest}"))?
        .0)
}

/// Asserts that only the owner can read the token of the kubeconfig, and that the server requires it.
async fn assert_token_required(path: &Path, kubeconfig: &Kubeconfig) -> Result<()> {
    let mode = std::fs::metadata(path)?.permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let user = kubeconfig.auth_infos[0]
        .auth_info
        .clone()
        .context("a user")?;
    assert!(user.token.is_some() && user.client_certificate_data.is_none());
    for (token, code) in [(None, 403), (Some("wrong"), 401)] {
        let mut kubeconfig = kubeconfig.clone();
        kubeconfig.auth_infos[0]
            .auth_info
            .as_mut()
            .context("a user")?
            .token = token.map(|token| token.to_owned().into());
        let config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let rejected = Client::new(config)?
            .live()
            .get::<Secret>(&ObjectKey::new("demo", "bank-connection"))
            .await;
        assert_eq!(
            rejected
                .expect_err("no valid token")
                .status()
                .map(|status| status.code),
            Some(code)
        );
    }
    Ok(())
}

#[tokio::test]
async fn the_demo_prints_its_steps_and_serves_until_it_is_stopped() -> Result<()> {
    let mut demo = Process::start(command(&[]))?;
    demo.wait_for_line(LAST).await?;
    let output = demo.stdout();
    let mut rest = output.as_str();
    for step in [
        "API server listens on https://127.0.0.1:",
        "manager runs the controllers: endpoint, cluster, extension-config",
        "CAPTControlPlane demo/shop: condition EndpointReady=False",
        "created Workspace shop",
        " CAPTControlPlane demo/shop: endpoint 4C1D2A.gr7.eu-west-1.eks.amazonaws.com:443",
        " Cluster demo/shop: endpoint 4C1D2A.gr7.eu-west-1.eks.amazonaws.com:443",
        "created Secret demo/bank-connection",
        " Cluster demo/bank: endpoint blue.bank.example.com:6443",
        "updated Secret demo/bank-connection",
        " CAPTControlPlane demo/bank: endpoint green.bank.example.com:6443",
        " Cluster demo/bank: endpoint green.bank.example.com:6443",
        "Cluster demo/farm: condition InfrastructureReady=False, ObjectDoesNotExist",
        "created DemoCluster demo/farm",
        "Cluster demo/farm: condition InfrastructureReady=True, Ready",
        "Cluster demo/farm: phase Provisioned, endpoint farm.example.com:6443",
        "Cluster demo/farm: condition Paused=True, Paused",
        "Cluster demo/farm: 0 failure domains",
        "Cluster demo/farm: condition Paused=False, NotPaused",
        "Cluster demo/farm: 2 failure domains",
        "deleted Cluster demo/farm",
        "condition Deleting=True, WaitingForWorkersDeletion",
        "Machine demo/farm: gone",
        "condition Deleting=True, WaitingForControlPlaneDeletion",
        "DemoControlPlane demo/farm: gone",
        "condition Deleting=True, WaitingForInfrastructureDeletion",
        " Cluster demo/farm: gone",
        "runtime extension listens on https://127.0.0.1:",
        "created ExtensionConfig quota",
        "ExtensionConfig quota: condition Discovered=True, Discovered",
        "ExtensionConfig quota: handlers check.quota",
        "updated Secret demo/quota",
        "ExtensionConfig quota: condition Discovered=True, Discovered",
        "runtime extension stopped",
        "ExtensionConfig quota: condition Discovered=False, NotDiscovered",
        "runtime extension started",
        "ExtensionConfig quota: condition Discovered=True, Discovered",
        "Use: ",
        "Pages: ",
    ] {
        rest = rest
            .split_once(step)
            .with_context(|| format!("{step}, in this order, in\n{output}"))?
            .1;
    }

    let path = Path::new(text_between(&output, "export KUBECONFIG='", "'")?).to_owned();
    let config = Kubeconfig::read_from(&path)?;
    assert_token_required(&path, &config).await?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    let (client, key) = (Client::new(config)?, ObjectKey::new("demo", "bank"));
    let plane = client
        .get::<CAPTControlPlane>(&key)
        .await?
        .context("missing object")?;
    assert_eq!(plane.status.as_ref().map(|status| status.ready), Some(true));
    let cluster = client
        .get::<Cluster>(&key)
        .await?
        .context("missing object")?;
    assert_eq!(
        cluster.spec.control_plane_endpoint,
        plane.spec.control_plane_endpoint.clone().map(Into::into)
    );
    if let Some(table) = kubectl(&path, "-n demo get captcontrolplanes").await? {
        assert!(
            table.contains("green.bank.example.com") && table.contains("PHASE"),
            "{table}"
        );
    }

    let admin = text_between(&output, "Pages:    http://", "/")?;
    assert!(page(admin, "/readyz").await?.ends_with("ok"));
    assert!(
        page(admin, "/metrics")
            .await?
            .contains("capt_endpoint_propagation_total")
    );
    let rebound = page_of(admin, "evil.example", "/metrics").await?;
    assert!(
        rebound.starts_with("HTTP/1.1 403") && rebound.contains("--admin-host"),
        "{rebound}"
    );

    let run_to_exit = demo.stop_with("INT").await?;
    assert_eq!(
        (run_to_exit.code, run_to_exit.stderr.as_str()),
        (Some(0), "")
    );
    assert!(!path.exists(), "the kubeconfig is removed");
    Ok(())
}

#[tokio::test]
async fn the_demo_logs_steps_of_the_controllers() -> Result<()> {
    let mut demo = Process::start(command(&["demo", "--log-filter", "info"]))?;
    demo.wait_for_line(LAST).await?;
    let run_to_exit = demo.stop_with("TERM").await?;
    assert_eq!(run_to_exit.code, Some(0));
    assert!(
        run_to_exit.stderr.contains("patched endpoint"),
        "{}",
        run_to_exit.stderr
    );
    Ok(())
}

#[tokio::test]
async fn the_demo_can_be_stopped_early() -> Result<()> {
    let mut demo = Process::start(command(&[]))?;
    demo.wait_for_line("API server listens on").await?;
    let run_to_exit = demo.stop_with("INT").await?;
    assert_eq!(
        (run_to_exit.code, run_to_exit.stderr.as_str()),
        (Some(0), ""),
        "{}",
        run_to_exit.stdout
    );
    Ok(())
}
