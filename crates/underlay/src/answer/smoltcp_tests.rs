//! ARP, neighbour discovery and echo with smoltcp, an independent implementation, at the other end.

use std::collections::VecDeque;
use std::net::IpAddr;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::icmp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, Icmpv6Repr, IpCidr};
use straightline_wire::MacAddr;

use super::Answered;
use crate::testing::{Station, config, ip};
use crate::{NeighbourState, UnderlayConfig};

const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xbb]);
const IDENT: u16 = 0x1234;

/// The frames between the underlay and smoltcp.
#[derive(Default)]
struct Wire {
    to_smoltcp: VecDeque<Vec<u8>>,
    to_underlay: VecDeque<Vec<u8>>,
}

struct Received(Vec<u8>);
struct Sending<'a>(&'a mut VecDeque<Vec<u8>>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.push_back(frame);
        result
    }
}

impl Device for Wire {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _now: Instant) -> Option<(Received, Sending<'_>)> {
        Some((Received(self.to_smoltcp.pop_front()?), Sending(&mut self.to_underlay)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Sending<'_>> {
        Some(Sending(&mut self.to_underlay))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        (capabilities.medium, capabilities.max_transmission_unit) = (Medium::Ethernet, 1514);
        capabilities
    }
}

/// An underlay and smoltcp in one network. A turn and a poll take place each 100 ms.
struct Net {
    station: Station,
    wire: Wire,
    interface: Interface,
    sockets: SocketSet<'static>,
    ping: SocketHandle,
    /// Tenths of seconds.
    now: u32,
    /// False while smoltcp is switched off.
    is_on: bool,
}

impl Net {
    fn new(config: UnderlayConfig) -> Self {
        let mut wire = Wire::default();
        let mac = HardwareAddress::Ethernet(EthernetAddress(PEER.0));
        let mut interface = Interface::new(Config::new(mac), &mut wire, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            for (peer, prefix) in [("192.0.2.2", 24), ("2001:db8::2", 64)] {
                addresses.push(IpCidr::new(ip(peer).into(), prefix)).expect("space");
            }
        });
        let buffer = || icmp::PacketBuffer::new(vec![icmp::PacketMetadata::EMPTY; 8], vec![0; 4096]);
        let mut socket = icmp::Socket::new(buffer(), buffer());
        socket.bind(icmp::Endpoint::Ident(IDENT)).expect("a free identifier");
        let mut sockets = SocketSet::new(Vec::new());
        let ping = sockets.add(socket);
        Net { station: Station::new(config), wire, interface, sockets, ping, now: 0, is_on: true }
    }

    /// Lets seconds pass. Returns the frames that neither end has taken.
    fn pass(&mut self, seconds: u32) -> Vec<Vec<u8>> {
        let mut refused = Vec::new();
        for _ in 0..seconds * 10 {
            self.now += 1;
            self.wire.to_smoltcp.extend(self.station.turn(self.now / 10));
            if self.is_on {
                let now = Instant::from_millis(i64::from(self.now) * 100);
                self.interface.poll(now, &mut self.wire, &mut self.sockets);
            } else {
                self.wire.to_smoltcp.clear();
            }
            while let Some(frame) = self.wire.to_underlay.pop_front() {
                match self.station.receive(&frame) {
                    (Answered::Reply, answer) => self.wire.to_smoltcp.push_back(answer),
                    (Answered::Used, _) => {}
                    (Answered::Drop(_), _) => refused.push(frame),
                }
            }
        }
        refused
    }

    /// Sends an echo request from smoltcp.
    fn ping(&mut self, dst: IpAddr, seq_no: u16, data: &[u8]) {
        let socket = self.sockets.get_mut::<icmp::Socket<'_>>(self.ping);
        let checksums = ChecksumCapabilities::default();
        match dst {
            IpAddr::V4(_) => {
                let repr = Icmpv4Repr::EchoRequest { ident: IDENT, seq_no, data };
                let buffer = socket.send(repr.buffer_len(), dst.into()).expect("space");
                repr.emit(&mut Icmpv4Packet::new_unchecked(buffer), &checksums);
            }
            IpAddr::V6(to) => {
                let repr = Icmpv6Repr::EchoRequest { ident: IDENT, seq_no, data };
                let buffer = socket.send(repr.buffer_len(), dst.into()).expect("space");
                let IpAddr::V6(from) = ip("2001:db8::2") else { unreachable!("an IPv6 address") };
                repr.emit(&from, &to, &mut Icmpv6Packet::new_unchecked(buffer), &checksums);
            }
        }
    }

    /// Takes an answer that smoltcp has received and found right.
    fn pong(&mut self) -> Option<(IpAddr, Vec<u8>)> {
        let (message, from) = self.sockets.get_mut::<icmp::Socket<'_>>(self.ping).recv().ok()?;
        Some((from.into(), message.to_vec()))
    }
}

