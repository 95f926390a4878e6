//! The driver half of a split ring (virtio 1.2, 2.7): the guest's side. It trusts its memory, but
//! not the device.

use super::driver::{DeviceFault, Layout, Outstanding, TableArea, Tables};
use super::layout::{self, Descriptor, Geometry, NEXT, NO_INTERRUPT, NO_NOTIFY, Parts, RingOptions, WRITE};
use super::notify::{self, SuppressionField};
use crate::memory::GuestMemory;

/// The driver half of a split ring.
///
/// [`SplitDriver::add`] makes a chain outstanding, with at most one buffer for each free
/// descriptor. [`SplitDriver::used`] returns the chain. Everything that the device writes is
/// checked. The record of our chains is kept apart from the ring, where the device could change it.
#[derive(Debug)]
pub struct SplitDriver {
    parts: Parts,
    size: u16,
    options: RingOptions,
    tables: Option<TableArea>,
    /// Free descriptors, as a list linked through `next`. In order, descriptors are taken and
    /// returned around the table, so the list stays in its first order (2.7.5.2).
    free_head: u16,
    free: u16,
    next: Box<[u16]>,
    /// The outstanding chain that begins at each descriptor.
    outstanding: Box<[Outstanding]>,
    /// For in-order use only: the first descriptor of the oldest outstanding chain, and the batch
    /// that is being returned. The batch is known by its last chain and the bytes in that chain.
    oldest: u16,
    batch: Option<(u16, u32)>,
    /// The next available entry to fill, the published index, and the index at the last kick
    /// decision.
    next_avail: u16,
    published: u16,
    kicked: u16,
    last_used: u16,
    seen_used: u16,
    broken: bool,
}

