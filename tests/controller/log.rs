//! What is logged: a subscriber for one thread that keeps everything.

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

/// What was logged on this thread since it was made. A clone is the same.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Book>>);

#[derive(Default)]
struct Book {
    spans: Vec<Span>,
    events: Vec<Logged>,
}

#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) name: &'static str,
    pub(crate) fields: Fields,
    /// The numbers of those it follows from.
    pub(crate) follows: Vec<usize>,
    metadata: &'static Metadata<'static>,
    handles: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub(crate) level: Level,
    pub(crate) fields: Fields,
    /// The number of the span it is in.
    pub(crate) span: Option<usize>,
}

impl Span {
    pub(crate) fn level(&self) -> Level {
        *self.metadata.level()
    }
}

impl Logged {
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
    /// The numbers of the spans that this thread is in.
    static INSIDE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

impl Log {
    /// Keep what this thread logs while the guard lives.
    pub(crate) fn here() -> (Self, DefaultGuard) {
        // What is logged for the first time on a thread without a subscriber, while another one gets one, would be taken for unwanted by all. Not if all have one.
        static EVERYWHERE: Once = Once::new();
        EVERYWHERE.call_once(|| tracing::subscriber::set_global_default(Deaf).expect("there is no other"));
        let log = Self::default();
        INSIDE.take();
        (log.clone(), tracing::subscriber::set_default(log))
    }

    pub(crate) fn events(&self) -> Vec<Logged> {
        self.0.lock().events.clone()
    }

    /// With their numbers.
    pub(crate) fn spans(&self, name: &str) -> Vec<(usize, Span)> {
        let book = self.0.lock();
        book.spans.iter().cloned().enumerate().filter(|(_, span)| span.name == name).collect()
    }

    /// Spans that somebody still has.
    pub(crate) fn open(&self) -> Vec<&'static str> {
        self.0.lock().spans.iter().filter(|span| span.handles > 0).map(|span| span.name).collect()
    }
}

/// Takes nothing, and does not say so in advance.
struct Deaf;

impl Subscriber for Deaf {
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

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("steersman")
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let mut book = self.0.lock();
        let metadata = attributes.metadata();
        book.spans.push(Span { name: metadata.name(), fields, follows: Vec::new(), metadata, handles: 1 });
        span::Id::from_u64(book.spans.len() as u64)
    }

    fn record(&self, span: &span::Id, values: &span::Record<'_>) {
        values.record(&mut self.0.lock().spans[number(span)].fields);
    }

    fn record_follows_from(&self, span: &span::Id, follows: &span::Id) {
        self.0.lock().spans[number(span)].follows.push(number(follows));
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let span = INSIDE.with_borrow(|inside| inside.last().copied());
        self.0.lock().events.push(Logged { level: *event.metadata().level(), fields, span });
    }

    fn enter(&self, span: &span::Id) {
        INSIDE.with_borrow_mut(|inside| inside.push(number(span)));
    }

    fn exit(&self, span: &span::Id) {
        INSIDE.with_borrow_mut(|inside| {
            let place = inside.iter().rposition(|one| *one == number(span)).expect("it was entered");
            inside.remove(place);
        });
    }

    fn clone_span(&self, span: &span::Id) -> span::Id {
        self.0.lock().spans[number(span)].handles += 1;
        span.clone()
    }

    fn try_close(&self, span: span::Id) -> bool {
        let mut book = self.0.lock();
        let handles = &mut book.spans[number(&span)].handles;
        *handles -= 1;
        *handles == 0
    }

    fn current_span(&self) -> Current {
        let inside = INSIDE.with_borrow(|inside| inside.last().copied());
        inside.map_or_else(Current::none, |number| {
            Current::new(span::Id::from_u64(number as u64 + 1), self.0.lock().spans[number].metadata)
        })
    }
}
