//! A runtime client with an embedded API server, and `ExtensionConfig`s for servers.

use super::raw_server::RawServer;
use anyhow::Result;
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use steersman::{
    client::Client,
    object::ObjectKey,
    testing::{Env, TestServer},
};
use steersman_controllers::extension_config::{
    ExtensionConfig, ExtensionHandler,
    catalog::{
        Catalog, HOOKS_API_VERSION,
        hooks::{BeforeClusterCreate, BeforeClusterCreateRequest, BeforeClusterCreateResponse},
    },
    client::{CallError, CallOptions, DiscoveryError, RuntimeClient, RuntimeClientBuilder},
};

/// Path of discovery with its query.
pub(crate) const DISCOVERY: &str = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery?timeout=10s";

/// Returns a builder of a client with an empty API server.
///
/// Most tests of this module read no Namespace, so they need no objects.
pub(crate) fn builder() -> Result<RuntimeClientBuilder> {
    builder_with(Catalog::cluster_api())
}

pub(crate) fn builder_with(catalog: Catalog) -> Result<RuntimeClientBuilder> {
    let client = Client::new(Env::embedded()?.client()?)?;
    Ok(RuntimeClient::builder(client, catalog))
}

pub(crate) fn runtime() -> Result<RuntimeClient> {
    Ok(builder()?.build()?)
}

/// Returns a client whose registry has these `ExtensionConfig`s.
pub(crate) fn runtime_with(configs: &[ExtensionConfig]) -> Result<RuntimeClient> {
    let runtime = runtime()?;
    runtime.warm_up(configs)?;
    Ok(runtime)
}

/// Returns an `ExtensionConfig` for all namespaces, with the address and the CA of a server.
pub(crate) fn config_of(name: &str, url: &str, ca: &str) -> ExtensionConfig {
    let config = json!({
        "metadata": {"name": name, "resourceVersion": "7"},
        "spec": {"clientConfig": {"url": url}, "namespaceSelector": {}},
    });
    let mut config: ExtensionConfig = serde_json::from_value(config).expect("valid");
    config.spec.client_config.ca_bundle = Some(ByteString(ca.into()));
    config
}

pub(crate) fn config(name: &str, server: &RawServer) -> ExtensionConfig {
    config_of(name, &server.url(), &server.ca)
}

/// Adds a handler of `BeforeClusterCreate`, with further fields, to the status.
pub(crate) fn with_handler(
    mut config: ExtensionConfig,
    name: &str,
    fields: Value,
) -> ExtensionConfig {
    let name = format!(
        "{name}.{}",
        config.metadata.name.clone().unwrap_or_default()
    );
    let mut handler = handler(&name);
    if let (Value::Object(handler), Value::Object(fields)) = (&mut handler, fields) {
        handler.extend(fields);
    }
    let handler: ExtensionHandler = serde_json::from_value(handler).expect("valid");
    config.status.get_or_insert_default().handlers.push(handler);
    config
}

/// Returns a handler of `BeforeClusterCreate` as in a discovery.
pub(crate) fn handler(name: &str) -> Value {
    let hook = json!({"apiVersion": HOOKS_API_VERSION, "hook": "BeforeClusterCreate"});
    json!({"name": name, "requestHook": hook})
}

pub(crate) fn cluster() -> ObjectKey {
    ObjectKey::new("shop", "web")
}

pub(crate) async fn call(
    runtime: &RuntimeClient,
    name: &str,
) -> Result<BeforeClusterCreateResponse, CallError> {
    let (request, options) = (
        BeforeClusterCreateRequest::default(),
        CallOptions::default(),
    );
    runtime
        .call_extension::<BeforeClusterCreate>(&cluster(), name, &request, options)
        .await
}

pub(crate) async fn call_all(
    runtime: &RuntimeClient,
) -> Result<BeforeClusterCreateResponse, CallError> {
    let request = BeforeClusterCreateRequest::default();
    runtime
        .call_all_extensions::<BeforeClusterCreate>(&cluster(), &request)
        .await
}

/// Discovers the handlers of a server. Expects an error and returns it.
pub(crate) async fn discovery_error(server: &RawServer) -> Result<DiscoveryError> {
    let discovered = runtime()?.discover(&config("ext", server)).await;
    Ok(discovered.expect_err("the discovery fails"))
}

/// Returns the text of an error of the HTTP step, without the URL.
pub(crate) fn cause(server: &RawServer, error: &DiscoveryError) -> String {
    let prefix = format!(
        "failed to discover extension \"ext\": http call failed: Post \"{}{DISCOVERY}\": ",
        server.url()
    );
    let text = error.to_string();
    let cause = text.strip_prefix(&prefix);
    cause.map_or_else(|| panic!("{text}"), Into::into)
}
