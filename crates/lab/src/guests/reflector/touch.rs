//! The guest's accesses to the bytes of a packet, beyond moving its buffer. These accesses also
//! cost the switch time: its next copy finds the lines in another CPU's cache.

use straightline_guest::HEADER_LEN;
use straightline_guest::endpoints::Memory;
use straightline_packet::Level;

use crate::guests::forward::Touch;

/// Bytes of an Ethernet header.
const ETHERNET: u32 = 14;

const LINE: u64 = 64;

/// Returns the number of cache lines of `len` bytes at `addr`.
#[must_use]
pub fn lines(addr: u64, len: u32) -> u64 {
    if len == 0 { 0 } else { (addr % LINE + u64::from(len)).div_ceil(LINE) }
}

/// Returns the number of a packet's cache lines that this guest touches. The packet starts at
/// `addr` and has `len` bytes, including its virtio-net header.
#[must_use]
pub fn touched_lines(touch: Touch, addr: u64, len: u32) -> u64 {
    lines(addr, bytes(touch, len))
}

/// Returns the number of bytes that this policy touches of a packet of `len` bytes.
fn bytes(touch: Touch, len: u32) -> u32 {
    match touch {
        Touch::None => 0,
        Touch::Header => len.min(HEADER_LEN + ETHERNET),
        Touch::Read | Touch::Edit => len,
    }
}

/// A way of touching packets. It is known at compile time, so that [`Touch::None`] has no cost.
pub(super) trait Toucher {
    /// True if packets are touched.
    const TOUCHES: bool;

    /// Touches a packet of `len` bytes, header included.
    fn touch(&mut self, addr: u64, len: u32);
}

/// Implements [`Touch::None`].
pub(super) struct Untouched;

impl Toucher for Untouched {
    const TOUCHES: bool = false;

    #[inline(always)]
    fn touch(&mut self, _addr: u64, _len: u32) {}
}

/// Implements all other policies.
pub(super) struct Touching<'a> {
    touch: Touch,
    memory: &'a Memory,
    level: Level,
    /// The destination of bytes that are read.
    copy: Vec<u8>,
}

impl<'a> Touching<'a> {
    /// Makes a toucher for packets of at most `longest` bytes, header included.
    pub(super) fn new(touch: Touch, memory: &'a Memory, longest: u32) -> Touching<'a> {
        Touching { touch, memory, level: Level::detect(), copy: vec![0; longest as usize] }
    }
}

impl Toucher for Touching<'_> {
    const TOUCHES: bool = true;

    #[inline]
    fn touch(&mut self, addr: u64, len: u32) {
        let bytes = bytes(self.touch, len);
        // All buffers are in guest memory.
        let Some(packet) = self.memory.buffer(addr, bytes) else { return };
        let read = packet.read(self.level, &mut self.copy);
        if self.touch == Touch::Edit {
            packet.write(self.level, &self.copy[..read]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_that_the_bytes_are_in() {
        for (addr, len, expected) in
            [(0, 0, 0), (63, 0, 0), (0, 1, 1), (0, 64, 1), (0, 65, 2), (63, 1, 1), (63, 2, 2), (52, 76, 2), (0, 76, 2)]
        {
            assert_eq!(lines(addr, len), expected, "{len} bytes at {addr}");
        }
        // RFC 2017: if the header starts on a line, an L2 forwarder touches one line instead of
        // two.
        assert_eq!((touched_lines(Touch::Header, 52, 76), touched_lines(Touch::Header, 0, 76)), (2, 1));
        assert_eq!((touched_lines(Touch::Read, 52, 1512), touched_lines(Touch::Edit, 0, 1512)), (25, 24));
        assert_eq!((touched_lines(Touch::None, 0, 1512), touched_lines(Touch::Header, 0, 20)), (0, 1));
    }
}
