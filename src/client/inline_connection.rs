//! Connections that are polled by the task that reads from them.
//!
//! hyper spawns a task for each connection, which passes the body on in parts. Each event of a
//! watch then needs two tasks, and most events wake a thread. A future within
//! [`with_inline_connections`] avoids that: it polls the connections that it opens through a client
//! with the executor [`InlineExecutor`], and [`poll_frame`] polls them before the reader waits.
//!
//! Invariant: a connection is polled only by the task that opened it, and closes with it. It must
//! not be shared, see [`unshared`]: another user would stall while that task is busy.

use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use http::{HeaderValue, Request, header::CONNECTION};
use http_body_util::BodyExt;
use hyper::{body::Frame, rt::Executor};
use kube_client::{Error, client::Body};
use parking_lot::Mutex;
use std::{
    future::{Future, poll_fn},
    mem,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};
use tokio::task_local;

/// A connection, or the future that opens one.
type ConnectionFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

task_local! {
    static CONNECTIONS: Arc<TaskConnections>;
}

/// Connections of a task. Only that task takes the locks, so they are uncontended.
#[derive(Default)]
struct TaskConnections {
    /// Futures that were added since the last poll.
    new: Mutex<Vec<ConnectionFuture>>,
    active: Mutex<FuturesUnordered<ConnectionFuture>>,
}

impl TaskConnections {
    fn poll(&self, cx: &mut Context<'_>) {
        // Held if this is a recursive call from one of the futures.
        let Some(mut active) = self.active.try_lock() else {
            return;
        };
        loop {
            active.extend(mem::take(&mut *self.new.lock()));
            while let Poll::Ready(Some(())) = active.poll_next_unpin(cx) {}
            if self.new.lock().is_empty() {
                return;
            }
        }
    }
}

/// Executor that polls connections in the current task if it is within [`with_inline_connections`].
///
/// Outside of it, connections are spawned as usual.
#[derive(Clone, Copy, Debug)]
pub(super) struct InlineExecutor;

impl Executor<ConnectionFuture> for InlineExecutor {
    fn execute(&self, connection: ConnectionFuture) {
        match CONNECTIONS.try_with(Arc::clone) {
            Ok(connections) => connections.new.lock().push(connection),
            Err(_) => drop(tokio::spawn(connection)),
        }
    }
}

/// Closes the connection after the request, so that the pool does not reuse it.
pub(super) fn unshared<B>(mut request: Request<B>) -> Request<B> {
    request
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    request
}

/// Runs a future and polls the connections that it opens.
pub(crate) async fn with_inline_connections<F: Future>(mut future: Pin<Box<F>>) -> F::Output {
    let connections = Arc::new(TaskConnections::default());
    let polled = poll_fn(|cx| {
        let polled = future.as_mut().poll(cx);
        poll_connections(cx);
        polled
    });
    CONNECTIONS.scope(connections, polled).await
}

/// Polls the next frame of a body, after polling the connections of this task.
pub(crate) fn poll_frame(
    body: &mut Body,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
    let next = pin!(body.frame()).poll(cx);
    if next.is_pending() {
        poll_connections(cx);
        return pin!(body.frame()).poll(cx);
    }
    next
}

/// Polls the connections of this task.
fn poll_connections(cx: &mut Context<'_>) {
    if let Ok(connections) = CONNECTIONS.try_with(Arc::clone) {
        connections.poll(cx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Connection, CountedClient};
    use kube_client::Config;
    use std::{
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
        task::ready,
        time::Duration,
    };
    use tokio::{
        io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
        net::{TcpListener, TcpStream},
        runtime::Handle,
        time::timeout,
    };

    const PARTS: usize = 50;

    /// Starts a server that answers in many parts, and counts its connections.
    async fn server() -> (CountedClient, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let connections = Arc::new(AtomicUsize::new(0));
        let config = Config::new(format!("http://{address}").parse().expect("an address"));
        let counted = connections.clone();
        // The server has its own thread, because the test counts the tasks of this one.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            let listener = listener.into_std().expect("a socket");
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("a socket");
                while let Ok((socket, _)) = listener.accept().await {
                    counted.fetch_add(1, Relaxed);
                    tokio::spawn(response(socket));
                }
            });
        });
        (
            Connection::from(config)
                .informer_client()
                .expect("a client"),
            connections,
        )
    }

    async fn response(socket: TcpStream) {
        let mut response = String::from("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        response.extend((0..PARTS).map(|_| "2\r\n{}\r\n"));
        response.push_str("0\r\n\r\n");
        let mut socket = BufReader::new(socket);
        let mut line = String::new();
        while socket.read_line(&mut line).await.is_ok_and(|read| read > 0) {
            if line == "\r\n" && socket.write_all(response.as_bytes()).await.is_err() {
                return;
            }
            line.clear();
        }
    }

    /// Sends a request and returns how often its future was polled.
    async fn ask(client: &CountedClient) -> usize {
        let request = Request::get("/").body(Body::empty()).expect("a request");
        let watch = async {
            let mut body = client
                .open_watch(request)
                .await
                .expect("an answer")
                .into_body();
            let (mut polls, mut parts) = (0, 0);
            poll_fn(|cx| {
                polls += 1;
                while let Some(part) = ready!(poll_frame(&mut body, cx)) {
                    parts += usize::from(part.expect("no failure").is_data());
                }
                Poll::Ready(())
            })
            .await;
            assert_eq!(parts, PARTS);
            polls
        };
        timeout(Duration::from_secs(10), watch)
            .await
            .expect("the connection is polled")
    }

    fn tasks() -> usize {
        Handle::current().metrics().num_alive_tasks()
    }

    #[tokio::test]
    async fn a_connection_is_polled_by_the_task_that_opened_it() {
        let (client, _) = server().await;
        let before = tasks();
        let polls = with_inline_connections(Box::pin(async {
            let polls = ask(&client).await;
            assert_eq!(tasks(), before, "no task was spawned");
            polls
        }))
        .await;
        assert!(
            polls < PARTS / 2,
            "available data is read at once, not in parts: {polls}"
        );
    }

    #[tokio::test]
    async fn connections_are_spawned_outside_of_the_scope() {
        let (client, _) = server().await;
        let request = Request::get("/").body(Body::empty()).expect("a request");
        let before = tasks();
        let answered = timeout(Duration::from_secs(10), client.open_watch(request))
            .await
            .expect("the connection is polled");
        assert!(tasks() > before);
        drop(answered.expect("an answer"));
        assert!(ask(&client).await > 0);
    }

    #[tokio::test]
    async fn a_connection_is_not_shared_by_two_tasks() {
        let (client, connections) = server().await;
        let (started, has_started) = tokio::sync::oneshot::channel();
        let other = client.clone();
        let waiting = tokio::spawn(with_inline_connections(Box::pin(async move {
            ask(&other).await;
            started.send(()).expect("the receiver is waiting");
            std::future::pending::<()>().await;
        })));
        has_started.await.expect("the first request was sent");
        with_inline_connections(Box::pin(async {
            ask(&client).await;
            ask(&client).await;
        }))
        .await;
        assert_eq!(
            connections.load(Relaxed),
            3,
            "a server that keeps them open is not believed"
        );
        waiting.abort();
    }
}
