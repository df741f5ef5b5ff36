//! Kills the binary a hundred times under load. After each restart every acknowledged write is
//! stored, and nothing else is.
//!
//! Each writer has its own objects and waits for each response. At most one write per writer is
//! therefore in flight when the process dies, and only that write may or may not have happened. All
//! other objects are compared byte by byte.

use crate::{
    connection::{Connection, JSON},
    process::{Process, Scratch},
    support::{CONFIG_MAPS, Reply, WIDGETS, config_map, rv, widget, widgets},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};
use steersman_testkit::{Seeds, this_test};
use tokio::sync::Semaphore;

const ROUNDS: u64 = 100;
const WRITERS: u64 = 4;
const NAMES: u64 = 6;

/// Maximum number of bytes damaged at the end of the log. Shorter than any record of an object.
const MAX_DAMAGE: u64 = 100;

/// Name of the object whose record is damaged. No writer owns it.
const DAMAGED: &str = "damaged";

/// Last acknowledged state of each object, `None` if it was deleted.
type Acknowledged = BTreeMap<String, Option<Value>>;

/// Writes random changes and tracks the acknowledged state.
struct Writer {
    collection: &'static str,
    names: Vec<String>,
    known: Acknowledged,
    /// Name and intended state of the write that has no response yet.
    in_flight: Option<(String, Intent)>,
    random: StdRng,
}

/// State of an object after a write.
#[derive(Clone, Debug)]
enum Intent {
    Value(Value),
    Deleted,
}

impl Writer {
    fn new(n: u64, seed: u64) -> Self {
        Self {
            collection: if n.is_multiple_of(2) {
                CONFIG_MAPS
            } else {
                WIDGETS
            },
            names: (0..NAMES).map(|name| format!("w{n}-{name}")).collect(),
            known: Acknowledged::new(),
            in_flight: None,
            random: StdRng::seed_from_u64(seed.wrapping_add(n)),
        }
    }

    fn object(&self, name: &str, value: &Value) -> Value {
        if self.collection == CONFIG_MAPS {
            let mut map = config_map(name);
            map["data"] = value.clone();
            map
        } else {
            let mut object = widget(name);
            object["spec"]["free"] = value.clone();
            object
        }
    }

    /// Returns the part of an object that the writer sets.
    fn value(&self, object: &Value) -> Value {
        if self.collection == CONFIG_MAPS {
            object["data"].clone()
        } else {
            object["spec"]["free"].clone()
        }
    }

    /// Writes until the server is gone. Each response adds a permit to `acknowledged`.
    async fn run(mut self, mut connection: Connection, acknowledged: Arc<Semaphore>) -> Self {
        while self.write(&mut connection).await.is_ok() {
            acknowledged.add_permits(1);
        }
        self
    }

    async fn write(&mut self, connection: &mut Connection) -> hyper::Result<()> {
        let name = self.names[self.random.random_range(0..self.names.len())].clone();
        let path = format!("{}/{name}", self.collection);
        let length = self.random.random_range(0..6000);
        let value = json!({"k": "v".repeat(length), "n": self.random.random::<u32>().to_string()});
        let mut object = self.object(&name, &value);
        let existing = self.known.get(&name).cloned().flatten();
        let choice = self.random.random_range(0..4);
        let (method, path, body, intent) = match &existing {
            None => (
                "POST",
                self.collection.to_owned(),
                object.to_string(),
                Intent::Value(value),
            ),
            Some(_) if choice == 0 => ("DELETE", path, String::new(), Intent::Deleted),
            Some(old) => {
                object["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
                ("PUT", path, object.to_string(), Intent::Value(value))
            }
        };
        let deletes = matches!(intent, Intent::Deleted);
        self.in_flight = Some((name.clone(), intent));
        let reply = connection.send(method, &path, &[JSON], body).await?;
        assert!(
            matches!(reply.code, 200 | 201),
            "{method} {path}: {}",
            reply.text
        );
        self.in_flight = None;
        self.known.insert(name, (!deletes).then_some(reply.json));
        Ok(())
    }

    /// Asserts that the stored objects are the acknowledged ones and continues from them.
    fn check(&mut self, stored: &BTreeMap<String, Value>) {
        let in_flight = self.in_flight.take();
        for name in &self.names {
            let known = self.known.get(name).cloned().flatten();
            let now = stored.get(name);
            if known.as_ref() == now {
                continue;
            }
            let intent = in_flight
                .as_ref()
                .filter(|(written, _)| written == name)
                .map(|(_, intent)| intent);
            let happened = match (intent, now) {
                (Some(Intent::Deleted), None) => true,
                (Some(Intent::Value(value)), Some(now)) => {
                    self.value(now) == *value
                        && known.as_ref().is_none_or(|known| rv(known) < rv(now))
                }
                _ => false,
            };
            assert!(
                happened,
                "{name}: acknowledged {known:?}, stored {now:?}, in flight {intent:?}"
            );
            self.known.insert(name.clone(), now.cloned());
        }
    }

    fn last_revision(&self) -> u64 {
        self.known
            .values()
            .flatten()
            .map(rv)
            .max()
            .unwrap_or_default()
    }
}

/// Returns the objects of a collection by name, and the revision of the list.
async fn list_by_name(
    connection: &mut Connection,
    collection: &str,
) -> (BTreeMap<String, Value>, u64) {
    let list: Reply = connection
        .get(collection)
        .await
        .expect("a response")
        .expect(200);
    let revision = list.rv();
    let kind = list.json["kind"]
        .as_str()
        .expect("a kind")
        .trim_end_matches("List")
        .to_owned();
    let version = list.json["apiVersion"].clone();
    let items = list.json["items"].as_array().cloned().expect("items");
    let named = items.into_iter().map(|mut item| {
        // Items of built-in lists have no kind and apiVersion.
        item["kind"] = kind.clone().into();
        item["apiVersion"] = version.clone();
        (
            item["metadata"]["name"]
                .as_str()
                .expect("a name")
                .to_owned(),
            item,
        )
    });
    (named.collect(), revision)
}

/// Checks all objects and returns the revision of the server.
async fn check(connection: &mut Connection, writers: &mut [Writer]) -> u64 {
    let (maps, _) = list_by_name(connection, CONFIG_MAPS).await;
    let (custom, revision) = list_by_name(connection, WIDGETS).await;
    for writer in writers.iter_mut() {
        writer.check(if writer.collection == CONFIG_MAPS {
            &maps
        } else {
            &custom
        });
        assert!(revision >= writer.last_revision());
    }
    let known = writers
        .iter()
        .flat_map(|writer| writer.known.values().flatten())
        .count();
    assert_eq!(
        maps.len() + custom.len(),
        known,
        "other objects are stored, such as the damaged one"
    );
    revision
}

fn last_segment(data: &Path) -> PathBuf {
    let files = fs::read_dir(data)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path());
    let segments =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    let number = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<u64>().ok();
    segments.max_by_key(number).expect("a segment")
}

