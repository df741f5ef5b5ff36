//! Tests of `steersman run --controllers extension-config` and of `steersman extension call`.

use super::{
    cluster::kubeconfig,
    process::{Process, command, run_to_exit, text},
};
use anyhow::{Context, Result};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use serde_json::{Value, json};
use std::{fs, net::Ipv4Addr, path::Path};
use steersman::{
    client::Patch,
    prelude::*,
    testing::{Env, TestServer, eventually},
};
use steersman_apiserver::Authority;
use steersman_controllers::extension_config::{
    ExtensionConfig,
    catalog::{
        Catalog, Hook,
        hooks::{BeforeClusterCreate, BeforeClusterCreateResponse},
    },
    server::{Extension, Running, ServingCertificate},
};

type Request = <BeforeClusterCreate as Hook>::Request;

/// Starts an extension whose response contains the settings of the request.
async fn extension(authority: &Authority) -> Result<Running> {
    let pair = authority.server_certificate()?;
    let echo = async |request: Request, _| BeforeClusterCreateResponse {
        message: format!("{:?}", request.settings),
        retry_after_seconds: 7,
        ..BeforeClusterCreateResponse::default()
    };
    let extension = Extension::new(Catalog::cluster_api())
        .on::<BeforeClusterCreate, _>("echo", echo)
        .tls(ServingCertificate::pem(pair.certificate_pem, pair.key_pem));
    Ok(extension.serve((Ipv4Addr::LOCALHOST, 0).into()).await?)
}

/// Runs `steersman extension call` with the request in a file.
async fn call(
    kubeconfig: &Path,
    file: &Path,
    name: &str,
    flags: &[&str],
) -> Result<(Option<i32>, String, String)> {
    let fixed = [
        "extension",
        "call",
        name,
        "BeforeClusterCreate",
        "--kubeconfig",
        text(kubeconfig),
    ];
    let output = run_to_exit(&[&fixed[..], &["--file", text(file)], flags].concat()).await?;
    Ok((output.code, output.stdout, output.stderr))
}

steersman::env_test! {
    async fn run_discovers_an_extension_whose_handler_can_be_called(env: Env) -> Result<()> {
        let printed = run_to_exit(&["crds", "--controllers", "extension-config"]).await?.stdout;
        env.install(serde_saphyr::from_multiple::<Value>(&printed)?).await?;
        let (namespace, directory) = (env.namespace("ext").await?, tempfile::tempdir()?);
        let path = kubeconfig(&env, "extension-config", &namespace, &directory).await?;
        let flags = ["--kubeconfig", text(&path), "--controllers", "extension-config", "--namespaces", &namespace];
        // The authorizer of the real server learns of roles by a watch.
        let doctor = eventually(async || {
            let doctor = run_to_exit(&[&["doctor"][..], &flags].concat()).await?;
            anyhow::Ok((doctor.code == Some(0)).then_some(doctor))
        })
        .await?;
        let crd = "ok       CRD: ExtensionConfig of runtime.cluster.x-k8s.io/v1beta2";
        assert!(doctor.stdout.contains(crd), "{}", doctor.stdout);

        let mut run = Process::start(command(&[&["run", "--admin", "127.0.0.1:0"][..], &flags].concat()))?;
        run.wait_for_log("extension registry is warmed up").await?;
        let authority = Authority::generate()?;
        let extension = extension(&authority).await?;
        let client = Client::new(env.client()?)?;
        let data = json!({"ca.crt": ByteString(authority.ca_pem().into_bytes())});
        let secret = json!({"metadata": {"namespace": namespace, "name": "ca"}, "data": data});
        client.create::<Secret>(&serde_json::from_value(secret)?).await?;
        let annotation = json!({"runtime.cluster.x-k8s.io/inject-ca-from-secret": format!("{namespace}/ca")});
        let config = json!({
            "metadata": {"name": namespace, "annotations": annotation},
            "spec": {
                "clientConfig": {"url": format!("https://{}", extension.local_addr())},
                "namespaceSelector": {}, "settings": {"color": "blue"},
            },
        });
        client.create::<ExtensionConfig>(&serde_json::from_value(config)?).await?;
        let key = ObjectKey::cluster_scoped(&namespace);
        eventually(async || {
            let config = client.get::<ExtensionConfig>(&key).await?.context("an object")?;
            let is_discovered = config.status.as_ref().is_some_and(|it| !it.handlers.is_empty());
            anyhow::Ok(is_discovered.then_some(()))
        })
        .await?;

        let (file, name) = (directory.path().join("request.yaml"), format!("echo.{namespace}"));
        fs::write(&file, "cluster:\n  metadata: {namespace: default, name: shop}\n")?;
        let (code, stdout, stderr) = call(&path, &file, &name, &[]).await?;
        assert_eq!(code, Some(0), "{stderr}");
        let response: Value = serde_saphyr::from_str(&stdout)?;
        assert_eq!(response["status"], "Success");
        assert_eq!(response["message"], "{\"color\": \"blue\"}");
        assert_eq!(response["retryAfterSeconds"], 7);

        // The certificate has only names of the loopback interface.
        let service = json!({"namespace": namespace, "name": "echo"});
        let patch = Patch::Merge(json!({"spec": {"clientConfig": {"service": service, "url": null}}}));
        client.patch::<ExtensionConfig>(&key, &patch).await?;
        let address = extension.local_addr().to_string();
        let (code, _, stderr) = call(&path, &file, &name, &["--address", &address]).await?;
        assert_eq!(code, Some(1));
        assert!(stderr.contains("certificate") && stderr.contains(&format!("echo.{namespace}.svc")), "{stderr}");
        extension.stop().await;
        let stopped = run.stop_with("TERM").await?;
        assert_eq!(stopped.code, Some(0), "{}", stopped.stderr);
        assert!(!stopped.stderr.contains("forbidden") && !stopped.stderr.contains("permission"), "{}", stopped.stderr);
        client.delete::<ExtensionConfig>(&key).await?;
        Ok(())
    }
}

