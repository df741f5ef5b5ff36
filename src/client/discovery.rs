//! Where kinds are on the server: the REST mapper.
//!
//! What holds: nothing is guessed. A resource is what a type says, or what the server has said of its group and version; that is kept until the server
//! denies it, and what it does not have is asked for again each time. Who asks at the same time shares one request; a no that was
//! asked for earlier is nobody else's answer.
//!
//! "No" is said only if the server has listed what it has, and the kind is not among it. That nothing is found at a path is no such answer: a proxy that has lost
//! its server says so of everything.

use super::{Error, Link, ResponseTimeout, Result};
use crate::object::{KubeObject, ObjectKey};
use hashbrown::HashMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroupList, APIResourceList, APIVersions};
use kube_core::{ApiResource, DynamicObject, GroupVersionKind, Resource};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Where a kind is on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Discovered {
    /// Its group, version, kind and plural.
    pub resource: ApiResource,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether the server has said that their status is written apart.
    status: bool,
}

impl Discovered {
    /// The key of an object of this kind: the namespace counts only if the kind has one.
    ///
    /// ```
    /// # use steersman::{client::Discovered, object::ObjectKey};
    /// # fn example(node: &Discovered) {
    /// assert_eq!(node.key(Some("shop"), "node-1"), ObjectKey::cluster_scoped("node-1"));
    /// # }
    /// ```
    pub fn key(&self, namespace: Option<&str>, name: &str) -> ObjectKey {
        ObjectKey::new(namespace.filter(|_| self.namespaced).unwrap_or_default(), name)
    }

    /// The kind.
    pub fn gvk(&self) -> GroupVersionKind {
        let ApiResource { group, version, kind, .. } = &self.resource;
        GroupVersionKind::gvk(group, version, kind)
    }

    /// As the type says, if it does.
    pub(super) fn of<K: KubeObject>() -> Option<Self> {
        let (resource, namespaced) = K::static_resource()?;
        Some(Self::typed(resource, namespaced))
    }

    pub(super) fn typed(resource: ApiResource, namespaced: bool) -> Self {
        Self { resource, namespaced, status: false }
    }

    /// `/apis/apps/v1/namespaces/default/deployments`
    pub(super) fn path(&self, namespace: Option<&str>) -> String {
        DynamicObject::url_path(&self.resource, namespace)
    }
}

/// A resource, as the server lists it.
struct Listed {
    found: Discovered,
    /// Whether its objects can be read.
    readable: bool,
}

/// The result of a discovery request that all callers who wait for it share.
type Shared = Result<Vec<Listed>, ResponseTimeout>;

/// What the server has said of kinds, shared by a client and what was made from it.
#[derive(Default)]
pub(super) struct Kinds(Mutex<State>);

#[derive(Default)]
struct State {
    known: HashMap<GroupVersionKind, Arc<Discovered>>,
    /// Questions without an answer yet, by `apiVersion`.
    asked: HashMap<String, Arc<OnceCell<Shared>>>,
}

impl Kinds {
    pub(super) async fn find(&self, link: &Link, kind: &GroupVersionKind) -> Result<Option<Arc<Discovered>>> {
        self.find_with(link, kind, |_| true).await
    }

    /// Whether the status of a kind is written apart; false also if there is no such kind. Definitions gain that, so what has not had it is asked for again.
    pub(super) async fn has_status(&self, link: &Link, kind: &GroupVersionKind) -> Result<bool> {
        Ok(self.find_with(link, kind, |found| found.status).await?.is_some_and(|found| found.status))
    }

    /// One that is known not to be `enough` is asked for again. What others asked for before may be older than what is there now: if it says no, this asks itself.
    async fn find_with(
        &self,
        link: &Link,
        kind: &GroupVersionKind,
        enough: fn(&Discovered) -> bool,
    ) -> Result<Option<Arc<Discovered>>> {
        let known = self.0.lock().known.get(kind).filter(|known| enough(known)).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let (found, shared) = self.ask(link, kind).await;
        // A shared time-out is final: asking again for each caller would add up the limits.
        let is_final = match &found {
            Ok(found) => found.as_deref().is_some_and(enough),
            Err(error) => error.is_timeout(),
        };
        if !shared || is_final {
            return found;
        }
        // Whoever asks by now has begun later than this.
        self.ask(link, kind).await.0
    }

