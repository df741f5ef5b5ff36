//! Interned reasons: each text is stored once with a reference count.
//!
//! Invariant: a text is stored exactly while a slot or a run refers to it.

use super::Reason;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

/// Number of reasons that a key keeps.
pub(super) const MAX_REASONS: usize = 3;

/// Last reasons of a key, oldest first; 0 is none.
#[derive(Clone, Copy)]
pub(super) struct ReasonIds([u16; MAX_REASONS]);

impl ReasonIds {
    pub(super) const EMPTY: Self = Self([0; MAX_REASONS]);

    fn is_empty(self) -> bool {
        self.0[0] == 0
    }
}

pub(super) struct Reasons {
    /// Text `id` is at index `id - 1`.
    texts: Vec<InternedReason>,
    free: Vec<u16>,
    table: HashTable<u16>,
    hasher: DefaultHashBuilder,
}

struct InternedReason {
    text: Reason,
    count: u32,
}

impl Reasons {
    pub(super) fn new() -> Self {
        Self {
            texts: Vec::new(),
            free: Vec::new(),
            table: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// Adds a reason, and drops the oldest one if there are too many.
    ///
    /// Skips a reason that is equal to the last one, and one that would be the 65,536th different
    /// text.
    pub(super) fn push(&mut self, ids: &mut ReasonIds, reason: &Reason) {
        let Some(id) = self.intern(reason) else {
            return;
        };
        let len = ids.0.iter().position(|&id| id == 0).unwrap_or(MAX_REASONS);
        if len > 0 && ids.0[len - 1] == id {
            self.release_one(id);
        } else if len < MAX_REASONS {
            ids.0[len] = id;
        } else {
            self.release_one(ids.0[0]);
            ids.0.rotate_left(1);
            ids.0[MAX_REASONS - 1] = id;
        }
    }

    pub(super) fn texts(&self, ids: ReasonIds) -> Vec<Reason> {
        self.get(ids).into_iter().flatten().collect()
    }

    /// Returns the texts without allocating.
    pub(super) fn get(&self, ids: ReasonIds) -> [Option<Reason>; MAX_REASONS] {
        ids.0
            .map(|id| Some(self.texts[usize::from(id).checked_sub(1)?].text.clone()))
    }

    #[inline]
    pub(super) fn release(&mut self, ids: &mut ReasonIds) {
        if !ids.is_empty() {
            for id in std::mem::replace(ids, ReasonIds::EMPTY)
                .0
                .into_iter()
                .take_while(|&id| id != 0)
            {
                self.release_one(id);
            }
        }
    }

    /// Prepends the reasons of a run to those of its key. The newest ones are kept.
    pub(super) fn merge(&mut self, older: &mut ReasonIds, newer: &mut ReasonIds) {
        for text in self.texts(*newer) {
            self.push(older, &text);
        }
        self.release(newer);
        *newer = std::mem::replace(older, ReasonIds::EMPTY);
    }

    fn intern(&mut self, reason: &Reason) -> Option<u16> {
        let Self {
            texts,
            free,
            table,
            hasher,
        } = self;
        let hash = hasher.hash_one(reason);
        if let Some(&id) = table.find(hash, |&id| texts[id as usize - 1].text == *reason) {
            texts[id as usize - 1].count += 1;
            return Some(id);
        }
        let counted = InternedReason {
            text: reason.clone(),
            count: 1,
        };
        let id = if let Some(id) = free.pop() {
            texts[id as usize - 1] = counted;
            id
        } else {
            let id = u16::try_from(texts.len() + 1).ok()?;
            texts.push(counted);
            id
        };
        table.insert_unique(hash, id, |&id| {
            hasher.hash_one(&texts[id as usize - 1].text)
        });
        Some(id)
    }

    fn release_one(&mut self, id: u16) {
        let counted = &mut self.texts[id as usize - 1];
        counted.count -= 1;
        if counted.count == 0 {
            let hash = self.hasher.hash_one(&counted.text);
            counted.text = Reason::default();
            if let Ok(entry) = self.table.find_entry(hash, |&other| other == id) {
                entry.remove();
            }
            self.free.push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alive(reasons: &Reasons) -> usize {
        reasons.table.len()
    }

    #[test]
    fn the_last_three_reasons_are_kept_oldest_first() {
        let mut reasons = Reasons::new();
        let mut ids = ReasonIds::EMPTY;
        for text in ["a", "b", "c", "d", "e", "f"] {
            reasons.push(&mut ids, &text.into());
        }
        assert_eq!(reasons.texts(ids), ["d", "e", "f"].map(Reason::from));
        assert_eq!(alive(&reasons), 3);
    }

    #[test]
    fn a_reason_repeated_is_kept_once() {
        let mut reasons = Reasons::new();
        let mut ids = ReasonIds::EMPTY;
        for text in ["a", "b", "b", "b"] {
            reasons.push(&mut ids, &text.into());
        }
        assert_eq!(reasons.texts(ids), ["a", "b"].map(Reason::from));
    }

    #[test]
    fn released_texts_are_removed_and_their_numbers_reused() {
        let mut reasons = Reasons::new();
        for round in 0..100_000 {
            let mut ids = ReasonIds::EMPTY;
            reasons.push(&mut ids, &format!("round {round}").as_str().into());
            reasons.release(&mut ids);
        }
        assert_eq!((alive(&reasons), reasons.texts.len()), (0, 1));
    }

    #[test]
    fn a_text_beyond_the_maximum_is_dropped() {
        let mut reasons = Reasons::new();
        let mut kept = Vec::new();
        for n in 0..u32::from(u16::MAX) {
            let mut ids = ReasonIds::EMPTY;
            reasons.push(&mut ids, &n.to_string().as_str().into());
            kept.push(ids);
        }
        let mut ids = ReasonIds::EMPTY;
        reasons.push(&mut ids, &"one more".into());
        assert!(reasons.texts(ids).is_empty());
        assert_eq!(reasons.texts(kept[7]), [Reason::from("7")]);
        reasons.release(&mut kept[7]);
        reasons.push(&mut ids, &"one more".into());
        assert_eq!(reasons.texts(ids), [Reason::from("one more")]);
    }

    #[test]
    fn merging_keeps_the_newer_reasons_when_there_are_too_many() {
        let mut reasons = Reasons::new();
        let (mut older, mut newer) = (ReasonIds::EMPTY, ReasonIds::EMPTY);
        for text in ["a", "b", "c"] {
            reasons.push(&mut older, &text.into());
        }
        for text in ["d", "e"] {
            reasons.push(&mut newer, &text.into());
        }
        reasons.merge(&mut older, &mut newer);
        assert_eq!(reasons.texts(newer), ["c", "d", "e"].map(Reason::from));
        assert!(older.is_empty());
        reasons.release(&mut newer);
        assert_eq!(alive(&reasons), 0);
    }
}
