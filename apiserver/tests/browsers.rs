//! Requests of web pages, on servers whose callers are all admin.

use crate::{
    support::{CONFIG_MAPS, Reply, config_map},
    wire::{Connection, JSON},
};
use std::net::{Ipv4Addr, SocketAddr};
use steersman_apiserver::{ApiServer, Authenticator, Options, Running, StartError};

/// What a page of another site can send without asking first: JSON without a content type.
const PAGE: [(&str, &str); 2] = [("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")];

struct Fixture {
    server: ApiServer,
    running: Running,
}

impl Fixture {
    async fn new(options: Options) -> Self {
        let server = ApiServer::new(options).expect("a server without data starts");
        let running = server.listen((Ipv4Addr::LOCALHOST, 0).into(), None).await.expect("loopback is free");
        Self { server, running }
    }

    fn address(&self) -> SocketAddr {
        self.running.addr()
    }

    /// Each request has a connection of its own: a rejected body is not read, which ends the connection.
    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut connection = Connection::open(self.address()).await;
        connection.send(method, path, headers, body.to_owned()).await.expect("an answer")
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        self.send("GET", path, headers, "").await
    }
}

fn assert_forbidden(reply: Reply, text: &str) {
    let reply = reply.expect(403);
    assert_eq!((reply.reason(), reply.json["kind"].as_str()), ("Forbidden", Some("Status")));
    assert!(reply.message().contains(text), "{text} in {}", reply.message());
}

#[tokio::test]
async fn a_host_that_is_neither_loopback_nor_configured_is_forbidden_except_for_health() {
    let options = Options { hosts: vec!["dev.example.com".into(), "10.1.2.3".into()], ..Options::default() };
    let fixture = Fixture::new(options).await;
    let own = fixture.address().to_string();
    for host in [&own, "localhost:1", "127.9.9.9", "[::1]:443", "dev.example.com:8080", "10.1.2.3"] {
        fixture.get("/api/v1/secrets", &[("host", host)]).await.expect(200);
    }
    for host in ["evil.example", "10.1.2.4:6443", "localhost.evil.example", ""] {
        for path in ["/api/v1/secrets", "/version", "/", "/healthzz"] {
            let text = "it is neither loopback nor configured; use localhost, add the host to `Options::hosts`";
            assert_forbidden(fixture.get(path, &[("host", host)]).await, text);
        }
        for path in ["/healthz", "/livez", "/readyz", "/readyz/ping"] {
            fixture.get(path, &[("host", host)]).await.expect(200);
        }
        // Not a way around: the path is not normalised.
        fixture.get("/healthz/../api/v1/secrets", &[("host", host)]).await.expect(404);
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
        (vec![PAGE[0]], "cannot serve pages of origin \"http://evil.example\""),
        (vec![PAGE[0], JSON], "cannot serve pages of origin"),
        (vec![("origin", "null")], "cannot serve pages of origin"),
        (vec![("origin", "http://localhost:3000"), JSON], "cannot serve pages of origin"),
        (vec![PAGE[1]], "cannot serve pages of another site"),
        (vec![("origin", &own)], "cannot read a body without a content type from a browser"),
        (vec![("sec-fetch-mode", "no-cors")], "cannot read a body without a content type from a browser"),
    ] {
        let reply = fixture.send("POST", CONFIG_MAPS, &[&[host][..], &headers].concat(), &object).await;
        assert_forbidden(reply, text);
    }
    assert_eq!(fixture.get(CONFIG_MAPS, &[]).await.expect(200).names(), [""; 0]);
    let refused = fixture.server.journal().entries().iter().filter(|entry| entry.code == 403).count();
    assert_eq!(refused, 7, "the journal has them");

    // The server's own pages and programs can, also without a content type, as on the real server.
    let own = [host, ("origin", &own), ("sec-fetch-site", "same-origin"), JSON];
    fixture.send("POST", CONFIG_MAPS, &own, &config_map("own").to_string()).await.expect(201);
    fixture.send("POST", CONFIG_MAPS, &[host], &config_map("program").to_string()).await.expect(201);
}

#[tokio::test]
async fn a_server_with_tokens_answers_any_host_and_origin() {
    let authenticator = Authenticator::from_token_file("good,alice,u1\n").expect("tokens");
    let fixture = Fixture::new(Options { authenticator, ..Options::default() }).await;
    let headers = [("host", "evil.example"), PAGE[0], PAGE[1], ("authorization", "Bearer good")];
    fixture.get(CONFIG_MAPS, &headers).await.expect(200);
    fixture.get(CONFIG_MAPS, &headers[..3]).await.expect(403);
}

#[tokio::test]
async fn an_invalid_host_in_the_options_is_an_error() {
    let error = ApiServer::new(Options { hosts: vec!["dev.example.com:80".into()], ..Options::default() });
    let error = error.expect_err("it has a port");
    assert!(matches!(&error, StartError::Host(host) if host == "dev.example.com:80"), "{error}");
    assert!(error.to_string().contains("without scheme and port"), "{error}");
}
