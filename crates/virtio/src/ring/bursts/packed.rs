//! Bursts over the packed ring (virtio 1.2, 2.8).

use std::sync::atomic::AtomicU64;

use super::packed_words::{Burst, used};
use super::{Buffers, Bursts, Moved, RingState, positions};
use crate::memory::GuestMemory;
use crate::ring::driver::DeviceFault;
use crate::ring::layout::{Geometry, PackedParts, RingOptions, event};
use crate::ring::packed_device::EVENTS_OFF;

/// Descriptors that become visible at once when a ring is filled: fewer than the ring has (see
/// `PackedDriver::add`).
const FILL: usize = 32;

/// A driver half of a packed ring for bursts.
#[derive(Debug)]
pub struct PackedBursts {
    parts: PackedParts,
    state: RingState,
}

impl PackedBursts {
    /// Calls `each` with number, id and length of at most `most` used buffers.
    #[inline]
    fn take(
        table: &[AtomicU64],
        state: &mut RingState,
        most: usize,
        mut each: impl FnMut(&mut RingState, u32, u16, u32),
    ) -> Result<Moved, DeviceFault> {
        let mut moved = Moved::default();
        let capacity = state.capacity();
        let most = positions(most).min(state.out());
        let mut k = 0;
        while k < most {
            let position = state.next_used.wrapping_add(k);
            let Some((reported, len)) = used(table, state, position) else { break };
            if state.in_order && state.buffers == Buffers::Transmit {
                // Cites packed-2.8.8-1, packed-2.8.8-2.
                let batch = state.batch(position, reported)?;
                for done in 0..batch {
                    let id = state.ids[state.slot(position.wrapping_add(done))];
                    moved.packets += 1;
                    each(state, k + done, id, 0);
                }
                k += batch;
                continue;
            }
            let id = state.resolve(position, reported)?;
            // The device writes no transmit buffer, whatever it reports.
            moved.add(id, if state.buffers == Buffers::Transmit { 0 } else { len }, capacity)?;
            each(state, k, id, len);
            k += 1;
        }
        state.next_used = state.next_used.wrapping_add(k);
        Ok(moved)
    }
}

impl Bursts for PackedBursts {
    fn new(
        memory: &GuestMemory,
        geometry: Geometry,
        options: RingOptions,
        buffers: Buffers,
    ) -> Result<Self, &'static str> {
        let parts = geometry.locate_packed(memory)?;
        if !geometry.size.is_power_of_two() {
            return Err("size");
        }
        // Cites packed-2.8-5.
        parts.driver.write_u16(event::MODE, EVENTS_OFF);
        Ok(PackedBursts { parts, state: RingState::new(geometry.size, options.in_order, buffers) })
    }

    fn fill(&mut self, buffers: impl IntoIterator<Item = (u64, u32)>) -> usize {
        let PackedBursts { parts, state } = self;
        // Cites packed-2.8-4, packed-2.8.16-1.
        let mut buffers = buffers.into_iter().take(state.free()).peekable();
        let mut n = 0;
        while buffers.peek().is_some() {
            let mut burst = Burst::new(parts.desc.cells64());
            for (addr, len) in buffers.by_ref().take(FILL) {
                let id = state.ids[state.slot(state.next_avail)];
                let len = if let Buffers::Receive(capacity) = state.buffers { capacity } else { len };
                state.addrs[usize::from(id)] = addr;
                state.lens[usize::from(id)] = len;
                burst.put(state, state.next_avail, id, addr, len);
                state.next_avail = state.next_avail.wrapping_add(1);
                n += 1;
            }
            burst.publish();
        }
        n
    }

    #[inline]
    fn forward_each(
        from: &mut Self,
        to: &mut Self,
        spare: &mut Vec<u64>,
        most: usize,
        mut each: impl FnMut(u64, u32),
    ) -> Result<Moved, DeviceFault> {
        let most = most.min(to.state.free()).min(spare.len());
        let Buffers::Receive(capacity) = from.state.buffers else { return Ok(Moved::default()) };
        let mut refills = Burst::new(from.parts.desc.cells64());
        let mut sent = Burst::new(to.parts.desc.cells64());
        let refilled = from.state.next_avail;
        let next = to.state.next_avail;
        let moved = PackedBursts::take(from.parts.desc.cells64(), &mut from.state, most, |state, k, id, len| {
            let addr = state.addrs[usize::from(id)];
            each(addr, len);
            let position = refilled.wrapping_add(k);
            // If all buffers were outstanding, this is the id that was just returned.
            let refill = state.ids[state.slot(position)];
            let fresh = spare.pop().unwrap_or_default();
            state.addrs[usize::from(refill)] = fresh;
            refills.put(state, position, refill, fresh, capacity);
            let position = next.wrapping_add(k);
            let id = to.state.ids[to.state.slot(position)];
            to.state.addrs[usize::from(id)] = addr;
            sent.put(&to.state, position, id, addr, len);
        })?;
        refills.publish();
        sent.publish();
        from.state.next_avail = refilled.wrapping_add(positions(moved.packets));
        to.state.next_avail = next.wrapping_add(positions(moved.packets));
        Ok(moved)
    }

    #[inline]
    fn reclaim(&mut self, spare: &mut Vec<u64>) -> Result<usize, DeviceFault> {
        let PackedBursts { parts, state } = self;
        let each = |state: &mut RingState, _, id: u16, _| spare.push(state.addrs[usize::from(id)]);
        Ok(PackedBursts::take(parts.desc.cells64(), state, usize::MAX, each)?.packets)
    }

    #[inline]
    fn recycle(&mut self, most: usize) -> Result<Moved, DeviceFault> {
        self.recycle_each(most, |_, _| {})
    }

    #[inline]
    fn recycle_each(&mut self, most: usize, mut each: impl FnMut(u64, u32)) -> Result<Moved, DeviceFault> {
        let transmits = self.state.buffers == Buffers::Transmit;
        let PackedBursts { parts, state } = self;
        let mut burst = Burst::new(parts.desc.cells64());
        let again = state.next_avail;
        let moved = PackedBursts::take(parts.desc.cells64(), state, most, |state, k, id, reported| {
            let addr = state.addrs[usize::from(id)];
            let len = state.lens[usize::from(id)];
            each(addr, if transmits { len } else { reported });
            burst.put(state, again.wrapping_add(k), id, addr, len);
        })?;
        burst.publish();
        state.next_avail = again.wrapping_add(positions(moved.packets));
        Ok(moved)
    }

    #[inline]
    fn collect(&mut self, most: usize, mut each: impl FnMut(u64, u32)) -> Result<usize, DeviceFault> {
        let PackedBursts { parts, state } = self;
        let each = |state: &mut RingState, _, id: u16, len| each(state.addrs[usize::from(id)], len);
        Ok(PackedBursts::take(parts.desc.cells64(), state, most, each)?.packets)
    }

    #[inline]
    fn kick_due(&mut self) -> bool {
        let device = &self.parts.device;
        self.state.kick_due(|| device.read_u16(event::MODE) != EVENTS_OFF)
    }

    fn out(&self) -> usize {
        self.state.out() as usize
    }
}
