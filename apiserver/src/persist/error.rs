//! Why a directory cannot be used, and what to do about it.

use crate::{object::Key, store::TableName};
use std::{
    fmt, io,
    path::{Path, PathBuf},
};

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

impl std::error::Error for Error {}

pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    |error| Error::Io(path.to_owned(), error)
}
