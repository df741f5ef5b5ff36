//! A server with two namespaces, an informer that hears of it sooner or later, in events, bookmarks and lists, and a client whose answers take
//! their time. After every step each read is asked: it must be served exactly when the store shows all that was answered before it began.
//!
//! The informer may have selectors: then objects that the client writes come and leave, and of what is outside nothing is heard. Others do not create then, nor
//! do they let anything in or out: what the ledger cannot know of that, its documentation says.

use super::{ready, *};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const NAMESPACES: [&str; 2] = ["a", "b"];

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Create, or update, or mark an object; by the client, or by somebody else.
    Write {
        object: usize,
        ours: bool,
        mark: bool,
        /// Whether what is written is for an informer with selectors.
        inside: bool,
    },
    Delete {
        object: usize,
        ours: bool,
    },
    DeleteAll {
        namespace: usize,
    },
    /// The answer to the first request of those in a namespace: nobody deletes what they do not know to be there.
    Answer {
        namespace: usize,
    },
    /// The next event of a part.
    Event {
        part: usize,
    },
    Bookmark {
        part: usize,
    },
    BeginList {
        part: usize,
    },
    EndList {
        part: usize,
    },
    ReadOne {
        object: usize,
    },
    ReadAll,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let object = || 0..4usize;
    let part = || 0..2usize;
    let step = prop_oneof![
        6 => (object(), any::<bool>(), proptest::bool::weighted(0.2), proptest::bool::weighted(0.7))
            .prop_map(|(object, ours, mark, inside)| Step::Write { object, ours, mark, inside }),
        3 => (object(), any::<bool>()).prop_map(|(object, ours)| Step::Delete { object, ours }),
        1 => part().prop_map(|namespace| Step::DeleteAll { namespace }),
        8 => part().prop_map(|namespace| Step::Answer { namespace }),
        8 => part().prop_map(|part| Step::Event { part }),
        1 => part().prop_map(|part| Step::Bookmark { part }),
        1 => part().prop_map(|part| Step::BeginList { part }),
        2 => part().prop_map(|part| Step::EndList { part }),
        3 => object().prop_map(|object| Step::ReadOne { object }),
        3 => Just(Step::ReadAll),
    ];
    proptest::collection::vec(step, 1..120)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Object {
    uid: u64,
    revision: u64,
    marked: bool,
    inside: bool,
}

type Objects = BTreeMap<ObjectKey, Object>;

/// What a part hears.
#[derive(Clone, Debug)]
struct Heard {
    key: ObjectKey,
    version: Object,
    gone: bool,
}

#[derive(Default)]
struct Part {
    /// What was not heard yet.
    events: Vec<Heard>,
    /// A list that is on its way: everything, and how far it is.
    list: Option<(Objects, u64)>,
}

/// A write that was answered, and what the informer has to have reached for it. Of deletions only the server knows that.
#[derive(Clone, Debug)]
struct Done {
    key: ObjectKey,
    revision: u64,
}

/// A request that the server has served, and not answered.
enum Asked {
    /// And whether it is inside.
    Write(Done, bool),
    Delete(Done, Deleting, u64),
    /// With what was there.
    DeleteAll(Vec<(Done, Object)>),
}

struct Read {
    wants: Vec<Done>,
    pending: Option<Pending>,
}

struct World {
    scene: Scene,
    /// Whether the informer has selectors.
    selects: bool,
    revision: u64,
    server: Objects,
    store: Objects,
    parts: Vec<Part>,
    /// By namespace.
    asked: [Vec<Asked>; 2],
    done: Vec<Done>,
    reads: Vec<Read>,
}

impl World {
    fn new(selects: bool) -> Self {
        Self {
            scene: Scene::new(&NAMESPACES.map(Some)),
            selects,
            revision: 0,
            server: Objects::new(),
            store: Objects::new(),
            parts: vec![Part::default(), Part::default()],
            asked: Default::default(),
            done: Vec::new(),
            reads: Vec::new(),
        }
    }

    fn change(&mut self, key: &ObjectKey, uid: Option<u64>, marked: bool, inside: bool, gone: bool) -> Done {
        self.revision += 1;
        let version = Object { uid: uid.unwrap_or(self.revision), revision: self.revision, marked, inside };
        let before = if gone { self.server.remove(key) } else { self.server.insert(key.clone(), version) };
        // What leaves is told as gone.
        let gone = gone || !inside;
        if !gone || before.is_some_and(|before| before.inside) {
            self.parts[part_of(key)].events.push(Heard { key: key.clone(), version, gone });
        }
        Done { key: key.clone(), revision: self.revision }
    }

