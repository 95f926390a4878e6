//! The in-flight table: a record of the buffers in flight, which a frontend keeps while its backend
//! is away (vhost-user, "Inflight I/O tracking").
//!
//! The table is meant for devices that give buffers back in any order. From the table, the next
//! device (the *successor*) learns which buffers to process again. Our devices give back in the
//! order in which they take. So a successor needs only the used index: all later chains are still
//! in the ring, as the specification says of in-order devices. We write only the used index into
//! the table, once for a burst, and mark no buffer as in flight. A successor that follows the
//! specification's procedures then finds exactly our position.
//!
//! The device before ours (the *predecessor*) may have worked in any order. The buffers that it
//! left in flight are given back at start, with no bytes written. For a network device these are
//! lost packets, and no buffer is lost.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use az::SaturatingAs;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};

use super::chain::{Direction, First};
use super::device::Device;
use super::layout::{self, Geometry, RingOptions};
use super::packed_device::{AVAIL, USED};
use super::{PackedDevice, SplitDevice};
use crate::memory::{Area, DirtyLog, GuestMemory, MapError, Region};

/// Alignment of a queue's region in the table.
const ALIGN: u64 = 64;

/// The most entries of a ring (virtio 1.2, 2.7 and 2.8.10.1).
const MAX_SIZE: u16 = 1 << 15;

/// A base of a packed ring without information, so that the position is taken from the ring itself.
const UNKNOWN: u32 = 0;

/// The version of a region in use. Version 0 is a region that was never used.
// Cites vhost-user-inflight-2.
const VERSION: u16 = 1;

/// Offsets in `QueueRegionSplit` and `QueueRegionPacked`: first the common offsets, then the
/// others.
// Cites vhost-user-inflight-1.
const AT_VERSION: usize = 8;
const AT_DESC_NUM: usize = 10;
mod split {
    pub(super) const LAST_BATCH_HEAD: usize = 12;
    pub(super) const USED_IDX: usize = 14;
    pub(super) const DESC: usize = 16;
    /// Bytes of a `DescStateSplit`, and offsets in it.
    pub(super) const STATE: usize = 16;
    pub(super) const NEXT: usize = 6;
    pub(super) const COUNTER: usize = 8;
}
mod packed {
    pub(super) const FREE_HEAD: usize = 12;
    pub(super) const OLD_FREE_HEAD: usize = 14;
    pub(super) const USED_IDX: usize = 16;
    pub(super) const OLD_USED_IDX: usize = 18;
    /// `used_wrap_counter` and `old_used_wrap_counter`, one byte each.
    pub(super) const WRAPS: usize = 20;
    pub(super) const DESC: usize = 32;
    /// Bytes of a `DescStatePacked`, and offsets in it.
    pub(super) const STATE: usize = 32;
    pub(super) const NEXT: usize = 2;
    pub(super) const LAST: usize = 4;
    pub(super) const NUM: usize = 6;
    pub(super) const COUNTER: usize = 8;
    pub(super) const ID: usize = 16;
}

/// The rings that a table is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InflightShape {
    /// True for packed rings.
    pub packed: bool,
    /// Number of rings.
    pub queues: u16,
    /// Entries of the largest ring.
    pub size: u16,
}

impl InflightShape {
    /// Returns the bytes of one queue's region.
    fn queue_len(self) -> u64 {
        let (head, state) = if self.packed { (packed::DESC, packed::STATE) } else { (split::DESC, split::STATE) };
        let len = head + usize::from(self.size) * state;
        len.saturating_as::<u64>().next_multiple_of(ALIGN)
    }

    /// Returns the bytes of the table.
    pub fn bytes(self) -> u64 {
        self.queue_len() * u64::from(self.queues)
    }
}

/// A mapped in-flight table.
#[derive(Debug)]
pub struct InflightTable {
    memory: GuestMemory,
    shape: InflightShape,
}

