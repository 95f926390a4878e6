//! Keeps a port to its own addresses: frames that claim another station's address go no further.
//!
//! A bridge believes the source address of a frame, and guests believe what ARP and neighbour discovery say. This node stands
//! at the beginning of the way of one port's packets. It compares with the port's MAC addresses:
//!
//! 1. the source address of each frame;
//! 2. the sender of each ARP and RARP message;
//! 3. each link-layer address in the options of neighbour discovery (RFC 4861).
//!
//! Where the port has a list of IP addresses, it compares with these the source of each IP packet, the sender of each ARP
//! message, and the targets of neighbour advertisements and of probes.
//!
//! A frame that cannot be followed to its claims is dropped too: receivers may follow it. So are fragments of neighbour
//! discovery, which receivers ignore (RFC 6980), and checksums that would be finished over what was compared here.
//!
//! It does not look into tunnels, and does not know which router or which server is the right one.

use std::net::{IpAddr, Ipv6Addr};

use straightline_graph::{Next, Node};
use straightline_packet::{Batch, Checksum, PacketId, Packets, Reason};
use straightline_wire::{EtherType, IpProtocol, MacAddr, WireError, arp, ethernet, ipv4, ipv6, ndp, payload};

use crate::{IpPrefix, MacPrefix};

/// Compares the claims of a port's packets with its addresses. It has one edge, for packets that pass.
#[derive(Clone, Debug)]
pub struct SourceCheck {
    /// Bits and masks.
    macs: Box<[(u64, u64)]>,
    /// None: every IP address passes.
    ips: Option<Addresses>,
}

#[derive(Clone, Debug)]
struct Addresses {
    v4: Box<[(u128, u128)]>,
    v6: Box<[(u128, u128)]>,
}

/// Why a frame does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It claims an address that is not the port's.
    Claim,
    /// Its source is an address that no station can have.
    NoStation,
    /// Its claims cannot be found.
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
    /// A check of a port whose guest has these MAC addresses and, if they are known, these IP addresses. The link-local IPv6
    /// address that is made from a single MAC address (EUI-64, RFC 4291, appendix A) is then allowed as well.
    pub fn new(macs: &[MacPrefix], ips: Option<&[IpPrefix]>) -> Self {
        let ips = ips.map(|ips| {
            let of = |v4: bool| ips.iter().filter(move |ip| ip.is_ipv4() == v4).map(|ip| ip.masked());
            let own = macs.iter().filter_map(|mac| mac.only()).map(link_local);
            let own = own.map(|ip| IpPrefix::exact(ip.into()).masked());
            Addresses { v4: of(true).collect(), v6: of(false).chain(own).collect() }
        });
        SourceCheck { macs: macs.iter().map(|mac| mac.masked()).collect(), ips }
    }

    /// Whether a station behind the port may have this address.
    #[inline]
    pub fn allows(&self, mac: MacAddr) -> bool {
        let mac = mac.as_u64();
        self.macs.iter().any(|&(bits, mask)| mac & mask == bits)
    }

    /// The unspecified address is nobody's: a guest without an address sends from it, and probes with it.
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
            // What was compared must be what arrives.
            Checksum::Partial { start, offset } if usize::from(start) + usize::from(offset) < decided => {
                Err(Fault::Claim)
            }
            _ => Ok(()),
        }
    }

    /// Compares the claims of a frame of `len` bytes that begins with `head`. Returns the place before which no byte may
    /// change any more.
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
            // The length of an LLC frame: that it carries none of the above was decided by what follows.
            EtherType(..0x600) => Ok(usize::MAX),
            _ => Ok(at),
        }
    }

    /// Every operation counts: receivers learn from requests and replies alike.
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
        // What stands behind the packet is no part of it for its receiver. A length of 0 means all (RFC 2675).
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
                // It claims something only together with the first one.
                return Ok(at);
            }
            // The first fragment has all headers (RFC 7112).
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
            // The type and the code.
            return Ok(at + 2);
        }
        if is_fragment {
            return Err(Fault::Hidden(WireError::BadExtension));
        }
        self.decide_neighbour(&packet[at..], end - at, header.src()).map(|()| usize::MAX)
    }

    /// A message of neighbour discovery of `len` bytes, as far as it is visible.
    fn decide_neighbour(&self, visible: &[u8], len: usize, src: Ipv6Addr) -> Result<(), Fault> {
        let message = ndp::Header::new_checked(visible)?;
        // A solicitation from no address probes whether its target is free (RFC 4862, 5.4.2).
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

/// The link-local address that is made from a MAC address (RFC 4291, 2.5.6 and appendix A).
fn link_local(mac: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    Ipv6Addr::from_octets([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

#[cfg(test)]
mod tests;
