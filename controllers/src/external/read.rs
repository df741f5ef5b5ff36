//! Reads and deletions of external objects.

use super::{
    Error, Failed, GroupKind, RequestError, contract, contract::CrdMetadata, group_kind::parse_gvk,
};
use crate::cluster_api::{ContractVersionedObjectReference, ObjectReference};
use kube::core::{DynamicObject, GroupVersionKind, Status, response::StatusDetails};
use std::sync::Arc;
use steersman::{
    cache::{CacheError, InformerState},
    client,
    prelude::*,
};

/// Returns the object that a reference names.
///
/// The cache of the client is read if the version and kind of the reference is declared there, and
/// the API server otherwise. The namespace is that of the reference.
///
/// # Errors
/// There is no reference, or the read failed. [`is_not_found`](Error::is_not_found) is true if the
/// object does not exist.
pub async fn get(
    client: &Client,
    reference: Option<&ObjectReference>,
) -> Result<Arc<DynamicObject>, Error> {
    let Some(reference) = reference else {
        return Err(Error::NothingToGet);
    };
    let target = Target::of(reference);
    read(client, &target).await
}

/// Returns the object that a reference without a version names.
///
/// The version is the latest one that implements the newest contract compatible with
/// [`contract::VERSION`], see
/// [`latest_contract_and_api_version`](contract::latest_contract_and_api_version). The cache is
/// used as in [`get`].
///
/// # Errors
/// The reference is not defined, the version cannot be determined, or the read failed.
/// [`is_not_found`](Error::is_not_found) is true if the object does not exist, and false if its CRD
/// does not exist.
pub async fn get_from_contract_versioned_ref(
    client: &Client,
    reference: &ContractVersionedObjectReference,
    namespace: &str,
) -> Result<Arc<DynamicObject>, Error> {
    if !reference.is_defined() {
        return Err(Error::NothingToGet);
    }
    let kind = GroupKind::from(reference);
    let version = latest_version(client, &kind).await?;
    let target = Target {
        kind: Ok(kind.with_version(&version)),
        kind_name: &reference.kind,
        namespace,
        name: &reference.name,
    };
    read(client, &target).await
}

/// Returns the version in which an object is read.
async fn latest_version(client: &Client, kind: &GroupKind) -> Result<String, Error> {
    let decide = |metadata: Arc<CrdMetadata>| {
        contract::latest_contract_and_api_version(&metadata.metadata, contract::VERSION)
    };
    let latest = contract::crd_metadata(client, kind).await.and_then(decide);
    Ok(latest?.version)
}

/// Deletes the object that a reference names, without preconditions.
///
/// An object with finalizers stays until they are removed.
///
/// # Errors
/// There is no reference, or the deletion failed. [`is_not_found`](Error::is_not_found) is true if
/// the object does not exist.
pub async fn delete(client: &Client, reference: Option<&ObjectReference>) -> Result<(), Error> {
    let Some(reference) = reference else {
        return Err(Error::NothingToDelete);
    };
    let target = Target::of(reference);
    let deleted = async {
        let kind = target.check()?;
        let (found, key) = target.find(client, kind).await?;
        if client.dynamic(kind).delete(&key).await? {
            return Ok(());
        }
        let resource = (&*kind.group, &*found.resource.plural);
        Err(not_found(resource, target.name).into())
    };
    let failed = |error| Failed::new(target.context("failed to delete"), error);
    deleted
        .await
        .map_err(|error: RequestError| Error::Delete(failed(error)))
}

async fn read(client: &Client, target: &Target<'_>) -> Result<Arc<DynamicObject>, Error> {
    let object = async {
        let kind = target.check()?;
        let (found, key) = target.find(client, kind).await?;
        let (key, objects) = (&key, client.dynamic(kind));
        let state = || objects.informer_state();
        let read = |client: Client| async move { client.dynamic(kind).get(key).await };
        let resource = (&*kind.group, &*found.resource.plural);
        let object = cached_or_live(client, state, read).await?;
        Ok(object.ok_or_else(|| not_found(resource, target.name))?)
    };
    let failed = |error| Failed::new(target.context("failed to retrieve"), error);
    object
        .await
        .map_err(|error: RequestError| Error::Retrieve(failed(error)))
}

