//! The driver half of a packed ring (virtio 1.2, 2.8): the guest's side. It trusts its memory, but
//! not the device.

use std::collections::VecDeque;

use super::driver::{DeviceFault, Layout, Outstanding, TableArea, Tables};
use super::layout::{self, Geometry, NEXT, PackedParts, RingOptions, WRITE};
use super::notify;
use super::packed_device::{AVAIL, EVENTS_AT, EVENTS_OFF, EVENTS_ON, RingPosition, USED};
use crate::memory::GuestMemory;

/// The driver half of a packed ring.
///
/// [`PackedDriver::add`] makes a chain outstanding, with at most one buffer for each free
/// descriptor. [`PackedDriver::used`] returns the chain. Everything that the device writes is
/// checked. The record of our chains is kept apart from the ring, which the device overwrites as it
/// goes.
///
/// A device that returns an id which is not outstanding has lost its position in the ring. The
/// driver half has then lost it too: it cannot know how many descriptors the device passed. From
/// then on the driver half is broken: it accepts no more chains and finds no more used ones.
#[derive(Debug)]
pub struct PackedDriver {
    parts: PackedParts,
    size: u16,
    options: RingOptions,
    tables: Option<TableArea>,
    /// Number of free descriptors, which begin at `next_avail`.
    free: u16,
    /// Free ids; the next one to use is the last.
    ids: Vec<u16>,
    /// The outstanding chain of each id.
    outstanding: Box<[Outstanding]>,
    /// For in-order use only: outstanding ids, the oldest first, and the batch that is being
    /// returned. The batch is known by its last chain and the bytes in that chain.
    order: VecDeque<u16>,
    batch: Option<(u16, u32)>,
    next_avail: RingPosition,
    next_used: RingPosition,
    /// The first descriptor that is not published, and its flags, which are not in the ring yet.
    held: Option<(RingPosition, u16)>,
    /// The end of what is published, and the number of descriptors published since the last kick
    /// decision, at most one round.
    published: RingPosition,
    unkicked: u16,
    broken: bool,
}

