//! Code that the driver halves of both layouts share: indirect tables, the record of outstanding
//! chains, and faults of the device.

use super::layout::{DESCRIPTOR, Descriptor, INDIRECT, NEXT, WRITE};
use crate::memory::{Area, GuestMemory};

/// An impossible statement of the device. The driver half is then broken: the device's position is
/// unknown, so this half accepts no more chains and finds no more used ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceFault {
    /// The device returned a chain that is not outstanding.
    #[error("the device returned chain {0}, which is not outstanding")]
    Id(u32),
    /// The device's used index is further ahead than chains are outstanding.
    #[error("the device's used index advanced by {ahead}, but {published} chains are outstanding")]
    IndexJump {
        /// Chains that the device reports as used.
        ahead: u16,
        /// Chains that are outstanding.
        published: u16,
    },
    /// The device reports more bytes than the chain's buffers can hold.
    #[error("the device wrote {bytes} bytes into chain {id}, which has a capacity of {capacity}")]
    Length {
        /// The chain's id.
        id: u16,
        /// Bytes that the device reports.
        bytes: u32,
        /// Bytes that the device may write.
        capacity: u32,
    },
    /// In order: the device returned a batch of more chains than its used index covers.
    #[error("the device returned a batch up to chain {0}, which has more chains than its used index covers")]
    Batch(u16),
}

/// The memory in which a driver half may put indirect tables: one for each entry of its ring, one
/// behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    /// Guest address of the tables, a multiple of 16.
    pub guest: u64,
    /// The frontend's address of the same memory.
    pub user: u64,
    /// Descriptors in each table. No more are used than the ring has. A longer chain goes into the
    /// ring itself.
    pub entries: u16,
}

/// The tables, located in memory.
#[derive(Debug)]
pub(super) struct TableArea {
    area: Area,
    guest: u64,
    entries: u16,
}

/// The ring layout, which sets the order of the last two fields of a descriptor in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    Split,
    Packed,
}

impl TableArea {
    pub(super) fn new(memory: &GuestMemory, tables: Tables, size: u16) -> Result<Self, &'static str> {
        // 2.7.5.3.1, 2.8.19: no chain is longer than the ring.
        // Cites packed-2.8.19-3.
        let entries = tables.entries.min(size);
        let len = usize::from(entries) * usize::from(size) * DESCRIPTOR;
        let area = memory.area(tables.user, len, DESCRIPTOR).ok_or("indirect tables")?;
        Ok(TableArea { area, guest: tables.guest, entries })
    }

    /// Writes the buffers into table `number`, and returns the descriptor of the table. Returns
    /// `None` if the table is too short for them, or if they need none.
    pub(super) fn write(&self, number: u16, buffers: &[(u64, u32, bool)], layout: Layout) -> Option<Descriptor> {
        let count = u16::try_from(buffers.len()).ok().filter(|&n| n > 1 && n <= self.entries)?;
        let start = usize::from(number) * usize::from(self.entries);
        for (next, &(addr, len, write)) in (1..).zip(buffers) {
            let write = if write { WRITE } else { 0 };
            let desc = match layout {
                Layout::Split if next < count => Descriptor { addr, len, flags: write | NEXT, next },
                Layout::Split => Descriptor { addr, len, flags: write, next: 0 },
                // 2.8.7: entries are used in order, without NEXT; the id is the one of the
                // descriptor in the ring.
                // Cites packed-2.8.19-2.
                Layout::Packed => Descriptor { addr, len, flags: 0, next: write },
            };
            // Cites packed-2.8.7-1.
            desc.write_at(&self.area, (start + usize::from(next) - 1) * DESCRIPTOR);
        }
        let entry = u64::try_from(DESCRIPTOR).unwrap_or(16);
        let addr = self.guest + u64::try_from(start).unwrap_or(0) * entry;
        let len = u32::from(count) * u32::try_from(DESCRIPTOR).unwrap_or(16);
        Some(Descriptor { addr, len, flags: INDIRECT, next: 0 })
    }
}

/// The private record of an outstanding chain: the number of its descriptors in the ring, and the
/// bytes that the device may write. With 0 descriptors the chain is not outstanding.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outstanding {
    pub(super) span: u16,
    pub(super) capacity: u32,
}

impl Outstanding {
    pub(super) fn new(span: u16, buffers: &[(u64, u32, bool)]) -> Self {
        let capacity = buffers.iter().filter(|b| b.2).fold(0_u32, |sum, b| sum.saturating_add(b.1));
        Outstanding { span, capacity }
    }

    /// Checks the number of bytes that the device reports as written. For a chain that it only
    /// reads the number means nothing.
    #[inline]
    pub(super) fn written(self, id: u16, bytes: u32) -> Result<u32, DeviceFault> {
        match self.capacity {
            0 => Ok(0),
            capacity if bytes > capacity => Err(DeviceFault::Length { id, bytes, capacity }),
            _ => Ok(bytes),
        }
    }
}
