//! The program at the interface, which redirects packets to AF_XDP sockets.
//!
//! ```text
//! return bpf_redirect_map(sockets, context->rx_queue_index, XDP_PASS)
//! ```
//!
//! Packets of a queue without a socket go to the kernel.

use std::os::fd::BorrowedFd;

use crate::device::bpf::{Instruction, REDIRECT_MAP, Register, XDP_PASS};

/// Offset of `rx_queue_index` in `struct xdp_md`.
const QUEUE: i16 = 16;

/// Returns the program that redirects all packets to the sockets of this map.
pub(super) fn redirect_all(sockets: BorrowedFd<'_>) -> Vec<Instruction> {
    let [map_low, map_high] = Instruction::set_map(Register(1), sockets);
    vec![
        // Register 1 has the context, and then the first argument.
        Instruction::load32(Register(2), Register(1), QUEUE),
        map_low,
        map_high,
        Instruction::set(Register(3), XDP_PASS),
        Instruction::call(REDIRECT_MAP),
        Instruction::exit(),
    ]
}
