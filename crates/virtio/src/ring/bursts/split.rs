//! Bursts over the split ring (virtio 1.2, 2.7).

use std::sync::atomic::Ordering::Relaxed;

use super::{Buffers, Bursts, Moved, RingState, positions};
use crate::memory::GuestMemory;
use crate::ring::driver::DeviceFault;
use crate::ring::layout::{self, Descriptor, Geometry, NO_INTERRUPT, NO_NOTIFY, Parts, RingOptions, WRITE};

/// Used elements on a cache line.
const ELEMENTS_PER_LINE: usize = 8;

/// A driver half of a split ring for bursts.
#[derive(Debug)]
pub struct SplitBursts {
    parts: Parts,
    state: RingState,
}

impl SplitBursts {
    /// Returns the number of used buffers, at most `most`.
    #[inline]
    fn ready(&self, most: usize) -> Result<usize, DeviceFault> {
        // Acquire: once the index is visible, so are the elements before it and the bytes in the
        // buffers (2.7.14).
        let seen = self.parts.used.acquire_u16(layout::used::INDEX);
        let ahead = seen.wrapping_sub(low(self.state.next_used));
        let published = low(self.state.out());
        if ahead > published {
            return Err(DeviceFault::IndexJump { ahead, published });
        }
        Ok(usize::from(ahead).min(most))
    }

    /// Makes the next `n` positions available, whose descriptors are written.
    #[inline]
    fn publish(&mut self, n: usize) {
        let SplitBursts { parts, state } = self;
        if !state.sorted {
            for position in (0..positions(n)).map(|k| state.next_avail.wrapping_add(k)) {
                let slot = state.slot(position);
                parts.avail.write_u16(layout::avail::entry(slot), state.ids[slot]);
            }
        }
        state.next_avail = state.next_avail.wrapping_add(positions(n));
        // Release: entries and descriptors are visible before the index (2.7.13.3).
        parts.avail.release_u16(layout::avail::INDEX, low(state.next_avail));
    }

    /// Calls `each` with number, id and length of `n` used buffers, a number that `ready` returned.
    #[inline]
    fn take(
        Parts { used, .. }: &Parts,
        state: &mut RingState,
        n: usize,
        mut each: impl FnMut(&mut RingState, u32, u16, u32),
    ) -> Result<Moved, DeviceFault> {
        let mut moved = Moved::default();
        let capacity = state.capacity();
        let elements = used.cells32();
        for k in (0..positions(n)).step_by(ELEMENTS_PER_LINE) {
            used.prefetch(layout::used::entry(state.slot(state.next_used.wrapping_add(k))));
        }
        for k in 0..positions(n) {
            let at = layout::used::entry(state.slot(state.next_used.wrapping_add(k))) / 4;
            let [reported, len] = [at, at + 1].map(|cell| u32::from_le(elements[cell].load(Relaxed)));
            let id = state.resolve(state.next_used.wrapping_add(k), reported)?;
            moved.add(id, len, capacity)?;
            each(state, k, id, len);
        }
        state.next_used = state.next_used.wrapping_add(positions(n));
        Ok(moved)
    }
}

