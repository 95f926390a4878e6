//! A node of one's own: it swaps the MAC addresses of every packet, as VPP's sample plugin does.
//!
//! All that a node needs is here; `main.rs` puts it into a switch, and `switch.toml` onto the way of packets.
#![forbid(unsafe_code)]

use straightline_graph::{Next, Node};
use straightline_packet::{Batch, Packets, Reason};

/// Swaps both addresses.
#[derive(Clone, Debug)]
pub struct MacSwap {
    /// How many packets ahead a head is prefetched; 0: none is.
    pub prefetch: usize,
}

impl Node for MacSwap {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        for (id, later) in batch.ahead(self.prefetch) {
            packets.prefetch(later);
            if swap(packets.head_mut(id)) {
                next.push(0, id);
            } else {
                packets.discard(id, Reason::Runt);
            }
        }
    }
}

/// Swaps the addresses that a frame begins with; `false` where it is too short to have them.
///
/// One shuffle of 16 bytes, as in VPP. An x86-64 of which nothing more is known has no instruction for it: the compiler
/// makes it a few loads and stores of 2, 4 and 8 bytes.
fn swap(head: &mut [u8]) -> bool {
    if let Some(first) = head.first_chunk_mut::<16>() {
        *first = [6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 12, 13, 14, 15].map(|from: usize| first[from]);
    } else if let Some(addresses) = head.first_chunk_mut::<12>() {
        addresses.rotate_left(6);
    } else {
        return false;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_any_length() {
        for len in 0..40_u8 {
            let mut frame: Vec<u8> = (0..len).collect();
            let mut expected = frame.clone();
            if len >= 12 {
                expected[..12].copy_from_slice(&[6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5]);
            }
            assert_eq!((swap(&mut frame), frame), (len >= 12, expected));
        }
    }
}
