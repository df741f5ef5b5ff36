//! The server on sockets: HTTP and TLS, authentication, limits of request bodies, shutdown.

use crate::{
    connection::{Connection, JSON},
    support::{CONFIG_MAPS, Server, config_map},
};
use bytes::Bytes;
use futures::{StreamExt, pin_mut, stream};
use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams, WatchEvent, WatchParams},
    config::{KubeConfigOptions, Kubeconfig as KubeKubeconfig},
};
use serde_json::json;
use std::{net::SocketAddr, time::Duration};
use steersman_apiserver::{
    ApiServer, Authenticator, Authority, Closed, Credentials, Fault, Identity, Kubeconfig,
    ListenError, Options, RunningServer,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};
use tower_service::Service;

const TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum size of a request body, as in the real server.
const MAX_BODY: usize = 3 << 20;

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn start(tokens: Option<&str>) -> ApiServer {
    let authenticator = tokens
        .map(|text| Authenticator::from_token_file(text).expect("tokens"))
        .unwrap_or_default();
    ApiServer::new(Options {
        authenticator,
        ..Options::default()
    })
    .expect("a server without data starts")
}

async fn open(server: &ApiServer, authority: Option<&Authority>) -> RunningServer {
    server
        .listen(loopback(), authority)
        .await
        .expect("loopback is free")
}

/// Creates a client from the kubeconfig's YAML, as kubectl does.
async fn client(kubeconfig: &Kubeconfig) -> Client {
    let read = KubeKubeconfig::from_yaml(&kubeconfig.to_yaml()).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
        .await
        .expect("a config");
    Client::try_from(config).expect("a client")
}

fn maps(client: Client) -> Api<ConfigMap> {
    Api::default_namespaced(client)
}

async fn create(api: &Api<ConfigMap>, name: &str) -> kube::Result<ConfigMap> {
    api.create(
        &PostParams::default(),
        &serde_json::from_value(config_map(name)).expect("a config map"),
    )
    .await
}

fn last_user(server: &ApiServer) -> String {
    server
        .journal()
        .entries()
        .last()
        .expect("a request")
        .user
        .clone()
}

/// Returns code and message of the API error.
fn api_error(result: kube::Result<ConfigMap>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn kube_connects_with_the_kubeconfig_over_http_and_tls() {
    let authority = Authority::generate().expect("an authority");
    for authority in [None, Some(&authority)] {
        let server = start(None);
        let running = open(&server, authority).await;
        assert!(running.url().starts_with(if authority.is_some() {
            "https://127.0.0.1:"
        } else {
            "http://127.0.0.1:"
        }));
        let api = maps(client(&running.kubeconfig()).await);
        create(&api, "a").await.expect("created");
        assert_eq!(
            api.list(&ListParams::default())
                .await
                .expect("a list")
                .items
                .len(),
            1
        );
        assert_eq!(last_user(&server), "system:admin");
        running.stop().await;
    }
}

#[tokio::test]
async fn a_client_rejects_a_server_certificate_of_another_authority() {
    let server = start(None);
    let running = open(&server, Some(&Authority::generate().expect("an authority"))).await;
    let mut kubeconfig = running.kubeconfig();
    kubeconfig.ca_pem = Some(Authority::generate().expect("an authority").ca_pem());
    create(&maps(client(&kubeconfig).await), "a")
        .await
        .expect_err("the certificate is not trusted");
    assert!(server.journal().entries().is_empty());
}

#[tokio::test]
async fn tokens_authenticate_users() {
    let server = start(Some("good,alice,u1,\"dev,ops\"\n"));
    let authority = Authority::generate().expect("an authority");
    for authority in [None, Some(&authority)] {
        let running = open(&server, authority).await;
        let with = async |credentials| maps(client(&running.kubeconfig_for(credentials)).await);
        let name = if authority.is_some() { "tls" } else { "plain" };
        create(&with(Credentials::Token("good".into())).await, name)
            .await
            .expect("alice is authenticated");
        assert_eq!(last_user(&server), "alice");
        let bad = api_error(create(&with(Credentials::Token("bad".into())).await, "x").await);
        assert_eq!(bad, (401, "Unauthorized".into()));
        let (code, text) = api_error(create(&with(Credentials::None).await, "x").await);
        assert_eq!(code, 403);
        let forbidden = "configmaps is forbidden: User \"system:anonymous\" cannot create resource \"configmaps\" in API group \"\" \
                      in the namespace \"default\"";
        assert_eq!(text, forbidden);
    }
}

#[tokio::test]
async fn anonymous_users_can_read_health_and_version_but_not_discovery() {
    let server = start(Some("good,alice,u1\n"));
    let running = open(&server, None).await;
    let mut connection = Connection::open(running.addr()).await;
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        connection.get(path).await.expect("a response").expect(200);
    }
    for path in [
        "/",
        "/api",
        "/apis",
        "/apis/apps",
        "/apis/apps/v1",
        "/nothing",
    ] {
        let rejected = connection.get(path).await.expect("a response").expect(403);
        let text = format!("forbidden: User \"system:anonymous\" cannot get path \"{path}\"");
        assert_eq!(
            (rejected.message(), rejected.reason()),
            (text.as_str(), "Forbidden")
        );
        let token = [("authorization", "Bearer good")];
        assert_ne!(
            connection
                .send("GET", path, &token, "")
                .await
                .expect("a response")
                .code,
            403,
            "{path}"
        );
    }
    // The response is the same for unknown resources.
    let rejected = connection
        .get("/apis/no.such/v1/things")
        .await
        .expect("a response")
        .expect(403);
    assert!(
        rejected
            .message()
            .starts_with("things.no.such is forbidden: User \"system:anonymous\" cannot list"),
        "{rejected:?}"
    );
}

