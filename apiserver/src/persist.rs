//! Durability: what the store writes, on disk.
//!
//! The directory has segments, `1.log`, `2.log` and so on, that together are one log of all writes, and at most times a snapshot:
//! `3.snapshot` has what the segments before `3.log` amount to.
//!
//! Invariants:
//! - A write that was acknowledged is in the operating system's hands, by one call: a killed process cannot lose it. With `fsync`
//!   it is on the disk.
//! - Only the end of the last segment can be bad, and what is bad there was never acknowledged. So a bad end is dropped, and a bad
//!   record anywhere else is damage that a person has to look at.
//! - A file gets its name when it is whole, and is removed when a snapshot that has what it had is on the disk. So the newest
//!   snapshot and the segments from its number on are everything, whenever the process ends.
//!
//! A snapshot is written next to the writes: the store's lock is held only to begin a new segment and to note which objects
//! there are.

mod error;
mod files;
mod record;
mod replay;
#[cfg(test)]
mod tests;

use crate::{
    object::{Content, Key, Object},
    store::TableName,
};
pub(crate) use error::Error;
use error::at;
use files::{
    Files, Lock, create_segment, create_snapshot, lock, make_dir, remove_before, segment_path, snapshot_path, sync_dir,
};
use record::{HEADER, Kind, Record};
use replay::Replay;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

/// A log shorter than this is not worth a snapshot.
const LEAST: u64 = 8 << 20;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// Whether a write is acknowledged only once it is on the disk.
    pub(crate) fsync: bool,
}

/// What a directory had.
#[derive(Debug)]
pub(crate) struct Restored {
    /// Of the last write; 0 if there was none.
    pub(crate) revision: u64,
    pub(crate) objects: Vec<(TableName, Object)>,
    /// What was dropped, for people to read.
    pub(crate) note: Option<String>,
}

/// The log of a durable store.
pub(crate) struct Log {
    dir: PathBuf,
    /// Keeps other processes out for as long as it is open.
    _lock: Lock,
    fsync: bool,
    /// The last segment, its number, and how long it is.
    segment: File,
    number: u64,
    size: u64,
    /// The log's length since the last snapshot, and the length at which it wants another.
    grown: u64,
    limit: u64,
    least: u64,
    /// What the segment ends with is not known: a record after that might not be found again.
    broken: bool,
    buffer: Vec<u8>,
    snapshot: Option<Snapshot>,
}

/// A snapshot that is being written.
struct Snapshot {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Log {
    /// Open a directory, which is made if it is not there.
    pub(crate) fn open(dir: &Path, options: Options) -> Result<(Self, Restored), Error> {
        make_dir(dir).map_err(at(dir))?;
        let dir = &dir.canonicalize().map_err(at(dir))?;
        let lock = lock(dir)?;
        let files = Files::list(dir).map_err(at(dir))?;

        let mut replay = Replay::default();
        let base = files.snapshots.last().copied();
        let live = match base {
            Some(number) => replay.snapshot(snapshot_path(dir, number))?,
            None => 0,
        };
        let first = base.unwrap_or(1);
        let last = files.segments.last().copied().unwrap_or(0).max(first);
        let mut grown = 0;
        let mut size = None;
        let mut note = None;
        for number in first..=last {
            let path = segment_path(dir, number);
            if !files.segments.contains(&number) {
                // Only a directory that nothing was ever written to has none.
                if base.is_none() && files.segments.is_empty() {
                    continue;
                }
                return Err(Error::Missing(path));
            }
            let (good, bad) = replay.segment(&path, number == last)?;
            if bad > 0 {
                note = Some(format!(
                    "{}: its last {bad} bytes were dropped: they are not a whole record, as when a write was cut off",
                    path.display()
                ));
            }
            grown += good;
            size = Some(good);
        }

        let restored = Restored { revision: replay.revision, objects: replay.objects()?, note };

        // It can be used: only now it is changed.
        let path = segment_path(dir, last);
        let segment = match size {
            // A header that is not whole: nothing is in there yet.
            None | Some(0) => create_segment(dir, last, options.fsync),
            Some(size) => OpenOptions::new().append(true).open(&path).and_then(|segment| {
                segment.set_len(size)?;
                Ok(segment)
            }),
        };
        let segment = segment.map_err(at(&path))?;
        if options.fsync {
            segment.sync_all().and_then(|()| sync_dir(dir)).map_err(at(dir))?;
            // The directory itself may be new.
            dir.parent().map_or(Ok(()), sync_dir).map_err(at(dir))?;
        }
        remove_before(dir, first).map_err(at(dir))?;
        for path in files.unfinished {
            fs::remove_file(&path).map_err(at(&path))?;
        }
        let log = Self {
            dir: dir.clone(),
            _lock: lock,
            fsync: options.fsync,
            segment,
            number: last,
            size: size.unwrap_or(0).max(HEADER.len() as u64),
            grown,
            limit: LEAST.max(2 * live),
            least: LEAST,
            broken: false,
            buffer: Vec::new(),
            snapshot: None,
        };
        Ok((log, restored))
    }

