//! A server that has prepared all it will ever say: an empty list, and a watch that tells as many events as the socket takes.

use crate::{
    pick,
    pods::{self, FIRST_REVISION, Pods},
};
use serde_json::json;
use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};
use steersman::object::ObjectKey;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

/// Each comes several times.
const OBJECTS: usize = 10_000;

/// Events of a watch.
pub(crate) fn count(quick: bool) -> usize {
    pick(quick, 20_000, 60_000)
}

/// What the last event is about, and no other.
pub(crate) fn last(quick: bool) -> ObjectKey {
    let (namespace, name) = pods::key(count(quick));
    ObjectKey::new(&namespace, &name)
}

pub(crate) struct Server {
    kubeconfig: PathBuf,
    _directory: TempDir,
}

impl Server {
    pub(crate) async fn start(quick: bool) -> Self {
        let events: Arc<Vec<u8>> = Arc::new(events(count(quick)));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let events = events.clone();
                // Who goes away in the middle is no failure.
                tokio::spawn(async move { drop(answer(socket, &events).await) });
            }
        });
        let directory = tempfile::tempdir().expect("a directory");
        let kubeconfig = directory.path().join("kubeconfig");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bench",
            "clusters": [{"name": "bench", "cluster": {"server": format!("http://{address}")}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "users": [{"name": "bench", "user": {}}],
        });
        std::fs::write(&kubeconfig, text.to_string()).expect("a file");
        Self { kubeconfig, _directory: directory }
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

async fn answer(socket: TcpStream, events: &[u8]) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut socket = BufReader::new(socket);
    loop {
        let mut target = String::new();
        let mut line = String::new();
        while socket.read_line(&mut line).await? > 2 {
            if target.is_empty() {
                target.clone_from(&line);
            }
            line.clear();
        }
        if target.is_empty() {
            return Ok(());
        }
        let is = |parameter: &str| target.contains(parameter);
        if is("watch=true") || is("watch=1") {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
            socket.write_all(head.as_bytes()).await?;
            if is("sendInitialEvents=true") {
                let mut bookmark = Vec::new();
                chunk(&mut bookmark, &bookmark_line());
                socket.write_all(&bookmark).await?;
            }
            socket.write_all(events).await?;
            // Nothing more happens.
            return std::future::pending().await;
        }
        let list = json!({
            "kind": "PodList", "apiVersion": "v1", "items": [], "metadata": {"resourceVersion": FIRST_REVISION.to_string()},
        })
        .to_string();
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", list.len());
        socket.write_all(head.as_bytes()).await?;
        socket.write_all(list.as_bytes()).await?;
    }
}

/// Each is a chunk of its own, as the real server sends them.
fn events(count: usize) -> Vec<u8> {
    let pods = Pods::new();
    let mut text = Vec::new();
    for (event, revision) in (0..count).zip(FIRST_REVISION + 1..) {
        let kind = if event < OBJECTS || event + 1 == count { "ADDED" } else { "MODIFIED" };
        let number = if event + 1 == count { count } else { event % OBJECTS };
        chunk(&mut text, &format!("{{\"type\":\"{kind}\",\"object\":{}}}\n", pods.json(number, revision)));
    }
    text
}

/// Ends a streamed list.
fn bookmark_line() -> String {
    let object = json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "resourceVersion": FIRST_REVISION.to_string(), "creationTimestamp": null,
            "annotations": {"k8s.io/initial-events-end": "true"},
        },
        "spec": {"containers": null}, "status": {},
    });
    format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n")
}

fn chunk(text: &mut Vec<u8>, line: &str) {
    write!(text, "{:x}\r\n{line}\r\n", line.len()).expect("memory");
}
