//! The body of a watch, line by line, with an end to waiting.

use super::{Failure, broken, lines::Lines};
use bytes::Bytes;
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

    /// `None` when the server has ended it.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            if let Some(line) = self.lines.next().map_err(broken)? {
                return Ok(Some(line));
            }
            let frame = timeout(self.silence, self.body.frame()).await;
            let frame = frame.map_err(|_| Failure::Broken(format!("nothing for {} s", self.silence.as_secs())))?;
            match frame {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame.map_err(broken)?.into_data() {
                        self.lines.push(&data);
                    }
                }
            }
        }
    }
}
