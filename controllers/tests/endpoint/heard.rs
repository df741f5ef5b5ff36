//! What is logged on this thread, by its message.

use parking_lot::Mutex;
use std::{fmt::Debug, sync::Arc};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
    subscriber::{DefaultGuard, set_default},
};

/// Clones hear the same.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    /// Until the guard is dropped.
    pub(crate) fn start() -> (Self, DefaultGuard) {
        let heard = Self::default();
        (heard.clone(), set_default(heard))
    }

    /// How often.
    pub(crate) fn count(&self, message: &str) -> usize {
        self.0.lock().iter().filter(|heard| *heard == message).count()
    }
}

impl Visit for Heard {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0.lock().push(format!("{value:?}"));
        }
    }
}

impl Subscriber for Heard {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
