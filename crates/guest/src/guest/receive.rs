//! Receiving: packets out of the receive ring, and buffers into it.

use straightline_packet::{Level, MemorySegment};
use straightline_virtio::memory::GuestMemory;
use straightline_virtio::net_header::{LEN as HEADER, NetHeader};

use super::driver::{Driver, either};
use super::half::Buffers;
use super::{HEADER_LEN, Pair};

/// The receive buffers that the device does not have, and options for giving buffers to the device.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) kept: Vec<u16>,
    /// True if used buffers are not given back to the device.
    pub(super) withhold: bool,
    /// Bytes of a buffer in each descriptor; 0: one descriptor for the entire buffer.
    pub(super) cut: u32,
}

impl Pair {
    /// Passes at most `most` packets that have arrived to `each`: the header, and the parts of the
    /// frame. The first part starts after the header. Then gives the buffers back to the device, or
    /// keeps them (see [`Self::withhold`]). Returns the number of packets.
    pub fn receive(&mut self, most: usize, each: impl FnMut(&NetHeader, &[MemorySegment<'_>])) -> usize {
        let Pair { memory, level, mergeable, receive, inbox, .. } = self;
        let view = View { memory, level: *level, mergeable: *mergeable };
        let packets =
            either!(&mut receive.driver, driver => collect(driver, &mut receive.buffers, inbox, view, most, each));
        if packets > 0 {
            receive.kick();
        }
        packets
    }

    /// Sets whether the buffers of later packets are kept. [`Self::give`] gives kept buffers back
    /// to the device.
    pub fn withhold(&mut self, withhold: bool) {
        self.inbox.withhold = withhold;
    }

    /// Gives the backend at most `n` of the kept receive buffers; returns their number.
    pub fn give(&mut self, n: usize) -> usize {
        let Pair { receive, inbox, .. } = self;
        let n = n.min(inbox.kept.len());
        either!(&mut receive.driver, driver => {
            for _ in 0..n {
                if let Some(buffer) = inbox.kept.pop() {
                    inbox.hand_over(driver, &mut receive.buffers, buffer);
                }
            }
        });
        receive.kick();
        n
    }

    /// Returns the number of receive buffers that the backend does not have.
    pub fn kept(&self) -> usize {
        self.inbox.kept.len()
    }
}

/// The parts of a queue pair that are needed to read a buffer.
#[derive(Clone, Copy)]
struct View<'m> {
    memory: &'m GuestMemory,
    level: Level,
    mergeable: bool,
}

fn collect<D: Driver>(
    driver: &mut D,
    buffers: &mut Buffers,
    inbox: &mut Inbox,
    view: View<'_>,
    most: usize,
    mut each: impl FnMut(&NetHeader, &[MemorySegment<'_>]),
) -> usize {
    let mut packets = 0;
    let mut parts: Vec<MemorySegment<'_>> = Vec::new();
    while packets < most {
        let Some((buffer, segment)) = take(driver, buffers, view.memory) else { break };
        let mut bytes = [0; HEADER];
        segment.read(view.level, &mut bytes);
        let header = NetHeader::parse(&bytes);
        let first = segment.split_at(HEADER_LEN).1;
        let more = if view.mergeable { header.num_buffers.saturating_sub(1) } else { 0 };
        if more == 0 {
            each(&header, &[first]);
        } else {
            parts.clear();
            parts.push(first);
            let mut further = Vec::with_capacity(more.into());
            for _ in 0..more {
                // All buffers of a packet become visible together.
                let Some((buffer, segment)) = take(driver, buffers, view.memory) else { break };
                parts.push(segment);
                further.push(buffer);
            }
            each(&header, &parts);
            for buffer in further {
                inbox.offer(driver, buffers, buffer);
            }
        }
        inbox.offer(driver, buffers, buffer);
        packets += 1;
    }
    packets
}

/// Returns the next used buffer: its number and the bytes that were written.
fn take<'m, D: Driver>(
    driver: &mut D,
    buffers: &mut Buffers,
    memory: &'m GuestMemory,
) -> Option<(u16, MemorySegment<'m>)> {
    loop {
        // An id that is not in flight is the backend's fault. No buffer belongs to it.
        let Ok((head, len)) = driver.used()? else { continue };
        let buffer = buffers.of[usize::from(head)];
        let segment = buffers.segment(memory, buffer, len)?;
        return Some((buffer, segment));
    }
}

impl Inbox {
    fn offer<D: Driver>(&mut self, driver: &mut D, buffers: &mut Buffers, buffer: u16) {
        if self.withhold {
            self.kept.push(buffer);
        } else {
            self.hand_over(driver, buffers, buffer);
        }
    }

    /// Makes a buffer available, in one descriptor or in several as the options say.
    fn hand_over<D: Driver>(&mut self, driver: &mut D, buffers: &mut Buffers, buffer: u16) {
        let addr = buffers.address(buffer);
        let len = buffers.len;
        let added = if self.cut == 0 {
            driver.add(&[(addr, len, true)])
        } else {
            let starts = (0..len).step_by(self.cut as usize);
            let parts: Vec<_> = starts.map(|at| (addr + u64::from(at), self.cut.min(len - at), true)).collect();
            driver.add(&parts)
        };
        match added {
            Some(head) => buffers.of[usize::from(head)] = buffer,
            None => self.kept.push(buffer),
        }
    }
}
