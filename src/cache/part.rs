//! One list and watch loop's end of an informer: what it is told goes into the store, then to the handlers, then to those who wait for it.
//!
//! What holds: a part's revision only grows, but for a list; what is told twice, or too late, is nothing. A list that is older than what was told is that of a server that
//! was set back, and nothing in it is what it was, whatever its version says. One that was set back and has come as far again by then cannot be told from one that was not:
//! what it has given out a second time stays as it was the first time, until it changes.

use super::{
    core::{Condition, Core, Listing},
    fan::Event,
    ledger::Told,
    parts::Parts,
    reflect::{Failure, Sink, Unread},
    store::{About, Entry},
};
use crate::object::{Decoder, ObjectKey, Payload, Undecodable};
use parking_lot::RwLockUpgradableReadGuard;
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::SystemTime,
};
use tokio::time::Instant;

/// The objects of one namespace, or all that are in none of the others. Once that has left, it says nothing.
pub(crate) struct Part<P> {
    pub(super) core: Arc<Core<P>>,
    pub(super) namespace: Option<String>,
}

impl<P: Payload> Part<P> {
    /// This part has come from one revision to another: change the store at the one that all have, which is 0 until all were listed. `change` gives how
    /// much that was, and is told where this part was, if it was listed. Only when the store shows it is the part said to be there.
    fn at(&self, revision: u64, is_list: bool, change: impl FnOnce(u64, &Parts, Option<u64>) -> u64) {
        let now = Instant::now();
        let namespace = self.namespace.as_deref();
        let parts = self.core.parts.upgradable_read();
        let Some(state) = parts.get(namespace) else { return };
        let before = state.revision;
        // A list says where the server is now, even if it was set back. Anything else that is older comes late.
        let revision = if is_list { revision } else { before.map_or(revision, |before| before.max(revision)) };
        let changes = change(parts.revision_with(state, revision, self.core.published()), &parts, before);
        let mut parts = RwLockUpgradableReadGuard::upgrade(parts);
        if let Some(state) = parts.get_mut(namespace) {
            (state.revision, state.heard) = (Some(revision), Some(now));
        }
        drop(parts);
        self.core.tally.happened(changes, now);
    }

    fn is(&self, change: impl FnOnce(&mut Condition)) {
        let mut parts = self.core.parts.write();
        if let Some(state) = parts.get_mut(self.namespace.as_deref()) {
            change(&mut state.condition);
            self.core.judge(&parts);
        }
    }

    /// For those who wait for their own writes. Handlers are woken, too, and before them: they need not wait for the end of a burst then.
    fn told(&self, revision: u64, told: &Told<'_>) {
        self.core.ledger.told(self.namespace.as_deref(), revision, told, || self.core.fan.wake());
    }
}

impl<P: Payload> Sink for Part<P> {
    type Payload = P;

    fn decoder(&self) -> &Decoder {
        &self.core.decoder
    }

    fn all(&self, entries: Vec<Entry<P>>, unread: Vec<Unread>, revision: u64) {
        let core = &self.core;
        self.at(revision, true, |reached, parts, before| {
            // A loop that was started again does not know how far it was, but what was published it had.
            let told = before.max(core.published()).unwrap_or_default();
            let listing = match before {
                None if !core.is_listed() => Listing::First,
                // A version that is no number says nothing.
                _ if (1..told).contains(&revision) => Listing::SetBack,
                _ => Listing::Again,
            };
            let again = before.is_some() || parts.get(self.namespace.as_deref()).is_some_and(|part| part.listed_before);
            core.tally.relists.fetch_add(u64::from(again), Relaxed);
            let in_no_other = |key: &ObjectKey| parts.leave_out(key);
            let about = self.namespace.as_deref().map_or(About::Those(&in_no_other), About::Namespace);
            let is_known = |one: &&Unread| core.store.get(&one.key).is_some_and(|known| one.may_be(known.meta()));
            let kept: Vec<_> = unread.iter().filter(is_known).map(|one| one.key.clone()).collect();
            core.replace(about, entries, &kept, reached, listing)
        });
        self.well();
        self.told(revision, &Told::All(&|key, uid| core.fate(key, uid)));
    }

    fn put(&self, entry: Entry<P>, revision: u64) {
        let core = &self.core;
        let (key, object) = (entry.key.clone(), entry.object.clone());
        self.at(revision, false, |reached, _, before| {
            if object.revision().is_some_and(|new| Some(new) <= before) {
                // Told before; it may be gone since.
                return 0;
            }
            core.fan.write(|publisher| {
                let old = core.store.put(entry.clone(), reached);
                publisher.publish(match old {
                    Some(old) => Event::update(old, entry),
                    None => Event::create(entry, false),
                });
            });
            1
        });
        let meta = object.meta();
        let marked = meta.uid().filter(|_| meta.is_deleting());
        self.told(revision, &marked.map_or(Told::Other, |uid| Told::Deleting(&key, uid)));
    }

    fn deleted(&self, key: &ObjectKey, last: Option<P>, revision: u64) {
        let core = &self.core;
        let uid = last.as_ref().and_then(|last| last.meta().uid().map(str::to_owned));
        self.at(revision, false, |reached, _, _| {
            let known = core.store.get(key).and_then(|known| known.revision());
            if known.is_some_and(|known| known > revision && revision > 0) {
                // Told before; it was made anew since.
                return 0;
            }
            core.fan.write(|publisher| {
                let Some(mut entry) = core.store.remove(key, reached) else { return 0 };
                if let Some(last) = last {
                    entry.object = Arc::new(last);
                }
                publisher.publish(Event::delete(entry, false));
                1
            })
        });
        self.told(revision, &Told::Gone(key, uid.as_deref()));
    }

    fn tell(&self) {
        self.core.fan.wake();
    }

    fn nothing_up_to(&self, revision: u64) {
        self.at(revision, false, |reached, _, _| {
            self.core.store.advance(reached);
            0
        });
        self.told(revision, &Told::Other);
    }

    fn undecodable(&self, what: Undecodable) {
        // Not the error: it may cite what is in the object, which may be secret.
        tracing::warn!(
            kind = what.kind,
            object = what.key.as_ref().map(tracing::field::display),
            resource_version = what.revision,
            "an object does not fit its type, and is left out of the cache: the informer's stats say why"
        );
        self.core.decode_errors.note(what.to_string());
    }

    fn watching(&self) {
        let mut parts = self.core.parts.write();
        let Some(part) = parts.get_mut(self.namespace.as_deref()) else { return };
        part.heard = Some(Instant::now());
        if std::mem::replace(&mut part.watched, true) {
            self.core.tally.watch_restarts.fetch_add(1, Relaxed);
        }
    }

    fn well(&self) {
        self.is(|condition| *condition = Condition::Synced);
    }

    fn failed(&self, failure: &Failure) {
        let (error, refused) = (failure.to_string(), failure.is_no());
        self.is(|condition| {
            *condition = match condition {
                Condition::Degraded { since, .. } => Condition::Degraded { since: *since, error, refused },
                _ => Condition::Degraded { since: SystemTime::now(), error, refused },
            };
        });
    }
}
