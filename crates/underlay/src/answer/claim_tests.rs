//! Messages about addresses of ours, from us and from others, beside bytes that were laid out by hand
//! from the RFCs.

use std::net::{Ipv4Addr, Ipv6Addr};

use straightline_packet::Reason;
use straightline_wire::{EtherType, IpProtocol, WireError, arp, icmpv6, ipv6, ndp};

use super::*;
use crate::testing::{MAC, Station, config, ip};
use straightline_wire::messages::{self, Link, Message};

const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xcc]);
const OWN4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const OWN6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const PEER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

/// Our MAC address in a message.
const OWN_MAC: [u8; 6] = MAC.0;

/// Returns an underlay whose only messages are those about its addresses.
fn station() -> Station {
    let station = Station::new(config());
    station.underlay.note_link_up();
    station
}

/// Returns an ARP request of RFC 826 to all from us.
fn arp_request(sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let fixed = [0, 1, 8, 0, 6, 4, 0, 1];
    [&[0xff; 6][..], &OWN_MAC, &[8, 6], &fixed, &OWN_MAC, &sender, &[0; 6], &target].concat()
}

/// Returns a message of neighbour discovery from us, with its checksum.
fn nd(dst_mac: [u8; 6], src: Ipv6Addr, dst: Ipv6Addr, mut message: Vec<u8>) -> Vec<u8> {
    let len = u8::try_from(message.len()).unwrap();
    let pseudo = [&src.octets()[..], &dst.octets(), &[0, 0, 0, len, 0, 0, 0, 58]].concat();
    let words = [&pseudo[..], &message].concat();
    let mut sum = words.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum::<u32>();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    message[2..4].copy_from_slice(&(!u16::try_from(sum).unwrap()).to_be_bytes());
    let header = [0x60, 0, 0, 0, 0, len, 58, 255];
    [&dst_mac[..], &OWN_MAC, &[0x86, 0xdd], &header, &src.octets(), &dst.octets(), &message].concat()
}

#[test]
fn probes_and_announcements_have_the_bytes_of_the_rfcs() {
    let mut station = station();
    // RFC 5227, 2.1.1 and 2.3.
    let probe4 = arp_request([0; 4], [192, 0, 2, 1]);
    let announcement4 = arp_request([192, 0, 2, 1], [192, 0, 2, 1]);
    // RFC 4862, 5.4.2: from no address to the group of the target, without an option.
    let group: Ipv6Addr = "ff02::1:ff00:1".parse().unwrap();
    let probe = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &OWN6.octets()].concat();
    let probe6 = nd([0x33, 0x33, 0xff, 0, 0, 1], Ipv6Addr::UNSPECIFIED, group, probe);
    // RFC 4861, 7.2.6: to all stations, not solicited, with our address, which replaces others.
    let all: Ipv6Addr = "ff02::1".parse().unwrap();
    let announcement = [&[136, 0, 0, 0, 0x20, 0, 0, 0][..], &OWN6.octets(), &[2, 1], &OWN_MAC].concat();
    let announcement6 = nd([0x33, 0x33, 0, 0, 0, 1], OWN6, all, announcement);
    let probes = vec![probe4, probe6];
    let announcements = vec![announcement4, announcement6];
    let sent: Vec<_> = (0..20).map(|now| station.turn(now)).collect();
    for (now, sent) in sent.into_iter().enumerate() {
        let expected = match now {
            0..=2 => probes.clone(),
            4 | 6 => announcements.clone(),
            _ => Vec::new(),
        };
        assert_eq!(sent, expected, "{now}");
    }
}

#[test]
fn messages_have_the_vlan_and_wait_for_our_mac_address() {
    let mut station = Station::new(crate::UnderlayConfig { vlan: Some(100), mac: None, ..config() });
    station.underlay.note_link_up();
    assert!(station.turn(0).is_empty());
    station.underlay.set_mac(MAC);
    let sent = station.turn(1);
    assert_eq!((sent.len(), &sent[0][6..20]), (2, &[&OWN_MAC[..], &[0x81, 0, 0, 100, 8, 6, 0, 1]].concat()[..]));
    (2..20).for_each(|now| drop(station.turn(now)));
    // Another interface is another station.
    station.underlay.set_mac(OTHER);
    let sent = station.turn(20);
    assert_eq!((sent.len(), &sent[0][6..12], &sent[0][32..36]), (2, &OTHER.0[..], &[0; 4][..]));
}

fn bytes(message: Result<Message, WireError>) -> Vec<u8> {
    message.expect("a message").bytes().to_vec()
}

/// The Ethernet header of a message of another station.
fn link(dst: MacAddr) -> Link {
    Link { src: OTHER, dst, vlan: None }
}

fn arp(operation: arp::Operation, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mut frame = bytes(messages::arp_request(link(MacAddr::BROADCAST), sender, target));
    frame[20..22].copy_from_slice(&operation.0.to_be_bytes());
    frame
}

fn advertisement(own: Ipv6Addr) -> Vec<u8> {
    let all = messages::ALL_NODES;
    bytes(messages::advertisement(link(messages::group_mac(all)), own, all, false))
}

