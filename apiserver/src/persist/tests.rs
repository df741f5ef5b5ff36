//! Compares the restored state of directories, as one line of text per object, with the writes.

mod processes;

use super::*;
use crate::store::{HistoryLimits, Store, WriteError};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    sync::atomic::AtomicU64,
    time::{Duration, Instant},
};

const LIMITS: HistoryLimits = HistoryLimits {
    changes: 1000,
    bytes: usize::MAX,
};

/// Path of a directory that does not exist yet and is removed on drop.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(env::temp_dir().join(format!("steersman-persist-{}-{number}", std::process::id())))
    }

    fn copy(&self) -> Self {
        let copy = Self::new();
        fs::create_dir(&copy.0).unwrap();
        for name in self.names() {
            fs::copy(self.0.join(&name), copy.0.join(&name)).unwrap();
        }
        copy
    }

    /// Returns the names of all files except the lock.
    fn names(&self) -> BTreeSet<String> {
        let names = fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != "lock").collect()
    }

    /// Returns a copy in which one file has other content.
    fn with(&self, name: &str, bytes: &[u8]) -> Self {
        let copy = self.copy();
        fs::write(copy.0.join(name), bytes).unwrap();
        copy
    }

    fn without(&self, name: &str) -> Self {
        let copy = self.copy();
        fs::remove_file(copy.0.join(name)).unwrap();
        copy
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).unwrap()
    }

    fn open(&self) -> Result<(Log, Restored), Error> {
        Log::open(&self.0, Options::default())
    }

    /// Opens the directory and returns a store that takes a snapshot when the log is larger than
    /// `min_limit`.
    fn store(&self, min_limit: u64, fsync: bool) -> Store {
        let (mut log, restored) = Log::open(&self.0, Options { fsync }).unwrap();
        log.min_limit = min_limit;
        log.limit = min_limit;
        let store = Store::new(LIMITS, |_, _, _| true);
        store.restore(restored.revision, restored.objects.into_iter());
        store.set_log(log);
        for table in TABLES {
            store.create_table(&table.into());
        }
        store
    }

    fn restore(&self) -> Dump {
        dump(&self.open().unwrap().1)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

const TABLES: [&str; 3] = ["pods", "widgets.example.com", "leases.coordination.k8s.io"];

/// Revision and all objects.
type Dump = (u64, BTreeSet<String>);

fn line(table: &str, object: &Object) -> String {
    let tail = str::from_utf8(object.content().tail()).unwrap();
    format!("{table} {:?} {} {tail}", object.key, object.revision)
}

fn dump(restored: &Restored) -> Dump {
    (
        restored.revision,
        restored
            .objects
            .iter()
            .map(|(table, object)| line(table, object))
            .collect(),
    )
}

fn dump_store(store: &Store) -> Dump {
    let tables = TABLES.iter().flat_map(|table| {
        let scan = store
            .scan(table, crate::store::Range::default(), None)
            .unwrap();
        scan.objects
            .iter()
            .map(|object| line(table, object))
            .collect::<Vec<_>>()
    });
    (store.revision(), tables.collect())
}

fn content(value: &str) -> Content {
    Content::encode(
        json!({"metadata": {"name": "x", "labels": {"a": "b"}}, "value": value})
            .as_object()
            .unwrap(),
    )
}

/// A change of the store.
#[derive(Clone, Debug)]
enum Op {
    Put(usize, u8, String),
    Remove(usize, u8),
    Drop(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..3usize, 0..6u8, "[a-z\u{e9}\"]{0,40}").prop_map(|(table, key, value)| Op::Put(table, key, value)),
        2 => (0..3usize, 0..6u8).prop_map(|(table, key)| Op::Remove(table, key)),
        1 => (0..3usize).prop_map(Op::Drop),
    ]
}

fn key(number: u8) -> Key {
    Key::new("ns", &format!("o{number}"))
}

