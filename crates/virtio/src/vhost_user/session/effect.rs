//! The effect that a message has outside the session, and the outcome that the caller reports.

use std::os::fd::OwnedFd;

use super::super::message::{InflightSpec, RegionSpec};
#[cfg(doc)]
use super::{RingSetup, Session};

/// The work that the caller has to do before it calls [`Session::reply`].
#[derive(Debug)]
pub enum Effect {
    /// Do nothing.
    None,
    /// Replace the complete memory table, which may become empty. Rings that were resolved against
    /// the old table must be resolved again. Rings that are no longer [ready](Session::ready) stop.
    Memory(Vec<RegionFd>),
    /// Add a region to the table.
    AddRegion(RegionFd),
    /// Remove a region from the table. A ring that lies in it is no longer ready and stops.
    RemoveRegion(RegionSpec),
    /// Mark all later writes to guest memory in this log, if and as long as `VHOST_F_LOG_ALL` is
    /// acknowledged. It replaces the previous log.
    Log(LogFd),
    /// These features are acknowledged; check [`Session::refusal`]. Every ring may have become
    /// enabled.
    Features(u64),
    /// A ring's set-up changed; check [`Session::ring`] and [`Session::ready`].
    Ring(u16),
    /// Stop a ring, and report by [`RequestOutcome::RingBase`] the position at which it would continue.
    StopRing(u16),
    /// Every ring is disabled (RESET_OWNER).
    DisableRings,
    /// Stop every ring (SET_STATUS with 0). When QEMU 7.2 stops or migrates its guest, it asks only
    /// afterwards for the positions at which to continue; see [`Session::stopped_at`].
    StopRings,
    /// Stop every ring: the device is reset (RESET_DEVICE). The memory table stays.
    Reset,
    /// The driver's progress, as the device status (virtio 1.3, section 2.1); never 0.
    Status(u8),
    /// The frontend tells the guest this MTU. Report [`RequestOutcome::Failed`] if the MTU is not
    /// possible.
    Mtu(u16),
    /// Announce this MAC address: its guest has just migrated to this host.
    Rarp([u8; 6]),
    /// Make an in-flight table for rings of the negotiated layout, and report it by
    /// [`RequestOutcome::Inflight`]; its file is sent with the answer. Without a table the frontend keeps
    /// no record.
    MakeInflight(InflightSpec),
    /// Continue from this in-flight table, which the frontend has kept. It has no information about
    /// rings that run already, but keeps their position from now on.
    KeepInflight(InflightSpec, OwnedFd),
    /// Write the device's state to this channel and close it ("Migrating back-end state"). Every
    /// ring is stopped. The frontend reads once it has the answer; later failures are reported by
    /// [`Effect::CheckState`]. A transfer in progress ends.
    SaveState(OwnedFd),
    /// Read the device's state from this channel until its end, which may come after the answer.
    /// The rest is as for [`Effect::SaveState`].
    LoadState(OwnedFd),
    /// Report [`RequestOutcome::Done`] if the last transfer was complete and, if it was a load, the device
    /// will continue from it.
    CheckState,
}

/// A dirty log with its file.
#[derive(Debug)]
pub struct LogFd {
    /// Length in bytes, not 0. The session checks neither the length of the file nor that the log
    /// covers the memory.
    pub size: u64,
    /// Offset of the log in the file; `offset + size` does not overflow.
    pub offset: u64,
    /// The file.
    pub fd: OwnedFd,
}

/// A memory region with its file.
#[derive(Debug)]
pub struct RegionFd {
    /// Guest physical address of the first byte.
    pub guest_addr: u64,
    /// Length in bytes, not 0. The session does not check the length of the file.
    pub size: u64,
    /// Address of the first byte in the frontend's process.
    pub user_addr: u64,
    /// Offset of the region in the file; `mmap_offset + size` does not overflow.
    pub mmap_offset: u64,
    /// The file.
    pub fd: OwnedFd,
}

impl RegionFd {
    pub(super) fn new(spec: RegionSpec, fd: OwnedFd) -> Self {
        let RegionSpec { guest_addr, size, user_addr, mmap_offset } = spec;
        Self { guest_addr, size, user_addr, mmap_offset, fd }
    }

    /// Returns the region without its file.
    pub fn spec(&self) -> RegionSpec {
        let Self { guest_addr, size, user_addr, mmap_offset, .. } = *self;
        RegionSpec { guest_addr, size, user_addr, mmap_offset }
    }
}

/// The outcome of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The effect succeeded.
    Done,
    /// The effect failed, and nothing has changed. After a failed memory effect, caller and session
    /// both keep the old table. After failed features, both keep the old features. A ring whose
    /// set-up failed is stopped until it is set up again.
    Failed,
    /// The ring is stopped, and this is its position in the form of [`RingSetup::base`].
    RingBase(u32),
    /// The in-flight table has this many bytes, from the start of its file on.
    Inflight(u64),
}

/// The treatment of a refused message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// Send these bytes, which report the failure, and continue.
    Answer(Vec<u8>),
    /// Continue: the frontend waits for no answer, and the request does not concern the rings.
    Ignore,
    /// Close the connection: the failure cannot be reported to the frontend, and the frontend would
    /// rely on a success.
    Close,
}
