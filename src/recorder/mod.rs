//! Events of the cluster, `kubectl events`: what a controller tells people about an object.
//!
//! [`Recorder::event`] never waits and never fails: what is said goes through a bounded queue to [`Recorder::run_until`], which writes it as
//! `events.k8s.io/v1`. As in client-go,
//!
//! * equal events are one object with a count: of the same object, type, reason, action and note, each within six minutes of the one before;
//! * of one object 25 can be written at once, and one more every five minutes: new events beyond that are dropped, repeated ones counted and written later;
//! * an event lives in the namespace of its object, or in `default`.
//!
//! What is not written is counted: [`Recorder::stats`]. Whoever runs it needs the right to `create` and `patch` `events` of `events.k8s.io`.
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
//! recorder.clone().run_until(async {}).await; // what was said before is written
//! assert_eq!(recorder.stats().written, 1);
//! # Ok(())
//! # }
//! ```

mod bucket;
mod reference;
mod reporter;
mod run;
mod said;
mod series;
mod stats;

pub use self::{
    bucket::Rate,
    reference::{Reference, Regarding},
    stats::{RecorderMetrics, RecorderStats},
};

use self::{reporter::Reporter, run::Desk, said::Said, stats::Counters};
use crate::client::Client;
use k8s_openapi::jiff::Timestamp;
use std::{
    fmt,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::sync::{Mutex, mpsc};

/// Tells people about objects. A handle; clones share the queue. Nothing is written before [`Self::run_until`].
///
/// See [the module](crate::recorder) for an example.
#[derive(Clone)]
pub struct Recorder(Arc<Shared>);

struct Shared {
    client: Client,
    reporter: Reporter,
    options: RecorderOptions,
    queue: mpsc::Sender<Heard>,
    counters: Counters,
    desk: Mutex<Desk>,
}

/// An event in the queue.
struct Heard {
    said: Said,
    at: Timestamp,
}

/// Whether an event is good news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// As it should be.
    Normal,
    /// Somebody may have to do something.
    Warning,
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// How much is said. The defaults are client-go's, where it has any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecorderOptions {
    /// How many events wait to be written; more are dropped. 1000 by default.
    pub queue: usize,
    /// How many are written of one object. 25, and one every five minutes, by default.
    pub per_object: Rate,
    /// How many are written of all objects; more wait in the queue. 100, and ten a second, by default.
    pub overall: Rate,
}

impl Default for RecorderOptions {
    fn default() -> Self {
        Self {
            queue: 1000,
            per_object: Rate { burst: 25, every: Duration::from_mins(5) },
            overall: Rate { burst: 100, every: Duration::from_millis(100) },
        }
    }
}

impl Recorder {
    /// One that reports as this controller, and this machine: `web-operator`, or `example.com/web-operator`.
    pub fn new(client: &Client, controller: &str) -> Result<Self, RecorderError> {
        Self::with(client, controller, RecorderOptions::default())
    }

    /// [`Self::new`] with other limits.
    pub fn with(client: &Client, controller: &str, mut options: RecorderOptions) -> Result<Self, RecorderError> {
        let reporter = Reporter::new(controller)?;
        // Whatever is allowed, some has to be.
        options.queue = options.queue.max(1);
        options.per_object.burst = options.per_object.burst.max(1);
        options.overall.burst = options.overall.burst.max(1);
        let (queue, inbox) = mpsc::channel(options.queue);
        let desk = Mutex::new(Desk::new(inbox, &options));
        // Its events are not for the cache, nor for another namespace than their objects'.
        let client = client.live();
        Ok(Self(Arc::new(Shared { client, reporter, options, queue, counters: Counters::default(), desk })))
    }

    /// Say that something has happened to an object: why, in one word (`Scaled`), what was done or tried (`Scale`), and the rest for people to read.
    ///
    /// It never waits and never fails. What is too long is cut: the note after 1024 bytes, reason and action after 128; if one of these is empty, the other
    /// stands for it. Never put secrets into a note: many may read it.
    pub fn event(
        &self,
        regarding: &impl Regarding,
        kind: EventType,
        reason: &str,
        action: &str,
        note: impl AsRef<str>,
    ) {
        self.say(regarding.reference(), None, kind, reason, action, note.as_ref());
    }

    /// [`Self::event`] that also has to do with another object: what was made, or what stands in the way.
    pub fn event_with(
        &self,
        regarding: &impl Regarding,
        related: &impl Regarding,
        kind: EventType,
        reason: &str,
        action: &str,
        note: impl AsRef<str>,
    ) {
        self.say(regarding.reference(), Some(related.reference()), kind, reason, action, note.as_ref());
    }

    fn say(
        &self,
        regarding: Reference,
        related: Option<Reference>,
        kind: EventType,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        let counters = &self.0.counters;
        counters.said.fetch_add(1, Relaxed);
        let Some(said) = Said::new(regarding, related, kind, reason, action, note) else {
            counters.failed.fetch_add(1, Relaxed);
            tracing::warn!(note, "an event without a reason is not written: give one");
            return;
        };
        if self.0.queue.try_send(Heard { said, at: Timestamp::now() }).is_err() {
            counters.dropped.fetch_add(1, Relaxed);
        }
    }

    /// What became of what was said.
    pub fn stats(&self) -> RecorderStats {
        let waiting = self.0.queue.max_capacity() - self.0.queue.capacity();
        RecorderStats { waiting, ..self.0.counters.read() }
    }

    /// The controller it reports as.
    pub fn name(&self) -> &str {
        &self.0.reporter.controller
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("controller", &self.name()).field("stats", &self.stats()).finish()
    }
}

/// Why there is no recorder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecorderError {
    /// The server would refuse every event.
    #[error(
        "no event can be reported by `{0}`: use at most 63 of letters, digits, `-`, `_` and `.`, with a letter or digit at both ends, if need be after a domain and `/`"
    )]
    Name(String),
}