/// The reason why a table cannot be mapped, or why a ring cannot continue from its part of one.
#[derive(Debug, thiserror::Error)]
pub enum InflightError {
    /// The table's file cannot be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The table begins at an unaligned offset of its file.
    #[error("the in-flight table is at offset {0:#x} of its file; expected a multiple of 8")]
    Misaligned(u64),
    /// The table is too short for its rings.
    #[error("the in-flight table has {bytes:#x} bytes; its rings need {needed:#x}")]
    Short {
        /// Bytes of the table, as the frontend gives them.
        bytes: u64,
        /// Bytes that the table's rings need.
        needed: u64,
    },
    /// A part of the ring is not in guest memory.
    #[error("its {0} is not in guest memory")]
    Ring(&'static str),
    /// The table is for rings of the other layout.
    #[error("its in-flight table is for {0} rings")]
    Layout(&'static str),
    /// The ring has more entries than the table has states.
    #[error("it has {size} entries, but its in-flight table has a capacity of {capacity}")]
    Size {
        /// Entries of the ring.
        size: u16,
        /// Entries that the table has states for.
        capacity: u16,
    },
    /// The table has an unknown version.
    #[error("its in-flight table has version {0}; expected 1")]
    Version(u16),
    /// The table's fields contradict one another.
    #[error("its in-flight table is inconsistent: {0}")]
    Inconsistent(&'static str),
}

/// The file of the in-flight tables that a frontend gets: one for all its requests.
///
/// A frontend may keep each file that it gets. The kernel charges the pages to the process that
/// touched them first: this process. A new file for each request would let a frontend fill memory
/// at our expense.
#[derive(Debug)]
pub struct InflightFile {
    file: OwnedFd,
    len: u64,
}

impl InflightFile {
    /// Creates an empty file that is long enough for any table of `queues` rings.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn create(queues: u16) -> io::Result<Self> {
        let file = memfd_create("straightline-inflight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let len = InflightShape { packed: true, queues, size: MAX_SIZE }.bytes();
        ftruncate(&file, len)?;
        // A frontend that keeps the file cannot truncate it under our mapping.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(InflightFile { file, len })
    }

    /// Creates an empty table at the beginning of the file. Earlier tables in it lose their
    /// contents, and the kernel takes their pages back.
    ///
    /// # Errors
    /// Fails if the file cannot be mapped or emptied.
    pub fn table(&self, shape: InflightShape) -> io::Result<InflightTable> {
        fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, self.len)?;
        InflightTable::map(shape, 0, shape.bytes(), self.as_fd()).map_err(io::Error::other)
    }
}

impl AsFd for InflightFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl InflightTable {
    /// Maps a table that a frontend has kept: `bytes` bytes at `offset` of `file`.
    ///
    /// # Errors
    /// Fails if the file cannot be mapped, or if the table is too small for its shape.
    pub fn map(shape: InflightShape, offset: u64, bytes: u64, file: BorrowedFd<'_>) -> Result<Self, InflightError> {
        let needed = shape.bytes();
        if bytes < needed {
            return Err(InflightError::Short { bytes, needed });
        }
        if !offset.is_multiple_of(8) {
            return Err(InflightError::Misaligned(offset));
        }
        // Map the table alone, with addresses of its own.
        let region = Region::map(file, offset, needed, 0, 0)?;
        // One region overlaps none.
        Ok(InflightTable { memory: GuestMemory::new(vec![Arc::new(region)]).unwrap_or_default(), shape })
    }

    /// Returns the rings that the table is made for.
    pub fn shape(&self) -> InflightShape {
        self.shape
    }

    /// Returns the part of a ring of this size and layout, or `None` if the table has no part for
    /// it.
    ///
    /// # Errors
    /// Fails if the ring cannot use the table.
    pub fn queue(&self, index: u16, size: u16, packed: bool) -> Result<Option<Inflight>, InflightError> {
        let shape = self.shape;
        if packed != shape.packed {
            return Err(InflightError::Layout(if shape.packed { "packed" } else { "split" }));
        }
        if size > shape.size {
            return Err(InflightError::Size { size, capacity: shape.size });
        }
        let Some(area) = self.area(index) else { return Ok(None) };
        // Cites vhost-user-inflight-2.
        let version = area.read_u16(AT_VERSION);
        if version > VERSION {
            return Err(InflightError::Version(version));
        }
        Ok(Some(Inflight { area, size, packed, is_new: version == 0 }))
    }

    /// Returns the part of a ring that runs already, for [`Ring::track`](super::Ring::track). The
    /// table's earlier record of that ring becomes void. Returns `None` also if the ring cannot use
    /// the table.
    pub fn queue_anew(&self, index: u16, size: u16, packed: bool) -> Option<Inflight> {
        let mut inflight = self.queue(index, size, packed).ok()??;
        inflight.is_new = true;
        inflight.prepare();
        Some(inflight)
    }

    /// Forgets what was in flight in a ring. The ring was stopped regularly, and its position is
    /// known; or the ring starts anew.
    pub fn clear(&self, index: u16) {
        if let Some(area) = self.area(index) {
            area.write_u16(AT_VERSION, 0);
        }
    }

    fn area(&self, index: u16) -> Option<Area> {
        if index >= self.shape.queues {
            return None;
        }
        let len = self.shape.queue_len();
        self.memory.area(u64::from(index) * len, usize::try_from(len).ok()?, 8)
    }
}

/// A ring's part of an in-flight table.
#[derive(Debug)]
pub struct Inflight {
    area: Area,
    size: u16,
    packed: bool,
    /// True if the part was never used.
    is_new: bool,
}

/// A chain that a predecessor had taken and not given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct InflightChain {
    /// Index of the chain's first descriptor; in a packed ring, the chain's id.
    head: u16,
    /// Number of the chain's descriptors.
    span: u16,
    /// The chain's entry in the table.
    at: u16,
    counter: u64,
}

/// The position of a predecessor in a packed ring.
struct Reconnected {
    /// 15 bits of index, and the wrap counter above them.
    position: u16,
    /// True if the predecessor was killed while it gave back a batch, and the driver has seen
    /// nothing.
    is_interrupted: bool,
    chains: Vec<InflightChain>,
}

impl Inflight {
    /// Returns the chains that a predecessor left in flight in a split ring, in the order in which
    /// they were taken ("When reconnecting"). `used` is the ring's used index.
    fn reconnect_split(&self, used: u16) -> Result<Vec<InflightChain>, InflightError> {
        let area = &self.area;
        // Cites vhost-user-inflight-8.
        let last = used.wrapping_sub(area.read_u16(split::USED_IDX));
        if last > self.size {
            return Err(InflightError::Inconsistent("its used index is more than one round behind the ring's"));
        }
        let mut at = area.read_u16(split::LAST_BATCH_HEAD);
        for _ in 0..last {
            if at >= self.size {
                return Err(InflightError::Inconsistent("an entry of its last batch is outside the ring"));
            }
            self.clear_flag(at);
            at = area.read_u16(self.state(at) + split::NEXT);
        }
        area.write_u16(split::USED_IDX, used);
        self.chains_in_flight(|state| Ok((area.read_u64(state + split::COUNTER), None, 1)))
    }

