//! Parts of an informer: one per namespace, one for all other objects, or both.
//!
//! Parts are added and removed as namespaces are.
//!
//! Invariant: each object belongs to one part. The revision of the informer is the smallest
//! revision of its listed parts. There is none before all parts are listed once. While a part has
//! not been listed since the reflectors were restarted, the revision does not increase.

use super::core::Condition;
use crate::object::ObjectKey;
use std::{
    collections::{BTreeMap, BTreeSet},
    ptr,
};
use tokio::time::Instant;

pub(super) struct NamespaceCores {
    /// Part of all objects outside of `namespaces`.
    rest: Option<NamespaceState>,
    namespaces: BTreeMap<String, NamespaceState>,
    /// Condition of the informer of namespaces that determines the parts.
    namespaces_condition: Condition,
    /// Whether the initial set of parts is complete.
    complete: bool,
    /// Condition of new parts until the initial set is complete.
    initial_condition: Condition,
    /// Parts that were listed before the reflectors were restarted. Cleared when the set of parts
    /// is complete. The empty name is `rest`.
    previously_listed: BTreeSet<String>,
}

/// State of one part.
pub(super) struct NamespaceState {
    /// Revision of the part, once it is listed.
    pub(super) revision: Option<u64>,
    pub(super) condition: Condition,
    /// Time of the last message of the API server.
    pub(super) last_message: Option<Instant>,
    pub(super) watched: bool,
    /// Whether the part was listed before the restart. Its next list is a relist then.
    pub(super) listed_before: bool,
}

impl Default for NamespaceCores {
    fn default() -> Self {
        Self::new(Condition::Starting)
    }
}

impl NamespaceCores {
    /// Creates an empty set, whose parts start with this condition.
    pub(super) fn new(initial_condition: Condition) -> Self {
        let (namespaces, previously_listed) = (BTreeMap::new(), BTreeSet::new());
        Self {
            rest: None,
            namespaces,
            namespaces_condition: initial_condition.clone(),
            complete: false,
            initial_condition,
            previously_listed,
        }
    }

    /// Creates an empty set after a restart, and remembers the parts that were listed.
    pub(super) fn restarted(&self, start: Condition) -> Self {
        let rest = self.rest.iter().map(|state| (String::new(), state));
        let all = rest.chain(
            self.namespaces
                .iter()
                .map(|(name, state)| (name.clone(), state)),
        );
        let listed = all.filter(|(_, state)| state.revision.is_some() || state.listed_before);
        let earlier = listed
            .map(|(name, _)| name)
            .chain(self.previously_listed.iter().cloned())
            .collect();
        Self {
            previously_listed: earlier,
            ..Self::new(start)
        }
    }

    /// Adds a part, or restarts it.
    pub(super) fn add(&mut self, namespace: Option<&str>) {
        let listed_before = self
            .previously_listed
            .contains(namespace.unwrap_or_default());
        let state = NamespaceState {
            revision: None,
            condition: self.initial_condition.clone(),
            last_message: None,
            watched: false,
            listed_before,
        };
        match namespace {
            Some(name) => drop(self.namespaces.insert(name.to_owned(), state)),
            None => self.rest = Some(state),
        }
    }

    pub(super) fn remove(&mut self, namespace: &str) -> Option<NamespaceState> {
        self.namespaces.remove(namespace)
    }

    pub(super) fn set_complete(&mut self) {
        self.complete = true;
        self.previously_listed.clear();
        self.initial_condition = Condition::Starting;
    }

    /// Returns whether a part exists. The empty name is `rest`.
    pub(super) fn contains(&self, namespace: &str) -> bool {
        if namespace.is_empty() {
            self.rest.is_some()
        } else {
            self.namespaces.contains_key(namespace)
        }
    }

    /// Returns whether the object belongs to an existing part.
    pub(super) fn covers(&self, key: &ObjectKey) -> bool {
        self.rest.is_some()
            || key
                .namespace()
                .is_some_and(|name| self.namespaces.contains_key(name))
    }

    pub(super) fn set_condition(&mut self, condition: Condition) {
        self.namespaces_condition = condition;
    }