#[tokio::test]
async fn client_certificates_authenticate_users() {
    let server = start(Some("good,alice,u1\n"));
    let authority = Authority::generate().expect("an authority");
    let running = open(&server, Some(&authority)).await;
    create(&maps(client(&running.kubeconfig()).await), "a")
        .await
        .expect("the admin has a client certificate");
    assert_eq!(last_user(&server), "system:admin");
    let bob = authority
        .client_certificate("bob", &["dev"])
        .expect("a certificate");
    create(
        &maps(client(&running.kubeconfig_for(Credentials::Certificate(bob))).await),
        "b",
    )
    .await
    .expect("bob is authenticated");
    assert_eq!(last_user(&server), "bob");
    let untrusted = Authority::generate()
        .expect("an authority")
        .client_certificate("bob", &[])
        .expect("a certificate");
    let untrusted = running.kubeconfig_for(Credentials::Certificate(untrusted));
    create(&maps(client(&untrusted).await), "c")
        .await
        .expect_err("the certificate is of another authority");
}

#[tokio::test]
async fn listening_beyond_loopback_requires_tokens_and_tls() {
    let all_interfaces = SocketAddr::from(([0, 0, 0, 0], 0));
    let rejected = start(None)
        .listen(all_interfaces, None)
        .await
        .expect_err("every caller would be admin");
    assert!(
        matches!(rejected, ListenError::AnonymousAdmin(_))
            && rejected.to_string().contains("127.0.0.1"),
        "{rejected}"
    );
    let server = start(Some("good,alice,u1\n"));
    let rejected = server
        .listen(all_interfaces, None)
        .await
        .expect_err("tokens would be sent in plain text");
    assert!(
        matches!(rejected, ListenError::TokensWithoutTls(_))
            && rejected.to_string().contains("--tls"),
        "{rejected}"
    );
    let authority = Authority::generate().expect("an authority");
    let running = server
        .listen(all_interfaces, Some(&authority))
        .await
        .expect("the server has tokens and TLS");
    let api = maps(client(&running.kubeconfig_for(Credentials::Token("good".into()))).await);
    create(&api, "a").await.expect("alice is authenticated");
}

