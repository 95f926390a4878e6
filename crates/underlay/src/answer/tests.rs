//! Answers to frames that are built by hand, and to hostile ones.

use etherparse::PacketBuilder;
use proptest::prelude::*;
use straightline_packet::{Gso, GsoKind};
use straightline_wire::{icmpv4, icmpv6, ndp};

use super::icmp::tests::{KEYED, SESSION, too_big4, too_big6, tunnels};
use super::*;
use crate::testing::{MAC, PORT, Station, config, ip};
use crate::{NeighbourState, Tunnel};

const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xbb]);
const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xcc]);

fn station() -> Station {
    Station::new(config())
}

fn v4(text: &str) -> Ipv4Addr {
    text.parse().expect("an address")
}

fn v6(text: &str) -> std::net::Ipv6Addr {
    text.parse().expect("an address")
}

fn link(dst: MacAddr) -> Link {
    Link { src: PEER, dst, vlan: None }
}

fn bytes(message: Result<Message, WireError>) -> Vec<u8> {
    message.expect("a message").bytes().to_vec()
}

fn request(sender: &str, target: &str) -> Vec<u8> {
    bytes(messages::arp_request(link(MacAddr::BROADCAST), v4(sender), v4(target)))
}

/// Returns a solicitation from 2001:db8::2 to our group.
fn solicitation() -> Vec<u8> {
    let target = v6("2001:db8::1");
    bytes(messages::solicitation(link(messages::everybody(target.into())), v6("2001:db8::2"), target, true))
}

fn echo4(src: &str, dst: &str, payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(PEER.0, MAC.0).ipv4(v4(src).octets(), v4(dst).octets(), 3);
    let mut frame = Vec::new();
    builder.icmpv4_echo_request(1, 2).write(&mut frame, payload).expect("a frame");
    frame
}

fn echo6(payload: &[u8]) -> Vec<u8> {
    let src = v6("2001:db8::2").octets();
    let dst = v6("2001:db8::1").octets();
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(PEER.0, MAC.0).ipv6(src, dst, 3);
    builder.icmpv6_echo_request(1, 2).write(&mut frame, payload).expect("a frame");
    frame
}

fn gtpu_echo(dst_port: u16) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(PEER.0, MAC.0).ipv4([192, 0, 2, 2], [192, 0, 2, 1], 64).udp(5000, dst_port);
    let mut frame = Vec::new();
    builder.write(&mut frame, &[0x32, 1, 0, 4, 0, 0, 0, 0, 0x12, 0x34, 0, 0]).expect("a frame");
    frame
}

/// Returns the frame with a tag of this VLAN.
fn tagged(frame: &[u8], vid: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &(0xa000 | vid).to_be_bytes(), &frame[12..]].concat()
}

/// Returns the frame with the broadcast address as its destination.
fn to_all(mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].fill(0xff);
    frame
}

#[track_caller]
fn refused(station: &mut Station, frame: &[u8], reason: Reason) {
    assert_eq!(station.receive(frame).0, Answered::Drop(reason));
}

#[test]
fn a_request_for_our_address_is_answered() {
    let answer = station().answer_to(&request("192.0.2.2", "192.0.2.1"));
    assert_eq!((&answer[..6], &answer[6..12], answer.len()), (&PEER.0[..], &MAC.0[..], 42));
    let header = arp::Header::new_checked(&answer[14..]).expect("a message");
    assert_eq!(
        arp::Repr::parse(&header),
        arp::Repr {
            operation: arp::Operation::REPLY,
            sender_mac: MAC,
            sender_ip: v4("192.0.2.1"),
            target_mac: PEER,
            target_ip: v4("192.0.2.2"),
        }
    );
    // A probe for a duplicate (RFC 5227) learns that the address is in use.
    station().answer_to(&request("0.0.0.0", "192.0.2.1"));
    // Padding is no part of a message.
    let padded = [request("192.0.2.2", "192.0.2.1"), vec![0xee; 18]].concat();
    assert_eq!(station().answer_to(&padded), answer);
}

