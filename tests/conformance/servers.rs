//! Starts or connects to the two servers and installs the CRDs of the cases.

use kube::Client;
use serde_json::Value;
use std::sync::atomic::{AtomicU32, Ordering};
use steersman::testing::{self, Environment};
use steersman_apiserver::{ApiServer, Options};

/// Returns the CRDs that every case uses.
fn crds() -> Vec<Value> {
    let text = include_str!("crds.json");
    serde_json::from_str(text).expect("CRDs are JSON")
}

/// Returns a word that no other case on the same server uses.
pub(crate) fn unique_word() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let process = std::process::id() % 46_656;
    let number = NEXT.fetch_add(1, Ordering::Relaxed) + process * 10_000;
    format!("{number:09}")
}

/// Starts an embedded server. Cases run on forks of it.
pub(crate) async fn start_embedded() -> ApiServer {
    let server = ApiServer::new(Options {
        seed: Some(1),
        ..Options::default()
    })
    .expect("a server without data starts");
    for crd in crds() {
        server.install(crd).await.expect("a valid CRD");
    }
    server.wait_idle().await;
    server
}

pub(crate) fn client(server: &ApiServer) -> Client {
    Client::new(server.service(), "default")
}

/// Returns a client of the real server, which the tests of this binary share, or `None` if it is
/// not available. Panics if it is required and cannot be started.
pub(crate) async fn connect_real() -> Option<Client> {
    let environment = testing::started_or_skipped(Environment::shared().await)?;
    environment.install(crds()).await.expect("valid CRDs");
    Some(environment.client().expect("a client"))
}
