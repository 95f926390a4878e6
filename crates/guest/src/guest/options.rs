//! Options of a guest, and its memory.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use straightline_virtio::features as f;
use straightline_virtio::vhost_user::MAX_QUEUE_PAIRS;

/// Bytes reserved for each ring: enough for 1024 entries.
pub(crate) const RING_ROOM: u64 = 64 << 10;

/// The part of a memory file that a guest uses. The backend maps the entire file.
#[derive(Clone, Debug)]
pub struct MemoryPlacement {
    /// The file, which several guests may share.
    pub file: Arc<OwnedFd>,
    /// The offset of the guest's part, which is zeroed: a multiple of 4096. The part has
    /// [`GuestOptions::memory_len`] bytes.
    pub offset: u64,
}

/// Options of a guest.
#[derive(Clone, Debug)]
pub struct GuestOptions {
    /// The features that the guest accepts. The negotiated features determine the ring layout.
    pub features: u64,
    /// Number of queue pairs: a receive ring and a transmit ring each. The backend must offer at
    /// least this number.
    pub queue_pairs: u16,
    /// Entries of each ring: a power of two, at most 1024.
    pub ring_size: u16,
    /// Bytes of each buffer, header included.
    pub buffer_len: u32,
    /// Bytes of a receive buffer in each descriptor; 0: one descriptor for the entire buffer.
    pub receive_split: u32,
    /// True to keep receive buffers until [`give`](super::Pair::give) is called.
    pub withhold: bool,
    /// The guest's memory in a shared file; `None`: a file of its own.
    pub place: Option<MemoryPlacement>,
    /// True to keep a table of buffers in flight (INFLIGHT_SHMFD) for the next backend.
    pub keep_inflight: bool,
    /// Time limit for the backend to answer a request, or to connect if the guest listens.
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
    /// Returns the bytes of memory that such a guest needs: its rings and its buffers.
    pub fn memory_len(&self) -> u64 {
        u64::from(self.queue_pairs) * self.pair_len()
    }

    /// Returns the bytes of memory for each queue pair.
    pub(super) fn pair_len(&self) -> u64 {
        let buffers = 2 * u64::from(self.ring_size) * u64::from(self.buffer_len);
        2 * RING_ROOM + buffers.next_multiple_of(4096)
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.ring_size.is_power_of_two() && self.ring_size <= 1024,
            "{} ring entries are not possible: use a power of two, at most 1024",
            self.ring_size
        );
        ensure!(
            (1..=MAX_QUEUE_PAIRS).contains(&self.queue_pairs),
            "{} queue pairs are not possible: use 1 to {MAX_QUEUE_PAIRS}",
            self.queue_pairs
        );
        Ok(())
    }

    /// Returns the features to negotiate.
    pub(super) fn wanted(&self) -> u64 {
        self.features | if self.queue_pairs > 1 { f::VIRTIO_NET_F_MQ } else { 0 }
    }
}

/// Makes a memory file of this many bytes, all zeros.
///
/// # Errors
/// The system call failed.
pub fn memory_file(len: u64) -> anyhow::Result<OwnedFd> {
    let file = memfd_create("straightline-guest", MemfdFlags::CLOEXEC).context("cannot make guest memory")?;
    // Cites packed-2.8.13-2.
    ftruncate(&file, len).context("cannot size guest memory")?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;

    use super::*;

    // Cites packed-2.8.13-2.
    #[test]
    fn memory_begins_with_zeros() {
        let len = GuestOptions::default().memory_len();
        let mut bytes = Vec::new();
        File::from(memory_file(len).expect("memory")).read_to_end(&mut bytes).expect("its bytes");
        assert_eq!(u64::try_from(bytes.len()).expect("64 bits"), len);
        assert!(bytes.iter().all(|&byte| byte == 0));
    }
}
