//! Owner references: garbage collection, and the controller of an object.
//!
//! Invariant: an owner is identified by its UID. A recreated owner of the same name is another
//! owner: the reference to the old one stays until the garbage collector has deleted the
//! dependents, and no child is adopted by name. References for which the garbage collector would
//! delete the child are rejected: a namespaced owner can only own objects in its namespace.
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
//! owner::add(&other, &mut settings)?; // deleted with the last owner
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

use crate::object::{AsObject, KubeObject, Meta, ObjectKey, Owner};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::Resource;

/// Sets `owner` as the controller of `child`.
///
/// The garbage collector deletes the child with its owner, and `owns()` maps events of the child to
/// the owner. A foreground deletion of the owner waits for the child (`blockOwnerDeletion`). If the
/// API server enforces permissions for that, the caller needs the right to update `finalizers` of
/// the owner. An existing reference to the owner is updated.
pub fn set_controller<M>(
    owner: &impl AsObject<M, Object: KubeObject>,
    child: &mut impl KubeObject,
) -> Result<(), OwnerError> {
    let reference = reference(owner.as_object(), child)?;
    if let Some(other) = controller_of(child).filter(|other| other.uid != reference.uid) {
        let owner = format!("{} {} with uid {}", other.kind, other.name, other.uid);
        return Err(OwnerError::AlreadyOwned {
            child: name(child),
            owner,
        });
    }
    let reference = put(child, reference);
    (reference.controller, reference.block_owner_deletion) = (Some(true), Some(true));
    Ok(())
}

/// Adds `owner` to the owners of `child`, which is deleted with the last of them.
///
/// An existing reference to the owner is updated and keeps its `controller` field.
pub fn add<M>(
    owner: &impl AsObject<M, Object: KubeObject>,
    child: &mut impl KubeObject,
) -> Result<(), OwnerError> {
    let reference = reference(owner.as_object(), child)?;
    put(child, reference);
    Ok(())
}

/// Removes `owner` from the owners of `child`; returns false if it was not one.
pub fn remove<M>(
    owner: &impl AsObject<M, Object: KubeObject>,
    child: &mut impl KubeObject,
) -> bool {
    let Some(uid) = uid(owner.as_object()) else {
        return false;
    };
    let owners = &mut child.meta_mut().owner_references;
    let Some(references) = owners else {
        return false;
    };
    let before = references.len();
    references.retain(|reference| reference.uid != uid);
    let removed = references.len() < before;
    if references.is_empty() {
        *owners = None;
    }
    removed
}

/// Returns the controlling owner of `child`, if it has one.
pub fn controller_of<M>(child: &impl AsObject<M, Object: KubeObject>) -> Option<Owner<'_>> {
    Meta::from(child.as_object().meta()).controller()
}

/// Returns whether `owner` is the controller of `child`, compared by UID.
pub fn is_controlled_by<M, N>(
    child: &impl AsObject<M, Object: KubeObject>,
    owner: &impl AsObject<N, Object: KubeObject>,
) -> bool {
    let uid = uid(owner.as_object());
    controller_of(child).is_some_and(|controller| uid == Some(controller.uid))
}

/// Error of setting an owner reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerError {
    /// The child has another controller. An object can have only one.
    #[error(
        "cannot set the controller of {child}: it is already controlled by {owner}; remove that \
         owner first, or add this one as a plain owner"
    )]
    AlreadyOwned {
        /// Kind and key of the child.
        child: String,
        /// Kind, name and UID of its controller.
        owner: String,
    },
    /// The child is not in the owner's namespace, so it would be garbage collected.
    #[error(
        "cannot make {owner} an owner of {child}: they are in different namespaces; label the \
         child instead, and delete it with a finalizer"
    )]
    CrossNamespace {
        /// Kind and key of the child.
        child: String,
        /// Kind and key of the owner.
        owner: String,
    },
    /// The owner was not created yet: its kind, name, UID or namespace is missing.
    #[error(
        "cannot make {0} an owner: its kind, name, uid or namespace is missing; create it first, \
         and use the object that the API server returned"
    )]
    Incomplete(String),
}

