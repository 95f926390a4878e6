//! How a guest is made, and the memory that it lives in.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use straightline_virtio::features as f;
use straightline_virtio::vhost_user::MAX_QUEUE_PAIRS;

/// Bytes set aside for each ring: enough for 1024 entries.
pub(crate) const RING_ROOM: u64 = 64 << 10;

/// A part of a memory file that a guest is to live in. The backend is shown the whole file.
#[derive(Clone, Debug)]
pub struct MemoryPlacement {
    /// The file, shared with whoever else lives in it.
    pub file: Arc<OwnedFd>,
    /// Where the guest's own part begins, all zeros, at a multiple of 4096; it is [`GuestOptions::memory_len`] long.
    pub offset: u64,
}

/// How a guest is made.
#[derive(Clone, Debug)]
pub struct GuestOptions {
    /// What it would take of what is offered. The layout of its rings follows from what is agreed.
    pub features: u64,
    /// Pairs of a receive and a transmit ring; more than one need a backend that offers so many.
    pub queue_pairs: u16,
    /// Entries in each ring: a power of two, at most 1024.
    pub ring_size: u16,
    /// Bytes in each buffer, header included.
    pub buffer_len: u32,
    /// Bytes of a receive buffer in each descriptor; 0: the whole buffer in one.
    pub receive_split: u32,
    /// Whether it keeps its receive buffers until it is told to [`give`](super::Pair::give) them.
    pub withhold: bool,
    /// Where it lives, if not in a file of its own.
    pub place: Option<MemoryPlacement>,
    /// Whether it keeps a table of what is in flight for a backend that comes back (INFLIGHT_SHMFD).
    pub keep_inflight: bool,
    /// How long the backend may take to answer a request, or to connect where it is the one that does.
    pub patience: Duration,
}

impl Default for GuestOptions {
    fn default() -> Self {
        GuestOptions {
            features: f::VIRTIO_F_VERSION_1 | f::VIRTIO_F_EVENT_IDX | f::VIRTIO_NET_F_MRG_RXBUF,
            queue_pairs: 1,
            ring_size: 256,
            buffer_len: 2048,
            receive_split: 0,
            withhold: false,
            place: None,
            keep_inflight: false,
            patience: Duration::from_secs(20),
        }
    }
}

impl GuestOptions {
    /// Bytes of memory that such a guest needs: its rings and its buffers.
    pub fn memory_len(&self) -> u64 {
        u64::from(self.queue_pairs) * self.pair_len()
    }

    /// Bytes of memory for each queue pair.
    pub(super) fn pair_len(&self) -> u64 {
        let buffers = 2 * u64::from(self.ring_size) * u64::from(self.buffer_len);
        2 * RING_ROOM + buffers.next_multiple_of(4096)
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.ring_size.is_power_of_two() && self.ring_size <= 1024,
            "a ring has a power of two of entries, at most 1024: not {}",
            self.ring_size
        );
        ensure!(
            (1..=MAX_QUEUE_PAIRS).contains(&self.queue_pairs),
            "a guest has 1 to {MAX_QUEUE_PAIRS} queue pairs: not {}",
            self.queue_pairs
        );
        Ok(())
    }

    /// The features to agree on.
    pub(super) fn wanted(&self) -> u64 {
        self.features | if self.queue_pairs > 1 { f::VIRTIO_NET_F_MQ } else { 0 }
    }
}

/// A memory file of this many bytes, all zeros.
///
/// # Errors
/// What the system says.
pub fn memory_file(len: u64) -> anyhow::Result<OwnedFd> {
    let file = memfd_create("straightline-guest", MemfdFlags::CLOEXEC).context("cannot make guest memory")?;
    ftruncate(&file, len).context("cannot size guest memory")?;
    Ok(file)
}
