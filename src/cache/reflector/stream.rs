//! Lines of the body of a watch, with a timeout between two frames.

use super::{Failure, broken, lines::LineSplitter, yield_budget::YieldBudget};
use crate::client::poll_frame;
use bytes::Bytes;
use kube_client::client::Body;
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    task::yield_now,
    time::{Instant, Sleep, sleep},
};

pub(super) struct LineStream {
    body: Body,
    lines: LineSplitter,
    timeout: FrameTimeout,
    /// Budget of a burst. When it is used up, handlers are woken and the task yields.
    budget: YieldBudget,
}

impl LineStream {
    /// Creates a stream that fails after `silence` without data.
    pub(super) fn new(body: Body, silence: Duration) -> Self {
        Self {
            body,
            lines: LineSplitter::default(),
            timeout: FrameTimeout::new(silence),
            budget: YieldBudget::default(),
        }
    }

    /// Changes the timeout from now on.
    pub(super) fn set_timeout(&mut self, silence: Duration) {
        if self.timeout.silence != silence {
            self.timeout = FrameTimeout::new(silence);
        }
    }

    /// Returns the next line, or `None` when the server has ended the stream.
    ///
    /// Calls `before_wait` before it waits for data or yields.
    pub(super) async fn next(
        &mut self,
        mut before_wait: impl FnMut(),
    ) -> Result<Option<Bytes>, Failure> {
        if self.budget.is_exhausted() {
            self.budget = YieldBudget::default();
            before_wait();
            yield_now().await;
        }
        loop {
            if let Some(line) = self.lines.next().map_err(broken)? {
                self.budget.consume(line.len());
                return Ok(Some(line));
            }
            self.timeout.restart();
            let frame = poll_fn(|cx| match poll_frame(&mut self.body, cx) {
                Poll::Ready(frame) => Poll::Ready(Ok(frame)),
                Poll::Pending => {
                    self.budget = YieldBudget::default();
                    before_wait();
                    self.timeout.poll_elapsed(cx).map(Err)
                }
            });
            let Some(frame) = frame.await? else {
                return Ok(None);
            };
            if let Ok(data) = frame.map_err(broken)?.into_data() {
                self.lines.push(&data);
            }
        }
    }
}

/// Timeout between two frames.
///
/// Resetting a timer for each frame costs more than reading it. This one is reset only when it
/// fires too early.
struct FrameTimeout {
    silence: Duration,
    timer: Pin<Box<Sleep>>,
    since: Instant,
}

impl FrameTimeout {
    fn new(silence: Duration) -> Self {
        Self {
            silence,
            timer: Box::pin(sleep(silence)),
            since: Instant::now(),
        }
    }

    /// Restarts the timeout.
    fn restart(&mut self) {
        self.since = Instant::now();
    }

    fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let end = self.since + self.silence;
            if Instant::now() >= end {
                return Poll::Ready(Failure::Timeout(self.silence));
            }
            self.timer.as_mut().reset(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::yield_budget::{BYTES, OBJECTS},
        *,
    };
    use std::{
        cell::Cell,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::Relaxed},
        },
    };

    #[tokio::test]
    async fn an_endless_burst_yields_to_other_tasks() {
        bursts(&"x\n".repeat(3 * OBJECTS), OBJECTS).await;
        bursts(&("x".repeat(BYTES / 3) + "\n").repeat(12), 4).await;
    }

    /// Asserts that the stream yields and wakes handlers after every `in_one_go` lines.
    async fn bursts(lines: &str, in_one_go: usize) {
        let count = lines.lines().count();
        let lines = lines.to_owned().into_bytes();
        let mut stream = LineStream::new(Body::from(lines), Duration::from_secs(1));
        let turns = Arc::new(AtomicUsize::new(0));
        let other = tokio::spawn({
            let turns = turns.clone();
            async move {
                loop {
                    turns.fetch_add(1, Relaxed);
                    yield_now().await;
                }
            }
        });
        let (woken, mut read) = (Cell::new(0), 0);
        while stream
            .next(|| woken.set(woken.get() + 1))
            .await
            .expect("whole lines")
            .is_some()
        {
            let pauses = read / in_one_go;
            assert_eq!(woken.get(), pauses, "before line {read}");
            assert!(turns.load(Relaxed) >= pauses, "before line {read}");
            read += 1;
        }
        assert_eq!((read, woken.get()), (count, count / in_one_go));
        other.abort();
    }
}
