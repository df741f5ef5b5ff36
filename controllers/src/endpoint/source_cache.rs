//! Cache of parsed sources, keyed by uid and resource version.

use super::{
    metrics::Metrics,
    sources::{EndpointValue, Origin},
};
use kube::core::ObjectMeta;
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};
use steersman::object::ObjectKey;

/// Values that are read from a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceValues {
    pub(super) endpoint: EndpointValue,
    /// CA certificate of the control plane, still encoded.
    pub(super) authority: Option<Arc<[u8]>>,
}

/// Uid and resource version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObjectVersion(String, String);

impl ObjectVersion {
    pub(super) fn of(meta: &ObjectMeta) -> Option<Self> {
        Some(Self(meta.uid.clone()?, meta.resource_version.clone()?))
    }

    pub(super) fn belongs_to(&self, meta: &ObjectMeta) -> bool {
        meta.uid.as_ref() == Some(&self.0)
    }
}

/// Parsed sources by control plane.
pub(super) struct SourceCache {
    values: Mutex<HashMap<(ObjectKey, Origin), (ObjectVersion, SourceValues)>>,
    metrics: Metrics,
}

impl SourceCache {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self {
            values: Mutex::default(),
            metrics,
        }
    }

    /// Returns the values of a source if they were read from this version.
    pub(super) fn get(
        &self,
        plane: &ObjectKey,
        origin: Origin,
        version: Option<&ObjectVersion>,
    ) -> Option<SourceValues> {
        let values = self.values.lock();
        let known = values
            .get(&(plane.clone(), origin))
            .filter(|(of, _)| Some(of) == version);
        self.metrics.known(known.is_some());
        known.map(|(_, values)| values.clone())
    }

    /// Returns the values that were read last, from any version.
    pub(super) fn last(&self, plane: &ObjectKey, origin: Origin) -> Option<SourceValues> {
        self.values
            .lock()
            .get(&(plane.clone(), origin))
            .map(|(_, values)| values.clone())
    }

    /// Stores what was read from a source, and returns what was stored before.
    pub(super) fn insert(
        &self,
        plane: &ObjectKey,
        origin: Origin,
        meta: &ObjectMeta,
        values: SourceValues,
    ) -> Option<(ObjectVersion, SourceValues)> {
        let version = ObjectVersion::of(meta)?;
        self.values
            .lock()
            .insert((plane.clone(), origin), (version, values))
    }

    /// Removes the entries of a deleted control plane.
    pub(super) fn remove(&self, plane: &ObjectKey) {
        let mut values = self.values.lock();
        for origin in [Origin::Outputs, Origin::Secret] {
            values.remove(&(plane.clone(), origin));
        }
    }
}