#[tokio::test]
async fn watches_over_sockets_end_cleanly_when_the_listener_stops() {
    let authority = Authority::generate().expect("an authority");
    for authority in [None, Some(&authority)] {
        let server = start(None);
        let running = open(&server, authority).await;
        let api = maps(client(&running.kubeconfig()).await);
        let events = api
            .watch(&WatchParams::default(), "0")
            .await
            .expect("a watch");
        pin_mut!(events);
        for n in 0..3 {
            create(&api, &format!("c{n}")).await.expect("created");
            let event = timeout(TIMEOUT, events.next())
                .await
                .expect("in time")
                .expect("the watch is open")
                .expect("an event");
            assert!(matches!(event, WatchEvent::Added(map) if map.name_any() == format!("c{n}")));
        }
        timeout(TIMEOUT, running.stop())
            .await
            .expect("the listener stops");
        let end = timeout(TIMEOUT, events.next()).await.expect("in time");
        assert!(end.is_none(), "the watch ends without an error: {end:?}");
        create(&api, "d").await.expect_err("the listener is closed");
        assert_eq!(
            server.revision(),
            server.fork().revision(),
            "the server still runs"
        );
    }
}

#[tokio::test]
async fn an_in_process_service_has_the_identity_it_was_created_with() {
    let server = start(Some("good,alice,u1\n"));
    let as_user = |identity| maps(Client::new(server.service_as(identity), "default"));
    create(&as_user(Identity::new("carol", "", ["dev"])), "a")
        .await
        .expect("carol is authenticated");
    assert_eq!(last_user(&server), "carol");
    assert_eq!(
        api_error(create(&as_user(Identity::anonymous()), "b").await).0,
        403
    );
    assert_eq!(
        api_error(create(&maps(Client::new(server.service(), "default")), "c").await).0,
        403,
        "the service has no token"
    );
}

/// In particular, the server does not answer with an empty list or 404.
#[tokio::test(start_paused = true)]
async fn dropping_the_server_closes_pending_requests() {
    for request in [
        CONFIG_MAPS.to_owned(),
        format!("{CONFIG_MAPS}?watch=true"),
        format!("{CONFIG_MAPS}/kube-root-ca.crt"),
    ] {
        let server = start(None);
        server
            .faults()
            .add(Fault::on("* configmaps").delay(Duration::from_secs(1)));
        let pending = Request::get(&request)
            .body(Full::<Bytes>::default())
            .expect("a request");
        let response = server.service().call(pending);
        drop(server);
        assert_eq!(
            response.await.map(|response| response.status()),
            Err(Closed),
            "{request}"
        );
    }
}

#[tokio::test]
async fn an_oversized_body_over_a_socket_is_answered_with_413() {
    let server = start(None);
    let authority = Authority::generate().expect("an authority");
    let map = |length: usize| {
        let map = json!({"metadata": {"name": "long"}, "data": {"k": "v".repeat(length)}});
        serde_json::from_value::<ConfigMap>(map).expect("a config map")
    };
    for authority in [None, Some(&authority)] {
        let running = open(&server, authority).await;
        let api = maps(client(&running.kubeconfig()).await);
        for length in [MAX_BODY, 3 * MAX_BODY] {
            let (code, text) = api_error(api.create(&PostParams::default(), &map(length)).await);
            assert_eq!(
                (code, text.as_str()),
                (413, "Request entity too large: limit is 3145728")
            );
        }
        // A body within the limit is rejected for the size of the object.
        assert_eq!(
            api_error(api.create(&PostParams::default(), &map(2 << 20)).await).0,
            422
        );
    }
}

#[tokio::test]
async fn an_oversized_chunked_body_is_answered_with_413() {
    let server = start(None);
    let running = open(&server, None).await;
    let mut connection = Connection::open(running.addr()).await;
    let chunk = Bytes::from(vec![b' '; 1 << 16]);
    let chunks =
        stream::iter((0..=MAX_BODY / chunk.len()).map(move |_| Ok(Frame::data(chunk.clone()))));
    let reply = connection
        .send_body(
            "POST",
            CONFIG_MAPS,
            &[JSON],
            BodyExt::boxed(StreamBody::new(chunks)),
        )
        .await;
    assert_eq!(
        reply.expect("a response").expect(413).reason(),
        "RequestEntityTooLarge"
    );
}

