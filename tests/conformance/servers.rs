//! The two servers, prepared alike: the definitions of the cases are installed.

use kube::Client;
use serde_json::Value;
use std::sync::atomic::{AtomicU32, Ordering};
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

pub(crate) async fn real() -> Option<Client> {
    let mut config = kube::Config::from_custom_kubeconfig(
        kube::config::Kubeconfig::read_from(std::env::var_os("CONF_KUBECONFIG")?).unwrap(),
        &Default::default(),
    )
    .await
    .unwrap();
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    for definition in definitions() {
        let headers = vec![("content-type".into(), "application/json".into())];
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
        let a = crate::run::send(&client, "POST", path, &headers, definition.to_string()).await;
        assert!(a["code"] == 201 || a["code"] == 409, "{a:#}");
        loop {
            let a = crate::run::send(&client, "GET", &format!("{path}/{name}"), &[], String::new()).await;
            if a.to_string().contains("the initial names have been accepted") {
                break;
            }
        }
    }
    Some(client)
}