    /// Returns the position and the chains in flight of a predecessor in a packed ring. `is_used`
    /// returns whether the descriptor at an index was used in the round of this wrap counter.
    fn reconnect_packed(&self, is_used: impl FnOnce(u16, bool) -> bool) -> Result<Reconnected, InflightError> {
        let area = &self.area;
        let [wrap, old_wrap] = area.read_u16(packed::WRAPS).to_le_bytes().map(|wrap| wrap != 0);
        let new = area.read_u16(packed::USED_IDX);
        let old = area.read_u16(packed::OLD_USED_IDX);
        if new >= self.size || old >= self.size {
            return Err(InflightError::Inconsistent("its used index is outside the ring"));
        }
        let at_rest = (new, wrap) == (old, old_wrap);
        // Cites vhost-user-inflight-9.
        let committed = at_rest || is_used(old, old_wrap);
        let free = if committed { packed::FREE_HEAD } else { packed::OLD_FREE_HEAD };
        let mut free = area.read_u16(free);
        area.write_u16(packed::FREE_HEAD, free);
        area.write_u16(packed::OLD_FREE_HEAD, free);
        // Cites vhost-user-inflight-10.
        // Entries in the list of free entries are not in flight.
        for _ in 0..self.size {
            if free >= self.size {
                break;
            }
            self.clear_flag(free);
            free = area.read_u16(self.state(free) + packed::NEXT);
        }
        let chains = self.chains_in_flight(|state| {
            let id = area.read_u16(state + packed::ID);
            let num = area.read_u16(state + packed::NUM);
            if num == 0 || num > self.size {
                return Err(InflightError::Inconsistent("a chain in flight is longer than the ring"));
            }
            Ok((area.read_u64(state + packed::COUNTER), Some(id), num))
        })?;
        if chains.iter().map(|chain| u32::from(chain.span)).sum::<u32>() > u32::from(self.size) {
            return Err(InflightError::Inconsistent("more is in flight than the ring holds"));
        }
        let (at, wrap) = if committed { (new, wrap) } else { (old, old_wrap) };
        Ok(Reconnected { position: at | u16::from(wrap) << 15, is_interrupted: !committed, chains })
    }

