//! What was read before. A workspace and a secret say the same as long as uid and resource version are the same: they are read once for each.

use super::{
    metrics::Metrics,
    sources::{Origin, Said},
};
use kube::core::ObjectMeta;
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};
use steersman::object::ObjectKey;

/// What is read of a source at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) endpoint: Said,
    /// Of the control plane's certificate authority, as it stands.
    pub(super) authority: Option<Arc<[u8]>>,
}

/// Uid and resource version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version(String, String);

impl Version {
    pub(super) fn of(meta: &ObjectMeta) -> Option<Self> {
        Some(Self(meta.uid.clone()?, meta.resource_version.clone()?))
    }

    pub(super) fn is_of(&self, meta: &ObjectMeta) -> bool {
        meta.uid.as_ref() == Some(&self.0)
    }
}

/// By control plane.
pub(super) struct Memo {
    read: Mutex<HashMap<(ObjectKey, Origin), (Version, Read)>>,
    metrics: Metrics,
}

impl Memo {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { read: Mutex::default(), metrics }
    }

    /// What was read of this version, if it is known which one there is.
    pub(super) fn get(&self, plane: &ObjectKey, origin: Origin, version: Option<&Version>) -> Option<Read> {
        let read = self.read.lock();
        let known = read.get(&(plane.clone(), origin)).filter(|(of, _)| Some(of) == version);
        self.metrics.known(known.is_some());
        known.map(|(_, read)| read.clone())
    }

    /// What was read last, of whichever version.
    pub(super) fn last(&self, plane: &ObjectKey, origin: Origin) -> Option<Read> {
        self.read.lock().get(&(plane.clone(), origin)).map(|(_, read)| read.clone())
    }

    /// Stores what was read from a source, and returns what was stored before.
    pub(super) fn put(
        &self,
        plane: &ObjectKey,
        origin: Origin,
        meta: &ObjectMeta,
        read: Read,
    ) -> Option<(Version, Read)> {
        let version = Version::of(meta)?;
        self.read.lock().insert((plane.clone(), origin), (version, read))
    }

    /// The control plane is gone.
    pub(super) fn forget(&self, plane: &ObjectKey) {
        let mut read = self.read.lock();
        for origin in [Origin::Outputs, Origin::Secret] {
            read.remove(&(plane.clone(), origin));
        }
    }
}
