//! Error of opening a data directory.

use crate::{object::Key, store::TableName};
use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// Error of opening a data directory.
#[derive(Debug)]
pub(crate) enum Error {
    Locked(PathBuf),
    Io(PathBuf, io::Error),
    /// The file was not written by this version.
    Foreign(PathBuf),
    /// The segment is invalid at this offset, and valid records follow.
    Damaged(PathBuf, u64),
    /// The snapshot is incomplete or invalid.
    DamagedSnapshot(PathBuf),
    Missing(PathBuf),
    /// The content of the object cannot be decoded by this version.
    Object(TableName, Key, serde_json::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked(dir) => {
                write!(
                    f,
                    "cannot open {}: it is in use; stop the process that uses it, or choose another --data-dir",
                    dir.display()
                )
            }
            Self::Io(path, error) => write!(
                f,
                "cannot open {}: {error}; --data-dir has to be a directory that this process may read and write",
                path.display()
            ),
            Self::Foreign(path) => write!(
                f,
                "cannot open {}: another version wrote it; use that version, or choose another --data-dir",
                path.display()
            ),
            Self::Damaged(path, offset) => write!(
                f,
                "cannot open {}: it is damaged at byte {offset}, and valid records follow; restore a copy of the \
                 directory, or, to lose all writes from there on, truncate the file to {offset} bytes and remove \
                 the .log files with higher numbers",
                path.display()
            ),
            Self::DamagedSnapshot(path) => write!(
                f,
                "cannot open {}: it is damaged; restore a copy of the directory, or choose another --data-dir to start empty",
                path.display()
            ),
            Self::Missing(path) => write!(
                f,
                "cannot open {}: the file is missing, and later files depend on it; restore it, or choose \
                 another --data-dir to start empty",
                path.display()
            ),
            Self::Object(table, key, error) => write!(
                f,
                "cannot decode {key:?} in {table}: {error}; use the version that wrote it, or choose another --data-dir"
            ),
        }
    }
}

impl std::error::Error for Error {}

pub(super) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> Error {
    |error| Error::Io(path.to_owned(), error)
}