    fn step(&mut self, step: Step) {
        let object = |number: usize| ObjectKey::new(NAMESPACES[number % 2], if number < 2 { "x" } else { "y" });
        let writer = Writer::of(&self.scene.client);
        match step {
            Step::Write { object: number, ours, mark, inside } => {
                let key = object(number);
                let there = self.server.get(&key).copied();
                // While a list is on its way nobody else creates: that it does not have what was created and deleted since is not known.
                let ours = ours || there.is_none() && (self.selects || self.parts[number % 2].list.is_some());
                let marked = there.is_some_and(|there| there.marked || mark);
                let inside = !self.selects || if ours { inside } else { there.is_some_and(|there| there.inside) };
                let done = self.change(&key, there.map(|there| there.uid), marked, inside, false);
                if ours {
                    self.asked[number % 2].push(Asked::Write(done, inside));
                }
            }
            Step::Delete { object: number, ours } => {
                let key = object(number);
                let Some(there) = self.server.get(&key).copied() else { return };
                let deleting = ours.then(|| self.scene.ledger.deleting(&key));
                let done = self.change(&key, Some(there.uid), there.marked, there.inside, true);
                self.asked[number % 2].extend(deleting.map(|deleting| Asked::Delete(done, deleting, there.uid)));
            }
            Step::DeleteAll { namespace } => {
                let there = self.server.clone().into_iter();
                let in_it = |key: &ObjectKey| key.namespace() == Some(NAMESPACES[namespace]);
                // What is marked stays as it is; of the others every other one is only marked.
                let there = there.filter(|(key, version)| in_it(key) && !version.marked);
                let one = |(key, version): (ObjectKey, Object)| {
                    (self.change(&key, Some(version.uid), true, version.inside, version.uid.is_multiple_of(2)), version)
                };
                let all = there.map(one).collect();
                self.asked[namespace].push(Asked::DeleteAll(all));
            }
            Step::Answer { namespace } => {
                if self.asked[namespace].is_empty() {
                    return;
                }
                let fates = |key: &ObjectKey, uid: Option<&str>| fate(&self.store, key, uid);
                match self.asked[namespace].remove(0) {
                    Asked::Write(done, inside) => {
                        let version = Version { key: &done.key, revision: done.revision, selected: Some(inside) };
                        self.scene.ledger.wrote(&writer, version, &fates);
                        self.done.push(done);
                    }
                    Asked::Delete(done, deleting, uid) => {
                        deleting.deleted(&writer, &uid.to_string(), !self.selects, &fates);
                        self.done.push(done);
                    }
                    Asked::DeleteAll(all) => {
                        for (done, Object { uid, revision, inside, .. }) in all {
                            let (uid, since) = (uid.to_string(), inside.then_some(revision));
                            let removed = Removed { key: &done.key, uid: &uid, or_deleting: true, since };
                            self.scene.ledger.removed(&writer, &removed, &fates);
                            // Marked or gone is all that is waited for.
                            self.done.push(done);
                        }
                    }
                }
            }
            Step::Event { part } if self.parts[part].list.is_none() => {
                if !self.parts[part].events.is_empty() {
                    let heard = self.parts[part].events.remove(0);
                    self.hear(part, &heard);
                }
            }
            Step::Bookmark { part } if self.parts[part].list.is_none() => {
                if self.parts[part].events.is_empty() {
                    self.scene.ledger.told(Some(NAMESPACES[part]), self.revision, &Told::Other, || ());
                }
            }
            Step::BeginList { part } => {
                let of_part = |key: &ObjectKey| key.namespace() == Some(NAMESPACES[part]);
                let all = self.server.clone().into_iter();
                let all = all.filter(|(key, version)| of_part(key) && version.inside).collect();
                self.parts[part].list.get_or_insert((all, self.revision));
            }
            Step::EndList { part } => {
                let Some((all, revision)) = self.parts[part].list.take() else { return };
                self.store.retain(|key, _| key.namespace() != Some(NAMESPACES[part]));
                self.store.extend(all);
                self.parts[part].events.retain(|heard| heard.version.revision > revision);
                let fates = |key: &ObjectKey, uid: Option<&str>| fate(&self.store, key, uid);
                self.scene.ledger.told(Some(NAMESPACES[part]), revision, &Told::All(&fates), || ());
            }
            Step::ReadOne { object: number } => {
                let key = object(number);
                let wants = self.done.iter().filter(|done| done.key == key).cloned().collect();
                let pending = self.scene.wait(Wanted::Key(&key));
                self.reads.push(Read { wants, pending });
            }
            Step::ReadAll => {
                let (wants, pending) = (self.done.clone(), self.scene.wait(Wanted::All));
                self.reads.push(Read { wants, pending });
            }
            Step::Event { .. } | Step::Bookmark { .. } => {}
        }
    }

