//! Counts the cache lines of packets. Users cannot choose this mode; experiments trace a guest with
//! it.

use straightline_guest::endpoints::Packet;

use super::Touch;
use super::engine::Mode;
use crate::guests::touch::lines;

/// Forwards packets unchanged, and counts the cache lines of their buffers.
#[derive(Debug)]
pub(super) struct Trace {
    touch: Touch,
    packets: u64,
    lines: u64,
    touched: u64,
}

impl Trace {
    /// Makes the mode for a guest with this touch policy.
    pub(super) fn new(touch: Touch) -> Trace {
        Trace { touch, packets: 0, lines: 0, touched: 0 }
    }
}

impl Mode for Trace {
    const WRITES: bool = false;

    fn packet(&mut self, packet: &Packet<'_>, _to: usize) -> bool {
        self.packets += 1;
        for (number, &(addr, len)) in packet.buffers().iter().enumerate() {
            self.lines += lines(addr, len);
            // Headers are in the first buffer.
            if number == 0 || !matches!(self.touch, Touch::Header) {
                self.touched += self.touch.lines(addr, len);
            }
        }
        true
    }

    fn notes(&self) -> Vec<(&'static str, u64)> {
        vec![("packets", self.packets), ("lines", self.lines), ("touched lines", self.touched)]
    }
}

#[cfg(test)]
mod tests {
    use straightline_guest::testing::Laid;
    use straightline_virtio::net_header::NetHeader;

    use super::*;

    #[test]
    fn lines_are_those_of_all_buffers_and_headers_those_of_the_first() {
        // Buffers of 512 and 500 bytes, each at offset 52 in a line.
        let laid = Laid::new(&[0; 1000], &NetHeader::default(), 512);
        for (touch, touched) in [(Touch::None, 0), (Touch::Header, 2), (Touch::Read, 18), (Touch::Edit, 18)] {
            let mut trace = Trace::new(touch);
            assert!(trace.packet(&laid.packet(), 0) && trace.packet(&laid.packet(), 1));
            assert_eq!(trace.notes(), [("packets", 2), ("lines", 36), ("touched lines", 2 * touched)]);
        }
    }
}
