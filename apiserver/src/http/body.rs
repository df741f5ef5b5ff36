//! Bodies of requests, which are read completely, and of responses, which may be streams.

use crate::{
    limits::ConnectionLimits,
    status::{Failure, Reason, Result},
};
use bytes::{Buf, BufMut, Bytes};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::{
    error::Error,
    fmt,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::timeout;

/// Maximum size of a request body, as in kube-apiserver.
pub(crate) const LIMIT: usize = 3 * 1024 * 1024;

type BoxError = Box<dyn Error + Send + Sync>;

/// Reads the body of a request.
///
/// Errors: the body is too large, too slow, or cannot be read.
pub(crate) async fn read_body<B>(body: B, limits: ConnectionLimits) -> Result<Bytes>
where
    B: http_body::Body<Error: Into<BoxError>>,
{
    let announced = body.size_hint().lower();
    if announced > LIMIT as u64 {
        return Err(Failure::too_large(LIMIT));
    }
    let late = |limit: Duration, missing: &str| {
        let message = format!(
            "cannot read the request body: {missing} within {limit:?}; send it without pauses"
        );
        Failure::new(408, Reason::Timeout, message)
    };
    let mut body = pin!(Limited::new(body, LIMIT));
    let read = async {
        let mut first = Bytes::new();
        let mut whole = Vec::new();
        loop {
            let frame = match timeout(limits.body_idle_timeout, body.frame()).await {
                Err(_) => return Err(late(limits.body_idle_timeout, "no data")),
                Ok(None) => {
                    return Ok(if whole.is_empty() {
                        first
                    } else {
                        whole.into()
                    });
                }
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) if error.is::<LengthLimitError>() => {
                    return Err(Failure::too_large(LIMIT));
                }
                Ok(Some(Err(error))) => {
                    return Err(Failure::bad_request(format!(
                        "cannot read the request body: {error}"
                    )));
                }
            };
            let Ok(mut data) = frame.into_data() else {
                continue;
            };
            // Most bodies have one part, which is not copied.
            if first.is_empty() && whole.is_empty() {
                first = data.copy_to_bytes(data.remaining());
                continue;
            }
            whole.extend_from_slice(&std::mem::take(&mut first));
            whole.put(data);
        }
    };
    timeout(limits.body_timeout, read)
        .await
        .unwrap_or_else(|_| Err(late(limits.body_timeout, "not complete")))
}

/// Body of a response.
#[derive(Default)]
pub struct Body(Kind);

#[derive(Default)]
enum Kind {
    #[default]
    Empty,
    Whole(Bytes),
    Stream(Pin<Box<dyn http_body::Body<Data = Bytes, Error = BoxError> + Send>>),
}

impl Body {
    pub(crate) fn stream(
        body: impl http_body::Body<Data = Bytes, Error = BoxError> + Send + 'static,
    ) -> Self {
        Self(Kind::Stream(Box::pin(body)))
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self(Kind::Whole(bytes))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Kind::Stream(body) = &mut self.0 {
            return body.as_mut().poll_frame(cx);
        }
        match std::mem::take(&mut self.0) {
            Kind::Whole(bytes) if !bytes.is_empty() => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            _ => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Empty => true,
            Kind::Whole(bytes) => bytes.is_empty(),
            Kind::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Stream(body) => body.size_hint(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Kind::Empty => "Body(empty)",
            Kind::Whole(_) => "Body(whole)",
            Kind::Stream(_) => "Body(stream)",
        })
    }
}
