//! The program killed a hundred times while it is written to: every write that it acknowledged is there again, and nothing else.
//!
//! Each writer has objects of its own and waits for each answer, so that at most one write of each is in flight when the end comes:
//! that one may have happened or not. All others are compared byte by byte.

use crate::{
    process::{Process, Scratch},
    support::{CONFIG_MAPS, Reply, WIDGETS, config_map, rv, widget, widgets},
    wire::{Connection, JSON},
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

/// Shorter than any record of an object.
const LONGEST_TEAR: u64 = 100;

/// Written last and lost on purpose: no writer has it.
const TORN: &str = "torn";

/// An object as it was acknowledged; none if it was deleted.
type Known = BTreeMap<String, Option<Value>>;

/// One who writes, and remembers.
struct Writer {
    collection: &'static str,
    names: Vec<String>,
    known: Known,
    /// Which object's write had no answer.
    in_flight: Option<(String, Intent)>,
    random: StdRng,
}

/// What a write would have made.
#[derive(Clone, Debug)]
enum Intent {
    Value(Value),
    Gone,
}

impl Writer {
    fn new(n: u64, seed: u64) -> Self {
        Self {
            collection: if n.is_multiple_of(2) { CONFIG_MAPS } else { WIDGETS },
            names: (0..NAMES).map(|name| format!("w{n}-{name}")).collect(),
            known: Known::new(),
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

    /// What a writer wrote, of what is there.
    fn value(&self, object: &Value) -> Value {
        if self.collection == CONFIG_MAPS { object["data"].clone() } else { object["spec"]["free"].clone() }
    }

    /// Write until the server is gone; every answer lets `acknowledged` go by one.
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
            None => ("POST", self.collection.to_owned(), object.to_string(), Intent::Value(value)),
            Some(_) if choice == 0 => ("DELETE", path, String::new(), Intent::Gone),
            Some(old) => {
                object["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
                ("PUT", path, object.to_string(), Intent::Value(value))
            }
        };
        let deletes = matches!(intent, Intent::Gone);
        self.in_flight = Some((name.clone(), intent));
        let reply = connection.send(method, &path, &[JSON], body).await?;
        assert!(matches!(reply.code, 200 | 201), "{method} {path}: {}", reply.text);
        self.in_flight = None;
        self.known.insert(name, (!deletes).then_some(reply.json));
        Ok(())
    }

    /// Compare what is there with what was acknowledged, and go on from it.
    fn check(&mut self, there: &BTreeMap<String, Value>) {
        let in_flight = self.in_flight.take();
        for name in &self.names {
            let (known, now) = (self.known.get(name).cloned().flatten(), there.get(name));
            if known.as_ref() == now {
                continue;
            }
            let intent = in_flight.as_ref().filter(|(of, _)| of == name).map(|(_, intent)| intent);
            let happened = match (intent, now) {
                (Some(Intent::Gone), None) => true,
                (Some(Intent::Value(value)), Some(now)) => {
                    self.value(now) == *value && known.as_ref().is_none_or(|known| rv(known) < rv(now))
                }
                _ => false,
            };
            assert!(happened, "{name} was {known:?}, is {now:?}, in flight was {intent:?}");
            self.known.insert(name.clone(), now.cloned());
        }
    }

    fn last_revision(&self) -> u64 {
        self.known.values().flatten().map(rv).max().unwrap_or_default()
    }
}

/// Everything in a collection by name, and the list's revision.
async fn everything(connection: &mut Connection, collection: &str) -> (BTreeMap<String, Value>, u64) {
    let list: Reply = connection.get(collection).await.expect("an answer").expect(200);
    let revision = list.rv();
    let kind = list.json["kind"].as_str().expect("a kind").trim_end_matches("List").to_owned();
    let version = list.json["apiVersion"].clone();
    let items = list.json["items"].as_array().cloned().expect("items");
    let named = items.into_iter().map(|mut item| {
        // Items of built-in lists have none of their own.
        item["kind"] = kind.clone().into();
        item["apiVersion"] = version.clone();
        (item["metadata"]["name"].as_str().expect("a name").to_owned(), item)
    });
    (named.collect(), revision)
}

/// Compare everything; the revision.
async fn check(connection: &mut Connection, writers: &mut [Writer]) -> u64 {
    let (maps, _) = everything(connection, CONFIG_MAPS).await;
    let (custom, revision) = everything(connection, WIDGETS).await;
    for writer in writers.iter_mut() {
        writer.check(if writer.collection == CONFIG_MAPS { &maps } else { &custom });
        assert!(revision >= writer.last_revision());
    }
    let known = writers.iter().flat_map(|writer| writer.known.values().flatten()).count();
    assert_eq!(maps.len() + custom.len(), known, "nothing else is there, not even what was torn");
    revision
}

fn last_segment(data: &Path) -> PathBuf {
    let files = fs::read_dir(data).expect("a directory").map(|entry| entry.expect("an entry").path());
    let segments = files.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    let number = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<u64>().ok();
    segments.max_by_key(number).expect("a segment")
}

/// Damage the end of the log as a write that was cut off would.
fn tear(data: &Path, how: u64, random: &mut StdRng) {
    let path = last_segment(data);
    let mut bytes = fs::read(&path).expect("a segment");
    let length = bytes.len();
    match how {
        0 => bytes.truncate(length - random.random_range(1..LONGEST_TEAR as usize)),
        1 => bytes[length - random.random_range(1..LONGEST_TEAR as usize)] ^= 0x55,
        _ => bytes.extend((0..random.random_range(1..300)).map(|_| random.random::<u8>())),
    }
    let mut file = OpenOptions::new().write(true).truncate(true).open(path).expect("a segment");
    file.write_all(&bytes).expect("written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_what_was_acknowledged_survives_a_hundred_kills() {
    for seed in Seeds::new(this_test!(), 1) {
        kill_a_hundred_times(seed).await;
    }
}

async fn kill_a_hundred_times(seed: u64) {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let definition = scratch.write("widgets.json", &widgets().to_string());
    let mut random = StdRng::seed_from_u64(seed);
    let mut writers: Vec<Writer> = (0..WRITERS).map(|n| Writer::new(n, seed)).collect();
    let (mut last, mut torn) = (0, false);
    for round in 0..=ROUNDS {
        let mut flags = vec!["--data-dir", data.to_str().expect("a path")];
        if round == 0 {
            flags.extend(["--crd", definition.to_str().expect("a path")]);
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
        let enough = random.random_range(1..60);
        acknowledged.acquire_many(enough).await.expect("it is open").forget();
        let ended = process.kill();
        for writer in running {
            writers.push(writer.await.expect("no panic"));
        }
        assert!(!torn || ended.stderr.contains("note: ") && ended.stderr.contains("were dropped"), "{}", ended.stderr);
        last = writers.iter().map(Writer::last_revision).max().unwrap_or_default().max(last);

        torn = round % 4 == 3;
        if torn {
            lose_the_last(&scratch, &data, round / 4 % 3, &mut writers, &mut random).await;
        }
    }
}

/// Let one more write be the last of the log, and damage it.
async fn lose_the_last(scratch: &Scratch, data: &Path, how: u64, writers: &mut [Writer], random: &mut StdRng) {
    loop {
        let process = Process::start(scratch, &["--data-dir", data.to_str().expect("a path")]);
        let mut connection = Connection::open(process.address()).await;
        let before = connection.send("DELETE", &format!("{CONFIG_MAPS}/{TORN}"), &[], "").await.expect("an answer");
        assert!(matches!(before.code, 200 | 404), "{}", before.text);
        check(&mut connection, writers).await;
        if how < 2 {
            connection.post(CONFIG_MAPS, &config_map(TORN)).await.expect("an answer").expect(201);
        }
        process.kill();
        // A write may be the last before a snapshot: then it is in an older segment, which nothing can tear any more.
        if how == 2 || fs::metadata(last_segment(data)).expect("a segment").len() > LONGEST_TEAR {
            return tear(data, how, random);
        }
    }
}
