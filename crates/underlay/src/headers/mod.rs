//! The headers of a tunnel to one remote: built once, and filled in for each packet.
//!
//! ```text
//! Ethernet │ 802.1Q │ IPv4 or IPv6 │ UDP │ the kind's header │ inner packet
//!    14        0, 4      20, 40      0, 8     4 to 44
//! ```
//!
//! A kind of tunnel adds its own header; all else is the same for all kinds. These fields differ
//! between packets of one tunnel:
//!
//! | header | fields |
//! |---|---|
//! | Ethernet | addresses: that of the next hop may change |
//! | IP | length, congestion marks (RFC 6040, 4.1: normal mode), checksum of IPv4, flow label of IPv6 |
//! | UDP | source port (hash of the inner flow), length, checksum |
//! | the kind's | at most one 16-bit word, see `Varying` |
//!
//! # Checksums
//!
//! The outer checksum covers the inner packet too. No pass over it is needed in any case:
//!
//! - The inner checksum is still partial. When it is finished, its bytes sum to the complement of
//!   the pseudo header's sum, which its field holds now. So the outer checksum follows from headers
//!   alone (local checksum offload). The inner one stays partial.
//! - The inner checksum is finished. Then the outer one stays partial, and the destination's port
//!   finishes it in the copy.
//! - The packet is still to be segmented. Then segmentation writes the outer checksums.

pub(crate) mod inner;
#[cfg(test)]
pub(crate) mod reference;

use std::net::IpAddr;

use straightline_packet::{
    Checksum, HEADROOM, MIN_HEADROOM, Offload, Outer, OuterChecksum, PacketId, Packets, PrependError, Reason,
};
use straightline_wire::{EtherType, IpProtocol, MacAddr, WireError, checksum, ethernet};
use straightline_wire::{geneve, gre, ipv4, ipv6, udp, vlan, vxlan_gpe};

use crate::headers::inner::{Inner, finished_sum, fold_words};
use crate::kind::{Carrier, Sealed, TTL, Traits, TunnelKind, Varying};
use crate::{TunnelConfig, UnderlayConfig};

/// Space for the longest headers. It is copied as a whole, so it is a multiple of 16 bytes.
pub(crate) const MAX_LEN: usize = 112;

/// Length of the longest headers that the configuration allows.
const LONGEST: usize = ethernet::LEN + vlan::LEN + ipv6::LEN + udp::LEN + geneve::MIN_LEN + TunnelKind::MAX_OPTIONS;

/// They fit in front of a packet, also of one whose VLAN tag a packet socket has put back.
const _: () = assert!(LONGEST <= MAX_LEN && LONGEST + vlan::LEN + MIN_HEADROOM <= HEADROOM);

/// Bits of the IPv6 header's first word that are not the flow label: the version, then the traffic
/// class.
const VERSION_6: u32 = 6 << 28;
const CLASS_AT: u32 = 20;

/// The lowest source port that follows from a flow (RFC 7348, 5).
const FIRST_PORT: u16 = 49_152;

/// The addresses of the outer Ethernet header: that of the next hop, then ours.
pub(crate) type Macs = [u8; 12];

/// The headers of a tunnel to one remote.
#[derive(Clone, Debug)]
pub(crate) struct Headers {
    /// The headers are the last bytes, which are in front of the packet.
    bytes: [u8; MAX_LEN],
    /// Bytes of all headers.
    len: usize,
    /// Offset of the IP header.
    l3: usize,
    is_v4: bool,
    /// Offset of the header behind the IP header.
    l4: usize,
    /// True if the UDP source port follows from the flow.
    hashed_port: bool,
    /// True if any field follows from the flow.
    needs_hash: bool,
    sealed: Sealed,
    /// The varying word and its offset. The word is even where it counts in a checksum.
    varying: Option<(Varying, usize)>,
    /// True if the tunnel carries IP packets: the inner Ethernet header is removed.
    carries_ip: bool,
    /// Sum of the IPv4 header without length, type of service and checksum.
    network_sum: u16,
    /// Sum of all that the outer checksum covers and that no packet changes: the pseudo header
    /// without its length, and the headers from `l4` on without UDP's length.
    sealed_sum: u16,
    /// Sum of the pseudo header without its length; 0 for GRE.
    pseudo_sum: u16,
}

