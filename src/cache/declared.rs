//! Declared informers, and the lookup of the informer that a declaration shares.
//!
//! Invariant: equivalent declarations share one informer, in any order. The namespaces of a
//! declaration do not count for a cluster-scoped kind, and only discovery knows the scope of a kind
//! that is named at run time. So there is no map key for a declaration: each informer of the kind
//! is compared by what is known at that time. Two informers that were declared before discovery
//! reported that they are equivalent stay separate, because handles are never moved.

use super::{
    CacheError, CacheOptions, informer_task::DeclaredInformer, plan::Plan, select::Declaration,
};
use hashbrown::HashMap;
use kube_core::GroupVersionKind;
use std::{any::TypeId, sync::Arc};

#[derive(Default)]
pub(super) struct DeclaredInformers {
    informers: HashMap<GroupVersionKind, Vec<Arc<DeclaredInformer>>>,
    /// Plans of plain selections by type and kind. Caches the parsed selectors for reads.
    plain: HashMap<TypeId, HashMap<GroupVersionKind, Plan>>,
}

impl DeclaredInformers {
    /// Returns the informer that serves a plan. Prefers one with exactly the same scope.
    pub(super) fn find(
        &self,
        gvk: &GroupVersionKind,
        plan: &Plan,
    ) -> Option<&Arc<DeclaredInformer>> {
        let of_kind = self.informers.get(gvk)?;
        let same_scope = of_kind
            .iter()
            .find(|declared| declared.matches(plan) && declared.plan.scope == plan.scope);
        same_scope.or_else(|| of_kind.iter().find(|declared| declared.matches(plan)))
    }

    /// Returns the informer of a selection without namespaces, selectors and settings.
    pub(super) fn find_plain(
        &mut self,
        declaration: &Declaration,
        options: &CacheOptions,
    ) -> Result<Option<Arc<DeclaredInformer>>, CacheError> {
        if let Some(plan) = self
            .plain
            .get(&declaration.stored_type.id)
            .and_then(|kinds| kinds.get(&declaration.gvk))
        {
            return Ok(self.find(&declaration.gvk, plan).cloned());
        }
        let plan = Plan::new(declaration, options)?;
        let found = self.find(&declaration.gvk, &plan).cloned();
        if found.is_some() {
            self.plain
                .entry(declaration.stored_type.id)
                .or_default()
                .insert(declaration.gvk.clone(), plan);
        }
        Ok(found)
    }

