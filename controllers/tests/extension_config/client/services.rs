//! Extension servers that have a Service instead of a URL.

use super::{
    certificates::{Ca, Validity},
    fixture::{builder, config, handler},
    raw_server::{RawServer, Reply},
};
use anyhow::Result;
use serde_json::json;
use steersman_controllers::extension_config::{
    ExtensionConfig, ServiceReference, client::DiscoveryFailure,
};

/// Returns an `ExtensionConfig` for the Service `ext` in the namespace `shop`.
fn of_service(server: &RawServer, path: Option<&str>, port: Option<i32>) -> ExtensionConfig {
    let mut config = config("ext", server);
    config.spec.client_config.url = None;
    config.spec.client_config.service = Some(ServiceReference {
        namespace: "shop".into(),
        name: "ext".into(),
        path: path.map(Into::into),
        port,
    });
    config
}

#[tokio::test]
async fn a_service_is_resolved_and_verified_by_its_name() -> Result<()> {
    let ca = Ca::new()?;
    let signed = ca.sign(&["ext.shop.svc"], Validity::Now)?;
    let reply = Reply::handlers(json!([handler("a")]));
    let server = RawServer::with_certificate(ca.pem(), &signed, reply).await?;
    let address = server.address;
    let resolve = move |service: &ServiceReference, port: u16| {
        let port_of = (&*service.namespace, &*service.name, port);
        matches!(port_of, ("shop", "ext", 443 | 8443)).then_some(address)
    };
    let runtime = builder()?.resolver(resolve).build()?;

    let config = of_service(&server, Some("/prefix"), Some(8443));
    assert_eq!(runtime.discover(&config).await?.len(), 1);
    runtime.discover(&of_service(&server, None, None)).await?;

    let requests = server.requests();
    assert_eq!(requests[0].sni.as_deref(), Some("ext.shop.svc"));
    assert_eq!(requests[0].headers["host"], "ext.shop.svc:8443");
    let path = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery?timeout=10s HTTP/1.1";
    assert_eq!(requests[0].line, format!("POST /prefix{path}"));
    assert_eq!(requests[1].headers["host"], "ext.shop.svc");
    assert_eq!(requests[1].line, format!("POST {path}"));
    Ok(())
}

#[tokio::test]
async fn a_certificate_without_the_name_of_the_service_is_an_error() -> Result<()> {
    let server = RawServer::start(Reply::handlers(json!([]))).await?;
    let address = server.address;
    let runtime = builder()?.resolver(move |_: &_, _| Some(address)).build()?;
    let error = runtime.discover(&of_service(&server, None, None)).await;
    let text = error.expect_err("a certificate for 127.0.0.1").to_string();
    assert!(
        text.contains("not valid for name \"ext.shop.svc\""),
        "{text}"
    );
    assert_eq!(server.counts().requests, 0);
    Ok(())
}

#[tokio::test]
async fn a_service_without_an_address_is_looked_up_in_dns() -> Result<()> {
    let server = RawServer::start(Reply::handlers(json!([]))).await?;
    let runtime = builder()?.resolver(|_: &_, _| None).build()?;
    let error = runtime
        .discover(&of_service(&server, None, Some(8443)))
        .await;
    let reason = error.expect_err("no such name").reason;
    let is_http = matches!(reason, DiscoveryFailure::Http(_));
    assert!(is_http && reason.to_string().contains("https://ext.shop.svc:8443/"));
    assert_eq!(server.counts().connections, 0);
    Ok(())
}
