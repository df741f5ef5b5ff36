//! The server's doors: sockets, plain and with TLS, and who comes in by them.

use crate::{
    support::{CONFIG_MAPS, Server, config_map},
    wire::{Connection, JSON},
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
    config::{KubeConfigOptions, Kubeconfig as Read},
};
use serde_json::json;
use std::{net::SocketAddr, time::Duration};
use steersman_apiserver::{
    ApiServer, Authenticator, Authority, Closed, Credentials, Fault, Identity, Kubeconfig, ListenError, Options,
    Running,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};
use tower_service::Service;

const PATIENCE: Duration = Duration::from_secs(20);
/// As in the real server.
const LIMIT: usize = 3 << 20;

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn start(tokens: Option<&str>) -> ApiServer {
    let authenticator = tokens.map(|text| Authenticator::from_token_file(text).expect("tokens")).unwrap_or_default();
    ApiServer::new(Options { authenticator, ..Options::default() }).expect("a server without data starts")
}

async fn open(server: &ApiServer, authority: Option<&Authority>) -> Running {
    server.listen(loopback(), authority).await.expect("loopback is free")
}

/// As kubectl and others would: from the file's text.
async fn client(kubeconfig: &Kubeconfig) -> Client {
    let read = Read::from_yaml(&kubeconfig.to_yaml()).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.expect("a config");
    Client::try_from(config).expect("a client")
}

fn maps(client: Client) -> Api<ConfigMap> {
    Api::default_namespaced(client)
}

async fn create(api: &Api<ConfigMap>, name: &str) -> kube::Result<ConfigMap> {
    api.create(&PostParams::default(), &serde_json::from_value(config_map(name)).expect("a config map")).await
}

fn last_user(server: &ApiServer) -> String {
    server.journal().entries().last().expect("a request").user.clone()
}

/// Its code and text.
fn refusal(result: kube::Result<ConfigMap>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn kube_comes_in_by_the_kubeconfig_over_http_and_over_tls() {
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
        create(&api, "a").await.expect("made");
        assert_eq!(api.list(&ListParams::default()).await.expect("a list").items.len(), 1);
        assert_eq!(last_user(&server), "system:admin");
        running.stop().await;
    }
}

#[tokio::test]
async fn another_authority_is_not_trusted_by_the_client() {
    let server = start(None);
    let running = open(&server, Some(&Authority::generate().expect("an authority"))).await;
    let mut kubeconfig = running.kubeconfig();
    kubeconfig.ca_pem = Some(Authority::generate().expect("an authority").ca_pem());
    create(&maps(client(&kubeconfig).await), "a").await.expect_err("it could be anybody");
    assert!(server.journal().entries().is_empty());
}

#[tokio::test]
async fn tokens_say_who_asks() {
    let server = start(Some("good,alice,u1,\"dev,ops\"\n"));
    let authority = Authority::generate().expect("an authority");
    for authority in [None, Some(&authority)] {
        let running = open(&server, authority).await;
        let with = async |credentials| maps(client(&running.kubeconfig_for(credentials)).await);
        let name = if authority.is_some() { "tls" } else { "plain" };
        create(&with(Credentials::Token("good".into())).await, name).await.expect("alice is known");
        assert_eq!(last_user(&server), "alice");
        let bad = refusal(create(&with(Credentials::Token("bad".into())).await, "x").await);
        assert_eq!(bad, (401, "Unauthorized".into()));
        let (code, text) = refusal(create(&with(Credentials::None).await, "x").await);
        assert_eq!(code, 403);
        let nobody = "configmaps is forbidden: User \"system:anonymous\" cannot create resource \"configmaps\" in API group \"\" \
                      in the namespace \"default\"";
        assert_eq!(text, nobody);
    }
}