impl PackedDriver {
    /// Creates an empty ring at `geometry` (its table, then the driver's and the device's event
    /// suppression), in memory that is all zeros. The error names the part that is not in memory.
    pub fn new(memory: &GuestMemory, geometry: Geometry, options: RingOptions) -> Result<Self, &'static str> {
        let parts = geometry.locate_packed(memory)?;
        let size = geometry.size;
        // 2.8.1: both wrap counters begin with 1.
        // Cites packed-2.8.1-1.
        let start = RingPosition { at: 0, wrap: true };
        Ok(PackedDriver {
            parts,
            size,
            options,
            tables: None,
            free: size,
            ids: (0..size).rev().collect(),
            outstanding: vec![Outstanding::default(); usize::from(size)].into_boxed_slice(),
            order: VecDeque::with_capacity(if options.in_order { size.into() } else { 0 }),
            batch: None,
            next_avail: start,
            next_used: start,
            held: None,
            published: start,
            unkicked: 0,
            broken: false,
        })
    }

    /// Puts chains of several buffers into indirect tables, if INDIRECT_DESC was negotiated. Fails
    /// if the tables are not in memory.
    pub fn with_tables(self, memory: &GuestMemory, tables: Tables) -> Result<Self, &'static str> {
        // Cites packed-2.8.19-1.
        let tables = self.options.indirect.then(|| TableArea::new(memory, tables, self.size)).transpose()?;
        Ok(PackedDriver { tables, ..self })
    }

    /// Returns the number of free descriptors.
    pub fn free(&self) -> u16 {
        self.free
    }

    /// Adds a chain of `buffers` (guest address, length, whether the device writes it). The device
    /// sees it after [`Self::publish`]. If the chain would complete a batch of the whole ring, the
    /// chains before it are published now. Returns the chain's id, or `None` if too few descriptors
    /// are free.
    pub fn add(&mut self, buffers: &[(u64, u32, bool)]) -> Option<u16> {
        // Cites packed-2.8-3, packed-2.8-4.
        if buffers.is_empty() || self.free == 0 || self.broken {
            return None;
        }
        // Cites packed-2.8.21.1-1.
        let &id = self.ids.last()?;
        let table = self.tables.as_ref().and_then(|tables| tables.write(id, buffers, Layout::Packed));
        // Cites packed-2.8.16-1, packed-2.8.17-2, packed-2.8.17-4.
        let count = if table.is_some() { 1 } else { u16::try_from(buffers.len()).ok().filter(|&n| n <= self.free)? };
        if self.held.is_some() && self.unpublished() + count == self.size {
            // Publish now, before the batch fills the ring. A batch of the whole ring whose first
            // flags are missing looks like a used burst that a crash interrupted (see `recover`).
            self.publish();
        }
        if let Some(table) = table {
            // Cites packed-2.8.5-1, packed-2.8.19-4.
            self.put(table.addr, table.len, id, table.flags);
        } else {
            for (i, &(addr, len, write)) in (1..).zip(buffers) {
                // Cites packed-2.8.3-1, packed-2.8.6-1.
                let flags = if i < count { NEXT } else { 0 } | if write { WRITE } else { 0 };
                self.put(addr, len, id, flags);
            }
        }
        self.ids.pop();
        self.free -= count;
        // Cites packed-2.8.6-5.
        self.outstanding[usize::from(id)] = Outstanding::new(count, buffers);
        if self.options.in_order {
            self.order.push_back(id);
        }
        Some(id)
    }

    /// Writes the next descriptor. The id has a meaning in the last one of a chain only (2.8.6); in
    /// the others it does no harm.
    #[inline]
    fn put(&mut self, addr: u64, len: u32, id: u16, flags: u16) {
        // Cites packed-2.8-4.
        let position = self.next_avail;
        let at = usize::from(position.at) * layout::DESCRIPTOR;
        // Cites packed-2.8.13-1.
        self.parts.desc.write_u64(at, addr);
        self.parts.desc.write_u32(at + 8, len);
        // Cites packed-2.8.6-2.
        self.parts.desc.write_u16(at + 12, id);
        // 2.8.1: available means that AVAIL equals the wrap counter and USED is its inverse.
        // Cites packed-2.8.1-4, packed-2.8.6-3.
        let flags = flags | if position.wrap { AVAIL } else { USED };
        if self.held.is_none() {
            // Cites packed-2.8.17-5.
            self.held = Some((position, flags));
        } else {
            // Relaxed: the device reaches this descriptor only after the first one, which it cannot
            // pass yet.
            self.parts.desc.write_u16(at + 14, flags);
        }
        // Cites packed-2.8.16-2.
        self.next_avail = position.plus(1, self.size);
    }

    /// Makes all added chains visible to the device.
    pub fn publish(&mut self) {
        let Some((position, flags)) = self.held.take() else { return };
        // Release: all other descriptors, and this one's other fields, are visible before its flags
        // (2.8.21.1).
        // Cites packed-2.8.21.1.1-1.
        self.parts.desc.release_u16(usize::from(position.at) * layout::DESCRIPTOR + 14, flags);
        self.unkicked = self.unkicked.saturating_add(self.unpublished()).min(self.size);
        self.published = self.next_avail;
    }

    /// Returns the number of descriptors that were added and are not published: at least one.
    fn unpublished(&self) -> u16 {
        let old = self.published.at;
        let new = self.next_avail.at;
        // Equal indexes mean a whole round: the ring holds no more.
        if new > old { new - old } else { self.size - old + new }
    }

    /// Returns whether the device asked for a kick for the chains published since the last call.
    pub fn must_kick(&mut self) -> bool {
        // Cites packed-2.8.10-3.
        let count = std::mem::take(&mut self.unkicked);
        if count == 0 {
            return false;
        }
        let count = Some(count).filter(|_| self.options.event_idx);
        notify::needs_notification_packed(&self.parts.device, count, self.published, self.size)
    }

    /// Returns the next chain that the device has used: its id and the bytes written. A fault of
    /// the device is returned once; nothing comes after it.
    pub fn used(&mut self) -> Option<Result<(u16, u32), DeviceFault>> {
        if !self.has_used() {
            return None;
        }
        let used = self.next();
        self.broken = used.is_err();
        Some(used)
    }

    #[inline]
    fn next(&mut self) -> Result<(u16, u32), DeviceFault> {
        let (id, bytes) = match self.batch {
            Some(batch) => batch,
            None => self.element()?,
        };
        let (id, bytes) = if self.options.in_order { self.in_order(id, bytes)? } else { (id, bytes) };
        let out = std::mem::take(&mut self.outstanding[usize::from(id)]);
        let bytes = out.written(id, bytes)?;
        // Cites packed-2.8.6-5.
        self.next_used = self.next_used.plus(out.span, self.size);
        self.free += out.span;
        self.ids.push(id);
        Ok((id, bytes))
    }

    /// Reads the used descriptor at `next_used`: an outstanding chain, and the bytes that the
    /// device reports as written.
    #[inline]
    fn element(&self) -> Result<(u16, u32), DeviceFault> {
        let at = usize::from(self.next_used.at) * layout::DESCRIPTOR;
        // 2.8.4: without WRITE the length means nothing.
        // Cites packed-2.8.4-2.
        let written = self.parts.desc.read_u16(at + 14) & WRITE != 0;
        let bytes = if written { self.parts.desc.read_u32(at + 8) } else { 0 };
        let id = self.parts.desc.read_u16(at + 12);
        let is_out = self.outstanding.get(usize::from(id)).is_some_and(|out| out.span > 0);
        if is_out { Ok((id, bytes)) } else { Err(DeviceFault::Id(id.into())) }
    }

    /// Returns the oldest chain of a batch that ends with `last`. The chains before `last` have no
    /// used descriptor and are wholly used (2.8, "In-order use of descriptors").
    fn in_order(&mut self, last: u16, bytes: u32) -> Result<(u16, u32), DeviceFault> {
        let oldest = self.order.pop_front().ok_or(DeviceFault::Id(last.into()))?;
        // Cites packed-2.8.8-1.
        self.batch = (oldest != last).then_some((last, bytes));
        // Cites packed-2.8.8-2.
        Ok(if oldest == last { (last, bytes) } else { (oldest, self.outstanding[usize::from(oldest)].capacity) })
    }

    /// Returns the position behind the last used chain, in vhost-user's form. A device without
    /// knowledge of its predecessor continues there.
    pub fn base(&self) -> u32 {
        let mut position = self.next_used;
        let mut out = self.size - self.free;
        let mut batch = self.batch.map(|(last, _)| last);
        let mut order = self.order.iter().copied();
        while out > 0 && (batch.is_some() || self.is_used(position)) {
            let at = usize::from(position.at) * layout::DESCRIPTOR;
            let last = batch.unwrap_or_else(|| self.parts.desc.read_u16(at + 12));
            let id = if self.options.in_order { order.next() } else { Some(last) };
            batch = Some(last).filter(|_| id != Some(last));
            let count = id.and_then(|id| self.outstanding.get(usize::from(id))).map(|out| out.span);
            let Some(count) = count.filter(|&n| n > 0 && n <= out) else { break };
            position = position.plus(count, self.size);
            out -= count;
        }
        u32::from(position.bits()) * 0x1_0001
    }

    /// Asks for no interrupts (the driver polls), or for one with the next used chain. Returns true
    /// if there is a used chain already.
    pub fn want_interrupt(&mut self, enabled: bool) -> bool {
        // Cites packed-2.8.10-1.
        let mode = match (enabled, self.options.event_idx) {
            (false, _) => EVENTS_OFF,
            (true, false) => EVENTS_ON,
            (true, true) => EVENTS_AT,
        };
        // Cites packed-2.8-5.
        notify::request_notification_packed(&self.parts.driver, mode, self.next_used, || self.has_used())
    }

    /// Returns whether the device has used the descriptor at `next_used`, while chains are
    /// outstanding.
    fn has_used(&self) -> bool {
        !self.broken && self.free != self.size && (self.batch.is_some() || self.is_used(self.next_used))
    }

    #[inline]
    fn is_used(&self, position: RingPosition) -> bool {
        // Acquire: once the flags are visible, so are id, length and the bytes in the buffers.
        // Cites packed-2.8.22-3.
        let flags = self.parts.desc.acquire_u16(usize::from(position.at) * layout::DESCRIPTOR + 14);
        // 2.8.1: used means that both bits equal the device's wrap counter.
        // Cites packed-2.8.1-5, packed-2.8.6-6.
        (flags & AVAIL != 0) == position.wrap && (flags & USED != 0) == position.wrap
    }
}
