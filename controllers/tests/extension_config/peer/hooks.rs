//! Hooks of Cluster API behind one type.

use futures::{FutureExt, future::BoxFuture};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use steersman::object::ObjectKey;
use steersman_controllers::extension_config::{
    catalog::{
        Hook,
        hooks::{
            AfterClusterUpgrade, AfterControlPlaneInitialized, AfterControlPlaneUpgrade,
            AfterWorkersUpgrade, BeforeClusterCreate, BeforeClusterDelete, BeforeClusterUpgrade,
            BeforeControlPlaneUpgrade, BeforeWorkersUpgrade, CanUpdateMachine, CanUpdateMachineSet,
            DiscoverVariables, GeneratePatches, GenerateUpgradePlan, UpdateMachine,
            ValidateTopology,
        },
    },
    client::{CallError, CallOptions, RuntimeClient},
    server::Extension,
};
use tokio::{sync::mpsc, time::sleep};

/// Receives the name of a handler and its request.
pub(super) type Requests = mpsc::UnboundedSender<(String, Value)>;

/// Arguments of a call by the runtime client.
pub(super) struct Call<'a> {
    pub(super) client: &'a RuntimeClient,
    pub(super) object: &'a ObjectKey,
    /// Registered name of a handler. `None` to call all handlers.
    pub(super) extension: Option<&'a str>,
    pub(super) request: Value,
}

pub(super) struct AnyHook {
    pub(super) name: &'static str,
    /// Adds a handler, which is described in the format of the Go peer.
    pub(super) add: fn(Extension, &Value, Requests) -> Extension,
    pub(super) call: for<'a> fn(Call<'a>) -> BoxFuture<'a, Result<Value, CallError>>,
    /// Decodes and encodes a response, which removes the fields of the envelope.
    pub(super) normalize: fn(Value) -> Value,
}

/// Hooks of Cluster API without `Discovery`.
pub(super) static HOOKS: [AnyHook; 16] = [
    any::<BeforeClusterCreate>(),
    any::<AfterControlPlaneInitialized>(),
    any::<BeforeClusterUpgrade>(),
    any::<BeforeControlPlaneUpgrade>(),
    any::<AfterControlPlaneUpgrade>(),
    any::<BeforeWorkersUpgrade>(),
    any::<AfterWorkersUpgrade>(),
    any::<AfterClusterUpgrade>(),
    any::<BeforeClusterDelete>(),
    any::<GeneratePatches>(),
    any::<ValidateTopology>(),
    any::<DiscoverVariables>(),
    any::<CanUpdateMachine>(),
    any::<CanUpdateMachineSet>(),
    any::<UpdateMachine>(),
    any::<GenerateUpgradePlan>(),
];

pub(super) fn find(name: &str) -> &'static AnyHook {
    let found = HOOKS.iter().find(|hook| hook.name == name);
    found.unwrap_or_else(|| panic!("{name} is not a hook of Cluster API"))
}

const fn any<H: Hook>() -> AnyHook {
    AnyHook {
        name: H::NAME,
        add: add::<H>,
        call: call_boxed::<H>,
        normalize: normalize::<H>,
    }
}

fn add<H: Hook>(extension: Extension, handler: &Value, requests: Requests) -> Extension {
    let name = text(handler, "name").to_owned();
    let delay = Duration::from_millis(handler["milliseconds"].as_u64().unwrap_or_default());
    let response = Arc::new(decode::<H::Response>(handler["response"].clone()));
    let mut extension = extension.on::<H, _>(name, move |request, cx| {
        let (response, requests) = (response.clone(), requests.clone());
        async move {
            // Fails if the test has ended.
            let _ = requests.send((cx.handler.to_string(), encode(request)));
            sleep(delay).await;
            H::Response::clone(&response)
        }
    });
    if let Some(seconds) = handler["timeoutSeconds"].as_i64() {
        extension = extension.timeout_seconds(i32::try_from(seconds).expect("a few seconds"));
    }
    if !handler["failurePolicy"].is_null() {
        extension = extension.failure_policy(decode(handler["failurePolicy"].clone()));
    }
    extension
}

fn normalize<H: Hook>(response: Value) -> Value {
    encode(decode::<H::Response>(response))
}

fn call_boxed<H: Hook>(call: Call<'_>) -> BoxFuture<'_, Result<Value, CallError>> {
    call_hook::<H>(call).boxed()
}

async fn call_hook<H: Hook>(call: Call<'_>) -> Result<Value, CallError> {
    let request = decode::<H::Request>(call.request);
    let response = match call.extension {
        Some(name) => {
            call.client
                .call_extension::<H>(call.object, name, &request, CallOptions::default())
                .await?
        }
        None => {
            call.client
                .call_all_extensions::<H>(call.object, &request)
                .await?
        }
    };
    Ok(encode(response))
}

pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    let text = value[field].as_str();
    text.unwrap_or_else(|| panic!("{field} is not a text in {value}"))
}

pub(super) fn decode<T: DeserializeOwned>(value: Value) -> T {
    let shown = value.to_string();
    serde_json::from_value(value).unwrap_or_else(|error| panic!("{error} in {shown}"))
}

fn encode(value: impl Serialize) -> Value {
    serde_json::to_value(value).expect("a type of a hook is JSON")
}
