//! The body of a watch, line by line, with a time limit between two parts.

use super::{Failure, broken, lines::Lines, turn::Turn};
use crate::client::poll_part;
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

pub(super) struct Stream {
    body: Body,
    lines: Lines,
    alarm: Alarm,
    /// Of a burst. After it handlers are told, too.
    turn: Turn,
}

impl Stream {
    /// Where nothing may come for so long.
    pub(super) fn new(body: Body, silence: Duration) -> Self {
        Self { body, lines: Lines::default(), alarm: Alarm::new(silence), turn: Turn::default() }
    }

    /// Nothing may come for so long from now on.
    pub(super) fn quiet_for(&mut self, silence: Duration) {
        if self.alarm.silence != silence {
            self.alarm = Alarm::new(silence);
        }
    }

    /// `None` when the server has ended it. Before it waits for something to come, or for its turn, it says so.
    pub(super) async fn next(&mut self, mut waits: impl FnMut()) -> Result<Option<Bytes>, Failure> {
        if self.turn.is_over() {
            self.turn = Turn::default();
            waits();
            yield_now().await;
        }
        loop {
            if let Some(line) = self.lines.next().map_err(broken)? {
                self.turn.took(line.len());
                return Ok(Some(line));
            }
            self.alarm.wind();
            let frame = poll_fn(|cx| match poll_part(&mut self.body, cx) {
                Poll::Ready(frame) => Poll::Ready(Ok(frame)),
                Poll::Pending => {
                    self.turn = Turn::default();
                    waits();
                    self.alarm.poll_rung(cx).map(Err)
                }
            });
            let Some(frame) = frame.await? else { return Ok(None) };
            if let Ok(data) = frame.map_err(broken)?.into_data() {
                self.lines.push(&data);
            }
        }
    }
}

/// Rings when nothing has come for too long. Setting a timer for each of many parts costs more than reading them: this one is set anew when it has rung too
/// early.
struct Alarm {
    silence: Duration,
    timer: Pin<Box<Sleep>>,
    since: Instant,
}

impl Alarm {
    fn new(silence: Duration) -> Self {
        Self { silence, timer: Box::pin(sleep(silence)), since: Instant::now() }
    }

    /// The silence begins now.
    fn wind(&mut self) {
        self.since = Instant::now();
    }

    fn poll_rung(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let end = self.since + self.silence;
            if Instant::now() >= end {
                return Poll::Ready(Failure::Silent(self.silence));
            }
            self.timer.as_mut().reset(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::turn::{BYTES, OBJECTS},
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
    async fn a_burst_that_does_not_end_leaves_others_their_turn() {
        bursts(&"x\n".repeat(3 * OBJECTS), OBJECTS).await;
        bursts(&("x".repeat(BYTES / 3) + "\n").repeat(12), 4).await;
    }

    /// Others get their turn, and handlers are told, after each so many lines.
    async fn bursts(lines: &str, in_one_go: usize) {
        let count = lines.lines().count();
        let lines = lines.to_owned().into_bytes();
        let mut stream = Stream::new(Body::from(lines), Duration::from_secs(1));
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
        let (told, mut given) = (Cell::new(0), 0);
        while stream.next(|| told.set(told.get() + 1)).await.expect("whole lines").is_some() {
            let pauses = given / in_one_go;
            assert_eq!(told.get(), pauses, "before line {given}");
            assert!(turns.load(Relaxed) >= pauses, "before line {given}");
            given += 1;
        }
        assert_eq!((given, told.get()), (count, count / in_one_go));
        other.abort();
    }
}
