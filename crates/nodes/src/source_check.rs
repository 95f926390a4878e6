//! The source check: drops frames that claim an address of another station.
//!
//! A bridge believes the source address of a frame, and guests believe ARP and neighbour discovery.
//! This node is the first that the packets of a port pass. It compares these claims with the port's
//! MAC addresses:
//!
//! 1. the source address of each frame;
//! 2. the sender of each ARP and RARP message;
//! 3. each link-layer address in the options of neighbour discovery (RFC 4861).
//!
//! If the port has a list of IP addresses, the node also compares each IP packet's source and each
//! ARP message's sender. In neighbour discovery it compares the targets of advertisements and of
//! probes.
//!
//! These frames are dropped, too:
//!
//! - frames whose claims the node cannot find, because a receiver may find them;
//! - fragments of neighbour discovery, which receivers ignore (RFC 6980);
//! - frames with a partial checksum whose field lies within the bytes that were compared.
//!
//! The node does not look into tunnels. It does not know which router or server is the right one.

mod allowed;

use std::net::{IpAddr, Ipv6Addr};

use straightline_graph::{Next, Node};
use straightline_packet::{Batch, Checksum, PacketId, Packets, Reason};
use straightline_wire::{EtherType, IpProtocol, MacAddr, WireError, arp, ethernet, ipv4, ipv6, ndp, payload};

use crate::{IpPrefix, MacPrefix};
pub use allowed::AllowedAddresses;

/// A node that compares the claims of a port's packets with the port's addresses. It has one edge,
/// for packets that pass.
#[derive(Clone, Debug)]
pub struct SourceCheck {
    /// Bits and masks of the MAC prefixes.
    macs: Box<[(u64, u64)]>,
    /// IP prefixes. `None`: every IP address passes.
    ips: Option<Addresses>,
}

#[derive(Clone, Debug)]
struct Addresses {
    v4: Box<[(u128, u128)]>,
    v6: Box<[(u128, u128)]>,
}

/// The reason why a frame does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The frame claims an address that is not the port's.
    Claim,
    /// No station can have the source address of the frame.
    NoStation,
    /// The claims of the frame cannot be found.
    Hidden(WireError),
}

impl From<WireError> for Fault {
    fn from(error: WireError) -> Self {
        Fault::Hidden(error)
    }
}

impl Fault {
    fn reason(self) -> Reason {
        match self {
            Fault::Claim | Fault::Hidden(_) => Reason::Spoofed,
            Fault::NoStation => Reason::BadSource,
        }
    }
}

impl SourceCheck {
    /// Creates the check of a port whose guest has these MAC addresses and, if they are known,
    /// these IP addresses. With IP addresses, the link-local IPv6 address that follows from each
    /// single MAC address (EUI-64, RFC 4291, appendix A) is allowed, too.
    pub fn new(macs: &[MacPrefix], ips: Option<&[IpPrefix]>) -> Self {
        let ips = ips.map(|ips| {
            let of_version = |v4: bool| ips.iter().filter(move |ip| ip.is_ipv4() == v4).map(|ip| ip.masked());
            let own = macs.iter().filter_map(|mac| mac.only()).map(link_local);
            let own = own.map(|ip| IpPrefix::exact(ip.into()).masked());
            Addresses { v4: of_version(true).collect(), v6: of_version(false).chain(own).collect() }
        });
        SourceCheck { macs: macs.iter().map(|mac| mac.masked()).collect(), ips }
    }

    /// Returns whether a station behind the port may have this MAC address.
    #[inline]
    pub fn allows(&self, mac: MacAddr) -> bool {
        let mac = mac.as_u64();
        self.macs.iter().any(|&(bits, mask)| mac & mask == bits)
    }

    /// Returns whether a station behind the port may have this IP address. The unspecified address
    /// is always allowed: a guest without an address sends from it, and probes with it.
    fn allows_ip(&self, ip: IpAddr) -> bool {
        let Some(ips) = &self.ips else { return true };
        let (bits, list) = match ip {
            IpAddr::V4(ip) => (ip.to_bits().into(), &ips.v4),
            IpAddr::V6(ip) => (ip.to_bits(), &ips.v6),
        };
        bits == 0 || list.iter().any(|&(prefix, mask)| bits & mask == prefix)
    }

    #[inline]
    fn check(&self, packets: &mut Packets<'_>, id: PacketId) -> Result<(), Fault> {
        let len = packets.len(id) as usize;
        let mut decided = self.decide(packets.head(id), len);
        let deepest = len.min(packets.max_head(id));
        if decided == Err(Fault::Hidden(WireError::Truncated)) && packets.head(id).len() < deepest {
            packets.pull_up(id, deepest);
            decided = self.decide(packets.head(id), len);
        }
        let decided = decided?;
        match packets.offload(id).checksum {
            // The bytes that were compared must arrive unchanged.
            Checksum::Partial { start, offset } if usize::from(start) + usize::from(offset) < decided => {
                Err(Fault::Claim)
            }
            _ => Ok(()),
        }
    }

