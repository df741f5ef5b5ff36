//! Connections that end before they should: how a fault says so, and a body that stops in the middle.

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use std::{
    error::Error,
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

/// The connection was cut without an answer.
///
/// On a socket it ends without a byte, and a client that calls the service directly gets this as the error of its call, as
/// from a connection that was reset.
// The handler cannot fail, so it says this by an otherwise empty response that has `Closed` among its extensions. Each door
// makes the client's view of it by `Closed::check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl Closed {
    /// The response that stands for a cut connection.
    pub(crate) fn response<B: Default>() -> Response<B> {
        let mut response = Response::default();
        response.extensions_mut().insert(Self);
        response
    }

    /// The response, unless it stands for a cut connection.
    pub(crate) fn check<B>(response: Response<B>) -> Result<Response<B>, Self> {
        if response.extensions().get::<Self>().is_some() { Err(Self) } else { Ok(response) }
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection was closed, by a fault rule or because the server has ended")
    }
}

impl Error for Closed {}

/// A watch's body that breaks after a number of events: with an error, since a dropped connection is no clean end.
#[derive(Debug)]
pub(crate) struct DropAfter<B> {
    body: Pin<Box<B>>,
    left: u64,
}

impl<B> DropAfter<B> {
    /// `body` up to its `events`th event. Events are counted by the line ends that close them, however they are framed.
    pub(crate) fn new(body: B, events: u64) -> Self {
        Self { body: Box::pin(body), left: events }
    }

    /// What of `data` may still go out.
    fn take(&mut self, mut data: Bytes) -> Bytes {
        let mut end = data.len();
        for (at, _) in data.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            self.left -= 1;
            if self.left == 0 {
                end = at + 1;
                break;
            }
        }
        data.truncate(end);
        data
    }
}

impl<B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>> Body for DropAfter<B> {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.left == 0 {
            return Poll::Ready(Some(Err(Closed.into())));
        }
        let frame = ready!(self.body.as_mut().poll_frame(cx));
        Poll::Ready(frame.map(|frame| Ok(frame.map_err(Into::into)?.map_data(|data| self.take(data)))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::StreamExt;
    use http_body_util::{BodyExt, Full, StreamBody};
    use std::convert::Infallible;

    async fn read(chunks: &'static [&'static str], events: u64) -> (String, bool) {
        let frames = chunks.iter().map(|chunk| Ok::<_, Infallible>(Frame::data(Bytes::from_static(chunk.as_bytes()))));
        let mut body = DropAfter::new(StreamBody::new(futures_util::stream::iter(frames).boxed()), events);
        let mut text = String::new();
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return (text, true) };
            text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
        (text, false)
    }

    #[tokio::test]
    async fn a_body_breaks_after_its_last_event_however_events_are_framed() {
        assert_eq!(read(&["a\n", "b\n", "c\n"], 2).await, ("a\nb\n".into(), true));
        assert_eq!(read(&["a\nb\nc\n"], 2).await, ("a\nb\n".into(), true));
        assert_eq!(read(&["a", "\nb", "\nc\n"], 2).await, ("a\nb\n".into(), true));
        assert_eq!(read(&["a\n"], 0).await, (String::new(), true));
    }

    #[tokio::test]
    async fn a_body_that_ends_earlier_ends_cleanly() {
        assert_eq!(read(&["a\n"], 2).await, ("a\n".into(), false));
    }

    #[test]
    fn only_a_marked_response_is_a_cut_one() {
        assert_eq!(Closed::check(Closed::response::<Full<Bytes>>()).unwrap_err(), Closed);
        assert!(Closed::check(Response::new(Full::<Bytes>::default())).is_ok());
    }
}