/// Creates a reference to `owner`, not as the controller, if it may own `child`.
fn reference(
    owner: &impl KubeObject,
    child: &impl KubeObject,
) -> Result<OwnerReference, OwnerError> {
    let incomplete = || OwnerError::Incomplete(name(owner));
    let kind = owner.gvk().ok_or_else(incomplete)?;
    let uid = uid(owner).ok_or_else(incomplete)?;
    let key = ObjectKey::of(owner);
    let home = namespace(owner);
    if key.name().is_empty() || home == Some("") {
        return Err(incomplete());
    }
    if home.is_some() && home != namespace(child) {
        return Err(OwnerError::CrossNamespace {
            child: name(child),
            owner: name(owner),
        });
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

/// Inserts or updates the reference with this UID.
///
/// An existing one keeps `controller` and `blockOwnerDeletion`.
fn put(child: &mut impl KubeObject, reference: OwnerReference) -> &mut OwnerReference {
    let owners = child.meta_mut().owner_references.get_or_insert_default();
    let index = owners
        .iter()
        .position(|known| known.uid == reference.uid)
        .unwrap_or(owners.len());
    match owners.get_mut(index) {
        Some(known) => {
            let OwnerReference {
                controller,
                block_owner_deletion,
                ..
            } = *known;
            *known = OwnerReference {
                controller,
                block_owner_deletion,
                ..reference
            };
        }
        None => owners.push(reference),
    }
    &mut owners[index]
}

fn uid(object: &impl KubeObject) -> Option<&str> {
    object.meta().uid.as_deref().filter(|uid| !uid.is_empty())
}

/// Returns the namespace; `None` if cluster-scoped, empty if it is not set yet.
///
/// The scope is that of the Rust type. A dynamic object is namespaced if it has a namespace.
fn namespace<K: KubeObject>(object: &K) -> Option<&str> {
    let declared = object.meta().namespace.as_deref();
    match K::static_resource() {
        Some((_, false)) => None,
        Some((_, true)) => Some(declared.unwrap_or_default()),
        None => declared.filter(|namespace| !namespace.is_empty()),
    }
}

fn name(object: &impl KubeObject) -> String {
    let kind = object
        .gvk()
        .map_or_else(|| "an object without a kind".into(), |gvk| gvk.kind);
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
        from_value(json!({"metadata": {"namespace": namespace, "name": name, "uid": uid}}))
            .expect("an object")
    }

    fn dynamic(
        api_version: &str,
        namespace: Option<&str>,
        name: &str,
        uid: Option<&str>,
    ) -> DynamicObject {
        let metadata = json!({"namespace": namespace, "name": name, "uid": uid});
        from_value(json!({"apiVersion": api_version, "kind": "Order", "metadata": metadata}))
            .expect("an object")
    }

    fn owner() -> Secret {
        typed(Some("shop"), "web", Some("1"))
    }

    fn child() -> ConfigMap {
        typed(Some("shop"), "settings", None)
    }

    fn owners(child: &ConfigMap) -> &[OwnerReference] {
        child
            .metadata
            .owner_references
            .as_deref()
            .unwrap_or_default()
    }

    #[test]
    fn a_controller_reference_blocks_owner_deletion() {
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
    fn an_added_owner_is_not_the_controller() {
        let mut child = child();
        add(&owner(), &mut child).unwrap();
        assert_eq!(
            (
                owners(&child)[0].controller,
                owners(&child)[0].block_owner_deletion
            ),
            (None, None)
        );
        assert!(!is_controlled_by(&child, &owner()) && controller_of(&child).is_none());
        set_controller(&owner(), &mut child).unwrap();
        assert!(is_controlled_by(&child, &owner()));
        assert_eq!(owners(&child).len(), 1, "the owner is updated, not added");
    }

    #[test]
    fn adding_an_owner_twice_changes_nothing() {
        let mut child = child();
        set_controller(&owner(), &mut child).unwrap();
        let once = child.clone();
        set_controller(&owner(), &mut child).unwrap();
        add(&owner(), &mut child).unwrap();
        assert_eq!(child, once, "the controller stays");
    }

    #[test]
    fn an_owner_is_identified_by_uid_and_updated() {
        let mut child = child();
        let order = |version, name| dynamic(version, Some("shop"), name, Some("1"));
        set_controller(&order("shop.example/v1", "web"), &mut child).unwrap();
        set_controller(&order("shop.example/v2", "web"), &mut child).unwrap();
        let [only] = owners(&child) else {
            panic!("one owner: {:?}", owners(&child))
        };
        assert_eq!(
            (&*only.api_version, only.controller),
            ("shop.example/v2", Some(true))
        );

        let recreated = dynamic("shop.example/v2", Some("shop"), "web", Some("2"));
        assert!(!is_controlled_by(&child, &recreated));
        let error = set_controller(&recreated, &mut child).unwrap_err();
        let expected = "cannot set the controller of ConfigMap shop/settings: it is already controlled by \
                        Order web with uid 1;";
        assert!(
            matches!(error, OwnerError::AlreadyOwned { .. })
                && error.to_string().starts_with(expected),
            "{error}"
        );
        add(&recreated, &mut child).unwrap();
        assert_eq!(owners(&child).len(), 2, "the old reference stays");
        assert!(
            !remove(
                &dynamic("shop.example/v2", Some("shop"), "web", None),
                &mut child
            ),
            "by its name alone"
        );
        assert!(remove(&order("shop.example/v1", "web"), &mut child));
        set_controller(&recreated, &mut child).unwrap();
    }

    #[test]
    fn an_owner_is_passed_as_a_cached_read_returns_it() {
        let owner = std::sync::Arc::new(owner());
        let mut child = child();
        set_controller(&owner, &mut child).unwrap();
        add(&owner, &mut child).unwrap();
        let child = std::sync::Arc::new(child);
        assert!(is_controlled_by(&child, &owner));
        assert_eq!(controller_of(&child).map(|owner| owner.name), Some("web"));
        assert_eq!(ObjectKey::of(&owner), ObjectKey::new("shop", "web"));
    }

    #[test]
    fn removing_an_owner_keeps_the_others() {
        let (mut child, other) = (child(), typed::<Secret>(Some("shop"), "other", Some("2")));
        assert!(!remove(&owner(), &mut child), "there is none");
        set_controller(&owner(), &mut child).unwrap();
        add(&other, &mut child).unwrap();
        assert!(remove(&owner(), &mut child));
        assert!(!remove(&owner(), &mut child), "it is gone");
        assert_eq!(
            owners(&child)
                .iter()
                .map(|owner| &*owner.name)
                .collect::<Vec<_>>(),
            ["other"]
        );
        assert!(remove(&other, &mut child));
        assert_eq!(child.metadata.owner_references, None);
    }

    #[test]
    fn a_namespaced_owner_owns_in_its_namespace_only() {
        /// Returns whether `owner` may own `child`.
        fn may(owner: &impl KubeObject, mut child: impl KubeObject) -> bool {
            let (added, controls) = (
                add(owner, &mut child.clone()),
                set_controller(owner, &mut child),
            );
            assert_eq!(added, controls);
            match added {
                Ok(()) => true,
                Err(OwnerError::CrossNamespace { .. }) => {
                    assert_eq!(
                        child.meta().owner_references,
                        None,
                        "a rejection leaves the child unchanged"
                    );
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
            assert!(
                !may(&secret, node(child)),
                "a node is in no namespace, {what}"
            );
        }
        let node_owner = typed::<Node>(shop, "node-1", Some("1"));
        let cluster = dynamic("shop.example/v1", None, "web", Some("1"));
        for child in [shop, other, None] {
            assert!(
                may(&node_owner, map(child))
                    && may(&node_owner, order(child))
                    && may(&node_owner, node(child))
            );
            assert!(
                may(&cluster, map(child))
                    && may(&cluster, order(child))
                    && may(&cluster, node(child))
            );
        }
    }

    #[test]
    fn an_incomplete_owner_is_an_error() {
        let mut child = child();
        let mut assert_incomplete = |owner: &DynamicObject| {
            let error = set_controller(owner, &mut child).unwrap_err();
            assert!(matches!(error, OwnerError::Incomplete(_)), "{error}");
            assert!(!remove(owner, &mut child) && !is_controlled_by(&child, owner));
        };
        assert_incomplete(&dynamic("v1", Some("shop"), "web", None));
        assert_incomplete(&dynamic("v1", Some("shop"), "web", Some("")));
        assert_incomplete(&dynamic("v1", Some("shop"), "", Some("1")));
        assert_incomplete(&DynamicObject {
            types: None,
            ..dynamic("v1", Some("shop"), "web", Some("1"))
        });
        let without_namespace =
            set_controller(&typed::<Secret>(None, "web", Some("1")), &mut child).unwrap_err();
        assert_eq!(
            without_namespace,
            OwnerError::Incomplete("Secret web".into())
        );
    }
}
