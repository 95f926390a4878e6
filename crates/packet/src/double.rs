//! A test double of guest memory: every byte changes as soon as it has been read.
//!
//! A guest that rewrites its memory rarely does so exactly between two reads of the switch, least
//! of all on two cores. The double always does. After the first load of a byte, the double
//! overwrites it, with its complement or with a value that the test chooses. It also counts the
//! loads of each byte. Code that reads a field twice gets two values, and the count shows it.
//!
//! This module is only compiled with the feature `memory-double`. It hooks all loads of guest
//! memory: accesses to rings (`virtio/src/memory/area.rs`) and to memory segments (`segment.rs`). A
//! copy out of a segment counts as one load of each byte. A kernel may load some bytes twice for
//! such a copy, but no code looks at a copy before it is done.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

use crate::{IgnorePoison, MemorySegment};

/// Number of doubles. As long as there are none, a load costs one read of this.
static ARMED: AtomicUsize = AtomicUsize::new(0);
static DOUBLES: RwLock<Vec<Arc<Bytes>>> = RwLock::new(Vec::new());

/// A range of addresses of this process whose bytes change after their first load, until the double
/// is dropped.
#[derive(Debug)]
pub struct Double(Arc<Bytes>);

#[derive(Debug)]
struct Bytes {
    start: usize,
    /// Value of each byte after its first load. `None`: its complement.
    next: Option<Box<[u8]>>,
    loads: Box<[AtomicU32]>,
}

impl Double {
    /// Makes a double of a segment's bytes. After its first load, each byte becomes its complement.
    pub fn complement(segment: MemorySegment<'_>) -> Double {
        Self::arm(segment, None)
    }

    /// Makes a double of a memory segment's bytes. After its first load, each byte is replaced by
    /// the byte of `next` at the same position. The double is as long as the shorter of the two.
    pub fn becomes(segment: MemorySegment<'_>, next: &[u8]) -> Double {
        let len = next.len().min(segment.len() as usize);
        Self::arm(segment, Some(next[..len].into()))
    }

    fn arm(segment: MemorySegment<'_>, next: Option<Box<[u8]>>) -> Double {
        let len = next.as_ref().map_or(segment.len() as usize, |next| next.len());
        let loads = (0..len).map(|_| AtomicU32::new(0)).collect();
        let bytes = Arc::new(Bytes { start: segment.address(), next, loads });
        DOUBLES.write().ignore_poison().push(Arc::clone(&bytes));
        ARMED.fetch_add(1, Ordering::SeqCst);
        Double(bytes)
    }

    /// Returns the number of loads of each byte.
    pub fn loads(&self) -> Vec<u32> {
        self.0.loads.iter().map(|loads| loads.load(Ordering::SeqCst)).collect()
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        ARMED.fetch_sub(1, Ordering::SeqCst);
        // With the lock held, no thread is within `changed` for this double.
        DOUBLES.write().ignore_poison().retain(|bytes| !Arc::ptr_eq(bytes, &self.0));
    }
}

/// Changes bytes of a double that have just been loaded. It must be called after every load of
/// `len` bytes of guest memory from `at` on. The bytes are mapped and may be written.
#[inline]
pub fn loaded(at: *mut u8, len: usize) {
    if ARMED.load(Ordering::SeqCst) != 0 {
        changed(at, len);
    }
}

#[cold]
fn changed(at: *mut u8, len: usize) {
    for bytes in DOUBLES.read().ignore_poison().iter() {
        let from = at.addr().max(bytes.start);
        let to = (at.addr() + len).min(bytes.start + bytes.loads.len());
        for address in from..to {
            let n = address - bytes.start;
            if bytes.loads[n].fetch_add(1, Ordering::SeqCst) > 0 {
                continue;
            }
            // SAFETY: the byte was just loaded, so it is mapped. It lies in guest memory, which
            // guests write at any time and which no Rust reference borrows.
            let byte = unsafe { AtomicU8::from_ptr(at.wrapping_add(address - at.addr())) };
            let next = bytes.next.as_ref().map_or_else(|| !byte.load(Ordering::SeqCst), |next| next[n]);
            byte.store(next, Ordering::SeqCst);
        }
    }
}
