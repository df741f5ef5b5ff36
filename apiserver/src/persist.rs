//! Durability: the log of the store's writes on disk, and its snapshots.
//!
//! The directory has segments `1.log`, `2.log` and so on, which together are one log of all writes,
//! and usually one snapshot: `3.snapshot` has the state after all segments before `3.log`.
//!
//! Invariants:
//! - An acknowledged write was passed to the operating system in one call, so killing the process
//!   cannot lose it. With `fsync` it is on disk.
//! - Only the end of the last segment can be incomplete, and that write was never acknowledged. An
//!   incomplete end is therefore dropped. An invalid record anywhere else is damage, which the
//!   operator must repair.
//! - A file is renamed to its name when it is complete, and removed after a snapshot that covers it
//!   is on disk. The newest snapshot and the segments from its number on are therefore the whole
//!   state, whenever the process ends.
//!
//! A snapshot is written concurrently with writes. The store's lock is held only to begin a new
//! segment and to collect references to the objects.

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
use error::io_error;
use files::{
    Files, Lock, create_dir, create_segment, create_snapshot, lock, remove_before, segment_path,
    snapshot_path, sync_dir,
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

/// Minimum size of the log before a snapshot is taken.
const MIN_SNAPSHOT_SIZE: u64 = 8 << 20;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// Whether to sync each write to disk before it is acknowledged.
    pub(crate) fsync: bool,
}

/// Content of a directory.
#[derive(Debug)]
pub(crate) struct Restored {
    /// Revision of the last write. 0 if there was none.
    pub(crate) revision: u64,
    pub(crate) objects: Vec<(TableName, Object)>,
    /// Describes what was dropped, for the operator.
    pub(crate) recovery_note: Option<String>,
}

/// The log of a durable store.
pub(crate) struct Log {
    dir: PathBuf,
    /// Excludes other processes while the log is open.
    _lock: Lock,
    fsync: bool,
    segment: File,
    /// Number of the last segment.
    number: u64,
    /// Size of the last segment.
    size: u64,
    /// Size of the log since the last snapshot.
    grown: u64,
    /// Size at which the next snapshot is taken.
    limit: u64,
    /// Lower bound of `limit`.
    min_limit: u64,
    /// The end of the segment is unknown, so a further record might not be found on replay.
    broken: bool,
    buffer: Vec<u8>,
    snapshot: Option<Snapshot>,
}

/// A snapshot in progress.
struct Snapshot {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Log {
    /// Opens a directory, and creates it if necessary.
    pub(crate) fn open(dir: &Path, options: Options) -> Result<(Self, Restored), Error> {
        create_dir(dir).map_err(io_error(dir))?;
        let dir = &dir.canonicalize().map_err(io_error(dir))?;
        let lock = lock(dir)?;
        let files = Files::list(dir).map_err(io_error(dir))?;

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
        let mut recovery_note = None;
        for number in first..=last {
            let path = segment_path(dir, number);
            if !files.segments.contains(&number) {
                // Only a new directory has no segment.
                if base.is_none() && files.segments.is_empty() {
                    continue;
                }
                return Err(Error::Missing(path));
            }
            let (valid, invalid) = replay.segment(&path, number == last)?;
            if invalid > 0 {
                recovery_note = Some(format!(
                    "the last {invalid} bytes of {} were dropped: the last record is incomplete, so it was never acknowledged",
                    path.display()
                ));
            }
            grown += valid;
            size = Some(valid);
        }

        let restored = Restored {
            revision: replay.revision,
            objects: replay.objects()?,
            recovery_note,
        };

        // The content is valid. Only from here on the directory is changed.
        let path = segment_path(dir, last);
        let segment = match size {
            // Not even the header is complete, so the segment is empty.
            None | Some(0) => create_segment(dir, last, options.fsync),
            Some(size) => OpenOptions::new()
                .append(true)
                .open(&path)
                .and_then(|segment| {
                    segment.set_len(size)?;
                    Ok(segment)
                }),
        };
        let segment = segment.map_err(io_error(&path))?;
        if options.fsync {
            segment
                .sync_all()
                .and_then(|()| sync_dir(dir))
                .map_err(io_error(dir))?;
            // The directory itself may be new, so its entry in the parent is synced, too.
            dir.parent()
                .map_or(Ok(()), sync_dir)
                .map_err(io_error(dir))?;
        }
        remove_before(dir, first).map_err(io_error(dir))?;
        for path in files.unfinished {
            fs::remove_file(&path).map_err(io_error(&path))?;
        }
        let log = Self {
            dir: dir.clone(),
            _lock: lock,
            fsync: options.fsync,
            segment,
            number: last,
            size: size.unwrap_or(0).max(HEADER.len() as u64),
            grown,
            limit: MIN_SNAPSHOT_SIZE.max(2 * live),
            min_limit: MIN_SNAPSHOT_SIZE,
            broken: false,
            buffer: Vec::new(),
            snapshot: None,
        };
        Ok((log, restored))
    }

