//! Connections in the task that uses them.
//!
//! hyper makes a task of each connection, which hands over what comes part by part: for each event of a watch two tasks take turns, and most
//! of the time one of them wakes a thread for it. A task within [`driving`] does both: what is asked in there by a client with [`ByWhoAsks`] is driven by
//! that task, which calls [`drive`] before it waits for a part.
//!
//! What holds: a connection is driven by the task that opened it for as long as that is in [`driving`], whoever uses it, and by one of its own afterwards. So
//! others may have it from the client's pool, as ever.

use futures_util::stream::{FuturesUnordered, StreamExt};
use hyper::rt::Executor;
use parking_lot::Mutex;
use std::{
    future::{Future, poll_fn},
    mem,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};
use tokio::{runtime::Handle, task_local};

/// A connection, or what opens one.
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

task_local! {
    static OWN: Arc<Own>;
}

/// What a task drives. Only it takes these locks, so that it never waits for them.
#[derive(Default)]
struct Own {
    /// Begun while the others are polled, perhaps by one of them.
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

/// They may be in use, or be used again: they go on in a task of their own.
impl Drop for Own {
    fn drop(&mut self) {
        let mut left = mem::take(self.under_way.get_mut());
        left.extend(mem::take(self.new.get_mut()));
        if let (false, Ok(runtime)) = (left.is_empty(), Handle::try_current()) {
            runtime.spawn(left.collect::<()>());
        }
    }
}

/// The executor of a client whose connections are driven by who asks, or, of those who do not drive, by tasks as usual.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByWhoAsks;

impl Executor<Work> for ByWhoAsks {
    fn execute(&self, work: Work) {
        let mut work = Some(work);
        let _ = OWN.try_with(|own| own.new.lock().extend(work.take()));
        if let Some(work) = work {
            tokio::spawn(work);
        }
    }
}

/// Drive what is opened in there.
pub(crate) async fn driving<F: Future>(future: F) -> F::Output {
    let own = Arc::new(Own::default());
    let mut future = pin!(OWN.scope(own.clone(), future));
    poll_fn(|cx| {
        let polled = future.as_mut().poll(cx);
        own.poll(cx);
        polled
    })
    .await
}

/// Let come what has come for the connections of this task.
pub(crate) fn drive(cx: &mut Context<'_>) {
    let _ = OWN.try_with(|own| own.poll(cx));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Connection, Link};
    use http::Request;
    use kube_client::{Config, client::Body};
    use std::{
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
        time::Duration,
    };
    use tokio::{
        io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
        net::{TcpListener, TcpStream},
        time::timeout,
    };

    /// A server that answers everything with `{}` and keeps connections, and how many it has had.
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
        (Connection::from(config).watching().expect("a client"), connections)
    }

    async fn answer(socket: TcpStream) {
        let mut socket = BufReader::new(socket);
        let mut line = String::new();
        while socket.read_line(&mut line).await.is_ok_and(|read| read > 0) {
            if line == "\r\n" {
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
                socket.write_all(answer).await.expect("somebody reads");
            }
            line.clear();
        }
    }

    async fn ask(link: &Link) {
        let asked = link.ask::<serde_json::Value>(Request::get("/").body(Vec::new()).expect("a request"));
        timeout(Duration::from_secs(10), asked).await.expect("it is driven").expect("an answer");
    }

    fn tasks() -> usize {
        Handle::current().metrics().num_alive_tasks()
    }

    #[tokio::test]
    async fn a_connection_is_driven_by_the_task_that_opened_it() {
        let (link, connections) = server().await;
        let before = tasks();
        driving(async {
            ask(&link).await;
            ask(&link).await;
            assert_eq!(tasks(), before, "no task was made for it");
        })
        .await;
        assert_eq!(connections.load(Relaxed), 1, "the second request had the connection of the first");
    }

    #[tokio::test]
    async fn who_does_not_drive_has_tasks_made_for_it() {
        let (link, _) = server().await;
        let before = tasks();
        ask(&link).await;
        assert!(tasks() > before);
    }

    #[tokio::test]
    async fn connections_outlive_the_task_that_drove_them() {
        let (link, connections) = server().await;
        driving(ask(&link)).await;
        ask(&link).await;
        driving(ask(&link)).await;
        assert_eq!(connections.load(Relaxed), 1);
    }

    #[tokio::test]
    async fn a_connection_is_driven_while_its_task_waits_for_something_else() {
        let (link, connections) = server().await;
        let (opened, is_open) = tokio::sync::oneshot::channel();
        let (first, second) = (link.clone(), link.clone());
        let driver = tokio::spawn(driving(async move {
            ask(&first).await;
            opened.send(()).expect("somebody waits");
            std::future::pending::<()>().await;
        }));
        is_open.await.expect("it was opened");
        ask(&second).await;
        assert_eq!(connections.load(Relaxed), 1);
        driver.abort();
    }

    #[tokio::test]
    async fn a_body_is_read_by_who_drives_its_connection() {
        let (link, _) = server().await;
        driving(async {
            let request = Request::get("/").body(Body::empty()).expect("a request");
            let mut body = link.send(request).await.expect("an answer").into_body();
            let part = poll_fn(|cx| {
                let next = http_body_util::BodyExt::frame(&mut body);
                drive(cx);
                pin!(next).poll(cx)
            });
            let part = timeout(Duration::from_secs(10), part).await.expect("it is driven").expect("a part");
            assert_eq!(part.expect("no failure").into_data().expect("data"), "{}");
        })
        .await;
    }
}
