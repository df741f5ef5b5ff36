//! Which informers there are, and which of them a declaration means.
//!
//! What holds: who means the same finds the same one, whoever comes first. Of a kind without namespaces that is the same whatever is said of namespaces, and
//! of one that is named at run time only the server knows whether it has some: so there is no key that says it all, and each informer is asked, by what is
//! known of it by then. Two that were declared in different words before anybody knew that they mean the same stay two: handles are never moved.

use super::{CacheError, CacheOptions, plan::Plan, select::Said, tend::Declared};
use hashbrown::HashMap;
use kube_core::GroupVersionKind;
use std::{any::TypeId, sync::Arc};

#[derive(Default)]
pub(super) struct Roster {
    informers: HashMap<GroupVersionKind, Vec<Arc<Declared>>>,
    /// Of those that clients read, by type and kind: to make one, selectors are parsed.
    plain: HashMap<TypeId, HashMap<GroupVersionKind, Plan>>,
}

impl Roster {
    /// The informer that this plan is of; first of all one that was declared in the same words.
    pub(super) fn find(&self, gvk: &GroupVersionKind, plan: &Plan) -> Option<&Arc<Declared>> {
        let of_kind = self.informers.get(gvk)?;
        let same_words = of_kind.iter().find(|one| one.is_of(plan) && one.plan.scope == plan.scope);
        same_words.or_else(|| of_kind.iter().find(|one| one.is_of(plan)))
    }

    /// [`Self::find`] for a selection that says nothing but its kind.
    pub(super) fn find_plain(
        &mut self,
        said: &Said,
        options: &CacheOptions,
    ) -> Result<Option<Arc<Declared>>, CacheError> {
        if let Some(plan) = self.plain.get(&said.form.id).and_then(|kinds| kinds.get(&said.gvk)) {
            return Ok(self.find(&said.gvk, plan).cloned());
        }
        let plan = Plan::new(said, options)?;
        let found = self.find(&said.gvk, &plan).cloned();
        if found.is_some() {
            self.plain.entry(said.form.id).or_default().insert(said.gvk.clone(), plan);
        }
        Ok(found)
    }

    pub(super) fn add(&mut self, declared: Arc<Declared>) {
        self.informers.entry_ref(&declared.gvk).or_default().push(declared);
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Declared>> {
        self.informers.values().flatten()
    }

    /// Take those out that `are` to go.
    pub(super) fn take(&mut self, are: impl Fn(&Declared) -> bool) -> Vec<Arc<Declared>> {
        let mut taken = Vec::new();
        self.informers.retain(|_, of_kind| {
            taken.extend(of_kind.extract_if(.., |one| are(one)));
            !of_kind.is_empty()
        });
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cache::{Namespaces, Select, life::Life},
        object::{KubeObject, Metadata},
    };
    use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
    use kube_core::DynamicObject;
    use std::sync::OnceLock;

    fn options() -> CacheOptions {
        CacheOptions { namespaces: Namespaces::These(vec!["shop".into()]), ..CacheOptions::default() }
    }

    fn plan<K>(select: &Select<K>) -> Plan {
        Plan::new(select.said(), &options()).expect("a plan")
    }

    fn dynamic(kind: &str) -> Select<DynamicObject> {
        Select::dynamic(GroupVersionKind::gvk("", "v1", kind))
    }

    /// What this one means, added if it was not there; and whether it was.
    fn declare<K: KubeObject>(roster: &mut Roster, select: &Select<K>) -> (Arc<Declared>, bool) {
        let (gvk, plan) = (select.said().gvk.clone(), plan(select));
        if let Some(found) = roster.find(&gvk, &plan) {
            return (found.clone(), true);
        }
        let (core, life) = (plan.core(&gvk), Life::new(gvk.clone(), plan.scope.clone()));
        let declared = Arc::new(Declared { gvk, plan, core, life, namespaces: None, held: OnceLock::new() });
        roster.add(declared.clone());
        (declared, false)
    }

    #[test]
    fn a_kind_without_namespaces_is_one_informer_by_type_and_by_name_whoever_comes_first() {
        let all = || Namespaces::All;
        let mut by_type = Roster::default();
        let (node, _) = declare(&mut by_type, &Select::<Node>::new());
        assert!(
            declare(&mut by_type, &dynamic("Node")).1 && declare(&mut by_type, &dynamic("Node").namespaces(all())).1
        );
        assert!(declare(&mut by_type, &Select::<Metadata<Node>>::new()).1);
        assert!(!declare(&mut by_type, &dynamic("Node").labels("a")).1, "other labels are another scope");
        assert_eq!(node.words(), "");

        let mut by_name = Roster::default();
        let (node, _) = declare(&mut by_name, &dynamic("Node"));
        assert!(declare(&mut by_name, &Select::<Node>::new()).1, "the type knows for both");
        assert!(declare(&mut by_name, &Select::<Node>::new().namespaces(all())).1);
        assert_eq!((by_name.all().count(), &*node.words()), (1, "in shop"));
        node.life.found(false);
        assert_eq!(node.words(), "", "as the server has it");
    }

    #[test]
    fn what_is_said_of_namespaces_counts_until_it_is_known_that_there_are_none() {
        let mut roster = Roster::default();
        let (some, _) = declare(&mut roster, &dynamic("Thing"));
        let everywhere = dynamic("Thing").namespaces(Namespaces::All);
        assert!(!declare(&mut roster, &everywhere).1, "nobody knows");
        some.life.found(false);
        assert!(declare(&mut roster, &dynamic("Thing").namespaces(Namespaces::Labelled("a".into()))).1);
        let same = |select: &Select<DynamicObject>, it: &Arc<Declared>| {
            Arc::ptr_eq(roster.find(&select.said().gvk, &plan(select)).expect("it is there"), it)
        };
        assert!(same(&dynamic("Thing"), &some) && !same(&everywhere, &some), "handles stay where they are");

        let mut roster = Roster::default();
        let (some, _) = declare(&mut roster, &dynamic("Pod"));
        some.life.found(true);
        assert!(declare(&mut roster, &Select::<Pod>::new()).1);
        assert!(!declare(&mut roster, &Select::<Pod>::new().namespaces(Namespaces::All)).1);
    }

    /// The informer of a type that is wrong says so; one that is right serves nobody else's mistake.
    #[test]
    fn a_type_that_disagrees_with_the_server_does_not_share() {
        let mut roster = Roster::default();
        declare(&mut roster, &dynamic("Node")).0.life.found(true);
        assert!(!declare(&mut roster, &Select::<Node>::new()).1);
    }

    /// The namespaces that another informer follows are kept as that needs them.
    #[test]
    fn what_the_cache_declares_for_itself_is_its_own() {
        let mut roster = Roster::default();
        let set = Select::<Pod>::new().namespaces(Namespaces::Labelled("tenant".into()));
        let (said, own) = plan(&set).of_namespaces().expect("it follows some");
        let (mine, _) = declare(&mut roster, &dynamic("Namespace").labels("tenant"));
        mine.life.found(false);
        assert!(roster.find(&said.gvk, &own).is_none());
        assert!(declare(&mut roster, &Select::<Namespace>::new().labels("tenant")).1);
    }
}
