//! Packets by which a station has the groups of a port see another connection than its ends do, or another
//! neighbour than there is.

use std::net::{Ipv4Addr, Ipv6Addr};

use straightline_config::{Group, IpPrefix, MacPrefix, SourceCheckConfig};
use straightline_testing::{arrived, mac, send, wait_all_back, wait_until};
use straightline_wire::ndp::{self, Kind, OptionType};
use straightline_wire::tcp::Flags;
use straightline_wire::{IpProtocol, MacAddr, arp, ipv6};

use crate::firewall::{ATTACKER, End, FRIEND, Lan, QUIET, TARGET, from_address, ip, number, tcp, udp, with_payload};

const IPV4_TTL: usize = 22;
const TCP_CHECKSUM: usize = 50;
const UDP_CHECKSUM: usize = 40;

/// Returns the packet with a checksum that no receiver accepts, and as the last router would get it.
fn damaged(mut frame: Vec<u8>, checksum: usize) -> Vec<u8> {
    frame[IPV4_TTL] = 1;
    frame[checksum..checksum + 2].copy_from_slice(&[0xde, 0xad]);
    frame
}

/// Segments that the target never takes: wrong checksums, a time to live that ends before it, numbers that
/// nobody expects. They close nothing, open nothing that is denied, and hide nothing behind them.
#[test]
fn segments_that_nobody_takes() {
    let mut lan = Lan::new();
    let client: End = (FRIEND, 30_000);
    let server: End = (TARGET, 80);
    lan.passes(FRIEND, TARGET, &tcp(client, server, Flags::SYN, [100, 0]));
    lan.passes(TARGET, FRIEND, &tcp(server, client, Flags::SYN.with(Flags::ACK), [500, 101]));
    lan.passes(FRIEND, TARGET, &tcp(client, server, Flags::ACK, [101, 501]));
    // The attacker claims the friend's address: it has no source check.
    let forged = |flags, numbers| {
        let transport = straightline_wire::frame::Transport::Tcp {
            src_port: client.1,
            dst_port: server.1,
            seq: numbers,
            ack: 501,
            flags,
            window: 8192,
        };
        from_address(ip(FRIEND), [ATTACKER, TARGET], transport, &[])
    };
    let fin = Flags::FIN.with(Flags::ACK);
    let mut guesses = Vec::new();
    for seq in [200_000, 90_000_000, 1 << 31] {
        for flags in [Flags::RST, Flags::RST.with(Flags::ACK), fin, Flags::ACK] {
            guesses.push(forged(flags, seq));
            guesses.push(damaged(forged(flags, seq), TCP_CHECKSUM));
        }
    }
    // Flags that no station sends, which some receivers take for a reset.
    guesses
        .extend([Flags::SYN.with(Flags::RST), Flags::SYN.with(Flags::FIN), Flags(0)].map(|flags| forged(flags, 101)));
    lan.refuses("guessed segments", &["invalid"], &guesses);
    // One that looks as if it came again passes, and has no effect.
    lan.passes(ATTACKER, TARGET, &forged(fin, 4_000_000_000));
    lan.passes(TARGET, FRIEND, &tcp(server, client, Flags::ACK, [501, 101]));

    // A SYN that nobody takes opens no way to another port, and none for other segments.
    let closed = [(81, "denied"), (10, "denied")];
    for (port, reason) in closed {
        let syn = tcp((ATTACKER, 7), (TARGET, port), Flags::SYN, [1, 0]);
        lan.refuses("a damaged SYN to a closed port", &[reason], &[damaged(syn.clone(), TCP_CHECKSUM), syn]);
    }
    let syn = tcp((ATTACKER, 7), server, Flags::SYN, [1, 0]);
    lan.passes(ATTACKER, TARGET, &damaged(syn, TCP_CHECKSUM));
    let data = [(Flags::ACK, 2), (Flags::ACK.with(Flags::PSH), 2), (fin, 2), (Flags::SYN.with(Flags::ACK), 1)];
    let data = data.map(|(flags, seq)| tcp((ATTACKER, 7), server, flags, [seq, 1]));
    lan.refuses("segments behind a damaged SYN", &["invalid"], &data);

    // A damaged datagram that makes a connection known allows its answers, and no other packet.
    let asked = udp((ATTACKER, 8), (TARGET, 9));
    lan.passes(ATTACKER, TARGET, &damaged(asked, UDP_CHECKSUM));
    let denied = [(5300, "denied"), (10, "denied")];
    for (port, reason) in denied {
        lan.refuses("another port", &[reason], &[udp((ATTACKER, 8), (TARGET, port))]);
    }
    lan.drops("another answer", [TARGET, ATTACKER], TARGET, &["denied"], &[udp((TARGET, 9), (ATTACKER, 9))]);
    lan.passes(TARGET, FRIEND, &tcp(server, client, Flags::ACK, [501, 101]));
    lan.end();
}

