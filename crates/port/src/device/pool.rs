//! Memory of the switch that the kernel writes packets into, lent to turns.
//!
//! ```text
//! turn:   space(n) ── the kernel stores a packet ── keep(n)      the packet has a body
//!                                                └─ (nothing)    all of it fits its slot
//! end:    give_back: once no turn has any of it, all memory is free again
//! ```
//!
//! Packets lie one behind the other. So a burst of short packets touches few cache lines, and the
//! next burst touches the same lines again.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use straightline_packet::{IgnorePoison, MemorySegment};

/// Bytes of a cache line.
const LINE: usize = 64;

/// Memory that is lent to the turns of a queue's worker.
pub(crate) struct Pool {
    at: NonNull<u8>,
    len: usize,
    state: Mutex<State>,
}

/// The part of a pool that turns have.
#[derive(Debug, Default)]
struct State {
    /// Bytes in use, from the beginning.
    used: usize,
    /// Turns that have any of these bytes. A queue that moves to another worker can have two turns
    /// for a moment.
    turns: usize,
}

// SAFETY: the pool owns the mapping. Its bytes are only reached through `MemorySegment`s, which
// allow every thread to access them.
unsafe impl Send for Pool {}
// SAFETY: as above. The lock protects the state.
unsafe impl Sync for Pool {}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Pool {
    /// Creates a pool of `len` bytes, which must not be 0. The system provides a page when it is
    /// first used.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address that the kernel chooses; nothing else changes.
        let at = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            mmap_anonymous(std::ptr::null_mut(), len, access, flags)?
        };
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Pool { at, len, state: Mutex::default() })
    }

    /// Returns `len` bytes from offset `from` on, or `None` if the pool is shorter.
    ///
    /// The segment may overlap others. Their bytes are then unspecified, as with all memory that
    /// others may write.
    pub(crate) fn segment(&self, from: usize, len: u32) -> Option<MemorySegment<'_>> {
        if from.checked_add(len as usize)? > self.len {
            return None;
        }
        // SAFETY: the range was checked. The mapping lives as long as the pool, which is borrowed
        // for the segment's lifetime. No reference to its bytes is ever made.
        Some(unsafe { MemorySegment::new(self.at.as_ptr().add(from), len) })
    }

    /// Begins to lend memory to a turn.
    pub(crate) fn lend(&self) -> Lending<'_> {
        Lending { pool: self, state: self.lock(), begun: false }
    }

    /// Takes back the memory of one turn, for which [`Lending::begin`] was called.
    pub(crate) fn give_back(&self) {
        let mut state = self.lock();
        state.turns = state.turns.saturating_sub(1);
        if state.turns == 0 {
            state.used = 0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the pool made the mapping and owns it. No segment outlives the pool's borrow.
        // The call cannot fail for a mapping of this process.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// The memory that a turn borrows.
pub(crate) struct Lending<'p> {
    pool: &'p Pool,
    state: MutexGuard<'p, State>,
    begun: bool,
}

impl<'p> Lending<'p> {
    /// Notes that the turn keeps memory, and must give it back at its end. Returns `true` the first
    /// time.
    pub(crate) fn begin(&mut self) -> bool {
        let first = !std::mem::replace(&mut self.begun, true);
        self.state.turns += usize::from(first);
        first
    }

    /// Returns whether no turn has any memory of the pool.
    pub(crate) fn is_free(&self) -> bool {
        self.state.turns == 0
    }

    /// Returns the next `len` free bytes, of which the byte at `aligned` begins a cache line.
    /// `None` if the pool has too few. Until [`Self::keep`] is called, they stay free.
    pub(crate) fn space(&self, len: u32, aligned: usize) -> Option<MemorySegment<'p>> {
        self.pool.segment(self.state.used + lead(aligned), len)
    }

    /// Keeps the first `len` bytes of the last [`Self::space`].
    pub(crate) fn keep(&mut self, len: u32, aligned: usize) {
        let end = self.state.used + lead(aligned) + len as usize;
        self.state.used = end.next_multiple_of(LINE).min(self.pool.len);
    }
}

/// Returns the number of bytes to skip before a space, so that its byte at `aligned` begins a cache
/// line.
const fn lead(aligned: usize) -> usize {
    aligned.next_multiple_of(LINE) - aligned
}

#[cfg(test)]
mod tests {
    use straightline_packet::Level;

    use super::*;

    #[test]
    fn kept_spaces_do_not_overlap_and_the_others_are_used_again() {
        let pool = Pool::new(4096).expect("mapped");
        let mut lending = pool.lend();
        let first = lending.space(100, 12).expect("free");
        assert_eq!((first.address() + 12) % LINE, 0);
        assert_eq!(lending.space(100, 12).expect("free").address(), first.address());
        lending.keep(100, 12);
        let second = lending.space(100, 12).expect("free");
        assert!(second.address() >= first.address() + 100);
        assert!(second.address() < first.address() + 100 + 2 * LINE);
        first.write(Level::Scalar, &[1; 100]);
        second.write(Level::Scalar, &[2; 100]);
        let mut read = [0; 100];
        first.read(Level::Scalar, &mut read);
        assert_eq!(read, [1; 100]);
        assert!(lending.space(4000, 12).is_none());
        assert!(pool.segment(4000, 96).is_some() && pool.segment(4000, 97).is_none());
        assert!(pool.segment(usize::MAX, 1).is_none());
    }

    #[test]
    fn memory_is_free_again_once_no_turn_has_any_of_it() {
        let pool = Pool::new(4096).expect("mapped");
        let take = || {
            let mut lending = pool.lend();
            let at = lending.space(100, 0).expect("free").address();
            assert!(lending.begin() && !lending.begin());
            lending.keep(100, 0);
            at
        };
        let first = take();
        let second = take();
        assert_ne!(first, second);
        pool.give_back();
        assert_ne!(take(), first, "another turn has it");
        pool.give_back();
        pool.give_back();
        assert_eq!(take(), first);
    }
}