impl SplitDriver {
    /// Creates an empty ring at `geometry`, in memory that is all zeros. The error names the part
    /// that is not in memory.
    pub fn new(memory: &GuestMemory, geometry: Geometry, options: RingOptions) -> Result<Self, &'static str> {
        let parts = geometry.locate(memory)?;
        let size = geometry.size;
        Ok(SplitDriver {
            parts,
            size,
            options,
            tables: None,
            free_head: 0,
            free: size,
            next: (1..=size).map(|next| next & (size - 1)).collect(),
            outstanding: vec![Outstanding::default(); usize::from(size)].into_boxed_slice(),
            oldest: 0,
            batch: None,
            next_avail: 0,
            published: 0,
            kicked: 0,
            last_used: 0,
            seen_used: 0,
            broken: false,
        })
    }

    /// Puts chains of several buffers into indirect tables, if INDIRECT_DESC was negotiated. Fails
    /// if the tables are not in memory.
    pub fn with_tables(self, memory: &GuestMemory, tables: Tables) -> Result<Self, &'static str> {
        let tables = self.options.indirect.then(|| TableArea::new(memory, tables, self.size)).transpose()?;
        Ok(SplitDriver { tables, ..self })
    }

    /// Returns the number of free descriptors.
    pub fn free(&self) -> u16 {
        self.free
    }

    /// Adds a chain of `buffers` (guest address, length, whether the device writes it). The device
    /// sees it after [`Self::publish`]. Returns the chain's head, or `None` if too few descriptors
    /// are free.
    pub fn add(&mut self, buffers: &[(u64, u32, bool)]) -> Option<u16> {
        if buffers.is_empty() || self.free == 0 || self.broken {
            return None;
        }
        let head = self.free_head;
        let table = self.tables.as_ref().and_then(|tables| tables.write(head, buffers, Layout::Split));
        let count = if let Some(table) = table {
            self.free_head = self.next[usize::from(head)];
            table.write(&self.parts.desc, head);
            1
        } else {
            self.add_direct(buffers)?
        };
        self.free -= count;
        self.outstanding[usize::from(head)] = Outstanding::new(count, buffers);
        let slot = usize::from(self.next_avail & (self.size - 1));
        self.parts.avail.write_u16(layout::avail::entry(slot), head);
        self.next_avail = self.next_avail.wrapping_add(1);
        Some(head)
    }

    /// Writes a descriptor for each buffer, and returns their number.
    #[inline]
    fn add_direct(&mut self, buffers: &[(u64, u32, bool)]) -> Option<u16> {
        let count = u16::try_from(buffers.len()).ok().filter(|&n| n <= self.free)?;
        let mut at = self.free_head;
        for (i, &(addr, len, write)) in (1..).zip(buffers) {
            let next = self.next[usize::from(at)];
            let more = if i < count { NEXT } else { 0 };
            let flags = more | if write { WRITE } else { 0 };
            Descriptor { addr, len, flags, next: if more == 0 { 0 } else { next } }.write(&self.parts.desc, at);
            at = next;
        }
        self.free_head = at;
        Some(count)
    }

    /// Makes all added chains visible to the device.
    pub fn publish(&mut self) {
        if self.published != self.next_avail {
            self.published = self.next_avail;
            // Release: entries and descriptors are visible before the index (2.7.13.3).
            self.parts.avail.release_u16(layout::avail::INDEX, self.next_avail);
        }
    }

    /// Returns whether the device asked for a kick for the chains published since the last call.
    pub fn must_kick(&mut self) -> bool {
        let old = self.kicked;
        let new = self.published;
        if old == new {
            return false;
        }
        self.kicked = new;
        let field = if self.options.event_idx {
            SuppressionField::Event(layout::used::avail_event(usize::from(self.size)))
        } else {
            SuppressionField::Flags(layout::used::FLAGS, NO_NOTIFY)
        };
        notify::needs_notification(&self.parts.used, field, Some(old), new)
    }

    /// Returns the next chain that the device has used: its head and the bytes written. A fault of
    /// the device is returned once; nothing comes after it.
    pub fn used(&mut self) -> Option<Result<(u16, u32), DeviceFault>> {
        if self.broken || !self.has_used() {
            return None;
        }
        let used = self.next();
        self.broken = used.is_err();
        Some(used)
    }

    /// Returns whether the device's index is ahead. Reads the index if all known used chains are
    /// consumed.
    #[inline]
    fn has_used(&mut self) -> bool {
        if self.last_used == self.seen_used {
            // Acquire: once the index is visible, so are the elements before it and the bytes in
            // the buffers (2.7.14).
            self.seen_used = self.parts.used.acquire_u16(layout::used::INDEX);
        }
        self.last_used != self.seen_used
    }

    #[inline]
    fn next(&mut self) -> Result<(u16, u32), DeviceFault> {
        let ahead = self.seen_used.wrapping_sub(self.last_used);
        let published = self.published.wrapping_sub(self.last_used);
        if ahead > published {
            return Err(DeviceFault::IndexJump { ahead, published });
        }
        let (head, bytes) = match self.batch {
            Some(batch) => batch,
            None => self.element()?,
        };
        let (head, bytes) = if self.options.in_order { self.in_order(head, bytes)? } else { (head, bytes) };
        let out = std::mem::take(&mut self.outstanding[usize::from(head)]);
        let bytes = out.written(head, bytes)?;
        self.last_used = self.last_used.wrapping_add(1);
        self.free += out.span;
        if self.options.in_order {
            self.oldest = (self.oldest + out.span) & (self.size - 1);
        } else {
            let mut last = head;
            for _ in 1..out.span {
                last = self.next[usize::from(last)];
            }
            self.next[usize::from(last)] = self.free_head;
            self.free_head = head;
        }
        Ok((head, bytes))
    }

    /// Reads the next used element: an outstanding chain, and the bytes that the device reports as
    /// written.
    #[inline]
    fn element(&self) -> Result<(u16, u32), DeviceFault> {
        let at = layout::used::entry(usize::from(self.last_used & (self.size - 1)));
        let id = self.parts.used.read_u32(at);
        let bytes = self.parts.used.read_u32(at + 4);
        match u16::try_from(id) {
            Ok(head) if self.outstanding.get(usize::from(head)).is_some_and(|out| out.span > 0) => Ok((head, bytes)),
            _ => Err(DeviceFault::Id(id)),
        }
    }

    /// Returns the oldest chain of a batch that ends with `last`. The chains before `last` have no
    /// element and are wholly used (2.7.9).
    fn in_order(&mut self, last: u16, bytes: u32) -> Result<(u16, u32), DeviceFault> {
        self.batch = None;
        if self.oldest == last {
            return Ok((last, bytes));
        }
        if self.seen_used.wrapping_sub(self.last_used) == 1 {
            return Err(DeviceFault::Batch(last));
        }
        self.batch = Some((last, bytes));
        Ok((self.oldest, self.outstanding[usize::from(self.oldest)].capacity))
    }

    /// Returns the index behind the last used chain. A device without knowledge of its predecessor
    /// continues there.
    pub fn base(&self) -> u16 {
        // Acquire: as in `has_used`.
        self.parts.used.acquire_u16(layout::used::INDEX)
    }

    /// Asks for no interrupts (the driver polls), or for one with the next used chain. Returns true
    /// if there is a used chain already.
    pub fn want_interrupt(&mut self, enabled: bool) -> bool {
        let (field, word) = if self.options.event_idx {
            // To suppress interrupts, the event index stays behind the used index. It is far from
            // the entries that the device will pass next, and further back than any entry that we
            // may not have looked at.
            let behind = self.last_used.wrapping_sub(self.size).wrapping_sub(1);
            let event = if enabled { self.last_used } else { behind };
            (SuppressionField::Event(layout::avail::used_event(usize::from(self.size))), event)
        } else {
            // Flags are for rings without the event index; with the event index they stay 0
            // (2.7.7.1).
            (SuppressionField::Flags(layout::avail::FLAGS, NO_INTERRUPT), if enabled { 0 } else { NO_INTERRUPT })
        };
        let Parts { avail, used, .. } = &self.parts;
        // Acquire: as in `has_used`.
        notify::request_notification(avail, field, word, || {
            !self.broken && used.acquire_u16(layout::used::INDEX) != self.last_used
        })
    }
}