    /// What the server says; and whether somebody else had asked already.
    async fn ask(&self, link: &Link, kind: &GroupVersionKind) -> (Result<Option<Arc<Discovered>>>, bool) {
        let api_version = kind.api_version();
        let asked = self.0.lock().asked.entry(api_version.clone()).or_default().clone();
        let mut shared = true;
        // Who is first asks; if that one goes away or fails, the next one does.
        let first = || {
            shared = false;
            ask(link, kind)
        };
        let found = match asked.get_or_try_init(first).await {
            Ok(Ok(all)) => the_one(all, kind),
            Ok(Err(timeout)) => Err(Error::Timeout(*timeout)),
            Err(error) => return (Err(error), shared),
        };
        let mut state = self.0.lock();
        // Answered: who comes now asks anew.
        if state.asked.get(&api_version).is_some_and(|current| Arc::ptr_eq(current, &asked)) {
            state.asked.remove(&api_version);
        }
        match &found {
            Ok(Some(found)) => state.known.insert(kind.clone(), found.clone()),
            _ => state.known.remove(kind),
        };
        (found, shared)
    }

    /// It is not there any more.
    pub(super) fn forget(&self, kind: &GroupVersionKind) {
        self.0.lock().known.remove(kind);
    }
}

/// The one that is meant by a kind. `OpenShift` has two of some: what is there, and what can only be made.
fn the_one(all: &[Listed], kind: &GroupVersionKind) -> Result<Option<Arc<Discovered>>> {
    let mut of_kind: Vec<_> = all.iter().filter(|listed| listed.found.resource.kind == kind.kind).collect();
    if of_kind.iter().any(|listed| listed.readable) {
        of_kind.retain(|listed| listed.readable);
    }
    match &*of_kind {
        [] => Ok(None),
        [one] => Ok(Some(Arc::new(one.found.clone()))),
        several => {
            let resources: Vec<_> = several.iter().map(|listed| &*listed.found.resource.plural).collect();
            let kind = format!("{} {}", kind.api_version(), kind.kind);
            Err(Error::AmbiguousKind { kind, resources: resources.join(", ") })
        }
    }
}

/// Returns the resources of a group and version, none if the API server does not serve it.
async fn ask(link: &Link, kind: &GroupVersionKind) -> Result<Shared> {
    let list = match served_resources(link, kind).await {
        Err(Error::Timeout(timeout)) => return Ok(Err(timeout)),
        list => list?.unwrap_or_default(),
    };
    let (parts, objects): (Vec<_>, Vec<_>) =
        list.resources.into_iter().partition(|resource| resource.name.contains('/'));
    let has_status = |plural: &str| parts.iter().any(|part| part.name.strip_suffix("/status") == Some(plural));
    let listed = objects.into_iter().map(|resource| Listed {
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

/// Whether the server has said that it has no such kind, or the kind no such part.
pub(super) async fn lacks(link: &Link, kind: &Discovered, part: Option<&str>) -> bool {
    let resource = &kind.resource;
    let has = |list: &APIResourceList| {
        list.resources.iter().any(|listed| match (listed.name.split_once('/'), part) {
            (None, None) => listed.kind == resource.kind,
            (Some((plural, its)), Some(part)) => plural == resource.plural && its == part,
            _ => false,
        })
    };
    match served_resources(link, &kind.gvk()).await {
        Ok(list) => list.is_none_or(|list| !has(&list)),
        Err(_) => false,
    }
}

/// Returns what the API server serves of a group and version; `None` if it does not list that version.
/// A version that is listed and not served is an error.
pub(crate) async fn served_resources(link: &Link, kind: &GroupVersionKind) -> Result<Option<APIResourceList>> {
    let core = kind.group.is_empty();
    let root = if core { "/api" } else { "/apis" };
    let error = match link.get(&format!("{root}/{}", kind.api_version())).await {
        Ok(list) => return Ok(Some(list)),
        Err(error) if error.status().is_some_and(|status| status.code == 404) => error,
        Err(error) => return Err(error),
    };
    let is_listed = if core {
        link.get::<APIVersions>(root).await?.versions.contains(&kind.version)
    } else {
        let groups = link.get::<APIGroupList>(root).await?.groups;
        let mut versions = groups.iter().filter(|group| group.name == kind.group).flat_map(|group| &group.versions);
        versions.any(|version| version.version == kind.version)
    };
    if is_listed { Err(error) } else { Ok(None) }
}
