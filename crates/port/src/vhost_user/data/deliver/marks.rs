//! Marks in the dirty log of a guest that is being migrated.

use straightline_packet::MemorySegment;
use straightline_virtio::memory::{GuestMemory, Marks};

/// Marks the first `len` bytes of the buffers, which were written.
pub(super) fn mark(marks: &Marks<'_>, memory: &GuestMemory, buffers: &[MemorySegment<'_>], mut len: u32) {
    for &buffer in buffers {
        let written = buffer.split_at(len).0;
        len -= written.len();
        match memory.guest_addr(written) {
            // Cites vhost-user-migration-2.
            Some(addr) => marks.mark(addr, written.len().into()),
            None => marks.missed(),
        }
    }
}
