//! What a loop owes its handlers when it is dropped: it may be whenever it waits.

use super::*;
use futures::{channel::mpsc, poll};
use http_body::Frame;
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;
use kube_core::TypeMeta;
use parking_lot::Mutex;
use std::{convert::Infallible, future::ready};
use tokio::task::yield_now;

/// How many objects were put, and of how many of them handlers have heard.
#[derive(Default)]
struct Books(Mutex<(usize, usize)>);

struct Ear {
    books: Arc<Books>,
    decoder: Decoder,
}

impl Sink for Ear {
    type Payload = ConfigMap;

    fn decoder(&self) -> &Decoder {
        &self.decoder
    }
    fn put(&self, _: Entry<ConfigMap>, _: u64) {
        self.books.0.lock().0 += 1;
    }
    fn tell(&self) {
        let (put, told) = &mut *self.books.0.lock();
        *told = *put;
    }
    fn all(&self, _: Vec<Entry<ConfigMap>>, _: Vec<ObjectKey>, _: u64) {}
    fn deleted(&self, _: &ObjectKey, _: Option<ConfigMap>, _: u64) {}
    fn nothing_up_to(&self, _: u64) {}
    fn undecodable(&self, _: Undecodable) {}
    fn watching(&self) {}
    fn well(&self) {}
    fn failed(&self, _: &Failure) {}
}

#[tokio::test(start_paused = true)]
async fn handlers_hear_of_all_that_was_put_when_a_loop_is_dropped_in_the_middle_of_a_burst() {
    let (mut connection, events) = mpsc::channel(0);
    let events = Arc::new(Mutex::new(Some(events)));
    let watched = events.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let (mut page, parts) = mpsc::channel(1);
        let list = r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#;
        page.try_send(Ok::<_, Infallible>(Frame::data(list.into()))).expect("there is room");
        drop(page);
        // Streamed lists are refused, so that there is one list and one watch.
        let streamed = request.uri().query().is_some_and(|query| query.contains("sendInitialEvents"));
        let body = if watch && !streamed { watched.lock().take().expect("one watch") } else { parts };
        let mut response = Response::new(StreamBody::new(body));
        if streamed {
            *response.status_mut() = http::StatusCode::UNPROCESSABLE_ENTITY;
        }
        ready(Ok::<_, Infallible>(response))
    });
    let books = Arc::new(Books::default());
    let types = TypeMeta { api_version: "v1".into(), kind: "ConfigMap".into() };
    let ear = Ear { books: books.clone(), decoder: Decoder::new(types) };
    let place = Place { path: "/api/v1/configmaps".into(), labels: None, fields: None, metadata_only: false };
    let mut run = Box::pin(Reflector::new(Client::new(service, "default").into(), place, ear, 500).run());

    while events.lock().is_some() {
        assert!(poll!(&mut run).is_pending());
        yield_now().await;
    }
    for number in 2..12 {
        let event = format!(
            r#"{{"type":"ADDED","object":{{"metadata":{{"name":"m{number}","resourceVersion":"{number}"}}}}}}"#
        );
        connection.try_send(Ok(Frame::data(format!("{event}\n").into()))).expect("the last one was taken");
        assert!(poll!(&mut run).is_pending());
    }
    let (put, told) = *books.0.lock();
    assert!(put == 10 && told < put, "{told} of {put}: not in the middle of a burst");
    drop(run);
    assert_eq!(*books.0.lock(), (10, 10));
}