/// Returns an ARP message of a station that names these addresses.
fn arp(from: usize, operation: u16, sender_mac: MacAddr, sender_ip: Ipv4Addr) -> Vec<u8> {
    let mut bytes = [&mac(number(FRIEND)).0[..], &mac(number(from)).0, &[8, 6]].concat();
    bytes.resize(14 + arp::LEN, 0);
    let target_mac = mac(number(FRIEND));
    let repr =
        arp::Repr { operation: arp::Operation(operation), sender_mac, sender_ip, target_mac, target_ip: ip(FRIEND) };
    repr.emit(&mut bytes[14..]).expect("enough space");
    bytes.resize(60, 0);
    bytes
}

/// Returns a message of neighbour discovery of a station about an address.
fn discovery(from: usize, kind: Kind, src: Ipv6Addr, target: Ipv6Addr, hop_limit: u8) -> Vec<u8> {
    let mut message = vec![0; 48];
    let option = if kind == Kind::NeighborSolicitation {
        OptionType::SOURCE_LINK_ADDRESS
    } else {
        OptionType::TARGET_LINK_ADDRESS
    };
    let link_address = Some((option, mac(number(from))));
    let len = ndp::Repr { kind, flags: ndp::Flags::NONE, target, link_address }.emit(&mut message).expect("space");
    packet6(from, src, hop_limit, &message[..len])
}

fn packet6(from: usize, src: Ipv6Addr, hop_limit: u8, message: &[u8]) -> Vec<u8> {
    let mut bytes = [&mac(number(FRIEND)).0[..], &mac(number(from)).0, &[0x86, 0xdd]].concat();
    let at = bytes.len();
    bytes.resize(at + ipv6::LEN, 0);
    let payload_len = u16::try_from(message.len()).expect("short");
    let next_header = IpProtocol::ICMPV6;
    let dst = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let repr = ipv6::Repr { traffic_class: 0, flow_label: 0, payload_len, next_header, hop_limit, src, dst };
    repr.emit(&mut bytes[at..]).expect("enough space");
    bytes.extend(message);
    bytes
}

