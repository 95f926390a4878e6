//! What a message asks of whoever serves the session, and what is said of how that went.

use std::os::fd::OwnedFd;

use super::super::message::{InflightSpec, RegionSpec};
#[cfg(doc)]
use super::{RingSetup, Session};

/// What the caller has to do before it calls [`Session::reply`].
#[derive(Debug)]
pub enum Effect {
    /// Nothing.
    None,
    /// Replace the whole memory table; it may be empty. Rings that were resolved against the old one must be resolved
    /// again, and those that are no longer [ready](Session::ready) stop.
    Memory(Vec<RegionFd>),
    /// Add a region to the table.
    AddRegion(RegionFd),
    /// Take a region out of the table. A ring that lies in it is no longer ready and stops.
    RemoveRegion(RegionSpec),
    /// From here on writes to guest memory are marked in this log, if and as long as `VHOST_F_LOG_ALL` is acknowledged.
    /// It takes the place of the one before.
    Log(LogFd),
    /// These features are acknowledged; look at [`Session::refusal`]. Every ring may have become enabled.
    Features(u64),
    /// A ring's set-up changed: look at [`Session::ring`] and [`Session::ready`].
    Ring(u16),
    /// Stop a ring, and answer with [`Outcome::RingBase`]: where it would go on.
    StopRing(u16),
    /// Every ring is disabled (RESET_OWNER).
    DisableRings,
    /// Stop every ring (SET_STATUS with 0). QEMU 7.2 asks only afterwards where they stand, to go on there, when it stops
    /// or moves its guest: see [`Session::stopped_at`].
    StopRings,
    /// Stop every ring: the device is reset (RESET_DEVICE). The memory table stays.
    Reset,
    /// The driver's progress (virtio 1.3, section 2.1); never 0.
    Status(u8),
    /// The frontend tells the guest this MTU. [`Outcome::Failed`] if it cannot be had.
    Mtu(u16),
    /// Announce this MAC address: its guest has just moved here.
    Rarp([u8; 6]),
    /// Make a table of buffers in flight for rings of the layout that is negotiated, and answer with
    /// [`Outcome::Inflight`]; its file goes beside the answer. Without one the frontend keeps nothing.
    MakeInflight(InflightSpec),
    /// Go on by this table, which the frontend has kept. Of rings that run already it says nothing, and keeps it from here
    /// on.
    KeepInflight(InflightSpec, OwnedFd),
    /// Write the device's state to this channel and close it ("Migrating back-end state"). Every ring is stopped. The
    /// frontend reads once it has the answer; what went wrong later is for [`Effect::CheckState`]. A transfer that was
    /// under way ends.
    SaveState(OwnedFd),
    /// Read the device's state from this channel until its end, which may come after the answer; as above.
    LoadState(OwnedFd),
    /// [`Outcome::Done`] if the last transfer was whole and, for one that was loaded, the device will go on by it.
    CheckState,
}

/// A dirty log with its file.
#[derive(Debug)]
pub struct LogFd {
    /// Bytes, not 0. Whether the file has as many is not checked here, nor whether they suffice for the memory.
    pub size: u64,
    /// Where it begins in the file; `offset + size` does not overflow.
    pub offset: u64,
    /// The file.
    pub fd: OwnedFd,
}

/// A memory region with its file.
#[derive(Debug)]
pub struct RegionFd {
    /// Guest physical address of the first byte.
    pub guest_addr: u64,
    /// Bytes, not 0. Whether the file has as many is not checked here.
    pub size: u64,
    /// Address of the first byte in the frontend's process.
    pub user_addr: u64,
    /// Where the region begins in the file; `mmap_offset + size` does not overflow.
    pub mmap_offset: u64,
    /// The file.
    pub fd: OwnedFd,
}

impl RegionFd {
    pub(super) fn new(spec: RegionSpec, fd: OwnedFd) -> Self {
        let RegionSpec { guest_addr, size, user_addr, mmap_offset } = spec;
        Self { guest_addr, size, user_addr, mmap_offset, fd }
    }

    /// The region without its file.
    pub fn spec(&self) -> RegionSpec {
        let Self { guest_addr, size, user_addr, mmap_offset, .. } = *self;
        RegionSpec { guest_addr, size, user_addr, mmap_offset }
    }
}

/// How carrying out an effect went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// As it should.
    Done,
    /// It did not, and nothing has changed: a failed memory effect leaves the old table in place here as in the
    /// session, failed features the old ones, and a ring whose set-up failed is stopped until it is set up again.
    Failed,
    /// The ring is stopped, and this is its position in the form of [`RingSetup::base`].
    RingBase(u32),
    /// The table of buffers in flight has so many bytes, from the start of its file on.
    Inflight(u64),
}

/// What to do about a message that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// Send these bytes, which say that it failed, and go on.
    Answer(Vec<u8>),
    /// Go on: nobody waits for an answer, and what was asked for does not matter to the rings.
    Ignore,
    /// Close the connection: the frontend cannot be told, and would rely on something that is not so.
    Close,
}
