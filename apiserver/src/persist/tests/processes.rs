//! Child processes, running this test binary, whose writes fail or that are killed while they
//! write.

use super::*;
use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};
use steersman_testkit::{Seeds, this_test};

/// Runs the test `name` of this binary in a child process that uses `dir`.
fn spawn_child(mut command: Command, name: &str, dir: &Dir) -> Child {
    command.args([
        "--exact",
        &format!("persist::tests::processes::{name}"),
        "--nocapture",
        "--test-threads=1",
    ]);
    command
        .env(CHILD, &dir.0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Returns the directory if this is a child process.
fn child_dir() -> Option<Dir> {
    env::var_os(CHILD).map(|dir| Dir(dir.into()))
}

const CHILD: &str = "STEERSMAN_PERSIST_TEST_DIR";

/// Variable with the seed of a child's writes.
const SEED: &str = "STEERSMAN_PERSIST_TEST_SEED";

/// The size of files is limited, so a write fails in the middle of a record.
#[test]
fn a_partial_write_is_undone_and_the_log_continues() {
    if let Some(dir) = child_dir() {
        let store = dir.store(u64::MAX, false);
        let write = |number: u8, size: usize| {
            store
                .write("pods", &key(number), None, Some(content(&"x".repeat(size))))
                .map(|change| change.revision)
        };
        let full = (0..100)
            .find(|number| write(*number, 5000).is_err())
            .unwrap();
        assert!(store.get("pods", key(full).as_str()).is_none());
        assert_eq!(store.revision(), 1 + u64::from(full));
        assert_eq!(write(full, 10).unwrap(), 2 + u64::from(full));
        println!("{:?}", dump_store(&store));
        std::mem::forget(dir);
        return;
    }
    let dir = Dir::new();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", r#"trap '' XFSZ; ulimit -f 64; exec "$0" "$@""#])
        .arg(env::current_exe().unwrap());
    let output = spawn_child(
        shell,
        "a_partial_write_is_undone_and_the_log_continues",
        &dir,
    )
    .wait_with_output()
    .unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let (_log, restored) = dir.open().unwrap();
    assert!(
        output.contains(&format!("{:?}", dump(&restored))),
        "{output}"
    );
    assert!(restored.recovery_note.is_none());
}

/// Objects of each table by key: revision and value.
type Model = [BTreeMap<u8, (u64, u64)>; 3];

/// A write that a thread of the child announced. It has succeeded if an `ack` follows.
#[derive(Clone, Copy, Debug)]
enum Step {
    Put(u8, u64),
    Remove(u8),
    Drop,
}

/// Runs in the child: one thread per table announces a write, makes it and acknowledges it.
fn load(dir: &Dir, seed: u64) {
    let store = dir.store(20_000, false);
    // The test harness has printed an incomplete line.
    println!();
    thread::scope(|scope| {
        for (table, name) in TABLES.iter().enumerate() {
            let store = &store;
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(seed + table as u64);
                let print = |line: String| io::stdout().lock().write_all(line.as_bytes()).unwrap();
                loop {
                    let number = random.random_range(0..20);
                    let seen = store
                        .get(name, key(number).as_str())
                        .map(|object| object.revision);
                    let (operation, content) = match random.random_range(0..60) {
                        0 => ("drop 0 0".to_owned(), None),
                        1..20 if seen.is_some() => (format!("remove {number} 0"), None),
                        _ => {
                            let value: u64 = random.random();
                            (format!("put {number} {value}"), Some(numbered(value)))
                        }
                    };
                    print(format!("try {table} {operation}\n"));
                    let revision = if operation.starts_with("drop") {
                        store.drop_table(name).unwrap();
                        store.create_table(&(*name).into());
                        store.revision()
                    } else {
                        store
                            .write(name, &key(number), seen, content)
                            .unwrap()
                            .revision
                    };
                    print(format!("ack {table} {revision}\n"));
                }
            });
        }
    });
}

/// Returns content of up to a few kilobytes that is unique to `value`.
fn numbered(value: u64) -> Content {
    content(&format!("{value} {}", "x".repeat(value as usize % 3000)))
}

fn step(model: &mut Model, table: usize, step: Step, revision: u64) {
    match step {
        Step::Put(key, value) => _ = model[table].insert(key, (revision, value)),
        Step::Remove(key) => _ = model[table].remove(&key),
        Step::Drop => model[table].clear(),
    }
}

/// Applies a line of the child's output. Returns whether it acknowledges a write.
fn apply_line(
    line: &str,
    model: &mut Model,
    tried: &mut [Option<Step>; 3],
    last: &mut u64,
) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["try", table, operation, key, value] => {
            let (key, value) = (key.parse().unwrap(), value.parse().unwrap());
            let operation = match operation {
                "put" => Step::Put(key, value),
                "remove" => Step::Remove(key),
                _ => Step::Drop,
            };
            tried[table.parse::<usize>().unwrap()] = Some(operation);
            false
        }
        ["ack", table, revision] => {
            let (table, revision) = (table.parse::<usize>().unwrap(), revision.parse().unwrap());
            step(model, table, tried[table].take().unwrap(), revision);
            *last = revision.max(*last);
            true
        }
        _ => false,
    }
}

