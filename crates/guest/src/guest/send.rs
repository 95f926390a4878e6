//! Sending: frames into the transmit ring, in one buffer or in several.

use std::collections::HashMap;

use az::SaturatingAs;
use straightline_packet::MemorySegment;
use straightline_virtio::net_header::{LEN as HEADER, NetHeader};
use straightline_virtio::ring::{Descriptor, INDIRECT, NEXT};

use super::driver::{AnyDriver, Driver, either};
use super::half::{Buffers, Half};
use super::{HEADER_LEN, Pair, Ring};

/// Bytes of a descriptor (virtio 1.2, 2.7.5).
const DESCRIPTOR: usize = 16;

impl Pair {
    /// Returns the number of free transmit buffers.
    pub fn spare(&self) -> usize {
        self.spare.len()
    }

    /// Returns the transmit buffer for the next frame, from its virtio-net header on.
    pub fn next_buffer(&mut self) -> Option<(u16, MemorySegment<'_>)> {
        let &buffer = self.spare.last()?;
        let segment = self.transmit.buffers.segment(&self.memory, buffer, u32::MAX)?;
        Some((buffer, segment))
    }

    /// Returns a transmit buffer by its number, so that the caller can fill it before traffic
    /// starts.
    pub fn buffer(&mut self, buffer: u16) -> Option<MemorySegment<'_>> {
        self.transmit.buffers.segment(&self.memory, buffer, u32::MAX)
    }

    /// Makes the first `len` bytes (header included) of the buffer from [`Self::next_buffer`]
    /// available; the backend sees them after [`Self::flush`].
    pub fn send_next(&mut self, len: u32) -> bool {
        let Some(&buffer) = self.spare.last() else { return false };
        let Half { driver, buffers, .. } = &mut self.transmit;
        let Some(head) = driver.add(&[(buffers.address(buffer), len.min(buffers.len), false)]) else { return false };
        self.transmit.buffers.of[usize::from(head)] = buffer;
        self.spare.pop();
        true
    }

    /// Sends one frame with a header. Returns `false` if no buffer is free, or if the free buffer
    /// is too short.
    pub fn send(&mut self, header: &NetHeader, frame: &[u8]) -> bool {
        let level = self.level;
        let Some((_, segment)) = self.next_buffer() else { return false };
        let total = HEADER + frame.len();
        if total > segment.len() as usize {
            return false;
        }
        let rest = segment.split_at(HEADER_LEN).1;
        segment.write(level, &header.to_bytes());
        rest.write(level, frame);
        self.send_next(total.saturating_as::<u32>())
    }

    /// Sends `parts` as one chain, each part in a buffer of its own. If `indirect` is set, the
    /// chain has an indirect table in one more buffer. The first bytes are the virtio-net header.
    /// Returns `false` if buffers are too few or too small.
    pub fn send_chain(&mut self, parts: &[&[u8]], indirect: bool) -> bool {
        let buffers = parts.len() + usize::from(indirect);
        let table = if indirect { DESCRIPTOR * parts.len() } else { 0 };
        let largest = parts.iter().map(|p| p.len()).max().unwrap_or(0).max(table);
        if parts.is_empty() || buffers > self.spare.len() || largest > self.transmit.buffers.len as usize {
            return false;
        }
        let mut taken = self.spare.split_off(self.spare.len() - buffers);
        let mut descriptors = Vec::with_capacity(parts.len());
        for (&buffer, part) in taken.iter().zip(parts) {
            let len = part.len().saturating_as::<u32>();
            if let Some(segment) = self.transmit.buffers.segment(&self.memory, buffer, len) {
                segment.write(self.level, part);
            }
            descriptors.push((self.transmit.buffers.address(buffer), len, false));
        }
        let head = if indirect {
            self.add_table(taken[buffers - 1], &descriptors)
        } else {
            self.transmit.driver.add(&descriptors)
        };
        let Some(head) = head else {
            self.spare.append(&mut taken);
            return false;
        };
        self.transmit.buffers.of[usize::from(head)] = taken[0];
        taken.remove(0);
        self.chained.insert(head, taken);
        true
    }

    /// Writes a table of `parts` into a buffer, and makes a chain of one descriptor that refers to
    /// it.
    fn add_table(&mut self, buffer: u16, parts: &[(u64, u32, bool)]) -> Option<u16> {
        let mut bytes = Vec::with_capacity(DESCRIPTOR * parts.len());
        for (next, &(addr, len, _)) in (1..).zip(parts) {
            let more = usize::from(next) < parts.len();
            let desc = Descriptor { addr, len, flags: if more { NEXT } else { 0 }, next: if more { next } else { 0 } };
            bytes.extend(descriptor_bytes(desc));
        }
        let len = u32::try_from(bytes.len()).ok()?;
        self.transmit.buffers.segment(&self.memory, buffer, len)?.write(self.level, &bytes);
        let addr = self.transmit.buffers.address(buffer);
        let AnyDriver::Split(driver) = &mut self.transmit.driver else { return None };
        let head = driver.add(&[(addr, len, false)])?;
        // The driver half makes descriptors without the flag for a table. This one is not published
        // yet, so it can be overwritten.
        self.write_descriptor(Ring::Transmit, head, Descriptor { addr, len, flags: INDIRECT, next: 0 });
        Some(head)
    }

    /// Kicks the transmit ring, whether or not there are frames and the backend has asked for a kick.
    pub fn kick_anyway(&self) {
        self.transmit.ring_the_bell();
    }

    /// Publishes sent frames, and takes back the buffers that the backend has used.
    pub fn flush(&mut self) {
        self.transmit.kick();
        let Pair { transmit: Half { driver, buffers, .. }, spare, chained, .. } = self;
        either!(driver, driver => reclaim(driver, buffers, spare, chained));
    }
}

fn reclaim<D: Driver>(driver: &mut D, buffers: &Buffers, spare: &mut Vec<u16>, chained: &mut HashMap<u16, Vec<u16>>) {
    while let Some(used) = driver.used() {
        let Ok((head, _)) = used else { continue };
        spare.push(buffers.of[usize::from(head)]);
        if !chained.is_empty()
            && let Some(mut more) = chained.remove(&head)
        {
            spare.append(&mut more);
        }
    }
}

/// Returns the bytes of a descriptor in memory (virtio 1.2, 2.7.5).
pub(super) fn descriptor_bytes(desc: Descriptor) -> [u8; DESCRIPTOR] {
    let rest = u64::from(desc.len) | u64::from(desc.flags) << 32 | u64::from(desc.next) << 48;
    let mut bytes = [0; DESCRIPTOR];
    bytes[..8].copy_from_slice(&desc.addr.to_le_bytes());
    bytes[8..].copy_from_slice(&rest.to_le_bytes());
    bytes
}
