//! `slots.rs` on the atomics of loom: a reader beside a writer that moves and replaces stations, in
//! every order, and with every stale value that the memory model allows.

use foldhash::fast::FixedState;
use loom::sync::Arc;
use loom::thread;
use straightline_wire::{MacAddr, VlanId};

use crate::word::{self, Layout, Station};

#[path = "slots.rs"]
#[expect(clippy::duplicate_mod, dead_code, reason = "the test compiles the same source with other atomics")]
mod slots;

mod sync {
    pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

use slots::Slots;

/// The number of stations of the table: the fewest slots, because loom watches each.
const STATIONS: usize = 16;

fn hash() -> FixedState {
    FixedState::with_seed(7)
}

/// Returns stations that begin at one slot, so that they stand in a row.
fn row(count: usize) -> Vec<Station> {
    let layout = Layout::new(STATIONS * 5 / 2, 4, &hash());
    let keys = (0_u16..).map(|n| {
        let [high, low] = n.to_be_bytes();
        Station::new(VlanId::new(1 + n % 3).expect("a VLAN"), MacAddr([2, 0, 0, 0, high, low]))
    });
    let first = layout.home(keys.clone().next().expect("a key")).0;
    keys.filter(|key| layout.home(*key).0 == first).take(count).collect()
}

/// The writer removes the first station of a row, so that the others move, and puts another one into
/// the slot that becomes free. The reader finds each station at its own port, or not at all.
#[test]
fn a_reader_takes_no_station_for_another() {
    let row = row(4);
    loom::model(move || {
        let table = Arc::new(Slots::new(STATIONS, 4, &hash()));
        for (key, port) in row[..3].iter().zip(0..) {
            assert!(table.insert(*key, port, 0));
        }
        let writer = thread::spawn({
            let table = Arc::clone(&table);
            let row = row.clone();
            move || {
                let first = table.find(row[0]).expect("it is there");
                table.remove(first, |_, _| ());
                assert!(table.insert(row[3], 3, 0));
            }
        });
        for (key, port) in row.iter().zip(0_u16..4).rev() {
            if let Some(found) = table.find(*key) {
                assert_eq!(table.port(found), port);
                assert_eq!(table.key(found), *key);
            }
        }
        writer.join().expect("the writer");
        let ports = row.iter().map(|key| table.find(*key).map(|found| table.port(found)));
        assert_eq!(ports.collect::<Vec<_>>(), [None, Some(1), Some(2), Some(3)]);
    });
}
