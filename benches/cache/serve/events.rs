//! A server with prepared responses: an empty list, and a watch that sends events without a pause.

use crate::{
    pick,
    pods::{self, FIRST_REVISION, Pods},
};
use serde::Deserialize;
use serde_json::{json, value::RawValue};
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

/// Number of objects. Each has several events.
const OBJECTS: usize = 10_000;

/// Returns the number of events of a watch.
pub(crate) fn count(quick: bool) -> usize {
    pick(quick, 20_000, 60_000)
}

/// Returns the key of the last event. No other event has it.
pub(crate) fn last(quick: bool) -> ObjectKey {
    let (namespace, name) = pods::key(count(quick));
    ObjectKey::new(&namespace, &name)
}

/// Watch responses for pods and for their metadata, with one chunk per event as in kube-apiserver.
struct PreparedEvents {
    pods: Vec<u8>,
    metadata: Vec<u8>,
}

pub(crate) struct Server {
    kubeconfig: PathBuf,
    _directory: TempDir,
}

impl Server {
    pub(crate) async fn start(quick: bool) -> Self {
        let prepared = Arc::new(PreparedEvents::new(count(quick)));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let prepared = prepared.clone();
                // A client may close its connection at any time.
                tokio::spawn(async move { drop(serve_connection(socket, &prepared).await) });
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
        Self {
            kubeconfig,
            _directory: directory,
        }
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

async fn serve_connection(socket: TcpStream, prepared: &PreparedEvents) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut socket = BufReader::new(socket);
    loop {
        let mut target = String::new();
        let mut line = String::new();
        let mut wants_metadata = false;
        while socket.read_line(&mut line).await? > 2 {
            if target.is_empty() {
                target.clone_from(&line);
            }
            wants_metadata |= line.contains("as=PartialObjectMetadata;");
            line.clear();
        }
        if target.is_empty() {
            return Ok(());
        }
        let has = |parameter: &str| target.contains(parameter);
        if has("watch=true") || has("watch=1") {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
            socket.write_all(head.as_bytes()).await?;
            if has("sendInitialEvents=true") {
                let mut bookmark = Vec::new();
                chunk(&mut bookmark, &bookmark_line());
                socket.write_all(&bookmark).await?;
            }
            socket
                .write_all(if wants_metadata {
                    &prepared.metadata
                } else {
                    &prepared.pods
                })
                .await?;
            // Keep the watch open.
            return std::future::pending().await;
        }
        let list = json!({
            "kind": "PodList", "apiVersion": "v1", "items": [], "metadata": {"resourceVersion": FIRST_REVISION.to_string()},
        })
        .to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            list.len()
        );
        socket.write_all(head.as_bytes()).await?;
        socket.write_all(list.as_bytes()).await?;
    }
}

impl PreparedEvents {
    fn new(count: usize) -> Self {
        let all = Pods::new();
        let mut pods = Vec::new();
        let mut metadata = Vec::new();
        for (event, revision) in (0..count).zip(FIRST_REVISION + 1..) {
            let kind = if event < OBJECTS || event + 1 == count {
                "ADDED"
            } else {
                "MODIFIED"
            };
            let number = if event + 1 == count {
                count
            } else {
                event % OBJECTS
            };
            let pod = all.json(number, revision);
            chunk(
                &mut pods,
                &format!("{{\"type\":\"{kind}\",\"object\":{pod}}}\n"),
            );
            chunk(
                &mut metadata,
                &format!("{{\"type\":\"{kind}\",\"object\":{}}}\n", partial(&pod)),
            );
        }
        Self { pods, metadata }
    }
}

/// Returns the `PartialObjectMetadata` of an object, as kube-apiserver sends it.
fn partial(json: &str) -> String {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        metadata: &'a RawValue,
    }
    let Object { metadata } = serde_json::from_str(json).expect("an object");
    format!(
        r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{metadata}}}"#
    )
}

/// Returns the bookmark that ends a streaming list.
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
    write!(text, "{:x}\r\n{line}\r\n", line.len()).expect("writing to a vector does not fail");
}
