//! How much of the store a list touches: counted, not timed.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What one list has cost.
#[derive(Debug, PartialEq)]
struct Work {
    changes: usize,
    /// Objects that were there, and were looked at.
    looked_at: usize,
    /// Those that were compared with new ones.
    compared: usize,
    /// Calls of the user's index function.
    indexed: usize,
    /// Chunks that are others now.
    copied: usize,
}

/// So many namespaces of ten objects each.
struct Crowd {
    store: Store<u32>,
    indexed: Arc<AtomicUsize>,
}

impl Crowd {
    fn new(namespaces: usize) -> Self {
        let (store, indexed) = (Store::default(), Arc::<AtomicUsize>::default());
        let counted = indexed.clone();
        store.add_index(move |object: &Arc<u32>| {
            counted.fetch_add(1, Relaxed);
            vec![**object]
        });
        let crowd = Self { store, indexed };
        for number in 0..namespaces {
            crowd.list(&number.to_string(), &[0; 10]);
        }
        crowd
    }

    /// The objects of a namespace are these.
    fn list(&self, namespace: &str, objects: &[u32]) -> Work {
        let name = |(number, object): (usize, &u32)| {
            Entry::new(ObjectKey::new(namespace, &number.to_string()), Arc::new(*object), 1)
        };
        let entries = objects.iter().enumerate().map(name).collect();
        let before = self.store.snapshot();
        let looked_at = self.store.looked_at.load(Relaxed);
        let (compared, indexed) = (Cell::new(0), self.indexed.load(Relaxed));
        let is_same = |a: &u32, b: &u32| {
            compared.set(compared.get() + 1);
            a == b
        };
        let changes = self.store.replace(About::Namespace(namespace), entries, &[], 1, is_same).len();
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
fn what_a_list_of_one_namespace_costs_does_not_depend_on_how_many_others_there_are() {
    let work = |namespaces| {
        let crowd = Crowd::new(namespaces);
        let join = crowd.list("new", &[1; 10]);
        let again = crowd.list("new", &[1; 10]);
        let relist = crowd.list("new", &[[1; 9].as_slice(), &[2]].concat());
        let leave = crowd.list("new", &[]);
        assert_eq!(crowd.store.len(), 10 * namespaces);
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
    assert_eq!(few, [[10, 0, 0, 10, 1], [0, 10, 10, 0, 0], [1, 10, 10, 2, 1], [10, 10, 0, 10, 1]].map(cost));
    assert_eq!(work(1000), few);
}

/// A namespace that was filled among others is in many chunks: no more are copied than it has objects in.
#[test]
fn only_the_chunks_of_what_changes_are_copied() {
    let crowd = Crowd::new(0);
    for number in 0..10_000 {
        let key = ObjectKey::new(&format!("{}", number % 1000), &(number / 1000).to_string());
        crowd.store.put(Entry::new(key, Arc::new(0), 1), 1);
    }
    assert_eq!(crowd.list("500", &[0; 10]).copied, 0, "nothing has changed");
    let work = crowd.list("500", &[[0; 7].as_slice(), &[1; 3]].concat());
    assert!(work.copied <= 2 * 3, "where they were, and where they are: {work:?}");
    assert!(crowd.list("500", &[]).copied <= 10);
}
