//! A double of guest memory for tests: every byte of it changes as soon as it has been read.
//!
//! A guest that rewrites its memory between two reads of ours seldom hits the moment, least of all on two cores. Here it
//! always does: a byte that was loaded for the first time is overwritten at once, with its complement or with what the
//! test wants, and the loads of each byte are counted. Whoever reads a field twice gets two values, and is counted.
//!
//! Only compiled with the feature `memory-double`. All loads of guest memory are hooked: those of rings
//! (`virtio/src/memory/area.rs`) and those of segments (`segment.rs`). A copy out of a segment counts as one load of each
//! byte, though a kernel may load some twice on the way: nobody looks at a copy before it is done.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::MemorySegment;

/// How many doubles there are: without any, a load costs one look at this.
static ARMED: AtomicUsize = AtomicUsize::new(0);
static DOUBLES: RwLock<Vec<Arc<Bytes>>> = RwLock::new(Vec::new());

/// A range of this process's addresses that changes behind every first read, for as long as this lives.
#[derive(Debug)]
pub struct Double(Arc<Bytes>);

#[derive(Debug)]
struct Bytes {
    start: usize,
    /// What each byte becomes; none: its complement.
    next: Option<Box<[u8]>>,
    loads: Box<[AtomicU32]>,
}

impl Double {
    /// Doubles the bytes of a segment: each becomes its complement.
    pub fn complement(segment: MemorySegment<'_>) -> Double {
        Self::arm(segment, None)
    }

    /// Doubles the bytes of a segment: they become those of `next`, as many as both have.
    pub fn becomes(segment: MemorySegment<'_>, next: &[u8]) -> Double {
        let len = next.len().min(segment.len() as usize);
        Self::arm(segment, Some(next[..len].into()))
    }

    fn arm(segment: MemorySegment<'_>, next: Option<Box<[u8]>>) -> Double {
        let len = next.as_ref().map_or(segment.len() as usize, |next| next.len());
        let loads = (0..len).map(|_| AtomicU32::new(0)).collect();
        let bytes = Arc::new(Bytes { start: segment.address(), next, loads });
        DOUBLES.write().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&bytes));
        ARMED.fetch_add(1, Ordering::SeqCst);
        Double(bytes)
    }

    /// How often each byte was loaded.
    pub fn loads(&self) -> Vec<u32> {
        self.0.loads.iter().map(|loads| loads.load(Ordering::SeqCst)).collect()
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        ARMED.fetch_sub(1, Ordering::SeqCst);
        // Once this is through, nobody is in the middle of `changed` for it.
        DOUBLES.write().unwrap_or_else(PoisonError::into_inner).retain(|bytes| !Arc::ptr_eq(bytes, &self.0));
    }
}

/// To be called after every load of `len` bytes of guest memory from `at` on, which are mapped and may be written.
#[inline]
pub fn loaded(at: *mut u8, len: usize) {
    if ARMED.load(Ordering::SeqCst) != 0 {
        changed(at, len);
    }
}

#[cold]
fn changed(at: *mut u8, len: usize) {
    for bytes in DOUBLES.read().unwrap_or_else(PoisonError::into_inner).iter() {
        let from = at.addr().max(bytes.start);
        let to = (at.addr() + len).min(bytes.start + bytes.loads.len());
        for address in from..to {
            let n = address - bytes.start;
            if bytes.loads[n].fetch_add(1, Ordering::SeqCst) > 0 {
                continue;
            }
            // SAFETY: the byte was just loaded, so it is mapped; it lies in guest memory, which is written by others at
            // any time and never borrowed by a Rust reference.
            let byte = unsafe { AtomicU8::from_ptr(at.wrapping_add(address - at.addr())) };
            let next = bytes.next.as_ref().map_or_else(|| !byte.load(Ordering::SeqCst), |next| next[n]);
            byte.store(next, Ordering::SeqCst);
        }
    }
}
