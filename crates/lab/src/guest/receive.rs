//! What arrives: packets out of the receive ring, and buffers into it.

use std::sync::Arc;

use straightline_packet::Segment;
use straightline_virtio::features as f;
use straightline_virtio::memory::GuestMemory;
use straightline_virtio::net_header::{LEN as HEADER, NetHeader};

use super::{Guest, HEADER_LEN};

impl Guest {
    /// Hands every packet that has arrived, at most `most`, to `each`, with its header and its pieces (the first begins
    /// with the frame, past the header); then gives the buffers back, or keeps them (see [`Self::withhold`]). Returns
    /// how many.
    pub fn receive(&mut self, most: usize, mut each: impl FnMut(&NetHeader, &[Segment<'_>])) -> usize {
        let mut packets = 0;
        let mergeable = self.features & f::VIRTIO_NET_F_MRG_RXBUF != 0;
        let memory = Arc::clone(&self.memory);
        let mut pieces: Vec<Segment<'_>> = Vec::new();
        while packets < most {
            let Some((buffer, segment)) = self.take(&memory) else { break };
            let mut bytes = [0; HEADER];
            segment.read(self.level, &mut bytes);
            let header = NetHeader::parse(&bytes);
            let first = segment.split_at(HEADER_LEN).1;
            let more = if mergeable { header.num_buffers.saturating_sub(1) } else { 0 };
            if more == 0 {
                each(&header, &[first]);
            } else {
                pieces.clear();
                pieces.push(first);
                let mut buffers = Vec::with_capacity(more.into());
                for _ in 0..more {
                    // All buffers of a packet become visible together.
                    let Some((buffer, segment)) = self.take(&memory) else { break };
                    pieces.push(segment);
                    buffers.push(buffer);
                }
                each(&header, &pieces);
                for buffer in buffers {
                    self.offer(buffer);
                }
            }
            self.offer(buffer);
            packets += 1;
        }
        if packets > 0 {
            self.receive.kick();
        }
        packets
    }

    /// Whether buffers of packets to come are kept. What is kept goes back with [`Self::give`].
    pub fn withhold(&mut self, withhold: bool) {
        self.withhold = withhold;
    }

    /// Gives the backend at most `n` of the receive buffers that are kept; returns how many.
    pub fn give(&mut self, n: usize) -> usize {
        let n = n.min(self.kept.len());
        for _ in 0..n {
            if let Some(buffer) = self.kept.pop() {
                self.hand_over(buffer);
            }
        }
        self.receive.kick();
        n
    }

    /// Receive buffers that the backend does not have.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    fn offer(&mut self, buffer: u16) {
        if self.withhold {
            self.kept.push(buffer);
        } else {
            self.hand_over(buffer);
        }
    }

    /// Makes a buffer available, in as many descriptors as the options say.
    fn hand_over(&mut self, buffer: u16) {
        let (addr, len) = (self.receive.address(buffer), self.buffer_len);
        let added = if self.receive_cut == 0 {
            self.receive.driver.add(&[(addr, len, true)])
        } else {
            let starts = (0..len).step_by(self.receive_cut as usize);
            let parts: Vec<_> = starts.map(|at| (addr + u64::from(at), self.receive_cut.min(len - at), true)).collect();
            self.receive.driver.add(&parts)
        };
        match added {
            Some(head) => self.receive.buffer_of[usize::from(head)] = buffer,
            None => self.kept.push(buffer),
        }
    }

    /// The next used buffer: its number and the bytes that were written.
    fn take<'m>(&mut self, memory: &'m GuestMemory) -> Option<(u16, Segment<'m>)> {
        loop {
            // A head that is not out is the backend's mistake; there is nothing behind it to look at.
            let Ok((head, len)) = self.receive.driver.used()? else { continue };
            let buffer = self.receive.buffer_of[usize::from(head)];
            let segment = self.receive.segment(memory, buffer, len)?;
            return Some((buffer, segment));
        }
    }
}
