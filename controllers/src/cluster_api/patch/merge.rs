//! Three-way merge of conditions.
//!
//! The changes between two lists are applied to a third one, the latest list of the object. The two
//! formats of conditions share the algorithm.

use super::error::{ConditionConflict, Operation};
use crate::cluster_api::{conditions, deprecated, deprecated::DeprecatedCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// Condition of one of the two formats.
pub(super) trait Entry: Clone + PartialEq {
    fn type_(&self) -> &str;

    /// Returns whether the two differ at most in their time.
    fn has_same_state(&self, other: &Self) -> bool;

    /// Adds the condition to a list, or updates the one of its type.
    fn put(self, list: &mut Vec<Self>);

    fn sort(list: &mut [Self]);

    /// Returns the fields besides the type, for messages.
    fn fields(&self) -> Vec<(&'static str, String)>;
}

impl Entry for Condition {
    fn type_(&self) -> &str {
        &self.type_
    }

    fn has_same_state(&self, other: &Self) -> bool {
        conditions::has_same_state(self, other)
    }

    fn put(self, list: &mut Vec<Self>) {
        conditions::set_in(list, self);
    }

    fn sort(list: &mut [Self]) {
        conditions::sort(list);
    }

    fn fields(&self) -> Vec<(&'static str, String)> {
        let generation = self.observed_generation.unwrap_or_default();
        vec![
            ("status", format!("{:?}", self.status)),
            ("observedGeneration", generation.to_string()),
            ("reason", format!("{:?}", self.reason)),
            ("message", format!("{:?}", self.message)),
        ]
    }
}

impl Entry for DeprecatedCondition {
    fn type_(&self) -> &str {
        &self.type_
    }

    fn has_same_state(&self, other: &Self) -> bool {
        deprecated::has_same_state(self, other)
    }

    fn put(self, list: &mut Vec<Self>) {
        let time = self.last_transition_time.clone();
        deprecated::set_in(list, self, time);
    }

    fn sort(list: &mut [Self]) {
        deprecated::sort(list);
    }

    fn fields(&self) -> Vec<(&'static str, String)> {
        vec![
            ("status", format!("{:?}", self.status)),
            ("severity", format!("{:?}", self.severity)),
            ("reason", format!("{:?}", self.reason)),
            ("message", format!("{:?}", self.message)),
        ]
    }
}

/// Changes that turn one list of conditions into another.
pub(super) struct ConditionChanges<'a, E>(Vec<Change<'a, E>>);

enum Change<'a, E> {
    Add(&'a E),
    Update { before: &'a E, after: &'a E },
    Remove(&'a E),
}

impl<'a, E: Entry> ConditionChanges<'a, E> {
    pub(super) fn between(before: &'a [E], after: &'a [E]) -> Self {
        let mut changes = Vec::new();
        for after in after {
            match find(before, after.type_()) {
                None => changes.push(Change::Add(after)),
                Some(before) if before != after => {
                    changes.push(Change::Update { before, after });
                }
                Some(_) => {}
            }
        }
        let removed = before
            .iter()
            .filter(|before| find(after, before.type_()).is_none());
        changes.extend(removed.map(Change::Remove));
        Self(changes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Applies the changes to the latest list.
    ///
    /// `wins` returns whether a condition of a type is changed whatever its latest state is. Others
    /// are a conflict if they changed, unless they have the wanted state already.
    pub(super) fn apply(
        &self,
        latest: &mut Vec<E>,
        wins: impl Fn(&str) -> bool,
    ) -> Result<(), ConditionConflict> {
        for change in &self.0 {
            match *change {
                Change::Add(after) => add(latest, after, &wins)?,
                Change::Update { before, after } => update(latest, before, after, &wins)?,
                Change::Remove(before) => remove(latest, before, &wins)?,
            }
        }
        E::sort(latest);
        Ok(())
    }
}

fn add<E: Entry>(
    latest: &mut Vec<E>,
    after: &E,
    wins: impl Fn(&str) -> bool,
) -> Result<(), ConditionConflict> {
    if !wins(after.type_())
        && let Some(existing) = find(latest, after.type_())
    {
        return agrees(Operation::Add, existing, after);
    }
    after.clone().put(latest);
    Ok(())
}

fn update<E: Entry>(
    latest: &mut Vec<E>,
    before: &E,
    after: &E,
    wins: impl Fn(&str) -> bool,
) -> Result<(), ConditionConflict> {
    if !wins(after.type_()) {
        let Some(existing) = find(latest, after.type_()) else {
            return Err(ConditionConflict::Deleted {
                type_: after.type_().into(),
            });
        };
        if existing != before {
            // The latest time is kept.
            return agrees(Operation::Change, existing, after);
        }
    }
    after.clone().put(latest);
    Ok(())
}

fn remove<E: Entry>(
    latest: &mut Vec<E>,
    before: &E,
    wins: impl Fn(&str) -> bool,
) -> Result<(), ConditionConflict> {
    if !wins(before.type_())
        && let Some(existing) = find(latest, before.type_())
    {
        agrees(Operation::Remove, existing, before)?;
    }
    latest.retain(|existing| existing.type_() != before.type_());
    Ok(())
}

/// Returns a conflict if the latest condition does not have the wanted state.
fn agrees<E: Entry>(operation: Operation, latest: &E, wanted: &E) -> Result<(), ConditionConflict> {
    if latest.has_same_state(wanted) {
        return Ok(());
    }
    let fields = latest.fields().into_iter().zip(wanted.fields());
    let differences = fields.filter(|(latest, wanted)| latest != wanted);
    let differences: Vec<_> = differences
        .map(|((name, latest), (_, wanted))| format!("{name} is {latest}, wanted {wanted}"))
        .collect();
    Err(ConditionConflict::Modified {
        type_: wanted.type_().into(),
        operation,
        differences: differences.join("; "),
    })
}

fn find<'a, E: Entry>(list: &'a [E], type_: &str) -> Option<&'a E> {
    list.iter().find(|entry| entry.type_() == type_)
}

#[cfg(test)]
mod tests;
