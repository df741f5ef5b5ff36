//! The two servers, prepared alike: the definitions of the cases are installed.

use kube::Client;
use serde_json::Value;
use std::sync::atomic::{AtomicU32, Ordering};
use steersman::testing::{self, Environment};
use steersman_apiserver::{ApiServer, Options};

/// The definitions every case finds.
fn definitions() -> Vec<Value> {
    let text = include_str!("definitions.json");
    serde_json::from_str(text).expect("definitions are JSON")
}

/// A word that no other case on the same server has.
pub(crate) fn word() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let process = std::process::id() % 46_656;
    let number = NEXT.fetch_add(1, Ordering::Relaxed) + process * 10_000;
    format!("{number:09}")
}

/// A server that forks are made of.
pub(crate) async fn embedded() -> ApiServer {
    let server = ApiServer::new(Options::default()).expect("a server without data starts");
    for definition in definitions() {
        server.install(definition).await.expect("a good definition");
    }
    server.wait_idle().await;
    server
}

pub(crate) fn client_of(server: &ApiServer) -> Client {
    Client::new(server.service(), "default")
}

/// A client of the real server that this binary shares, if there is one. Where it is expected and cannot be had, the test fails.
pub(crate) async fn real() -> Option<Client> {
    let environment = testing::or_left_out(Environment::shared().await)?;
    environment.install(definitions()).await.expect("good definitions");
    Some(environment.client().expect("a client"))
}
