//! Additional reads and writes of each packet's bytes, beyond those of the mode.

use std::hint::black_box;

use straightline_guest::endpoints::{Packet, Received};

use super::Touch;

/// Number of bytes that are copied at once.
const CHUNK: usize = 2048;

/// Length of an Ethernet header. Only bytes after the header are changed.
const ETHERNET: usize = 14;

/// Touches packets.
pub(super) struct Toucher {
    pub(super) touch: Touch,
    /// The destination of copies. Others may write to the packet's memory, so its bytes are never
    /// examined in place.
    scratch: Box<[u8; CHUNK]>,
}

impl Toucher {
    pub(super) fn new(touch: Touch) -> Self {
        Toucher { touch, scratch: Box::new([0; CHUNK]) }
    }

    #[inline]
    pub(super) fn apply(&mut self, packet: &Packet<'_>) {
        match self.touch {
            Touch::None => {}
            Touch::Header => {
                black_box(packet.header());
                let mut ethernet = [0; ETHERNET];
                packet.read(0, &mut ethernet);
                black_box(ethernet);
            }
            Touch::Read => self.read(packet),
            Touch::Edit => self.edit(packet),
        }
    }

    fn read(&mut self, packet: &Packet<'_>) {
        black_box(packet.header());
        for from in (0..packet.len()).step_by(CHUNK) {
            let len = CHUNK.min(packet.len() - from);
            packet.read(from, &mut self.scratch[..len]);
        }
        black_box(&self.scratch);
    }

    fn edit(&mut self, packet: &Packet<'_>) {
        packet.set_header(&packet.header());
        for from in (0..packet.len()).step_by(CHUNK) {
            let len = CHUNK.min(packet.len() - from);
            let bytes = &mut self.scratch[..len];
            packet.read(from, bytes);
            let kept = if from == 0 { ETHERNET.min(len) } else { 0 };
            bytes[kept..].iter_mut().for_each(|byte| *byte = !*byte);
            packet.write(from, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use straightline_guest::testing::Laid;
    use straightline_virtio::net_header::NetHeader;

    use super::*;

    #[test]
    fn editing_changes_all_behind_the_ethernet_header_and_nothing_else_does() {
        for (len, buffer_len) in [(60, 2048), (1514, 2048), (9000, 16384), (9000, 1000), (5000, 76), (10, 2048)] {
            let frame: Vec<u8> = (0..=250).cycle().take(len).collect();
            let header = NetHeader { num_buffers: 3, ..NetHeader::default() };
            for &touch in Touch::ALL {
                let laid = Laid::new(&frame, &header, buffer_len);
                Toucher::new(touch).apply(&laid.packet());
                let (kept, rest) = frame.split_at(if touch == Touch::Edit { len.min(14) } else { len });
                let want: Vec<u8> = kept.iter().copied().chain(rest.iter().map(|byte| !byte)).collect();
                assert!(laid.frame() == want, "{touch} of {len} bytes in buffers of {buffer_len}");
                assert_eq!(laid.packet().header(), header);
            }
        }
    }
}