    fn hear(&mut self, part: usize, Heard { key, version, gone }: &Heard) {
        let uid = version.uid.to_string();
        let told = if *gone {
            self.store.remove(key);
            Told::Gone(key, Some(&uid))
        } else {
            self.store.insert(key.clone(), *version);
            Told::There { key, uid: &uid, deleting: version.marked }
        };
        self.scene.ledger.told(Some(NAMESPACES[part]), version.revision, &told, || ());
    }

    /// Whether there is nothing more to hear of the object up to then.
    fn shows(&self, done: &Done) -> bool {
        let is_open = |heard: &Heard| heard.key == done.key && heard.version.revision <= done.revision;
        !self.parts[part_of(&done.key)].events.iter().any(is_open)
    }

    fn check(&mut self) {
        let mut reads = std::mem::take(&mut self.reads);
        reads.retain_mut(|read| {
            let is_shown = read.wants.iter().all(|done| self.shows(done));
            let is_ready = read.pending.as_mut().is_none_or(ready);
            assert!(is_shown || !is_ready, "served, and does not show {:?}", read.wants);
            // One that must show no more than it does is not kept waiting.
            assert!(is_ready || !is_shown, "kept waiting, and all is there");
            !is_ready
        });
        self.reads = reads;
        let open: BTreeSet<_> = self.done.iter().filter(|done| !self.shows(done)).map(|done| &done.key).collect();
        assert_eq!(
            self.scene.ledger.stats().pending == 0,
            open.is_empty(),
            "what is shown is forgotten, and only that"
        );
    }
}

fn part_of(key: &ObjectKey) -> usize {
    usize::from(key.namespace() == Some(NAMESPACES[1]))
}

fn fate(store: &Objects, key: &ObjectKey, uid: Option<&str>) -> Fate {
    match store.get(key) {
        Some(there) if uid.is_some_and(|uid| there.uid.to_string() != uid) => Fate::Gone,
        Some(there) if there.marked => Fate::Deleting,
        Some(_) => Fate::There,
        None => Fate::Gone,
    }
}

steersman_testkit::properties! {

    cases = 300;
    #[test]
    fn a_read_is_served_exactly_when_it_shows_what_was_written_before(steps in steps(), selects in any::<bool>()) {
        let mut world = World::new(selects);
        for step in steps {
            world.step(step);
            world.check();
        }
    }
}

/// Found by the test above: an object leaves the selectors, comes back, and is deleted before the
/// informer hears of any of it. The first event says that the object is gone, and the next one
/// brings it back.
#[test]
fn a_read_does_not_show_a_deleted_object_that_had_left_the_selectors_before() {
    let write = |inside| Step::Write { object: 1, ours: true, mark: false, inside };
    let (answer, event) = (Step::Answer { namespace: 1 }, Step::Event { part: 1 });
    let (delete, read) = (Step::Delete { object: 1, ours: true }, Step::ReadOne { object: 1 });
    let mut world = World::new(true);
    let before = [write(true), event, write(false), write(true), answer, answer, delete, answer, answer];
    for step in before.into_iter().chain([read, event, read, event, read, event]) {
        world.step(step);
        world.check();
    }
    assert!(world.reads.is_empty(), "every read is served once the deletion is told");
}

/// Found by the property test: another client creates the object; this client takes it out of the
/// selectors, puts it back and deletes it.
#[test]
fn a_delete_is_forgotten_exactly_when_it_is_shown_although_another_client_created_the_object() {
    let write = |ours, inside| Step::Write { object: 1, ours, mark: false, inside };
    let (answer, event) = (Step::Answer { namespace: 1 }, Step::Event { part: 1 });
    let delete = Step::Delete { object: 1, ours: true };
    let mut world = World::new(true);
    for step in [
        write(false, true),
        event,
        write(true, false),
        write(true, true),
        answer,
        answer,
        delete,
        answer,
        answer,
        event,
        event,
    ] {
        world.step(step);
        world.check();
    }
}
