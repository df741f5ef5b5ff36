//! Restores the state from the files of a data directory.

use super::{
    error::{Error, io_error},
    record::{Kind, Record, RecordReader},
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

/// State after the records read so far.
#[derive(Default)]
pub(super) struct Replay {
    pub(super) revision: u64,
    tables: HashMap<TableName, HashMap<Key, Stored>>,
}

/// An encoded object. It is decoded only if it still exists at the end.
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
                let table = table.expect("the table was inserted above");
                let stored = Stored {
                    revision: record.revision,
                    tail: record.tail.into(),
                };
                table.insert(Key::from_text(record.key), stored);
            }
            Kind::Remove => {
                self.tables
                    .get_mut(record.table)
                    .and_then(|table| table.remove(record.key));
            }
            Kind::Drop => {
                self.tables.remove(record.table);
            }
            Kind::End => {}
        }
    }

    /// Reads a snapshot and returns its size.
    pub(super) fn snapshot(&mut self, path: PathBuf) -> Result<u64, Error> {
        let mut reader = reader(&path)?;
        let mut complete = false;
        while let Some(record) = reader.next().map_err(io_error(&path))? {
            complete = record.kind == Kind::End;
            self.apply(&record);
        }
        if complete && reader.rest() == 0 {
            Ok(reader.valid())
        } else {
            Err(Error::DamagedSnapshot(path))
        }
    }

    /// Reads a segment and returns the sizes of its valid and its invalid part.
    pub(super) fn segment(&mut self, path: &Path, last: bool) -> Result<(u64, u64), Error> {
        let mut reader = reader(path)?;
        while let Some(record) = reader.next().map_err(io_error(path))? {
            self.apply(&record);
        }
        if reader.rest() > 0 && (!last || reader.has_later_record().map_err(io_error(path))?) {
            return Err(Error::Damaged(path.to_owned(), reader.valid()));
        }
        Ok((reader.valid(), reader.rest()))
    }

    pub(super) fn objects(self) -> Result<Vec<(TableName, Object)>, Error> {
        let objects = self.tables.into_iter().flat_map(|(name, table)| {
            table.into_iter().map(
                move |(key, Stored { revision, tail })| match Content::from_tail(&tail) {
                    Ok(content) => Ok((name.clone(), Object::new(key, revision, content))),
                    Err(error) => Err(Error::Object(name.clone(), key, error)),
                },
            )
        });
        objects.collect()
    }
}

fn reader(path: &Path) -> Result<RecordReader, Error> {
    let reader = File::open(path)
        .and_then(RecordReader::new)
        .map_err(io_error(path))?;
    reader.ok_or_else(|| Error::Foreign(path.to_owned()))
}