    /// Returns the entries in flight, the oldest first.
    fn chains_in_flight(
        &self,
        read: impl Fn(usize) -> Result<(u64, Option<u16>, u16), InflightError>,
    ) -> Result<Vec<InflightChain>, InflightError> {
        let mut chains = Vec::new();
        for at in 0..self.size {
            let state = self.state(at);
            if self.area.read_u16(state) & 0xff == 1 {
                let (counter, id, span) = read(state)?;
                chains.push(InflightChain { head: id.unwrap_or(at), span, at, counter });
            }
        }
        // Cites vhost-user-inflight-11.
        chains.sort_by_key(|chain| chain.counter);
        Ok(chains)
    }

    /// Records that these chains are about to be given back, as one batch ("When supplying used
    /// buffers to the driver").
    fn begin_giving_back(&self, chains: &[InflightChain]) {
        let area = &self.area;
        for chain in chains {
            let (link, head) = if self.packed {
                // An entry outside the table is an error of its writer, and harms only that
                // frontend.
                let last = area.read_u16(self.state(chain.at) + packed::LAST).min(self.size - 1);
                (self.state(last) + packed::NEXT, packed::FREE_HEAD)
            } else {
                (self.state(chain.at) + split::NEXT, split::LAST_BATCH_HEAD)
            };
            // Cites vhost-user-inflight-5.
            area.write_u16(link, area.read_u16(head));
            area.write_u16(head, chain.at);
        }
    }

    /// Records that these chains were given back.
    fn end_giving_back(&self, chains: &[InflightChain]) {
        // Cites vhost-user-inflight-6.
        chains.iter().for_each(|chain| self.clear_flag(chain.at));
        if self.packed {
            self.area.write_u16(packed::OLD_FREE_HEAD, self.area.read_u16(packed::FREE_HEAD));
        }
    }

    /// Sets the first state of a part that was never used.
    fn prepare(&self) {
        // Cites vhost-user-inflight-3.
        self.area.write_u16(AT_DESC_NUM, self.size);
        if !self.is_new {
            return;
        }
        (0..self.size).for_each(|at| self.clear_flag(at));
        if self.packed {
            // The free list has all entries, although none is ever taken from it.
            (0..self.size).for_each(|at| self.area.write_u16(self.state(at) + packed::NEXT, at + 1));
            self.area.write_u16(packed::FREE_HEAD, 0);
            self.area.write_u16(packed::OLD_FREE_HEAD, 0);
        }
    }

    /// Begins to keep the position of a ring at `position`: an index, or vhost-user's form. The
    /// part must be prepared.
    pub(super) fn begin(&self, position: u16) {
        if self.packed {
            self.begin_batch(position);
        }
        self.end_batch(position);
        // Release: the rest of the part is visible before its version.
        self.area.release_u16(AT_VERSION, VERSION);
    }

    /// Records that a batch that ends at `position` is about to be published (packed rings only).
    #[inline]
    pub(super) fn begin_batch(&self, position: u16) {
        // Cites vhost-user-inflight-7.
        self.area.write_u16(packed::USED_IDX, position & 0x7fff);
        let [_, old_wrap] = self.area.read_u16(packed::WRAPS).to_le_bytes();
        self.area.write_u16(packed::WRAPS, u16::from_le_bytes([u8::from(position & 0x8000 != 0), old_wrap]));
    }

    /// Records that a batch was published: the used index or position is `position`.
    #[inline]
    pub(super) fn end_batch(&self, position: u16) {
        // Cites vhost-user-inflight-6, vhost-user-inflight-7.
        // Release: the batch is visible before the record of it.
        if self.packed {
            let wrap = u8::from(position & 0x8000 != 0);
            self.area.release_u16(packed::OLD_USED_IDX, position & 0x7fff);
            self.area.release_u16(packed::WRAPS, u16::from_le_bytes([wrap, wrap]));
        } else {
            self.area.release_u16(split::USED_IDX, position);
        }
    }

    fn state(&self, at: u16) -> usize {
        let at = usize::from(at);
        if self.packed { packed::DESC + at * packed::STATE } else { split::DESC + at * split::STATE }
    }