/// Damages the end of the log as an interrupted write does: truncated, corrupted or with trailing
/// bytes.
fn damage_log(data: &Path, mode: u64, random: &mut StdRng) {
    let path = last_segment(data);
    let mut bytes = fs::read(&path).expect("a segment");
    let length = bytes.len();
    match mode {
        0 => bytes.truncate(length - random.random_range(1..MAX_DAMAGE as usize)),
        1 => bytes[length - random.random_range(1..MAX_DAMAGE as usize)] ^= 0x55,
        _ => bytes.extend((0..random.random_range(1..300)).map(|_| random.random::<u8>())),
    }
    let mut file = OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .expect("a segment");
    file.write_all(&bytes).expect("written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_acknowledged_writes_survive_a_hundred_kills() {
    for seed in Seeds::new(this_test!(), 1) {
        kill_a_hundred_times(seed).await;
    }
}

async fn kill_a_hundred_times(seed: u64) {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let crd = scratch.write("widgets.json", &widgets().to_string());
    let mut random = StdRng::seed_from_u64(seed);
    let mut writers: Vec<Writer> = (0..WRITERS).map(|n| Writer::new(n, seed)).collect();
    let mut last = 0;
    let mut damaged = false;
    for round in 0..=ROUNDS {
        let mut flags = vec!["--data-dir", data.to_str().expect("a path")];
        if round == 0 {
            flags.extend(["--crd", crd.to_str().expect("a path")]);
        }
        let process = Process::start(&scratch, &flags);
        let mut connection = Connection::open(process.address()).await;
        let revision = check(&mut connection, &mut writers).await;
        assert!(revision >= last, "round {round}: {revision} after {last}");
        last = revision;
        if round == ROUNDS {
            break;
        }

        let acknowledged = Arc::new(Semaphore::new(0));
        let mut running = Vec::new();
        for writer in writers.drain(..) {
            let connection = Connection::open(process.address()).await;
            running.push(tokio::spawn(writer.run(connection, acknowledged.clone())));
        }
        let writes = random.random_range(1..60);
        acknowledged
            .acquire_many(writes)
            .await
            .expect("an open semaphore")
            .forget();
        let output = process.kill();
        for writer in running {
            writers.push(writer.await.expect("no panic"));
        }
        assert!(
            !damaged || output.stderr.contains("note: ") && output.stderr.contains("were dropped"),
            "{}",
            output.stderr
        );
        last = writers
            .iter()
            .map(Writer::last_revision)
            .max()
            .unwrap_or_default()
            .max(last);

        damaged = round % 4 == 3;
        if damaged {
            damage_last_record(&scratch, &data, round / 4 % 3, &mut writers, &mut random).await;
        }
    }
}

/// Appends one more record to the log and damages it.
async fn damage_last_record(
    scratch: &Scratch,
    data: &Path,
    mode: u64,
    writers: &mut [Writer],
    random: &mut StdRng,
) {
    loop {
        let process = Process::start(scratch, &["--data-dir", data.to_str().expect("a path")]);
        let mut connection = Connection::open(process.address()).await;
        let before = connection
            .send("DELETE", &format!("{CONFIG_MAPS}/{DAMAGED}"), &[], "")
            .await
            .expect("a response");
        assert!(matches!(before.code, 200 | 404), "{}", before.text);
        check(&mut connection, writers).await;
        if mode < 2 {
            connection
                .post(CONFIG_MAPS, &config_map(DAMAGED))
                .await
                .expect("a response")
                .expect(201);
        }
        process.kill();
        // If the write triggered a snapshot, it is in an older segment and the new one is too
        // short.
        if mode == 2 || fs::metadata(last_segment(data)).expect("a segment").len() > MAX_DAMAGE {
            return damage_log(data, mode, random);
        }
    }
}
