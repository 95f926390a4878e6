//! `entries.rs` and `buckets.rs` on the atomics of loom: two workers with one entry, in every order and
//! with every stale value that the memory model allows, up to a few changes of thread.

use loom::sync::Arc;
use loom::thread;

#[path = "buckets.rs"]
#[expect(clippy::duplicate_mod, dead_code, reason = "the test compiles the same source with other atomics")]
mod buckets;
#[path = "entries.rs"]
#[expect(clippy::duplicate_mod, dead_code, reason = "the test compiles the same source with other atomics")]
mod entries;
mod sync {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering};
    pub(super) use loom::thread::yield_now;

    pub(super) fn spin_loop() {
        yield_now();
    }

    pub(super) struct Line(pub(super) [AtomicU64; 8]);
    pub(super) struct TwoLines(pub(super) [AtomicU64; 16]);

    impl Default for Line {
        fn default() -> Self {
            Line(std::array::from_fn(|_| AtomicU64::new(0)))
        }
    }

    impl Default for TwoLines {
        fn default() -> Self {
            TwoLines(std::array::from_fn(|_| AtomicU64::new(0)))
        }
    }

    pub(super) fn zeroed<T: Default>(count: usize) -> Box<[T]> {
        (0..count).map(|_| T::default()).collect()
    }
}

use buckets::{Buckets, Hash};
use entries::{Entries, KEY, STATE};

/// Changes of thread where a thread could go on. Each further one multiplies the orders.
const CHANGES: usize = 2;

const OLD: [u64; KEY] = [1; KEY];
const NEW: [u64; KEY] = [2; KEY];
const OLD_STATE: [u64; STATE] = [10; STATE];
const NEW_STATE: [u64; STATE] = [20; STATE];
/// The words of the state that the tests look at.
const WORDS: [usize; 2] = [0, STATE - 1];

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(CHANGES);
    builder.check(test);
}

/// A worker has found a connection. Before it looks at the state, the connection ends, and another one
/// takes the entry. The worker gets the state of the connection that it looked for, or none, and what it
/// writes never gets into the other one.
#[test]
fn no_packet_gets_the_verdict_of_another_connection() {
    model(|| {
        let entries = Arc::new(Entries::new(1));
        entries.fill(0, &OLD, &OLD_STATE, 7);
        let control = thread::spawn({
            let entries = Arc::clone(&entries);
            move || {
                let tag = entries.tag(0).expect("it is live");
                entries.lock(0, tag).expect("nobody else ends it").end();
                entries.fill(0, &NEW, &NEW_STATE, 8);
            }
        });
        for (key, state, generation) in [(OLD, OLD_STATE, 7), (NEW, NEW_STATE, 8)] {
            let Some(tag) = entries.find(0, &key) else { continue };
            let Some(entry) = entries.lock(0, tag) else { continue };
            assert_eq!(entry.key(), key);
            assert_eq!(entry.tag().generation(), generation);
            assert_eq!(WORDS.map(|word| entry.get(word)), WORDS.map(|word| state[word]));
            if key == OLD {
                WORDS.iter().for_each(|word| entry.set(*word, 30));
            }
        }
        control.join().expect("control");
        let tag = entries.find(0, &NEW).expect("it is live");
        let entry = entries.lock(0, tag).expect("it is live");
        assert_eq!(WORDS.map(|word| entry.get(word)), WORDS.map(|word| NEW_STATE[word]));
    });
}

/// Two workers change one connection, and one of them the generation too. No change is lost.
#[test]
fn changes_of_two_workers_come_one_after_the_other() {
    model(|| {
        let entries = Arc::new(Entries::new(1));
        let tag = entries.fill(0, &OLD, &OLD_STATE, 7);
        let other = thread::spawn({
            let entries = Arc::clone(&entries);
            move || {
                let mut entry = entries.lock(0, tag).expect("it is live");
                WORDS.iter().for_each(|word| entry.set(*word, entry.get(*word) + 1));
                entry.set_generation(8);
            }
        });
        let entry = entries.lock(0, tag).expect("another generation is the same connection");
        WORDS.iter().for_each(|word| entry.set(*word, entry.get(*word) + 1));
        drop(entry);
        other.join().expect("a worker");
        assert_eq!(WORDS.map(|word| entries.peek(0, word)), [12; 2]);
        assert_eq!(entries.tag(0).expect("it is live").generation(), 8);
    });
}

/// A writer adds and removes an entry. A reader finds the other one of the same line all the time.
#[test]
fn places_of_other_connections_stay() {
    model(|| {
        let buckets = Arc::new(Buckets::new(1));
        let hash = |mark: u64| Hash(mark << 56);
        assert!(buckets.insert(hash(1), 11) && buckets.insert(hash(2), 22));
        let writer = thread::spawn({
            let buckets = Arc::clone(&buckets);
            move || {
                buckets.remove(hash(1), 11);
                assert!(buckets.insert(hash(3), 33));
            }
        });
        assert_eq!(buckets.guess(hash(2)), Some(22));
        let first = buckets.guess(hash(1));
        assert!([None, Some(11), Some(33)].contains(&first), "a hint may be wrong: {first:?}");
        writer.join().expect("the writer");
        assert_eq!(buckets.guess(hash(3)), Some(33));
        assert_eq!(buckets.guess(hash(1)), None);
    });
}