    fn clear_flag(&self, at: u16) {
        // The byte beside the flag is padding.
        self.area.write_u16(self.state(at), 0);
    }
}

impl SplitDevice {
    /// Creates the device half as [`SplitDevice::recover`] does, and keeps its position in an
    /// in-flight table.
    ///
    /// # Errors
    /// Fails if the ring cannot continue.
    pub fn tracked(
        memory: &GuestMemory,
        geometry: Geometry,
        options: RingOptions,
        log: Option<&Arc<DirtyLog>>,
        inflight: Inflight,
    ) -> Result<Self, InflightError> {
        let kept = !inflight.is_new;
        let mut device = Self::recover(memory, geometry, options).map_err(InflightError::Ring)?;
        let base = device.base();
        let chains = if kept { inflight.reconnect_split(base)? } else { Vec::new() };
        let mut found = vec![First::default(); chains.len()];
        let count = chains.len().saturating_as::<u16>();
        let there = device.available(count).is_ok_and(|n| n >= count) && device.peek(&mut found).is_ok();
        // The next available entries of the ring may be exactly the chains in flight. Then the
        // chains can be taken again. Otherwise later entries have overwritten theirs, and the
        // chains are given back.
        if there && chains.iter().zip(&found).all(|(chain, found)| chain.head == found.head) {
            inflight.end_giving_back(&chains);
        } else {
            chains.iter().for_each(|chain| device.take(&First { head: chain.head, ..First::default() }));
            inflight.begin_giving_back(&chains);
            device.set_log(log.cloned());
            device.give_back(device.outstanding());
            inflight.end_giving_back(&chains);
            device = Self::new(memory, geometry, device.base(), options).map_err(InflightError::Ring)?;
        }
        inflight.prepare();
        inflight.begin(device.base());
        device.inflight = Some(inflight);
        Ok(device)
    }
}

impl PackedDevice {
    /// Creates the device half as [`PackedDevice::recover`] does, and keeps its position in an
    /// in-flight table. If a predecessor has kept one, its position is used instead of `base`.
    ///
    /// # Errors
    /// Fails if the ring cannot continue.
    pub fn tracked(
        memory: &GuestMemory,
        geometry: Geometry,
        base: u32,
        options: RingOptions,
        direction: Direction,
        log: Option<&Arc<DirtyLog>>,
        inflight: Inflight,
    ) -> Result<Self, InflightError> {
        let low = |base: u32| u16::try_from(base & 0xffff).unwrap_or(0);
        let new = |base| Self::new(memory, geometry, base, options).map_err(InflightError::Ring);
        let recover =
            |base| Self::recover(memory, geometry, base, options, direction, log).map_err(InflightError::Ring);
        let mut device = if inflight.is_new {
            recover(base)?
        } else {
            let parts = geometry.locate_packed(memory).map_err(InflightError::Ring)?;
            let is_used = |at: u16, wrap| {
                // Acquire: once the flags are visible, so is the rest of the descriptor.
                let flags = parts.desc.acquire_u16(usize::from(at) * layout::DESCRIPTOR + 14);
                (flags & AVAIL != 0) == wrap && (flags & USED != 0) == wrap
            };
            let Reconnected { position, is_interrupted, chains } = inflight.reconnect_packed(is_used)?;
            // A predecessor of our kind marks no chain in flight. The part of the batch that it has
            // written is in the ring, and nowhere else.
            let ours = is_interrupted && chains.is_empty();
            let mut device = if ours { recover(UNKNOWN)? } else { new(u32::from(position) * 0x1_0001)? };
            let mut found = vec![First::default(); chains.len()];
            let there = device.find(&mut found).is_ok_and(|n| n == chains.len());
            let same = |(chain, found): (&InflightChain, &First)| (chain.head, chain.span) == (found.head, found.span);
            if !(there && chains.iter().zip(&found).all(same)) {
                let first = |chain: &InflightChain| First { head: chain.head, span: chain.span, ..First::default() };
                chains.iter().for_each(|chain| device.take(&first(chain)));
                inflight.begin_giving_back(&chains);
                inflight.begin_batch(low(device.base()));
                device.set_log(log.cloned());
                device.give_back(device.outstanding());
                device = new(device.base())?;
            }
            inflight.end_giving_back(&chains);
            device
        };
        inflight.prepare();
        inflight.begin(low(device.base()));
        device.inflight = Some(inflight);
        Ok(device)
    }
}
