//! Tests of the spans of events, to which a reconcile is linked.

use super::support::{RecordedEvents, map, until};
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fmt::{Debug, Write},
    sync::Arc,
};
use steersman::{event::Event, handler::Enqueue, prelude::*, source::Channel};
use tracing::{
    Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
    subscriber::set_default,
};
use tracing_core::span::Current;

/// Subscriber that records spans.
struct Spans {
    level: Level,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    texts: HashMap<u64, (&'static Metadata<'static>, String)>,
    entered: Vec<Id>,
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).expect("the field is recorded");
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level && metadata.target().starts_with("steersman")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = Text(span.metadata().name().to_owned());
        span.record(&mut text);
        let mut state = self.state.lock();
        let number = state.texts.len() as u64 + 1;
        state.texts.insert(number, (span.metadata(), text.0));
        Id::from_u64(number)
    }

    fn current_span(&self) -> Current {
        let state = self.state.lock();
        match state.entered.last() {
            Some(id) => Current::new(id.clone(), state.texts[&id.into_u64()].0),
            None => Current::none(),
        }
    }

    fn enter(&self, span: &Id) {
        self.state.lock().entered.push(span.clone());
    }

    fn exit(&self, _: &Id) {
        self.state.lock().entered.pop();
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
}

impl Spans {
    fn at(level: Level) -> Arc<Self> {
        Arc::new(Self {
            level,
            state: Mutex::default(),
        })
    }

    /// Returns the names of the entered spans.
    fn current(&self) -> String {
        let state = self.state.lock();
        state
            .entered
            .last()
            .map_or_else(String::new, |id| state.texts[&id.into_u64()].1.clone())
    }
}

/// Returns the spans entered in the handler and in its asynchronous mapping.
async fn spans_at(level: Level) -> (Vec<String>, usize) {
    let spans = Spans::at(level);
    let _guard = set_default(spans.clone());
    let (recorded, current) = (RecordedEvents::default(), spans.clone());
    let (channel, seen) = (Channel::new(8), recorded.clone());
    let handler = handler::from_fn(move |event: &Event<ConfigMap>, queue: &Enqueue<String>| {
        seen.record(current.current());
        let (seen, current, name) = (
            seen.clone(),
            current.clone(),
            event.object().name().to_owned(),
        );
        queue.add_async(move || {
            let (seen, current, name) = (seen.clone(), current.clone(), name.clone());
            async move {
                tokio::task::yield_now().await;
                seen.record(current.current());
                [name]
            }
        });
    });
    let watch = channel
        .source(handler)
        .start(&WorkQueue::default())
        .expect("the source starts");
    channel.send(map("shop", "front", "blue"));
    until(|| recorded.len() == 2).await;
    watch.stop().await;
    assert_eq!(spans.current(), "", "no span is entered");
    let known = spans.state.lock().texts.len();
    (recorded.all(), known)
}

#[tokio::test(start_paused = true)]
async fn handlers_and_async_mappings_run_in_the_span_of_their_event() {
    let wanted = "event source=\"channel source: ConfigMap\" kind=\"ConfigMap\" namespace=\"shop\" name=\"front\" event=\"generic event\"";
    assert_eq!(
        spans_at(Level::DEBUG).await,
        (vec![wanted.to_owned(), wanted.to_owned()], 1)
    );
}

#[tokio::test(start_paused = true)]
async fn event_spans_exist_only_at_debug_level() {
    assert_eq!(
        spans_at(Level::INFO).await,
        (vec![String::new(), String::new()], 0)
    );
}
