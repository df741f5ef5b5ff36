//! Fields of control planes, such as `KubeadmControlPlane`.
//!
//! `contract` is the version of the contract that the object's kind implements, see
//! [`contract_version`](super::contract_version).
//!
//! ```
//! use steersman_controllers::external::contract::control_plane;
//! # use kube::core::DynamicObject;
//! # use serde_json::json;
//!
//! let plane: DynamicObject = serde_json::from_value(json!({
//!     "metadata": {"name": "shop"},
//!     "status": {"initialized": true},
//! }))?;
//! assert_eq!(control_plane::initialized("v1beta1", &plane)?, Some(true));
//! assert_eq!(control_plane::control_plane_endpoint(&plane)?, None);
//! # Ok::<_, anyhow::Error>(())
//! ```

pub use super::endpoint::control_plane_endpoint;
use super::endpoint::of_contract;
use crate::external::field::{FieldError, boolean};
use kube::core::DynamicObject;

/// Returns whether the control plane is initialized; `None` if the field is missing.
///
/// The field is `status.initialized` in contract `v1beta1`, and
/// `status.initialization.controlPlaneInitialized` otherwise.
///
/// # Errors
/// The field is null or not a boolean.
pub fn initialized(contract: &str, object: &DynamicObject) -> Result<Option<bool>, FieldError> {
    let path: &[_] = match contract {
        "v1beta1" => &["status", "initialized"],
        _ => &["status", "initialization", "controlPlaneInitialized"],
    };
    boolean(object, path).map_err(of_contract(path))
}
