//! ICMP: echo requests are answered, errors about packets that were too long are honoured.

use std::net::IpAddr;

use straightline_packet::{Checksum, Offload, PacketId, Packets, Reason};
use straightline_wire::{IpProtocol, ethernet, icmpv4, icmpv6, ipv4, ipv6, ndp};

use super::{Answered, Ip, Received, not_ours, take};
use crate::messages::HOP_LIMIT;
use crate::path_mtu::PathMtus;
use crate::{Tunnel, Underlay};

/// A packet that an ICMP error is about.
struct Quoted<'a> {
    src: IpAddr,
    dst: IpAddr,
    protocol: IpProtocol,
    /// Bytes of the whole packet.
    len: u32,
    /// The bytes behind the IP header, as far as the error has them.
    rest: &'a [u8],
}

impl Underlay {
    pub(super) fn answer_icmp(
        &self,
        packets: &mut Packets<'_>,
        id: PacketId,
        received: Received,
        ip: Ip,
    ) -> Result<Answered, Reason> {
        let header = icmpv4::Header::new_checked(message(packets, id, ip)).map_err(not_ours)?;
        let repr = icmpv4::Repr::parse(&header).ok_or(Reason::NotOurs)?;
        ip.check(packets, id, icmpv4::CHECKSUM, 0)?;
        match repr {
            icmpv4::Repr::EchoRequest { .. } => self.answer_echo(packets, id, received, ip),
            icmpv4::Repr::FragmentationNeeded { mtu } => {
                let bytes = message(packets, id, ip).get(icmpv4::LEN..).unwrap_or_default();
                let header = ipv4::Header::new_checked(bytes).map_err(not_ours)?;
                let (src, dst) = (header.src().into(), header.dst().into());
                let (protocol, len) = (header.protocol(), header.total_len().into());
                let rest = bytes.get(header.header_len()..).unwrap_or_default();
                self.honour(&Quoted { src, dst, protocol, len, rest }, mtu.into(), packets.now())
            }
            icmpv4::Repr::EchoReply { .. } => Err(Reason::NotOurs),
        }
    }

    pub(super) fn answer_icmpv6(
        &self,
        packets: &mut Packets<'_>,
        id: PacketId,
        received: Received,
        ip: Ip,
    ) -> Result<Answered, Reason> {
        let header = icmpv6::Header::new_checked(message(packets, id, ip)).map_err(not_ours)?;
        let (kind, repr) = (ndp::Kind::of(header.message_type().0), icmpv6::Repr::parse(&header));
        ip.check(packets, id, icmpv6::CHECKSUM, ip.pseudo_sum())?;
        match (kind, repr) {
            (Some(ndp::Kind::NeighborSolicitation), _) => self.answer_solicitation(packets, id, received, ip),
            (Some(ndp::Kind::NeighborAdvertisement), _) => self.take_advertisement(packets, id, received, ip),
            _ if !ip.is_for_us || ip.src.is_unspecified() => Err(Reason::NotOurs),
            (_, Some(icmpv6::Repr::EchoRequest { .. })) => self.answer_echo(packets, id, received, ip),
            (_, Some(icmpv6::Repr::TooBig { mtu })) => {
                let bytes = message(packets, id, ip).get(icmpv6::LEN..).unwrap_or_default();
                let header = ipv6::Header::new_checked(bytes).map_err(not_ours)?;
                let (src, dst) = (header.src().into(), header.dst().into());
                let (protocol, len) = (header.next_header(), u32::from(header.payload_len()) + 40);
                let rest = bytes.get(ipv6::LEN..).unwrap_or_default();
                self.honour(&Quoted { src, dst, protocol, len, rest }, mtu, packets.now())
            }
            _ => Err(Reason::NotOurs),
        }
    }

    /// Makes an echo request its reply. Only headers change, so the length does not matter.
    fn answer_echo(
        &self,
        packets: &mut Packets<'_>,
        id: PacketId,
        received: Received,
        ip: Ip,
    ) -> Result<Answered, Reason> {
        take(&self.echoes, packets.now())?;
        let checksum = packets.offload(id).checksum;
        let is_partial = matches!(checksum, Checksum::Partial { .. });
        let head = packets.head_mut(id);
        let mut ethernet = ethernet::Header::new_checked(&mut head[..]).map_err(not_ours)?;
        ethernet.set_dst(received.from);
        ethernet.set_src(received.own);
        let (net, icmp) = head.split_at_mut(ip.l4);
        let net = &mut net[received.l3..];
        if let Ok(mut header) = ipv4::Header::new_checked(&mut net[..]) {
            let (src, dst) = (header.src(), header.dst());
            header.set_src(dst);
            header.set_dst(src);
            header.set_ttl(HOP_LIMIT);
            header.fill_checksum();
            turn_around_v4(icmp, is_partial)?;
        } else {
            let mut header = ipv6::Header::new_checked(net).map_err(not_ours)?;
            let (src, dst) = (header.src(), header.dst());
            header.set_src(dst);
            header.set_dst(src);
            header.set_hop_limit(HOP_LIMIT);
            turn_around_v6(icmp, is_partial)?;
        }
        // A checksum that is still to be finished stays so; one that was verified has changed.
        let checksum = if is_partial { checksum } else { Checksum::Complete };
        packets.set_offload(id, Offload { checksum, ..Offload::default() });
        Ok(Answered::Reply)
    }

    /// Honours an error about a packet that was too long, if we can have sent the quoted packet
    /// (RFC 5927, 7.2): its addresses and headers are those of a tunnel, and it is longer than the
    /// MTU that we would take.
    fn honour(&self, quoted: &Quoted<'_>, mtu: u32, now: u32) -> Result<Answered, Reason> {
        let &Quoted { src, dst, protocol, len, rest } = quoted;
        let is_too_long = PathMtus::believed(dst, mtu).is_some_and(|mtu| len > mtu);
        let is_plausible = self.is_own(src) && is_too_long && self.path_mtus.has(dst);
        let is_of = |tunnel: &Tunnel| tunnel.can_have_sent(src, dst, protocol, rest);
        if is_plausible && self.has_tunnel(is_of) && self.path_mtus.lower(dst, mtu, now) {
            Ok(Answered::Used)
        } else {
            Err(Reason::NotOurs)
        }
    }
}

/// Returns the visible bytes of a message.
fn message<'a>(packets: &'a Packets<'_>, id: PacketId, ip: Ip) -> &'a [u8] {
    let head = packets.head(id);
    head.get(ip.l4..head.len().min(ip.l4 + usize::from(ip.len))).unwrap_or_default()
}

fn turn_around_v4(icmp: &mut [u8], is_partial: bool) -> Result<(), Reason> {
    let mut header = icmpv4::Header::new_checked(icmp).map_err(not_ours)?;
    let before = header.checksum();
    header.replace_type(icmpv4::Type::ECHO_REPLY);
    if is_partial {
        // The field has the sum of the pseudo-header, which has no type.
        header.set_checksum(before);
    }
    Ok(())
}

fn turn_around_v6(icmp: &mut [u8], is_partial: bool) -> Result<(), Reason> {
    let mut header = icmpv6::Header::new_checked(icmp).map_err(not_ours)?;
    let before = header.checksum();
    header.replace_type(icmpv6::Type::ECHO_REPLY);
    if is_partial {
        header.set_checksum(before);
    }
    Ok(())
}
