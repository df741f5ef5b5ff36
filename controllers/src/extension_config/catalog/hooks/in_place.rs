//! Hooks of updates of Machines in place.

use super::{
    PatchType, ResponseStatus, Settings,
    common::{hook, is_default, null_default, plain_response, request, response},
};
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::Value;

hook! {
    /// Decides which changes of a Machine the extension can make in place.
    CanUpdateMachine(CanUpdateMachineRequest) -> CanUpdateMachineResponse
}

/// Request of [`CanUpdateMachine`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CanUpdateMachineRequest {
    /// Settings of the handler.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Settings::is_empty"
    )]
    pub settings: Settings,
    /// Current objects.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "is_default"
    )]
    pub current: CanUpdateMachineRequestObjects,
    /// Desired objects.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "is_default"
    )]
    pub desired: CanUpdateMachineRequestObjects,
}

request!(CanUpdateMachineRequest);

/// Machine and the objects that it refers to, without their status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CanUpdateMachineRequestObjects {
    /// The Machine, with all of its fields.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub machine: Value,
    /// The infrastructure Machine.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub infrastructure_machine: Value,
    /// The bootstrap config. `null`: none.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub bootstrap_config: Value,
}

/// Response of [`CanUpdateMachine`]. The patches change the current objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CanUpdateMachineResponse {
    /// Status of the call.
    #[serde(default, deserialize_with = "null_default")]
    pub status: ResponseStatus,
    /// Message for people.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub message: String,
    /// Changes of the Machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_patch: Option<Patch>,
    /// Changes of the infrastructure Machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_machine_patch: Option<Patch>,
    /// Changes of the bootstrap config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_config_patch: Option<Patch>,
}

response!(CanUpdateMachineResponse);

/// Patch of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Patch {
    /// Format of the patch.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "is_default"
    )]
    pub patch_type: PatchType,
    /// The patch, as JSON.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "is_default"
    )]
    pub patch: ByteString,
}

hook! {
    /// Decides which changes of a `MachineSet` the extension can make in place.
    CanUpdateMachineSet(CanUpdateMachineSetRequest) -> CanUpdateMachineSetResponse
}

/// Request of [`CanUpdateMachineSet`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CanUpdateMachineSetRequest {
    /// Settings of the handler.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Settings::is_empty"
    )]
    pub settings: Settings,
    /// Current objects.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "is_default"
    )]
    pub current: CanUpdateMachineSetRequestObjects,
    /// Desired objects.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "is_default"
    )]
    pub desired: CanUpdateMachineSetRequestObjects,
}

request!(CanUpdateMachineSetRequest);

/// `MachineSet` and the templates that it refers to, without their status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CanUpdateMachineSetRequestObjects {
    /// The `MachineSet`, with all of its fields.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub machine_set: Value,
    /// The template of infrastructure Machines.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub infrastructure_machine_template: Value,
    /// The template of bootstrap configs. `null`: none.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub bootstrap_config_template: Value,
}

/// Response of [`CanUpdateMachineSet`]. The patches change the current objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CanUpdateMachineSetResponse {
    /// Status of the call.
    #[serde(default, deserialize_with = "null_default")]
    pub status: ResponseStatus,
    /// Message for people.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub message: String,
    /// Changes of the `MachineSet`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_set_patch: Option<Patch>,
    /// Changes of the template of infrastructure Machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_machine_template_patch: Option<Patch>,
    /// Changes of the template of bootstrap configs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_config_template_patch: Option<Patch>,
}

response!(CanUpdateMachineSetResponse);

hook! {
    /// Updates a Machine in place. Called again until `retry_after_seconds` of the response is 0.
    UpdateMachine(UpdateMachineRequest) -> UpdateMachineResponse
}

/// Request of [`UpdateMachine`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateMachineRequest {
    /// Settings of the handler.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Settings::is_empty"
    )]
    pub settings: Settings,
    /// Desired objects.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "is_default"
    )]
    pub desired: UpdateMachineRequestObjects,
}

request!(UpdateMachineRequest);

/// Machine and the objects that it refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateMachineRequestObjects {
    /// The Machine, with all of its fields.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub machine: Value,
    /// The infrastructure Machine.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub infrastructure_machine: Value,
    /// The bootstrap config. `null`: none.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub bootstrap_config: Value,
}

plain_response! {
    /// Response of [`UpdateMachine`].
    UpdateMachineResponse, retry
}