/// A guest that claims addresses beyond `allowed-ips`, by all that needs no rule. Behind groups without a
/// source check, nobody speaks ARP or neighbour discovery at all.
#[test]
fn neighbours_that_are_none() {
    let own6 = |station: usize| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number(station).into());
    let mut lan = Lan::with(|config| {
        let ips = [ip(TARGET).into(), own6(TARGET).into()].map(IpPrefix::exact).to_vec();
        let macs = vec![MacPrefix::exact(mac(number(TARGET)))];
        config.ports[TARGET].source_check = Some(SourceCheckConfig { macs, ips: Some(ips) });
    });
    let own_mac = mac(number(TARGET));
    let other_mac = mac(number(QUIET));
    let to_friend = [TARGET, FRIEND];
    let mut claims = Vec::new();
    for operation in [1, 2, 3, 4, 8, 9] {
        claims.push(arp(TARGET, operation, own_mac, ip(QUIET)));
        claims.push(arp(TARGET, operation, other_mac, ip(TARGET)));
    }
    let advertisement = Kind::NeighborAdvertisement;
    claims.push(discovery(TARGET, advertisement, own6(TARGET), own6(QUIET), 255));
    claims.push(discovery(TARGET, Kind::NeighborSolicitation, own6(QUIET), own6(FRIEND), 255));
    claims.push(discovery(TARGET, Kind::NeighborSolicitation, Ipv6Addr::UNSPECIFIED, own6(QUIET), 255));
    let reasons = ["spoofed", "denied", "hidden"];
    for claim in &claims {
        let behind = |bytes: &[u8]| [&claim[..12], bytes, &claim[12..]].concat();
        let frames = [
            claim.clone(),
            behind(&[0x81, 0, 0, 0]),
            behind(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 5]),
            behind(&[0, 60, 0xaa, 0xaa, 3, 0, 0, 0]),
        ];
        lan.drops("a claim", to_friend, TARGET, &reasons, &frames);
    }
    // What a router says, and what has passed one.
    let mut router = vec![0; 16];
    router[0] = 134;
    let redirect = [&[137, 0, 0, 0, 0, 0, 0, 0][..], &own6(TARGET).octets(), &own6(QUIET).octets()].concat();
    let denied = [
        packet6(TARGET, own6(TARGET), 255, &router),
        packet6(TARGET, own6(TARGET), 255, &redirect),
        discovery(TARGET, advertisement, own6(TARGET), own6(TARGET), 64),
    ];
    lan.drops("a router that is none", to_friend, TARGET, &reasons, &denied);
    let redirect = with_payload(udp((TARGET, 7), (FRIEND, 9)), 1, &[&[5, 1, 0, 0][..], &ip(QUIET).octets()].concat());
    lan.drops("a redirect", to_friend, TARGET, &reasons, &[redirect]);
    // Its own addresses pass.
    lan.passes(TARGET, FRIEND, &arp(TARGET, 2, own_mac, ip(TARGET)));
    lan.passes(TARGET, FRIEND, &discovery(TARGET, advertisement, own6(TARGET), own6(TARGET), 255));
    // The quiet guest has groups, and nothing says which addresses it has.
    let unchecked =
        [arp(QUIET, 2, other_mac, ip(QUIET)), discovery(QUIET, advertisement, own6(QUIET), own6(QUIET), 255)];
    lan.drops("a port that nobody checks", [QUIET, FRIEND], QUIET, &["denied"], &unchecked);
    lan.end();
}

/// Returns a message of groups with this payload, which only says that it is one.
fn igmp(from: usize, payload: &[u8]) -> Vec<u8> {
    let mut frame = with_payload(udp((from, 1), (FRIEND, 1)), 2, payload);
    frame[IPV4_TTL] = 1;
    frame[30..34].copy_from_slice(&[224, 0, 0, 251]);
    frame
}

/// Returns a message of a station with an address.
type MessageOf = fn(usize, Ipv6Addr) -> Vec<u8>;

