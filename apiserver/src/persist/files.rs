//! The files of a directory: their names, their beginning and their end.

use super::{
    error::{Error, at},
    record::HEADER,
};
use std::{
    collections::BTreeSet,
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// The files of a directory, by number.
#[derive(Default)]
pub(super) struct Files {
    pub(super) snapshots: BTreeSet<u64>,
    pub(super) segments: BTreeSet<u64>,
    /// Nothing in them counts.
    pub(super) unfinished: Vec<PathBuf>,
}

impl Files {
    pub(super) fn list(dir: &Path) -> io::Result<Self> {
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

pub(super) fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number}.log"))
}

pub(super) fn snapshot_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number}.snapshot"))
}

pub(super) fn create_segment(dir: &Path, number: u64, fsync: bool) -> io::Result<File> {
    let unfinished = dir.join(format!("{number}.log.tmp"));
    // One that a failure left, or the end of a process.
    _ = fs::remove_file(&unfinished);
    let mut segment = private().append(true).create_new(true).open(&unfinished)?;
    segment.write_all(HEADER)?;
    if fsync {
        segment.sync_all()?;
    }
    fs::rename(&unfinished, segment_path(dir, number))?;
    Ok(segment)
}

/// Remove what snapshot `number` makes needless.
pub(super) fn remove_before(dir: &Path, number: u64) -> io::Result<()> {
    let Files { snapshots, segments, .. } = Files::list(dir)?;
    for number in snapshots.range(..number) {
        fs::remove_file(snapshot_path(dir, *number))?;
    }
    for number in segments.range(..number) {
        fs::remove_file(segment_path(dir, *number))?;
    }
    Ok(())
}

pub(super) fn create_snapshot(unfinished: &Path) -> io::Result<File> {
    private().create(true).truncate(true).open(unfinished)
}

/// What is stored may be secret: nobody else may read it, not even in a directory that was there before and lets others in.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// A directory that is made here lets nobody else in.
pub(super) fn make_dir(dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// The right to use a directory.
pub(super) struct Lock(File);

/// Not left to the end of the file: a process that is being started may have it for a moment longer.
impl Drop for Lock {
    fn drop(&mut self) {
        _ = self.0.unlock();
    }
}

pub(super) fn lock(dir: &Path) -> Result<Lock, Error> {
    let path = dir.join("lock");
    let file = private().create(true).truncate(false).open(&path).map_err(at(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::WouldBlock) => Err(Error::Locked(dir.to_owned())),
        Err(TryLockError::Error(error)) => Err(Error::Io(path, error)),
    }
}

/// Names are on the disk once the directory is.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
