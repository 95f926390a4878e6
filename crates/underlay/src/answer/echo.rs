//! Echo requests of the underlay's own: begun, sent once the next hop is known, looked at.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use straightline_graph::clock::cycles;
use straightline_packet::IgnorePoison;
use straightline_wire::{EtherType, IpProtocol, WireError, checksum, icmpv4, icmpv6};

use crate::Underlay;
use crate::underlay::neighbours::NextHop;
use crate::underlay::pings::{EchoKey, PAYLOAD, PingError, Request};
use straightline_wire::messages::{self, Link, Message};

/// The state of an echo request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EchoState {
    /// The MAC address of the next hop is not known yet.
    NextHopUnknown,
    /// The request is sent, or waits for space in the outbox. Nobody has answered.
    Sent,
    /// The reply came after this time.
    Replied(Duration),
}

/// An echo request. Dropping it ends the wait for its reply.
#[derive(Debug)]
pub struct Echo {
    underlay: Arc<Underlay>,
    hop: NextHop,
    request: Arc<Request>,
}

impl Underlay {
    /// Begins an echo request to an address, and asks for the MAC address of its next hop if that is
    /// not known. It is sent by [`Echo::look`]. `random` has numbers that nobody can guess. The
    /// caller wakes a worker that serves the underlay, after this and after [`Echo::look`].
    ///
    /// # Errors
    /// Nothing can be sent to the address.
    pub fn ping(self: &Arc<Self>, to: IpAddr, sequence: u16, random: [u8; 10]) -> Result<Echo, PingError> {
        let is_station = match to {
            IpAddr::V4(to) => self.is_host(to),
            IpAddr::V6(to) => !to.is_multicast() && !to.is_loopback() && !to.is_unspecified(),
        };
        let own = self.address_towards(to).ok_or(PingError::NoAddress)?;
        if self.is_own(to) {
            return Err(PingError::OwnAddress);
        }
        if !is_station {
            return Err(PingError::NoStation);
        }
        let [a, b, cookie @ ..] = random;
        let key = EchoKey { own, to, ident: u16::from_be_bytes([a, b]), sequence, cookie };
        let hop = self.route(to).ok_or(PingError::NoRoute)?;
        let request = Arc::new(Request { key, sent: Mutex::default(), reply: Mutex::default() });
        self.pings.add(&request)?;
        self.ask_soon(&hop);
        Ok(Echo { underlay: Arc::clone(self), hop, request })
    }
}

impl Echo {
    /// Returns the next hop.
    #[must_use]
    pub fn next_hop(&self) -> IpAddr {
        self.hop.ip()
    }

    /// Returns our address, from which the request comes.
    #[must_use]
    pub fn source(&self) -> IpAddr {
        self.request.key.own
    }

    /// Sends the request if its next hop is known now. Returns the state.
    pub fn look(&self) -> EchoState {
        if let Some(after) = *self.request.reply.lock().ignore_poison() {
            return EchoState::Replied(after);
        }
        let mut sent = self.request.sent.lock().ignore_poison();
        if sent.is_some() {
            return EchoState::Sent;
        }
        let macs = self.underlay.mac().zip(self.underlay.neighbours.mac(&self.hop));
        let Some((src, dst)) = macs else { return EchoState::NextHopUnknown };
        let link = Link { src, dst, vlan: self.underlay.config.vlan };
        let message = echo_request(link, &self.request.key);
        if message.is_ok_and(|message| self.underlay.outbox.push(message.bytes())) {
            *sent = Some(cycles());
        }
        EchoState::Sent
    }
}

