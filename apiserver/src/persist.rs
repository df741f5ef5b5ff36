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

mod record;
#[cfg(test)]
mod tests;

use crate::{
    object::{Content, Key, Object},
    store::TableName,
};
use record::{HEADER, Kind, Reader, Record};
use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
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

/// Why a directory cannot be used.
#[derive(Debug)]
pub(crate) enum Error {
    Locked(PathBuf),
    Io(PathBuf, io::Error),
    /// The file is not a log, or one of another version.
    Foreign(PathBuf),
    /// The segment is bad from this offset on, and it is not just its end.
    Damaged(PathBuf, u64),
    /// The snapshot is not whole.
    DamagedSnapshot(PathBuf),
    Missing(PathBuf),
    /// The object's content is not what this version stores.
    Object(TableName, Key, serde_json::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked(dir) => {
                write!(f, "{} is in use: stop the process that uses it, or give another --data-dir", dir.display())
            }
            Self::Io(path, error) => write!(
                f,
                "{}: {error}; --data-dir has to be a directory that this process may read and write",
                path.display()
            ),
            Self::Foreign(path) => write!(
                f,
                "{} was not written by this version: use the version that did, or give another --data-dir",
                path.display()
            ),
            Self::Damaged(path, offset) => write!(
                f,
                "{} is damaged at byte {offset}, and more was written after that: put back a copy of the directory, or, to \
                 lose all writes from there on, cut the file to {offset} bytes and remove the .log files with higher numbers",
                path.display()
            ),
            Self::DamagedSnapshot(path) => write!(
                f,
                "{} is damaged: put back a copy of the directory, or give another --data-dir to begin anew",
                path.display()
            ),
            Self::Missing(path) => write!(
                f,
                "{} is missing, and what follows makes no sense without it: put it back, or give another --data-dir to begin \
                 anew",
                path.display()
            ),
            Self::Object(table, key, error) => write!(
                f,
                "{key:?} in {table} cannot be read ({error}): use the version that wrote it, or give another --data-dir"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(_, error) => Some(error),
            Self::Object(_, _, error) => Some(error),
            _ => None,
        }
    }
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
    let mut out = BufWriter::with_capacity(1 << 18, File::create(unfinished)?);
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

/// What the records read so far amount to.
#[derive(Default)]
struct Replay {
    revision: u64,
    tables: HashMap<TableName, HashMap<Key, Stored>>,
}

/// An object that may be gone again before it is worth decoding.
struct Stored {
    revision: u64,
    tail: Box<[u8]>,
}

impl Replay {
    fn apply(&mut self, record: &Record<'_>) {
        self.revision = self.revision.max(record.revision);
        match record.kind {
            Kind::Put => {
                if !self.tables.contains_key(record.table) {
                    self.tables.insert(record.table.into(), HashMap::new());
                }
                let table = self.tables.get_mut(record.table);
                let table = table.expect("it was put there if it was not");
                let stored = Stored { revision: record.revision, tail: record.tail.into() };
                table.insert(Key::from_text(record.key), stored);
            }
            Kind::Remove => {
                self.tables.get_mut(record.table).and_then(|table| table.remove(record.key));
            }
            Kind::Drop => {
                self.tables.remove(record.table);
            }
            Kind::End => {}
        }
    }

    /// Read a snapshot; tells its size.
    fn snapshot(&mut self, path: PathBuf) -> Result<u64, Error> {
        let mut reader = reader(&path)?;
        let mut whole = false;
        while let Some(record) = reader.next().map_err(at(&path))? {
            whole = record.kind == Kind::End;
            self.apply(&record);
        }
        if whole && reader.rest() == 0 { Ok(reader.good()) } else { Err(Error::DamagedSnapshot(path)) }
    }

    /// Read a segment; tells how much of it is good, and how much is not.
    fn segment(&mut self, path: &Path, last: bool) -> Result<(u64, u64), Error> {
        let mut reader = reader(path)?;
        while let Some(record) = reader.next().map_err(at(path))? {
            self.apply(&record);
        }
        if reader.rest() > 0 && (!last || reader.goes_on().map_err(at(path))?) {
            return Err(Error::Damaged(path.to_owned(), reader.good()));
        }
        Ok((reader.good(), reader.rest()))
    }

    fn objects(self) -> Result<Vec<(TableName, Object)>, Error> {
        let objects = self.tables.into_iter().flat_map(|(name, table)| {
            table.into_iter().map(move |(key, Stored { revision, tail })| match Content::from_tail(&tail) {
                Ok(content) => Ok((name.clone(), Object::new(key, revision, content))),
                Err(error) => Err(Error::Object(name.clone(), key, error)),
            })
        });
        objects.collect()
    }
}

fn reader(path: &Path) -> Result<Reader, Error> {
    let reader = File::open(path).and_then(Reader::new).map_err(at(path))?;
    reader.ok_or_else(|| Error::Foreign(path.to_owned()))
}

/// The files of a directory, by number.
#[derive(Default)]
struct Files {
    snapshots: BTreeSet<u64>,
    segments: BTreeSet<u64>,
    /// Nothing in them counts.
    unfinished: Vec<PathBuf>,
}

impl Files {
    fn list(dir: &Path) -> io::Result<Self> {
        let mut files = Self::default();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some((number, kind)) = name.to_str().and_then(|name| name.split_once('.')) else { continue };
            let Ok(number) = number.parse() else { continue };
            match kind {
                "snapshot" => _ = files.snapshots.insert(number),
                "log" => _ = files.segments.insert(number),
                "snapshot.tmp" | "log.tmp" => files.unfinished.push(entry.path()),
                _ => {}
            }
        }
        Ok(files)
    }
}

fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number}.log"))
}

fn snapshot_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number}.snapshot"))
}

fn create_segment(dir: &Path, number: u64, fsync: bool) -> io::Result<File> {
    let unfinished = dir.join(format!("{number}.log.tmp"));
    // One that a failure left, or the end of a process.
    _ = fs::remove_file(&unfinished);
    let mut segment = OpenOptions::new().append(true).create_new(true).open(&unfinished)?;
    segment.write_all(HEADER)?;
    if fsync {
        segment.sync_all()?;
    }
    fs::rename(&unfinished, segment_path(dir, number))?;
    Ok(segment)
}

/// Remove what snapshot `number` makes needless.
fn remove_before(dir: &Path, number: u64) -> io::Result<()> {
    let Files { snapshots, segments, .. } = Files::list(dir)?;
    for number in snapshots.range(..number) {
        fs::remove_file(snapshot_path(dir, *number))?;
    }
    for number in segments.range(..number) {
        fs::remove_file(segment_path(dir, *number))?;
    }
    Ok(())
}

/// What is stored may be secret: nobody else is let in.
fn make_dir(dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// The right to use a directory.
struct Lock(File);

/// Not left to the end of the file: a process that is being started may have it for a moment longer.
impl Drop for Lock {
    fn drop(&mut self) {
        _ = self.0.unlock();
    }
}

fn lock(dir: &Path) -> Result<Lock, Error> {
    let path = dir.join("lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(at(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::WouldBlock) => Err(Error::Locked(dir.to_owned())),
        Err(TryLockError::Error(error)) => Err(Error::Io(path, error)),
    }
}

/// Names are on the disk once the directory is.
fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    |error| Error::Io(path.to_owned(), error)
}
