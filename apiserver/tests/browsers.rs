//! Requests from browsers to a server without authentication, where every caller is admin.

use crate::{
    connection::{Connection, JSON},
    support::{CONFIG_MAPS, Reply, config_map},
};
use std::net::{Ipv4Addr, SocketAddr};
use steersman_apiserver::{ApiServer, Authenticator, Options, RunningServer, StartError};

/// Headers of a cross-site request that needs no CORS preflight: JSON without a content type.
const CROSS_SITE: [(&str, &str); 2] = [
    ("origin", "http://evil.example"),
    ("sec-fetch-site", "cross-site"),
];

struct Fixture {
    server: ApiServer,
    running: RunningServer,
}

impl Fixture {
    async fn new(options: Options) -> Self {
        let server = ApiServer::new(options).expect("a server without data starts");
        let running = server
            .listen((Ipv4Addr::LOCALHOST, 0).into(), None)
            .await
            .expect("loopback is free");
        Self { server, running }
    }

    fn address(&self) -> SocketAddr {
        self.running.addr()
    }

    /// Sends a request on a new connection. The server does not read a rejected body, which closes
    /// the connection.
    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut connection = Connection::open(self.address()).await;
        connection
            .send(method, path, headers, body.to_owned())
            .await
            .expect("a response")
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        self.send("GET", path, headers, "").await
    }
}

fn assert_forbidden(reply: Reply, text: &str) {
    let reply = reply.expect(403);
    assert_eq!(
        (reply.reason(), reply.json["kind"].as_str()),
        ("Forbidden", Some("Status"))
    );
    assert!(
        reply.message().contains(text),
        "{text} in {}",
        reply.message()
    );
}

#[tokio::test]
async fn a_host_that_is_neither_loopback_nor_configured_is_forbidden_except_for_health() {
    let options = Options {
        hosts: vec!["dev.example.com".into(), "10.1.2.3".into()],
        ..Options::default()
    };
    let fixture = Fixture::new(options).await;
    let own = fixture.address().to_string();
    for host in [
        &own,
        "localhost:1",
        "127.9.9.9",
        "[::1]:443",
        "dev.example.com:8080",
        "10.1.2.3",
    ] {
        fixture
            .get("/api/v1/secrets", &[("host", host)])
            .await
            .expect(200);
    }
    for host in [
        "evil.example",
        "10.1.2.4:6443",
        "localhost.evil.example",
        "",
    ] {
        for path in ["/api/v1/secrets", "/version", "/", "/livez", "/healthzz"] {
            let text = "it is neither loopback nor configured; use localhost, add the host to `Options::hosts`";
            assert_forbidden(fixture.get(path, &[("host", host)]).await, text);
        }
        for path in ["/healthz", "/readyz", "/readyz/ping"] {
            fixture.get(path, &[("host", host)]).await.expect(200);
        }
        // The path is not normalized, so this is not a bypass.
        fixture
            .get("/healthz/../api/v1/secrets", &[("host", host)])
            .await
            .expect(404);
    }
}

#[tokio::test]
async fn a_page_of_another_site_cannot_write() {
    let fixture = Fixture::new(Options::default()).await;
    let object = config_map("planted").to_string();
    let own = format!("http://{}", fixture.address());
    let host = fixture.address().to_string();
    let host = ("host", host.as_str());
    for (headers, text) in [
        (
            vec![CROSS_SITE[0]],
            "cannot serve pages of origin \"http://evil.example\"",
        ),
        (vec![CROSS_SITE[0], JSON], "cannot serve pages of origin"),
        (vec![("origin", "null")], "cannot serve pages of origin"),
        (
            vec![("origin", "http://localhost:3000"), JSON],
            "cannot serve pages of origin",
        ),
        (vec![CROSS_SITE[1]], "cannot serve pages of another site"),
        (
            vec![("origin", &own)],
            "cannot read a body without a content type from a browser",
        ),
        (
            vec![("sec-fetch-mode", "no-cors")],
            "cannot read a body without a content type from a browser",
        ),
    ] {
        let reply = fixture
            .send(
                "POST",
                CONFIG_MAPS,
                &[&[host][..], &headers].concat(),
                &object,
            )
            .await;
        assert_forbidden(reply, text);
    }
    assert_eq!(
        fixture.get(CONFIG_MAPS, &[]).await.expect(200).names(),
        [""; 0]
    );
    let rejected = fixture
        .server
        .journal()
        .entries()
        .iter()
        .filter(|entry| entry.code == 403)
        .count();
    assert_eq!(rejected, 7, "the journal records rejected requests");

    // Same-origin pages can write. Other clients can write even without a content type, as on the
    // real server.
    let own = [
        host,
        ("origin", &own),
        ("sec-fetch-site", "same-origin"),
        JSON,
    ];
    fixture
        .send("POST", CONFIG_MAPS, &own, &config_map("own").to_string())
        .await
        .expect(201);
    fixture
        .send(
            "POST",
            CONFIG_MAPS,
            &[host],
            &config_map("program").to_string(),
        )
        .await
        .expect(201);
}

#[tokio::test]
async fn a_server_with_tokens_answers_any_host_and_origin() {
    let authenticator = Authenticator::from_token_file("good,alice,u1\n").expect("tokens");
    let fixture = Fixture::new(Options {
        authenticator,
        ..Options::default()
    })
    .await;
    let headers = [
        ("host", "evil.example"),
        CROSS_SITE[0],
        CROSS_SITE[1],
        ("authorization", "Bearer good"),
    ];
    fixture.get(CONFIG_MAPS, &headers).await.expect(200);
    fixture.get(CONFIG_MAPS, &headers[..3]).await.expect(403);
}

#[tokio::test]
async fn an_invalid_host_in_the_options_is_an_error() {
    let error = ApiServer::new(Options {
        hosts: vec!["dev.example.com:80".into()],
        ..Options::default()
    });
    let error = error.expect_err("the host has a port");
    assert!(
        matches!(&error, StartError::InvalidHost(host) if host == "dev.example.com:80"),
        "{error}"
    );
    assert!(
        error.to_string().contains("without scheme and port"),
        "{error}"
    );
}
