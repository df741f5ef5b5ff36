//! The endpoint of the API server, which infrastructure clusters and control planes publish.

use crate::{
    cluster_api::ApiEndpoint,
    external::field::{FieldError, decode, map, print_path},
};
use kube::core::DynamicObject;
use serde_json::Value;

/// Adds the path of a field that a contract names to an error.
pub(super) fn of_contract(path: &[&str]) -> impl FnOnce(FieldError) -> FieldError {
    let path = print_path(path);
    |cause| FieldError::OfContract {
        path,
        cause: Box::new(cause),
    }
}

/// Returns `spec.controlPlaneEndpoint`; `None` if it is missing.
///
/// Host and port are `None` if they are missing.
///
/// # Errors
/// The field is not a map, or host or port have another type.
pub fn control_plane_endpoint(object: &DynamicObject) -> Result<Option<ApiEndpoint>, FieldError> {
    let path = ["spec", "controlPlaneEndpoint"];
    let fields = map(object, &path).map_err(of_contract(&path))?;
    fields
        .map(|fields| decode(&path, Value::Object(fields.clone())))
        .transpose()
}
