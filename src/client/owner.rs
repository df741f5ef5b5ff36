//! Owner references: who is deleted with whom, and whose controller looks after whom.
//!
//! What holds: an owner is its uid. One that was recreated under its name is another one: the reference to the old one stays until the server has collected
//! what it owned, and no child is taken over by name. And no reference is made that the server would answer by deleting the child: an owner that lives in a
//! namespace owns there only.
//!
//! ```
//! use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
//! use serde_json::{from_value, json};
//! use steersman::client::owner;
//!
//! let web: Deployment = from_value(json!({"metadata": {"namespace": "shop", "name": "web", "uid": "1-2-3"}}))?;
//! let mut settings: ConfigMap = from_value(json!({"metadata": {"namespace": "shop", "name": "web-settings"}}))?;
//! owner::set_controller(&web, &mut settings)?;
//! assert!(owner::is_controlled_by(&settings, &web));
//!
//! let other: Deployment = from_value(json!({"metadata": {"namespace": "shop", "name": "other", "uid": "4-5-6"}}))?;
//! assert!(owner::set_controller(&other, &mut settings).is_err());
//! owner::add(&other, &mut settings)?; // goes only when both are gone
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

use crate::object::{KubeObject, Meta, ObjectKey, Owner};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// Make `owner` the one controller of `child`: it is deleted with it, and whoever watches what `owner` controls is told of it.
///
/// A foreground deletion of the owner waits for the child (`blockOwnerDeletion`). To set that, a server that checks it wants the right to update the
/// owner's `finalizers`. Where the owner is in `child` already, it is made the controller, and its version, kind and name are as they are now.
pub fn set_controller(owner: &impl KubeObject, child: &mut impl KubeObject) -> Result<(), OwnerError> {
    let reference = reference(owner, child)?;
    if let Some(other) = controller_of(child).filter(|other| other.uid != reference.uid) {
        let owner = format!("{} {} with uid {}", other.kind, other.name, other.uid);
        return Err(OwnerError::AlreadyOwned { child: name(child), owner });
    }
    let reference = put(child, reference);
    (reference.controller, reference.block_owner_deletion) = (Some(true), Some(true));
    Ok(())
}

/// Make `owner` one of the owners of `child`, which is deleted when the last of them is gone.
///
/// Where it is in `child` already, its version, kind and name are as they are now; and if it is the controller, it stays so.
pub fn add(owner: &impl KubeObject, child: &mut impl KubeObject) -> Result<(), OwnerError> {
    let reference = reference(owner, child)?;
    put(child, reference);
    Ok(())
}

/// Let `child` go on without `owner`, its controller or not; false if it was not among its owners.
pub fn remove(owner: &impl KubeObject, child: &mut impl KubeObject) -> bool {
    let Some(uid) = uid(owner) else { return false };
    let owners = &mut child.meta_mut().owner_references;
    let Some(references) = owners else { return false };
    let before = references.len();
    references.retain(|reference| reference.uid != uid);
    let removed = references.len() < before;
    if references.is_empty() {
        *owners = None;
    }
    removed
}

/// The owner that manages `child`, if there is one.
pub fn controller_of(child: &impl KubeObject) -> Option<Owner<'_>> {
    Meta::from(child.meta()).controller()
}

/// Whether `owner`, and not only one of its name, is the controller of `child`.
pub fn is_controlled_by(child: &impl KubeObject, owner: &impl KubeObject) -> bool {
    controller_of(child).is_some_and(|controller| uid(owner) == Some(controller.uid))
}

/// Why somebody cannot be an owner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerError {
    /// There is another controller, and there can be only one.
    #[error(
        "{child} is already controlled by {owner}: remove that owner first, or add this one without making it the controller"
    )]
    AlreadyOwned {
        /// The object that was to be owned.
        child: String,
        /// Its controller: kind, name and uid.
        owner: String,
    },
    /// An owner in a namespace, and a child that is not in it: the server would delete the child.
    #[error(
        "{owner} cannot own {child}, which is not in its namespace: label the child instead, and delete it with a finalizer"
    )]
    CrossNamespace {
        /// The object that was to be owned.
        child: String,
        /// Who was to own it.
        owner: String,
    },
    /// What the server does not know cannot own.
    #[error("{0} has no kind, name, uid or namespace yet: create it first, and use what the server has answered")]
    Incomplete(String),
}

