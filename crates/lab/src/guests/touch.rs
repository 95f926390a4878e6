//! The touch policy: a guest's accesses to the bytes of a packet, beyond those of its mode. These
//! accesses also cost the switch time: its next copy finds the lines in another CPU's cache.

use std::hint::black_box;

use straightline_guest::HEADER_LEN;
use straightline_guest::endpoints::{Packet, Received};
use straightline_packet::{Level, MemorySegment};

use crate::names::names;

/// Number of bytes that are copied at once.
const CHUNK: u32 = 2048;

/// Length of an Ethernet header. When a guest inverts bytes, it keeps the header.
const ETHERNET: u32 = 14;

/// Bytes of a cache line.
const LINE: u64 = 64;

/// Additional reads and writes of each packet's bytes, as an application would make them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Touch {
    /// No accesses beyond those of the mode.
    #[default]
    None,
    /// Reads the virtio-net header and the Ethernet header.
    Header,
    /// Reads all bytes.
    Read,
    /// Reads and writes all bytes. A guest that forwards inverts the bytes after the Ethernet
    /// header. The reflector writes them back unchanged, so that packets can be compared at the
    /// end.
    Edit,
}

names!(Touch: None "none", Header "header", Read "read", Edit "edit");

impl Touch {
    /// Returns the number of bytes that this policy touches of a packet of `len` bytes, including
    /// its virtio-net header.
    fn bytes(self, len: u32) -> u32 {
        match self {
            Touch::None => 0,
            Touch::Header => len.min(HEADER_LEN + ETHERNET),
            Touch::Read | Touch::Edit => len,
        }
    }

    /// Returns the number of a packet's cache lines that a guest with this policy touches. The
    /// packet starts at `addr` and has `len` bytes, including its virtio-net header.
    #[must_use]
    pub fn lines(self, addr: u64, len: u32) -> u64 {
        lines(addr, self.bytes(len))
    }
}

/// Returns the number of cache lines of `len` bytes at `addr`.
pub(crate) fn lines(addr: u64, len: u32) -> u64 {
    if len == 0 { 0 } else { (addr % LINE + u64::from(len)).div_ceil(LINE) }
}

/// Touches packets by a policy.
pub(crate) struct Toucher {
    pub(crate) touch: Touch,
    /// The destination of copies. Others may write to the packet's memory, so its bytes are never
    /// examined in place.
    scratch: Box<[u8; CHUNK as usize]>,
}

impl Toucher {
    pub(crate) fn new(touch: Touch) -> Self {
        Toucher { touch, scratch: Box::new([0; CHUNK as usize]) }
    }

    /// Touches a packet in one buffer, which begins with the virtio-net header. No byte changes.
    #[inline]
    pub(crate) fn keep(&mut self, buffer: MemorySegment<'_>, level: Level) {
        let mut rest = buffer.split_at(self.touch.bytes(buffer.len())).0;
        while !rest.is_empty() {
            let (chunk, behind) = rest.split_at(CHUNK);
            let read = chunk.read(level, &mut self.scratch[..]);
            if self.touch == Touch::Edit {
                chunk.write(level, &self.scratch[..read]);
            }
            rest = behind;
        }
        black_box(&self.scratch);
    }

    /// Touches a packet in its buffers. [`Touch::Edit`] inverts its bytes.
    #[inline]
    pub(crate) fn apply(&mut self, packet: &Packet<'_>) {
        match self.touch {
            Touch::None => {}
            Touch::Header => {
                black_box(packet.header());
                let mut ethernet = [0; ETHERNET as usize];
                packet.read(0, &mut ethernet);
                black_box(ethernet);
            }
            Touch::Read => self.read(packet),
            Touch::Edit => self.edit(packet),
        }
    }

    fn read(&mut self, packet: &Packet<'_>) {
        black_box(packet.header());
        for from in (0..packet.len()).step_by(CHUNK as usize) {
            let len = (CHUNK as usize).min(packet.len() - from);
            packet.read(from, &mut self.scratch[..len]);
        }
        black_box(&self.scratch);
    }

    fn edit(&mut self, packet: &Packet<'_>) {
        packet.set_header(&packet.header());
        for from in (0..packet.len()).step_by(CHUNK as usize) {
            let len = (CHUNK as usize).min(packet.len() - from);
            let bytes = &mut self.scratch[..len];
            packet.read(from, bytes);
            let kept = if from == 0 { (ETHERNET as usize).min(len) } else { 0 };
            bytes[kept..].iter_mut().for_each(|byte| *byte = !*byte);
            packet.write(from, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use straightline_virtio::net_header::NetHeader;

    use super::*;
    use straightline_guest::testing::Laid;

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

    #[test]
    fn a_packet_that_is_kept_stays_as_it_is() {
        for len in [10, 60, 2036, 2037, 9000] {
            let frame: Vec<u8> = (0..=250).cycle().take(len).collect();
            for &touch in Touch::ALL {
                let laid = Laid::new(&frame, &NetHeader { num_buffers: 3, ..NetHeader::default() }, 16384);
                let mut toucher = Toucher::new(touch);
                toucher.keep(laid.first(), Level::detect());
                assert!(laid.frame() == frame, "{touch} of {len} bytes");
                // The bytes of the last chunk that was read.
                let all = [&laid.packet().header().to_bytes(), &frame[..]].concat();
                let touched = &all[..touch.bytes(u32::try_from(all.len()).expect("a length")) as usize];
                let last = touched.chunks(CHUNK as usize).last().unwrap_or_default();
                assert_eq!(&toucher.scratch[..last.len()], last, "{touch} of {len} bytes");
            }
        }
    }

    #[test]
    fn lines_are_those_that_the_bytes_are_in() {
        for (addr, len, expected) in
            [(0, 0, 0), (63, 0, 0), (0, 1, 1), (0, 64, 1), (0, 65, 2), (63, 1, 1), (63, 2, 2), (52, 76, 2), (0, 76, 2)]
        {
            assert_eq!(lines(addr, len), expected, "{len} bytes at {addr}");
        }
        // RFC 2017: if the header starts on a line, an L2 forwarder touches one line instead of
        // two.
        assert_eq!((Touch::Header.lines(52, 76), Touch::Header.lines(0, 76)), (2, 1));
        assert_eq!((Touch::Read.lines(52, 1512), Touch::Edit.lines(0, 1512)), (25, 24));
        assert_eq!((Touch::None.lines(0, 1512), Touch::Header.lines(0, 20)), (0, 1));
    }
}
