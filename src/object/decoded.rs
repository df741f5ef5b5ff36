//! The decoded forms of an object that is kept compact: one per type, shared by all who read it, gone with the last.
//!
//! A form is held weakly, and a weak pointer keeps the memory of what it pointed to (2.5 KB for a pod), though not what
//! that had on the heap. So who decoded something is remembered, and what nobody holds any more is swept out: when
//! twice as many were decoded as were held at the last sweep, and whenever the informer asks for it.

use super::compact::Compact;
use parking_lot::Mutex;
use std::{
    any::Any,
    fmt,
    sync::{Arc, Weak},
};

type Form = Weak<dyn Any + Send + Sync>;

/// Forms of one object.
#[derive(Default)]
pub(super) struct Forms(Mutex<Vec<Form>>);

impl Forms {
    /// The form of this type, made if nobody holds one; and whether it was made. Who else asks meanwhile waits.
    pub(super) fn get<K: Any + Send + Sync, E>(
        &self,
        make: impl FnOnce() -> Result<K, E>,
    ) -> Result<(Arc<K>, bool), E> {
        let mut forms = self.0.lock();
        if let Some(form) = forms.iter().find_map(|form| form.upgrade()?.downcast().ok()) {
            return Ok((form, false));
        }
        forms.retain(is_held);
        let form = Arc::new(make()?);
        let weak: Weak<K> = Arc::downgrade(&form);
        forms.push(weak);
        Ok((form, true))
    }

    /// Forget what nobody holds; whether somebody holds something.
    fn sweep(&self) -> bool {
        let mut forms = self.0.lock();
        forms.retain(is_held);
        if forms.is_empty() {
            *forms = Vec::new();
        }
        !forms.is_empty()
    }
}

fn is_held(form: &Form) -> bool {
    form.strong_count() > 0
}

impl fmt::Debug for Forms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Forms")
    }
}

/// The objects of one informer that have decoded forms.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    objects: Vec<Weak<Compact>>,
    /// How many were left by the last sweep.
    held: usize,
}

/// Below that many a sweep is not worth it.
const FEW: usize = 256;

impl Registry {
    /// A form was made of this object.
    pub(super) fn add(&self, object: &Arc<Compact>) {
        let mut state = self.0.lock();
        state.objects.push(Arc::downgrade(object));
        if state.objects.len() >= 2 * state.held.max(FEW) {
            state.sweep();
        }
    }

    pub(super) fn sweep(&self) {
        self.0.lock().sweep();
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().objects.len()
    }
}

impl State {
    fn sweep(&mut self) {
        // An object that was decoded as two types is there twice, which only costs a look.
        self.objects.retain(|object| object.upgrade().is_some_and(|object| object.forms().sweep()));
        self.held = self.objects.len();
        self.objects.shrink_to(2 * self.held.max(FEW));
    }
}
