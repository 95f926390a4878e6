//! Memory used in place of guest memory, and arenas to run turns in.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::sync::Arc;

use straightline_packet::{Arena, Drops, Level, MemorySegment, Rcu, Settings};

/// Bytes that are only reached through pointers, like guest memory. The memory outlives every turn
/// of a test.
pub struct Memory {
    at: *mut u8,
    len: usize,
}

// SAFETY: it owns its bytes, and it has no state beside them.
unsafe impl Send for Memory {}
// SAFETY: a shared reference gives segments only, and any thread may read and write guest memory.
unsafe impl Sync for Memory {}

impl Memory {
    /// Creates memory with these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        let bytes: Box<[u8]> = bytes.into();
        let len = bytes.len();
        Memory { at: Box::into_raw(bytes).cast(), len }
    }

    /// Creates memory with bytes that repeat only after 251.
    pub fn patterned(len: usize) -> Self {
        Self::new(&pattern(len))
    }

    /// Returns `len` bytes from `at` as a segment.
    pub fn segment<'t>(&self, at: usize, len: usize) -> MemorySegment<'t> {
        assert!(at <= self.len && len <= self.len - at);
        // SAFETY: within the allocation, which lives until the test drops this, after its turn; no
        // reference to the bytes is ever made.
        unsafe { MemorySegment::new(self.at.add(at), u32::try_from(len).expect("a small test")) }
    }

    /// Returns all of the memory as segments of the lengths in `cuts`, which may be 0. The last
    /// segment has the rest.
    pub fn cut<'t>(&self, cuts: &[usize]) -> Vec<MemorySegment<'t>> {
        let mut at = 0;
        let mut segments = Vec::new();
        for &cut in cuts {
            let n = cut.min(self.len - at);
            segments.push(self.segment(at, n));
            at += n;
        }
        segments.push(self.segment(at, self.len - at));
        segments
    }

    /// Returns a copy of all bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.segment(0, self.len).read(Level::Scalar, &mut bytes);
        bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the pointer and the length come from the box that `new` took apart.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.at, self.len)) });
    }
}

/// Returns bytes that repeat only after 251.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..251_u8).cycle().map(|b| b.wrapping_mul(7).wrapping_add(3)).take(len).collect()
}

/// Returns an arena whose drops nobody counts.
pub fn arena(settings: Settings) -> Arena {
    arena_with_drops(settings, Vec::new())
}

/// Returns an arena that counts the drops of each port.
pub fn arena_with_drops(settings: Settings, drops: Vec<Arc<Drops>>) -> Arena {
    Arena::new(Rcu::new().reader(), settings, drops)
}
