//! The transmit ring: frames that are filled into buffers, and published together.

use az::SaturatingAs;
use straightline_packet::{Level, MemorySegment};
use straightline_virtio::net_header::{LEN as HEADER, NetHeader};
use straightline_virtio::ring::DeviceFault;

use super::memory::Memory;
use super::options::PortOptions;
use super::rings::Transmit;
use super::shelves::{Shelves, part_of};
use crate::guest::HEADER_LEN;

/// The transmit ring.
#[derive(Debug)]
pub(super) struct Outbox {
    pub(super) ring: Transmit,
    size: usize,
    pub(super) buffer_len: u32,
    pub(super) longest: usize,
    /// Free buffers that are not sorted yet: relayed packets do not need that.
    pub(super) spare: Vec<u64>,
    /// Free buffers by their contents.
    shelves: Shelves,
    /// True if packets were relayed since the contents of buffers were known.
    relayed: bool,
    /// Buffers that are not published yet: address and length. `spans` has the number of buffers of
    /// each packet.
    pub(super) pending: Vec<(u64, u32)>,
    pub(super) spans: Vec<u16>,
    pub(super) bytes: u64,
    pub(super) packets: u64,
    /// A fault, which the next call reports.
    pub(super) fault: Option<DeviceFault>,
    pub(super) too_long: Option<usize>,
    /// Offsets in a buffer of the first and the last byte of the last patch. Patches of later frames
    /// are mostly at the same place.
    pub(super) patched: [u32; 2],
}

impl Outbox {
    /// Makes an empty transmit ring with the free buffers `spare`. Buffers of all rings are numbered
    /// up to `buffers`.
    pub(super) fn new(ring: Transmit, options: &PortOptions, spare: Vec<u64>, buffers: usize) -> Outbox {
        let size = usize::from(options.queue_size);
        Outbox {
            ring,
            size,
            buffer_len: options.buffer_len,
            longest: options.longest as usize,
            spare,
            shelves: Shelves::new(buffers),
            relayed: false,
            pending: Vec::with_capacity(size),
            spans: Vec::with_capacity(size),
            bytes: 0,
            packets: 0,
            fault: None,
            too_long: None,
            patched: [HEADER_LEN; 2],
        }
    }

    /// Takes back the buffers that the backend has used, and returns the number of free buffers.
    #[inline]
    pub(super) fn free_buffers(&mut self) -> Result<usize, DeviceFault> {
        self.ring.reclaim(&mut self.spare)?;
        Ok(self.free())
    }

    #[inline]
    fn free(&self) -> usize {
        (self.ring.free(self.size) - self.pending.len()).min(self.spare.len() + self.shelves.len())
    }

    /// Returns whether this many buffers are free, possibly after taking back used ones.
    #[inline]
    pub(super) fn has_free(&mut self, buffers: usize) -> bool {
        if self.free() >= buffers {
            return true;
        }
        self.fault = self.fault.or(self.ring.reclaim(&mut self.spare).err());
        self.free() >= buffers
    }

    /// Adds a frame in one buffer to the frames that are not published yet.
    #[inline]
    pub(super) fn push(&mut self, buffer: (u64, u32), frame_len: usize) {
        self.pending.push(buffer);
        if self.ring.chains() {
            self.spans.push(1);
        }
        self.packets += 1;
        self.bytes += u64::try_from(frame_len).unwrap_or(0);
    }

    /// Takes a free buffer for this part of a template. Returns its address, and whether it holds
    /// this part already. It is noted as holding this part from now on.
    #[inline]
    pub(super) fn take(&mut self, memory: &Memory, part: u64) -> Option<(u64, bool)> {
        if !self.spare.is_empty() {
            self.sort(memory);
        }
        let (number, is_held) = self.shelves.take(part)?;
        Some((memory.address(number), is_held))
    }

