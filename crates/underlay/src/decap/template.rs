//! The headers of the last packet of a tunnel, to recognise the next one at once.
//!
//! Packets come in runs of one tunnel, and the headers of a run differ in few fields. So a packet is
//! compared with the last one that was read field by field, in words of 8 bytes and without these
//! fields:
//!
//! | header | fields that may differ | checked instead |
//! |---|---|---|
//! | Ethernet, VLAN | source address, priority | |
//! | IPv4 | DSCP, length, identification, DF, TTL, checksum | length, TTL, checksum |
//! | IPv6 | DSCP, flow label, length, hop limit | length, hop limit |
//! | UDP | source port, length, checksum | length; the checksum comes later |
//! | L2TPv3 sublayer | all | |
//! | NVGRE | flow | |
//! | GTP-U | length, sequence number | length |
//!
//! All other fields are equal, cookie and options included, so they are as right as those of the last
//! packet. A packet that differs says nothing: it is read field by field. So this is a short cut, and
//! no rule is found here alone.

use straightline_wire::{ethernet, gtpu, ipv4, ipv6, l2tpv3, udp};

use crate::decap::carrier::Carrier;
use crate::decap::found::Found;
use crate::decap::tunnel_header::{OuterChecksum, TunnelHeader};
use crate::headers::inner::fold_words;
use crate::kind::{Carries, Form};

const WORD: usize = 8;

/// Bytes of the longest headers that are recognised.
const LONGEST: usize = 128;

/// Least significant bits of DSCP and ECN: the mark.
const ECN: u8 = 0x03;

/// Headers with fields that may differ.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// Number of words that are compared.
    words: usize,
    values: [u64; LONGEST / WORD],
    /// The bits that count.
    masks: [u64; LONGEST / WORD],
    l3: usize,
    /// Offset of a GTP-U header.
    gtpu: Option<usize>,
    /// The last packet's. Its ends are not this packet's.
    found: Found,
}

impl Template {
    /// Returns the template of a packet that was read: these headers, of which the tunnel takes
    /// all. `None` for headers that are rare: options, extensions, a checksum or sequence numbers of
    /// GRE.
    #[cold]
    pub(crate) fn new(
        head: &[u8],
        carrier: &Carrier,
        header: &TunnelHeader,
        found: Found,
        is_tagged: bool,
    ) -> Option<Self> {
        let l3 = ethernet::LEN + if is_tagged { 4 } else { 0 };
        let is_v4 = header.key.ends.is_v4;
        let l3_len = if is_v4 { ipv4::MIN_LEN } else { ipv6::LEN };
        let form = header.key.form;
        let is_plain = carrier.l4 == l3 + l3_len
            && found.payload <= LONGEST
            && header.checksum != OuterChecksum::Gre
            && (!matches!(form, Form::Gre | Form::GreKeyed | Form::Nvgre) || head[carrier.l4] & 0x10 == 0);
        if !is_plain {
            return None;
        }
        let mut mask = [0; LONGEST];
        mask[..found.payload].fill(0xff);
        // The source address, and the priority of a tag.
        mask[6..12].fill(0);
        if is_tagged {
            mask[14] = 0x0f;
        }
        let ip = &mut mask[l3..];
        if is_v4 {
            ip[1] = ECN;
            ip[2..6].fill(0);
            // More fragments, and the offset.
            ip[6] = 0x3f;
            ip[8] = 0;
            ip[10..12].fill(0);
        } else {
            ip[0] = 0xf0;
            ip[1] = ECN << 4;
            ip[2..6].fill(0);
            ip[7] = 0;
        }
        let mut own = carrier.l4;
        if header.checksum == OuterChecksum::Udp {
            mask[own..own + 2].fill(0);
            mask[own + 4..own + 8].fill(0);
            own += udp::LEN;
        }
        match form {
            Form::L2tpIp | Form::L2tpUdp if found.has_sublayer => {
                mask[found.payload - l2tpv3::SUBLAYER_LEN..found.payload].fill(0);
            }
            Form::Nvgre => mask[found.payload - 1] = 0,
            Form::Gtpu => {
                mask[own + 2..own + 4].fill(0);
                if found.payload >= own + gtpu::LONG_LEN {
                    mask[own + 8..own + 11].fill(0);
                }
            }
            _ => {}
        }
        let words = found.payload.div_ceil(WORD);
        let head = head.get(..words * WORD)?;
        let mut template = Template {
            words,
            values: [0; LONGEST / WORD],
            masks: [0; LONGEST / WORD],
            l3,
            gtpu: (form == Form::Gtpu).then_some(own),
            found,
        };
        let bytes = head.as_chunks::<WORD>().0.iter().zip(mask.as_chunks::<WORD>().0);
        for (at, (&value, &mask)) in bytes.enumerate() {
            template.values[at] = u64::from_ne_bytes(value);
            template.masks[at] = u64::from_ne_bytes(mask);
        }
        Some(template)
    }

    /// Returns the headers of a packet of `len` bytes if it is one like the last.
    #[inline]
    pub(crate) fn find(&self, head: &[u8], len: usize) -> Option<Found> {
        let (words, _) = head.as_chunks::<WORD>();
        let words = words.get(..self.words)?;
        let pairs = words.iter().zip(&self.values).zip(&self.masks);
        let differs = pairs.fold(0, |bits, ((&word, value), mask)| bits | (u64::from_ne_bytes(word) ^ value) & mask);
        if differs != 0 {
            return None;
        }
        let mut found = self.found;
        let ip = head.get(self.l3..self.l3 + ipv4::MIN_LEN)?;
        let mut end = self.l3;
        if found.is_v4 {
            if !is_right(ip.first_chunk()?) || ip[8] == 0 {
                return None;
            }
            end += length(ip[2], ip[3]);
        } else {
            if ip[7] == 0 {
                return None;
            }
            end += ipv6::LEN + length(ip[4], ip[5]);
        }
        if end > len {
            return None;
        }
        if found.checksum == OuterChecksum::Udp {
            let &[high, low] = head.get(found.l4 + 4..)?.first_chunk()?;
            let udp_end = found.l4 + length(high, low);
            if udp_end > end {
                return None;
            }
            end = udp_end;
        }
        found.checked_end = end;
        if let Some(at) = self.gtpu {
            let &[high, low] = head.get(at + 2..)?.first_chunk()?;
            let message_end = at + gtpu::MIN_LEN + length(high, low);
            if message_end > end {
                return None;
            }
            end = message_end;
        }
        found.end = end;
        let least = if found.carries == Carries::Ethernet { ethernet::LEN } else { 1 };
        (found.payload + least <= end).then_some(found)
    }
}

#[inline]
fn length(high: u8, low: u8) -> usize {
    usize::from(u16::from_be_bytes([high, low]))
}

/// Returns whether the checksum of an IPv4 header is right. The order of bytes does not matter for
/// a sum of all ones.
#[inline]
fn is_right(header: &[u8; ipv4::MIN_LEN]) -> bool {
    let (words, _) = header.as_chunks::<4>();
    let sum: u64 = words.iter().map(|&word| u64::from(u32::from_ne_bytes(word))).sum();
    fold_words(sum) == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_right_if_its_sum_is_all_ones() {
        let mut header =
            [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
        assert!(is_right(&header));
        for bit in 0..160 {
            header[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_right(&header));
            header[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