/// Applies `op`, and returns whether it changed anything.
fn apply(store: &Store, op: &Op) -> bool {
    let write = |table: usize, name: u8, content| {
        let seen = store
            .get(TABLES[table], key(name).as_str())
            .map(|object| object.revision);
        store.write(TABLES[table], &key(name), seen, content)
    };
    match op {
        Op::Put(table, name, value) => write(*table, *name, Some(content(value)))
            .map(|_| true)
            .unwrap(),
        Op::Remove(table, name) => match write(*table, *name, None) {
            Ok(_) => true,
            Err(WriteError::Conflict) => false,
            Err(error) => panic!("{error:?}"),
        },
        Op::Drop(table) => {
            store.drop_table(TABLES[*table]).unwrap();
            store.create_table(&TABLES[*table].into());
            true
        }
    }
}

/// Writes one segment. Returns the directory and the state after each write.
fn written(ops: &[Op]) -> (Dir, Vec<Dump>) {
    let dir = Dir::new();
    let store = dir.store(u64::MAX, false);
    let mut states = vec![(0, BTreeSet::new())];
    for op in ops {
        if apply(&store, op) {
            states.push(dump_store(&store));
        }
    }
    (dir, states)
}

fn some_ops() -> Vec<Op> {
    vec![
        Op::Put(0, 1, "first".to_owned()),
        Op::Put(1, 2, "second".to_owned()),
        Op::Remove(0, 1),
        Op::Put(0, 3, "third".to_owned()),
        Op::Put(1, 2, "fourth".to_owned()),
    ]
}

/// Returns the end of each record.
fn record_ends(bytes: &[u8]) -> Vec<usize> {
    let mut ends = vec![HEADER.len()];
    while let Some(size) = bytes[ends[ends.len() - 1]..].first_chunk::<4>() {
        ends.push(ends[ends.len() - 1] + 8 + u32::from_le_bytes(*size) as usize);
    }
    ends
}

#[test]
fn a_reopened_directory_restores_the_objects_and_the_revision() {
    for fsync in [false, true] {
        let dir = Dir::new();
        assert_eq!(dir.restore(), (0, BTreeSet::new()));
        let store = dir.store(u64::MAX, fsync);
        for op in some_ops() {
            apply(&store, &op);
        }
        // The revision of a removal is only in the log.
        apply(&store, &Op::Remove(0, 3));
        let expected = dump_store(&store);
        assert_eq!(expected.0, 7);
        drop(store);
        let store = dir.store(u64::MAX, fsync);
        assert_eq!(dump_store(&store), expected);
        let change = store
            .write("pods", &key(1), None, Some(content("again")))
            .unwrap();
        assert_eq!(change.revision, 8);
        assert_eq!(store.get("pods", "ns/o1").unwrap().label("a"), Some("b"));
    }
}

#[test]
fn a_dropped_table_is_not_restored() {
    let dir = Dir::new();
    let store = dir.store(u64::MAX, false);
    apply(&store, &Op::Put(0, 1, "old".to_owned()));
    apply(&store, &Op::Put(1, 1, "stays".to_owned()));
    store.drop_table("pods").unwrap();
    let expected = dump_store(&store);
    drop(store);
    assert_eq!(dir.restore(), expected);
}

#[test]
fn a_created_directory_is_private_to_its_owner() {
    use std::os::unix::fs::PermissionsExt;
    let dir = Dir::new();
    drop(dir.open().unwrap());
    assert_eq!(
        fs::metadata(&dir.0).unwrap().permissions().mode() & 0o777,
        0o700
    );
}

#[test]
fn files_are_private_to_their_owner_even_in_a_readable_directory() {
    use std::os::unix::fs::PermissionsExt;
    let dir = Dir::new();
    fs::create_dir(&dir.0).unwrap();
    fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o755)).unwrap();
    let (mut log, _) = dir.open().unwrap();
    log.snapshot(1, [].into_iter());
    await_snapshot(&dir, 2);
    for name in dir.names().into_iter().chain(["lock".to_owned()]) {
        assert_eq!(
            fs::metadata(dir.0.join(&name))
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o600,
            "{name}"
        );
    }
}