/// Writes headers one behind the other.
struct Writer {
    bytes: [u8; MAX_LEN],
    len: usize,
}

impl Writer {
    fn add(&mut self, emit: impl FnOnce(&mut [u8]) -> Result<usize, WireError>) -> Result<(), WireError> {
        self.len += emit(&mut self.bytes[self.len..])?;
        Ok(())
    }

    fn put(&mut self, header: &[u8]) -> Result<(), WireError> {
        let space = self.bytes.get_mut(self.len..self.len + header.len()).ok_or(WireError::BufferTooSmall)?;
        space.copy_from_slice(header);
        self.len += header.len();
        Ok(())
    }
}

impl Headers {
    /// Builds the headers of a tunnel to this remote. `kind` is the tunnel's in one of its networks.
    ///
    /// # Errors
    /// If the addresses are of different IP versions, a value is out of range, or the headers are
    /// longer than [`MAX_LEN`]. The configuration's check refuses all of these.
    pub(crate) fn new(
        underlay: &UnderlayConfig,
        tunnel: &TunnelConfig,
        kind: &TunnelKind,
        remote: IpAddr,
    ) -> Result<Self, WireError> {
        let mut headers = Writer { bytes: [0; MAX_LEN], len: 0 };
        let network = if remote.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        let ether_type = if underlay.vlan.is_some() { EtherType::VLAN } else { network };
        let none = MacAddr::default();
        headers.add(|to| ethernet::Repr { dst: none, src: none, ether_type }.emit(to))?;
        if let Some(vid) = underlay.vlan {
            headers.len -= 2;
            headers.add(|to| vlan::Tag { tpid: EtherType::VLAN, pcp: 0, dei: false, vid }.emit(to))?;
            headers.put(&network.0.to_be_bytes())?;
        }
        let l3 = headers.len;
        let traits = kind.traits();
        let protocol = match traits.carrier {
            Carrier::Ip(protocol) => protocol,
            Carrier::Udp { .. } => IpProtocol::UDP,
        };
        match (tunnel.local, remote) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => headers.add(|to| {
                // RFC 6864, 4: the identification of a packet that is never fragmented means nothing.
                let tos = 0;
                let payload_len = 0;
                let ident = 0;
                let fragment_offset = 0;
                let dont_fragment = true;
                let more_fragments = false;
                let ttl = TTL;
                ipv4::Repr {
                    tos,
                    payload_len,
                    ident,
                    dont_fragment,
                    more_fragments,
                    fragment_offset,
                    ttl,
                    protocol,
                    src,
                    dst,
                }
                .emit(to)
            })?,
            (IpAddr::V6(src), IpAddr::V6(dst)) => headers.add(|to| {
                let traffic_class = 0;
                let flow_label = 0;
                let payload_len = 0;
                let hop_limit = TTL;
                ipv6::Repr { traffic_class, flow_label, payload_len, next_header: protocol, hop_limit, src, dst }
                    .emit(to)
            })?,
            _ => return Err(WireError::BadVersion),
        }
        let l4 = headers.len;
        if let Carrier::Udp { port, .. } = traits.carrier {
            let src_port = source_port(tunnel, &traits).unwrap_or(0);
            headers.add(|to| udp::Repr { src_port, dst_port: port, payload_len: 0, checksum: 0 }.emit(to))?;
        }
        let kind_at = headers.len;
        headers.put(traits.header.as_ref().map_err(|&error| error)?)?;
        let varying = traits.varying.map(|(varying, at)| (varying, kind_at + at));
        Ok(Self::of_bytes(headers, l3, l4, tunnel, &traits, varying))
    }

    fn of_bytes(
        headers: Writer,
        l3: usize,
        l4: usize,
        tunnel: &TunnelConfig,
        traits: &Traits,
        varying: Option<(Varying, usize)>,
    ) -> Self {
        let Writer { mut bytes, len } = headers;
        let is_v4 = tunnel.local.is_ipv4();
        let has_udp = matches!(traits.carrier, Carrier::Udp { .. });
        let hashed_port = has_udp && source_port(tunnel, traits).is_none();
        let sum = |parts: &[&[u8]]| parts.iter().fold(0, |sum, part| checksum::add(sum, checksum::sum(part)));
        let mut network_sum = 0;
        let mut pseudo_sum = 0;
        let addresses = if is_v4 { l3 + 12..l4 } else { l3 + 8..l4 };
        if is_v4 {
            bytes[l3 + 10..l3 + 12].fill(0);
            network_sum = sum(&[&[bytes[l3], 0], &bytes[l3 + 4..l3 + 10], &bytes[addresses.clone()]]);
        }
        if has_udp {
            bytes[l4 + 4..l4 + 6].fill(0);
            pseudo_sum = sum(&[&bytes[addresses], &[0, IpProtocol::UDP.0]]);
        }
        let sealed_sum = sum(&[&bytes[l4..len], &pseudo_sum.to_be_bytes()]);
        bytes.rotate_right(MAX_LEN - len);
        Headers {
            bytes,
            len,
            l3,
            is_v4,
            l4,
            hashed_port,
            needs_hash: !is_v4 || hashed_port || matches!(varying, Some((Varying::FlowId, _))),
            sealed: traits.sealed,
            varying,
            carries_ip: traits.carries_ip,
            network_sum,
            sealed_sum,
            pseudo_sum,
        }
    }

    /// Returns the bytes of all headers, Ethernet included.
    pub(crate) fn overhead(&self) -> u16 {
        low16(self.len)
    }

    /// Returns the bytes of the longest inner IP packet, for an underlay whose longest IP packet has
    /// `mtu` bytes.
    #[inline]
    pub(crate) fn mtu_inside(&self, mtu: u16) -> u16 {
        let inner_ethernet = if self.carries_ip { 0 } else { ethernet::LEN };
        mtu.saturating_sub(low16(self.len - self.l3 + inner_ethernet))
    }

    /// Returns the bytes of the IP packet around an inner packet of `len` bytes, its Ethernet header
    /// included.
    #[inline]
    pub(crate) fn ip_len(&self, len: u32) -> u16 {
        let inner_ethernet = if self.carries_ip { ethernet::LEN } else { 0 };
        low16((len as usize + self.len - self.l3).saturating_sub(inner_ethernet))
    }

    /// Returns the MTU of an underlay that leaves `mtu` bytes for inner IP packets.
    pub(crate) fn mtu_outside(&self, mtu: u16) -> u16 {
        self.ip_len(u32::from(mtu) + u32::from(low16(ethernet::LEN)))
    }

    /// Returns the bytes of all headers.
    fn as_bytes(&self) -> &[u8] {
        &self.bytes[MAX_LEN - self.len..]
    }

    /// Puts the headers in front of a packet of the inner network, and removes its Ethernet header
    /// if the tunnel carries IP. The caller has saved the packet's outside, also for an error.
    #[inline]
    pub(crate) fn put_on(&self, packets: &mut Packets<'_>, id: PacketId, macs: &Macs) -> Result<(), Reason> {
        self.put_on_any(packets, id, macs, false)
    }

    /// Does what [`Self::put_on`] does, for a packet that is still to be segmented.
    #[inline(never)]
    pub(crate) fn put_on_gso(&self, packets: &mut Packets<'_>, id: PacketId, macs: &Macs) -> Result<(), Reason> {
        self.put_on_any(packets, id, macs, true)
    }

    #[inline(always)]
    fn put_on_any(&self, packets: &mut Packets<'_>, id: PacketId, macs: &Macs, is_gso: bool) -> Result<(), Reason> {
        let inner = Inner::of(packets, id, self.needs_hash);
        if self.carries_ip {
            packets.strip(id, ethernet::LEN).map_err(|_| Reason::Runt)?;
        }
        // The sum of the inner packet as it will be sent, where it follows from headers.
        let inner_sum = match packets.checksum(id) {
            Checksum::Partial { start, offset } if self.sealed != Sealed::Nothing && !is_gso => {
                Some(finished_sum(packets, id, start, offset))
            }
            _ => None,
        };
        let put = if is_gso {
            packets.prepend_outer(id, self.as_bytes(), self.outer())
        } else {
            packets.prepend_last(id, &self.bytes, self.len)
        };
        put.map_err(|error| match error {
            PrependError::NoHeadroom => Reason::NoHeadroom,
            PrependError::Offset | PrependError::Outer => Reason::TooBig,
        })?;
        let len = packets.len(id) as usize;
        let head = packets.head_mut(id);
        // Constant offsets take a third of the instructions of variable ones.
        let unfinished = match (self.l3, self.is_v4) {
            (ethernet::LEN, true) => self.fill_in::<14, 34>(head, len, macs, &inner, inner_sum, is_gso),
            (ethernet::LEN, false) => self.fill_in::<14, 54>(head, len, macs, &inner, inner_sum, is_gso),
            (_, true) => self.fill_in::<18, 38>(head, len, macs, &inner, inner_sum, is_gso),
            (_, false) => self.fill_in::<18, 58>(head, len, macs, &inner, inner_sum, is_gso),
        };
        if let Some(checksum) = unfinished {
            packets.set_offload(id, Offload { checksum, gso: None });
        }
        Ok(())
    }

    /// Fills in headers with IP at `L3` and the next header at `L4`, in front of a packet that now
    /// has `len` bytes. Returns the checksum that is still to be finished.
    #[inline(always)]
    fn fill_in<const L3: usize, const L4: usize>(
        &self,
        head: &mut [u8],
        len: usize,
        macs: &Macs,
        inner: &Inner,
        inner_sum: Option<u64>,
        is_gso: bool,
    ) -> Option<Checksum> {
        let (front, rest) = head.split_first_chunk_mut::<L4>()?;
        front[..12].copy_from_slice(macs);
        self.put_network::<L3, L4>(front, len, inner);
        let varying_word = self.put_varying(rest, len, inner);
        if self.sealed == Sealed::Nothing {
            return None;
        }
        // UDP, or GRE with a checksum.
        let rest = rest.first_chunk_mut::<8>()?;
        let mut source_port = 0;
        let mut udp_len = 0;
        if self.hashed_port {
            source_port = FIRST_PORT | low16(inner.hash as usize >> 18);
            rest[..2].copy_from_slice(&source_port.to_be_bytes());
        }
        if is_gso {
            // Segmentation writes lengths and checksums.
            return None;
        }
        let field = match self.sealed {
            Sealed::Gre => gre::CHECKSUM,
            _ => {
                udp_len = low16(len - L4);
                rest[4..6].copy_from_slice(&udp_len.to_be_bytes());
                udp::CHECKSUM
            }
        };
        // In the machine's byte order, so that most words need not be swapped for the sum alone.
        let value = match inner_sum {
            Some(inner_sum) => {
                // The pseudo header has the length as well.
                let [sealed, varying, port, len] =
                    [self.sealed_sum, varying_word, source_port, udp_len].map(|word| u64::from(word.to_be()));
                let sum = fold_words(sealed + varying + port + 2 * len + inner_sum);
                udp::checksum_of(sum)
            }
            None => fold(u32::from(self.pseudo_sum) + u32::from(udp_len)).to_be(),
        };
        rest[field..field + 2].copy_from_slice(&value.to_ne_bytes());
        inner_sum.is_none().then(|| Checksum::Partial { start: low16(L4), offset: low16(field) })
    }

    /// Fills in the word that differs between packets, and returns it. `rest` begins behind the IP
    /// header.
    #[inline]
    fn put_varying(&self, rest: &mut [u8], len: usize, inner: &Inner) -> u16 {
        let Some((varying, at)) = self.varying else { return 0 };
        let word = match varying {
            Varying::EtherType => inner.network.0,
            Varying::NextProtocol => next_protocol(inner.network).0.into(),
            Varying::Length => low16(len - self.len),
            Varying::FlowId => low16(inner.hash as usize & 0xff),
        };
        // Bits of the word that do not differ are in `sealed_sum`.
        let at = at - self.l4;
        let whole = word | u16::from_be_bytes([rest[at], rest[at + 1]]);
        rest[at..at + 2].copy_from_slice(&whole.to_be_bytes());
        word
    }

    /// Fills in the IP header of a packet of `len` bytes.
    #[inline]
    fn put_network<const L3: usize, const L4: usize>(&self, front: &mut [u8; L4], len: usize, inner: &Inner) {
        let ip = &mut front[L3..L4];
        let tos = inner.ecn.put(0);
        if L4 - L3 == ipv4::MIN_LEN {
            let total_len = low16(len - L3);
            let checksum = !fold(u32::from(self.network_sum) + u32::from(total_len) + u32::from(tos));
            ip[1] = tos;
            ip[2..4].copy_from_slice(&total_len.to_be_bytes());
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        } else {
            let first = VERSION_6 | u32::from(tos) << CLASS_AT | flow_label(inner.hash);
            ip[..4].copy_from_slice(&first.to_be_bytes());
            ip[4..6].copy_from_slice(&low16(len - L4).to_be_bytes());
        }
    }

    /// Returns whether `quoted` can be the beginning of a packet of ours behind the IP header. An
    /// ICMP error quotes 8 bytes at least (RFC 792). For IPv6, it quotes all our headers: as much of
    /// the packet as 1280 bytes hold (RFC 4443, 3.2).
    pub(crate) fn can_begin(&self, protocol: IpProtocol, quoted: &[u8]) -> bool {
        let ip = &self.as_bytes()[self.l3..self.l4];
        let own_protocol = if self.is_v4 { ip[9] } else { ip[6] };
        let least = if self.is_v4 { 8 } else { self.len - self.l4 };
        if protocol.0 != own_protocol || quoted.len() < least {
            return false;
        }
        let mut mask = [0xff; MAX_LEN];
        match self.sealed {
            Sealed::Nothing => {}
            // Length and checksum.
            Sealed::Udp => mask[4..8].fill(0),
            Sealed::Gre => mask[gre::CHECKSUM..gre::CHECKSUM + 2].fill(0),
        }
        if self.hashed_port {
            mask[..2].fill(0);
        }
        if let Some((varying, at)) = self.varying {
            let at = at - self.l4;
            match varying {
                Varying::EtherType | Varying::Length => mask[at..at + 2].fill(0),
                // One byte of the word.
                Varying::NextProtocol | Varying::FlowId => mask[at + 1] = 0,
            }
        }
        let has_right_port = !self.hashed_port || u16::from_be_bytes([quoted[0], quoted[1]]) >= FIRST_PORT;
        let pairs = quoted.iter().zip(&self.as_bytes()[self.l4..]).zip(&mask);
        has_right_port && pairs.fold(0, |bits, ((byte, own), mask)| bits | (byte ^ own) & mask) == 0
    }

    /// Returns what segmentation needs to know.
    fn outer(&self) -> Outer {
        let l4 = low16(self.l4);
        let checksum = match self.sealed {
            Sealed::Nothing => OuterChecksum::None,
            Sealed::Udp => OuterChecksum::Udp { l4 },
            Sealed::Gre => OuterChecksum::Gre { at: l4 },
        };
        // The length is the second word of a GTP-U header.
        let gtpu = self.varying.and_then(|(varying, at)| (varying == Varying::Length).then_some(low16(at) - 2));
        Outer { l3: low16(self.l3), checksum, gtpu }
    }
}

