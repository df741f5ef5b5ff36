//! Bodies with an end to waiting: of a watch, line by line, and others whole. What is timed is each part that comes, so that a slow one comes to its end.

use super::{Failure, broken, lines::Lines, silent};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use kube_client::client::Body;
use std::{
    future::{Future, poll_fn},
    mem,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    task::yield_now,
    time::{Instant, Sleep, sleep, timeout},
};

/// What comes within so long of being waited for was there already.
const AT_ONCE: Duration = Duration::from_micros(50);

pub(super) struct Stream {
    body: Body,
    lines: Lines,
    alarm: Alarm,
    /// The last part came at once.
    burst: bool,
}

impl Stream {
    /// Where nothing may come for so long.
    pub(super) fn new(body: Body, silence: Duration) -> Self {
        Self { body, lines: Lines::default(), alarm: Alarm::new(silence), burst: false }
    }

    /// The rest of it, where nothing may come for so long.
    pub(super) fn quiet_for(self, silence: Duration) -> Self {
        Self { alarm: Alarm::new(silence), ..self }
    }

    /// `None` when the server has ended it. Before it waits for something to come, it says so.
    ///
    /// The connection has a task of its own, which hands over one part, an event as a rule, and has to run before there is the next: so there is
    /// something to wait for after each of many events that have come together. When they do, it gets the chance to run first, and only
    /// if there is nothing then is it said.
    pub(super) async fn next(&mut self, mut waits: impl FnMut()) -> Result<Option<Bytes>, Failure> {
        loop {
            if let Some(line) = self.lines.next().map_err(broken)? {
                return Ok(Some(line));
            }
            self.alarm.wind();
            let mut patient = self.burst;
            let frame = poll_fn(|cx| match pin!(self.body.frame()).poll(cx) {
                Poll::Ready(frame) => Poll::Ready(Ok(frame)),
                Poll::Pending => {
                    if mem::take(&mut patient) {
                        // Polled again when nobody else has anything to do.
                        let _ = pin!(yield_now()).poll(cx);
                    } else {
                        waits();
                    }
                    self.alarm.poll_rung(cx).map(Err)
                }
            });
            let Some(frame) = frame.await? else { return Ok(None) };
            self.burst = self.alarm.since.elapsed() < AT_ONCE;
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{SinkExt, channel::mpsc, poll};
    use http::{Request, Response};
    use http_body::Frame;
    use http_body_util::StreamBody;
    use kube_client::Client;
    use parking_lot::Mutex;
    use std::{cell::Cell, convert::Infallible, future::ready};

    /// A body whose parts another task brings one by one, as a connection does.
    async fn body() -> (mpsc::Sender<Result<Frame<Bytes>, Infallible>>, Stream) {
        let (sender, parts) = mpsc::channel(0);
        let answer = Mutex::new(Some(Response::new(StreamBody::new(parts))));
        let service = tower::service_fn(move |_: Request<Body>| {
            ready(Ok::<_, Infallible>(answer.lock().take().expect("it is asked once")))
        });
        let response = Client::new(service, "default").send(Request::new(Body::empty())).await.expect("an answer");
        (sender, Stream::new(response.into_body(), Duration::from_mins(1)))
    }

    fn line(number: usize) -> Frame<Bytes> {
        Frame::data(format!("{number}\n").into())
    }

    #[tokio::test(start_paused = true)]
    async fn of_lines_that_come_together_it_waits_for_few_and_says_when_there_are_no_more() {
        let (mut sender, mut stream) = body().await;
        let connection = tokio::spawn(async move {
            for number in 0..100 {
                sender.send(Ok(line(number))).await.expect("somebody reads");
            }
            sender
        });
        let mut waits = 0;
        for number in 0..100 {
            let line = stream.next(|| waits += 1).await.expect("a line").expect("a line");
            assert_eq!(line, number.to_string());
        }
        assert!(waits < 5, "{waits}");
        let mut sender = connection.await.expect("all is sent");
        let mut said = false;
        let last = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            sender.send(Ok(line(100))).await.expect("somebody reads");
        };
        let (line, ()) = tokio::join!(stream.next(|| said = true), last);
        assert_eq!((line.expect("a line").expect("a line"), said), ("100".into(), true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_that_comes_alone_is_told_at_once() {
        let (mut sender, mut stream) = body().await;
        for number in 0..10 {
            let said = Cell::new(0);
            let mut next = pin!(stream.next(|| said.update(|said| said + 1)));
            assert!(poll!(next.as_mut()).is_pending());
            assert_eq!(said.get(), 1);
            tokio::time::sleep(Duration::from_secs(1)).await;
            let (sent, line) = tokio::join!(sender.send(Ok(line(number))), next);
            sent.expect("somebody reads");
            assert_eq!(line.expect("a line").expect("a line"), number.to_string());
            assert_eq!(said.get(), 1);
        }
    }
}
