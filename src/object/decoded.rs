//! Decoded values of compact objects: one per type, shared by all readers.
//!
//! Values are held by weak pointers. A weak pointer keeps the allocation of its target (2.5 KB for
//! a pod), but not the memory that the target owns. Objects with decoded values are therefore
//! registered, and dropped values are swept: each decode checks two registered objects, so that at
//! most as many unused entries are registered as used ones. The informer can sweep all of them.
//!
//! Invariant: decoding never waits for a sweep. A sweep takes a slice out, and checks it without
//! the lock.

use super::compact::Compact;
use parking_lot::Mutex;
use std::{
    any::Any,
    collections::VecDeque,
    fmt,
    sync::{Arc, Weak},
};

type DecodedValue = Weak<dyn Any + Send + Sync>;

/// Decoded values of one object.
#[derive(Default)]
pub(super) struct DecodedValues(Mutex<Vec<DecodedValue>>);

impl DecodedValues {
    /// Returns the value of this type, and whether it was decoded by this call.
    ///
    /// Concurrent callers wait and share the value.
    pub(super) fn get<K: Any + Send + Sync, E>(
        &self,
        make: impl FnOnce() -> Result<K, E>,
    ) -> Result<(Arc<K>, bool), E> {
        let mut values = self.0.lock();
        if let Some(value) = values
            .iter()
            .find_map(|value| value.upgrade()?.downcast().ok())
        {
            return Ok((value, false));
        }
        values.retain(is_held);
        let value = Arc::new(make()?);
        let weak: Weak<K> = Arc::downgrade(&value);
        values.push(weak);
        Ok((value, true))
    }

    /// Removes dropped values; returns whether any is left or being decoded.
    fn sweep(&self) -> bool {
        let Some(mut values) = self.0.try_lock() else {
            return true;
        };
        values.retain(is_held);
        if values.is_empty() {
            *values = Vec::new();
        }
        !values.is_empty()
    }
}

fn is_held(value: &DecodedValue) -> bool {
    value.strong_count() > 0
}

impl fmt::Debug for DecodedValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DecodedValues")
    }
}

/// Objects of one informer that have decoded values.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// All slices but the last are full.
    slices: VecDeque<Vec<Weak<Compact>>>,
    /// Number of objects that were added since the last check.
    added: usize,
}

/// Maximum of objects that are moved under the lock.
const SLICE: usize = 64;
/// Number of slices up to which no check is made.
const UNCHECKED_SLICES: usize = 4;

impl Registry {
    /// Registers an object that was decoded.
    pub(super) fn add(&self, object: &Arc<Compact>) {
        let mut state = self.0.lock();
        state.push(Arc::downgrade(object));
        state.added += 1;
        let is_due = state.added >= SLICE && state.slices.len() > UNCHECKED_SLICES;
        if is_due {
            state.added = 0;
        }
        drop(state);
        if is_due {
            self.check_slices(2, has_decoded_values);
        }
    }

    pub(super) fn sweep(&self) {
        let slices = self.0.lock().slices.len();
        self.check_slices(slices, has_decoded_values);
    }

    /// Checks the next slices. Memory is freed without the lock.
    fn check_slices(&self, slices: usize, mut is_kept: impl FnMut(&Weak<Compact>) -> bool) {
        for _ in 0..slices {
            let Some(mut slice) = self.0.lock().slices.pop_front() else {
                return;
            };
            slice.retain(&mut is_kept);
            let mut state = self.0.lock();
            slice.drain(..).for_each(|object| state.push(object));
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().slices.iter().map(Vec::len).sum()
    }
}

/// Returns whether the object has values in use. Duplicate registrations are harmless.
fn has_decoded_values(object: &Weak<Compact>) -> bool {
    object
        .upgrade()
        .is_some_and(|object| object.decoded_values().sweep())
}

impl State {
    fn push(&mut self, object: Weak<Compact>) {
        if self.slices.back().is_none_or(|slice| slice.len() == SLICE) {
            self.slices.push_back(Vec::with_capacity(SLICE));
        }
        if let Some(slice) = self.slices.back_mut() {
            slice.push(object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Decoder;
    use kube_core::TypeMeta;
    use std::{sync::mpsc, thread, time::Duration};

    fn object() -> Arc<Compact> {
        let decoder = Decoder::new(TypeMeta {
            api_version: "v1".into(),
            kind: "Pod".into(),
        });
        Arc::new(
            decoder
                .decode(br#"{"metadata":{"name":"web"}}"#)
                .expect("a pod"),
        )
    }

    #[test]
    fn a_decode_waits_for_one_slice_of_a_sweep_at_most() {
        let (registry, object) = (Registry::default(), object());
        let _held = object
            .decoded_values()
            .get(|| Ok::<_, ()>(1_u8))
            .expect("a value");
        let all = 10 * SLICE + 7;
        (0..all).for_each(|_| registry.add(&object));
        let (slices, mut looked_at) = (registry.0.lock().slices.len(), 0);
        registry.check_slices(slices, |_| {
            looked_at += 1;
            assert!(
                registry.0.try_lock().is_some(),
                "the lock is held while one is looked at"
            );
            true
        });
        // Objects that were moved to the last slice are checked twice.
        assert!((all..=all + SLICE).contains(&looked_at), "{looked_at}");
        assert_eq!(registry.len(), all);
        let mut state = registry.0.lock();
        let last = state.slices.pop_back().expect("some are left");
        assert!(
            (1..=SLICE).contains(&last.len())
                && state.slices.iter().all(|slice| slice.len() == SLICE)
        );
    }

    #[test]
    fn stale_entries_do_not_exceed_the_live_ones() {
        let (registry, object) = (Registry::default(), object());
        let held: Vec<_> = (0..50 * SLICE)
            .map(|_| {
                object
                    .decoded_values()
                    .get(|| Ok::<_, ()>(1_u8))
                    .expect("a value")
            })
            .collect();
        (0..held.len()).for_each(|_| registry.add(&object));
        for _ in 0..1000 * SLICE {
            registry.add(&self::object());
            assert!(
                registry.len() <= 2 * held.len() + (UNCHECKED_SLICES + 2) * SLICE,
                "{}",
                registry.len()
            );
        }
        registry.sweep();
        assert_eq!(registry.len(), held.len());
    }

    #[test]
    fn a_sweep_does_not_wait_for_a_decode() {
        let (registry, object) = (Arc::new(Registry::default()), object());
        registry.add(&object);
        let (done, swept) = mpsc::channel();
        let make = || {
            thread::spawn({
                let registry = registry.clone();
                move || {
                    registry.sweep();
                    done.send(registry.len()).ok();
                }
            });
            swept.recv_timeout(Duration::from_mins(1)).map(|_| ())
        };
        let (_held, made) = object
            .decoded_values()
            .get(make)
            .expect("the sweep ends while the value is decoded");
        assert!(made);
        assert_eq!(registry.len(), 1, "the object is being decoded");
    }
}
