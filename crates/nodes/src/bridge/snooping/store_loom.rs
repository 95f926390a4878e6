//! `store.rs` on the atomics of loom: a reader beside a writer that removes an entry and uses it again,
//! in every order, and with every stale value that the memory model allows.

use foldhash::fast::FixedState;
use loom::sync::Arc;
use loom::thread;

#[path = "store.rs"]
#[expect(clippy::duplicate_mod, dead_code, reason = "the test compiles the same source with other atomics")]
mod store;

mod sync {
    pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    /// One try of a reader shows all that a try can see.
    pub(super) const TRIES: u32 = 1;
}

use store::{Key, Read, Store};

/// The number of entries, and so of buckets.
const ENTRIES: usize = 2;

fn key(number: u64) -> Key {
    [number, 0, 0]
}

fn secret() -> FixedState {
    FixedState::with_seed(7)
}

/// Returns keys of the two buckets: three of one, one of the other.
fn keys() -> ([Key; 3], Key) {
    use std::hash::BuildHasher;
    let in_bucket = |bucket: u64| (1..).map(key).filter(move |key| secret().hash_one(key) % 2 == bucket);
    let mut first = in_bucket(0);
    let three = std::array::from_fn(|_| first.next().expect("a key"));
    (three, in_bucket(1).next().expect("a key"))
}

/// The keys of a model: one that stays, one that goes, and one that comes in its place.
#[derive(Clone, Copy)]
struct Keys {
    kept: Key,
    gone: Key,
    new: Key,
}

/// Runs a reader beside a writer that replaces `gone` by `new`. The entry of `gone` stands in front of
/// `kept` in the chain, and becomes the entry of `new`.
fn replaces(keys: Keys, read: impl Fn(&Store<FixedState>) + Sync + Send + 'static) {
    let Keys { kept, gone, new } = keys;
    loom::model(move || {
        let store = Arc::new(Store::new(ENTRIES, 1, secret()));
        store.insert(0, kept, 0);
        store.add_edge(0, (0, 1));
        store.insert(1, gone, 5);
        store.add_edge(1, (0, 2));
        let writer = thread::spawn({
            let store = Arc::clone(&store);
            move || {
                store.remove(gone);
                store.insert(1, new, 6);
                store.add_edge(1, (0, 4));
            }
        });
        read(&store);
        writer.join().expect("the writer");
        let mut set = [0];
        assert_eq!((store.read(kept, &mut set), set), (Read::Found(0), [1]));
        assert_eq!(store.read(gone, &mut set), Read::Absent);
        assert_eq!((store.read(new, &mut set), set), (Read::Found(6), [4]));
        assert_eq!((store.find(kept), store.find(gone), store.find(new)), (Some(0), None, Some(1)));
    });
}

/// Returns models in which the entry is used again in its own chain, and in another one. There a reader
/// may walk from one chain into the other.
fn models() -> [Keys; 2] {
    let ([kept, gone, same], other) = keys();
    [Keys { kept, gone, new: same }, Keys { kept, gone, new: other }]
}

#[test]
fn a_key_that_stays_is_always_found() {
    for keys in models() {
        replaces(keys, move |store| {
            let mut set = [0];
            match store.read(keys.kept, &mut set) {
                Read::Found(0) => assert_eq!(set, [1]),
                Read::Busy => {}
                other => panic!("{other:?}"),
            }
        });
    }
}

#[test]
fn a_key_that_goes_has_its_own_set_or_none() {
    for keys in models() {
        replaces(keys, move |store| {
            let mut set = [0];
            match store.read(keys.gone, &mut set) {
                Read::Found(5) => assert_eq!(set, [2]),
                Read::Absent | Read::Busy => {}
                other @ Read::Found(_) => panic!("{other:?}"),
            }
        });
    }
}
