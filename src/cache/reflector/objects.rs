//! Decoding of single objects of lists and watches for the [`Sink`].
//!
//! Invariant: each object is either passed to the sink or reported as undecodable. An object
//! without a resource version is passed to the sink as well.

use super::{Reflector, Sink, partial_list::PartialList, revision, wire};
use crate::{
    cache::store::Entry,
    object::{Payload, Undecodable},
};
use serde_json::value::RawValue;
use std::sync::Arc;

impl<S: Sink> Reflector<S> {
    /// Adds an object to a list. Returns whether the list did not have it yet.
    pub(super) fn add_to_list(
        &self,
        object: &RawValue,
        listed: &mut PartialList<S::Payload>,
    ) -> bool {
        match self.decode(object) {
            Ok(entry) => listed.put(entry),
            Err(Undecodable {
                object: Some(object),
                ..
            }) => listed.undecoded(object),
            Err(Undecodable { object: None, .. }) => false,
        }
    }

    /// Removes an object that was deleted while the list was streamed.
    pub(super) fn remove_from_list(&self, object: &RawValue, listed: &mut PartialList<S::Payload>) {
        match self.decode(object) {
            Ok(Entry { key, .. }) | Err(Undecodable { key: Some(key), .. }) => listed.deleted(&key),
            Err(Undecodable { key: None, .. }) => {}
        }
    }

    /// Decodes an added or modified object on the fast path.
    ///
    /// Returns `None` for other lines and for objects that do not decode. The caller parses these
    /// completely.
    pub(super) fn decode_put(&self, line: &[u8]) -> Option<Entry<S::Payload>> {
        let object = wire::parse_put(line)?;
        self.sink
            .decoder()
            .decode(object)
            .ok()
            .map(|payload| self.entry(payload, object.len()))
    }

    /// Passes an object to the sink. Returns its resource version, if it has one.
    pub(super) fn put(&self, decoded: Result<Entry<S::Payload>, Undecodable>) -> Option<String> {
        match decoded {
            Ok(entry) => {
                let version = entry.object.meta().resource_version().map(str::to_owned);
                self.sink.put(entry, version.as_deref().map_or(0, revision));
                version
            }
            Err(Undecodable {
                object, revision, ..
            }) => {
                match object {
                    Some(object) => self
                        .sink
                        .put_undecoded(object, revision.unwrap_or_default()),
                    None => self.sink.advance(revision?),
                }
                revision.map(|revision| revision.to_string())
            }
        }
    }

    pub(super) fn deleted(&self, object: &RawValue) -> Option<String> {
        match self
            .sink
            .decoder()
            .decode::<S::Payload>(object.get().as_bytes())
        {
            Ok(last) => {
                let version = last.meta().resource_version().map(str::to_owned);
                self.sink.delete(
                    &last.key(),
                    Some(last),
                    version.as_deref().map_or(0, revision),
                );
                version
            }
            Err(what) => {
                self.sink.report_undecodable(&what);
                let Undecodable {
                    key, revision: at, ..
                } = what;
                match key {
                    Some(key) => self.sink.delete(&key, None, at.unwrap_or_default()),
                    None => self.sink.advance(at?),
                }
                at.map(|revision| revision.to_string())
            }
        }
    }

    pub(super) fn decode(&self, object: &RawValue) -> Result<Entry<S::Payload>, Undecodable> {
        match self
            .sink
            .decoder()
            .decode::<S::Payload>(object.get().as_bytes())
        {
            Ok(payload) => Ok(self.entry(payload, object.get().len())),
            Err(what) => {
                self.sink.report_undecodable(&what);
                Err(what)
            }
        }
    }

    /// Creates the entry of an object whose JSON has `json` bytes.
    fn entry(&self, payload: S::Payload, json: usize) -> Entry<S::Payload> {
        let bytes = self.sink.decoder().estimate_size(&payload, json);
        Entry::new(payload.key(), Arc::new(payload), bytes)
    }
}
