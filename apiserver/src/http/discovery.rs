//! Discovery documents: the legacy ones, one per path, and the aggregated ones.
//!
//! Built-in groups come first, in the order they are given, then those of custom resources by name.
//! Versions are sorted newest first, resources by name.

#[cfg(test)]
mod tests;

use crate::{builtin, resource::Resource};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::hash::{DefaultHasher, Hasher as _};

/// A JSON document with its entity tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Document {
    /// Encoded document.
    pub(crate) body: Vec<u8>,
    /// Entity tag, with its quotes.
    pub(crate) etag: String,
}

impl Document {
    /// Encodes `value`.
    pub(crate) fn new(value: &Value) -> Self {
        let body = serde_json::to_vec(value).unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        hasher.write(&body);
        Self {
            etag: format!("\"{:016X}\"", hasher.finish()),
            body,
        }
    }

    /// Returns whether an `If-None-Match` header contains the tag of this document.
    pub(crate) fn is_known_by(&self, if_none_match: &str) -> bool {
        if_none_match
            .split(',')
            .any(|tag| tag.trim() == self.etag || tag.trim() == "*")
    }
}

/// Returns `/api`: the versions of the core group.
pub(crate) fn api_versions<'a>(
    served: impl IntoIterator<Item = &'a Resource>,
    address: &str,
) -> Value {
    let versions: Vec<_> = groups(served)
        .into_iter()
        .filter(|it| it.name.is_empty())
        .flat_map(|it| it.versions)
        .collect();
    json!({
        "kind": "APIVersions",
        "versions": versions.iter().map(|version| version.name).collect::<Vec<_>>(),
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// Returns `/apis`: the named groups.
pub(crate) fn group_list<'a>(served: impl IntoIterator<Item = &'a Resource>) -> Value {
    let groups = groups(served).into_iter().filter(|it| !it.name.is_empty());
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups.map(|it| it.legacy()).collect::<Vec<_>>()})
}

/// Returns `/apis/G`: one group, if it is served.
pub(crate) fn group<'a>(
    served: impl IntoIterator<Item = &'a Resource>,
    name: &str,
) -> Option<Value> {
    let mut group = groups(served)
        .into_iter()
        .find(|it| !name.is_empty() && it.name == name)?
        .legacy();
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    Some(group)
}

/// Returns `/api/v1` or `/apis/G/V`: the resources of one version, if it is served.
pub(crate) fn resource_list<'a>(
    served: impl IntoIterator<Item = &'a Resource>,
    group: &str,
    version: &str,
) -> Option<Value> {
    let group = groups(served).into_iter().find(|it| it.name == group)?;
    let version = group.versions.iter().find(|it| it.name == version)?;
    let resources: Vec<_> = version
        .resources
        .iter()
        .flat_map(|resource| legacy_entries(resource))
        .collect();
    let mut list = json!({
        "kind": "APIResourceList", "groupVersion": group.version(version.name), "resources": resources,
    });
    // The core group's list has no `apiVersion`, as in kube-apiserver.
    if !group.name.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Some(list)
}

/// Returns `/api` (`core`) or `/apis` in aggregated form, as `apidiscovery.k8s.io/v2`.
pub(crate) fn aggregated<'a>(served: impl IntoIterator<Item = &'a Resource>, core: bool) -> Value {
    let groups = groups(served)
        .into_iter()
        .filter(|it| it.name.is_empty() == core);
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": groups.map(|it| it.aggregated()).collect::<Vec<_>>(),
    })
}

/// Returns `/`: the list of paths.
pub(crate) fn paths<'a>(served: impl IntoIterator<Item = &'a Resource>) -> Value {
    let mut paths = vec![
        "/api".to_owned(),
        "/apis".into(),
        "/healthz".into(),
        "/livez".into(),
        "/readyz".into(),
    ];
    paths.push("/version".into());
    for resource in served {
        let version = resource.api_version();
        if resource.group.is_empty() {
            paths.push(format!("/api/{version}"));
        } else {
            paths.extend([
                format!("/apis/{}", resource.group),
                format!("/apis/{version}"),
            ]);
        }
    }
    paths.sort_unstable();
    paths.dedup();
    json!({"paths": paths})
}

/// Returns `/version`: the Kubernetes version of this API.
pub(crate) fn version() -> Value {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "major": "1",
        "minor": "37",
        "gitVersion": "v1.37.1",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{architecture}", std::env::consts::OS),
    })
}

struct Group<'a> {
    name: &'a str,
    versions: Vec<Version<'a>>,
}

struct Version<'a> {
    name: &'a str,
    /// Resources sorted by name.
    resources: Vec<&'a Resource>,
}

