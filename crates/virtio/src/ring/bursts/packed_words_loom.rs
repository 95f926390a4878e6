//! `packed_words.rs` on loom's atomics: a driver and a device in every order, and with every stale
//! value that the memory model allows.

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::thread;

use super::{Buffers, RingState};
use crate::ring::packed_device::{AVAIL, USED, is_available};

#[path = "packed_words.rs"]
#[expect(clippy::duplicate_mod, reason = "the test compiles the same source with other atomics")]
mod packed_words;

mod sync {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering};
}

use packed_words::{Burst, used};
use sync::AtomicU64;

/// Two descriptors, of two words each.
type Table = [AtomicU64; 4];

fn flags(word: u64) -> u16 {
    let [.., low, high] = word.to_le_bytes();
    u16::from_le_bytes([low, high])
}

/// A device that sees the first descriptor of a burst sees all of it.
// Cites packed-2.8.21.1.1-1.
#[test]
fn a_burst_is_complete_once_its_first_descriptor_is_available() {
    loom::model(|| {
        let table = Arc::new(Table::default());
        let driver = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let state = RingState::new(2, false, Buffers::Transmit);
                let mut burst = Burst::new(&table[..]);
                burst.put(&state, 0, 0, 0x1000, 60);
                burst.put(&state, 1, 1, 0x2000, 61);
                burst.publish();
            })
        };
        if is_available(flags(table[1].load(Acquire)), true) {
            assert_eq!(table[0].load(Relaxed), 0x1000);
            assert_eq!(table[2].load(Relaxed), 0x2000);
            let second = table[3].load(Relaxed);
            assert!(is_available(flags(second), true));
            assert_eq!(second & 0xffff_ffff, 61);
        }
        driver.join().expect("the driver ends");
    });
}

/// A driver that sees a used descriptor sees the bytes that the device wrote before.
// Cites packed-2.8.22-3.
#[test]
fn a_used_buffer_holds_what_the_device_wrote() {
    loom::model(|| {
        let table = Arc::new(Table::default());
        let buffer = Arc::new(AtomicU64::new(0));
        let device = {
            let table = Arc::clone(&table);
            let buffer = Arc::clone(&buffer);
            thread::spawn(move || {
                buffer.store(7, Relaxed);
                table[1].store(u64::from(AVAIL | USED) << 48 | 5 << 32, Release);
            })
        };
        let state = RingState::new(2, false, Buffers::Receive(2048));
        if let Some((id, _)) = used(&table[..], &state, 0) {
            assert_eq!((id, buffer.load(Relaxed)), (5, 7));
        }
        device.join().expect("the device ends");
    });
}
