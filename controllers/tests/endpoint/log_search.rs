//! Search in everything that the process logs, on every level and thread.
//!
//! Invariant: only lines with a searched word are kept. Without a listener, no line is inspected.

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

static SEARCHES: RwLock<Vec<Arc<SearchState>>> = RwLock::new(Vec::new());

/// Searches the log until it is dropped.
///
/// It also sees concurrent tests, so use words that are unique to a test.
pub(crate) struct LogSearch(Arc<SearchState>);

struct SearchState {
    words: Vec<String>,
    /// First line with each word.
    lines: Mutex<BTreeMap<String, String>>,
}

impl LogSearch {
    pub(crate) fn to(words: impl IntoIterator<Item = String>) -> Self {
        static INSTALL: Once = Once::new();
        INSTALL.call_once(|| {
            tracing::subscriber::set_global_default(LogSearcher).expect("no other logger is set");
            log::set_logger(&LogSearcher).expect("no other logger is set");
            log::set_max_level(log::LevelFilter::Trace);
        });
        let search_state = Arc::new(SearchState {
            words: words.into_iter().collect(),
            lines: Mutex::default(),
        });
        SEARCHES
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .push(search_state.clone());
        Self(search_state)
    }

    /// Returns the first line with this word.
    pub(crate) fn first_line(&self, word: &str) -> Option<String> {
        self.0
            .lines
            .lock()
            .expect("not poisoned")
            .get(word)
            .cloned()
    }
}

impl Drop for LogSearch {
    fn drop(&mut self) {
        SEARCHES
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|other| !Arc::ptr_eq(other, &self.0));
    }
}

fn search(line: &str) {
    for listener in &*SEARCHES.read().unwrap_or_else(PoisonError::into_inner) {
        for word in listener.words.iter().filter(|word| line.contains(*word)) {
            let mut lines = listener.lines.lock().expect("not poisoned");
            lines
                .entry(word.clone())
                .or_insert_with(|| line.chars().take(2000).collect());
        }
    }
}

fn is_searching() -> bool {
    !SEARCHES
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .is_empty()
}

/// All fields of a line, in display and in debug format.
struct Line(String);

impl Line {
    fn of(metadata: &Metadata<'_>) -> Self {
        Self(format!(
            "{} {} {}",
            metadata.level(),
            metadata.target(),
            metadata.name()
        ))
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

struct LogSearcher;

impl Subscriber for LogSearcher {
    /// Callsites must stay enabled for listeners that start later.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        is_searching()
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut line = Line::of(attributes.metadata());
        attributes.record(&mut line);
        search(&line.0);
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        let mut line = Line(String::new());
        values.record(&mut line);
        search(&line.0);
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::of(event.metadata());
        event.record(&mut line);
        search(&line.0);
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Some libraries use the `log` crate.
impl log::Log for LogSearcher {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        is_searching()
    }

    fn log(&self, record: &log::Record<'_>) {
        if is_searching() {
            search(&format!(
                "{} {} {}",
                record.level(),
                record.target(),
                record.args()
            ));
        }
    }

    fn flush(&self) {}
}
