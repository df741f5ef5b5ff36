//! Fields of infrastructure clusters, such as `DockerCluster`.
//!
//! `contract` is the version of the contract that the object's kind implements, see
//! [`contract_version`](super::contract_version).
//!
//! ```
//! use steersman_controllers::external::contract::infrastructure_cluster;
//! # use kube::core::DynamicObject;
//! # use serde_json::json;
//!
//! let docker: DynamicObject = serde_json::from_value(json!({
//!     "metadata": {"name": "shop"},
//!     "spec": {"controlPlaneEndpoint": {"host": "10.0.0.2", "port": 6443}},
//!     "status": {"initialization": {"provisioned": true}},
//! }))?;
//! assert_eq!(infrastructure_cluster::provisioned("v1beta2", &docker)?, Some(true));
//! assert_eq!(infrastructure_cluster::provisioned("v1beta1", &docker)?, None);
//! let endpoint = infrastructure_cluster::control_plane_endpoint(&docker)?;
//! assert!(endpoint.is_some_and(|endpoint| endpoint.is_valid()));
//! # Ok::<_, anyhow::Error>(())
//! ```

pub use super::endpoint::control_plane_endpoint;
use super::endpoint::of_contract;
use crate::{
    cluster_api::FailureDomain,
    external::field::{FieldError, boolean, decode, list, map},
};
use kube::core::DynamicObject;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Returns whether the infrastructure is provisioned; `None` if the field is missing.
///
/// The field is `status.ready` in contract `v1beta1`, and `status.initialization.provisioned`
/// otherwise.
///
/// # Errors
/// The field is null or not a boolean.
pub fn provisioned(contract: &str, object: &DynamicObject) -> Result<Option<bool>, FieldError> {
    let path: &[_] = match contract {
        "v1beta1" => &["status", "ready"],
        _ => &["status", "initialization", "provisioned"],
    };
    boolean(object, path).map_err(of_contract(path))
}

/// Returns `status.failureDomains`, sorted by name; `None` if it is missing.
///
/// The field is a map by name in contract `v1beta1`, and a list otherwise. `control_plane` is
/// always set.
///
/// # Errors
/// The field has another shape.
pub fn failure_domains(
    contract: &str,
    object: &DynamicObject,
) -> Result<Option<Vec<FailureDomain>>, FieldError> {
    let path = ["status", "failureDomains"];
    let domains = if contract == "v1beta1" {
        let Some(domains) = map(object, &path).map_err(of_contract(&path))? else {
            return Ok(None);
        };
        from_map(decode(&path, Value::Object(domains.clone()))?)
    } else {
        let Some(domains) = list(object, &path).map_err(of_contract(&path))? else {
            return Ok(None);
        };
        from_list(decode(&path, Value::Array(domains.clone()))?)
    };
    Ok(Some(domains))
}

/// Failure domain as in contract `v1beta1`, which has the name as its key.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NamedDomain {
    control_plane: Option<bool>,
    attributes: Option<BTreeMap<String, String>>,
}

fn from_map(domains: BTreeMap<String, Option<NamedDomain>>) -> Vec<FailureDomain> {
    let domain = |(name, domain): (_, Option<NamedDomain>)| {
        let domain = domain.unwrap_or_default();
        FailureDomain {
            name,
            control_plane: Some(domain.control_plane.unwrap_or_default()),
            attributes: domain.attributes.unwrap_or_default(),
        }
    };
    domains.into_iter().map(domain).collect()
}

/// Failure domain as in contract `v1beta2`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ListedDomain {
    name: Option<String>,
    #[serde(flatten)]
    domain: NamedDomain,
}

fn from_list(domains: Vec<Option<ListedDomain>>) -> Vec<FailureDomain> {
    let domain = |domain: Option<ListedDomain>| {
        let ListedDomain { name, domain } = domain.unwrap_or_default();
        FailureDomain {
            name: name.unwrap_or_default(),
            control_plane: Some(domain.control_plane.unwrap_or_default()),
            attributes: domain.attributes.unwrap_or_default(),
        }
    };
    let mut domains: Vec<_> = domains.into_iter().map(domain).collect();
    domains.sort_by(|a, b| a.name.cmp(&b.name));
    domains
}

#[cfg(test)]
mod tests;