    /// Appends the write of an object. `content` is `None` if it was removed.
    pub(crate) fn append(
        &mut self,
        table: &str,
        key: &Key,
        revision: u64,
        content: Option<&Content>,
    ) -> io::Result<()> {
        let kind = if content.is_some() {
            Kind::Put
        } else {
            Kind::Remove
        };
        let tail = content.map_or(&[][..], Content::tail);
        self.push(&Record {
            kind,
            revision,
            table,
            key: key.as_str(),
            tail,
        })
    }

    /// Appends the removal of a table.
    pub(crate) fn drop_table(&mut self, table: &str, revision: u64) -> io::Result<()> {
        self.push(&Record {
            kind: Kind::Drop,
            revision,
            table,
            key: "",
            tail: &[],
        })
    }

    /// Appends a record.
    ///
    /// On error the log is unchanged, or rejects all further records.
    fn push(&mut self, record: &Record<'_>) -> io::Result<()> {
        if self.broken {
            let dir = self.dir.display();
            return Err(io::Error::other(format!(
                "cannot write to {dir}: an earlier write failed and could not be undone; repair the disk and restart the server"
            )));
        }
        self.buffer.clear();
        record.encode(&mut self.buffer);
        let written = self.segment.write_all(&self.buffer);
        // After a failed sync the content of the disk is unknown, and another sync would not show
        // it.
        let sync_failed = written.is_ok();
        if let Err(error) = written.and_then(|()| {
            if self.fsync {
                self.segment.sync_data()
            } else {
                Ok(())
            }
        }) {
            self.broken = self.segment.set_len(self.size).is_err() || sync_failed;
            return Err(error);
        }
        self.size += self.buffer.len() as u64;
        self.grown += self.buffer.len() as u64;
        Ok(())
    }

    /// Returns whether the log is large enough for a snapshot, and none is in progress.
    pub(crate) fn wants_snapshot(&self) -> bool {
        self.grown > self.limit
            && self
                .snapshot
                .as_ref()
                .is_none_or(|snapshot| snapshot.thread.is_finished())
    }

    /// Starts a snapshot of all objects as of the last record.
    ///
    /// A failure is logged and loses nothing, since the older files stay.
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
        self.number = number;
        self.size = HEADER.len() as u64;
        self.grown = 0;
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
        self.limit = self.min_limit.max(2 * live);
        let stop = Arc::new(AtomicBool::new(false));
        let dir = self.dir.clone();
        let stopped = stop.clone();
        let thread = thread::Builder::new()
            .name("snapshot".to_owned())
            .spawn(move || {
                let unfinished = dir.join(format!("{number}.snapshot.tmp"));
                if let Err(error) =
                    write_snapshot(&unfinished, &dir, number, revision, &objects, &stopped)
                {
                    warn(&dir, &error);
                    // Frees the space if the disk is full.
                    _ = fs::remove_file(unfinished);
                }
            })?;
        self.snapshot = Some(Snapshot { stop, thread });
        Ok(())
    }
}

// Stops the snapshot first, so that nothing writes to the directory after the lock is released.
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
    let end = Record {
        kind: Kind::End,
        revision,
        table: "",
        key: "",
        tail: &[],
    };
    for record in objects.chain([end]) {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        buffer.clear();
        record.encode(&mut buffer);
        out.write_all(&buffer)?;
    }
    // Synced even without `fsync`, because the files that it replaces are removed.
    out.into_inner()?.sync_all()?;
    fs::rename(unfinished, snapshot_path(dir, number))?;
    sync_dir(dir)?;
    remove_before(dir, number)
}

fn warn(dir: &Path, error: &io::Error) {
    eprintln!(
        "steersman-apiserver: cannot write a snapshot to {}: {error}; no data is lost, but the log grows",
        dir.display()
    );
}