fn groups<'a>(served: impl IntoIterator<Item = &'a Resource>) -> Vec<Group<'a>> {
    let mut groups: Vec<(Option<&str>, Group)> = Vec::new();
    for resource in served {
        let name = &*resource.group;
        let index = groups
            .iter()
            .position(|(_, group)| group.name == name)
            .unwrap_or_else(|| {
                // Built-in groups have no key, so they come first and stay in order.
                groups.push((
                    resource.strategy.custom.then_some(name),
                    Group {
                        name,
                        versions: Vec::new(),
                    },
                ));
                groups.len() - 1
            });
        let versions = &mut groups[index].1.versions;
        match versions
            .iter_mut()
            .find(|version| version.name == &*resource.version)
        {
            Some(version) => version.resources.push(resource),
            None => versions.push(Version {
                name: &resource.version,
                resources: vec![resource],
            }),
        }
    }
    groups.sort_by_key(|(custom, _)| *custom);
    for (_, group) in &mut groups {
        group
            .versions
            .sort_by_key(|version| Reverse(priority(version.name)));
        for version in &mut group.versions {
            version.resources.sort_by_key(|resource| &*resource.plural);
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Returns the sort key of a version in Kubernetes' order: `v2`, `v1`, `v1beta2`, `v1alpha1`, then
/// others by name.
pub(crate) fn priority(version: &str) -> (u8, u32, u32, Reverse<&str>) {
    let parsed = || {
        let rest = version.strip_prefix('v')?;
        let digits = rest.len()
            - rest
                .trim_start_matches(|it: char| it.is_ascii_digit())
                .len();
        let (major, rest) = rest.split_at(digits);
        let major = major.parse().ok()?;
        let minor = |text: &str| {
            text.bytes()
                .all(|it| it.is_ascii_digit())
                .then(|| text.parse::<u32>().ok())
                .flatten()
        };
        match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
            (Some(minor_text), _) => Some((2, major, minor(minor_text)?)),
            (_, Some(minor_text)) => Some((1, major, minor(minor_text)?)),
            _ => rest.is_empty().then_some((3, major, 0)),
        }
    };
    let (stability, major, minor) = parsed().unwrap_or_default();
    (stability, major, minor, Reverse(version))
}

impl Group<'_> {
    fn version(&self, version: &str) -> String {
        if self.name.is_empty() {
            version.into()
        } else {
            format!("{}/{version}", self.name)
        }
    }

    fn legacy(&self) -> Value {
        let versions: Vec<_> = self
            .versions
            .iter()
            .map(|version| json!({"groupVersion": self.version(version.name), "version": version.name}))
            .collect();
        json!({"name": self.name, "preferredVersion": versions.first(), "versions": versions})
    }

    fn aggregated(&self) -> Value {
        let versions: Vec<_> = self
            .versions
            .iter()
            .map(|version| {
                let resources: Vec<_> = version
                    .resources
                    .iter()
                    .map(|it| aggregated_entry(it))
                    .collect();
                json!({"version": version.name, "resources": resources, "freshness": "Current"})
            })
            .collect();
        let metadata = if self.name.is_empty() {
            json!({})
        } else {
            json!({"name": self.name})
        };
        json!({"metadata": metadata, "versions": versions})
    }
}

/// A subresource in a discovery document.
struct SubresourceEntry<'a> {
    name: &'static str,
    group: &'a str,
    version: &'a str,
    kind: &'a str,
    verbs: &'static [&'static str],
}

const READ_AND_WRITE: &[&str] = &["get", "patch", "update"];

/// Returns the subresources sorted by name.
fn subresources(resource: &Resource) -> Vec<SubresourceEntry<'_>> {
    let own = |name, verbs| SubresourceEntry {
        name,
        group: &resource.group,
        version: &resource.version,
        kind: &resource.kind,
        verbs,
    };
    let finalize = (resource.group.is_empty() && &*resource.plural == "namespaces")
        .then(|| own("finalize", &["update"]));
    let scale = resource
        .strategy
        .scale
        .is_some()
        .then_some(SubresourceEntry {
            name: "scale",
            group: "autoscaling",
            version: "v1",
            kind: "Scale",
            verbs: READ_AND_WRITE,
        });
    let status = resource
        .strategy
        .status
        .is_some()
        .then(|| own("status", READ_AND_WRITE));
    // Subresources of custom resources are not sorted.
    let both = if resource.strategy.custom {
        [status, scale]
    } else {
        [scale, status]
    };
    finalize
        .into_iter()
        .chain(both.into_iter().flatten())
        .collect()
}

fn legacy_entries(resource: &Resource) -> Vec<Value> {
    let mut entry = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.verbs,
    });
    name_further(&mut entry, resource);
    entry["storageVersionHash"] = storage_hash(resource).into();
    let subresources = subresources(resource).into_iter().map(|it| {
        let mut entry = json!({
            "name": format!("{}/{}", resource.plural, it.name),
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": it.kind,
            "verbs": it.verbs,
        });
        if (it.group, it.version) != (&*resource.group, &*resource.version) {
            entry["group"] = it.group.into();
            entry["version"] = it.version.into();
        }
        entry
    });
    std::iter::once(entry).chain(subresources).collect()
}

fn aggregated_entry(resource: &Resource) -> Value {
    let response = |group: &str, version: &str, kind: &str| {
        // Built-in resources omit default values.
        let own =
            !resource.strategy.custom && (group, version) == (&*resource.group, &*resource.version);
        let (group, version) = if own { ("", "") } else { (group, version) };
        json!({"group": group, "version": version, "kind": kind})
    };
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": response(&resource.group, &resource.version, &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    name_further(&mut entry, resource);
    let subresources = subresources(resource).into_iter().map(|it| {
        json!({"subresource": it.name, "responseKind": response(it.group, it.version, it.kind), "verbs": it.verbs})
    });
    put_some(&mut entry, "subresources", subresources.collect());
    entry
}

/// Returns the hash by which clients notice a change of the storage version.
fn storage_hash(resource: &Resource) -> String {
    let (group, _) = builtin::storage_of(&resource.group, &resource.plural);
    let stored = format!("{group}/{}/{}", resource.storage, resource.kind);
    BASE64_STANDARD.encode(&digest(&SHA256, stored.as_bytes()).as_ref()[..8])
}

fn name_further(entry: &mut Value, resource: &Resource) {
    put_some(
        entry,
        "shortNames",
        resource.short_names.iter().map(|it| json!(it)).collect(),
    );
    put_some(
        entry,
        "categories",
        resource.categories.iter().map(|it| json!(it)).collect(),
    );
}

/// Sets a list unless it is empty.
fn put_some(entry: &mut Value, key: &str, list: Vec<Value>) {
    if !list.is_empty() {
        entry[key] = list.into();
    }
}
