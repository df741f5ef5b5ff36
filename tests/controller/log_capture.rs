//! Subscriber that records the spans and events of one thread.

use parking_lot::Mutex;
use std::{
    cell::RefCell,
    collections::BTreeMap,
    fmt,
    sync::{Arc, Once},
};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::{DefaultGuard, Interest},
};
use tracing_core::span::Current;

/// Records of the thread that created it. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct LogCapture(Arc<Mutex<Records>>);

#[derive(Default)]
struct Records {
    spans: Vec<Span>,
    events: Vec<LoggedEvent>,
}

#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) name: &'static str,
    pub(crate) fields: Fields,
    /// Indices of the spans it follows from.
    pub(crate) follows: Vec<usize>,
    metadata: &'static Metadata<'static>,
    handles: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct LoggedEvent {
    pub(crate) level: Level,
    pub(crate) fields: Fields,
    /// Index of the enclosing span.
    pub(crate) span: Option<usize>,
}

impl Span {
    pub(crate) fn level(&self) -> Level {
        *self.metadata.level()
    }
}

impl LoggedEvent {
    pub(crate) fn message(&self) -> &str {
        &self.fields.0["message"]
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields(pub(crate) BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

thread_local! {
    /// Indices of the spans that this thread has entered.
    static ENTERED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

impl LogCapture {
    /// Records this thread until the guard is dropped.
    pub(crate) fn capture() -> (Self, DefaultGuard) {
        // Without a global subscriber, a callsite first used on a thread without one may be cached
        // as disabled for all threads.
        static INSTALL_GLOBAL: Once = Once::new();
        INSTALL_GLOBAL.call_once(|| {
            tracing::subscriber::set_global_default(DisabledSubscriber)
                .expect("no other logger is set");
        });
        let log = Self::default();
        ENTERED.take();
        (log.clone(), tracing::subscriber::set_default(log))
    }

    pub(crate) fn events(&self) -> Vec<LoggedEvent> {
        self.0.lock().events.clone()
    }

    /// Returns the spans of this name with their indices.
    pub(crate) fn spans(&self, name: &str) -> Vec<(usize, Span)> {
        let records = self.0.lock();
        records
            .spans
            .iter()
            .cloned()
            .enumerate()
            .filter(|(_, span)| span.name == name)
            .collect()
    }

    /// Returns the names of spans that still have handles.
    pub(crate) fn open(&self) -> Vec<&'static str> {
        self.0
            .lock()
            .spans
            .iter()
            .filter(|span| span.handles > 0)
            .map(|span| span.name)
            .collect()
    }
}

/// Subscriber that records nothing, but keeps every callsite enabled.
struct DisabledSubscriber;

impl Subscriber for DisabledSubscriber {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

fn number(id: &span::Id) -> usize {
    usize::try_from(id.into_u64()).expect("small") - 1
}

impl Subscriber for LogCapture {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("steersman")
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let mut records = self.0.lock();
        let metadata = attributes.metadata();
        records.spans.push(Span {
            name: metadata.name(),
            fields,
            follows: Vec::new(),
            metadata,
            handles: 1,
        });
        span::Id::from_u64(records.spans.len() as u64)
    }

    fn record(&self, span: &span::Id, values: &span::Record<'_>) {
        values.record(&mut self.0.lock().spans[number(span)].fields);
    }

    fn record_follows_from(&self, span: &span::Id, follows: &span::Id) {
        self.0.lock().spans[number(span)]
            .follows
            .push(number(follows));
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let span = ENTERED.with_borrow(|entered| entered.last().copied());
        self.0.lock().events.push(LoggedEvent {
            level: *event.metadata().level(),
            fields,
            span,
        });
    }

    fn enter(&self, span: &span::Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(number(span)));
    }

    fn exit(&self, span: &span::Id) {
        ENTERED.with_borrow_mut(|entered| {
            let position = entered
                .iter()
                .rposition(|one| *one == number(span))
                .expect("the span was entered");
            entered.remove(position);
        });
    }

    fn clone_span(&self, span: &span::Id) -> span::Id {
        self.0.lock().spans[number(span)].handles += 1;
        span.clone()
    }

    fn try_close(&self, span: span::Id) -> bool {
        let mut records = self.0.lock();
        let handles = &mut records.spans[number(&span)].handles;
        *handles -= 1;
        *handles == 0
    }

    fn current_span(&self) -> Current {
        let entered = ENTERED.with_borrow(|entered| entered.last().copied());
        entered.map_or_else(Current::none, |number| {
            Current::new(
                span::Id::from_u64(number as u64 + 1),
                self.0.lock().spans[number].metadata,
            )
        })
    }
}
