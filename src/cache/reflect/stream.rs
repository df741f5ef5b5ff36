//! Bodies with an end to waiting: of a watch, line by line, and others whole. What is timed is each part that comes, so that a slow one comes to its end.

use super::{Failure, broken, lines::Lines, silent};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use kube_client::client::Body;
use std::time::Duration;
use tokio::time::timeout;

pub(super) struct Stream {
    body: Body,
    lines: Lines,
    /// How long nothing may come.
    silence: Duration,
}

impl Stream {
    pub(super) fn new(body: Body, silence: Duration) -> Self {
        Self { body, lines: Lines::default(), silence }
    }

    /// The rest of it, where nothing may come for so long.
    pub(super) fn quiet_for(self, silence: Duration) -> Self {
        Self { silence, ..self }
    }

    /// `None` when the server has ended it.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            if let Some(line) = self.lines.next().map_err(broken)? {
                return Ok(Some(line));
            }
            match part(&mut self.body, self.silence).await? {
                Some(data) => self.lines.push(&data),
                None => return Ok(None),
            }
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