/// To `owner`, which may own `child`; not as the controller.
fn reference(owner: &impl KubeObject, child: &impl KubeObject) -> Result<OwnerReference, OwnerError> {
    let incomplete = || OwnerError::Incomplete(name(owner));
    let kind = owner.gvk().ok_or_else(incomplete)?;
    let uid = uid(owner).ok_or_else(incomplete)?;
    let key = ObjectKey::of(owner);
    let home = namespace(owner);
    if key.name().is_empty() || home == Some("") {
        return Err(incomplete());
    }
    if home.is_some() && home != namespace(child) {
        return Err(OwnerError::CrossNamespace { child: name(child), owner: name(owner) });
    }
    Ok(OwnerReference {
        api_version: kind.api_version(),
        kind: kind.kind,
        name: key.name().into(),
        uid: uid.into(),
        controller: None,
        block_owner_deletion: None,
    })
}

/// The owner's reference as it is in `child` then: there is one for a uid, which keeps what it says of controllers and deletion.
fn put(child: &mut impl KubeObject, reference: OwnerReference) -> &mut OwnerReference {
    let owners = child.meta_mut().owner_references.get_or_insert_default();
    let index = owners.iter().position(|known| known.uid == reference.uid).unwrap_or(owners.len());
    match owners.get_mut(index) {
        Some(known) => {
            let OwnerReference { controller, block_owner_deletion, .. } = *known;
            *known = OwnerReference { controller, block_owner_deletion, ..reference };
        }
        None => owners.push(reference),
    }
    &mut owners[index]
}

fn uid(object: &impl KubeObject) -> Option<&str> {
    object.meta().uid.as_deref().filter(|uid| !uid.is_empty())
}

/// `None` if it lives in none: as its type says, otherwise as it says itself. Empty if it has yet to say it.
fn namespace<K: KubeObject>(object: &K) -> Option<&str> {
    let said = object.meta().namespace.as_deref();
    match K::static_resource() {
        Some((_, false)) => None,
        Some((_, true)) => Some(said.unwrap_or_default()),
        None => said.filter(|namespace| !namespace.is_empty()),
    }
}

