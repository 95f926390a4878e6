//! A node of your own: it swaps the MAC addresses of every packet, as VPP's sample plugin does.
//!
//! The loop over a batch is compiled once for each instruction set, and the switch runs the one that
//! its machine has. VPP calls such nodes multi-versioned, and selects one of several `.so` builds.
//!
//! This file has all that a node needs. `main.rs` makes it known to a switch, and `switch.toml`
//! lets packets pass it. It is an example, and not a part of the switch.
//!
//! ```
//! use macswap::MacSwap;
//! use straightline_switch::config::Kinds;
//!
//! let kinds = Kinds::new().with("macswap", |keys| MacSwap { prefetch: keys.integer("prefetch", 0..=8, 4) });
//! assert!(format!("{kinds:?}").contains("macswap"));
//! ```
#![forbid(unsafe_code)]

use straightline_graph::{Next, Node};
use straightline_packet::{Batch, Kernels, Packets, Reason, WithKernels};

/// A node that swaps both MAC addresses of each packet, and drops packets that are too short to
/// have them.
#[derive(Clone, Debug)]
pub struct MacSwap {
    /// Distance in packets at which heads are prefetched; 0: heads are not prefetched.
    pub prefetch: usize,
}

impl Node for MacSwap {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        packets.level().run(SwapAll { prefetch: self.prefetch, packets, batch, next });
    }
}

/// The work on a batch.
struct SwapAll<'w, 't, 'n> {
    prefetch: usize,
    packets: &'w mut Packets<'t>,
    batch: &'w Batch,
    next: &'w mut Next<'n>,
}

impl WithKernels for SwapAll<'_, '_, '_> {
    type Output = ();

    /// Does the work. All that is inlined here is compiled for the instruction set of `K`.
    #[inline(always)]
    fn with<K: Kernels>(self, _: K) {
        let SwapAll { prefetch, packets, batch, next } = self;
        for (id, later) in batch.ahead(prefetch) {
            packets.prefetch(later);
            if swap(packets.head_mut(id)) {
                next.push(0, id);
            } else {
                packets.discard(id, Reason::Runt);
            }
        }
    }
}

/// Swaps the addresses at the beginning of a frame. Returns `false` if the frame is too short to
/// have them.
///
/// It is one shuffle (`vpshufb`), as in VPP; the README has a command that shows it. The last four
/// bytes stay, so the compiler stores twelve. The baseline of x86-64 has no such instruction: `simd =
/// "sse2"` gives some loads and stores of 2, 4 and 8 bytes.
#[inline(always)]
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