    /// Append the write of an object; `content` is `None` if it was removed.
    pub(crate) fn append(
        &mut self,
        table: &str,
        key: &Key,
        revision: u64,
        content: Option<&Content>,
    ) -> io::Result<()> {
        let kind = if content.is_some() { Kind::Put } else { Kind::Remove };
        let tail = content.map_or(&[][..], Content::tail);
        self.push(&Record { kind, revision, table, key: key.as_str(), tail })
    }

    /// Append that a table was dropped.
    pub(crate) fn drop_table(&mut self, table: &str, revision: u64) -> io::Result<()> {
        self.push(&Record { kind: Kind::Drop, revision, table, key: "", tail: &[] })
    }

    /// On error the log is as it was before, or takes nothing any more.
    fn push(&mut self, record: &Record<'_>) -> io::Result<()> {
        if self.broken {
            let dir = self.dir.display();
            return Err(io::Error::other(format!(
                "an earlier write to {dir} failed and could not be undone: mend the disk and start again"
            )));
        }
        self.buffer.clear();
        record.encode(&mut self.buffer);
        let written = self.segment.write_all(&self.buffer);
        // After a sync that failed nobody knows what is on the disk, and asking again tells nothing.
        let unsure = written.is_ok();
        if let Err(error) = written.and_then(|()| if self.fsync { self.segment.sync_data() } else { Ok(()) }) {
            self.broken = self.segment.set_len(self.size).is_err() || unsure;
            return Err(error);
        }
        self.size += self.buffer.len() as u64;
        self.grown += self.buffer.len() as u64;
        Ok(())
    }

    /// Whether the log has outgrown what it amounts to.
    pub(crate) fn wants_snapshot(&self) -> bool {
        self.grown > self.limit && self.snapshot.as_ref().is_none_or(|snapshot| snapshot.thread.is_finished())
    }

    /// Begin a snapshot of all objects, as of the last record. A failure costs nothing but room: what is there stays.
    pub(crate) fn snapshot<'a>(
        &mut self,
        revision: u64,
        objects: impl Iterator<Item = (&'a TableName, &'a Arc<Object>)>,
    ) {
        if let Err(error) = self.begin_snapshot(revision, objects) {
            warn(&self.dir, &error);
            self.limit = self.limit.max(self.grown).saturating_mul(2);
        }
    }

    fn begin_snapshot<'a>(
        &mut self,
        revision: u64,
        objects: impl Iterator<Item = (&'a TableName, &'a Arc<Object>)>,
    ) -> io::Result<()> {
        let number = self.number + 1;
        self.segment = create_segment(&self.dir, number, self.fsync)?;
        (self.number, self.size, self.grown) = (number, HEADER.len() as u64, 0);
        if self.fsync {
            sync_dir(&self.dir).inspect_err(|_| self.broken = true)?;
        }
        let mut live = 0;
        let objects: Vec<_> = objects
            .map(|(table, object)| {
                live += object.content().tail().len() as u64;
                (table.clone(), object.clone())
            })
            .collect();
        self.limit = self.least.max(2 * live);
        let stop = Arc::new(AtomicBool::new(false));
        let (dir, stopped) = (self.dir.clone(), stop.clone());
        let thread = thread::Builder::new().name("snapshot".to_owned()).spawn(move || {
            let unfinished = dir.join(format!("{number}.snapshot.tmp"));
            if let Err(error) = write_snapshot(&unfinished, &dir, number, revision, &objects, &stopped) {
                warn(&dir, &error);
                // The disk may be full.
                _ = fs::remove_file(unfinished);
            }
        })?;
        self.snapshot = Some(Snapshot { stop, thread });
        Ok(())
    }
}

/// Nothing touches the directory any more when the lock is given back.
impl Drop for Log {
    fn drop(&mut self) {
        if let Some(Snapshot { stop, thread }) = self.snapshot.take() {
            stop.store(true, Ordering::Relaxed);
            _ = thread.join();
        }
    }
}

fn write_snapshot(
    unfinished: &Path,
    dir: &Path,
    number: u64,
    revision: u64,
    objects: &[(TableName, Arc<Object>)],
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 18, create_snapshot(unfinished)?);
    out.write_all(HEADER)?;
    let mut buffer = Vec::new();
    let objects = objects.iter().map(|(table, object)| Record {
        kind: Kind::Put,
        revision: object.revision,
        table,
        key: object.key.as_str(),
        tail: object.content().tail(),
    });
    let end = Record { kind: Kind::End, revision, table: "", key: "", tail: &[] };
    for record in objects.chain([end]) {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        buffer.clear();
        record.encode(&mut buffer);
        out.write_all(&buffer)?;
    }
    // Even without `fsync`: what it replaces has been on the disk for long, and nobody waits for this.
    out.into_inner()?.sync_all()?;
    fs::rename(unfinished, snapshot_path(dir, number))?;
    sync_dir(dir)?;
    remove_before(dir, number)
}

fn warn(dir: &Path, error: &io::Error) {
    eprintln!("steersman-apiserver: no snapshot in {}: {error}; nothing is lost, but the log grows", dir.display());
}