#[test]
fn requests_that_are_not_ours_are_refused() {
    let mut station = station();
    for wrong in
        [request("192.0.2.2", "192.0.2.3"), request("192.0.2.1", "192.0.2.1"), request("192.0.2.1", "192.0.2.9")]
    {
        refused(&mut station, &wrong, Reason::NotOurs);
    }
    let right = request("192.0.2.2", "192.0.2.1");
    for (at, byte) in [(0, 2), (6, 3), (12, 9), (14, 9), (16, 9), (18, 8), (19, 6), (21, 9), (22, 1)] {
        let mut wrong = right.clone();
        wrong[at] = byte;
        refused(&mut station, &wrong, Reason::NotOurs);
    }
    for len in 0..right.len() {
        refused(&mut station, &right[..len], Reason::NotOurs);
    }
    let mut looped = right;
    looped[6..12].copy_from_slice(&MAC.0);
    refused(&mut station, &looped, Reason::NotOurs);
}

#[test]
fn packets_of_the_vlan_are_ours() {
    let mut config = config();
    config.vlan = Some(100);
    let mut station = Station::new(config);
    let right = request("192.0.2.2", "192.0.2.1");
    let answer = station.answer_to(&tagged(&right, 100));
    assert_eq!((&answer[12..18], answer.len()), (&[0x81, 0, 0, 100, 8, 6][..], 46));
    let answer = station.answer_to(&tagged(&echo4("192.0.2.2", "192.0.2.1", &[]), 100));
    assert_eq!((&answer[12..18], answer.len()), (&[0x81, 0, 0xa0, 100, 8, 0][..], 46));
    for wrong in [right.clone(), tagged(&right, 101), tagged(&right, 0), tagged(&tagged(&right, 100), 100)] {
        refused(&mut station, &wrong, Reason::NotOurs);
    }
    let mut provider = tagged(&right, 100);
    provider[12..14].copy_from_slice(&[0x88, 0xa8]);
    refused(&mut station, &provider, Reason::NotOurs);
    refused(&mut self::station(), &tagged(&right, 100), Reason::NotOurs);

    let _hop = station.underlay.route(ip("192.0.2.2")).expect("a route");
    assert_eq!(station.turn(0)[0][12..18], [0x81, 0, 0, 100, 8, 6]);
}

#[test]
fn a_solicitation_is_answered() {
    let answer = station().answer_to(&solicitation());
    assert_eq!((&answer[..6], &answer[6..12], answer.len()), (&PEER.0[..], &MAC.0[..], 86));
    let ip = ipv6::Header::new_checked(&answer[14..]).expect("a header");
    assert_eq!((ip.src(), ip.dst(), ip.hop_limit()), (v6("2001:db8::1"), v6("2001:db8::2"), 255));
    assert_eq!(checksum::add(ip.pseudo_header_sum(IpProtocol::ICMPV6, 32), checksum::sum(&answer[54..])), 0xffff);
    let header = ndp::Header::new_checked(&answer[54..]).expect("a message");
    assert_eq!((header.flags(), header.target()), (ndp::Flags(0x60), Some(v6("2001:db8::1"))));
    let mac = header.options(32).next().expect("an option").and_then(|option| option.link_address());
    assert_eq!(mac, Ok(Some(MAC)));
}

#[test]
fn a_probe_for_a_duplicate_is_answered_to_all() {
    let group = messages::everybody(ip("2001:db8::1"));
    let target = v6("2001:db8::1");
    let named = bytes(messages::solicitation(link(group), v6("::"), target, true));
    refused(&mut station(), &named, Reason::NotOurs);
    // Without the option, and with the checksum of a shorter message.
    let mut probe = named[..78].to_vec();
    probe[19] = 24;
    icmpv6_checksum(&mut probe);
    let answer = station().answer_to(&probe);
    assert_eq!((&answer[..6], answer[58]), (&[0x33, 0x33, 0, 0, 0, 1][..], 0x20));
    assert_eq!(ipv6::Header::new_checked(&answer[14..]).map(|ip| ip.dst()), Ok(v6("ff02::1")));
}

