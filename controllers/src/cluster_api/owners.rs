//! Owner references with the rules of Cluster API.
//!
//! Cluster API compares owners by group, kind and name, so that a reference survives a new API
//! version and the restore of a backup. [`steersman::client::owner`] has the rules of Kubernetes,
//! which compares uids.
//!
//! | function | compares |
//! |---|---|
//! | [`contains`], [`ensure`], [`remove`], [`is_owned_by`], [`is_controlled_by`] | group, kind, name |
//! | [`contains_exactly`] | version, kind, name, uid, `controller` |
//! | [`replace`] | uid |
//! | [`contains_kind`] | group, kind |
//!
//! ```
//! use steersman_controllers::cluster_api::{owners, Cluster};
//!
//! let cluster: Cluster = serde_json::from_value(serde_json::json!({
//!     "metadata": {"namespace": "shop", "name": "web", "uid": "1-2-3"}, "spec": {"paused": false},
//! }))?;
//! let reference = owners::reference(&cluster);
//! let mut references = Vec::new();
//! owners::ensure(&mut references, reference.clone());
//! assert!(owners::contains_exactly(&references, &reference));
//! # Ok::<_, serde_json::Error>(())
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use steersman::{
    object::{KubeObject, Meta, Owner},
    prelude::GroupVersionKind,
};

/// Creates a reference to an object, without `controller` and `blockOwnerDeletion`.
///
/// Version and kind are empty for a dynamic object without them, as are name and uid for an object
/// that the API server does not know.
pub fn reference(owner: &impl KubeObject) -> OwnerReference {
    let gvk = owner.gvk();
    let (name, uid) = (&owner.meta().name, &owner.meta().uid);
    OwnerReference {
        api_version: gvk
            .as_ref()
            .map(GroupVersionKind::api_version)
            .unwrap_or_default(),
        kind: gvk.map(|gvk| gvk.kind).unwrap_or_default(),
        name: name.clone().unwrap_or_default(),
        uid: uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    }
}

/// Returns whether the list has a reference to the same object, of any version.
pub fn contains(references: &[OwnerReference], reference: &OwnerReference) -> bool {
    position(references, reference).is_some()
}

/// Returns whether the list has the same reference.
///
/// A missing `controller` is equal to `false`. `blockOwnerDeletion` is not compared.
pub fn contains_exactly(references: &[OwnerReference], reference: &OwnerReference) -> bool {
    references.iter().any(|existing| {
        existing.api_version == reference.api_version
            && existing.kind == reference.kind
            && existing.name == reference.name
            && existing.uid == reference.uid
            && existing.controller.unwrap_or_default() == reference.controller.unwrap_or_default()
    })
}

/// Returns whether the list has an owner of the group of `api_version` and one of the kinds.
///
/// References after one with an invalid `apiVersion` are not read, as in Cluster API.
pub fn contains_kind(references: &[OwnerReference], api_version: &str, kinds: &[&str]) -> bool {
    let Some(group) = group(api_version) else {
        return false;
    };
    let mut groups = references
        .iter()
        .map_while(|existing| Some((self::group(&existing.api_version)?, existing)));
    groups.any(|(other, existing)| other == group && kinds.contains(&existing.kind.as_str()))
}

/// Adds a reference, or replaces the one to the same object, whose version or uid may differ.
pub fn ensure(references: &mut Vec<OwnerReference>, reference: OwnerReference) {
    match position(references, &reference) {
        Some(position) => references[position] = reference,
        None => references.push(reference),
    }
}

/// Replaces the reference to the owner with the uid `old` by `new`, or adds `new`.
pub fn replace(references: &mut Vec<OwnerReference>, old: &str, new: OwnerReference) {
    match references.iter_mut().find(|existing| existing.uid == old) {
        Some(existing) => *existing = new,
        None => references.push(new),
    }
}

/// Removes the reference to the same object, of any version and uid. Returns whether it existed.
pub fn remove(references: &mut Vec<OwnerReference>, reference: &OwnerReference) -> bool {
    let position = position(references, reference);
    position
        .map(|position| references.remove(position))
        .is_some()
}

/// Returns whether `owner` is one of the owners of an object.
///
/// Pass the metadata of the object: `Meta::from(child.meta())`, or `child.meta()` in handlers.
pub fn is_owned_by(child: Meta<'_>, owner: &impl KubeObject) -> bool {
    child.owners().any(|reference| refers_to(&reference, owner))
}

/// Returns whether `owner` is the controller of an object.
pub fn is_controlled_by(child: Meta<'_>, owner: &impl KubeObject) -> bool {
    let controller = child.controller();
    controller.is_some_and(|reference| refers_to(&reference, owner))
}

/// Returns the name of the owner of a kind, whatever its version.
///
/// Use it to map an event of an object to its owner, such as the Cluster of an infrastructure.
pub fn name_of<'a>(child: Meta<'a>, owner_group: &str, owner_kind: &str) -> Option<&'a str> {
    let mut owners = child.owners();
    let owner = owners
        .find(|owner| owner.kind == owner_kind && group(owner.api_version) == Some(owner_group));
    owner.map(|owner| owner.name)
}

fn refers_to(reference: &Owner<'_>, owner: &impl KubeObject) -> bool {
    owner.gvk().is_some_and(|gvk| {
        group(reference.api_version) == Some(&gvk.group)
            && reference.kind == gvk.kind
            && Some(reference.name) == owner.meta().name.as_deref()
    })
}

fn position(references: &[OwnerReference], reference: &OwnerReference) -> Option<usize> {
    let group = group(&reference.api_version)?;
    references.iter().position(|existing| {
        self::group(&existing.api_version) == Some(group)
            && existing.kind == reference.kind
            && existing.name == reference.name
    })
}

/// Returns the group of an `apiVersion`; `None` if it is invalid.
fn group(api_version: &str) -> Option<&str> {
    match api_version.split_once('/') {
        None => Some(""),
        Some((_, version)) if version.contains('/') => None,
        Some((group, _)) => Some(group),
    }
}