/// Returns the source port of UDP, or `None` if it follows from the flow.
fn source_port(tunnel: &TunnelConfig, traits: &Traits) -> Option<u16> {
    match traits.carrier {
        Carrier::Udp { source, .. } => tunnel.source_port.or(source),
        Carrier::Ip(_) => None,
    }
}

/// Returns the number of a network protocol in VXLAN-GPE.
#[inline]
fn next_protocol(network: EtherType) -> vxlan_gpe::NextProtocol {
    if network == EtherType::IPV6 { vxlan_gpe::NextProtocol::IPV6 } else { vxlan_gpe::NextProtocol::IPV4 }
}

/// Returns the flow label of 20 bits for a flow. Routers tell flows of tunnels apart by it (RFC 6438,
/// 3). The label 0 would mean that there is none (RFC 6437, 3).
#[inline]
fn flow_label(hash: u32) -> u32 {
    (hash >> 12).max(1)
}

/// Folds a sum of a few words to 16 bits.
#[inline]
fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    low16(((sum & 0xffff) + (sum >> 16)) as usize)
}

/// Returns the lower 16 bits of a value that has no more, unless the packet is too long for any
/// underlay.
#[expect(clippy::cast_possible_truncation, reason = "lengths are below the underlay's MTU")]
#[inline]
fn low16(value: usize) -> u16 {
    value as u16
}

#[cfg(test)]
mod tests;
