//! Unmodified kube-rs against the server in the same process.
//!
//! Most of these tests run on paused time, which advances only while every task waits. So asserting
//! that nothing happens for a minute takes no time and holds for any real duration.

mod api;
mod controller;
mod discovery;
mod helpers;
mod watchers;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::Duration;
use steersman_apiserver::{ApiServer, Options};

/// On paused time, silence for this long means that no task has work left.
const QUIET: Duration = Duration::from_mins(1);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq)]
#[kube(
    group = "steersman.dev",
    version = "v1",
    kind = "Site",
    namespaced,
    status = "SiteStatus",
    shortname = "st"
)]
#[kube(scale(
    spec_replicas_path = ".spec.replicas",
    status_replicas_path = ".status.replicas"
))]
#[serde(rename_all = "camelCase")]
pub(crate) struct SiteSpec {
    pub(crate) color: String,
    #[serde(default = "one")]
    pub(crate) replicas: i32,
}

fn one() -> i32 {
    1
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SiteStatus {
    pub(crate) observed_generation: Option<i64>,
    pub(crate) replicas: i32,
}

fn site(name: &str, color: &str) -> Site {
    Site::new(
        name,
        SiteSpec {
            color: color.into(),
            replicas: 1,
        },
    )
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(
        json!({"metadata": {"name": name, "labels": {"app": "a"}}, "data": {"value": value}}),
    )
    .expect("a config map")
}

fn start() -> (ApiServer, Client) {
    let server = ApiServer::new(Options::default()).expect("a server without data starts");
    let client = Client::new(server.service(), "default");
    (server, client)
}

/// Starts a server with the CRD of [`Site`] and returns its client.
async fn start_with_sites() -> (ApiServer, Client) {
    let (server, client) = start();
    server
        .install(serde_json::to_value(Site::crd()).expect("JSON"))
        .await
        .expect("the CRD of kube-derive");
    (server, client)
}

fn sites(client: &Client) -> Api<Site> {
    Api::default_namespaced(client.clone())
}

fn config_maps(client: &Client) -> Api<ConfigMap> {
    Api::default_namespaced(client.clone())
}