#[test]
fn it_finds_us_and_pings_us() {
    let mut net = Net::new(config());
    for (own, reply) in [("192.0.2.1", 0), ("2001:db8::1", 129)] {
        for (seq, len) in [(1, 0), (2, 1), (3, 56), (4, 250)] {
            let data: Vec<_> = (0..len).collect();
            net.ping(ip(own), seq, &data);
            assert!(net.pass(2).is_empty());
            let (from, message) = net.pong().expect("an answer");
            assert_eq!(
                (from, message[0], &message[6..8], &message[8..]),
                (ip(own), reply, &seq.to_be_bytes()[..], &data[..])
            );
        }
    }
    net.ping(ip("192.0.2.3"), 5, &[]);
    assert!(!net.pass(2).is_empty() && net.pong().is_none(), "nobody has this address");
}

#[test]
fn we_find_it_and_notice_its_end_and_return() {
    let mut net = Net::new(config());
    let hops = ["192.0.2.2", "2001:db8::2"].map(|remote| net.station.underlay.route(ip(remote)).expect("a route"));
    let has_entry = |net: &Net, state, mac| {
        let neighbours = net.station.underlay.neighbours();
        neighbours.len() == 2 && neighbours.iter().all(|found| (found.state, found.mac) == (state, mac))
    };
    net.pass(1);
    assert!(has_entry(&net, NeighbourState::Reachable, Some(PEER)));
    net.pass(100);
    assert!(has_entry(&net, NeighbourState::Reachable, Some(PEER)));
    let age = net.station.underlay.neighbours().iter().filter_map(|found| found.age_s).max();
    assert!(age.is_some_and(|age| age <= 30), "it has answered questions to it alone");
    net.is_on = false;
    net.pass(40);
    assert!(has_entry(&net, NeighbourState::Unanswered, None));
    net.is_on = true;
    net.pass(4);
    assert!(has_entry(&net, NeighbourState::Reachable, Some(PEER)));
    assert_eq!(hops.map(|hop| net.station.underlay.neighbours.mac(&hop)), [Some(PEER); 2]);
}

#[test]
fn kept_packets_arrive() {
    let mut net = Net::new(config());
    // A request of ours that it would answer, if it came before its address is known.
    let builder = etherparse::PacketBuilder::ethernet2(net.station.underlay.mac().expect("known").0, [0; 6]);
    let builder = builder.ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64).icmpv4_echo_request(7, 8);
    let mut frame = Vec::new();
    builder.write(&mut frame, b"kept").expect("a frame");
    let hop = net.station.underlay.route(ip("192.0.2.2")).expect("a route");
    assert!(net.station.underlay.neighbours.keep(&hop, &frame));
    let answers = net.pass(2);
    assert!(answers.len() == 1 && answers[0].ends_with(b"kept") && answers[0][34] == 0);
    assert_eq!(net.station.drops.total(), 0);
}

#[test]
fn packets_that_were_kept_in_vain_are_counted() {
    let mut net = Net::new(config());
    net.is_on = false;
    let hop = net.station.underlay.route(ip("192.0.2.2")).expect("a route");
    assert!(net.station.underlay.neighbours.keep(&hop, &[0; 60]));
    net.pass(2);
    assert_eq!(net.station.drops.total(), 0);
    net.pass(2);
    assert_eq!(net.station.drops.count(straightline_packet::Reason::NoNeighbour), 1);
}
