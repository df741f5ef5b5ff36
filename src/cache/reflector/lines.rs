//! Splits the body of a watch into lines, one per event.
//!
//! Unread data is in one buffer, and a line is a slice of it. So an event is copied once, when it
//! is decoded.

use bytes::{Buf, Bytes, BytesMut};

/// Maximum length of an event in bytes.
///
/// etcd limits an object to 1.5 MiB. As JSON with managed fields it is larger.
const MAX_LINE: usize = 32 << 20;

/// Converts frames to lines.
#[derive(Default)]
pub(super) struct LineSplitter {
    buffer: BytesMut,
    /// Length of the prefix without a line break.
    searched: usize,
}

/// Error of a line that exceeds the limit.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error(
    "watch event exceeds {} MiB; check the proxies between this process and the API server",
    MAX_LINE >> 20
)]
pub(super) struct TooLong;

impl LineSplitter {
    pub(super) fn push(&mut self, frame: &[u8]) {
        self.buffer.extend_from_slice(frame);
    }

    /// Returns the next complete line without its line break. Skips empty lines.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        loop {
            let Some(found) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
                self.searched = self.buffer.len();
                return if self.searched > MAX_LINE {
                    Err(TooLong)
                } else {
                    Ok(None)
                };
            };
            let line = self.buffer.split_to(self.searched + found).freeze();
            self.buffer.advance(1);
            self.searched = 0;
            if !line.is_empty() {
                return Ok(Some(line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(lines: &mut LineSplitter) -> Vec<String> {
        std::iter::from_fn(|| lines.next().expect("short lines"))
            .map(|line| String::from_utf8_lossy(&line).into_owned())
            .collect()
    }

    #[test]
    fn a_line_is_returned_once_it_is_complete() {
        let mut lines = LineSplitter::default();
        lines.push(b"one\ntw");
        assert_eq!(all(&mut lines), ["one"]);
        lines.push(b"o\n\nthree\n");
        assert_eq!(all(&mut lines), ["two", "three"]);
    }

    #[test]
    fn a_line_over_the_limit_is_an_error() {
        let mut lines = LineSplitter::default();
        for _ in 0..=MAX_LINE >> 20 {
            lines.push(&vec![b'x'; 1 << 20]);
        }
        assert_eq!(lines.next(), Err(TooLong));
    }

    steersman_testkit::properties! {
        #[test]
        fn the_lines_do_not_depend_on_the_frames(
            text in proptest::collection::vec("[a-z]{0,9}", 0..20), cut in proptest::collection::vec(1usize..7, 1..40)
        ) {
            let whole = text.iter().flat_map(|line| [line.as_str(), "\n"]).collect::<String>();
            let mut lines = LineSplitter::default();
            let (mut rest, mut got, mut sizes) = (whole.as_bytes(), Vec::new(), cut.iter().cycle());
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(*sizes.next().expect("an endless iterator")));
                lines.push(now);
                got.extend(all(&mut lines));
                rest = later;
            }
            let wanted: Vec<_> = text.into_iter().filter(|line| !line.is_empty()).collect();
            prop_assert_eq!(got, wanted);
        }
    }
}
