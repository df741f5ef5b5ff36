//! Metrics of calls.

use super::{
    fixture::{builder, call, config, config_of, with_handler},
    raw_server::{RawServer, Reply},
};
use anyhow::Result;
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::json;
use steersman_controllers::extension_config::client::RuntimeSdkMetrics;

#[tokio::test]
async fn calls_are_counted_under_the_names_of_cluster_api() -> Result<()> {
    let server = RawServer::start(Reply::success()).await?;
    let mut registry = Registry::default();
    let metrics = RuntimeSdkMetrics::register(&mut registry);
    let runtime = builder()?.metrics(metrics).build()?;
    let ext = with_handler(config("ext", &server), "a", json!({}));
    let invalid = with_handler(config_of("invalid", "", ""), "a", json!({}));
    runtime.warm_up(&[ext, invalid])?;
    for reply in [
        Reply::success(),
        Reply::json(&json!({"status": "Failure"})),
        Reply::json(&json!({"status": "Other"})),
        Reply::status(500, ""),
        Reply::status(200, ""),
        Reply::BytesAndClose(Vec::new()),
    ] {
        server.set_reply(reply);
        // Only the metrics matter.
        let _ = call(&runtime, "a.ext").await;
    }
    server.set_reply(Reply::Hang);
    let before = server.counts().requests;
    tokio::select! {
        _ = call(&runtime, "a.ext") => panic!("the server hangs"),
        result = server.until(|counts| counts.requests > before) => result?,
    }
    call(&runtime, "a.invalid").await.expect_err("no address");

    let mut page = String::new();
    encode(&mut page, &registry)?;
    let address = server.address;
    let labels = format!(
        "host=\"{address}\",group=\"hooks.runtime.cluster.x-k8s.io\",version=\"v1alpha1\",\
         hook=\"BeforeClusterCreate\""
    );
    for (code, status, count) in [
        ("200", "Success", 1),
        ("200", "Failure", 1),
        ("200", "Unknown", 2),
        ("500", "Unknown", 1),
        ("<error>", "Unknown", 2),
    ] {
        let line = format!(
            "capi_runtime_sdk_requests_total{{code=\"{code}\",{labels},status=\"{status}\"}} {count}\n"
        );
        assert!(page.contains(&line), "{line} in {page}");
    }
    let name = "capi_runtime_sdk_request_duration_seconds";
    assert!(
        page.contains(&format!("{name}_count{{{labels}}} 7\n")),
        "{page}"
    );
    let bucket = |bound: &str| format!("{name}_bucket{{le=\"{bound}\",{labels}}}");
    for bound in ["0.005", "1.25", "60.0", "+Inf"] {
        assert!(page.contains(&bucket(bound)), "{bound} in {page}");
    }
    assert!(
        !page.contains("host=\"\""),
        "a call without an address is not counted"
    );
    Ok(())
}
