//! Without a command: a story, and then a server for who wants to go on.

use super::{
    kubectl::kubectl,
    process::{Process, command},
};
use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::{os::unix::fs::PermissionsExt, path::Path};
use steersman::prelude::*;
use steersman_controllers::endpoint::{CAPTControlPlane, Cluster};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const LAST: &str = "Stop it";

async fn page(address: &str, path: &str) -> Result<String> {
    page_of(address, address, path).await
}

async fn page_of(address: &str, host: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// What stands between these in what it said.
fn between<'a>(said: &'a str, before: &str, after: &str) -> Result<&'a str> {
    let (_, rest) = said.split_once(before).with_context(|| format!("{before} in {said}"))?;
    Ok(rest.split_once(after).with_context(|| format!("{after} in {rest}"))?.0)
}

/// The kubeconfig has a token that only its owner can read, and the server refuses every caller without it.
async fn assert_token_required(path: &Path, kubeconfig: &Kubeconfig) -> Result<()> {
    let mode = std::fs::metadata(path)?.permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let user = kubeconfig.auth_infos[0].auth_info.clone().context("a user")?;
    assert!(user.token.is_some() && user.client_certificate_data.is_none());
    for (token, code) in [(None, 403), (Some("wrong"), 401)] {
        let mut kubeconfig = kubeconfig.clone();
        kubeconfig.auth_infos[0].auth_info.as_mut().context("a user")?.token =
            token.map(|token| token.to_owned().into());
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let refused = Client::new(config)?.live().get::<Secret>(&ObjectKey::new("demo", "bank-connection")).await;
        assert_eq!(refused.expect_err("no valid token").status().map(|status| status.code), Some(code));
    }
    Ok(())
}

#[tokio::test]
async fn the_story_is_told_line_by_line_and_then_it_serves_until_it_is_told_to_stop() -> Result<()> {
    let mut demo = Process::start(command(&[]))?;
    demo.says(LAST).await?;
    let said = demo.stdout();
    let mut rest = said.as_str();
    for step in [
        "the API server listens on https://127.0.0.1:",
        "the manager runs: endpoint",
        "says      CAPTControlPlane demo/shop: EndpointReady False",
        "made      Workspace shop",
        "reached   CAPTControlPlane demo/shop: 4C1D2A.gr7.eu-west-1.eks.amazonaws.com:443",
        "reached   Cluster demo/shop: 4C1D2A.gr7.eu-west-1.eks.amazonaws.com:443",
        "made      Secret demo/bank-connection",
        "reached   Cluster demo/bank: blue.bank.example.com:6443",
        "rotated   Secret demo/bank-connection",
        "reached   CAPTControlPlane demo/bank: green.bank.example.com:6443",
        "reached   Cluster demo/bank: green.bank.example.com:6443",
        "Use it ",
        "Look in ",
    ] {
        rest = rest.split_once(step).with_context(|| format!("{step}, in this order, in\n{said}"))?.1;
    }

    let path = Path::new(between(&said, "export KUBECONFIG='", "'")?).to_owned();
    let config = Kubeconfig::read_from(&path)?;
    assert_token_required(&path, &config).await?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    let (client, key) = (Client::new(config)?, ObjectKey::new("demo", "bank"));
    let plane = client.get::<CAPTControlPlane>(&key).await?.context("it is there")?;
    assert_eq!(plane.status.as_ref().map(|status| status.ready), Some(true));
    let cluster = client.get::<Cluster>(&key).await?.context("it is there")?;
    assert_eq!(cluster.spec.control_plane_endpoint, plane.spec.control_plane_endpoint);
    if let Some(table) = kubectl(&path, "-n demo get captcontrolplanes").await? {
        assert!(table.contains("green.bank.example.com") && table.contains("PHASE"), "{table}");
    }

    let admin = between(&said, "Look in   http://", "/")?;
    assert!(page(admin, "/readyz").await?.ends_with("ok"));
    assert!(page(admin, "/metrics").await?.contains("capt_endpoint_propagation_total"));
    let rebound = page_of(admin, "evil.example", "/metrics").await?;
    assert!(rebound.starts_with("HTTP/1.1 403") && rebound.contains("--admin-host"), "{rebound}");

    let ended = demo.end_by("INT").await?;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(!path.exists(), "of no use to anybody any more");
    Ok(())
}

#[tokio::test]
async fn what_the_controllers_say_can_be_seen_beside_the_story() -> Result<()> {
    let mut demo = Process::start(command(&["demo", "--log-filter", "info"]))?;
    demo.says(LAST).await?;
    let ended = demo.end_by("TERM").await?;
    assert_eq!(ended.code, Some(0));
    assert!(ended.stderr.contains("patched endpoint"), "{}", ended.stderr);
    Ok(())
}

#[tokio::test]
async fn it_can_be_stopped_before_its_story_is_told() -> Result<()> {
    let mut demo = Process::start(command(&[]))?;
    demo.says("the API server listens on").await?;
    let ended = demo.end_by("INT").await?;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    Ok(())
}
