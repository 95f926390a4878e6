//! ICMP: echo requests are answered, errors about packets that were too long are honoured.

use std::net::IpAddr;

use straightline_packet::{Checksum, Offload, PacketId, Packets, Reason};
use straightline_wire::{IpProtocol, ethernet, icmpv4, icmpv6, ipv4, ipv6, ndp};

use super::{Answered, Ip, Received, not_ours, take};
use crate::Underlay;
use crate::tunnel::path_mtu::{LEAST_ERROR, TooLong};
use crate::underlay::pings::EchoKey;
use straightline_wire::messages::HOP_LIMIT;

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

/// The effect of an ICMP error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lowered {
    /// The tunnels whose path has a lower MTU now.
    tunnels: usize,
    /// The tunnels that were compared with the quoted packet.
    looked_at: usize,
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
                let src = header.src().into();
                let dst = header.dst().into();
                let protocol = header.protocol();
                let len = header.total_len().into();
                let rest = bytes.get(header.header_len()..).unwrap_or_default();
                self.honour(&Quoted { src, dst, protocol, len, rest }, mtu.into(), ip.src, packets.now())
            }
            icmpv4::Repr::EchoReply { ident, sequence } => self.take_echo_reply(packets, id, ip, (ident, sequence)),
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
        let kind = ndp::Kind::of(header.message_type().0);
        let repr = icmpv6::Repr::parse(&header);
        ip.check(packets, id, icmpv6::CHECKSUM, ip.pseudo_sum())?;
        match (kind, repr) {
            (Some(ndp::Kind::NeighborAdvertisement), _) => self.take_advertisement(packets, id, received, ip),
            (Some(ndp::Kind::NeighborSolicitation), _) if self.is_own(ip.src) => {
                self.take_claim(packets, id, received, ip)
            }
            (Some(ndp::Kind::NeighborSolicitation), _) => self.answer_solicitation(packets, id, received, ip),
            _ if self.is_own(ip.src) => Err(Reason::NotOurs),
            _ if !ip.is_for_us || ip.src.is_unspecified() => Err(Reason::NotOurs),
            (_, Some(icmpv6::Repr::EchoRequest { .. })) => self.answer_echo(packets, id, received, ip),
            (_, Some(icmpv6::Repr::EchoReply { ident, sequence })) => {
                self.take_echo_reply(packets, id, ip, (ident, sequence))
            }
            (_, Some(icmpv6::Repr::TooBig { mtu })) => {
                let bytes = message(packets, id, ip).get(icmpv6::LEN..).unwrap_or_default();
                let header = ipv6::Header::new_checked(bytes).map_err(not_ours)?;
                let src = header.src().into();
                let dst = header.dst().into();
                let protocol = header.next_header();
                let len = u32::from(header.payload_len()) + 40;
                let rest = bytes.get(ipv6::LEN..).unwrap_or_default();
                self.honour(&Quoted { src, dst, protocol, len, rest }, mtu, ip.src, packets.now())
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
        take((&self.echoes, self.sender(ip.src)), packets.now())?;
        let checksum = packets.offload(id).checksum;
        let is_partial = matches!(checksum, Checksum::Partial { .. });
        let head = packets.head_mut(id);
        let mut ethernet = ethernet::Header::new_checked(&mut head[..]).map_err(not_ours)?;
        ethernet.set_dst(received.from);
        ethernet.set_src(received.own);
        let (net, icmp) = head.split_at_mut(ip.l4);
        let net = &mut net[received.l3..];
        if let Ok(mut header) = ipv4::Header::new_checked(&mut net[..]) {
            let src = header.src();
            let dst = header.dst();
            header.set_src(dst);
            header.set_dst(src);
            header.set_ttl(HOP_LIMIT);
            header.fill_checksum();
            turn_around_v4(icmp, is_partial)?;
        } else {
            let mut header = ipv6::Header::new_checked(net).map_err(not_ours)?;
            let src = header.src();
            let dst = header.dst();
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

    /// Takes the reply to an echo request of ours.
    fn take_echo_reply(
        &self,
        packets: &Packets<'_>,
        id: PacketId,
        ip: Ip,
        (ident, sequence): (u16, u16),
    ) -> Result<Answered, Reason> {
        let payload = message(packets, id, ip).get(icmpv4::LEN..).unwrap_or_default();
        let cookie = payload.try_into().map_err(not_ours)?;
        let key = EchoKey { own: ip.dst, to: ip.src, ident, sequence, cookie };
        if self.pings.replied(&key) { Ok(Answered::Used) } else { Err(Reason::NotOurs) }
    }

    /// Honours an error of `router` about a packet that was too long, if one of our tunnels can have
    /// sent the quoted packet (RFC 5927, 7.2). Anybody can send such errors. So the cheapest check comes
    /// first, and only the tunnels to the quoted destination are searched.
    fn honour(&self, quoted: &Quoted<'_>, mtu: u32, router: IpAddr, now: u32) -> Result<Answered, Reason> {
        if quoted.len <= LEAST_ERROR || !self.is_own(quoted.src) || !self.has_tunnel_to(quoted.dst) {
            return Err(Reason::NotOurs);
        }
        take((&self.errors, self.sender(router)), now)?;
        match self.lower_path_mtus(quoted, mtu, now) {
            Lowered { tunnels: 1.., .. } => Ok(Answered::Used),
            Lowered { .. } => Err(Reason::NotOurs),
        }
    }

    /// Lowers the MTU of the way to the quoted packet's destination for each tunnel that can have
    /// sent the packet.
    fn lower_path_mtus(&self, quoted: &Quoted<'_>, mtu: u32, now: u32) -> Lowered {
        let &Quoted { src, dst, protocol, len, rest } = quoted;
        let mut lowered = Lowered::default();
        self.look_at_tunnels_to(dst, |tunnel| {
            let is_lower = tunnel.lower_path_mtu((src, dst), (protocol, rest), TooLong { len, mtu }, now);
            lowered.tunnels += usize::from(is_lower);
            lowered.looked_at += 1;
        });
        lowered
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

#[cfg(test)]
pub(super) mod tests;
