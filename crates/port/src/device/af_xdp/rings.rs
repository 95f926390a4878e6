//! The four rings that an AF_XDP socket shares with the kernel.
//!
//! | ring | written by | entry |
//! |---|---|---|
//! | fill | us | address of a frame that the kernel may receive into |
//! | rx | the kernel | descriptor of a received frame |
//! | tx | us | descriptor of a frame to be sent |
//! | completion | the kernel | address of a frame that was sent |
//!
//! Each ring has one writer and one reader. The writer stores entries, then the producer index
//! (release). The reader loads the producer index (acquire), then entries, and stores the consumer
//! index (release) once it needs the entries no more. Both indexes run modulo 2^32, and the ring's
//! size is a power of two (`Documentation/networking/af_xdp.rst`, "Rings").
//!
//! Our own index is kept beside the ring and never read back. The kernel's index is read, and
//! checked: it may only advance, and never beyond what the other side has offered. A kernel that
//! breaks this rule breaks the ring ([`RingFault`]). Each entry is loaded once.
//!
//! This module does not know frames, sockets or packets.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::net::xdp::XdpRingOffset;

/// The flag by which the kernel asks for a system call (`XDP_RING_NEED_WAKEUP`).
const NEED_WAKEUP: u32 = 1;

/// `XDP_PKT_CONTD`: the packet goes on in the next descriptor.
const CONTINUED: u32 = 1;

/// A descriptor of the rx or tx ring (`struct xdp_desc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Desc {
    /// Offset of the first byte in the UMEM.
    pub(crate) addr: u64,
    /// Bytes.
    pub(crate) len: u32,
    /// The packet goes on in the next descriptor.
    pub(crate) continued: bool,
}

impl Desc {
    pub(crate) fn to_words(self) -> [u64; 2] {
        let [a, b, c, d] = self.len.to_ne_bytes();
        let [e, f, g, h] = if self.continued { CONTINUED } else { 0 }.to_ne_bytes();
        [self.addr, u64::from_ne_bytes([a, b, c, d, e, f, g, h])]
    }

    pub(crate) fn of_words([addr, rest]: [u64; 2]) -> Self {
        let [a, b, c, d, e, f, g, h] = rest.to_ne_bytes();
        let options = u32::from_ne_bytes([e, f, g, h]);
        Desc { addr, len: u32::from_ne_bytes([a, b, c, d]), continued: options & CONTINUED != 0 }
    }
}

/// The reason why a ring is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RingFault {
    /// The kernel's index is out of range.
    #[error("the kernel's ring index {found} is invalid: it must lie from {from} to {to}, modulo 2^32")]
    Index { found: u32, from: u32, to: u32 },
    /// The kernel has not read old entries, although it has returned their frames.
    #[error("the kernel's ring is full")]
    Full,
}

/// Returns `found` if it lies between `from` and `to`, modulo 2^32.
#[inline]
fn check_index(found: u32, from: u32, to: u32) -> Result<u32, RingFault> {
    let is_valid = found.wrapping_sub(from) <= to.wrapping_sub(from);
    if is_valid { Ok(found) } else { Err(RingFault::Index { found, from, to }) }
}

/// Memory that is shared with the kernel: a ring of a socket.
pub(crate) struct RingMemory {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is accessed by atomics only, and unmapped by the last owner.
unsafe impl Send for RingMemory {}
// SAFETY: as above.
unsafe impl Sync for RingMemory {}

impl fmt::Debug for RingMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RingMemory({} bytes)", self.len)
    }
}

impl RingMemory {
    /// Maps `len` bytes at an offset of a file. The offset in a socket names the ring
    /// (`XDP_PGOFF_RX_RING` and others).
    pub(crate) fn map(file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses. It replaces nothing.
        let at =
            unsafe { mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED | MapFlags::POPULATE, file, offset)? };
        // SAFETY: the range was mapped above. The advice keeps it out of child processes and does
        // not change its bytes. Best effort.
        let _ = unsafe { madvise(at, len, Advice::LinuxDontFork) };
        Ok(RingMemory { at: NonNull::new(at.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?, len })
    }

