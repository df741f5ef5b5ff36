//! Lookup of the contract that a kind implements.

use super::{
    ContractError, VERSION, crd_name, latest_contract_and_api_version,
    versions::{ContractVersion, contract_of_version},
};
use crate::{
    cluster_api::ObjectReference,
    external::{
        Failed, GroupKind,
        group_kind::parse_gvk,
        read::{cached_or_live, not_found},
    },
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use std::sync::Arc;
use steersman::{client, prelude::*};

/// Metadata of a CRD.
pub type CrdMetadata = Metadata<CustomResourceDefinition>;

/// Returns the metadata of the CRD of a kind.
///
/// The cache is read if it has an informer of [`CrdMetadata`], and the API server otherwise. The
/// name of the CRD follows from discovery. For a kind that is not served, it is that of
/// [`crd_name`].
///
/// # Errors
/// [`is_not_found`](ContractError::is_not_found) is true if the CRD does not exist.
pub async fn crd_metadata(
    client: &Client,
    kind: &GroupKind,
) -> Result<Arc<CrdMetadata>, ContractError> {
    find_crd(client, kind).await.map_err(|error| {
        let context = "failed to get CustomResourceDefinition metadata";
        ContractError::Metadata(Failed::new(context, error))
    })
}

async fn find_crd(client: &Client, kind: &GroupKind) -> client::Result<Arc<CrdMetadata>> {
    let GroupKind { group, kind: name } = kind;
    let of_plural = |plural: String| format!("{plural}.{group}");
    let known = client.discover_plural(group, name).await?.map(of_plural);
    if let Some(known) = &known
        && let Some(found) = get_crd(client, known).await?
    {
        return Ok(found);
    }
    let guessed = crd_name(group, name);
    let other = match &known {
        // The plural name is cached. The CRD may have been created again with another one.
        Some(_) => client.discover_kind(group, name).await?.into_iter().next(),
        None => None,
    };
    let other = other.map(|found| of_plural(found.resource.plural));
    let other = other.unwrap_or_else(|| guessed.clone());
    if known.as_ref() != Some(&other)
        && let Some(found) = get_crd(client, &other).await?
    {
        return Ok(found);
    }
    let resource = ("apiextensions.k8s.io", "customresourcedefinitions");
    Err(not_found(resource, &guessed))
}

async fn get_crd(client: &Client, name: &str) -> client::Result<Option<Arc<CrdMetadata>>> {
    let key = &ObjectKey::cluster_scoped(name);
    let state = || client.informer_state::<CrdMetadata>();
    let read = |client: Client| async move { client.get::<CrdMetadata>(key).await };
    cached_or_live(client, state, read).await
}

async fn latest(client: &Client, kind: &GroupKind) -> Result<ContractVersion, ContractError> {
    let metadata = crd_metadata(client, kind).await?;
    latest_contract_and_api_version(&metadata.metadata, VERSION)
}

/// Returns the newest contract compatible with [`VERSION`] that a kind implements.
///
/// # Errors
/// The CRD cannot be read, or has no label of a compatible contract.
pub async fn contract_version(client: &Client, kind: &GroupKind) -> Result<String, ContractError> {
    let context = || format!("failed to get contract version for kind {}", kind.kind);
    let latest = latest(client, kind).await;
    Ok(latest.map_err(|error| error.context(context()))?.contract)
}

/// Returns group and version in which a kind implements [`contract_version`].
///
/// # Errors
/// The CRD cannot be read, or has no label of a compatible contract.
pub async fn api_version(client: &Client, kind: &GroupKind) -> Result<String, ContractError> {
    let context = || format!("failed to get apiVersion for kind {}", kind.kind);
    let latest = latest(client, kind).await;
    let latest = latest.map_err(|error| error.context(context()))?;
    Ok(kind.with_version(&latest.version).api_version())
}

/// Returns the newest contract for which the CRD of a kind lists a version of the kind.
///
/// The contract need not be compatible with [`VERSION`].
///
/// # Errors
/// The CRD cannot be read, or does not list the version.
pub async fn contract_version_for_version(
    client: &Client,
    kind: &GroupKind,
    version: &str,
) -> Result<String, ContractError> {
    let metadata = crd_metadata(client, kind).await.map_err(|error| {
        error.context(format!(
            "failed to get contract version for version {version} for kind {}",
            kind.kind
        ))
    })?;
    contract_of_version(&metadata.metadata, version).ok_or_else(|| ContractError::NoContract {
        crd: metadata.metadata.name.clone().unwrap_or_default(),
        version: version.to_owned(),
    })
}

/// Sets the version of a reference to that of [`api_version`].
///
/// Changes nothing if the version is up to date, or if the lookup fails.
///
/// # Errors
/// The CRD cannot be read, or has no label of a compatible contract.
pub async fn update_reference(
    client: &Client,
    reference: &mut ObjectReference,
) -> Result<(), ContractError> {
    let api_version = reference.api_version.as_deref().unwrap_or_default();
    let kind = reference.kind.as_deref().unwrap_or_default();
    let referred = parse_gvk(api_version, kind);
    let kind = GroupKind::from(&referred);
    let latest = latest(client, &kind).await;
    let latest = latest.map_err(|error| error.context("failed to update apiVersion in ref"))?;
    if latest.version != referred.version {
        reference.api_version = Some(kind.with_version(&latest.version).api_version());
    }
    Ok(())
}