#[tokio::test]
async fn nobody_is_told_what_there_is_but_everybody_that_it_is_well() {
    let server = start(Some("good,alice,u1\n"));
    let running = open(&server, None).await;
    let mut connection = Connection::open(running.addr()).await;
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        connection.get(path).await.expect("an answer").expect(200);
    }
    for path in ["/", "/api", "/apis", "/apis/apps", "/apis/apps/v1", "/nothing"] {
        let refused = connection.get(path).await.expect("an answer").expect(403);
        let text = format!("forbidden: User \"system:anonymous\" cannot get path \"{path}\"");
        assert_eq!((refused.message(), refused.reason()), (text.as_str(), "Forbidden"));
        let known = [("authorization", "Bearer good")];
        assert_ne!(connection.send("GET", path, &known, "").await.expect("an answer").code, 403, "{path}");
    }
    // Whether there is such a resource is not for them to know either.
    let refused = connection.get("/apis/no.such/v1/things").await.expect("an answer").expect(403);
    assert!(
        refused.message().starts_with("things.no.such is forbidden: User \"system:anonymous\" cannot list"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn certificates_say_who_asks_and_go_before_tokens() {
    let server = start(Some("good,alice,u1\n"));
    let authority = Authority::generate().expect("an authority");
    let running = open(&server, Some(&authority)).await;
    create(&maps(client(&running.kubeconfig()).await), "a").await.expect("the admin is known by certificate");
    assert_eq!(last_user(&server), "system:admin");
    let bob = authority.client_certificate("bob", &["dev"]).expect("a certificate");
    create(&maps(client(&running.kubeconfig_for(Credentials::Certificate(bob))).await), "b")
        .await
        .expect("bob is known");
    assert_eq!(last_user(&server), "bob");
    let stranger = Authority::generate().expect("an authority").client_certificate("bob", &[]).expect("a certificate");
    let stranger = running.kubeconfig_for(Credentials::Certificate(stranger));
    create(&maps(client(&stranger).await), "c").await.expect_err("another authority's bob is not");
}

#[tokio::test]
async fn other_addresses_than_loopback_need_tokens_and_tls() {
    let everywhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let refused = start(None).listen(everywhere, None).await.expect_err("everybody would be admin");
    assert!(matches!(refused, ListenError::Open(_)) && refused.to_string().contains("127.0.0.1"), "{refused}");
    let server = start(Some("good,alice,u1\n"));
    let refused = server.listen(everywhere, None).await.expect_err("others could read the tokens");
    assert!(matches!(refused, ListenError::Readable(_)) && refused.to_string().contains("--tls"), "{refused}");
    let authority = Authority::generate().expect("an authority");
    let running = server.listen(everywhere, Some(&authority)).await.expect("there are tokens and TLS");
    let api = maps(client(&running.kubeconfig_for(Credentials::Token("good".into()))).await);
    create(&api, "a").await.expect("alice is known");
}

#[tokio::test]
async fn watches_go_over_sockets_and_end_when_the_server_stops() {
    let authority = Authority::generate().expect("an authority");
    for authority in [None, Some(&authority)] {
        let server = start(None);
        let running = open(&server, authority).await;
        let api = maps(client(&running.kubeconfig()).await);
        let events = api.watch(&WatchParams::default(), "0").await.expect("a watch");
        pin_mut!(events);
        for n in 0..3 {
            create(&api, &format!("c{n}")).await.expect("made");
            let event =
                timeout(PATIENCE, events.next()).await.expect("in time").expect("it goes on").expect("an event");
            assert!(matches!(event, WatchEvent::Added(map) if map.name_any() == format!("c{n}")));
        }
        timeout(PATIENCE, running.stop()).await.expect("it stops");
        let end = timeout(PATIENCE, events.next()).await.expect("in time");
        assert!(end.is_none(), "a clean end: {end:?}");
        create(&api, "d").await.expect_err("nobody listens");
        assert_eq!(server.revision(), server.fork().revision(), "the server itself goes on");
    }
}

#[tokio::test]
async fn in_process_a_service_is_somebodys() {
    let server = start(Some("good,alice,u1\n"));
    let as_user = |identity| maps(Client::new(server.service_as(identity), "default"));
    create(&as_user(Identity::new("carol", "", ["dev"])), "a").await.expect("carol is known");
    assert_eq!(last_user(&server), "carol");
    assert_eq!(refusal(create(&as_user(Identity::anonymous()), "b").await).0, 403);
    assert_eq!(refusal(create(&maps(Client::new(server.service(), "default")), "c").await).0, 403, "it has no token");
}

/// It is not told that there is nothing.
#[tokio::test(start_paused = true)]
async fn who_is_still_waiting_when_the_server_ends_is_cut_off() {
    for request in
        [CONFIG_MAPS.to_owned(), format!("{CONFIG_MAPS}?watch=true"), format!("{CONFIG_MAPS}/kube-root-ca.crt")]
    {
        let server = start(None);
        server.faults().add(Fault::on("* configmaps").delay(Duration::from_secs(1)));
        let asked = Request::get(&request).body(Full::<Bytes>::default()).expect("a request");
        let answer = server.service().call(asked);
        drop(server);
        assert_eq!(answer.await.map(|answer| answer.status()), Err(Closed), "{request}");
    }
}

#[tokio::test]
async fn what_is_too_long_is_refused_in_words_over_sockets_too() {
    let server = start(None);
    let authority = Authority::generate().expect("an authority");
    let map = |length: usize| {
        let map = json!({"metadata": {"name": "long"}, "data": {"k": "v".repeat(length)}});
        serde_json::from_value::<ConfigMap>(map).expect("a config map")
    };
    for authority in [None, Some(&authority)] {
        let running = open(&server, authority).await;
        let api = maps(client(&running.kubeconfig()).await);
        for length in [LIMIT, 3 * LIMIT] {
            let (code, text) = refusal(api.create(&PostParams::default(), &map(length)).await);
            assert_eq!((code, text.as_str()), (413, "Request entity too large: limit is 3145728"));
        }
        // Shorter than that, it is the object that is too long, and not the request.
        assert_eq!(refusal(api.create(&PostParams::default(), &map(2 << 20)).await).0, 422);
    }
}

#[tokio::test]
async fn what_is_too_long_is_refused_even_if_its_length_was_not_told() {
    let server = start(None);
    let running = open(&server, None).await;
    let mut connection = Connection::open(running.addr()).await;
    let chunk = Bytes::from(vec![b' '; 1 << 16]);
    let chunks = stream::iter((0..=LIMIT / chunk.len()).map(move |_| Ok(Frame::data(chunk.clone()))));
    let reply = connection.send_body("POST", CONFIG_MAPS, &[JSON], BodyExt::boxed(StreamBody::new(chunks))).await;
    assert_eq!(reply.expect("an answer").expect(413).reason(), "RequestEntityTooLarge");
}

#[tokio::test]
async fn one_connection_serves_many_requests_whatever_they_are() {
    let server = start(None);
    let running = open(&server, None).await;
    let mut connection = Connection::open(running.addr()).await;
    for round in 0..20 {
        let name = format!("c{round}");
        connection.post(CONFIG_MAPS, &config_map(&name)).await.expect("an answer").expect(201);
        connection.post(CONFIG_MAPS, &config_map(&name)).await.expect("an answer").expect(409);
        connection.get(&format!("{CONFIG_MAPS}/none")).await.expect("an answer").expect(404);
        connection.get("/nothing").await.expect("an answer").expect(404);
        connection.send("POST", CONFIG_MAPS, &[JSON], "{").await.expect("an answer").expect(400);
        let list = connection.get(CONFIG_MAPS).await.expect("an answer").expect(200);
        assert_eq!(list.names().len(), round + 1);
    }
    assert_eq!(server.journal().entries().len(), 120);
}

#[tokio::test]
async fn heads_have_no_body() {
    let server = Server::of(start(None));
    let running = open(&server.server, None).await;
    let mut connection = Connection::open(running.addr()).await;
    for path in ["/healthz", "/version", "/apis", CONFIG_MAPS, "/nothing"] {
        let head = connection.send("HEAD", path, &[], "").await.expect("an answer");
        assert_eq!(head.text, "", "{path}");
        let whole = connection.get(path).await.expect("the connection is still good");
        if head.code == whole.code {
            assert_eq!(head.headers["content-length"], whole.text.len().to_string().as_str(), "{path}");
        }
    }
}

/// Starts a request whose body has these parts, each after a pause, and then does not end.
async fn unfinished(server: &ApiServer, parts: usize, pause: Duration) -> (u16, Duration) {
    let started = Instant::now();
    let parts = stream::iter(0..parts).then(move |_| async move {
        sleep(pause).await;
        Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from_static(b" ")))
    });
    let body = StreamBody::new(Box::pin(parts.chain(stream::pending())));
    let request = Request::post(CONFIG_MAPS).body(body).expect("a request");
    let response = server.service().call(request).await.expect("an answer");
    (response.status().as_u16(), started.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_body_that_pauses_or_does_not_end_is_answered_with_408() {
    let server = start(None);
    let (code, took) = unfinished(&server, 0, Duration::ZERO).await;
    assert_eq!((code, took.as_secs()), (408, 30));
    let (code, took) = unfinished(&server, 100, Duration::from_secs(20)).await;
    assert_eq!((code, took.as_secs()), (408, 60));
}

/// Time passes when every task waits.
#[tokio::test(start_paused = true)]
async fn connections_with_unfinished_bodies_are_closed_and_not_waited_for() {
    let server = start(None);
    let running = open(&server, None).await;
    let mut streams = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(running.addr()).await.expect("a connection");
        let head = format!(
            "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("a request");
        stream.read_exact(&mut [0; 25]).await.expect("the server waits for the body");
        streams.push(stream);
    }
    let started = Instant::now();
    server.wait_idle().await;
    assert_eq!(started.elapsed(), Duration::ZERO);
    for mut stream in streams {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an end");
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
    assert_eq!(server.journal().entries().last().expect("a request").code, 408);
}