    /// Returns the address of the first byte, for the kernel.
    pub(crate) fn address(&self) -> u64 {
        self.at.as_ptr().expose_provenance() as u64
    }

    /// Returns memory of zeros that no kernel shares.
    #[cfg(test)]
    pub(crate) fn anonymous(len: usize) -> Self {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as in `map`.
        let at = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::SHARED) };
        RingMemory { at: NonNull::new(at.expect("memory").cast()).expect("not null"), len }
    }

    /// Returns whether `len` bytes at `offset`, which is a multiple of `align`, lie in the memory.
    fn has(&self, offset: usize, len: usize, align: usize) -> bool {
        offset.is_multiple_of(align) && offset.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// Returns the 32-bit word at `offset`.
    ///
    /// # Panics
    /// If there is none, which is a bug: [`Ring::new`] checks its offsets.
    #[inline]
    fn word32(&self, offset: usize) -> &AtomicU32 {
        assert!(self.has(offset, 4, 4));
        // SAFETY: the word lies in the mapping, which lives as long as `self`. The mapping begins
        // on a page, so the word is aligned. All accesses are atomic.
        unsafe { &*self.at.as_ptr().add(offset).cast::<AtomicU32>() }
    }

    /// Returns the 64-bit word at `offset`. It panics as [`Self::word32`] does.
    #[inline]
    fn word64(&self, offset: usize) -> &AtomicU64 {
        assert!(self.has(offset, 8, 8));
        // SAFETY: as in `word32`.
        unsafe { &*self.at.as_ptr().add(offset).cast::<AtomicU64>() }
    }
}

impl Drop for RingMemory {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and references into it borrow from this value.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// Offsets of a ring's parts in its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingLayout {
    pub(crate) producer: usize,
    pub(crate) consumer: usize,
    pub(crate) flags: usize,
    pub(crate) entries: usize,
}

impl RingLayout {
    /// Returns the layout that the kernel gives, or `None` for a kernel without ring flags (before
    /// Linux 5.4).
    pub(crate) fn of_kernel(offsets: XdpRingOffset) -> Option<Self> {
        Some(RingLayout {
            producer: offsets.producer.try_into().ok()?,
            consumer: offsets.consumer.try_into().ok()?,
            flags: offsets.flags?.try_into().ok()?,
            entries: offsets.desc.try_into().ok()?,
        })
    }

    /// Returns the length of the memory of a ring of `size` entries of `words` 64-bit words.
    pub(crate) fn memory_len(self, size: u32, words: usize) -> usize {
        self.entries + size as usize * words * 8
    }
}

/// A ring with entries of `W` 64-bit words.
#[derive(Clone, Debug)]
pub(crate) struct Ring<const W: usize> {
    memory: Arc<RingMemory>,
    layout: RingLayout,
    size: u32,
}

impl<const W: usize> Ring<W> {
    /// Returns the ring, or `None` if its parts do not lie in the memory or `size` is no power of
    /// two.
    pub(crate) fn new(memory: Arc<RingMemory>, layout: RingLayout, size: u32) -> Option<Self> {
        let RingLayout { producer, consumer, flags, entries } = layout;
        let fits = [producer, consumer, flags].iter().all(|&word| memory.has(word, 4, 4))
            && memory.has(entries, (size as usize).checked_mul(W * 8)?, 8)
            && size.is_power_of_two();
        fits.then_some(Ring { memory, layout, size })
    }

    #[inline]
    fn entry(&self, index: u32, word: usize) -> &AtomicU64 {
        let at = (index & (self.size - 1)) as usize * W + word;
        self.memory.word64(self.layout.entries + at * 8)
    }

    #[inline]
    fn load(&self, index: u32) -> [u64; W] {
        std::array::from_fn(|word| self.entry(index, word).load(Ordering::Relaxed))
    }