#[tokio::test]
async fn one_connection_serves_many_requests_including_errors() {
    let server = start(None);
    let running = open(&server, None).await;
    let mut connection = Connection::open(running.addr()).await;
    for round in 0..20 {
        let name = format!("c{round}");
        connection
            .post(CONFIG_MAPS, &config_map(&name))
            .await
            .expect("a response")
            .expect(201);
        connection
            .post(CONFIG_MAPS, &config_map(&name))
            .await
            .expect("a response")
            .expect(409);
        connection
            .get(&format!("{CONFIG_MAPS}/none"))
            .await
            .expect("a response")
            .expect(404);
        connection
            .get("/nothing")
            .await
            .expect("a response")
            .expect(404);
        connection
            .send("POST", CONFIG_MAPS, &[JSON], "{")
            .await
            .expect("a response")
            .expect(400);
        let list = connection
            .get(CONFIG_MAPS)
            .await
            .expect("a response")
            .expect(200);
        assert_eq!(list.names().len(), round + 1);
    }
    assert_eq!(server.journal().entries().len(), 120);
}

#[tokio::test]
async fn head_responses_have_no_body() {
    let server = Server::new(start(None));
    let running = open(&server.server, None).await;
    let mut connection = Connection::open(running.addr()).await;
    for path in ["/healthz", "/version", "/apis", CONFIG_MAPS, "/nothing"] {
        let head = connection
            .send("HEAD", path, &[], "")
            .await
            .expect("a response");
        assert_eq!(head.text, "", "{path}");
        let whole = connection.get(path).await.expect("an open connection");
        if head.code == whole.code {
            assert_eq!(
                head.headers["content-length"],
                whole.text.len().to_string().as_str(),
                "{path}"
            );
        }
    }
}

/// Sends a request whose body has `parts` chunks, each after `pause`, and never ends. Returns the
/// status code and the time until the response.
async fn send_unfinished(server: &ApiServer, parts: usize, pause: Duration) -> (u16, Duration) {
    let started = Instant::now();
    let parts = stream::iter(0..parts).then(move |_| async move {
        sleep(pause).await;
        Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from_static(b" ")))
    });
    let body = StreamBody::new(Box::pin(parts.chain(stream::pending())));
    let request = Request::post(CONFIG_MAPS).body(body).expect("a request");
    let response = server.service().call(request).await.expect("a response");
    (response.status().as_u16(), started.elapsed())
}

#[tokio::test(start_paused = true)]
async fn an_unfinished_body_is_answered_with_408() {
    let server = start(None);
    let (code, took) = send_unfinished(&server, 0, Duration::ZERO).await;
    assert_eq!((code, took.as_secs()), (408, 30));
    let (code, took) = send_unfinished(&server, 100, Duration::from_secs(20)).await;
    assert_eq!((code, took.as_secs()), (408, 60));
}

/// Paused time advances only while every task waits.
#[tokio::test(start_paused = true)]
async fn connections_with_unfinished_bodies_time_out_and_do_not_delay_wait_idle() {
    let server = start(None);
    let running = open(&server, None).await;
    let mut streams = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(running.addr())
            .await
            .expect("a connection");
        let head = format!(
            "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("a request");
        stream
            .read_exact(&mut [0; 25])
            .await
            .expect("the server waits for the body");
        streams.push(stream);
    }
    let started = Instant::now();
    server.wait_idle().await;
    assert_eq!(started.elapsed(), Duration::ZERO);
    for mut stream in streams {
        let mut response = String::new();
        stream
            .read_to_string(&mut response)
            .await
            .expect("a closed connection");
        assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
    }
    assert_eq!(
        server.journal().entries().last().expect("a request").code,
        408
    );
}
