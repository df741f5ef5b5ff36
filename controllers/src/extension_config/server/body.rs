//! Reads request bodies, with limits of size and time.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;
use std::{fmt::Display, time::Duration};
use tokio::time::timeout;

/// Maximum size of a body in bytes, as in Cluster API's server.
const MAX_BODY: usize = 20 << 20;

/// Maximum number of bytes that are read and dropped from a body that is too large.
///
/// If the server closed the connection while the client still sends, the client would lose the
/// response.
const MAX_DISCARDED: usize = 2 * MAX_BODY;

/// Time limit for reading a body.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Reads a body.
///
/// Errors: the reason as text, for the message of the response.
pub(super) async fn read<B>(mut body: B) -> Result<Bytes, String>
where
    B: Body<Data = Bytes, Error: Display> + Unpin,
{
    let read = timeout(TIMEOUT, async {
        let announced = body.size_hint().lower();
        if announced > MAX_BODY as u64 {
            return too_large(&mut body).await;
        }
        // Allocates only for received data, because the client can announce more than it sends.
        let mut read = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| error.to_string())?;
            let Ok(data) = frame.into_data() else { break };
            if read.len() + data.len() > MAX_BODY {
                drop(read);
                return too_large(&mut body).await;
            }
            read.extend_from_slice(&data);
        }
        Ok(read.freeze())
    });
    let Ok(result) = read.await else {
        return Err(format!("body not complete after {TIMEOUT:?}"));
    };
    result
}

async fn too_large<B>(body: &mut B) -> Result<Bytes, String>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut discarded = 0;
    while discarded <= MAX_DISCARDED
        && let Some(Ok(frame)) = body.frame().await
    {
        discarded += frame.data_ref().map_or(0, Bytes::len);
    }
    Err("http: request body too large".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{StreamExt, stream};
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;
    use std::{
        convert::Infallible,
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
    };
    use tokio::time::Instant;

    const CHUNK: usize = 1 << 20;
    const TOO_LARGE: &str = "http: request body too large";

    /// Returns a body of chunks whose length is not announced.
    fn streamed(
        chunks: usize,
        read: &AtomicUsize,
    ) -> impl Body<Data = Bytes, Error = Infallible> + Unpin + use<'_> {
        let chunk = Bytes::from(vec![b'x'; CHUNK]);
        StreamBody::new(stream::iter(0..chunks).map(move |_| {
            read.fetch_add(1, Relaxed);
            Ok(Frame::data(chunk.clone()))
        }))
    }

    #[tokio::test]
    async fn a_body_of_20_mib_is_read() {
        let announced = Full::new(Bytes::from(vec![b'x'; MAX_BODY]));
        assert_eq!(read(announced).await.map(|body| body.len()), Ok(MAX_BODY));
        let chunks = AtomicUsize::new(0);
        let body = read(streamed(MAX_BODY / CHUNK, &chunks)).await;
        assert_eq!(body.map(|body| body.len()), Ok(MAX_BODY));
    }

    #[tokio::test]
    async fn a_larger_body_is_read_to_its_end_and_dropped() {
        let announced = Full::new(Bytes::from(vec![b'x'; MAX_BODY + 1]));
        assert_eq!(read(announced).await, Err(TOO_LARGE.into()));
        let chunks = AtomicUsize::new(0);
        let larger = MAX_BODY / CHUNK + 2;
        let body = read(streamed(larger, &chunks)).await;
        assert_eq!(body, Err(TOO_LARGE.into()));
        assert_eq!(chunks.into_inner(), larger);
    }

    #[tokio::test]
    async fn a_body_without_end_is_not_read_further() {
        let chunks = AtomicUsize::new(0);
        let body = read(streamed(usize::MAX, &chunks)).await;
        assert_eq!(body, Err(TOO_LARGE.into()));
        let most = (MAX_BODY + MAX_DISCARDED) / CHUNK + 2;
        assert_eq!(chunks.into_inner(), most);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_is_abandoned() {
        let begun = Instant::now();
        let silent = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
        let body = read(silent).await;
        assert_eq!(body, Err("body not complete after 30s".into()));
        assert_eq!(begun.elapsed(), TIMEOUT);
    }
}
