//! Delay Clusters with a runtime extension:
//! `cargo run -p steersman-controllers --example runtime_extension`
//!
//! Cluster API calls the hook `BeforeClusterCreate` before it creates the objects of a Cluster. The
//! handler delays Clusters without the label `cost-center`. The second half plays the part of
//! Cluster API: it discovers the extension and calls it.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, from_value, json};
use steersman::{
    prelude::*,
    testing::{Env, TestServer},
};
use steersman_apiserver::Authority;
use steersman_controllers::extension_config::{
    ExtensionConfig,
    catalog::{
        Catalog,
        hooks::{BeforeClusterCreate, BeforeClusterCreateRequest, BeforeClusterCreateResponse},
    },
    client::RuntimeClient,
    server::{CallContext, Extension, Running, ServingCertificate},
};

async fn require_cost_center(
    request: BeforeClusterCreateRequest,
    _cx: CallContext,
) -> BeforeClusterCreateResponse {
    if request.cluster["metadata"]["labels"]["cost-center"].is_string() {
        return BeforeClusterCreateResponse::default();
    }
    BeforeClusterCreateResponse {
        message: "set the label cost-center".into(),
        retry_after_seconds: 30,
        ..Default::default()
    }
}

/// In a Pod, use `TlsFiles::in_directory(…)` instead, listen on `([0, 0, 0, 0], 9443)`, and stop on
/// `signals::shutdown()`.
async fn start_extension(authority: &Authority) -> anyhow::Result<Running> {
    let signed = authority.server_certificate()?;
    let certificate = ServingCertificate::pem(signed.certificate_pem, signed.key_pem);
    let extension = Extension::new(Catalog::new().with::<BeforeClusterCreate>())
        .on::<BeforeClusterCreate, _>("require-cost-center", require_cost_center)
        .timeout_seconds(5)
        .tls(certificate);
    Ok(extension.serve("127.0.0.1:0".parse()?).await?)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    run_demo(|line| println!("{line}")).await
}

/// Discovers and calls the extension, and prints the results.
pub(crate) async fn run_demo(mut print: impl FnMut(String)) -> anyhow::Result<()> {
    let authority = Authority::generate()?;
    let extension = start_extension(&authority).await?;

    let mut config: ExtensionConfig = from_value(json!({
        "metadata": {"name": "costs"},
        "spec": {
            "clientConfig": {
                "url": format!("https://{}", extension.local_addr()),
                "caBundle": STANDARD.encode(authority.ca_pem()),
            },
            "namespaceSelector": {},
        },
    }))?;
    let client = Client::new(Env::embedded()?.client()?)?;
    let runtime = RuntimeClient::builder(client, Catalog::cluster_api()).build()?;
    runtime.warm_up(&[])?;
    let handlers = runtime.discover(&config).await?;
    print(format!("discovered {}", handlers[0].name));
    config.status.get_or_insert_default().handlers = handlers;
    runtime.register(&config)?;

    for labels in [json!({}), json!({"cost-center": "42"})] {
        print(format!("{labels}: {}", call(&runtime, &labels).await?));
    }
    extension.stop().await;
    Ok(())
}

async fn call(runtime: &RuntimeClient, labels: &Value) -> anyhow::Result<String> {
    let request = BeforeClusterCreateRequest {
        cluster: json!({"metadata": {"name": "web", "labels": labels}}),
        ..Default::default()
    };
    let cluster = ObjectKey::new("shop", "web");
    let response = runtime
        .call_all_extensions::<BeforeClusterCreate>(&cluster, &request)
        .await?;
    Ok(match response.retry_after_seconds {
        0 => "not delayed".into(),
        seconds => format!("delayed by {seconds} s, {}", response.message),
    })
}
