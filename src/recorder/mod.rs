//! Kubernetes events, as shown by `kubectl events`.
//!
//! [`Recorder::event`] neither waits nor fails. It adds the event to a bounded queue, from which
//! [`Recorder::run_until`] writes `events.k8s.io/v1` objects. As in client-go:
//!
//! * Equal events are one object with a count. Events are equal if object, type, reason, action and
//!   note are, and the last one was at most six minutes ago.
//! * Up to 25 events per object are written at once, and one more every five minutes. Further new
//!   events are dropped; repeated ones are counted and written later.
//! * An event is in the namespace of its object, or in `default`.
//!
//! Events that are not written are counted in [`Recorder::stats`]. The process needs permission to
//! `create` and `patch` `events` of `events.k8s.io`.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use steersman::{prelude::*, recorder::{EventType, Recorder}, testing::{Env, TestServer}};
//!
//! let client = Client::new(Env::embedded()?.client()?)?; // or a `Config`
//! let recorder = Recorder::new(&client, "example.com/painter")?;
//! let colors = serde_json::json!({"metadata": {"namespace": "default", "name": "colors"}});
//! let colors: ConfigMap = client.create(&serde_json::from_value(colors)?).await?;
//!
//! recorder.event(&colors, EventType::Normal, "Painted", "Paint", "the door is blue now");
//! recorder.clone().run_until(async {}).await; // writes the queued events
//! assert_eq!(recorder.stats().written, 1);
//! # Ok(())
//! # }
//! ```

mod event_key;
mod object_limiter;
mod reference;
mod reporter;
mod run;
mod series;
mod stats;

pub use self::{
    reference::{Named, Reference, Regarding},
    stats::{RecorderMetrics, RecorderStats},
};

use self::{event_key::EventKey, reporter::Reporter, run::EventWriter, stats::Counters};
use crate::client::Client;
pub use crate::rate_limit::Rate;
use k8s_openapi::jiff::Timestamp;
#[cfg(feature = "kube-runtime")]
pub use kube_runtime::events::EventType;
use std::{
    fmt,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::sync::{Mutex, mpsc};

/// Records Kubernetes events. Clones share the queue.
///
/// Events are written by [`Self::run_until`], and not before it runs.
///
/// See [the module](crate::recorder) for an example.
#[derive(Clone)]
pub struct Recorder(Arc<Shared>);

struct Shared {
    client: Client,
    reporter: Reporter,
    queue: mpsc::Sender<QueuedEvent>,
    counters: Counters,
    writer: Mutex<EventWriter>,
}

/// An event in the queue.
struct QueuedEvent {
    event: EventKey,
    at: Timestamp,
}

/// Severity of an event.
///
/// With the default feature `kube-runtime` it is the type of that crate, which is the same.
#[cfg(not(feature = "kube-runtime"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// The object is in the expected state.
    Normal,
    /// The object may need attention.
    Warning,
}

/// Limits of a [`Recorder`].
///
/// The defaults are those of client-go where it has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecorderOptions {
    /// Events waiting in the queue. Further ones are dropped. Default: 1000.
    pub queue: usize,
    /// Events written for one object. Further new events are dropped, repeated ones are counted and
    /// written later. Default: a burst of 25, and one every five minutes.
    pub per_object: Rate,
    /// Events written in total. Further ones wait in the queue. Default: a burst of 100, and ten a
    /// second.
    pub overall: Rate,
}

impl Default for RecorderOptions {
    fn default() -> Self {
        Self {
            queue: 1000,
            per_object: Rate {
                burst: 25,
                every: Duration::from_mins(5),
            },
            overall: Rate {
                burst: 100,
                every: Duration::from_millis(100),
            },
        }
    }
}

impl Recorder {
    /// Creates a recorder for a controller, with default limits.
    ///
    /// `controller` is a name such as `web-operator` or `example.com/web-operator`. Events also
    /// have the host name of this machine.
    pub fn new(client: &Client, controller: &str) -> Result<Self, RecorderError> {
        Self::with(client, controller, RecorderOptions::default())
    }

    /// Creates a recorder like [`Self::new`], with other limits.
    pub fn with(
        client: &Client,
        controller: &str,
        mut options: RecorderOptions,
    ) -> Result<Self, RecorderError> {
        let reporter = Reporter::new(controller)?;
        // A channel needs a capacity of at least one.
        options.queue = options.queue.max(1);
        let (queue, receiver) = mpsc::channel(options.queue);
        let writer = Mutex::new(EventWriter::new(receiver, &options));
        // Events are written in the namespaces of their objects, without the cache.
        let client = client.live();
        Ok(Self(Arc::new(Shared {
            client,
            reporter,
            queue,
            counters: Counters::default(),
            writer,
        })))
    }

    /// Records an event about an object.
    ///
    /// `reason` is one word such as `Scaled`, `action` names the operation such as `Scale`, and
    /// `note` is text for people. The call neither waits nor fails. Long values are truncated: the
    /// note to 1024 bytes, reason and action to 128. If reason or action is empty, the other is
    /// used for both.
    ///
    /// Do not put secrets into a note: many users can read events.
    pub fn event<M>(
        &self,
        regarding: &impl Regarding<M>,
        kind: EventType,
        reason: &str,
        action: &str,
        note: impl AsRef<str>,
    ) {
        self.enqueue(
            regarding.reference(),
            None,
            kind,
            reason,
            action,
            note.as_ref(),
        );
    }

    /// Records an event like [`Self::event`] that also refers to a related object.
    pub fn event_with<M, N>(
        &self,
        regarding: &impl Regarding<M>,
        related: &impl Regarding<N>,
        kind: EventType,
        reason: &str,
        action: &str,
        note: impl AsRef<str>,
    ) {
        self.enqueue(
            regarding.reference(),
            Some(related.reference()),
            kind,
            reason,
            action,
            note.as_ref(),
        );
    }

    fn enqueue(
        &self,
        regarding: Reference,
        related: Option<Reference>,
        kind: EventType,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        let counters = &self.0.counters;
        counters.recorded.fetch_add(1, Relaxed);
        let Some(event) = EventKey::new(regarding, related, kind, reason, action, note) else {
            counters.failed.fetch_add(1, Relaxed);
            tracing::warn!(note, "event has no reason, not written");
            return;
        };
        if self
            .0
            .queue
            .try_send(QueuedEvent {
                event,
                at: Timestamp::now(),
            })
            .is_err()
        {
            counters.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Returns the counters of the recorder.
    pub fn stats(&self) -> RecorderStats {
        let waiting = self.0.queue.max_capacity() - self.0.queue.capacity();
        RecorderStats {
            waiting,
            ..self.0.counters.read()
        }
    }

    /// Returns the name of the reporting controller.
    pub fn name(&self) -> &str {
        &self.0.reporter.controller
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("controller", &self.name())
            .field("stats", &self.stats())
            .finish()
    }
}

/// Error of the creation of a recorder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecorderError {
    /// The API server would reject events of a controller with this name.
    #[error(
        "invalid event reporter `{0}`; use at most 63 letters, digits, `-`, `_` and `.`, with a \
         letter or digit at both ends, optionally after a domain and `/`"
    )]
    Name(String),
}
