//! What a guest does with the bytes of a packet, beyond moving its buffer: what that costs, the switch pays too, whose next
//! copy finds the lines elsewhere.

use straightline_packet::Level;

use crate::guest::HEADER_LEN;
use crate::tester::Memory;

/// What the guest does with a packet: one that was received before it is sent on or dropped, one of a flood before it is
/// sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Touch {
    /// Nothing: no line of it is asked for.
    #[default]
    Nothing,
    /// Reads the virtio-net header and the frame's Ethernet header, as a guest that forwards by addresses does.
    Header,
    /// Reads all of it.
    Read,
    /// Reads all of it and writes all of it, the same bytes: the lines are then the guest's own, and what comes back can
    /// still be compared with what was sent.
    Edit,
}

/// Bytes of an Ethernet header.
const ETHERNET: u32 = 14;

const LINE: u64 = 64;

impl Touch {
    /// All of them.
    pub const ALL: [Touch; 4] = [Touch::Nothing, Touch::Header, Touch::Read, Touch::Edit];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Touch::Nothing => "nothing",
            Touch::Header => "header",
            Touch::Read => "read",
            Touch::Edit => "edit",
        }
    }

    /// How many bytes of a packet of `len`, header included, it touches.
    fn bytes(self, len: u32) -> u32 {
        match self {
            Touch::Nothing => 0,
            Touch::Header => len.min(HEADER_LEN + ETHERNET),
            Touch::Read | Touch::Edit => len,
        }
    }

    /// How many cache lines it touches of a packet of `len` bytes, header included, that begins at `addr`.
    #[must_use]
    pub fn lines(self, addr: u64, len: u32) -> u64 {
        lines(addr, self.bytes(len))
    }
}

/// How many cache lines `len` bytes at `addr` are in.
#[must_use]
pub fn lines(addr: u64, len: u32) -> u64 {
    if len == 0 { 0 } else { (addr % LINE + u64::from(len)).div_ceil(LINE) }
}

/// Who touches packets, known when the loop is compiled: one that touches none costs it nothing.
pub(super) trait Toucher {
    /// Whether it touches any.
    const TOUCHES: bool;

    /// A packet of `len` bytes, header included.
    fn touch(&mut self, addr: u64, len: u32);
}

/// See [`Touch::Nothing`].
pub(super) struct Untouched;

impl Toucher for Untouched {
    const TOUCHES: bool = false;

    #[inline(always)]
    fn touch(&mut self, _addr: u64, _len: u32) {}
}

/// All others.
pub(super) struct Touching<'a> {
    touch: Touch,
    memory: &'a Memory,
    level: Level,
    /// Where what is read goes.
    copy: Vec<u8>,
}

impl<'a> Touching<'a> {
    /// For packets of at most `longest` bytes, header included.
    pub(super) fn new(touch: Touch, memory: &'a Memory, longest: u32) -> Touching<'a> {
        Touching { touch, memory, level: Level::detect(), copy: vec![0; longest as usize] }
    }
}

impl Toucher for Touching<'_> {
    const TOUCHES: bool = true;

    #[inline]
    fn touch(&mut self, addr: u64, len: u32) {
        let bytes = self.touch.bytes(len);
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
        // RFC 2017: with the header on a line, an L2 forwarder touches one line instead of two.
        assert_eq!((Touch::Header.lines(52, 76), Touch::Header.lines(0, 76)), (2, 1));
        assert_eq!((Touch::Read.lines(52, 1512), Touch::Edit.lines(0, 1512)), (25, 24));
        assert_eq!((Touch::Nothing.lines(0, 1512), Touch::Header.lines(0, 20)), (0, 1));
    }
}
