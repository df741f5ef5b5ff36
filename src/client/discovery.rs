//! Discovery: maps kinds to resources, like the REST mapper of client-go.
//!
//! Invariant: resources are never guessed. A resource is declared by the Rust type, or listed by
//! the API server for its group and version. A found resource is cached until a request shows that
//! it is gone. A missing kind is discovered again each time. Concurrent callers share one request,
//! but a caller does not accept a negative answer to a request that started before its own call.
//!
//! A kind is missing only if the API server has listed its resources without it. A 404 for a path
//! is not sufficient, because a proxy without a backend answers everything with 404.

use super::{CountedClient, Error, ResponseTimeout, Result};
use crate::object::{KubeObject, ObjectKey};
use hashbrown::HashMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroupList, APIResourceList, APIVersions};
use kube_core::{ApiResource, DynamicObject, GroupVersionKind, Resource};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Resource of a kind on the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Discovered {
    /// Group, version, kind and plural name.
    pub resource: ApiResource,
    /// Whether objects of the kind have a namespace.
    pub namespaced: bool,
    /// Whether discovery has listed a `status` subresource.
    status: bool,
}

impl Discovered {
    /// Returns the key of an object of this kind.
    ///
    /// The key of a cluster-scoped object has no namespace.
    ///
    /// ```
    /// # use steersman::{client::Discovered, object::ObjectKey};
    /// # fn example(node: &Discovered) {
    /// assert_eq!(node.key(Some("shop"), "node-1"), ObjectKey::cluster_scoped("node-1"));
    /// # }
    /// ```
    pub fn key(&self, namespace: Option<&str>, name: &str) -> ObjectKey {
        ObjectKey::new(
            namespace.filter(|_| self.namespaced).unwrap_or_default(),
            name,
        )
    }

    /// Returns group, version and kind.
    pub fn gvk(&self) -> GroupVersionKind {
        let ApiResource {
            group,
            version,
            kind,
            ..
        } = &self.resource;
        GroupVersionKind::gvk(group, version, kind)
    }

    /// Returns the resource that the Rust type declares, if it does.
    pub(super) fn of<K: KubeObject>() -> Option<Self> {
        let (resource, namespaced) = K::static_resource()?;
        Some(Self::typed(resource, namespaced))
    }

    pub(super) fn typed(resource: ApiResource, namespaced: bool) -> Self {
        Self {
            resource,
            namespaced,
            status: false,
        }
    }

    /// Returns the path, such as `/apis/apps/v1/namespaces/default/deployments`.
    pub(super) fn path(&self, namespace: Option<&str>) -> String {
        DynamicObject::url_path(&self.resource, namespace)
    }
}

/// Resource from a discovery response.
struct ListedResource {
    found: Discovered,
    /// Whether the resource supports `get`.
    readable: bool,
}

/// Result of a discovery request that concurrent callers share.
type Shared = Result<Vec<ListedResource>, ResponseTimeout>;

/// Discovered kinds, shared by a client and all clients derived from it.
#[derive(Default)]
pub(super) struct Kinds(Mutex<State>);

#[derive(Default)]
struct State {
    known: HashMap<GroupVersionKind, Arc<Discovered>>,
    /// Discovery requests in flight by `apiVersion`.
    in_flight: HashMap<String, Arc<OnceCell<Shared>>>,
}

impl Kinds {
    pub(super) async fn find(
        &self,
        client: &CountedClient,
        kind: &GroupVersionKind,
    ) -> Result<Option<Arc<Discovered>>> {
        self.find_with(client, kind, |_| true).await
    }

    /// Returns whether the kind is served with a `status` subresource.
    ///
    /// A CRD can add it later, so a cached resource without one is discovered again.
    pub(super) async fn has_status(
        &self,
        client: &CountedClient,
        kind: &GroupVersionKind,
    ) -> Result<bool> {
        Ok(self
            .find_with(client, kind, |found| found.status)
            .await?
            .is_some_and(|found| found.status))
    }