    pub(super) fn add(&mut self, declared: Arc<DeclaredInformer>) {
        self.informers
            .entry_ref(&declared.gvk)
            .or_default()
            .push(declared);
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<DeclaredInformer>> {
        self.informers.values().flatten()
    }

    /// Removes and returns the matching informers.
    pub(super) fn take(
        &mut self,
        are: impl Fn(&DeclaredInformer) -> bool,
    ) -> Vec<Arc<DeclaredInformer>> {
        let mut taken = Vec::new();
        self.informers.retain(|_, of_kind| {
            taken.extend(of_kind.extract_if(.., |declared| are(declared)));
            !of_kind.is_empty()
        });
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cache::{Namespaces, Select, refcount::RefCount},
        object::{KubeObject, Metadata},
    };
    use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
    use kube_core::DynamicObject;
    use std::sync::OnceLock;

    fn options() -> CacheOptions {
        CacheOptions {
            namespaces: Namespaces::List(vec!["shop".into()]),
            ..CacheOptions::default()
        }
    }

    fn plan<K>(select: &Select<K>) -> Plan {
        Plan::new(select.declaration(), &options()).expect("a plan")
    }

    fn dynamic(kind: &str) -> Select<DynamicObject> {
        Select::dynamic(GroupVersionKind::gvk("", "v1", kind))
    }

    /// Returns the informer of a selection, and whether it existed. Adds it otherwise.
    fn declare<K: KubeObject>(
        declared_informers: &mut DeclaredInformers,
        select: &Select<K>,
    ) -> (Arc<DeclaredInformer>, bool) {
        let (gvk, plan) = (select.declaration().gvk.clone(), plan(select));
        if let Some(found) = declared_informers.find(&gvk, &plan) {
            return (found.clone(), true);
        }
        let (core, refs) = (
            plan.core(&gvk),
            RefCount::new(gvk.clone(), plan.scope.clone()),
        );
        let declared = Arc::new(DeclaredInformer {
            gvk,
            plan,
            core,
            refs,
            namespaces: None,
            lazy_ref: OnceLock::new(),
        });
        declared_informers.add(declared.clone());
        (declared, false)
    }

    #[test]
    fn typed_and_dynamic_declarations_of_a_cluster_scoped_kind_share_an_informer() {
        let all = || Namespaces::All;
        let mut by_type = DeclaredInformers::default();
        let (node, _) = declare(&mut by_type, &Select::<Node>::new());
        assert!(
            declare(&mut by_type, &dynamic("Node")).1
                && declare(&mut by_type, &dynamic("Node").namespaces(all())).1
        );
        assert!(declare(&mut by_type, &Select::<Metadata<Node>>::new()).1);
        assert!(
            !declare(&mut by_type, &dynamic("Node").labels("a")).1,
            "other labels are another scope"
        );
        assert_eq!(node.describe_scope(), "");

        let mut by_name = DeclaredInformers::default();
        let (node, _) = declare(&mut by_name, &dynamic("Node"));
        assert!(
            declare(&mut by_name, &Select::<Node>::new()).1,
            "the type reports the scope of both"
        );
        assert!(declare(&mut by_name, &Select::<Node>::new().namespaces(all())).1);
        assert_eq!(
            (by_name.all().count(), &*node.describe_scope()),
            (1, "in shop")
        );
        node.refs.set_namespaced(false);
        assert_eq!(node.describe_scope(), "", "all objects");
    }

    #[test]
    fn namespaces_distinguish_informers_until_the_kind_is_known_to_be_cluster_scoped() {
        let mut declared_informers = DeclaredInformers::default();
        let (some, _) = declare(&mut declared_informers, &dynamic("Thing"));
        let everywhere = dynamic("Thing").namespaces(Namespaces::All);
        assert!(
            !declare(&mut declared_informers, &everywhere).1,
            "the scope is unknown"
        );
        some.refs.set_namespaced(false);
        assert!(
            declare(
                &mut declared_informers,
                &dynamic("Thing").namespaces(Namespaces::Labelled("a".into()))
            )
            .1
        );
        let same = |select: &Select<DynamicObject>, it: &Arc<DeclaredInformer>| {
            Arc::ptr_eq(
                declared_informers
                    .find(&select.declaration().gvk, &plan(select))
                    .expect("the informer is declared"),
                it,
            )
        };
        assert!(
            same(&dynamic("Thing"), &some) && !same(&everywhere, &some),
            "handles keep their informer"
        );

        let mut declared_informers = DeclaredInformers::default();
        let (some, _) = declare(&mut declared_informers, &dynamic("Pod"));
        some.refs.set_namespaced(true);
        assert!(declare(&mut declared_informers, &Select::<Pod>::new()).1);
        assert!(
            !declare(
                &mut declared_informers,
                &Select::<Pod>::new().namespaces(Namespaces::All)
            )
            .1
        );
    }

    /// The informer of the incorrect type fails. A correct one must not share it.
    #[test]
    fn a_type_that_disagrees_with_the_server_does_not_share() {
        let mut declared_informers = DeclaredInformers::default();
        declare(&mut declared_informers, &dynamic("Node"))
            .0
            .refs
            .set_namespaced(true);
        assert!(!declare(&mut declared_informers, &Select::<Node>::new()).1);
    }

    /// The cache's internal informer of namespaces has a fixed representation.
    #[test]
    fn declarations_do_not_share_internal_informers() {
        let mut declared_informers = DeclaredInformers::default();
        let set = Select::<Pod>::new().namespaces(Namespaces::Labelled("tenant".into()));
        let (declaration, own) = plan(&set)
            .namespace_selection()
            .expect("some namespaces are selected");
        let (mine, _) = declare(
            &mut declared_informers,
            &dynamic("Namespace").labels("tenant"),
        );
        mine.refs.set_namespaced(false);
        assert!(declared_informers.find(&declaration.gvk, &own).is_none());
        assert!(
            declare(
                &mut declared_informers,
                &Select::<Namespace>::new().labels("tenant")
            )
            .1
        );
    }
}
