//! Connections that fault rules drop, before the response or in the middle of a watch.

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use std::{
    error::Error,
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

/// Error of a request whose connection was closed without a response.
///
/// On a socket the connection closes without a byte. A client that calls the service directly gets
/// this error from its call, as it would from a connection that was reset.
// The request handler cannot fail. It returns an empty response with `Closed` among its extensions,
// and the socket and the in-process service turn that into the client's view with `Closed::check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl Closed {
    /// Returns the response that represents a closed connection.
    pub(crate) fn response<B: Default>() -> Response<B> {
        let mut response = Response::default();
        response.extensions_mut().insert(Self);
        response
    }

    /// Returns the response, or an error if it represents a closed connection.
    pub(crate) fn check<B>(response: Response<B>) -> Result<Response<B>, Self> {
        if response.extensions().get::<Self>().is_some() {
            Err(Self)
        } else {
            Ok(response)
        }
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("connection closed by a fault rule or by the shutdown of the server")
    }
}

impl Error for Closed {}

/// Body of a watch that fails after a number of events. It ends with an error because a dropped
/// connection is not a clean end.
#[derive(Debug)]
pub(crate) struct DropAfter<B> {
    body: Pin<Box<B>>,
    remaining: u64,
}

impl<B> DropAfter<B> {
    /// Wraps `body` so that it fails after `events` events. Events are counted by line ends, so
    /// frames do not matter.
    pub(crate) fn new(body: B, events: u64) -> Self {
        Self {
            body: Box::pin(body),
            remaining: events,
        }
    }

    /// Returns the part of `data` up to the last allowed event.
    fn take(&mut self, mut data: Bytes) -> Bytes {
        let mut end = data.len();
        for (at, _) in data.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            self.remaining -= 1;
            if self.remaining == 0 {
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

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.remaining == 0 {
            return Poll::Ready(Some(Err(Closed.into())));
        }
        let frame = ready!(self.body.as_mut().poll_frame(cx));
        Poll::Ready(
            frame.map(|frame| Ok(frame.map_err(Into::into)?.map_data(|data| self.take(data)))),
        )
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
        let frames = chunks
            .iter()
            .map(|chunk| Ok::<_, Infallible>(Frame::data(Bytes::from_static(chunk.as_bytes()))));
        let mut body = DropAfter::new(
            StreamBody::new(futures_util::stream::iter(frames).boxed()),
            events,
        );
        let mut text = String::new();
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                return (text, true);
            };
            text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
        (text, false)
    }

    #[tokio::test]
    async fn a_body_fails_after_its_last_event_with_any_framing() {
        assert_eq!(
            read(&["a\n", "b\n", "c\n"], 2).await,
            ("a\nb\n".into(), true)
        );
        assert_eq!(read(&["a\nb\nc\n"], 2).await, ("a\nb\n".into(), true));
        assert_eq!(
            read(&["a", "\nb", "\nc\n"], 2).await,
            ("a\nb\n".into(), true)
        );
        assert_eq!(read(&["a\n"], 0).await, (String::new(), true));
    }

    #[tokio::test]
    async fn a_body_that_ends_earlier_ends_cleanly() {
        assert_eq!(read(&["a\n"], 2).await, ("a\n".into(), false));
    }

    #[test]
    fn check_returns_an_error_only_for_closed_responses() {
        assert_eq!(
            Closed::check(Closed::response::<Full<Bytes>>()).unwrap_err(),
            Closed
        );
        assert!(Closed::check(Response::new(Full::<Bytes>::default())).is_ok());
    }
}
