//! Parts of an object tracker.

use super::{ObjectTracker, Shared};
use crate::external::{Failed, contract::CrdMetadata};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};
use steersman::{cache::CacheError, prelude::*, source::WatchError, workqueue::Key};
use tracing::Span;

/// Builder of an [`ObjectTracker`]. The four parts are required.
#[derive(Debug)]
#[must_use = "call `build`"]
pub struct ObjectTrackerBuilder<R: Key = Request> {
    controller: Option<Controller<R>>,
    cache: Option<Cache>,
    resolver: Option<Client>,
    span: Option<Span>,
    deletes_of_paused_objects: bool,
}

/// Complete parts.
pub(super) struct Parts<R: Key> {
    pub(super) controller: Controller<R>,
    pub(super) cache: Cache,
    pub(super) resolver: Client,
    pub(super) span: Span,
    pub(super) deletes_of_paused_objects: bool,
}

impl<R: Key> Default for ObjectTrackerBuilder<R> {
    fn default() -> Self {
        Self {
            controller: None,
            cache: None,
            resolver: None,
            span: None,
            deletes_of_paused_objects: false,
        }
    }
}

impl<R: Key> ObjectTrackerBuilder<R> {
    /// Sets the controller that gets the watches. It may be built later.
    pub fn controller(mut self, controller: &Controller<R>) -> Self {
        self.controller = Some(controller.clone());
        self
    }

    /// Sets the cache with the informers of the watches.
    pub fn cache(mut self, cache: &Cache) -> Self {
        self.cache = Some(cache.clone());
        self
    }

    /// Sets the client whose discovery resolves a group and kind to the versions that are served.
    ///
    /// Counterpart of the `Scheme` of Go's object tracker.
    pub fn resolver(mut self, resolver: &Client) -> Self {
        self.resolver = Some(resolver.clone());
        self
    }

    /// Sets the span of log messages, also of events that are dropped.
    ///
    /// Counterpart of the `PredicateLogger` of Go's object tracker.
    pub fn span(mut self, span: Span) -> Self {
        self.span = Some(span);
        self
    }

    /// Sets whether the deletion of a paused object reaches the handlers. Default: false.
    ///
    /// By default all events of paused objects are dropped, as in Cluster API. A controller that
    /// waits until an external object is gone needs its deletion, paused or not.
    pub fn deletes_of_paused_objects(mut self, pass: bool) -> Self {
        self.deletes_of_paused_objects = pass;
        self
    }

    /// Creates the tracker, and declares an informer of the metadata of CRDs.
    ///
    /// # Errors
    /// A part is missing, or the cache is closed.
    pub fn build(self) -> Result<ObjectTracker<R>, TrackerError> {
        let Self {
            controller: Some(controller),
            cache: Some(cache),
            resolver: Some(resolver),
            span: Some(span),
            deletes_of_paused_objects,
        } = self
        else {
            return Err(TrackerError::Incomplete);
        };
        let crds = cache.informer_of(Select::<CrdMetadata>::new().optional())?;
        let parts = Parts {
            controller,
            cache,
            resolver,
            span,
            deletes_of_paused_objects,
        };
        Ok(ObjectTracker(Arc::new(Shared {
            parts,
            crds,
            kinds: Mutex::new(HashMap::new()),
        })))
    }
}

/// Error of an [`ObjectTracker`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrackerError {
    /// A part of the builder is missing. The text has the names of upstream's parts.
    #[error("all of Controller, Cache, Scheme and PredicateLogger must be set for object tracker")]
    Incomplete,
    /// The informer of CRDs cannot be declared.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The controller does not accept the watch.
    #[error(transparent)]
    Watch(Failed<WatchError>),
}