fn echo_request(link: Link, key: &EchoKey) -> Result<Message, WireError> {
    let &EchoKey { own, to, ident, sequence, cookie } = key;
    let mut icmp = [0; icmpv4::LEN + PAYLOAD];
    icmp[icmpv4::LEN..].copy_from_slice(&cookie);
    let len = icmp.len();
    let mut message;
    match (own, to) {
        (IpAddr::V4(own), IpAddr::V4(to)) => {
            icmpv4::Repr::EchoRequest { ident, sequence }.emit(&mut icmp[..icmpv4::LEN], checksum::sum(&cookie))?;
            message = Message::begin(link, EtherType::IPV4)?;
            let ip = messages::v4(own, to, IpProtocol::ICMP, len)?;
            message.append(|bytes| ip.emit(bytes))?;
        }
        (IpAddr::V6(own), IpAddr::V6(to)) => {
            icmpv6::Repr::EchoRequest { ident, sequence }.emit(&mut icmp[..icmpv6::LEN], 0)?;
            icmpv6::fill_checksum(&mut icmp, own, to)?;
            message = Message::begin(link, EtherType::IPV6)?;
            let ip = messages::v6(own, to, IpProtocol::ICMPV6, len)?;
            message.append(|bytes| ip.emit(bytes))?;
        }
        _ => return Err(WireError::BadLength),
    }
    message.append_bytes(&icmp)?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use straightline_packet::Reason;
    use straightline_wire::MacAddr;

    use super::*;
    use crate::answer::Answered;
    use crate::testing::{MAC, Station, config, ip};

    const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xbb]);
    const RANDOM: [u8; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

    fn station() -> Station {
        let mut config = config();
        config.neighbours = ["192.0.2.2", "2001:db8::2"].map(|peer| (ip(peer), PEER)).to_vec();
        Station::new(config)
    }

    /// Makes a request its reply. The other station is one that answers as we do.
    fn reply_to(request: &[u8], peer: &str) -> Vec<u8> {
        let mut config = config();
        config.mac = Some(PEER);
        config.addresses.iter_mut().for_each(|own| own.ip = ip(peer));
        Station::new(config).answer_to(request)
    }

    #[test]
    fn only_the_reply_to_a_request_counts_and_only_once() {
        for peer in ["192.0.2.2", "2001:db8::2"] {
            let mut station = station();
            let echo = station.underlay.ping(ip(peer), 7, RANDOM).unwrap();
            assert_eq!(echo.look(), EchoState::Sent);
            let sent = station.turn(0);
            let request = sent.iter().find(|frame| frame[..6] == PEER.0).expect("a request");
            assert_eq!(request[6..12], MAC.0);
            let reply = reply_to(request, peer);
            let refused = Answered::Drop(Reason::NotOurs);
            // Identifier, sequence number, cookie: the sum stays right, since two bytes change.
            for at in [reply.len() - 12, reply.len() - 10, reply.len() - 8, reply.len() - 2] {
                let mut forged = reply.clone();
                let (one, other) = if at == reply.len() - 2 { (at, at - 2) } else { (at, reply.len() - 2) };
                (forged[one], forged[other]) = (forged[one] + 1, forged[other] - 1);
                assert_eq!(station.receive(&forged).0, refused, "{peer} {at}");
            }
            for len in 0..reply.len() {
                assert_ne!(station.receive(&reply[..len]).0, Answered::Used);
            }
            assert_eq!(echo.look(), EchoState::Sent);
            assert_eq!(station.receive(&reply).0, Answered::Used);
            assert!(matches!(echo.look(), EchoState::Replied(_)));
            assert_eq!(station.receive(&reply).0, refused);
            drop(echo);
            assert_eq!(station.receive(&reply).0, refused);
        }
    }

    #[test]
    fn addresses_that_cannot_be_pinged_are_refused() {
        let station = station();
        let ping = |to| station.underlay.ping(ip(to), 1, RANDOM).map(drop);
        assert_eq!(ping("192.0.2.1"), Err(PingError::OwnAddress));
        for group in ["192.0.2.255", "224.0.0.1", "ff02::1", "::1"] {
            assert_eq!(ping(group), Err(PingError::NoStation), "{group}");
        }
        let waiting: Vec<_> = (0..16).map(|n| station.underlay.ping(ip("192.0.2.9"), n, RANDOM).unwrap()).collect();
        assert_eq!(waiting[0].look(), EchoState::NextHopUnknown);
        assert_eq!(ping("192.0.2.9"), Err(PingError::Busy));
        drop(waiting);
        assert_eq!(ping("192.0.2.9"), Ok(()));
    }
}
