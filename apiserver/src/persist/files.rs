//! Files of the data directory: names, creation, permissions and the lock.

use super::{
    error::{Error, io_error},
    record::HEADER,
};
use std::{
    collections::BTreeSet,
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Files of the directory by number.
#[derive(Default)]
pub(super) struct Files {
    pub(super) snapshots: BTreeSet<u64>,
    pub(super) segments: BTreeSet<u64>,
    /// Incomplete files, which are ignored.
    pub(super) unfinished: Vec<PathBuf>,
}

impl Files {
    pub(super) fn list(dir: &Path) -> io::Result<Self> {
        let mut files = Self::default();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some((number, kind)) = name.to_str().and_then(|name| name.split_once('.')) else {
                continue;
            };
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
    // A failure or a killed process may have left one.
    _ = fs::remove_file(&unfinished);
    let mut segment = private_file()
        .append(true)
        .create_new(true)
        .open(&unfinished)?;
    segment.write_all(HEADER)?;
    if fsync {
        segment.sync_all()?;
    }
    fs::rename(&unfinished, segment_path(dir, number))?;
    Ok(segment)
}

/// Removes the files that snapshot `number` replaces.
pub(super) fn remove_before(dir: &Path, number: u64) -> io::Result<()> {
    let Files {
        snapshots,
        segments,
        ..
    } = Files::list(dir)?;
    for number in snapshots.range(..number) {
        fs::remove_file(snapshot_path(dir, *number))?;
    }
    for number in segments.range(..number) {
        fs::remove_file(segment_path(dir, *number))?;
    }
    Ok(())
}

pub(super) fn create_snapshot(unfinished: &Path) -> io::Result<File> {
    private_file().create(true).truncate(true).open(unfinished)
}

/// Returns options that create files readable only by their owner, whatever the directory, because
/// objects may be secret.
fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Creates the directory, accessible only by its owner, unless it exists.
pub(super) fn create_dir(dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// Exclusive lock of the directory.
pub(super) struct Lock(File);

// Unlocks explicitly, because a child process that is being started may still have the file open.
impl Drop for Lock {
    fn drop(&mut self) {
        _ = self.0.unlock();
    }
}

pub(super) fn lock(dir: &Path) -> Result<Lock, Error> {
    let path = dir.join("lock");
    let file = private_file()
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(io_error(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::WouldBlock) => Err(Error::Locked(dir.to_owned())),
        Err(TryLockError::Error(error)) => Err(Error::Io(path, error)),
    }
}

/// Syncs the directory, so that the names of its files are on disk.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
