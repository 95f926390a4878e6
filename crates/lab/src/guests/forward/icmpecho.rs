//! `icmpecho`: answers ARP for every address, and ICMP echo over IPv4, through the port of the
//! request. Drops everything else.

use straightline_guest::endpoints::{Packet, Received};
use straightline_wire::{EtherType, IpProtocol, checksum, ipv4, vlan};

use super::engine::Mode;
use super::own;

/// Number of bytes that hold an Ethernet header with two tags, an IPv4 header with options, and the
/// bytes of ICMP that change. ARP needs fewer.
const HEAD: usize = 22 + ipv4::MAX_LEN + 4;

/// ARP for Ethernet and IPv4 (RFC 826): the first six bytes, the length, and the opcodes.
const ARP: [u8; 6] = [0, 1, 8, 0, 6, 4];
const ARP_LEN: usize = 28;
const REQUEST: [u8; 2] = [0, 1];
const REPLY: [u8; 2] = [0, 2];

/// Types of ICMP (RFC 792).
const ECHO: u8 = 8;
const ECHO_REPLY: u8 = 0;

#[derive(Default)]
pub(super) struct IcmpEcho {
    arp: u64,
    echo: u64,
}

impl Mode for IcmpEcho {
    const BACK: bool = true;

    fn packet(&mut self, packet: &Packet<'_>, to: usize) -> bool {
        let mut bytes = [0; HEAD];
        let len = packet.read(0, &mut bytes);
        let head = &mut bytes[..len];
        let Ok(tags) = vlan::skip(head) else { return false };
        let answered = match tags.ether_type {
            EtherType::ARP => answer_arp(head, tags.payload, to).inspect(|_| self.arp += 1),
            EtherType::IPV4 => answer_echo(head, tags.payload).inspect(|_| self.echo += 1),
            _ => None,
        };
        let Some(end) = answered else { return false };
        packet.write(0, &head[..end]);
        true
    }

    fn notes(&self) -> Vec<(&'static str, u64)> {
        vec![("ARP requests answered", self.arp), ("echo requests answered", self.echo)]
    }
}

/// Writes port `to`'s answer over the ARP request at `at`. Returns the end of the answer.
fn answer_arp(head: &mut [u8], at: usize, to: usize) -> Option<usize> {
    let arp = head.get_mut(at..at + ARP_LEN)?;
    if arp[..6] != ARP || arp[6..8] != REQUEST {
        return None;
    }
    arp[6..8].copy_from_slice(&REPLY);
    // The sender's addresses come first, then the target's. The requester becomes the target. The
    // answer says that this guest owns the requested address.
    arp[8..].rotate_left(10);
    arp[8..14].copy_from_slice(&own(to).0);
    head.copy_within(6..12, 0);
    head[6..12].copy_from_slice(&own(to).0);
    Some(at + ARP_LEN)
}

/// Writes the echo reply over the request. The IPv4 header is at `at`. Returns the end of the last
/// changed field.
fn answer_echo(head: &mut [u8], at: usize) -> Option<usize> {
    let header = ipv4::Header::new_checked(head.get(at..)?).ok()?;
    // Echo requests to a multicast address are not answered. (RFC 1122, 3.2.2.6, allows both.)
    if header.protocol() != IpProtocol::ICMP || header.is_fragment() || header.dst().is_multicast() {
        return None;
    }
    let icmp = at + header.header_len();
    let message = head.get_mut(icmp..icmp + 4)?;
    if message[..2] != [ECHO, 0] {
        return None;
    }
    message[0] = ECHO_REPLY;
    // RFC 1624, 3: the old type is subtracted from the sum. The new type is 0.
    let old = u16::from_be_bytes([message[2], message[3]]);
    let new = !checksum::add(!old, !u16::from_be_bytes([ECHO, 0]));
    message[2..4].copy_from_slice(&new.to_be_bytes());
    head[at + 12..at + 20].rotate_left(4);
    head[..12].rotate_left(6);
    Some(icmp + 4)
}