fn icmpv6_checksum(frame: &mut [u8]) {
    let ip = ipv6::Header::new_checked(&frame[14..]).expect("a header");
    let src = ip.src();
    let dst = ip.dst();
    icmpv6::fill_checksum(&mut frame[54..], src, dst).expect("a message");
}

#[test]
fn solicitations_that_are_not_valid_are_refused() {
    let mut station = station();
    let right = solicitation();
    let mut with = |change: &dyn Fn(&mut Vec<u8>), reason| {
        let mut wrong = right.clone();
        change(&mut wrong);
        refused(&mut station, &wrong, reason);
    };
    with(&|wrong| wrong[60] ^= 1, Reason::TunnelChecksum);
    let mut resummed = |at: usize, byte: u8| {
        with(
            &|wrong| {
                wrong[at] = byte;
                icmpv6_checksum(wrong);
            },
            Reason::NotOurs,
        );
    };
    // Hop limit; code; another target; a target that is a group; an option of no length, a long
    // one, and one with a group's address.
    [(21, 254), (55, 1), (77, 9), (62, 0xff), (79, 0), (79, 2), (80, 1)]
        .into_iter()
        .for_each(|(at, byte)| resummed(at, byte));
    for len in 0..right.len() {
        refused(&mut station, &right[..len], Reason::NotOurs);
    }
    let mut fragment = right;
    fragment[0..6].copy_from_slice(&MAC.0);
    fragment[38..54].copy_from_slice(&v6("2001:db8::1").octets());
    fragment[20] = 44;
    refused(&mut station, &fragment, Reason::Fragment);
}

#[test]
fn echo_is_answered() {
    for payload in [&[][..], &[7; 57], &[9; 300]] {
        let answer = station().answer_to(&echo4("198.51.100.7", "192.0.2.1", payload));
        let parsed = etherparse::SlicedPacket::from_ethernet(&answer).expect("a packet");
        let Some(etherparse::TransportSlice::Icmpv4(icmp)) = parsed.transport else { panic!("no ICMP") };
        assert!(matches!(icmp.icmp_type(), etherparse::Icmpv4Type::EchoReply(echo) if (echo.id, echo.seq) == (1, 2)));
        assert_eq!((icmp.payload(), checksum::sum(icmp.slice())), (payload, 0xffff));
        let ip = ipv4::Header::new_checked(&answer[14..]).expect("a header");
        assert!(ip.checksum_ok() && ip.ttl() == 64);
        assert_eq!((ip.src(), ip.dst()), (v4("192.0.2.1"), v4("198.51.100.7")));
        assert_eq!((&answer[..6], &answer[6..12]), (&PEER.0[..], &MAC.0[..]));

        let answer = station().answer_to(&echo6(payload));
        let ip = ipv6::Header::new_checked(&answer[14..]).expect("a header");
        assert_eq!((ip.src(), ip.dst(), ip.hop_limit()), (v6("2001:db8::1"), v6("2001:db8::2"), 64));
        let icmp = &answer[54..];
        let pseudo = ip.pseudo_header_sum(IpProtocol::ICMPV6, ip.payload_len().into());
        assert_eq!((icmp[0], &icmp[8..]), (129, payload));
        assert_eq!(checksum::add(pseudo, checksum::sum(icmp)), 0xffff);
    }
}

#[test]
fn padding_behind_an_echo_is_cut_off() {
    let frame = echo4("192.0.2.2", "192.0.2.1", &[1, 2, 3]);
    let padded = [&frame[..], &[0xee; 15]].concat();
    assert_eq!(station().answer_to(&padded), station().answer_to(&frame));
}

