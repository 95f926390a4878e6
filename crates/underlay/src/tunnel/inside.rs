//! Questions for MAC addresses from the inside of a tunnel that carries IP.
//!
//! Such a tunnel carries neither ARP nor neighbour discovery. It answers questions itself, with the
//! address of its Ethernet face: all far addresses are behind it. So such a tunnel belongs into a
//! patch. In a bridge it would also answer for the addresses of the bridge's other stations.

use std::net::{Ipv4Addr, Ipv6Addr};

use straightline_wire::{EtherType, IpProtocol, MacAddr, WireError, arp, ethernet, ipv6, ndp};

use crate::underlay::messages::{Link, Message, advertisement, arp_reply};

/// A question for the MAC address of `target`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// An ARP request.
    V4 { by: MacAddr, sender: Ipv4Addr, target: Ipv4Addr },
    /// A neighbour solicitation.
    V6 { by: MacAddr, sender: Ipv6Addr, target: Ipv6Addr },
}

impl Asked {
    /// Reads a question from the head of a packet. A station that asks whether its own address is
    /// free (RFC 5227, 2.1.1; RFC 4862, 5.4) gets no answer, so that is no question here.
    #[inline]
    pub(crate) fn of(head: &[u8]) -> Option<Self> {
        match ether_type(head)? {
            EtherType::ARP => Self::of_arp(head),
            EtherType::IPV6 if head.get(20) == Some(&IpProtocol::ICMPV6.0) => Self::of_solicitation(head),
            _ => None,
        }
    }

    /// Returns whether the packet is IPv4 or IPv6, without a tag.
    #[inline]
    pub(crate) fn is_ip(head: &[u8]) -> bool {
        let version = head.get(ethernet::LEN).map(|first| first >> 4);
        matches!((ether_type(head), version), (Some(EtherType::IPV4), Some(4)) | (Some(EtherType::IPV6), Some(6)))
    }

    #[cold]
    fn of_arp(head: &[u8]) -> Option<Self> {
        let by = ethernet::Header::new_checked(head).ok()?.src();
        let arp = arp::Header::new_checked(head.get(ethernet::LEN..)?).ok()?;
        let sender = arp.sender_ip();
        let target = arp.target_ip();
        let asks = arp.operation() == arp::Operation::REQUEST && !sender.is_unspecified() && sender != target;
        asks.then_some(Asked::V4 { by, sender, target })
    }

    #[cold]
    fn of_solicitation(head: &[u8]) -> Option<Self> {
        let by = ethernet::Header::new_checked(head).ok()?.src();
        let ip = ipv6::Header::new_checked(head.get(ethernet::LEN..)?).ok()?;
        let message = ndp::Header::new_checked(head.get(ethernet::LEN + ipv6::LEN..)?).ok()?;
        if message.kind() != ndp::Kind::NeighborSolicitation || ip.hop_limit() != 255 {
            return None;
        }
        let sender = ip.src();
        let target = message.target()?;
        let asks = !sender.is_unspecified() && sender != target && !target.is_multicast();
        asks.then_some(Asked::V6 { by, sender, target })
    }

    /// Returns the station that asks.
    pub(crate) fn by(&self) -> MacAddr {
        match *self {
            Asked::V4 { by, .. } | Asked::V6 { by, .. } => by,
        }
    }

    /// Returns the answer: `mac` has the address.
    pub(crate) fn answer(&self, mac: MacAddr) -> Result<Message, WireError> {
        let link = Link { src: mac, dst: self.by(), vlan: None };
        match *self {
            Asked::V4 { sender, target, .. } => arp_reply(link, target, sender),
            Asked::V6 { sender, target, .. } => advertisement(link, target, sender, true),
        }
    }
}

#[inline]
fn ether_type(head: &[u8]) -> Option<EtherType> {
    Some(ethernet::Header::new_checked(head).ok()?.ether_type())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::underlay::messages::{arp_request, everybody, solicitation};

    const STATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
    const FACE: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn link(target: std::net::IpAddr) -> Link {
        Link { src: STATION, dst: everybody(target), vlan: None }
    }

    #[test]
    fn an_arp_request_is_answered() {
        let (own, target): (Ipv4Addr, Ipv4Addr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let question = arp_request(link(target.into()), own, target).unwrap();
        let asked = Asked::of(question.bytes()).unwrap();
        assert_eq!(asked, Asked::V4 { by: STATION, sender: own, target });
        let answer = asked.answer(FACE).unwrap();
        let header = ethernet::Header::new_checked(answer.bytes()).unwrap();
        assert_eq!((header.dst(), header.src()), (STATION, FACE));
        let arp = arp::Header::new_checked(&answer.bytes()[14..]).unwrap();
        assert_eq!(arp.operation(), arp::Operation::REPLY);
        assert_eq!((arp.sender_ip(), arp.sender_mac()), (target, FACE));
        assert_eq!((arp.target_ip(), arp.target_mac()), (own, STATION));
        assert_eq!(Asked::of(answer.bytes()), None, "a reply is no question");
        for (own, target) in [(target, target), (Ipv4Addr::UNSPECIFIED, target)] {
            let claim = arp_request(link(target.into()), own, target).unwrap();
            assert_eq!(Asked::of(claim.bytes()), None, "an announcement or a probe");
            assert!(!Asked::is_ip(claim.bytes()));
        }
    }

    #[test]
    fn a_solicitation_is_answered() {
        let (own, target): (Ipv6Addr, Ipv6Addr) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let question = solicitation(link(target.into()), own, target, true).unwrap();
        let asked = Asked::of(question.bytes()).unwrap();
        assert_eq!(asked, Asked::V6 { by: STATION, sender: own, target });
        let answer = asked.answer(FACE).unwrap();
        let message = ndp::Header::new_checked(&answer.bytes()[54..]).unwrap();
        assert_eq!((message.kind(), message.target()), (ndp::Kind::NeighborAdvertisement, Some(target)));
        let probe = solicitation(link(target.into()), Ipv6Addr::UNSPECIFIED, target, true).unwrap();
        assert_eq!(Asked::of(probe.bytes()), None);
        let mut forwarded = question.bytes().to_vec();
        forwarded[21] = 254;
        assert_eq!(Asked::of(&forwarded), None, "a router has forwarded it");
    }

    #[test]
    fn only_ip_without_a_tag_is_ip() {
        let packet = |ether_type: [u8; 2], first: u8| [&[0; 12][..], &ether_type, &[first]].concat();
        assert!(Asked::is_ip(&packet([8, 0], 0x45)));
        assert!(Asked::is_ip(&packet([0x86, 0xdd], 0x60)));
        for (ether_type, first) in [([8, 0], 0x60), ([0x86, 0xdd], 0x45), ([0x81, 0], 0x45), ([8, 6], 0x45)] {
            assert!(!Asked::is_ip(&packet(ether_type, first)));
        }
        for len in 0..15 {
            assert!(!Asked::is_ip(&packet([8, 0], 0x45)[..len]));
        }
    }
}
