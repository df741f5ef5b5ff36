use super::*;
use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full, StreamBody};
use std::{convert::Infallible, future::ready, sync::Arc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Notify,
};

type TestBody = Either<
    Full<Bytes>,
    StreamBody<futures::channel::mpsc::Receiver<Result<Frame<Bytes>, Infallible>>>,
>;

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A service with these paths: `/whoami` returns the user, `/slow` takes a second, `/stuck` never
/// answers, `/watch` sends one line and never ends, `/close` closes the connection.
#[derive(Clone, Default)]
struct Example {
    /// Notified when a request for `/slow` or `/stuck` arrives.
    arrived: Arc<Notify>,
}

impl Service<Request<Incoming>> for Example {
    type Response = Response<TestBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<TestBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let full = |text: String| Response::new(Either::Left(Full::from(text)));
        match request.uri().path() {
            "/slow" => {
                self.arrived.notify_one();
                Box::pin(async move {
                    sleep(Duration::from_secs(1)).await;
                    Ok(full("done".into()))
                })
            }
            "/stuck" => {
                self.arrived.notify_one();
                Box::pin(std::future::pending())
            }
            "/watch" => {
                let (mut events, receiver) = futures::channel::mpsc::channel(1);
                events
                    .try_send(Ok(Frame::data(Bytes::from_static(b"event\n"))))
                    .unwrap();
                std::mem::forget(events);
                Box::pin(ready(Ok(Response::new(Either::Right(StreamBody::new(
                    receiver,
                ))))))
            }
            "/close" => {
                let cut = Closed::response::<Full<Bytes>>();
                Box::pin(ready(Ok(cut.map(Either::Left))))
            }
            _ => {
                let user = request
                    .extensions()
                    .get::<Identity>()
                    .map(|identity| identity.user.clone());
                let answer = format!("{{\"user\":\"{}\"}}", user.unwrap_or_default());
                Box::pin(ready(Ok(full(answer))))
            }
        }
    }
}

async fn plain() -> RunningServer {
    RunningServer::start(
        LOOPBACK,
        None,
        &Authenticator::default(),
        ConnectionLimits::default(),
        Example::default(),
    )
    .await
    .unwrap()
}

async fn send(running: &RunningServer, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(running.addr()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn get(running: &RunningServer, path: &str) -> TcpStream {
    send(running, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).await
}

/// Reads until the server closes the connection. Empty if the connection was reset.
async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text).await;
    String::from_utf8(text).unwrap()
}

async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(end) {
        text.push(stream.read_u8().await.unwrap().into());
    }
    text
}