fn name(object: &impl KubeObject) -> String {
    let kind = object.gvk().map_or_else(|| "an object without a kind".into(), |gvk| gvk.kind);
    format!("{kind} {}", ObjectKey::of(object))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
    use kube_core::DynamicObject;
    use serde::de::DeserializeOwned;
    use serde_json::{from_value, json};

    fn typed<K: DeserializeOwned>(namespace: Option<&str>, name: &str, uid: Option<&str>) -> K {
        from_value(json!({"metadata": {"namespace": namespace, "name": name, "uid": uid}})).expect("an object")
    }

    fn dynamic(api_version: &str, namespace: Option<&str>, name: &str, uid: Option<&str>) -> DynamicObject {
        let metadata = json!({"namespace": namespace, "name": name, "uid": uid});
        from_value(json!({"apiVersion": api_version, "kind": "Order", "metadata": metadata})).expect("an object")
    }

    fn owner() -> Secret {
        typed(Some("shop"), "web", Some("1"))
    }

    fn child() -> ConfigMap {
        typed(Some("shop"), "settings", None)
    }

    fn owners(child: &ConfigMap) -> &[OwnerReference] {
        child.metadata.owner_references.as_deref().unwrap_or_default()
    }

    #[test]
    fn a_controller_is_one_that_a_foreground_deletion_waits_for() {
        let mut child = child();
        set_controller(&owner(), &mut child).unwrap();
        let expected = OwnerReference {
            api_version: "v1".into(),
            kind: "Secret".into(),
            name: "web".into(),
            uid: "1".into(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        };
        assert_eq!(owners(&child), [expected]);
        assert!(is_controlled_by(&child, &owner()));
        assert_eq!(controller_of(&child).map(|owner| owner.name), Some("web"));
    }

    #[test]
    fn an_owner_that_is_added_is_not_the_controller() {
        let mut child = child();
        add(&owner(), &mut child).unwrap();
        assert_eq!((owners(&child)[0].controller, owners(&child)[0].block_owner_deletion), (None, None));
        assert!(!is_controlled_by(&child, &owner()) && controller_of(&child).is_none());
        set_controller(&owner(), &mut child).unwrap();
        assert!(is_controlled_by(&child, &owner()));
        assert_eq!(owners(&child).len(), 1, "it is the same owner");
    }

    #[test]
    fn the_same_owner_twice_changes_nothing() {
        let mut child = child();
        set_controller(&owner(), &mut child).unwrap();
        let once = child.clone();
        set_controller(&owner(), &mut child).unwrap();
        add(&owner(), &mut child).unwrap();
        assert_eq!(child, once, "it stays the controller");
    }

    #[test]
    fn an_owner_is_told_by_its_uid_and_known_by_what_it_says_now() {
        let mut child = child();
        let order = |version, name| dynamic(version, Some("shop"), name, Some("1"));
        set_controller(&order("shop.example/v1", "web"), &mut child).unwrap();
        set_controller(&order("shop.example/v2", "web"), &mut child).unwrap();
        let [only] = owners(&child) else { panic!("one owner: {:?}", owners(&child)) };
        assert_eq!((&*only.api_version, only.controller), ("shop.example/v2", Some(true)));

        let recreated = dynamic("shop.example/v2", Some("shop"), "web", Some("2"));
        assert!(!is_controlled_by(&child, &recreated));
        let error = set_controller(&recreated, &mut child).unwrap_err();
        let expected = "ConfigMap shop/settings is already controlled by Order web with uid 1";
        assert!(matches!(error, OwnerError::AlreadyOwned { .. }) && error.to_string().starts_with(expected), "{error}");
        add(&recreated, &mut child).unwrap();
        assert_eq!(owners(&child).len(), 2, "the old reference stays");
        assert!(!remove(&dynamic("shop.example/v2", Some("shop"), "web", None), &mut child), "by its name alone");
        assert!(remove(&order("shop.example/v1", "web"), &mut child));
        set_controller(&recreated, &mut child).unwrap();
    }

    #[test]
    fn what_is_removed_leaves_the_others_and_the_last_one_nothing() {
        let (mut child, other) = (child(), typed::<Secret>(Some("shop"), "other", Some("2")));
        assert!(!remove(&owner(), &mut child), "there is none");
        set_controller(&owner(), &mut child).unwrap();
        add(&other, &mut child).unwrap();
        assert!(remove(&owner(), &mut child));
        assert!(!remove(&owner(), &mut child), "it is gone");
        assert_eq!(owners(&child).iter().map(|owner| &*owner.name).collect::<Vec<_>>(), ["other"]);
        assert!(remove(&other, &mut child));
        assert_eq!(child.metadata.owner_references, None);
    }

    #[test]
    fn who_lives_in_a_namespace_owns_only_there() {
        /// Whether the one may own the other.
        fn may(owner: &impl KubeObject, mut child: impl KubeObject) -> bool {
            let (added, controls) = (add(owner, &mut child.clone()), set_controller(owner, &mut child));
            assert_eq!(added, controls);
            match added {
                Ok(()) => true,
                Err(OwnerError::CrossNamespace { .. }) => {
                    assert_eq!(child.meta().owner_references, None, "a refusal leaves the child as it was");
                    false
                }
                Err(other) => panic!("{other}"),
            }
        }
        let map = |namespace| typed::<ConfigMap>(namespace, "child", None);
        let order = |namespace| dynamic("shop.example/v1", namespace, "child", None);
        let node = |namespace| typed::<Node>(namespace, "child", None);
        let [shop, other] = [Some("shop"), Some("other")];

        let secret = owner();
        let named = dynamic("shop.example/v1", shop, "web", Some("1"));
        for (what, child, allowed) in [
            ("at home", shop, true),
            ("elsewhere", other, false),
            ("nowhere yet", None, false),
            ("in an empty namespace", Some(""), false),
        ] {
            assert_eq!(may(&secret, map(child)), allowed, "typed, {what}");
            assert_eq!(may(&secret, order(child)), allowed, "dynamic child, {what}");
            assert_eq!(may(&named, map(child)), allowed, "dynamic owner, {what}");
            assert_eq!(may(&named, order(child)), allowed, "dynamic, {what}");
            assert!(!may(&secret, node(child)), "a node is in no namespace, {what}");
        }
        let node_owner = typed::<Node>(shop, "node-1", Some("1"));
        let cluster = dynamic("shop.example/v1", None, "web", Some("1"));
        for child in [shop, other, None] {
            assert!(may(&node_owner, map(child)) && may(&node_owner, order(child)) && may(&node_owner, node(child)));
            assert!(may(&cluster, map(child)) && may(&cluster, order(child)) && may(&cluster, node(child)));
        }
    }

    #[test]
    fn what_the_server_does_not_know_owns_nothing() {
        let mut child = child();
        let mut refused = |owner: &DynamicObject| {
            let error = set_controller(owner, &mut child).unwrap_err();
            assert!(matches!(error, OwnerError::Incomplete(_)), "{error}");
            assert!(!remove(owner, &mut child) && !is_controlled_by(&child, owner));
        };
        refused(&dynamic("v1", Some("shop"), "web", None));
        refused(&dynamic("v1", Some("shop"), "web", Some("")));
        refused(&dynamic("v1", Some("shop"), "", Some("1")));
        refused(&DynamicObject { types: None, ..dynamic("v1", Some("shop"), "web", Some("1")) });
        let nowhere = set_controller(&typed::<Secret>(None, "web", Some("1")), &mut child).unwrap_err();
        assert_eq!(nowhere, OwnerError::Incomplete("Secret web".into()));
    }
}
