//! Recorder of the log events of this thread.

use parking_lot::Mutex;
use std::{
    fmt::Debug,
    sync::{Arc, OnceLock},
};
use tracing::{
    Dispatch, Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
    subscriber::{DefaultGuard, NoSubscriber, set_default},
};

/// Records events. Clones share the record.
#[derive(Clone, Default)]
pub(crate) struct LogRecorder(Arc<Mutex<Vec<Line>>>);

/// One log event.
#[derive(Default)]
struct Line {
    message: String,
    /// All other fields, as `name=value`.
    fields: Vec<String>,
}

impl LogRecorder {
    /// Records until the guard is dropped.
    pub(crate) fn start() -> (Self, DefaultGuard) {
        // With a single dispatcher, tracing disables a message for all threads if a thread without
        // a recorder is the first to log it. A second one, which is never dropped, prevents that.
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| Dispatch::new(NoSubscriber::default()));
        let recorder = Self::default();
        (recorder.clone(), set_default(recorder))
    }

    /// Counts the events with this message.
    pub(crate) fn count(&self, message: &str) -> usize {
        self.fields(message).len()
    }

    /// Returns the fields of each event with this message.
    pub(crate) fn fields(&self, message: &str) -> Vec<String> {
        self.0
            .lock()
            .iter()
            .filter(|line| line.message == message)
            .map(|line| line.fields.join(" "))
            .collect()
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.fields.push(format!("{name}={value:?}")),
        }
    }
}

impl Subscriber for LogRecorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().push(line);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