#[test]
fn a_directory_can_be_opened_only_once_at_a_time() {
    let dir = Dir::new();
    let first = dir.open().unwrap();
    let error = dir.open().err().unwrap();
    assert!(matches!(error, Error::Locked(_)));
    assert!(
        error.to_string().contains("choose another --data-dir"),
        "{error}"
    );
    drop(first);
    dir.open().unwrap();
}

#[test]
fn opening_a_file_as_the_directory_fails() {
    let dir = Dir::new();
    fs::create_dir(&dir.0).unwrap();
    let file = dir.0.join("file");
    fs::write(&file, "").unwrap();
    for path in [file.clone(), file.join("below")] {
        let error = Log::open(&path, Options::default()).err().unwrap();
        assert!(matches!(error, Error::Io(..)));
        assert!(
            error
                .to_string()
                .contains("--data-dir has to be a directory"),
            "{error}"
        );
    }
}

#[test]
fn a_file_of_another_version_is_rejected_and_not_changed() {
    let (dir, _) = written(&some_ops());
    let mut bytes = dir.read("1.log");
    bytes[14] = b'2';
    let other = dir.with("1.log", &bytes);
    let error = other.open().err().unwrap();
    assert!(matches!(&error, Error::Foreign(path) if path.ends_with("1.log")));
    assert!(error.to_string().contains("use that version"), "{error}");
    assert_eq!(other.read("1.log"), bytes);
}

#[test]
fn a_flipped_bit_in_the_last_record_drops_that_record() {
    let (dir, states) = written(&some_ops());
    let good = dir.read("1.log");
    let ends = record_ends(&good);
    let last = ends[ends.len() - 2];
    for at in last..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        let damaged = dir.with("1.log", &bytes);
        let (_log, restored) = damaged.open().unwrap();
        assert_eq!(dump(&restored), states[states.len() - 2], "byte {at}");
        assert!(restored.recovery_note.unwrap().contains("were dropped"));
        assert_eq!(damaged.read("1.log").len(), last);
    }
}

#[test]
fn a_flipped_bit_before_the_last_record_is_an_error_with_its_offset_and_the_fix() {
    let (dir, states) = written(&some_ops());
    let good = dir.read("1.log");
    let ends = record_ends(&good);
    for at in ends[0]..ends[ends.len() - 2] {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        let damaged = dir.with("1.log", &bytes);
        let error = damaged.open().err().unwrap();
        let start = *ends.iter().rfind(|end| **end <= at).unwrap();
        assert!(
            matches!(&error, Error::Damaged(path, offset) if path.ends_with("1.log") && *offset == start as u64)
        );
        assert!(
            error
                .to_string()
                .contains(&format!("truncate the file to {start} bytes")),
            "{error}"
        );
        assert_eq!(damaged.read("1.log"), bytes, "the file was changed");
        // The fix that the error suggests works.
        bytes.truncate(start);
        let cut = ends.iter().position(|end| *end == start).unwrap();
        assert_eq!(dir.with("1.log", &bytes).restore(), states[cut]);
    }
}

#[test]
fn an_incomplete_end_is_an_error_in_all_but_the_last_segment() {
    let (dir, states) = written(&some_ops());
    let first = dir.read("1.log");
    let both = dir.with("2.log", HEADER);
    assert_eq!(both.copy().restore(), states[states.len() - 1]);
    let error = both
        .with("1.log", &first[..first.len() - 1])
        .open()
        .err()
        .unwrap();
    assert!(matches!(error, Error::Damaged(path, _) if path.ends_with("1.log")));
    let error = both.without("1.log").open().err().unwrap();
    assert!(matches!(&error, Error::Missing(path) if path.ends_with("1.log")));
    assert!(error.to_string().contains("restore it"), "{error}");
}

