//! From a line or an item to what the [`Sink`] is told of one object.
//!
//! What holds: of each object either the sink is told, or it is reported as one that cannot be decoded; that it has no version keeps nobody from being told.

use super::{Reflector, Sink, listed::Listed, revision, wire};
use crate::{
    cache::store::Entry,
    object::{Payload, Undecodable},
};
use serde_json::value::RawValue;
use std::sync::Arc;

impl<S: Sink> Reflector<S> {
    /// Whether the list has named it for the first time.
    pub(super) fn list_one(&self, object: &RawValue, listed: &mut Listed<S::Payload>) -> bool {
        match self.decode(object) {
            Ok(entry) => listed.put(entry),
            Err(Undecodable { object: Some(object), .. }) => listed.undecoded(object),
            Err(Undecodable { object: None, .. }) => false,
        }
    }

    /// It was in the list, and has gone since.
    pub(super) fn unlist(&self, object: &RawValue, listed: &mut Listed<S::Payload>) {
        match self.decode(object) {
            Ok(Entry { key, .. }) | Err(Undecodable { key: Some(key), .. }) => listed.deleted(&key),
            Err(Undecodable { key: None, .. }) => {}
        }
    }

    /// What is added or modified in a line that is as most are. Of any other, and of what cannot be decoded, nothing: that is looked at more closely.
    pub(super) fn at_once(&self, line: &[u8]) -> Option<Entry<S::Payload>> {
        let object = wire::put(line)?;
        self.sink.decoder().decode(object).ok().map(|payload| self.entry(payload, object.len()))
    }

    /// Gives the version it is at, if it has one.
    pub(super) fn put(&self, decoded: Result<Entry<S::Payload>, Undecodable>) -> Option<String> {
        match decoded {
            Ok(entry) => {
                let version = entry.object.meta().resource_version().map(str::to_owned);
                self.sink.put(entry, version.as_deref().map_or(0, revision));
                version
            }
            Err(Undecodable { object, revision, .. }) => {
                match object {
                    Some(object) => self.sink.put_undecoded(object, revision.unwrap_or_default()),
                    None => self.sink.nothing_up_to(revision?),
                }
                revision.map(|revision| revision.to_string())
            }
        }
    }

    pub(super) fn deleted(&self, object: &RawValue) -> Option<String> {
        match self.sink.decoder().decode::<S::Payload>(object.get().as_bytes()) {
            Ok(last) => {
                let version = last.meta().resource_version().map(str::to_owned);
                self.sink.deleted(&last.key(), Some(last), version.as_deref().map_or(0, revision));
                version
            }
            Err(what) => {
                self.sink.undecodable(&what);
                let Undecodable { key, revision: at, .. } = what;
                match key {
                    Some(key) => self.sink.deleted(&key, None, at.unwrap_or_default()),
                    None => self.sink.nothing_up_to(at?),
                }
                at.map(|revision| revision.to_string())
            }
        }
    }

    pub(super) fn decode(&self, object: &RawValue) -> Result<Entry<S::Payload>, Undecodable> {
        match self.sink.decoder().decode::<S::Payload>(object.get().as_bytes()) {
            Ok(payload) => Ok(self.entry(payload, object.get().len())),
            Err(what) => {
                self.sink.undecodable(&what);
                Err(what)
            }
        }
    }

    /// Of an object whose JSON has this length.
    fn entry(&self, payload: S::Payload, json: usize) -> Entry<S::Payload> {
        let bytes = self.sink.decoder().weigh(&payload, json);
        Entry::new(payload.key(), Arc::new(payload), bytes)
    }
}
