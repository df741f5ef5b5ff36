//! Ears for everything that the process logs, at every level and on every thread.
//!
//! What holds: nothing is kept but the lines in which a word was heard that somebody listens for; while nobody does, nothing is looked at.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
    sync::{Arc, Mutex, Once, PoisonError, RwLock},
};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::Interest,
};

static LISTENERS: RwLock<Vec<Arc<Heard>>> = RwLock::new(Vec::new());

/// Somebody who listens until it is dropped. Tests beside it are heard, too: let the words tell them apart.
pub(crate) struct Listener(Arc<Heard>);

struct Heard {
    words: Vec<String>,
    /// By word, the first line that had it.
    lines: Mutex<BTreeMap<String, String>>,
}

impl Listener {
    pub(crate) fn to(words: impl IntoIterator<Item = String>) -> Self {
        static OPEN: Once = Once::new();
        OPEN.call_once(|| {
            tracing::subscriber::set_global_default(Ears).expect("there is no other");
            log::set_logger(&Ears).expect("there is no other");
            log::set_max_level(log::LevelFilter::Trace);
        });
        let heard = Arc::new(Heard { words: words.into_iter().collect(), lines: Mutex::default() });
        LISTENERS.write().unwrap_or_else(PoisonError::into_inner).push(heard.clone());
        Self(heard)
    }

    /// The first line with this word.
    pub(crate) fn heard(&self, word: &str) -> Option<String> {
        self.0.lines.lock().expect("nobody panics with it").get(word).cloned()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        LISTENERS.write().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, &self.0));
    }
}

fn hear(line: &str) {
    for listener in &*LISTENERS.read().unwrap_or_else(PoisonError::into_inner) {
        for word in listener.words.iter().filter(|word| line.contains(*word)) {
            let mut lines = listener.lines.lock().expect("nobody panics with it");
            lines.entry(word.clone()).or_insert_with(|| line.chars().take(2000).collect());
        }
    }
}

fn anybody_listens() -> bool {
    !LISTENERS.read().unwrap_or_else(PoisonError::into_inner).is_empty()
}

/// All fields, as they are and as they are shown to somebody who debugs.
struct Line(String);

impl Line {
    fn of(metadata: &Metadata<'_>) -> Self {
        Self(format!("{} {} {}", metadata.level(), metadata.target(), metadata.name()))
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = write!(self.0, " {}={value}", field.name());
    }
}

struct Ears;

impl Subscriber for Ears {
    /// Nobody may be asked now who listens later.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        anybody_listens()
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut line = Line::of(attributes.metadata());
        attributes.record(&mut line);
        hear(&line.0);
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        let mut line = Line(String::new());
        values.record(&mut line);
        hear(&line.0);
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::of(event.metadata());
        event.record(&mut line);
        hear(&line.0);
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Some libraries log in the old way.
impl log::Log for Ears {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        anybody_listens()
    }

    fn log(&self, record: &log::Record<'_>) {
        if anybody_listens() {
            hear(&format!("{} {} {}", record.level(), record.target(), record.args()));
        }
    }

    fn flush(&self) {}
}
