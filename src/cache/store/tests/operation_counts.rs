//! Tests of the work that a list causes, counted and not timed.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Work of one list.
#[derive(Debug, PartialEq)]
struct Work {
    changes: usize,
    /// Existing objects that were read.
    looked_at: usize,
    /// Existing objects that were compared with new ones.
    compared: usize,
    /// Calls of the user's index function.
    indexed: usize,
    /// Chunks that were copied.
    copied: usize,
}

/// Store with namespaces of ten objects each.
struct Fixture {
    store: Store<u32>,
    indexed: Arc<AtomicUsize>,
}

impl Fixture {
    fn new(namespaces: usize) -> Self {
        let (store, indexed) = (Store::default(), Arc::<AtomicUsize>::default());
        let counted = indexed.clone();
        store.add_index(move |object: &Arc<u32>| {
            counted.fetch_add(1, Relaxed);
            vec![**object]
        });
        let fixture = Self { store, indexed };
        for number in 0..namespaces {
            fixture.list(&number.to_string(), &[0; 10]);
        }
        fixture
    }

    /// Stores a list of a namespace.
    fn list(&self, namespace: &str, objects: &[u32]) -> Work {
        let name = |(number, object): (usize, &u32)| {
            Entry::new(
                ObjectKey::new(namespace, number.to_string()),
                Arc::new(*object),
                1,
            )
        };
        let entries = objects.iter().enumerate().map(name).collect();
        let before = self.store.snapshot();
        let looked_at = self.store.looked_at.load(Relaxed);
        let (compared, indexed) = (Cell::new(0), self.indexed.load(Relaxed));
        let is_same = |a: &u32, b: &u32| {
            compared.set(compared.get() + 1);
            a == b
        };
        let changes = self
            .store
            .replace(ListScope::Namespace(namespace), entries, &[], 1, is_same)
            .len();
        Work {
            changes,
            looked_at: self.store.looked_at.load(Relaxed) - looked_at,
            compared: compared.get(),
            indexed: self.indexed.load(Relaxed) - indexed,
            copied: self.store.snapshot().chunks_not_in(&before),
        }
    }
}

#[test]
fn the_cost_of_a_namespaces_list_does_not_depend_on_other_namespaces() {
    let work = |namespaces| {
        let fixture = Fixture::new(namespaces);
        let join = fixture.list("new", &[1; 10]);
        let again = fixture.list("new", &[1; 10]);
        let relist = fixture.list("new", &[[1; 9].as_slice(), &[2]].concat());
        let leave = fixture.list("new", &[]);
        assert_eq!(fixture.store.len(), 10 * namespaces);
        [join, again, relist, leave]
    };
    let few = work(10);
    let cost = |[changes, looked_at, compared, indexed, copied]: [usize; 5]| Work {
        changes,
        looked_at,
        compared,
        indexed,
        copied,
    };
    assert_eq!(
        few,
        [
            [10, 0, 0, 10, 1],
            [0, 10, 10, 0, 0],
            [1, 10, 10, 2, 1],
            [10, 10, 0, 10, 1]
        ]
        .map(cost)
    );
    assert_eq!(work(1000), few);
}

/// The objects of a namespace may be in many chunks. At most one chunk per changed object is
/// copied.
#[test]
fn only_changed_chunks_are_copied() {
    let fixture = Fixture::new(0);
    for number in 0..10_000 {
        let key = ObjectKey::new(format!("{}", number % 1000), (number / 1000).to_string());
        fixture.store.put(Entry::new(key, Arc::new(0), 1), 1);
    }
    assert_eq!(
        fixture.list("500", &[0; 10]).copied,
        0,
        "nothing has changed"
    );
    let work = fixture.list("500", &[[0; 7].as_slice(), &[1; 3]].concat());
    assert!(
        work.copied <= 2 * 3,
        "at most the old and new chunk of each object: {work:?}"
    );
    assert!(fixture.list("500", &[]).copied <= 10);
}