#[tokio::test]
async fn a_call_with_an_invalid_name_or_request_reports_the_reason() -> Result<()> {
    let env = Env::embedded()?;
    env.install(steersman_controllers::extension_config::definitions())
        .await?;
    let (path, directory) = (env.kubeconfig().await?, tempfile::tempdir()?);
    let file = directory.path().join("request.yaml");
    fs::write(&file, "kind: BeforeClusterDeleteRequest\n")?;
    let (code, _, stderr) = call(&path, &file, "one.missing", &[]).await?;
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("use BeforeClusterCreateRequest"),
        "{stderr}"
    );
    fs::write(&file, "{}")?;
    let (code, _, stderr) = call(&path, &file, "one.missing", &[]).await?;
    assert_eq!(code, Some(4));
    assert!(
        stderr.contains("ExtensionConfig missing does not exist"),
        "{stderr}"
    );
    let (code, _, stderr) = call(&path, &file, "missing", &[]).await?;
    assert_eq!(code, Some(1));
    assert!(stderr.contains("HANDLER_NAME.EXTENSION_NAME"), "{stderr}");
    Ok(())
}

#[tokio::test]
async fn a_client_certificate_without_its_key_is_rejected() -> Result<()> {
    let flags = ["--runtime-extension-client-cert-file", "tls.crt"];
    let run = run_to_exit(&[&["run"][..], &flags].concat()).await?;
    assert_eq!(run.code, Some(2));
    assert!(
        run.stderr.contains("--runtime-extension-client-key-file"),
        "{}",
        run.stderr
    );
    Ok(())
}

#[tokio::test]
async fn a_read_only_run_calls_no_extension() -> Result<()> {
    let env = Env::embedded()?;
    env.install(steersman_controllers::extension_config::definitions())
        .await?;
    let client = Client::new(env.client()?)?;
    let config = json!({
        "metadata": {"name": "mine"},
        "spec": {"clientConfig": {"url": "https://127.0.0.1:1"}, "namespaceSelector": {}},
    });
    let config = client
        .create::<ExtensionConfig>(&serde_json::from_value(config)?)
        .await?;
    let path = env.kubeconfig().await?;
    let flags = [
        "--controllers",
        "extension-config",
        "--extension-config-read-only",
        "--warmup",
        "lenient",
    ];
    let fixed = ["run", "--admin", "127.0.0.1:0", "--kubeconfig", text(&path)];
    let mut run = Process::start(command(&[&fixed[..], &flags].concat()))?;
    let reason = "caBundle is not set on ExtensionConfig mine";
    run.wait_for_log(reason).await?;
    run.wait_for_log("extension registry is warmed up").await?;
    assert_eq!(run.stop_with("TERM").await?.code, Some(0));
    let key = ObjectKey::cluster_scoped("mine");
    let after = client.get::<ExtensionConfig>(&key).await?;
    let after = after.context("the object")?;
    assert_eq!(
        after.metadata.resource_version,
        config.metadata.resource_version
    );
    Ok(())
}