#[tokio::test]
async fn connections_are_kept() {
    let running = plain().await;
    assert_eq!(running.url(), format!("http://{}", running.addr()));
    let mut stream = get(&running, "/whoami").await;
    assert!(
        read_until(&mut stream, "}")
            .await
            .ends_with("{\"user\":\"\"}")
    );
    stream
        .write_all(b"GET /whoami HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    assert!(read_to_end(&mut stream).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test(start_paused = true)]
async fn a_client_beyond_the_limit_waits_until_a_connection_is_closed() {
    let limits = ConnectionLimits {
        max_connections: 2,
        ..ConnectionLimits::default()
    };
    let running = RunningServer::start(
        LOOPBACK,
        None,
        &Authenticator::default(),
        limits,
        Example::default(),
    )
    .await
    .unwrap();
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = get(&running, "/whoami").await;
        read_until(&mut stream, "}").await;
        open.push(stream);
    }
    let mut third = get(&running, "/whoami").await;
    timeout(Duration::from_mins(1), third.read_u8())
        .await
        .unwrap_err();
    open.pop();
    assert!(read_until(&mut third, "}").await.contains("HTTP/1.1 200"));
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_closed_if_the_head_of_a_request_is_not_complete_in_time() {
    let limits = ConnectionLimits {
        head_timeout: Duration::from_secs(7),
        ..ConnectionLimits::default()
    };
    let running = RunningServer::start(
        LOOPBACK,
        None,
        &Authenticator::default(),
        limits,
        Example::default(),
    )
    .await
    .unwrap();
    let started = tokio::time::Instant::now();
    let mut stream = send(&running, "GET /whoami HTTP/1.1\r\nHost: ").await;
    read_to_end(&mut stream).await;
    assert!(
        (7..9).contains(&started.elapsed().as_secs()),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn a_closed_response_is_a_connection_without_a_byte() {
    let running = plain().await;
    assert_eq!(read_to_end(&mut get(&running, "/close").await).await, "");
    assert!(
        read_until(&mut get(&running, "/whoami").await, "}")
            .await
            .starts_with("HTTP/1.1 200"),
        "the server does not accept further connections"
    );
}

#[tokio::test]
async fn stopping_lets_a_request_end_ends_a_watch_cleanly_and_closes_idle_connections() {
    let example = Example::default();
    let running = RunningServer::start(
        LOOPBACK,
        None,
        &Authenticator::default(),
        ConnectionLimits::default(),
        example.clone(),
    )
    .await
    .unwrap();
    let mut slow = get(&running, "/slow").await;
    let mut watch = get(&running, "/watch").await;
    let mut idle = get(&running, "/whoami").await;
    read_until(&mut watch, "event\n").await;
    read_until(&mut idle, "}").await;
    example.arrived.notified().await;
    let addr = running.addr();
    running.stop().await;
    assert!(read_to_end(&mut slow).await.ends_with("done"));
    assert!(
        read_to_end(&mut watch).await.ends_with("0\r\n\r\n"),
        "the chunked body is not terminated"
    );
    assert_eq!(read_to_end(&mut idle).await, "");
    TcpStream::connect(addr).await.unwrap_err();
}

#[tokio::test]
async fn stopping_waits_a_limited_time_for_a_request_that_does_not_end() {
    let example = Example::default();
    let running = RunningServer::start(
        LOOPBACK,
        None,
        &Authenticator::default(),
        ConnectionLimits::default(),
        example.clone(),
    )
    .await
    .unwrap();
    let mut stuck = get(&running, "/stuck").await;
    example.arrived.notified().await;
    tokio::time::pause();
    let stopped = tokio::time::Instant::now();
    running.stop().await;
    assert!((GRACE..2 * GRACE).contains(&stopped.elapsed()));
    assert_eq!(read_to_end(&mut stuck).await, "");
}

#[tokio::test]
async fn dropping_the_handle_stops_the_server() {
    let running = plain().await;
    let mut watch = get(&running, "/watch").await;
    read_until(&mut watch, "event\n").await;
    drop(running);
    assert!(!read_to_end(&mut watch).await.contains("event"));
}

#[tokio::test]
async fn a_request_head_over_the_maximum_size_is_rejected() {
    let running = plain().await;
    for (length, status) in [
        (MAX_HEAD - 100, b"HTTP/1.1 200"),
        (MAX_HEAD, b"HTTP/1.1 431"),
    ] {
        let mut stream = TcpStream::connect(running.addr()).await.unwrap();
        let (mut read, mut write) = stream.split();
        let head = format!(
            "GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n",
            "x".repeat(length)
        );
        let mut answer = [0; 12];
        let (_, answered) = tokio::join!(
            write.write_all(head.as_bytes()),
            read.read_exact(&mut answer)
        );
        answered.unwrap();
        assert_eq!(&answer, status);
    }
}

#[tokio::test]
async fn addresses_other_than_loopback_need_tokens_and_tls() {
    let everywhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let error = RunningServer::start(
        everywhere,
        None,
        &Authenticator::default(),
        ConnectionLimits::default(),
        Example::default(),
    )
    .await
    .unwrap_err();
    assert!(
        error.to_string().contains("--token-auth-file")
            && matches!(error, ListenError::AnonymousAdmin(_)),
        "{error}"
    );
    let tokens = Authenticator::from_token_file("t,alice,u").unwrap();
    let error = RunningServer::start(
        everywhere,
        None,
        &tokens,
        ConnectionLimits::default(),
        Example::default(),
    )
    .await
    .unwrap_err();
    assert!(
        error.to_string().contains("--tls") && matches!(error, ListenError::TokensWithoutTls(_)),
        "{error}"
    );
    let authority = Authority::generate().unwrap();
    let running = RunningServer::start(
        everywhere,
        Some(&authority),
        &tokens,
        ConnectionLimits::default(),
        Example::default(),
    )
    .await
    .unwrap();
    assert!(
        running.url().starts_with("https://127.0.0.1:"),
        "{}",
        running.url()
    );
}

#[tokio::test]
async fn listening_on_an_address_in_use_reports_the_address() {
    let running = plain().await;
    let error = RunningServer::start(
        running.addr(),
        None,
        &Authenticator::default(),
        ConnectionLimits::default(),
        Example::default(),
    )
    .await
    .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with(&format!("cannot listen on {}: ", running.addr())),
        "{error}"
    );
}

async fn whoami(kubeconfig: Kubeconfig) -> kube::Result<serde_json::Value> {
    let read = kube::config::Kubeconfig::from_yaml(&kubeconfig.to_yaml()).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(read, &options)
        .await
        .unwrap();
    kube::Client::try_from(config)?
        .request(Request::get("/whoami").body(Vec::new()).unwrap())
        .await
}

#[tokio::test]
async fn kube_connects_over_tls_as_the_user_of_the_kubeconfig() {
    let authority = Authority::generate().unwrap();
    let running = RunningServer::start(
        LOOPBACK,
        Some(&authority),
        &Authenticator::default(),
        ConnectionLimits::default(),
        Example::default(),
    )
    .await
    .unwrap();
    let alice = Credentials::Certificate(authority.client_certificate("alice", &["dev"]).unwrap());
    for (kubeconfig, user) in [
        (running.kubeconfig(), "system:admin"),
        (running.kubeconfig_for(alice), "alice"),
        (running.kubeconfig_for(Credentials::None), ""),
    ] {
        assert_eq!(whoami(kubeconfig).await.unwrap()["user"], user);
    }
    running.stop().await;
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_rejected() {
    let authority = Authority::generate().unwrap();
    let other = Authority::generate().unwrap();
    let running = RunningServer::start(
        LOOPBACK,
        Some(&authority),
        &Authenticator::default(),
        ConnectionLimits::default(),
        Example::default(),
    )
    .await
    .unwrap();
    let stranger = Credentials::Certificate(
        other
            .client_certificate("system:admin", &["system:masters"])
            .unwrap(),
    );
    whoami(running.kubeconfig_for(stranger)).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_streams_and_completes_bodies_of_known_length() {
    let (stop, stopping) = watch::channel(false);
    let (_events, receiver) =
        futures::channel::mpsc::channel::<Result<Frame<Bytes>, Infallible>>(1);
    let mut stream = EndOnStop::new(StreamBody::new(receiver), stopping.clone());
    let full = EndOnStop::new(Full::<Bytes>::from("whole"), stopping);
    timeout(Duration::from_mins(1), stream.frame())
        .await
        .expect_err("the stream does not end before the stop");
    stop.send_replace(true);
    assert!(stream.frame().await.is_none());
    assert_eq!(full.collect().await.unwrap().to_bytes(), "whole");
}

#[test]
fn only_client_errors_of_accept_are_retried_without_delay() {
    assert!(is_client_error(&io::ErrorKind::ConnectionAborted.into()));
    assert!(
        !is_client_error(&io::Error::from_raw_os_error(24)),
        "too many open files"
    );
}
