//! Questions for MAC addresses, by ARP and by neighbour discovery.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::messages::{Link, Message, advertisement_with, arp_reply};
use crate::{EtherType, IpProtocol, MacAddr, WireError, arp, ethernet, ipv6, ndp, vlan};

/// A question for the MAC address of `target`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// An ARP request.
    V4 {
        /// The station that asks.
        by: MacAddr,
        /// Its address.
        sender: Ipv4Addr,
        /// The address that it asks for.
        target: Ipv4Addr,
    },
    /// A neighbour solicitation.
    V6 {
        /// The station that asks.
        by: MacAddr,
        /// Its address.
        sender: Ipv6Addr,
        /// The address that it asks for.
        target: Ipv6Addr,
    },
}

impl Question {
    /// Reads a question from the head of a packet, behind priority tags. A station that asks whether its
    /// own address is free (RFC 5227, 2.1.1; RFC 4862, 5.4) gets no answer, so that is no question here.
    #[inline]
    #[must_use]
    pub fn of(head: &[u8]) -> Option<Self> {
        let (ether_type, payload) = vlan::skip_priority(head).ok()?;
        match ether_type {
            EtherType::ARP => Self::of_arp(head, payload),
            EtherType::IPV6 if head.get(payload + 6) == Some(&IpProtocol::ICMPV6.0) => {
                Self::of_solicitation(head, payload)
            }
            _ => None,
        }
    }

    #[cold]
    fn of_arp(head: &[u8], payload: usize) -> Option<Self> {
        let by = ethernet::Header::new_checked(head).ok()?.src();
        let arp = arp::Header::new_checked(head.get(payload..)?).ok()?;
        let sender = arp.sender_ip();
        let target = arp.target_ip();
        let asks = arp.operation() == arp::Operation::REQUEST && !sender.is_unspecified() && sender != target;
        asks.then_some(Question::V4 { by, sender, target })
    }

    #[cold]
    fn of_solicitation(head: &[u8], payload: usize) -> Option<Self> {
        let by = ethernet::Header::new_checked(head).ok()?.src();
        let ip = ipv6::Header::new_checked(head.get(payload..)?).ok()?;
        let message = ndp::Header::new_checked(head.get(payload + ipv6::LEN..)?).ok()?;
        if message.kind() != ndp::Kind::NeighborSolicitation || ip.hop_limit() != 255 {
            return None;
        }
        let sender = ip.src();
        let target = message.target()?;
        let asks = !sender.is_unspecified() && sender != target && !target.is_multicast();
        asks.then_some(Question::V6 { by, sender, target })
    }

    /// Returns the station that asks.
    #[must_use]
    pub fn by(&self) -> MacAddr {
        match *self {
            Question::V4 { by, .. } | Question::V6 { by, .. } => by,
        }
    }

    /// Returns the address that is asked for.
    #[must_use]
    pub fn target(&self) -> IpAddr {
        match *self {
            Question::V4 { target, .. } => target.into(),
            Question::V6 { target, .. } => target.into(),
        }
    }

    /// Returns the answer: `mac` has the address. An advertisement has these flags, too.
    ///
    /// # Errors
    /// The answer is too long, which it never is.
    pub fn answer(&self, mac: MacAddr, flags: ndp::Flags) -> Result<Message, WireError> {
        let link = Link { src: mac, dst: self.by(), vlan: None };
        match *self {
            Question::V4 { sender, target, .. } => arp_reply(link, target, sender),
            Question::V6 { sender, target, .. } => {
                advertisement_with(link, target, sender, ndp::Flags::SOLICITED.with(flags))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{arp_request, everybody, solicitation};

    const STATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
    const FACE: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn link(target: std::net::IpAddr) -> Link {
        Link { src: STATION, dst: everybody(target), vlan: None }
    }

    #[test]
    fn an_arp_request_is_answered() {
        let (own, target): (Ipv4Addr, Ipv4Addr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let question = arp_request(link(target.into()), own, target).unwrap();
        let asked = Question::of(question.bytes()).unwrap();
        assert_eq!(asked, Question::V4 { by: STATION, sender: own, target });
        let answer = asked.answer(FACE, ndp::Flags::NONE).unwrap();
        let header = ethernet::Header::new_checked(answer.bytes()).unwrap();
        assert_eq!((header.dst(), header.src()), (STATION, FACE));
        let arp = arp::Header::new_checked(&answer.bytes()[14..]).unwrap();
        assert_eq!(arp.operation(), arp::Operation::REPLY);
        assert_eq!((arp.sender_ip(), arp.sender_mac()), (target, FACE));
        assert_eq!((arp.target_ip(), arp.target_mac()), (own, STATION));
        assert_eq!(Question::of(answer.bytes()), None, "a reply is no question");
        for (own, target) in [(target, target), (Ipv4Addr::UNSPECIFIED, target)] {
            let claim = arp_request(link(target.into()), own, target).unwrap();
            assert_eq!(Question::of(claim.bytes()), None, "an announcement or a probe");
        }
    }

    #[test]
    fn a_question_behind_priority_tags_is_one() {
        let (own, target): (Ipv4Addr, Ipv4Addr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let (own6, target6): (Ipv6Addr, Ipv6Addr) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let arp = arp_request(link(target.into()), own, target).unwrap();
        let nd = solicitation(link(target6.into()), own6, target6, true).unwrap();
        for question in [arp.bytes(), nd.bytes()] {
            let tagged = |tags: &[u8]| [&question[..12], tags, &question[12..]].concat();
            let expected = Question::of(question);
            assert!(expected.is_some());
            for tags in [&[0x81, 0, 0, 0][..], &[0x88, 0xa8, 0xf0, 0, 0x81, 0, 0, 0]] {
                assert_eq!(Question::of(&tagged(tags)), expected, "{tags:x?}");
            }
            assert_eq!(Question::of(&tagged(&[0x81, 0, 0, 5])), None);
        }
    }

    #[test]
    fn a_solicitation_is_answered() {
        let (own, target): (Ipv6Addr, Ipv6Addr) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let question = solicitation(link(target.into()), own, target, true).unwrap();
        let asked = Question::of(question.bytes()).unwrap();
        assert_eq!(asked, Question::V6 { by: STATION, sender: own, target });
        let answer = asked.answer(FACE, ndp::Flags::NONE).unwrap();
        let message = ndp::Header::new_checked(&answer.bytes()[54..]).unwrap();
        assert_eq!((message.kind(), message.target()), (ndp::Kind::NeighborAdvertisement, Some(target)));
        let probe = solicitation(link(target.into()), Ipv6Addr::UNSPECIFIED, target, true).unwrap();
        assert_eq!(Question::of(probe.bytes()), None);
        let mut forwarded = question.bytes().to_vec();
        forwarded[21] = 254;
        assert_eq!(Question::of(&forwarded), None, "a router has forwarded it");
    }
}
