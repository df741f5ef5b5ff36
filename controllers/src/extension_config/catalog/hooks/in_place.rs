//! Hooks of updates of Machines in place.

use super::{
    PatchType,
    common::{hook, is_default, request, response, retry_response, wire},
};
use k8s_openapi::ByteString;
use serde_json::Value;

hook! {
    /// Decides which changes of a Machine the extension can make in place.
    CanUpdateMachine(CanUpdateMachineRequest) -> CanUpdateMachineResponse
}

request! {
    /// Request of [`CanUpdateMachine`].
    pub struct CanUpdateMachineRequest {
        /// Current objects.
        #[serde(skip_serializing_if = "is_default")]
        pub current: CanUpdateMachineRequestObjects,
        /// Desired objects.
        #[serde(skip_serializing_if = "is_default")]
        pub desired: CanUpdateMachineRequestObjects,
    }
}

wire! {
    /// Machine and the objects that it refers to, without their status.
    pub struct CanUpdateMachineRequestObjects {
        /// The Machine, with all of its fields.
        #[serde(skip_serializing_if = "Value::is_null")]
        pub machine: Value,
        /// The infrastructure Machine.
        #[serde(skip_serializing_if = "Value::is_null")]
        pub infrastructure_machine: Value,
        /// The bootstrap config. `null`: none.
        #[serde(skip_serializing_if = "Value::is_null")]
        pub bootstrap_config: Value,
    }
}

response! {
    /// Response of [`CanUpdateMachine`]. The patches change the current objects.
    pub struct CanUpdateMachineResponse {
        /// Changes of the Machine.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub machine_patch: Option<Patch>,
        /// Changes of the infrastructure Machine.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub infrastructure_machine_patch: Option<Patch>,
        /// Changes of the bootstrap config.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub bootstrap_config_patch: Option<Patch>,
    }
}

wire! {
    /// Patch of an object.
    pub struct Patch {
        /// Format of the patch.
        #[serde(skip_serializing_if = "is_default")]
        pub patch_type: PatchType,
        /// The patch, as JSON.
        #[serde(skip_serializing_if = "is_default")]
        pub patch: ByteString,
    }
}

hook! {
    /// Decides which changes of a `MachineSet` the extension can make in place.
    CanUpdateMachineSet(CanUpdateMachineSetRequest) -> CanUpdateMachineSetResponse
}

request! {
    /// Request of [`CanUpdateMachineSet`].
    pub struct CanUpdateMachineSetRequest {
        /// Current objects.
        #[serde(skip_serializing_if = "is_default")]
        pub current: CanUpdateMachineSetRequestObjects,
        /// Desired objects.
        #[serde(skip_serializing_if = "is_default")]
        pub desired: CanUpdateMachineSetRequestObjects,
    }
}

wire! {
    /// `MachineSet` and the templates that it refers to, without their status.
    pub struct CanUpdateMachineSetRequestObjects {
        /// The `MachineSet`, with all of its fields.
        #[serde(skip_serializing_if = "Value::is_null")]
        pub machine_set: Value,
        /// The template of infrastructure Machines.
        #[serde(skip_serializing_if = "Value::is_null")]
        pub infrastructure_machine_template: Value,
        /// The template of bootstrap configs. `null`: none.
        #[serde(skip_serializing_if = "Value::is_null")]
        pub bootstrap_config_template: Value,
    }
}

response! {
    /// Response of [`CanUpdateMachineSet`]. The patches change the current objects.
    pub struct CanUpdateMachineSetResponse {
        /// Changes of the `MachineSet`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub machine_set_patch: Option<Patch>,
        /// Changes of the template of infrastructure Machines.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub infrastructure_machine_template_patch: Option<Patch>,
        /// Changes of the template of bootstrap configs.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub bootstrap_config_template_patch: Option<Patch>,
    }
}

hook! {
    /// Updates a Machine in place. Called again until `retry_after_seconds` of the response is 0.
    UpdateMachine(UpdateMachineRequest) -> UpdateMachineResponse
}

request! {
    /// Request of [`UpdateMachine`].
    pub struct UpdateMachineRequest {
        /// Desired objects.
        #[serde(skip_serializing_if = "is_default")]
        pub desired: UpdateMachineRequestObjects,
    }
}

wire! {
    /// Machine and the objects that it refers to.
    pub struct UpdateMachineRequestObjects {
        /// The Machine, with all of its fields.
        #[serde(skip_serializing_if = "Value::is_null")]
        pub machine: Value,
        /// The infrastructure Machine.
        #[serde(skip_serializing_if = "Value::is_null")]
        pub infrastructure_machine: Value,
        /// The bootstrap config. `null`: none.
        #[serde(skip_serializing_if = "Value::is_null")]
        pub bootstrap_config: Value,
    }
}

retry_response! {
    /// Response of [`UpdateMachine`].
    pub struct UpdateMachineResponse {}
}