impl Bursts for SplitBursts {
    fn new(
        memory: &GuestMemory,
        geometry: Geometry,
        options: RingOptions,
        buffers: Buffers,
    ) -> Result<Self, &'static str> {
        let parts = geometry.locate(memory)?;
        parts.avail.write_u16(layout::avail::FLAGS, NO_INTERRUPT);
        for id in 0..geometry.size {
            parts.avail.write_u16(layout::avail::entry(id.into()), id);
        }
        Ok(SplitBursts { parts, state: RingState::new(geometry.size, options.in_order, buffers) })
    }

    fn fill(&mut self, buffers: impl IntoIterator<Item = (u64, u32)>) -> usize {
        let SplitBursts { parts, state } = self;
        let mut n = 0;
        for (addr, len) in buffers.into_iter().take(state.free()) {
            let id = state.ids[state.slot(state.next_avail.wrapping_add(positions(n)))];
            n += 1;
            let (len, flags) = match state.buffers {
                // The descriptor has this buffer already, as all receive buffers have one length.
                // If its line is not written, the device need not fetch the line again.
                Buffers::Receive(_) if state.addrs[usize::from(id)] == addr => continue,
                Buffers::Receive(capacity) => (capacity, WRITE),
                Buffers::Transmit => (len, 0),
            };
            state.addrs[usize::from(id)] = addr;
            state.lens[usize::from(id)] = len;
            Descriptor { addr, len, flags, next: 0 }.write(&parts.desc, id);
        }
        self.publish(n);
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
        let n = from.ready(most.min(to.state.free()).min(spare.len()))?;
        if n == 0 {
            return Ok(Moved::default());
        }
        let rest = spare.len() - n;
        let fresh = &spare[rest..];
        let refilled = from.state.next_avail;
        let received = from.parts.desc.cells64();
        let sent = to.parts.desc.cells64();
        let next = to.state.next_avail;
        let moved = SplitBursts::take(&from.parts, &mut from.state, n, |state, k, id, len| {
            let addr = state.addrs[usize::from(id)];
            each(addr, len);
            // If all buffers were outstanding, this is the id that was just returned.
            let refill = state.ids[state.slot(refilled.wrapping_add(k))];
            let fresh = fresh[k as usize];
            state.addrs[usize::from(refill)] = fresh;
            received[2 * usize::from(refill)].store(fresh.to_le(), Relaxed);
            let id = usize::from(to.state.ids[to.state.slot(next.wrapping_add(k))]);
            to.state.addrs[id] = addr;
            sent[2 * id].store(addr.to_le(), Relaxed);
            // No flags, and no next descriptor.
            sent[2 * id + 1].store(u64::from(len).to_le(), Relaxed);
        })?;
        spare.truncate(rest);
        from.publish(n);
        to.publish(n);
        Ok(moved)
    }

    #[inline]
    fn reclaim(&mut self, spare: &mut Vec<u64>) -> Result<usize, DeviceFault> {
        let n = self.ready(usize::MAX)?;
        let SplitBursts { parts, state } = self;
        if state.in_order {
            // In order, everything up to the index is done, and the elements do not matter (2.7.9).
            let done = (0..positions(n)).map(|k| state.slot(state.next_used.wrapping_add(k)));
            spare.extend(done.map(|slot| state.addrs[usize::from(state.ids[slot])]));
            state.next_used = state.next_used.wrapping_add(positions(n));
        } else {
            SplitBursts::take(parts, state, n, |state, _, id, _| spare.push(state.addrs[usize::from(id)]))?;
        }
        Ok(n)
    }

    #[inline]
    fn recycle(&mut self, most: usize) -> Result<Moved, DeviceFault> {
        let n = self.ready(most)?;
        if n == 0 {
            return Ok(Moved::default());
        }
        let SplitBursts { parts, state } = self;
        let moved = if state.in_order && state.buffers == Buffers::Transmit {
            state.next_used = state.next_used.wrapping_add(positions(n));
            Moved { packets: n, ..Moved::default() }
        } else {
            SplitBursts::take(parts, state, n, |_, _, _, _| {})?
        };
        self.publish(n);
        Ok(moved)
    }

    #[inline]
    fn recycle_each(&mut self, most: usize, mut each: impl FnMut(u64, u32)) -> Result<Moved, DeviceFault> {
        let n = self.ready(most)?;
        if n == 0 {
            return Ok(Moved::default());
        }
        let SplitBursts { parts, state } = self;
        let moved = if state.buffers == Buffers::Transmit {
            let mut each = |state: &RingState, id: u16| each(state.addrs[usize::from(id)], state.lens[usize::from(id)]);
            if state.in_order {
                (0..positions(n)).for_each(|k| each(state, state.ids[state.slot(state.next_used.wrapping_add(k))]));
                state.next_used = state.next_used.wrapping_add(positions(n));
                Moved { packets: n, ..Moved::default() }
            } else {
                SplitBursts::take(parts, state, n, |state, _, id, _| each(state, id))?
            }
        } else {
            SplitBursts::take(parts, state, n, |state, _, id, len| each(state.addrs[usize::from(id)], len))?
        };
        self.publish(n);
        Ok(moved)
    }

    #[inline]
    fn collect(&mut self, most: usize, mut each: impl FnMut(u64, u32)) -> Result<usize, DeviceFault> {
        let n = self.ready(most)?;
        let SplitBursts { parts, state } = self;
        SplitBursts::take(parts, state, n, |state, _, id, len| each(state.addrs[usize::from(id)], len))?;
        Ok(n)
    }

    #[inline]
    fn kick_due(&mut self) -> bool {
        let used = &self.parts.used;
        self.state.kick_due(|| used.read_u16(layout::used::FLAGS) & NO_NOTIFY == 0)
    }

    fn out(&self) -> usize {
        self.state.out() as usize
    }
}

/// Returns a position as an index of the ring.
#[expect(clippy::cast_possible_truncation, reason = "indexes wrap at 65536 (2.7.13)")]
#[inline]
fn low(position: u32) -> u16 {
    position as u16
}
