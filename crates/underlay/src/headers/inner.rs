//! The facts of an inner packet on which its outer headers depend.

use straightline_packet::{PacketId, Packets};
use straightline_wire::ecn::{Ecn, encapsulate};
use straightline_wire::{EtherType, PlainFlow, checksum, plain_flow, udp};

/// The facts of an inner packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inner {
    /// The type of the packet, behind its tags.
    pub(crate) network: EtherType,
    /// The congestion mark of the outer header (RFC 6040). A packet that is not IP has none.
    pub(crate) ecn: Ecn,
    /// The hash of the packet's flow; 0 if it was not wanted.
    pub(crate) hash: u32,
}

impl Inner {
    /// Reads the facts of a packet with an Ethernet header.
    ///
    /// The hash of a plain packet is computed even if it is known: this takes less time than to look
    /// for it.
    #[inline(always)]
    pub(crate) fn of(packets: &mut Packets<'_>, id: PacketId, wants_hash: bool) -> Self {
        let head = packets.head(id);
        let plain = if wants_hash { plain_flow(head) } else { Self::plain_without_hash(head) };
        match plain {
            Some(PlainFlow { network, tos, hash }) => Inner { network, ecn: encapsulate(Ecn::of(tos)), hash },
            None => Self::of_other(packets, id, wants_hash),
        }
    }

    /// Does what [`plain_flow`] does but for the hash, and for all protocols.
    #[inline(always)]
    fn plain_without_hash(head: &[u8]) -> Option<PlainFlow> {
        let front = head.first_chunk::<38>()?;
        if front[12..15] == [8, 0, 0x45] {
            Some(PlainFlow { network: EtherType::IPV4, tos: front[15], hash: 0 })
        } else if front[12..14] == [0x86, 0xdd] && front[14] >> 4 == 6 {
            Some(PlainFlow { network: EtherType::IPV6, tos: front[14] << 4 | front[15] >> 4, hash: 0 })
        } else {
            None
        }
    }

    #[inline(never)]
    fn of_other(packets: &mut Packets<'_>, id: PacketId, wants_hash: bool) -> Self {
        let hash = if wants_hash { packets.flow_hash(id) } else { 0 };
        let Ok(layout) = packets.layout(id) else { return Inner { network: EtherType(0), ecn: Ecn::NotEct, hash } };
        let at = usize::from(layout.payload);
        let ecn = match packets.head(id).get(at..at + 2) {
            Some(&[first, second]) => ecn_of(layout.ether_type, first, second),
            _ => Ecn::NotEct,
        };
        Inner { network: layout.ether_type, ecn, hash }
    }
}

/// Returns the congestion mark of a packet with these first two bytes.
fn ecn_of(network: EtherType, first: u8, second: u8) -> Ecn {
    match network {
        EtherType::IPV4 if first >> 4 == 4 => encapsulate(Ecn::of(second)),
        EtherType::IPV6 if first >> 4 == 6 => encapsulate(Ecn::of(second >> 4)),
        _ => Ecn::NotEct,
    }
}

/// Returns the sum of a packet as it will be once its partial checksum is finished. The bytes from
/// `start` on are not read: with the finished checksum they sum to the complement of the pseudo
/// header's sum, which the field holds until then (local checksum offload).
///
/// The sum is that of words in the machine's byte order, and not folded.
#[inline(always)]
pub(crate) fn finished_sum(packets: &Packets<'_>, id: PacketId, start: u16, offset: u16) -> u64 {
    let head = packets.head(id);
    // Headers without tags, options and extensions. A sum of constant length takes half the time.
    let front = match start {
        20 => head.first_chunk::<20>().map(sum_of),
        34 => head.first_chunk::<34>().map(sum_of),
        40 => head.first_chunk::<40>().map(sum_of),
        54 => head.first_chunk::<54>().map(sum_of),
        _ => None,
    };
    let field = usize::from(start) + usize::from(offset);
    match (front, head.get(field..field + 2)) {
        (Some(front), Some(&[high, low])) if offset.is_multiple_of(2) => {
            front + u64::from(!u16::from_ne_bytes([high, low]))
        }
        _ => finished_sum_of_any(packets, id, start.into(), offset.into()),
    }
}

/// Returns the sum of an even number of bytes, not folded.
#[inline(always)]
fn sum_of<const N: usize>(bytes: &[u8; N]) -> u64 {
    const { assert!(N.is_multiple_of(2)) };
    let (words, rest) = bytes.as_chunks::<4>();
    let last = rest.first_chunk().map_or(0, |&word| u16::from_ne_bytes(word));
    words.iter().map(|&word| u64::from(u32::from_ne_bytes(word))).sum::<u64>() + u64::from(last)
}

/// Does what [`finished_sum`] does, for any offsets.
#[inline(never)]
fn finished_sum_of_any(packets: &Packets<'_>, id: PacketId, start: usize, offset: usize) -> u64 {
    let field = packets.head(id).get(start + offset..start + offset + 2);
    let pseudo = field.map_or(0, |field| u16::from_be_bytes([field[0], field[1]]));
    let behind = if offset.is_multiple_of(2) { !pseudo } else { with_odd_field(packets, id, start, pseudo) };
    // Words of the outer sum begin at even offsets.
    let behind = if start.is_multiple_of(2) { behind } else { behind.swap_bytes() };
    checksum::add(packets.sum_head(id, 0..start), behind).to_be().into()
}

/// Returns the sum of the bytes from `start` on, once a checksum at an odd offset is finished. No
/// protocol has such a field, but a guest may ask for it. The value does not cancel out against the
/// other bytes then, so these are summed.
#[cold]
pub(crate) fn with_odd_field(packets: &Packets<'_>, id: PacketId, start: usize, pseudo: u16) -> u16 {
    let sum = packets.sum_from(id, start);
    // Subtracting a value is adding its complement. The bytes of the field are in different words.
    let change = checksum::add(!pseudo, udp::checksum_of(sum));
    checksum::add(sum, change.swap_bytes())
}

/// Folds a sum of words of 16 or 32 bits to 16 bits.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "two folds leave 17 bits, the third 16")]
pub(crate) fn fold_words(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}