    /// Compares the claims of a frame of `len` bytes that begins with `head`. Returns the offset
    /// before which no byte may change any more.
    #[inline]
    fn decide(&self, head: &[u8], len: usize) -> Result<usize, Fault> {
        let header = ethernet::Header::new_checked(head)?;
        if !self.allows(header.src()) {
            let is_station = header.src().is_unicast() && header.src().as_u64() != 0;
            return Err(if is_station { Fault::Claim } else { Fault::NoStation });
        }
        match header.ether_type() {
            EtherType::IPV4 if self.ips.is_none() => Ok(ethernet::LEN),
            _ => self.decide_payload(head, len),
        }
    }

    fn decide_payload(&self, head: &[u8], len: usize) -> Result<usize, Fault> {
        let (ether_type, at) = payload(head)?;
        match ether_type {
            EtherType::ARP | EtherType::RARP => self.decide_arp(&head[at..]).map(|()| usize::MAX),
            EtherType::IPV4 if self.ips.is_some() => {
                let header = ipv4::Header::new_checked(&head[at..])?;
                self.require_ip(header.src())?;
                Ok(at + header.header_len())
            }
            EtherType::IPV6 => self.decide_ipv6(head, at, len),
            // Some receivers take it as a tag, behind which a claim may be.
            EtherType::QINQ1 => Err(Fault::Hidden(WireError::NotIp)),
            // The field is the length of an LLC frame. The bytes behind it showed that the frame
            // carries none of the protocols above.
            EtherType(..0x600) => Ok(usize::MAX),
            _ => Ok(at),
        }
    }

    /// Compares the claims of an ARP or RARP message. Every operation is compared, because
    /// receivers learn from requests and replies alike.
    fn decide_arp(&self, message: &[u8]) -> Result<(), Fault> {
        let message = arp::Header::new_checked(message)?;
        self.require(message.sender_mac())?;
        self.require_ip(message.sender_ip())?;
        // A probe claims its target (RFC 5227, 1.1).
        if message.sender_ip().is_unspecified() { self.require_ip(message.target_ip()) } else { Ok(()) }
    }

    fn decide_ipv6(&self, head: &[u8], l3: usize, len: usize) -> Result<usize, Fault> {
        let header = ipv6::Header::new_checked(&head[l3..])?;
        self.require_ip(header.src())?;
        // A receiver ignores bytes behind the packet. A length of 0 means all bytes (RFC 2675).
        let end = match usize::from(header.payload_len()) {
            0 => len,
            payload_len => len.min(l3 + ipv6::LEN + payload_len),
        };
        let packet = &head[..head.len().min(end)];
        let mut at = l3 + ipv6::LEN;
        let mut walked = ipv6::skip_extensions(packet.get(at..).ok_or(WireError::Truncated)?, header.next_header())?;
        at += walked.len;
        let is_fragment = walked.fragment;
        if is_fragment {
            if ipv6::fragment_offset(&packet[at - ipv6::FRAGMENT_LEN..])? > 0 {
                // A later fragment has claims only together with the first one.
                return Ok(at);
            }
            // The first fragment must have all headers (RFC 7112).
            walked = ipv6::skip_extensions(&packet[at..], walked.protocol)?;
            at += walked.len;
            if walked.fragment {
                return Err(Fault::Hidden(WireError::BadExtension));
            }
        }
        if walked.protocol != IpProtocol::ICMPV6 {
            return Ok(at);
        }
        let icmp_type = *packet.get(at).ok_or(WireError::Truncated)?;
        if ndp::Kind::of(icmp_type).is_none() {
            // Type and code must not change.
            return Ok(at + 2);
        }
        if is_fragment {
            return Err(Fault::Hidden(WireError::BadExtension));
        }
        self.decide_neighbour(&packet[at..], end - at, header.src()).map(|()| usize::MAX)
    }

    /// Compares the claims of a message of neighbour discovery. The message has `len` bytes, of
    /// which some are visible.
    fn decide_neighbour(&self, visible: &[u8], len: usize, src: Ipv6Addr) -> Result<(), Fault> {
        let message = ndp::Header::new_checked(visible)?;
        // A solicitation from the unspecified address probes whether its target is free (RFC 4862,
        // 5.4.2).
        let claims_target = match message.kind() {
            ndp::Kind::NeighborAdvertisement => true,
            ndp::Kind::NeighborSolicitation => src.is_unspecified(),
            _ => false,
        };
        if let Some(target) = message.target().filter(|_| claims_target) {
            self.require_ip(target)?;
        }
        for option in message.options(len) {
            if let Some(mac) = option?.link_address()? {
                self.require(mac)?;
            }
        }
        Ok(())
    }

    fn require(&self, mac: MacAddr) -> Result<(), Fault> {
        if self.allows(mac) { Ok(()) } else { Err(Fault::Claim) }
    }

    fn require_ip(&self, ip: impl Into<IpAddr>) -> Result<(), Fault> {
        if self.allows_ip(ip.into()) { Ok(()) } else { Err(Fault::Claim) }
    }
}

impl Node for SourceCheck {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        for &id in batch.ids() {
            match self.check(packets, id) {
                Ok(()) => next.push(0, id),
                Err(fault) => packets.discard(id, fault.reason()),
            }
        }
    }
}

/// Returns the link-local address that follows from a MAC address (RFC 4291, 2.5.6 and appendix A).
pub(crate) fn link_local(mac: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    Ipv6Addr::from_octets([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

#[cfg(test)]
mod tests;