/// Object of a reference.
struct Target<'a> {
    /// Group, version and kind, or the `apiVersion` if it cannot be parsed.
    kind: Result<GroupVersionKind, String>,
    kind_name: &'a str,
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Target<'a> {
    fn of(reference: &'a ObjectReference) -> Self {
        let text = |field: &'a Option<String>| field.as_deref().unwrap_or_default();
        let (api_version, kind_name) = (text(&reference.api_version), text(&reference.kind));
        let kind = parse_gvk(api_version, kind_name);
        let is_parsed = api_version.is_empty() || !kind.version.is_empty();
        Self {
            kind: is_parsed.then_some(kind).ok_or_else(|| api_version.into()),
            kind_name,
            namespace: text(&reference.namespace),
            name: text(&reference.name),
        }
    }

    /// Returns the kind, if it can be part of a path of the API server.
    fn check(&self) -> Result<&GroupVersionKind, RequestError> {
        let kind = match &self.kind {
            Ok(kind) => kind,
            Err(api_version) => return Err(RequestError::ApiVersion(api_version.clone())),
        };
        let fields = [
            ("kind", self.kind_name),
            ("apiVersion", &kind.version),
            ("name", self.name),
        ];
        if let Some((empty, _)) = fields.iter().find(|(_, value)| value.is_empty()) {
            return Err(RequestError::Incomplete(empty));
        }
        let is_segment = |text: &str| {
            let mut bytes = text.bytes();
            bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
                && !matches!(text, "." | "..")
        };
        if is_segment(&kind.group) && is_segment(&kind.version) {
            Ok(kind)
        } else {
            Err(RequestError::ApiVersion(kind.api_version()))
        }
    }

    /// Discovers the resource of the kind. Returns it and the key of the object.
    async fn find(
        &self,
        client: &Client,
        kind: &GroupVersionKind,
    ) -> client::Result<(client::Discovered, ObjectKey)> {
        let found = client.discover(kind).await?.ok_or_else(|| {
            client::Error::NoSuchKind(format!("{} {}", kind.api_version(), kind.kind))
        })?;
        let key = found.key(Some(self.namespace), self.name);
        if found.namespaced && key.namespace().is_none() {
            // The namespace of the client must not replace that of the reference.
            let kind = kind.kind.clone();
            return Err(client::Error::NoNamespace { kind, key });
        }
        Ok((found, key))
    }

    /// Returns `<operation> <kind> <namespace>/<name>`.
    fn context(&self, operation: &str) -> String {
        let key = ObjectKey::new(self.namespace, self.name);
        format!("{operation} {} {key}", self.kind_name)
    }
}

/// Reads from the cache of the client, or from the API server if the cache does not have the kind.
///
/// The API server is also read while the informer of the kind waits for its first list, if it has
/// another representation, and if it does not find the object while its `state` is not synced. So an
/// object in a version that is not served any more does not count as deleted.
pub(super) async fn cached_or_live<T, Fut>(
    client: &Client,
    state: impl Fn() -> Option<InformerState>,
    read: impl Fn(Client) -> Fut,
) -> client::Result<Option<T>>
where
    Fut: Future<Output = client::Result<Option<T>>>,
{
    let cached = read(client.clone()).await;
    let is_answer = match &cached {
        Ok(None) => state().is_none_or(|state| state == InformerState::Synced),
        Err(client::Error::Cache(
            CacheError::NotCached { .. }
            | CacheError::NotSynced { .. }
            | CacheError::KindNotFound { .. }
            | CacheError::RepresentationMismatch { .. },
        )) => false,
        _ => true,
    };
    if is_answer {
        cached
    } else {
        read(client.live()).await
    }
}

/// Returns the error of the API server for an object that does not exist.
///
/// `resource` is the group and the plural name.
pub(super) fn not_found((group, plural): (&str, &str), name: &str) -> client::Error {
    let resource = match group {
        "" => plural.to_owned(),
        group => format!("{plural}.{group}"),
    };
    let details = StatusDetails {
        name: name.to_owned(),
        group: group.to_owned(),
        kind: plural.to_owned(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    };
    let message = format!("{resource} \"{name}\" not found");
    Status::failure(&message, "NotFound")
        .with_code(404)
        .with_details(details)
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(api_version: &str, kind: &str, name: &str) -> ObjectReference {
        ObjectReference {
            api_version: Some(api_version.into()),
            kind: Some(kind.into()),
            name: Some(name.into()),
            ..ObjectReference::default()
        }
    }

    #[test]
    fn a_half_empty_reference_is_rejected_before_a_request() {
        let rejected = [
            (
                reference("", "A", "a"),
                "object reference has no apiVersion; set it",
            ),
            (
                reference("example.com/", "A", "a"),
                "invalid apiVersion `example.com/` of object reference; use `group/version`",
            ),
            (
                reference("v1", "", "a"),
                "object reference has no kind; set it",
            ),
            (
                reference("v1", "A", ""),
                "object reference has no name; set it",
            ),
            (
                reference("a/b/c", "A", "a"),
                "invalid apiVersion `a/b/c` of object reference; use `group/version`",
            ),
            (
                reference("a/..", "A", "a"),
                "invalid apiVersion `a/..` of object reference; use `group/version`",
            ),
            (
                reference("a/v1?x=y", "A", "a"),
                "invalid apiVersion `a/v1?x=y` of object reference; use `group/version`",
            ),
            (
                ObjectReference::default(),
                "object reference has no kind; set it",
            ),
        ];
        for (reference, text) in rejected {
            let error = Target::of(&reference)
                .check()
                .expect_err("an invalid reference");
            assert_eq!(error.to_string(), text);
        }
        let core = reference("v1", "Pod", "a");
        assert!(Target::of(&core).check().is_ok());
    }

    #[test]
    fn the_error_of_a_missing_object_is_that_of_the_api_server() {
        let error = not_found(("example.com", "things"), "a");
        assert!(error.is_not_found());
        assert_eq!(error.to_string(), "things.example.com \"a\" not found");
        assert_eq!(
            not_found(("", "pods"), "a").to_string(),
            "pods \"a\" not found"
        );
    }
}