#[test]
fn an_unfinished_echo_stays_unfinished() {
    for (mut frame, l4, pseudo) in [
        (echo4("192.0.2.2", "192.0.2.1", &[5; 20]), 34, 0),
        (echo6(&[5; 20]), 54, checksum::pseudo_header_v6(v6("2001:db8::2"), v6("2001:db8::1"), IpProtocol::ICMPV6, 28)),
    ] {
        frame[usize::from(l4) + 2..][..2].copy_from_slice(&u16::to_be_bytes(pseudo));
        let checksum = Checksum::Partial { start: l4, offset: 2 };
        let (answered, answer) = station().receive_with(&frame, Offload { checksum, gso: None });
        assert_eq!(answered, Answered::Reply);
        let at = usize::from(l4);
        assert_eq!((&answer[at + 1..], [0, 129].contains(&answer[at])), (&frame[at + 1..], true));
        let elsewhere = Checksum::Partial { start: l4, offset: 4 };
        let (answered, _) = station().receive_with(&frame, Offload { checksum: elsewhere, gso: None });
        assert_eq!(answered, Answered::Drop(Reason::TunnelChecksum));
    }
}

#[test]
fn echo_that_is_not_ours_or_not_valid_is_refused() {
    let mut station = station();
    let right = echo4("192.0.2.2", "192.0.2.1", &[1; 40]);
    let mut damaged = right.clone();
    damaged[70] ^= 1;
    refused(&mut station, &damaged, Reason::TunnelChecksum);
    let mut damaged = right.clone();
    damaged[22] ^= 1;
    refused(&mut station, &damaged, Reason::TunnelChecksum);
    let mut fragment = right.clone();
    fragment[20] = 0x20;
    ipv4::Header::new_checked(&mut fragment[14..]).expect("a header").fill_checksum();
    refused(&mut station, &fragment, Reason::Fragment);
    for (src, dst) in [
        ("192.0.2.2", "192.0.2.3"),
        ("192.0.2.1", "192.0.2.1"),
        ("0.0.0.0", "192.0.2.1"),
        ("224.0.0.1", "192.0.2.1"),
        ("255.255.255.255", "192.0.2.1"),
        ("127.0.0.1", "192.0.2.1"),
        ("0.0.0.9", "192.0.2.1"),
        // All stations of our network, by its last address and by its first (RFC 1122, 3.2.1.3).
        ("192.0.2.255", "192.0.2.1"),
        ("192.0.2.0", "192.0.2.1"),
    ] {
        refused(&mut station, &echo4(src, dst, &[]), Reason::NotOurs);
    }
    // Networks of two stations have no such addresses (RFC 3021), and other networks' are not known.
    let mut pair = config();
    pair.addresses[0].prefix = 31;
    assert_eq!(Station::new(pair).receive(&echo4("192.0.2.0", "192.0.2.1", &[])).0, Answered::Reply);
    station.answer_to(&echo4("198.51.100.255", "192.0.2.1", &[]));
    refused(&mut station, &to_all(right.clone()), Reason::NotOurs);
    for len in 0..right.len() {
        assert_ne!(station.receive(&right[..len]).0, Answered::Reply, "{len}");
    }
    let segmented = right;
    let gso = Gso { kind: GsoKind::Udp4, ecn: false, size: 8, l3: 14, l4: 34, header_len: 42, outer: None };
    let offload = Offload { checksum: Checksum::Partial { start: 34, offset: 2 }, gso: Some(gso) };
    assert_eq!(station.receive_with(&segmented, offload).0, Answered::Drop(Reason::NotOurs));
    // A reply to a request that nobody has sent.
    let mut reply = segmented;
    let mut header = icmpv4::Header::new_checked(&mut reply[34..]).expect("a header");
    header.replace_type(icmpv4::Type::ECHO_REPLY);
    refused(&mut station, &reply, Reason::NotOurs);
}

#[test]
fn gtpu_echo_is_answered() {
    let answer = station().answer_to(&gtpu_echo(2152));
    let parsed = etherparse::SlicedPacket::from_ethernet(&answer).expect("a packet");
    let Some(etherparse::TransportSlice::Udp(udp)) = parsed.transport else { panic!("no UDP") };
    assert_eq!((udp.source_port(), udp.destination_port()), (2152, 5000));
    assert_eq!(udp.payload(), [0x32, 2, 0, 6, 0, 0, 0, 0, 0x12, 0x34, 0, 0, 14, 0]);
    let ip = ipv4::Header::new_checked(&answer[14..]).expect("a header");
    assert!(ip.checksum_ok());
    assert_eq!(checksum::add(ip.pseudo_header_sum(22), checksum::sum(udp.slice())), 0xffff);
    refused(&mut station(), &gtpu_echo(2153), Reason::NotOurs);
    let mut damaged = gtpu_echo(2152);
    damaged[50] ^= 1;
    refused(&mut station(), &damaged, Reason::TunnelChecksum);
}

