//! What the files of a log are made of: a header, and records.
//!
//! Invariant: a record says how long it is and has a checksum over all of itself, so that one which is there in part, or damaged,
//! is never taken for a whole one.

use flate2::Crc;
use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
};

/// What every file begins with. The number is the format's: what reads another one is another version.
pub(super) const HEADER: &[u8; 16] = b"steersman log 1\n";

/// Length and checksum, before each record.
const FRAME: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The object is this now.
    Put = 1,
    /// The object is gone.
    Remove = 2,
    /// The table is gone, with all that was in it.
    Drop = 3,
    /// The snapshot is whole, and was taken at this revision.
    End = 4,
}

/// What does not apply to its kind is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) kind: Kind,
    pub(super) revision: u64,
    pub(super) table: &'a str,
    pub(super) key: &'a str,
    pub(super) tail: &'a [u8],
}

impl<'a> Record<'a> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; FRAME]);
        out.push(self.kind as u8);
        out.extend_from_slice(&self.revision.to_le_bytes());
        // Requests are limited to a few MiB: no part of one comes near to what 32 bits can count.
        for text in [self.table, self.key] {
            out.extend_from_slice(&(text.len() as u32).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        out.extend_from_slice(self.tail);
        let (frame, payload) = out[start..].split_at_mut(FRAME);
        frame[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        let sum = checksum(&frame[..4], payload);
        frame[4..].copy_from_slice(&sum.to_le_bytes());
    }

    /// The record that `bytes` begins with; `None` if that is not a good one.
    fn decode(mut bytes: &'a [u8]) -> Option<Self> {
        let length = &bytes[..bytes.len().min(4)];
        let size = u32_of(&mut bytes)? as usize;
        let sum = u32_of(&mut bytes)?;
        let mut payload = bytes.split_off(..size)?;
        if size == 0 || checksum(length, payload) != sum {
            return None;
        }
        let kind = match payload.split_off_first()? {
            1 => Kind::Put,
            2 => Kind::Remove,
            3 => Kind::Drop,
            4 => Kind::End,
            _ => return None,
        };
        let revision = u64::from_le_bytes(payload.split_off(..8)?.try_into().ok()?);
        let mut text = || {
            let size = u32_of(&mut payload)? as usize;
            str::from_utf8(payload.split_off(..size)?).ok()
        };
        Some(Self { kind, revision, table: text()?, key: text()?, tail: payload })
    }
}

fn u32_of(bytes: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.split_off(..4)?.try_into().ok()?))
}

fn checksum(length: &[u8], payload: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(length);
    crc.update(payload);
    crc.sum()
}

/// Reads a file's records, one at a time: a file may be larger than what it amounts to.
pub(super) struct Reader {
    file: BufReader<File>,
    size: u64,
    /// Where the good records that were read end; 0 if not even the header is whole.
    good: u64,
    buffer: Vec<u8>,
}

impl Reader {
    /// `None` if it is not a file of this version.
    pub(super) fn new(file: File) -> io::Result<Option<Self>> {
        let size = file.metadata()?.len();
        let mut file = BufReader::with_capacity(1 << 18, file);
        let mut header = Vec::new();
        file.by_ref().take(HEADER.len() as u64).read_to_end(&mut header)?;
        let good = if header == HEADER { HEADER.len() as u64 } else { 0 };
        Ok(HEADER.starts_with(&header).then_some(Self { file, size, good, buffer: Vec::new() }))
    }

    /// The next record. `None` after the last good one.
    pub(super) fn next(&mut self) -> io::Result<Option<Record<'_>>> {
        let left = self.size - self.good;
        if self.good == 0 || left < FRAME as u64 {
            return Ok(None);
        }
        self.buffer.resize(FRAME, 0);
        self.file.read_exact(&mut self.buffer)?;
        let size = FRAME as u64 + u64::from(u32_of(&mut &self.buffer[..]).unwrap_or(0));
        if size > left {
            return Ok(None);
        }
        self.buffer.resize(size as usize, 0);
        self.file.read_exact(&mut self.buffer[FRAME..])?;
        let record = Record::decode(&self.buffer);
        if record.is_some() {
            self.good += size;
        }
        Ok(record)
    }

    /// How much of the file is good, after its last good record was read.
    pub(super) fn good(&self) -> u64 {
        self.good
    }

    /// How much follows that.
    pub(super) fn rest(&self) -> u64 {
        self.size - self.good
    }

    /// Whether a good record is somewhere in what follows: then it is damage, and not the end of a write that did not happen.
    pub(super) fn goes_on(&mut self) -> io::Result<bool> {
        self.file.seek(SeekFrom::Start(self.good))?;
        let mut rest = Vec::new();
        self.file.read_to_end(&mut rest)?;
        Ok((1..rest.len()).any(|at| Record::decode(&rest[at..]).is_some()))
    }
}
