//! The program at the interface, which redirects packets to AF_XDP sockets.
//!
//! ```text
//! if the packet is for us:                                            (`steal`)
//!     return bpf_redirect_map(sockets, context->rx_queue_index, XDP_PASS)
//! return XDP_PASS
//! ```
//!
//! Packets of a queue without a socket go to the kernel.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use crate::device::bpf::{Instruction, REDIRECT_MAP, Register, XDP_PASS};

/// Offsets of `data`, `data_end` and `rx_queue_index` in `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const QUEUE: i16 = 16;

const CONTEXT: Register = Register(6);
const PACKET: Register = Register(7);
const END: Register = Register(8);
const VALUE: Register = Register(5);

/// Returns the program that redirects all packets to the sockets of this map.
pub(super) fn redirect_all(sockets: BorrowedFd<'_>) -> Vec<Instruction> {
    let mut program = vec![Instruction::copy(CONTEXT, Register(1))];
    program.extend(redirect(sockets));
    program
}

/// Returns the program that redirects packets for these addresses: IP packets, questions and answers
/// about addresses (ARP, neighbour discovery), and messages of stations that claim to have them. With `vlan`, packets must have this tag, and
/// otherwise none.
pub(super) fn redirect_addresses(sockets: BorrowedFd<'_>, addresses: &[IpAddr], vlan: Option<u16>) -> Vec<Instruction> {
    let l3 = if vlan.is_some() { 18 } else { 14 };
    let ethernet = |ethertype: [u8; 2]| {
        let tag = vlan.map(|vlan| [Field::pair(12, [0x81, 0]), Field::masked(14, vlan, 0x0fff)]);
        [Field::pair(l3 - 2, ethertype)].into_iter().chain(tag.into_iter().flatten())
    };
    let mut blocks = Vec::new();
    for address in addresses {
        match address {
            IpAddr::V4(ip) => {
                let is_address = |at| Field::word(at, ip.octets());
                // The target and the sender of a message of ARP; the destination of a packet.
                blocks.push(block(l3 + 28, ethernet([8, 6]).chain([is_address(l3 + 24)])));
                blocks.push(block(l3 + 28, ethernet([8, 6]).chain([is_address(l3 + 14)])));
                blocks.push(block(l3 + 20, ethernet([8, 0]).chain([is_address(l3 + 16)])));
            }
            IpAddr::V6(ip) => {
                let octets = ip.octets();
                let is_address = |at: i16| {
                    let parts = octets.as_chunks::<4>().0.iter().zip(0_i16..);
                    parts.map(move |(part, nth)| Field::word(at + 4 * nth, *part)).collect::<Vec<_>>()
                };
                let ethernet = || ethernet([0x86, 0xdd]);
                blocks.push(block(l3 + 40, ethernet().chain(is_address(l3 + 24))));
                // A neighbour solicitation has the question in its target. An advertisement to all has
                // the address that its sender claims there.
                for kind in [135, 136] {
                    let message = [Field::byte(l3 + 6, 58), Field::byte(l3 + 40, kind)];
                    blocks.push(block(l3 + 64, ethernet().chain(message).chain(is_address(l3 + 48))));
                }
            }
        }
    }
    let mut program = vec![
        Instruction::copy(CONTEXT, Register(1)),
        Instruction::load32(PACKET, CONTEXT, DATA),
        Instruction::load32(END, CONTEXT, DATA_END),
    ];
    // Behind each block comes a jump to the end. Behind the last block the kernel gets the packet.
    let mut left: usize = blocks.iter().map(|block| block.len() + 1).sum();
    for block in blocks {
        left -= block.len() + 1;
        program.extend(block);
        program.push(Instruction::skip(i16::try_from(left + 2).unwrap_or(i16::MAX)));
    }
    program.extend([Instruction::set(Register(0), XDP_PASS), Instruction::exit()]);
    program.extend(redirect(sockets));
    program
}

/// Returns the instructions that redirect the packet.
fn redirect(sockets: BorrowedFd<'_>) -> [Instruction; 6] {
    let [map_low, map_high] = Instruction::set_map(Register(1), sockets);
    [
        Instruction::load32(Register(2), CONTEXT, QUEUE),
        map_low,
        map_high,
        Instruction::set(Register(3), XDP_PASS),
        Instruction::call(REDIRECT_MAP),
        Instruction::exit(),
    ]
}

/// A field of a packet that must have a value.
struct Field {
    load: Instruction,
    mask: Option<i32>,
    value: i32,
}

impl Field {
    fn byte(at: i16, value: u8) -> Self {
        Field { load: Instruction::load8(VALUE, PACKET, at), mask: None, value: value.into() }
    }

    fn pair(at: i16, bytes: [u8; 2]) -> Self {
        Field { load: Instruction::load16(VALUE, PACKET, at), mask: None, value: u16::from_ne_bytes(bytes).into() }
    }

    /// Returns the field of two bytes. Only the bits of the mask are compared.
    fn masked(at: i16, value: u16, mask: u16) -> Self {
        let mask_bytes = u16::from_ne_bytes(mask.to_be_bytes()).into();
        Field { mask: Some(mask_bytes), ..Self::pair(at, (value & mask).to_be_bytes()) }
    }

    fn word(at: i16, bytes: [u8; 4]) -> Self {
        Field { load: Instruction::load32(VALUE, PACKET, at), mask: None, value: i32::from_ne_bytes(bytes) }
    }

    fn len(&self) -> usize {
        2 + usize::from(self.mask.is_some())
    }
}

/// Returns the instructions that go on behind the block if the packet has at least `len` bytes and
/// all these fields. Otherwise they skip the next instruction behind the block.
fn block(len: i16, fields: impl Iterator<Item = Field>) -> Vec<Instruction> {
    let fields: Vec<_> = fields.collect();
    // The instruction behind the block is skipped, too.
    let mut left = fields.iter().map(Field::len).sum::<usize>() + 1;
    let offset = |left: usize| i16::try_from(left).unwrap_or(i16::MAX);
    let mut block = vec![
        Instruction::copy(VALUE, PACKET),
        Instruction::add(VALUE, len.into()),
        Instruction::skip_if_greater(VALUE, END, offset(left)),
    ];
    for field in fields {
        left -= field.len();
        block.push(field.load);
        block.extend(field.mask.map(|mask| Instruction::and(VALUE, mask)));
        block.push(Instruction::skip_unless(VALUE, field.value, offset(left)));
    }
    block
}
