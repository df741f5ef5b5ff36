//! Tests of requests from web pages to the admin server.

use crate::{
    http_client::{Page, send},
    support::{Running, builder, server},
};
use axum::routing::post;
use std::net::SocketAddr;
use steersman::admin::{Access, Admin, AdminError};
use tokio::net::TcpStream;

/// Sends a request with these lines after the first one.
async fn ask(
    address: SocketAddr,
    first: &str,
    headers: &[&str],
    body: &str,
) -> anyhow::Result<Page> {
    let headers: String = headers
        .iter()
        .flat_map(|header| [*header, "\r\n"])
        .collect();
    let request = format!(
        "{first}\r\n{headers}Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    send(TcpStream::connect(address).await?, &request).await
}

async fn get(address: SocketAddr, path: &str, headers: &[&str]) -> anyhow::Result<Page> {
    ask(address, &format!("GET {path} HTTP/1.1"), headers, "").await
}

async fn serve(admin: Admin) -> anyhow::Result<(SocketAddr, Running)> {
    let server = server();
    let manager = builder(&server).build()?;
    let routes = axum::Router::new().route("/own", post(|body: String| async move { body }));
    let address = manager
        .serve_admin(Admin {
            routes: Some(routes),
            ..admin
        })?
        .address();
    let handle = manager.handle();
    let running = Running::new(manager);
    handle.elected().await;
    Ok((SocketAddr::from(([127, 0, 0, 1], address.port())), running))
}

fn on(address: &str) -> Admin {
    Admin {
        address: address.parse().expect("an address"),
        ..Admin::default()
    }
}

#[tokio::test]
async fn the_admin_server_rejects_hosts_that_are_neither_loopback_nor_configured()
-> anyhow::Result<()> {
    let admin = Admin {
        hosts: vec!["metrics.example.com".into()],
        ..on("0.0.0.0:0")
    };
    let (address, running) = serve(admin).await?;
    for host in [
        "localhost",
        "127.0.0.1:8080",
        "[::1]:8080",
        "METRICS.example.com:8080",
    ] {
        assert_eq!(
            get(address, "/metrics", &[&format!("Host: {host}")])
                .await?
                .code,
            200,
            "{host}"
        );
    }
    for host in [
        "Host: evil.example",
        "Host: 10.1.2.3:8080",
        "Host: localhost\r\nHost: evil.example",
        "Host:",
        "X: y",
    ] {
        for path in ["/metrics", "/debug/queues", "/own", "/none"] {
            let page = get(address, path, &[host]).await?;
            assert!(
                page.code == 403 && page.body.contains("add the host to `Admin::hosts`"),
                "{host} {path}: {page:?}"
            );
        }
        for path in ["/healthz", "/readyz", "/readyz/cache"] {
            assert_eq!(
                get(address, path, &[host]).await?.code,
                200,
                "the kubelet sends the pod's address: {host} {path}"
            );
        }
    }
    let absolute = ask(
        address,
        "GET http://evil.example/metrics HTTP/1.1",
        &["Host: localhost"],
        "",
    )
    .await?;
    let old = ask(address, "GET /metrics HTTP/1.0", &[], "").await?;
    assert_eq!((absolute.code, old.code), (403, 403));
    running.stop().await
}

#[tokio::test]
async fn the_admin_server_rejects_pages_of_other_sites() -> anyhow::Result<()> {
    let (address, running) = serve(on("127.0.0.1:0")).await?;
    let host = format!("Host: {address}");
    let own = format!("Origin: http://{address}");
    let post = async |headers: &[&str]| {
        ask(
            address,
            "POST /own HTTP/1.1",
            &[&[&*host], headers].concat(),
            "{}",
        )
        .await
    };
    for foreign in [
        "Origin: http://evil.example",
        "Origin: null",
        "Sec-Fetch-Site: cross-site",
    ] {
        assert_eq!(
            post(&[foreign, "Content-Type: application/json"])
                .await?
                .code,
            403,
            "{foreign}"
        );
        for path in ["/debug/caches", "/metrics", "/healthz"] {
            assert_eq!(
                get(address, path, &[&host, foreign]).await?.code,
                403,
                "{foreign} {path}"
            );
        }
    }
    let untyped = post(&[&own]).await?;
    assert!(
        untyped.code == 403 && untyped.body.contains("without a content type"),
        "{untyped:?}"
    );
    assert_eq!(
        post(&[&own, "Content-Type: application/json"]).await?.body,
        "{}"
    );
    assert_eq!(post(&[]).await?.body, "{}", "not a browser");
    assert_eq!(
        get(address, "/metrics", &[&host, "Sec-Fetch-Site: none"])
            .await?
            .code,
        200,
        "typed into the browser"
    );
    assert_eq!(
        get(address, "/metrics", &[&host, "Sec-Fetch-Site: same-site"])
            .await?
            .code,
        200,
        "a link of localhost"
    );
    running.stop().await
}

#[tokio::test]
async fn the_admin_server_answers_any_host_and_origin_if_it_needs_tokens() -> anyhow::Result<()> {
    let (address, running) = serve(Admin {
        access: Access::Reviewed,
        ..on("127.0.0.1:0")
    })
    .await?;
    let page = get(
        address,
        "/metrics",
        &["Host: evil.example", "Origin: http://evil.example"],
    )
    .await?;
    assert_eq!(page.code, 401, "by the missing token: {page:?}");
    running.stop().await
}

#[tokio::test]
async fn an_invalid_host_of_the_admin_server_is_an_error() -> anyhow::Result<()> {
    let manager = builder(&server()).build()?;
    let error = manager
        .serve_admin(Admin {
            hosts: vec!["http://ops".into()],
            ..on("127.0.0.1:0")
        })
        .unwrap_err();
    assert!(
        matches!(&error, AdminError::InvalidHost(host) if host == "http://ops"),
        "{error}"
    );
    assert!(
        error.to_string().contains("without scheme and port"),
        "{error}"
    );
    Ok(())
}