    /// Returns the resource, from the cache if it `is_sufficient`.
    ///
    /// A shared request may be older than this call. If its answer is not
    /// sufficient, discovers once more.
    async fn find_with(
        &self,
        client: &CountedClient,
        kind: &GroupVersionKind,
        is_sufficient: fn(&Discovered) -> bool,
    ) -> Result<Option<Arc<Discovered>>> {
        let known = self
            .0
            .lock()
            .known
            .get(kind)
            .filter(|known| is_sufficient(known))
            .cloned();
        if known.is_some() {
            return Ok(known);
        }
        self.discover_uncached(client, kind, is_sufficient).await
    }

    /// Returns the resource in each served version of its group, the preferred version first.
    ///
    /// Does not use the cached resources, because versions come and go.
    pub(super) async fn find_versions(
        &self,
        client: &CountedClient,
        group: &str,
        kind: &str,
    ) -> Result<Vec<Arc<Discovered>>> {
        let mut found = Vec::new();
        for version in served_versions(client, group).await? {
            let kind = GroupVersionKind::gvk(group, &version, kind);
            found.extend(self.discover_uncached(client, &kind, |_| true).await?);
        }
        Ok(found)
    }

    /// Returns the cached plural name of a kind, which is the same in all versions.
    pub(super) fn known_plural(&self, group: &str, kind: &str) -> Option<String> {
        let state = self.0.lock();
        let mut known = state.known.values().map(|known| &known.resource);
        known
            .find(|known| known.group == group && known.kind == kind)
            .map(|known| known.plural.clone())
    }

    /// Discovers a kind, whether it is cached or not.
    async fn discover_uncached(
        &self,
        client: &CountedClient,
        kind: &GroupVersionKind,
        is_sufficient: fn(&Discovered) -> bool,
    ) -> Result<Option<Arc<Discovered>>> {
        let (found, shared) = self.discover_shared(client, kind).await;
        // A shared timeout is final: asking again for each caller would add up the limits.
        let is_final = match &found {
            Ok(found) => found.as_deref().is_some_and(is_sufficient),
            Err(error) => error.is_timeout(),
        };
        if !shared || is_final {
            return found;
        }
        // A request that is shared now started after this call.
        self.discover_shared(client, kind).await.0
    }

    /// Discovers a kind. The flag is true if another caller had started the request.
    async fn discover_shared(
        &self,
        client: &CountedClient,
        kind: &GroupVersionKind,
    ) -> (Result<Option<Arc<Discovered>>>, bool) {
        let api_version = kind.api_version();
        let cell = self
            .0
            .lock()
            .in_flight
            .entry(api_version.clone())
            .or_default()
            .clone();
        let mut shared = true;
        // The first caller sends the request. If it is cancelled or fails, the next one does.
        let first = || {
            shared = false;
            discover(client, kind)
        };
        let found = match cell.get_or_try_init(first).await {
            Ok(Ok(all)) => select_resource(all, kind),
            Ok(Err(timeout)) => Err(Error::Timeout(*timeout)),
            Err(error) => return (Err(error), shared),
        };
        let mut state = self.0.lock();
        // The request is complete, so later callers start a new one.
        if state
            .in_flight
            .get(&api_version)
            .is_some_and(|current| Arc::ptr_eq(current, &cell))
        {
            state.in_flight.remove(&api_version);
        }
        match &found {
            Ok(Some(found)) => state.known.insert(kind.clone(), found.clone()),
            _ => state.known.remove(kind),
        };
        (found, shared)
    }

    /// Removes a resource that is not served any more.
    pub(super) fn forget(&self, kind: &GroupVersionKind) {
        self.0.lock().known.remove(kind);
    }
}

/// Selects the resource of a kind, preferring those that can be read.
///
/// `OpenShift` serves two resources for some kinds, one of which supports only `create`.
fn select_resource(
    all: &[ListedResource],
    kind: &GroupVersionKind,
) -> Result<Option<Arc<Discovered>>> {
    let mut of_kind: Vec<_> = all
        .iter()
        .filter(|listed| listed.found.resource.kind == kind.kind)
        .collect();
    if of_kind.iter().any(|listed| listed.readable) {
        of_kind.retain(|listed| listed.readable);
    }
    match &*of_kind {
        [] => Ok(None),
        [resource] => Ok(Some(Arc::new(resource.found.clone()))),
        several => {
            let resources: Vec<_> = several
                .iter()
                .map(|listed| &*listed.found.resource.plural)
                .collect();
            let kind = format!("{} {}", kind.api_version(), kind.kind);
            Err(Error::AmbiguousKind {
                kind,
                resources: resources.join(", "),
            })
        }
    }
}