#[test]
fn our_questions_are_answered_and_packets_sent() {
    let mut station = station();
    let hops = ["192.0.2.2", "2001:db8::2"].map(|remote| station.underlay.route(ip(remote)).expect("a route"));
    let questions = station.turn(0);
    assert_eq!(questions.len(), 2);
    assert_eq!(
        (&questions[0][..12], &questions[1][..6]),
        (&[&[0xff; 6], &MAC.0[..]].concat()[..], &[0x33, 0x33, 0xff, 0, 0, 2][..])
    );
    hops.iter().for_each(|hop| assert!(station.underlay.neighbours.keep(hop, &[0; 60])));
    let reply = bytes(messages::arp_reply(link(MAC), v4("192.0.2.2"), v4("192.0.2.1")));
    let advertisement = bytes(messages::advertisement(link(MAC), v6("2001:db8::2"), v6("2001:db8::1"), true));
    for frame in [reply, advertisement] {
        assert_eq!(station.receive(&frame).0, Answered::Used);
    }
    assert!(hops.iter().all(|hop| station.underlay.neighbours.mac(hop) == Some(PEER)));
    let sent = station.turn(0);
    assert_eq!(sent.len(), 2);
    assert!(sent.iter().all(|packet| packet.len() == 60 && packet[..6] == PEER.0));
}

#[test]
fn announcements_are_not_believed() {
    let mut station = station();
    let hops = ["192.0.2.2", "2001:db8::2"].map(|remote| station.underlay.route(ip(remote)).expect("a route"));
    let macs = |station: &Station| hops.each_ref().map(|hop| station.underlay.neighbours.mac(hop));
    let other = |dst| Link { src: OTHER, dst, vlan: None };
    let us = v6("2001:db8::1");
    let peer = v6("2001:db8::2");
    let announcements = [
        bytes(messages::arp_reply(other(MacAddr::BROADCAST), v4("192.0.2.2"), v4("192.0.2.2"))),
        bytes(messages::arp_request(other(MacAddr::BROADCAST), v4("192.0.2.2"), v4("192.0.2.2"))),
        bytes(messages::arp_request(other(MacAddr::BROADCAST), v4("192.0.2.2"), v4("192.0.2.1"))),
        bytes(messages::advertisement(
            other(messages::group_mac(messages::ALL_NODES)),
            peer,
            messages::ALL_NODES,
            false,
        )),
        bytes(messages::solicitation(other(messages::everybody(us.into())), peer, us, true)),
        // These pretend to be answers to us, and go to all.
        to_all(bytes(messages::arp_reply(other(MAC), v4("192.0.2.2"), v4("192.0.2.1")))),
        to_all(bytes(messages::advertisement(other(MAC), peer, us, true))),
        bytes(messages::advertisement(other(MAC), peer, messages::ALL_NODES, true)),
    ];
    let answers = |mac: MacAddr| {
        let link = Link { src: mac, dst: MAC, vlan: None };
        let reply = bytes(messages::arp_reply(link, v4("192.0.2.2"), v4("192.0.2.1")));
        [reply, bytes(messages::advertisement(link, peer, us, true))]
    };
    // Before the first question, not even an answer counts.
    announcements.iter().chain(&answers(OTHER)).for_each(|frame| drop(station.receive(frame)));
    assert_eq!(macs(&station), [None; 2]);
    assert_eq!(station.turn(0).len(), 2);
    announcements.iter().for_each(|frame| drop(station.receive(frame)));
    assert_eq!(macs(&station), [None; 2]);
    answers(PEER).iter().for_each(|frame| drop(station.receive(frame)));
    assert_eq!(macs(&station), [Some(PEER); 2]);
    announcements.iter().for_each(|frame| drop(station.receive(frame)));
    let probes = station.turn(1);
    assert!(probes.len() == 2 && probes.iter().all(|probe| probe[..6] == PEER.0), "the known station is asked");
    answers(OTHER).iter().chain(&answers(PEER)).for_each(|frame| drop(station.receive(frame)));
    assert_eq!(macs(&station), [Some(PEER); 2]);
    assert!(station.turn(2).is_empty());
    assert!(station.underlay.neighbours().iter().all(|neighbour| neighbour.state == NeighbourState::Reachable));
}