/// Returns an advertisement without an address of the link, to us.
fn bare_advertisement() -> Vec<u8> {
    let flags = ndp::Flags::SOLICITED;
    let repr = ndp::Repr { kind: ndp::Kind::NeighborAdvertisement, flags, target: OWN6, link_address: None };
    let mut message = [0; 24];
    repr.emit(&mut message).expect("space");
    icmpv6::fill_checksum(&mut message, PEER6, OWN6).expect("a message");
    let mut frame = Message::begin(link(MAC), EtherType::IPV6).expect("space");
    let header = messages::v6(PEER6, OWN6, IpProtocol::ICMPV6, message.len()).expect("a short packet");
    frame.append(|space| ipv6::Repr { hop_limit: 255, ..header }.emit(space)).expect("space");
    frame.append_bytes(&message).expect("space");
    frame.bytes().to_vec()
}

fn solicitation(from: Ipv6Addr) -> Vec<u8> {
    let to = messages::everybody(PEER6.into());
    bytes(messages::solicitation(link(to), from, PEER6, true))
}

/// Returns the station that has our address, after this frame.
#[track_caller]
fn claimed(frame: &[u8], own: IpAddr) -> Option<MacAddr> {
    let mut station = Station::new(config());
    let (answered, _) = station.receive(frame);
    let other = station.underlay.conflicts.other(own);
    if other.is_some() {
        assert_eq!(answered, Answered::Drop(Reason::NotOurs));
    }
    other
}

#[test]
fn other_stations_claim_our_addresses() {
    let peer = Ipv4Addr::new(192, 0, 2, 2);
    for (operation, target) in [(1, peer), (1, OWN4), (2, peer), (2, OWN4), (2, Ipv4Addr::UNSPECIFIED)] {
        let frame = arp(arp::Operation(operation), OWN4, target);
        assert_eq!(claimed(&frame, OWN4.into()), Some(OTHER), "{operation} {target}");
        // The answer to a probe comes to us alone.
        assert_eq!(claimed(&[&MAC.0, &frame[6..]].concat(), OWN4.into()), Some(OTHER), "{operation} {target}");
        let mut proxy = frame.clone();
        proxy[27] = 0xdd;
        assert_eq!(claimed(&proxy, OWN4.into()), Some(MacAddr([2, 0, 0, 0, 0, 0xdd])), "the address that it names");
    }
    for frame in [advertisement(OWN6), bare_advertisement(), solicitation(OWN6)] {
        assert_eq!(claimed(&frame, OWN6.into()), Some(OTHER));
    }
}

#[test]
fn other_messages_claim_nothing() {
    let peer = Ipv4Addr::new(192, 0, 2, 2);
    // Questions, probes and announcements of other addresses; other operations; our own messages
    // that come back, and those in which somebody passes on our MAC address.
    let right4 = arp(arp::Operation::REPLY, OWN4, peer);
    let mut frames = vec![
        arp(arp::Operation::REQUEST, peer, OWN4),
        arp(arp::Operation::REQUEST, Ipv4Addr::UNSPECIFIED, OWN4),
        arp(arp::Operation(3), OWN4, peer),
    ];
    for (at, mac) in [(6, MAC.0), (22, MAC.0), (22, [0xff; 6]), (22, [0; 6])] {
        let mut frame = right4.clone();
        frame[at..at + 6].copy_from_slice(&mac);
        frames.push(frame);
    }
    frames.extend((0..right4.len()).map(|len| right4[..len].to_vec()));
    for frame in frames {
        assert_eq!(claimed(&frame, OWN4.into()), None, "{frame:02x?}");
    }
    let to_group = bytes(messages::probe(link(messages::everybody(OWN6.into())), OWN6));
    let mut frames = vec![advertisement(PEER6), solicitation(PEER6), to_group];
    // To all and solicited; through a router; a wrong checksum; from us.
    let solicited = messages::advertisement(link(MacAddr([0x33, 0x33, 0, 0, 0, 1])), OWN6, messages::ALL_NODES, true);
    frames.push(bytes(solicited));
    for right in [advertisement(OWN6), solicitation(OWN6)] {
        for (at, byte) in [(21, 254), (56, 1), (11, 0xaa)] {
            let mut frame = right.clone();
            frame[at] = byte;
            frames.push(frame);
        }
        frames.extend((0..right.len()).map(|len| right[..len].to_vec()));
    }
    for frame in frames {
        assert_eq!(claimed(&frame, OWN6.into()), None, "{frame:02x?}");
    }
}

/// The settings name a MAC address, and the host of the interface has the address as well.
#[test]
fn the_host_of_the_interface_may_have_the_address() {
    let mut station = Station::new(config());
    station.underlay.set_mac(OTHER);
    for frame in [arp(arp::Operation::REPLY, OWN4, OWN4), advertisement(OWN6)] {
        station.receive(&frame);
    }
    assert!(station.underlay.addresses().iter().all(|own| own.claims == 0));
    station.underlay.set_mac(MacAddr([2, 0, 0, 0, 0, 0xdd]));
    station.receive(&advertisement(OWN6));
    assert_eq!(station.underlay.conflicts.other(ip("2001:db8::1")), Some(OTHER));
}

#[test]
fn claims_at_any_rate_are_answered_by_one_announcement() {
    let mut station = station();
    (0..20).for_each(|now| drop(station.turn(now)));
    let mut sent = Vec::new();
    for now in 20..28 {
        for _ in 0..1000 {
            station.receive(&arp(arp::Operation::REPLY, OWN4, OWN4));
            station.receive(&advertisement(OWN6));
        }
        sent.extend(station.turn(now));
    }
    // One of each address, and the neighbours' tables have nothing of it.
    assert_eq!(sent.len(), 2);
    assert!(sent[0][28..32] == OWN4.octets() && sent[1][54] == 136);
    assert!(station.underlay.neighbours().is_empty());
}