steersman_testkit::properties! {

    cases = 10;

    #[test]
    fn every_prefix_of_a_log_restores_to_a_prefix_of_the_writes(ops in prop::collection::vec(op(), 1..8), step in 1..12usize) {
        let (dir, states) = written(&ops);
        let bytes = dir.read("1.log");
        let ends = record_ends(&bytes);
        prop_assert_eq!(ends.len(), states.len());
        for size in (0..=bytes.len()).rev().step_by(step) {
            let cut = dir.with("1.log", &bytes[..size]);
            let (log, restored) = cut.open().unwrap();
            let whole = ends.iter().filter(|end| **end <= size).count().max(1);
            prop_assert_eq!(&dump(&restored), &states[whole - 1], "{} of {} bytes", size, bytes.len());
            prop_assert_eq!(restored.recovery_note.is_some(), size != 0 && !ends.contains(&size));
            // Writing continues from there.
            drop(log);
            let store = cut.store(u64::MAX, false);
            apply(&store, &Op::Put(0, 9, "next".to_owned()));
            let expected = dump_store(&store);
            drop(store);
            prop_assert_eq!(cut.restore(), expected);
        }
    }

    #[test]
    fn a_log_with_snapshots_restores_to_the_same_as_one_without(ops in prop::collection::vec(op(), 1..60), restarts in prop::collection::vec(any::<bool>(), 60)) {
        let dir = Dir::new();
        let mut store = dir.store(200, false);
        for (op, restart) in ops.iter().zip(restarts) {
            apply(&store, op);
            if restart {
                let expected = dump_store(&store);
                drop(store);
                store = dir.store(200, false);
                prop_assert_eq!(dump_store(&store), (expected.0, expected.1));
            }
        }
    }
}