/// Messages that need no rule carry nothing beside what they are for, and they are few: from a guest with
/// groups, and from one without. The others lose nothing.
#[test]
fn messages_without_a_rule() {
    let own6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number(TARGET).into());
    let mut lan = Lan::with(|config| {
        let macs = vec![MacPrefix::exact(mac(number(TARGET)))];
        config.ports[TARGET].source_check = Some(SourceCheckConfig { macs, ips: None });
    });
    let neighbour = |from: usize| arp(from, 2, mac(number(from)), ip(from));
    let mut long = neighbour(TARGET);
    long.resize(1514, 0x5a);
    let data = [&[136, 0, 0, 0, 0, 0, 0, 0][..], &own6.octets(), &[200, 120], &[0x5a; 958]].concat();
    let hidden = [
        long,
        packet6(TARGET, own6, 255, &data),
        igmp(TARGET, &[&[0x99, 0, 0, 0][..], &[0x5a; 1000]].concat()),
        igmp(TARGET, &[&[0x16, 0, 0, 0, 224, 0, 0, 251][..], &[0x5a; 1000]].concat()),
    ];
    lan.drops("data in messages", [TARGET, FRIEND], TARGET, &["message-form"], &hidden);
    let report = [0x16, 0, 0, 0, 224, 0, 0, 251];
    let kinds: [(&str, MessageOf); 3] = [
        ("arp-limit", |from, _| arp(from, 2, mac(number(from)), ip(from))),
        ("discovery-limit", |from, own| discovery(from, Kind::NeighborAdvertisement, own, own, 255)),
        ("group-limit", |from, _| igmp(from, &[0x16, 0, 0, 0, 224, 0, 0, 251])),
    ];
    lan.passes(TARGET, FRIEND, &igmp(TARGET, &report));
    let ends = lan.connects(FRIEND, QUIET, 9);
    for from in [TARGET, ATTACKER] {
        for (reason, message) in kinds {
            let frame = message(from, own6);
            wait_until(&format!("{reason} of station {from}"), || {
                (0..64).for_each(|_| send(&mut lan.guests[from], &frame));
                wait_all_back(&mut lan.guests[from]);
                lan.goes_on(ends);
                lan.guests.iter_mut().for_each(|guest| _ = arrived(guest));
                lan.rig.drops(from, reason) > 1000
            });
        }
    }
    lan.end();
}

/// Guests ask more than a victim may send by itself, each within its own limit. The victim answers all of it,
/// and can still ask.
#[test]
fn answers_do_not_use_up_a_limit() {
    let mut lan = Lan::with(|config| {
        let macs = vec![MacPrefix::exact(mac(number(TARGET)))];
        config.ports[TARGET].source_check = Some(SourceCheckConfig { macs, ips: None });
        config.ports[TARGET].message_limit = Some(1);
    });
    let to = |to: usize, frame: Vec<u8>| [&mac(number(to)).0[..], &frame[6..]].concat();
    for _ in 0..50 {
        for asker in [FRIEND, ATTACKER] {
            lan.passes(asker, TARGET, &to(TARGET, arp(asker, 1, mac(number(asker)), ip(asker))));
            lan.passes(TARGET, asker, &to(asker, arp(TARGET, 2, mac(number(TARGET)), ip(TARGET))));
        }
    }
    lan.passes(TARGET, FRIEND, &arp(TARGET, 1, mac(number(TARGET)), ip(TARGET)));
    lan.end();
}

/// Messages of a guest whose group allows everything are limited too. No guest has the switch look for more
/// addresses than its limit allows.
#[test]
fn messages_beyond_the_limit_cost_little() {
    let mut lan = Lan::with(|config| {
        let macs = vec![MacPrefix::exact(mac(number(TARGET)))];
        config.ports[TARGET].source_check = Some(SourceCheckConfig { macs, ips: None });
        config.groups.push(Group::parse("open", &["any from any"], &["any to any"]).expect("rules"));
        config.ports[ATTACKER].groups = vec!["open".to_owned()];
    });
    let to_unknown = |from: usize, hop_limit| {
        let own: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number(from).into());
        let unknown = [200, 1, 0, 0, 0, 0, 0, 0];
        let message = [&[136, 0, 0, 0, 0, 0, 0, 0][..], &own.octets(), &unknown].concat();
        let mut frame = packet6(from, own, hop_limit, &message);
        frame[38..54].copy_from_slice(&Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9).octets());
        frame
    };
    let ends = lan.connects(FRIEND, TARGET, 9);
    for (from, frame) in [(TARGET, to_unknown(TARGET, 255)), (ATTACKER, to_unknown(ATTACKER, 64))] {
        wait_until(&format!("the limit of station {from}"), || {
            (0..64).for_each(|_| send(&mut lan.guests[from], &frame));
            wait_all_back(&mut lan.guests[from]);
            lan.goes_on(ends);
            lan.guests.iter_mut().for_each(|guest| _ = arrived(guest));
            lan.rig.drops(from, "discovery-limit") > 1000
        });
    }
    lan.end();
}