    pub(super) fn get_mut(&mut self, namespace: Option<&str>) -> Option<&mut NamespaceState> {
        match namespace {
            Some(name) => self.namespaces.get_mut(name),
            None => self.rest.as_mut(),
        }
    }

    pub(super) fn get(&self, namespace: Option<&str>) -> Option<&NamespaceState> {
        match namespace {
            Some(name) => self.namespaces.get(name),
            None => self.rest.as_ref(),
        }
    }

    /// Returns whether the object belongs to `rest`, because its namespace has no part.
    pub(super) fn is_rest(&self, key: &ObjectKey) -> bool {
        key.namespace()
            .is_none_or(|name| !self.namespaces.contains_key(name))
    }

    /// Returns whether a namespace is listed, or was before the restart.
    pub(super) fn is_listed(&self, namespace: &str) -> bool {
        let part = self.namespaces.get(namespace).or(self.rest.as_ref());
        part.is_some_and(|part| part.revision.is_some() || part.listed_before)
            || self.previously_listed.contains(namespace)
    }

    /// Returns the revision of a namespace's part. Cluster-scoped objects are in the empty
    /// namespace.
    #[cfg(test)]
    pub(super) fn revision_of(&self, namespace: &str) -> Option<u64> {
        self.namespaces
            .get(namespace)
            .or(self.rest.as_ref())?
            .revision
    }

    pub(super) fn are_listed(&self) -> bool {
        self.complete && self.all().all(|part| part.revision.is_some())
    }

    /// Returns the oldest time of the parts' last messages.
    pub(super) fn last_message(&self) -> Option<Instant> {
        self.all().filter_map(|part| part.last_message).min()
    }

    /// Returns the revision of the informer. 0 until all parts are listed.
    ///
    /// `published` is the previous revision, if all parts were listed before.
    pub(super) fn revision(&self, published: Option<u64>) -> u64 {
        self.combined_revision(self.all(), None, published)
    }

    /// Returns the revision of the informer once a part has reached `revision`.
    pub(super) fn revision_with(
        &self,
        state: &NamespaceState,
        revision: u64,
        published: Option<u64>,
    ) -> u64 {
        self.combined_revision(
            self.all().filter(|other| !ptr::eq(*other, state)),
            Some(revision),
            published,
        )
    }

    fn combined_revision<'a>(
        &self,
        parts: impl Iterator<Item = &'a NamespaceState> + Clone,
        reached: Option<u64>,
        published: Option<u64>,
    ) -> u64 {
        let reached = parts
            .clone()
            .filter_map(|part| part.revision)
            .chain(reached)
            .min();
        let mut unlisted = parts.filter(|part| part.revision.is_none()).peekable();
        let all = self.complete && unlisted.peek().is_none();
        // These parts still have the state from before the restart.
        let before_restart = self
            .previously_listed
            .iter()
            .any(|name| !self.contains(name))
            || unlisted.any(|part| part.listed_before);
        match (reached, published) {
            (Some(reached), Some(published)) if before_restart => reached.min(published),
            (Some(reached), published) if all || published.is_some() => reached,
            (_, published) => published.unwrap_or_default(),
        }
    }

    /// Returns the worst condition of all parts, which is that of the informer.
    pub(super) fn worst(&self) -> &Condition {
        let rank = |condition: &Condition| match condition {
            Condition::Idle | Condition::Synced => 0,
            Condition::Starting => 1,
            Condition::KindNotFound { .. } => 2,
            Condition::Degraded { .. } => 3,
            Condition::Closed => 4,
        };
        let known = if self.complete {
            &Condition::Synced
        } else {
            &self.initial_condition
        };
        let all = self
            .all()
            .map(|part| &part.condition)
            .chain([&self.namespaces_condition]);
        all.fold(known, |worst, state| {
            if rank(state) > rank(worst) {
                state
            } else {
                worst
            }
        })
    }

    fn all(&self) -> impl Iterator<Item = &NamespaceState> + Clone {
        self.rest.iter().chain(self.namespaces.values())
    }
}
