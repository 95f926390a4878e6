//! Echo of GTP-U (3GPP TS 29.281, 7.2): the question of another end whether we live.

use std::net::IpAddr;

use straightline_packet::{PacketId, Packets, Reason};
use straightline_wire::{EtherType, IpProtocol, WireError, checksum, gtpu, udp};

use super::{Answered, Ip, Received, not_ours};
use crate::Underlay;
use straightline_wire::messages::{self, Link, Message};

impl Underlay {
    /// Answers an echo request of GTP-U.
    pub(super) fn answer_gtpu(
        &self,
        packets: &mut Packets<'_>,
        id: PacketId,
        received: Received,
        ip: Ip,
    ) -> Result<Answered, Reason> {
        let bytes = packets.head(id).get(ip.l4..).unwrap_or_default();
        let datagram = udp::Header::new_checked(bytes).map_err(not_ours)?;
        if datagram.dst_port() != gtpu::PORT || datagram.length() != ip.len {
            return Err(Reason::NotOurs);
        }
        let port = datagram.src_port();
        let has_checksum = datagram.checksum() != 0;
        let header = gtpu::Header::new_checked(&bytes[udp::LEN..]).map_err(not_ours)?;
        let request = gtpu::Repr::parse(&header);
        if request.message_type != gtpu::Type::ECHO_REQUEST || request.teid != 0 {
            return Err(Reason::NotOurs);
        }
        let sequence = request.sequence.ok_or(Reason::NotOurs)?;
        if has_checksum {
            ip.check(packets, id, udp::CHECKSUM, ip.pseudo_sum())?;
        } else if ip.src.is_ipv6() {
            return Err(Reason::TunnelChecksum);
        }
        let reply = response(self.link(received, received.from), ip, port, sequence);
        self.reply(packets, id, reply, (&self.echoes, self.sender(ip.src)))
    }
}

/// Returns the response to a request from this port.
fn response(link: Link, request: Ip, port: u16, sequence: u16) -> Result<Message, WireError> {
    let repr =
        gtpu::Repr { message_type: gtpu::Type::ECHO_RESPONSE, teid: 0, sequence: Some(sequence), payload_len: 2 };
    const LEN: u16 = 8 + 12 + 2;
    let mut datagram = [0; LEN as usize];
    let ip = Ip { src: request.dst, dst: request.src, len: LEN, ..request };
    repr.emit(&mut datagram[udp::LEN..])?;
    datagram[udp::LEN + gtpu::LONG_LEN..].copy_from_slice(&gtpu::RECOVERY);
    let udp = udp::Repr { src_port: gtpu::PORT, dst_port: port, payload_len: LEN - 8, checksum: 0 };
    udp.emit(&mut datagram)?;
    let sum = checksum::add(ip.pseudo_sum(), checksum::sum(&datagram));
    udp::Repr { checksum: udp::checksum_of(sum), ..udp }.emit(&mut datagram)?;
    let mut message;
    match (ip.src, ip.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            message = Message::begin(link, EtherType::IPV4)?;
            let repr = messages::v4(src, dst, IpProtocol::UDP, datagram.len())?;
            message.append(|bytes| repr.emit(bytes))?;
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            message = Message::begin(link, EtherType::IPV6)?;
            let repr = messages::v6(src, dst, IpProtocol::UDP, datagram.len())?;
            message.append(|bytes| repr.emit(bytes))?;
        }
        _ => return Err(WireError::BadVersion),
    }
    message.append_bytes(&datagram)?;
    Ok(message)
}
