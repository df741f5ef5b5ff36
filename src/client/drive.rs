//! Connections in the task that uses them.
//!
//! hyper makes a task of each connection, which hands over what comes part by part: for each event of a watch two tasks take turns, and most
//! of the time one of them wakes a thread for it. A task within [`driving`] does both: a connection that it opens by a client with [`ByWhoAsks`] is its own,
//! and [`poll_part`] lets come what has come for it before anybody waits.
//!
//! What holds: a connection is driven by the task that opened it, and ends with that; so nobody else may use it, see [`alone`]. Who shared one with a task that is busy
//! would wait for as long as that is.

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
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

/// A connection, or what opens one.
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

task_local! {
    static OWN: Arc<Own>;
}

/// What a task drives. Only it takes these locks, so that it never waits for them.
#[derive(Default)]
struct Own {
    /// Begun since the others were polled, perhaps by one of them.
    new: Mutex<Vec<Work>>,
    under_way: Mutex<FuturesUnordered<Work>>,
}

impl Own {
    fn poll(&self, cx: &mut Context<'_>) {
        // One that is polled may not drive the others.
        let Some(mut under_way) = self.under_way.try_lock() else { return };
        loop {
            under_way.extend(mem::take(&mut *self.new.lock()));
            while let Poll::Ready(Some(())) = under_way.poll_next_unpin(cx) {}
            if self.new.lock().is_empty() {
                return;
            }
        }
    }
}

/// The executor of a client whose connections are driven by who asks, or, of those who do not drive, by tasks as usual.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByWhoAsks;

impl Executor<Work> for ByWhoAsks {
    fn execute(&self, work: Work) {
        match OWN.try_with(Arc::clone) {
            Ok(own) => own.new.lock().push(work),
            Err(_) => drop(tokio::spawn(work)),
        }
    }
}

/// On a connection that is closed afterwards: a client keeps none for others that it was asked to close.
pub(super) fn alone<B>(mut request: Request<B>) -> Request<B> {
    request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    request
}

/// Drive what is opened in there.
pub(crate) async fn driving<F: Future>(mut future: Pin<Box<F>>) -> F::Output {
    let own = Arc::new(Own::default());
    let polled = poll_fn(|cx| {
        let polled = future.as_mut().poll(cx);
        drive(cx);
        polled
    });
    OWN.scope(own, polled).await
}

/// The next part of a body, which may have come for a connection of this task.
pub(crate) fn poll_part(body: &mut Body, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
    let next = pin!(body.frame()).poll(cx);
    if next.is_pending() {
        drive(cx);
        return pin!(body.frame()).poll(cx);
    }
    next
}

/// Let come what has come for the connections of this task.
fn drive(cx: &mut Context<'_>) {
    if let Ok(own) = OWN.try_with(Arc::clone) {
        own.poll(cx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Connection, Link};
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

    /// A server that answers everything in many parts at once and keeps connections, and how many it has had.
    async fn server() -> (Link, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let connections = Arc::new(AtomicUsize::new(0));
        let config = Config::new(format!("http://{address}").parse().expect("an address"));
        let counted = connections.clone();
        // A thread of its own: its tasks are not to be counted.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let listener = listener.into_std().expect("a socket");
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("a socket");
                while let Ok((socket, _)) = listener.accept().await {
                    counted.fetch_add(1, Relaxed);
                    tokio::spawn(answer(socket));
                }
            });
        });
        (Connection::from(config).informing().expect("a client"), connections)
    }

    async fn answer(socket: TcpStream) {
        let mut answer = String::from("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        answer.extend((0..PARTS).map(|_| "2\r\n{}\r\n"));
        answer.push_str("0\r\n\r\n");
        let mut socket = BufReader::new(socket);
        let mut line = String::new();
        while socket.read_line(&mut line).await.is_ok_and(|read| read > 0) {
            if line == "\r\n" && socket.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
            line.clear();
        }
    }

    /// Gives how often it was polled.
    async fn ask(link: &Link) -> usize {
        let request = Request::get("/").body(Body::empty()).expect("a request");
        let asked = async {
            let mut body = link.open(request).await.expect("an answer").into_body();
            let (mut polls, mut parts) = (0, 0);
            poll_fn(|cx| {
                polls += 1;
                while let Some(part) = ready!(poll_part(&mut body, cx)) {
                    parts += usize::from(part.expect("no failure").is_data());
                }
                Poll::Ready(())
            })
            .await;
            assert_eq!(parts, PARTS);
            polls
        };
        timeout(Duration::from_secs(10), asked).await.expect("it is driven")
    }

    fn tasks() -> usize {
        Handle::current().metrics().num_alive_tasks()
    }

    #[tokio::test]
    async fn a_connection_is_driven_by_the_task_that_opened_it() {
        let (link, _) = server().await;
        let before = tasks();
        let polls = driving(Box::pin(async {
            let polls = ask(&link).await;
            assert_eq!(tasks(), before, "no task was made for it");
            polls
        }))
        .await;
        assert!(polls < PARTS / 2, "what has come is read in one go, not part by part: {polls}");
    }

    #[tokio::test]
    async fn who_does_not_drive_has_tasks_made_for_it() {
        let (link, _) = server().await;
        let request = Request::get("/").body(Body::empty()).expect("a request");
        let before = tasks();
        let answered = timeout(Duration::from_secs(10), link.open(request)).await.expect("it is driven");
        assert!(tasks() > before);
        drop(answered.expect("an answer"));
        assert!(ask(&link).await > 0);
    }

    #[tokio::test]
    async fn a_connection_is_never_that_of_two_tasks() {
        let (link, connections) = server().await;
        let (asked, has_asked) = tokio::sync::oneshot::channel();
        let other = link.clone();
        let waiting = tokio::spawn(driving(Box::pin(async move {
            ask(&other).await;
            asked.send(()).expect("somebody waits");
            std::future::pending::<()>().await;
        })));
        has_asked.await.expect("it asks");
        driving(Box::pin(async {
            ask(&link).await;
            ask(&link).await;
        }))
        .await;
        assert_eq!(connections.load(Relaxed), 3, "a server that keeps them open is not believed");
        waiting.abort();
    }
}