/// Waits until a snapshot exists and the files that it replaces are removed.
fn await_snapshot(dir: &Dir, number: u64) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let expected = BTreeSet::from([format!("{number}.log"), format!("{number}.snapshot")]);
    while dir.names() != expected {
        assert!(Instant::now() < deadline, "{:?}", dir.names());
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_crash_at_any_step_of_a_snapshot_loses_nothing() {
    let dir = Dir::new();
    // A first snapshot, so that there is an older one to replace.
    let store = dir.store(0, false);
    apply(&store, &Op::Put(0, 7, "oldest".to_owned()));
    await_snapshot(&dir, 2);
    drop(store);
    let store = dir.store(u64::MAX, false);
    for op in some_ops() {
        apply(&store, &op);
    }
    apply(&store, &Op::Drop(1));
    apply(&store, &Op::Put(2, 2, "fifth".to_owned()));
    let before = dump_store(&store);
    drop(store);
    let old = dir.copy();
    // The write that starts the snapshot is the last one of the old segment.
    let store = dir.store(0, false);
    apply(&store, &Op::Remove(0, 7));
    let expected = dump_store(&store);
    await_snapshot(&dir, 3);
    drop(store);

    assert_eq!(old.restore(), before);
    // The old segment as it was when the new one was created.
    let (mut log, _) = old.open().unwrap();
    log.append("pods", &key(7), expected.0, None).unwrap();
    drop(log);
    let snapshot = dir.read("3.snapshot");
    let step = |name: &str, state: &Dir| {
        assert_eq!(state.restore(), expected, "{name}");
        assert!(
            state.names().iter().all(|name| !name.ends_with("tmp")),
            "{name}: {:?}",
            state.names()
        );
        // Opening may have changed files, so open once more.
        assert_eq!(state.restore(), expected, "{name}, again");
    };
    step("before the snapshot", &old.copy());
    for size in 0..=HEADER.len() {
        step(
            "segment partly written",
            &old.with("3.log.tmp", &HEADER[..size]),
        );
    }
    let rotated = old.with("3.log", HEADER);
    step("segment written", &rotated.copy());
    for size in 0..=snapshot.len() {
        step(
            "snapshot partly written",
            &rotated.with("3.snapshot.tmp", &snapshot[..size]),
        );
    }
    let renamed = rotated.with("3.snapshot", &snapshot);
    step("snapshot written", &renamed.copy());
    step("old snapshot removed", &renamed.without("2.snapshot"));
    step("old segment removed", &renamed.without("2.log"));
    step("complete", &renamed.without("2.log").without("2.snapshot"));

    for size in 0..snapshot.len() {
        let error = renamed
            .with("3.snapshot", &snapshot[..size])
            .open()
            .err()
            .unwrap();
        assert!(matches!(&error, Error::DamagedSnapshot(path) if path.ends_with("3.snapshot")));
        assert!(error.to_string().contains("restore a copy"), "{error}");
    }
}

#[test]
fn writes_during_a_snapshot_are_not_lost() {
    let dir = Dir::new();
    let store = dir.store(2000, false);
    for number in 0..400u32 {
        let table = number as usize % 3;
        apply(
            &store,
            &Op::Put(table, (number % 50) as u8, format!("value {number}")),
        );
        apply(&store, &Op::Remove(table, (number % 7) as u8));
    }
    let expected = dump_store(&store);
    // Dropping the store stops a snapshot in progress.
    let deadline = Instant::now() + Duration::from_mins(1);
    while !dir.names().iter().any(|name| name.ends_with(".snapshot")) {
        assert!(Instant::now() < deadline, "{:?}", dir.names());
        thread::sleep(Duration::from_millis(1));
    }
    drop(store);
    assert_eq!(dir.restore(), expected);
}

#[test]
fn a_failed_write_changes_nothing_and_if_not_undone_blocks_further_writes() {
    let dir = Dir::new();
    let (mut log, _) = dir.open().unwrap();
    log.append("pods", &key(1), 2, Some(&content("good")))
        .unwrap();
    let segment = std::mem::replace(
        &mut log.segment,
        OpenOptions::new().append(true).open("/dev/full").unwrap(),
    );
    let store = Store::new(
        HistoryLimits {
            changes: 10,
            ..LIMITS
        },
        |_, _, _| true,
    );
    store.create_table(&"pods".into());
    store.set_log(log);
    let error = store
        .write("pods", &key(2), None, Some(content("bad")))
        .unwrap_err();
    assert!(matches!(error, WriteError::Log(error) if error.kind() == io::ErrorKind::StorageFull));
    assert_eq!(
        (store.revision(), store.get("pods", "ns/o2").is_none()),
        (1, true)
    );
    // It cannot be undone, so the log rejects further writes even if the disk has space again.
    let error = store
        .write("pods", &key(2), None, Some(content("bad")))
        .unwrap_err();
    assert!(
        matches!(error, WriteError::Log(error) if error.to_string().contains("restart the server"))
    );
    assert!(store.drop_table("pods").is_err());
    assert!(
        store
            .scan("pods", crate::store::Range::default(), None)
            .is_ok()
    );
    drop((store, segment));
    assert_eq!(dir.restore().1.len(), 1);
}

#[test]
fn a_snapshot_that_cannot_be_written_loses_nothing() {
    let dir = Dir::new();
    let store = dir.store(0, false);
    // Prevents the creation of the new segment.
    fs::create_dir(dir.0.join("2.log.tmp")).unwrap();
    apply(&store, &Op::Put(0, 1, "a".to_owned()));
    apply(&store, &Op::Put(0, 2, "b".to_owned()));
    fs::remove_dir(dir.0.join("2.log.tmp")).unwrap();
    let expected = dump_store(&store);
    drop(store);
    assert_eq!(dir.restore(), expected);
}