/// Returns the resources of a group and version, none if it is not served.
async fn discover(client: &CountedClient, kind: &GroupVersionKind) -> Result<Shared> {
    let list = match served_resources(client, kind).await {
        Err(Error::Timeout(timeout)) => return Ok(Err(timeout)),
        list => list?.unwrap_or_default(),
    };
    let (parts, objects): (Vec<_>, Vec<_>) = list
        .resources
        .into_iter()
        .partition(|resource| resource.name.contains('/'));
    let has_status = |plural: &str| {
        parts
            .iter()
            .any(|part| part.name.strip_suffix("/status") == Some(plural))
    };
    let listed = objects.into_iter().map(|resource| ListedResource {
        readable: resource.verbs.iter().any(|verb| verb == "get"),
        found: Discovered {
            status: has_status(&resource.name),
            resource: ApiResource {
                group: kind.group.clone(),
                version: kind.version.clone(),
                api_version: kind.api_version(),
                kind: resource.kind,
                plural: resource.name,
            },
            namespaced: resource.namespaced,
        },
    });
    Ok(Ok(listed.collect()))
}

/// Returns whether discovery shows that the kind or the subresource is missing.
pub(super) async fn is_missing(
    client: &CountedClient,
    kind: &Discovered,
    part: Option<&str>,
) -> bool {
    let resource = &kind.resource;
    let has = |list: &APIResourceList| {
        list.resources
            .iter()
            .any(|listed| match (listed.name.split_once('/'), part) {
                (None, None) => listed.kind == resource.kind,
                (Some((plural, its)), Some(part)) => plural == resource.plural && its == part,
                _ => false,
            })
    };
    match served_resources(client, &kind.gvk()).await {
        Ok(list) => list.is_none_or(|list| !has(&list)),
        Err(_) => false,
    }
}

/// Returns the versions of a group, the preferred one first. Empty if no version is served.
async fn served_versions(link: &CountedClient, group: &str) -> Result<Vec<String>> {
    if group.is_empty() {
        return Ok(link.get::<APIVersions>("/api").await?.versions);
    }
    let groups = link.get::<APIGroupList>("/apis").await?.groups;
    let Some(group) = groups.into_iter().find(|listed| listed.name == group) else {
        return Ok(Vec::new());
    };
    let preferred = group.preferred_version.map(|preferred| preferred.version);
    let mut versions: Vec<_> = group
        .versions
        .into_iter()
        .map(|version| version.version)
        .collect();
    versions.sort_by_key(|version| Some(version) != preferred.as_ref());
    Ok(versions)
}

/// Returns the resources of a group and version; `None` if it is not listed.
///
/// A version that is listed and not served is an error.
pub(crate) async fn served_resources(
    client: &CountedClient,
    kind: &GroupVersionKind,
) -> Result<Option<APIResourceList>> {
    let core = kind.group.is_empty();
    let root = if core { "/api" } else { "/apis" };
    let error = match client.get(&format!("{root}/{}", kind.api_version())).await {
        Ok(list) => return Ok(Some(list)),
        Err(error) if error.status().is_some_and(|status| status.code == 404) => error,
        Err(error) => return Err(error),
    };
    let is_listed = if core {
        client
            .get::<APIVersions>(root)
            .await?
            .versions
            .contains(&kind.version)
    } else {
        let groups = client.get::<APIGroupList>(root).await?.groups;
        let mut versions = groups
            .iter()
            .filter(|group| group.name == kind.group)
            .flat_map(|group| &group.versions);
        versions.any(|version| version.version == kind.version)
    };
    if is_listed { Err(error) } else { Ok(None) }
}