/// Returns the frame as if another station had sent it: the n-th of those with this beginning.
fn from_station(frame: &[u8], n: u16) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let [high, low] = n.to_be_bytes();
    frame[6..12].copy_from_slice(&[2, 0, 0, 1, high, low]);
    frame
}

/// Returns the ends of packets that were received as often as asked.
fn ends<'a>(station: &mut Station, frames: impl Iterator<Item = &'a [u8]>) -> (usize, usize) {
    let mut replies = 0;
    let mut refused = 0;
    for frame in frames {
        match station.receive(frame).0 {
            Answered::Reply => replies += 1,
            end => {
                assert_eq!(end, Answered::Drop(Reason::AnswerLimit));
                refused += 1;
            }
        }
    }
    (replies, refused)
}

#[test]
fn one_sender_leaves_the_others_their_answers() {
    let mut station = station();
    let questions = [request("192.0.2.2", "192.0.2.1"), solicitation()];
    let echoes = [echo4("198.51.100.7", "192.0.2.1", &[]), gtpu_echo(2152), echo6(&[])];
    let flood = |frames: &[Vec<u8>], n: usize| frames[n % frames.len()].clone();
    let questions: Vec<_> = (0..3000).map(|n| flood(&questions, n)).collect();
    assert_eq!(ends(&mut station, questions.iter().map(Vec::as_slice)), (50, 2950));
    // The router in front of them is one station, and they are three senders.
    let echoes: Vec<_> = (0..3000).map(|n| flood(&echoes, n)).collect();
    assert_eq!(ends(&mut station, echoes.iter().map(Vec::as_slice)), (150, 2850));
    // Two senders have the same counter with a probability of 1 in 1024.
    let other: Vec<_> = (0..8).map(|n| from_station(&request("192.0.2.2", "192.0.2.1"), n)).collect();
    let answered = ends(&mut station, other.iter().map(Vec::as_slice)).0;
    assert!(answered >= 7, "{answered} of 8 neighbours find us");
}

#[test]
fn a_flood_of_many_senders_is_answered_within_limits() {
    let mut station = station();
    let _hop = station.underlay.route(ip("192.0.2.2")).expect("a route");
    station.turn(0);
    let question = request("192.0.2.2", "192.0.2.1");
    let echo_from = |n: u16| echo4(&format!("198.51.{}.{}", 100 + n / 200, 1 + n % 200), "192.0.2.1", &[]);
    let questions: Vec<_> = (0..3000).map(|n| from_station(&question, n)).collect();
    let echoes: Vec<_> = (0..3000).map(echo_from).collect();
    // A flood of echo requests leaves the questions of neighbours their answers.
    for flood in [&echoes, &questions] {
        assert_eq!(ends(&mut station, flood.iter().map(Vec::as_slice)), (1000, 2000));
    }
    assert_eq!((station.turn(0).len(), station.turn(1).len()), (0, 1), "our own questions are sent");
    station.answer_to(&questions[0]);
    station.answer_to(&echoes[0]);
}

#[test]
fn each_tunnel_has_places_of_its_own() {
    let mut station = station();
    let [one, other] = tunnels(&station);
    assert_eq!(station.turn(0).len(), 2, "the gateways are asked");
    let outbox = &station.underlay.outbox;
    let push = |tunnel: &Tunnel, count| (0..count).filter(|_| outbox.push_for(&tunnel.places, &[0; 60], None)).count();
    assert_eq!((push(&one, 256), push(&one, 1), push(&other, 4)), (16, 0, 4));
    let questions = (0..100).filter(|_| outbox.push(&[1; 60])).count();
    assert_eq!(
        (questions, outbox.push(&[1; 257]), outbox.push_for(&other.places, &[0; 257], None)),
        (64, false, false)
    );
    // The underlay's packets leave first, then those of the tunnels in turn. A turn takes 64 here.
    let sent = station.turn_ports(0);
    assert_eq!(sent[..64], [PORT; 64]);
    assert_eq!(sent.len(), 64);
    let in_turn = [[one.port, other.port]; 4].concat();
    assert_eq!(station.turn_ports(0), [in_turn, vec![one.port; 12]].concat());
    assert!(station.turn(0).is_empty() && station.underlay.outbox.is_empty());
}