    #[inline]
    fn store(&self, index: u32, words: [u64; W]) {
        for (at, word) in words.into_iter().enumerate() {
            self.entry(index, at).store(word, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn producer(&self) -> &AtomicU32 {
        self.memory.word32(self.layout.producer)
    }

    #[inline]
    pub(crate) fn consumer(&self) -> &AtomicU32 {
        self.memory.word32(self.layout.consumer)
    }

    #[inline]
    pub(crate) fn flags(&self) -> &AtomicU32 {
        self.memory.word32(self.layout.flags)
    }
}

/// The writer's side of a ring. The ring must be new: all its indexes are 0.
#[derive(Debug)]
pub(crate) struct Producer<const W: usize> {
    ring: Ring<W>,
    /// Index of the next entry to be written.
    next: u32,
    /// Index of the first entry that the reader cannot see yet.
    submitted: u32,
    /// The reader's index as last read.
    consumer: u32,
}

impl<const W: usize> Producer<W> {
    pub(crate) fn new(ring: Ring<W>) -> Self {
        Producer { ring, next: 0, submitted: 0, consumer: 0 }
    }

    /// Returns the number of submitted entries that the reader has not taken yet.
    #[inline]
    pub(crate) fn pending(&mut self) -> Result<u32, RingFault> {
        self.look()?;
        Ok(self.submitted.wrapping_sub(self.consumer))
    }

    #[inline]
    fn look(&mut self) -> Result<(), RingFault> {
        // Acquire: the reader has loaded the entries before it advanced its index, so they may be
        // written again.
        let found = self.ring.consumer().load(Ordering::Acquire);
        self.consumer = check_index(found, self.consumer, self.submitted)?;
        Ok(())
    }

    /// Writes the next entry. The reader does not see it yet.
    ///
    /// # Errors
    /// The ring is full, or the reader's index is invalid.
    #[inline]
    pub(crate) fn push(&mut self, words: [u64; W]) -> Result<(), RingFault> {
        if self.next.wrapping_sub(self.consumer) == self.ring.size {
            self.look()?;
            if self.next.wrapping_sub(self.consumer) == self.ring.size {
                return Err(RingFault::Full);
            }
        }
        self.ring.store(self.next, words);
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Forgets the entries that were written since the last [`Self::submit`].
    pub(crate) fn rewind(&mut self) {
        self.next = self.submitted;
    }

    /// Shows the reader all entries that were written.
    #[inline]
    pub(crate) fn submit(&mut self) {
        self.submitted = self.next;
        // Release: the reader must see the entries, and the bytes that they name, before the index.
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// Returns whether the kernel asks for a system call to look at the ring.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        // The kernel sets the flag and then looks at the index once more. We store the index and
        // then look at the flag. So one side always sees the other, if no load overtakes our store.
        fence(Ordering::SeqCst);
        self.ring.flags().load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }
}

/// The reader's side of a ring. The ring must be new: all its indexes are 0.
#[derive(Debug)]
pub(crate) struct Consumer<const W: usize> {
    ring: Ring<W>,
    /// Index of the first entry that is not released.
    next: u32,
    /// The writer's index as last read.
    producer: u32,
}

impl<const W: usize> Consumer<W> {
    pub(crate) fn new(ring: Ring<W>) -> Self {
        Consumer { ring, next: 0, producer: 0 }
    }

    /// Returns the number of entries that can be read.
    #[inline]
    pub(crate) fn available(&mut self) -> Result<u32, RingFault> {
        // Acquire: the entries, and the bytes that they name, are read after the index.
        let found = self.ring.producer().load(Ordering::Acquire);
        self.producer = check_index(found, self.producer, self.next.wrapping_add(self.ring.size))?;
        Ok(self.producer.wrapping_sub(self.next))
    }

    /// Reads the entry that comes after `nth` others. It must be available.
    #[inline]
    pub(crate) fn peek(&self, nth: u32) -> [u64; W] {
        self.ring.load(self.next.wrapping_add(nth))
    }

    /// Gives the first `n` entries back to the writer. They must be available.
    #[inline]
    pub(crate) fn release(&mut self, n: u32) {
        debug_assert!(n <= self.producer.wrapping_sub(self.next), "the entries were available");
        self.next = self.next.wrapping_add(n);
        // Release: the entries were loaded before the writer may overwrite them.
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}
