//! Patches and delete options, which are types of kube.

use crate::object::AsObject;
use bytes::Bytes;
use http::{HeaderValue, header::CONTENT_TYPE};
use kube_core::{
    Resource,
    params::{DeleteParams, Patch, PatchParams, Preconditions},
    request,
};
use serde::Serialize;
use serde_json::{Value, json};

/// Returns options that delete only this object, not a later one of the same name.
///
/// Pass an object that was read: without a UID, the deletion fails with
/// [`NoUid`](super::Error::NoUid).
///
/// ```
/// use k8s_openapi::api::apps::v1::Deployment;
/// use steersman::client::{DeleteParams, PropagationPolicy, delete_only};
///
/// # let deployment = Deployment::default();
/// let params = DeleteParams {
///     propagation_policy: Some(PropagationPolicy::Foreground),
///     ..delete_only(&deployment)
/// };
/// ```
pub fn delete_only<M>(object: &impl AsObject<M>) -> DeleteParams {
    let uid = object.as_object().meta().uid.clone();
    DeleteParams::default().preconditions(Preconditions {
        uid: Some(uid.unwrap_or_default()),
        resource_version: None,
    })
}

/// Returns the `DeleteOptions` of a request.
pub(super) fn delete_options(
    params: &DeleteParams,
    dry_run: bool,
) -> Result<Value, serde_json::Error> {
    let params = DeleteParams {
        dry_run: dry_run || params.dry_run,
        ..params.clone()
    };
    let mut options = serde_json::to_value(params)?;
    options["apiVersion"] = json!("v1");
    options["kind"] = json!("DeleteOptions");
    Ok(options)
}

/// Returns the body of a patch and its content type.
///
/// `Patch` is a non-exhaustive type of kube, so kube encodes it.
pub(super) fn encode_patch<T: Serialize>(
    patch: &Patch<T>,
) -> Result<(Bytes, HeaderValue), serde_json::Error> {
    let request = kube_core::Request::new("").patch("name", &PatchParams::default(), patch);
    let (mut head, body) = request
        .map_err(|error| match error {
            request::Error::SerializeBody(error) => error,
            other => serde::ser::Error::custom(other),
        })?
        .into_parts();
    let content_type = head.headers.remove(CONTENT_TYPE);
    let content_type =
        content_type.ok_or_else(|| serde::ser::Error::custom("patch has no content type"))?;
    Ok((body.into(), content_type))
}