#[test]
fn packets_of_a_removed_tunnel_are_gone() {
    let mut station = station();
    let [one, other] = tunnels(&station);
    station.turn(0);
    let outbox = &station.underlay.outbox;
    assert!(outbox.push_for(&one.places, &[0; 60], None) && outbox.push_for(&other.places, &[0; 60], None));
    let port = other.port;
    drop(one);
    assert_eq!((station.turn_ports(0), station.underlay.outbox.is_empty()), (vec![port], true));
}

#[test]
fn nothing_is_answered_before_our_address_is_known() {
    let mut config = config();
    config.mac = None;
    let mut station = Station::new(config);
    let _hop = station.underlay.route(ip("192.0.2.2")).expect("a route");
    assert!(station.turn(0).is_empty());
    refused(&mut station, &request("192.0.2.2", "192.0.2.1"), Reason::NotOurs);
    station.underlay.set_mac(MAC);
    assert_eq!(station.turn(1).len(), 1);
    station.answer_to(&request("192.0.2.2", "192.0.2.1"));
}

/// Returns the frames that the tests above are about.
fn frames() -> Vec<Vec<u8>> {
    vec![
        request("192.0.2.2", "192.0.2.1"),
        bytes(messages::arp_reply(link(MAC), v4("192.0.2.2"), v4("192.0.2.1"))),
        solicitation(),
        bytes(messages::advertisement(link(MAC), v6("2001:db8::2"), v6("2001:db8::1"), true)),
        echo4("192.0.2.2", "192.0.2.1", &[1; 20]),
        echo6(&[1; 20]),
        too_big4("192.0.2.1", "198.51.100.1", (IpProtocol::GRE, &KEYED), 1500, 1400),
        too_big6("2001:db8::1", "2001:db8:1::1", &SESSION, 1500, 1400),
        gtpu_echo(2152),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Any frame has an end. Answers go to the station that has asked, from us. Tables stay within
    /// their limits.
    #[test]
    fn any_frame_has_an_end(
        which in 0_usize..9,
        changes in prop::collection::vec((0_usize..100, any::<u8>()), 0..4),
        cut in prop::option::of(0_usize..120),
        tail in prop::collection::vec(any::<u8>(), 0..40),
        partial in prop::option::of((0_u16..80, 0_u16..40)),
        now in 0_u32..1000,
    ) {
        let mut station = station();
        let _hops = ["192.0.2.2", "2001:db8::2"].map(|remote| station.underlay.route(ip(remote)));
        let _tunnels = tunnels(&station);
        station.turn(now);
        let mut frame = frames().swap_remove(which);
        for &(at, byte) in &changes {
            let len = frame.len();
            frame[at % len] = byte;
        }
        frame.truncate(cut.unwrap_or(frame.len()));
        frame.extend(&tail);
        // A port has checked that start and field lie within the head.
        let partial = partial.filter(|&(start, offset)| usize::from(start + offset) + 2 <= frame.len());
        let checksum = partial.map_or(Checksum::Complete, |(start, offset)| Checksum::Partial { start, offset });
        let (answered, answer) = station.receive_with(&frame, Offload { checksum, gso: None });
        if answered == Answered::Reply {
            prop_assert_eq!(&answer[6..12], &MAC.0[..]);
            prop_assert_ne!(&answer[..6], &MAC.0[..]);
            prop_assert!(answer.len() <= frame.len().max(90));
        }
        prop_assert!(station.underlay.neighbours().len() <= 4);
        prop_assert!(station.turn(now + 1).len() <= 6);
    }
}
