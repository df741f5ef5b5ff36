//! What is on disk, read back.

use super::{
    error::{Error, at},
    record::{Kind, Reader, Record},
};
use crate::{
    object::{Content, Key, Object},
    store::TableName,
};
use std::{
    collections::HashMap,
    fs::File,
    path::{Path, PathBuf},
};

/// What the records read so far amount to.
#[derive(Default)]
pub(super) struct Replay {
    pub(super) revision: u64,
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
    pub(super) fn snapshot(&mut self, path: PathBuf) -> Result<u64, Error> {
        let mut reader = reader(&path)?;
        let mut whole = false;
        while let Some(record) = reader.next().map_err(at(&path))? {
            whole = record.kind == Kind::End;
            self.apply(&record);
        }
        if whole && reader.rest() == 0 { Ok(reader.good()) } else { Err(Error::DamagedSnapshot(path)) }
    }

    /// Read a segment; tells how much of it is good, and how much is not.
    pub(super) fn segment(&mut self, path: &Path, last: bool) -> Result<(u64, u64), Error> {
        let mut reader = reader(path)?;
        while let Some(record) = reader.next().map_err(at(path))? {
            self.apply(&record);
        }
        if reader.rest() > 0 && (!last || reader.goes_on().map_err(at(path))?) {
            return Err(Error::Damaged(path.to_owned(), reader.good()));
        }
        Ok((reader.good(), reader.rest()))
    }

    pub(super) fn objects(self) -> Result<Vec<(TableName, Object)>, Error> {
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
