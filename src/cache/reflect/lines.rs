//! A watch's body, cut into lines: one event each.
//!
//! What has been read and not taken is one buffer; a line is a view of it, so that an event is copied once, into what is kept of it.

use bytes::{Buf, Bytes, BytesMut};

/// The largest event that is read. The server's largest object is 1.5 MiB in its store, and larger with its managed fields and as JSON.
const LONGEST: usize = 32 << 20;

/// Frames in, lines out.
#[derive(Default)]
pub(super) struct Lines {
    buffer: BytesMut,
    /// Up to here there is no line break.
    searched: usize,
}

/// A line that does not end.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("an event of more than {} MiB: is there something between this process and the API server?", LONGEST >> 20)]
pub(super) struct TooLong;

impl Lines {
    pub(super) fn push(&mut self, frame: &[u8]) {
        self.buffer.extend_from_slice(frame);
    }

    /// The next whole line, without its end. Empty ones are skipped.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        loop {
            let Some(found) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
                self.searched = self.buffer.len();
                return if self.searched > LONGEST { Err(TooLong) } else { Ok(None) };
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

    fn all(lines: &mut Lines) -> Vec<String> {
        std::iter::from_fn(|| lines.next().expect("short lines"))
            .map(|line| String::from_utf8_lossy(&line).into_owned())
            .collect()
    }

    #[test]
    fn a_line_comes_when_it_has_ended() {
        let mut lines = Lines::default();
        lines.push(b"one\ntw");
        assert_eq!(all(&mut lines), ["one"]);
        lines.push(b"o\n\nthree\n");
        assert_eq!(all(&mut lines), ["two", "three"]);
    }

    #[test]
    fn a_line_that_does_not_end_is_refused() {
        let mut lines = Lines::default();
        for _ in 0..=LONGEST >> 20 {
            lines.push(&vec![b'x'; 1 << 20]);
        }
        assert_eq!(lines.next(), Err(TooLong));
    }

    steersman_testkit::properties! {
        #[test]
        fn however_it_is_cut_the_lines_are_the_same(
            text in proptest::collection::vec("[a-z]{0,9}", 0..20), cut in proptest::collection::vec(1usize..7, 1..40)
        ) {
            let whole = text.iter().flat_map(|line| [line.as_str(), "\n"]).collect::<String>();
            let mut lines = Lines::default();
            let (mut rest, mut got, mut sizes) = (whole.as_bytes(), Vec::new(), cut.iter().cycle());
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(*sizes.next().expect("for ever")));
                lines.push(now);
                got.extend(all(&mut lines));
                rest = later;
            }
            let wanted: Vec<_> = text.into_iter().filter(|line| !line.is_empty()).collect();
            prop_assert_eq!(got, wanted);
        }
    }
}
