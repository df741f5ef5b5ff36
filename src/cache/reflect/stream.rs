//! Bodies with an end to waiting: of a watch, line by line, and others whole. What is timed is each part that comes, so that a slow one comes to its end.

use super::{Failure, broken, lines::Lines, silent};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use kube_client::client::Body;
use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep, timeout};

pub(super) struct Stream {
    body: Body,
    lines: Lines,
    alarm: Alarm,
}

impl Stream {
    /// Where nothing may come for so long.
    pub(super) fn new(body: Body, silence: Duration) -> Self {
        Self { body, lines: Lines::default(), alarm: Alarm::new(silence) }
    }

    /// The rest of it, where nothing may come for so long.
    pub(super) fn quiet_for(self, silence: Duration) -> Self {
        Self { alarm: Alarm::new(silence), ..self }
    }

    /// `None` when the server has ended it. Before it waits for something to come, it says so.
    pub(super) async fn next(&mut self, mut waits: impl FnMut()) -> Result<Option<Bytes>, Failure> {
        loop {
            if let Some(line) = self.lines.next().map_err(broken)? {
                return Ok(Some(line));
            }
            self.alarm.wind();
            let frame = poll_fn(|cx| match pin!(self.body.frame()).poll(cx) {
                Poll::Ready(frame) => Poll::Ready(Ok(frame)),
                Poll::Pending => {
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
                return Poll::Ready(silent(self.silence));
            }
            self.timer.as_mut().reset(end);
        }
    }
}

/// All of a body.
pub(super) async fn whole(mut body: Body, silence: Duration) -> Result<BytesMut, Failure> {
    let mut all = BytesMut::new();
    while let Some(data) = part(&mut body, silence).await? {
        all.extend_from_slice(&data);
    }
    Ok(all)
}

/// The next part of a body, unless nothing comes for so long; `None` at its end.
async fn part(body: &mut Body, silence: Duration) -> Result<Option<Bytes>, Failure> {
    loop {
        let Some(frame) = timeout(silence, body.frame()).await.map_err(|_| silent(silence))? else { return Ok(None) };
        if let Ok(data) = frame.map_err(broken)?.into_data() {
            return Ok(Some(data));
        }
    }
}
