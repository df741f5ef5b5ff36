//! Format of the log's files: a header, then records.
//!
//! Invariant: a record has a length and a checksum over all of itself, so an incomplete or damaged
//! record is never taken for a valid one.

use flate2::Crc;
use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
};

/// Header of every file. The number is the version of the format.
pub(super) const HEADER: &[u8; 16] = b"steersman log 1\n";

/// Size of the length and the checksum before each record.
const FRAME: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The object has this content.
    Put = 1,
    /// The object was removed.
    Remove = 2,
    /// The table was dropped with all objects in it.
    Drop = 3,
    /// End of a snapshot, with its revision.
    End = 4,
}

/// A record. Fields that do not apply to its kind are empty.
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
        // Cannot overflow, because requests are limited to a few MiB.
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

    /// Decodes the record at the start of `bytes`. Returns `None` if it is not valid.
    fn decode(mut bytes: &'a [u8]) -> Option<Self> {
        let length = &bytes[..bytes.len().min(4)];
        let size = take_u32(&mut bytes)? as usize;
        let sum = take_u32(&mut bytes)?;
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
            let size = take_u32(&mut payload)? as usize;
            str::from_utf8(payload.split_off(..size)?).ok()
        };
        Some(Self {
            kind,
            revision,
            table: text()?,
            key: text()?,
            tail: payload,
        })
    }
}

fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.split_off(..4)?.try_into().ok()?))
}

fn checksum(length: &[u8], payload: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(length);
    crc.update(payload);
    crc.sum()
}

/// Reads the records of a file one at a time, since a file can be larger than the objects it
/// restores.
pub(super) struct RecordReader {
    file: BufReader<File>,
    size: u64,
    /// End of the valid records read so far. 0 if the header is incomplete.
    valid: u64,
    buffer: Vec<u8>,
}

impl RecordReader {
    /// Returns `None` if the file does not have this version's header.
    pub(super) fn new(file: File) -> io::Result<Option<Self>> {
        let size = file.metadata()?.len();
        let mut file = BufReader::with_capacity(1 << 18, file);
        let mut header = Vec::new();
        file.by_ref()
            .take(HEADER.len() as u64)
            .read_to_end(&mut header)?;
        let valid = if header == HEADER {
            HEADER.len() as u64
        } else {
            0
        };
        Ok(HEADER.starts_with(&header).then_some(Self {
            file,
            size,
            valid,
            buffer: Vec::new(),
        }))
    }

    /// Returns the next record, `None` after the last valid one.
    pub(super) fn next(&mut self) -> io::Result<Option<Record<'_>>> {
        let remaining = self.size - self.valid;
        if self.valid == 0 || remaining < FRAME as u64 {
            return Ok(None);
        }
        self.buffer.resize(FRAME, 0);
        self.file.read_exact(&mut self.buffer)?;
        let size = FRAME as u64 + u64::from(take_u32(&mut &self.buffer[..]).unwrap_or(0));
        if size > remaining {
            return Ok(None);
        }
        self.buffer.resize(size as usize, 0);
        self.file.read_exact(&mut self.buffer[FRAME..])?;
        let record = Record::decode(&self.buffer);
        if record.is_some() {
            self.valid += size;
        }
        Ok(record)
    }

    /// Returns the size of the valid part of the file that was read so far.
    pub(super) fn valid(&self) -> u64 {
        self.valid
    }

    /// Returns the number of bytes after the valid part.
    pub(super) fn rest(&self) -> u64 {
        self.size - self.valid
    }

    /// Returns whether a valid record follows the invalid one. That is damage, and not an
    /// incomplete last write.
    pub(super) fn has_later_record(&mut self) -> io::Result<bool> {
        self.file.seek(SeekFrom::Start(self.valid))?;
        let mut rest = Vec::new();
        self.file.read_to_end(&mut rest)?;
        Ok((1..rest.len()).any(|at| Record::decode(&rest[at..]).is_some()))
    }
}