/// Asserts that each table has what was acknowledged, and possibly the one write in progress.
/// Updates the model to it.
fn compare(restored: &Restored, model: &mut Model, tried: &mut [Option<Step>; 3], last: u64) {
    let mut in_progress = 0;
    // Dropping a table removes each object at a revision of its own.
    let dropping = (0..TABLES.len()).filter(|table| matches!(tried[*table], Some(Step::Drop)));
    let dropping: u64 = dropping.map(|table| model[table].len() as u64).sum();
    for (table, name) in TABLES.iter().enumerate() {
        let objects = restored
            .objects
            .iter()
            .filter(|(restored, _)| **restored == **name);
        let found: BTreeMap<&str, (u64, &[u8])> = objects
            .map(|(_, object)| {
                (
                    object.key.as_str(),
                    (object.revision, object.content().tail()),
                )
            })
            .collect();
        let matches = |model: &Model, unknown: Option<Step>| {
            found.len() == model[table].len()
                && model[table].iter().all(|(number, (revision, value))| {
                    let any_revision = matches!(unknown, Some(Step::Put(key, _)) if key == *number);
                    found.get(key(*number).as_str()).is_some_and(|(at, tail)| {
                        (at == revision || any_revision) && *tail == numbered(*value).tail()
                    })
                })
        };
        if matches(model, None) {
            tried[table] = None;
            continue;
        }
        let applied = tried[table]
            .take()
            .unwrap_or_else(|| panic!("{name}: acknowledged {:?}, found {found:?}", model[table]));
        in_progress += 1;
        step(model, table, applied, 0);
        assert!(
            matches(model, Some(applied)),
            "{name}: acknowledged {:?} and {applied:?}, found {found:?}",
            model[table]
        );
        if let Step::Put(number, value) = applied {
            model[table].insert(number, (found[key(number).as_str()].0, value));
        }
    }
    assert!(
        restored.revision >= last,
        "{} was acknowledged, {} restored",
        last,
        restored.revision
    );
    // A write in progress that was overwritten or removed shows only in the revision.
    assert!(
        restored.revision <= last + 3 + dropping,
        "{last} was acknowledged, {} restored, {in_progress} in progress",
        restored.revision
    );
}

#[test]
fn soak_a_process_killed_a_hundred_times_loses_nothing_that_it_acknowledged() {
    if let Some(dir) = child_dir() {
        let seed = env::var(SEED)
            .expect("the parent sets it")
            .parse()
            .expect("a seed");
        load(&std::mem::ManuallyDrop::new(dir), seed);
        return;
    }
    for seed in Seeds::new(this_test!(), 1) {
        kill_a_hundred_times(seed);
    }
}

fn kill_a_hundred_times(seed: u64) {
    let dir = Dir::new();
    let mut random = StdRng::seed_from_u64(seed);
    let mut model = Model::default();
    let mut last = 0;
    let mut acks = 0;
    let mut unfinished = 0;
    for _ in 0..100 {
        let name = "soak_a_process_killed_a_hundred_times_loses_nothing_that_it_acknowledged";
        let mut command = Command::new(env::current_exe().unwrap());
        command.env(SEED, random.random::<u32>().to_string());
        let mut child = spawn_child(command, name, &dir);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut tried = [None; 3];
        if random.random_range(0..5) == 0 {
            // Possibly before the child has started.
            thread::sleep(Duration::from_micros(random.random_range(0..5000)));
        } else {
            let enough = acks + random.random_range(1..150);
            while acks < enough {
                let line = lines
                    .next()
                    .expect("the child writes until it is killed")
                    .unwrap();
                acks += u64::from(apply_line(&line, &mut model, &mut tried, &mut last));
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // The output before the kill is still in the pipe.
        for line in lines {
            acks += u64::from(apply_line(
                &line.unwrap(),
                &mut model,
                &mut tried,
                &mut last,
            ));
        }
        unfinished += u64::from(
            dir.0.exists()
                && dir
                    .names()
                    .iter()
                    .any(|name| name.ends_with("snapshot.tmp")),
        );
        let (_log, restored) = dir.open().unwrap();
        compare(&restored, &mut model, &mut tried, last);
        last = restored.revision;
    }
    let snapshot = Files::list(&dir.0)
        .unwrap()
        .snapshots
        .last()
        .copied()
        .unwrap_or(0);
    println!("{acks} acknowledged, {snapshot} snapshots, {unfinished} interrupted");
    assert!(acks > 1000 && snapshot > 10);
}