    /// Sorts the free buffers that have returned. Prefetches the lines that patches will change,
    /// because the backend has read them: a store would have to wait for such a line.
    fn sort(&mut self, memory: &Memory) {
        if std::mem::take(&mut self.relayed) {
            self.shelves.forget();
        }
        for addr in self.spare.drain(..) {
            prefetch(memory, addr, self.patched, MemorySegment::prefetch_write_at);
            self.shelves.put(memory.number(addr));
        }
    }

    /// Makes all free buffers spare ones, for packets that are relayed in their buffers. Buffers of
    /// other rings come in their place, so their contents are unknown then.
    #[inline]
    pub(super) fn relays(&mut self, memory: &Memory) {
        self.relayed = true;
        while let Some(number) = self.shelves.take_any() {
            self.spare.push(memory.address(number));
        }
    }

    /// Publishes the pending buffers. Returns the number of frames and of their bytes; zeros if
    /// nothing was pending.
    #[inline]
    pub(super) fn publish(&mut self) -> [u64; 2] {
        if !self.pending.is_empty() {
            self.ring.send(&self.pending, &self.spans);
            self.pending.clear();
            self.spans.clear();
        }
        [std::mem::take(&mut self.packets), std::mem::take(&mut self.bytes)]
    }

    /// Returns whether the backend still has frames that were published.
    pub(super) fn is_sending(&mut self) -> Result<bool, DeviceFault> {
        self.ring.reclaim(&mut self.spare)?;
        Ok(self.ring.free(self.size) < self.size)
    }

    /// Sends a frame that needs several buffers.
    #[cold]
    pub(super) fn send_long(
        &mut self,
        memory: &Memory,
        level: Level,
        template: usize,
        (header, frame): (&NetHeader, &[u8]),
        patches: &[(usize, &[u8])],
    ) -> bool {
        if frame.len() > self.longest {
            self.too_long = Some(frame.len());
            return false;
        }
        let total = HEADER + frame.len();
        let span = total.div_ceil(self.buffer_len as usize);
        if !self.has_free(span) {
            return false;
        }
        for chunk in 0..span {
            let Some((addr, is_held)) = self.take(memory, part_of(template, chunk)) else { return false };
            let from = chunk * self.buffer_len as usize;
            let len = (total - from).min(self.buffer_len as usize);
            let Some(buffer) = memory.buffer(addr, self.buffer_len) else { return false };
            // The part of the frame in this buffer: its start in the frame, and its start in the
            // buffer.
            let (start, behind) = if chunk == 0 { (0, HEADER) } else { (from - HEADER, 0) };
            let body = buffer.split_at(narrow(behind)).1;
            let part = &frame[start..start + len - behind];
            if !is_held {
                if chunk == 0 {
                    buffer.write(level, &header.to_bytes());
                }
                body.write(level, part);
            }
            for &(at, bytes) in patches {
                // Only those bytes of the patch are written that are in this part.
                let skip = start.saturating_sub(at).min(bytes.len());
                let at = (at + skip).saturating_sub(start);
                if at < part.len() {
                    body.split_at(narrow(at)).1.split_at(narrow(part.len() - at)).0.write(level, &bytes[skip..]);
                }
            }
            self.pending.push((addr, narrow(len)));
        }
        if self.ring.chains() {
            self.spans.push(span.saturating_as::<u16>());
        }
        self.packets += 1;
        self.bytes += frame.len().saturating_as::<u64>();
        true
    }
}

/// Calls `fetch` for the cache lines of the first and the last of these bytes of a buffer.
#[inline]
pub(super) fn prefetch<'m>(
    memory: &'m Memory,
    addr: u64,
    [first, last]: [u32; 2],
    fetch: impl Fn(MemorySegment<'m>, u32),
) {
    let Some(buffer) = memory.buffer(addr, HEADER_LEN) else { return };
    fetch(buffer, first);
    if ((addr + u64::from(first)) ^ (addr + u64::from(last))) & !63 != 0 {
        fetch(buffer, last);
    }
}

/// Converts a length. A length beyond 4 GiB is longer than every buffer.
#[inline]
pub(super) fn narrow(len: usize) -> u32 {
    len.saturating_as::<u32>()
}
