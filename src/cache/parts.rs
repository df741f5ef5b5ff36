//! The parts of an informer: one of everything, one for each namespace, or both, where the first has what no other one has. Namespaces may come and go.
//!
//! What holds: an object belongs to one part; the revision of the whole is the smallest of those parts that were listed, and there is none before all
//! were listed once. While one of them is as it was before the loops were started again, so is the revision.

use super::core::Condition;
use crate::object::ObjectKey;
use std::{
    collections::{BTreeMap, BTreeSet},
    ptr,
};
use tokio::time::Instant;

pub(super) struct Parts {
    /// Of everything that no namespace has.
    rest: Option<State>,
    namespaces: BTreeMap<String, State>,
    /// How that is which says what parts there are.
    set: Condition,
    /// Whether it has said all that there were in the beginning.
    known: bool,
    /// How a part begins until then.
    start: Condition,
    /// Those that were listed before the loops were started again, until it is known which there are. The empty one is that of everything else.
    earlier: BTreeSet<String>,
}

/// What is known of one part.
pub(super) struct State {
    /// Up to where it is, once it was listed.
    pub(super) revision: Option<u64>,
    pub(super) condition: Condition,
    /// When the server last said something of it.
    pub(super) heard: Option<Instant>,
    pub(super) watched: bool,
    /// Whether there was a list of it before it began: the next one is another one.
    pub(super) listed_before: bool,
}

impl Default for Parts {
    fn default() -> Self {
        Self::new(Condition::Starting)
    }
}

impl Parts {
    /// None yet: how they begin.
    pub(super) fn new(start: Condition) -> Self {
        let (namespaces, earlier) = (BTreeMap::new(), BTreeSet::new());
        Self { rest: None, namespaces, set: start.clone(), known: false, start, earlier }
    }

    /// None again: how they begin.
    pub(super) fn anew(&self, start: Condition) -> Self {
        let rest = self.rest.iter().map(|state| (String::new(), state));
        let all = rest.chain(self.namespaces.iter().map(|(name, state)| (name.clone(), state)));
        let listed = all.filter(|(_, state)| state.revision.is_some() || state.listed_before);
        let earlier = listed.map(|(name, _)| name).chain(self.earlier.iter().cloned()).collect();
        Self { earlier, ..Self::new(start) }
    }

    /// A part that begins, also one that was there.
    pub(super) fn begin(&mut self, namespace: Option<&str>) {
        let listed_before = self.earlier.contains(namespace.unwrap_or_default());
        let state = State { revision: None, condition: self.start.clone(), heard: None, watched: false, listed_before };
        match namespace {
            Some(name) => drop(self.namespaces.insert(name.to_owned(), state)),
            None => self.rest = Some(state),
        }
    }

    pub(super) fn remove(&mut self, namespace: &str) -> Option<State> {
        self.namespaces.remove(namespace)
    }

    pub(super) fn all_joined(&mut self) {
        self.known = true;
        self.earlier.clear();
        self.start = Condition::Starting;
    }

    /// Whether there is a part of this namespace; the empty one is that of everything else.
    pub(super) fn are(&self, namespace: &str) -> bool {
        if namespace.is_empty() { self.rest.is_some() } else { self.namespaces.contains_key(namespace) }
    }

    /// Whether the object is of a part that there is.
    pub(super) fn have(&self, key: &ObjectKey) -> bool {
        self.rest.is_some() || key.namespace().is_some_and(|name| self.namespaces.contains_key(name))
    }

    pub(super) fn set(&mut self, condition: Condition) {
        self.set = condition;
    }

    pub(super) fn get_mut(&mut self, namespace: Option<&str>) -> Option<&mut State> {
        match namespace {
            Some(name) => self.namespaces.get_mut(name),
            None => self.rest.as_mut(),
        }
    }

    pub(super) fn get(&self, namespace: Option<&str>) -> Option<&State> {
        match namespace {
            Some(name) => self.namespaces.get(name),
            None => self.rest.as_ref(),
        }
    }

    /// Whether the object is of no namespace that is a part: it belongs to the one of everything else.
    pub(super) fn leave_out(&self, key: &ObjectKey) -> bool {
        key.namespace().is_none_or(|name| !self.namespaces.contains_key(name))
    }

    /// Whether it is known what a namespace has, or had before the loops were started again.
    pub(super) fn know(&self, namespace: &str) -> bool {
        let part = self.namespaces.get(namespace).or(self.rest.as_ref());
        part.is_some_and(|part| part.revision.is_some() || part.listed_before) || self.earlier.contains(namespace)
    }

    /// Up to where the part is that has a namespace's objects; the empty one is where cluster-scoped objects are.
    #[cfg(test)]
    pub(super) fn revision_of(&self, namespace: &str) -> Option<u64> {
        self.namespaces.get(namespace).or(self.rest.as_ref())?.revision
    }

    pub(super) fn are_listed(&self) -> bool {
        self.known && self.all().all(|part| part.revision.is_some())
    }

    /// When that one was heard of that was heard of longest ago.
    pub(super) fn heard(&self) -> Option<Instant> {
        self.all().filter_map(|part| part.heard).min()
    }

    /// The revision of the whole; 0 until all were listed. `published` is the one that it had, if they were before.
    pub(super) fn revision(&self, published: Option<u64>) -> u64 {
        self.of_whole(self.all(), None, published)
    }

    /// The same, once one of them is at this revision.
    pub(super) fn revision_with(&self, one: &State, revision: u64, published: Option<u64>) -> u64 {
        self.of_whole(self.all().filter(|other| !ptr::eq(*other, one)), Some(revision), published)
    }

    fn of_whole<'a>(
        &self,
        parts: impl Iterator<Item = &'a State> + Clone,
        reached: Option<u64>,
        published: Option<u64>,
    ) -> u64 {
        let reached = parts.clone().filter_map(|part| part.revision).chain(reached).min();
        let mut unlisted = parts.filter(|part| part.revision.is_none()).peekable();
        let all = self.known && unlisted.peek().is_none();
        // What these have is what they had when the loops were started again.
        let are_old = self.earlier.iter().any(|name| !self.are(name)) || unlisted.any(|part| part.listed_before);
        match (reached, published) {
            (Some(reached), Some(published)) if are_old => reached.min(published),
            (Some(reached), published) if all || published.is_some() => reached,
            (_, published) => published.unwrap_or_default(),
        }
    }

    /// The worst of them is how the informer is.
    pub(super) fn worst(&self) -> &Condition {
        let rank = |condition: &Condition| match condition {
            Condition::Idle | Condition::Synced => 0,
            Condition::Starting => 1,
            Condition::Absent { .. } => 2,
            Condition::Degraded { .. } => 3,
            Condition::Ended => 4,
        };
        let known = if self.known { &Condition::Synced } else { &self.start };
        let all = self.all().map(|part| &part.condition).chain([&self.set]);
        all.fold(known, |worst, one| if rank(one) > rank(worst) { one } else { worst })
    }

    fn all(&self) -> impl Iterator<Item = &State> + Clone {
        self.rest.iter().chain(self.namespaces.values())
    }
}
