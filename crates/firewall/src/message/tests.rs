use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;
use straightline_wire::messages::{Link, advertisement, arp_request, probe, solicitation};
use straightline_wire::{MacAddr, ethernet};

use super::*;
use crate::message::MessageForm::{Right, ToOne, Wrong};

const BEHIND_IPV6: usize = ethernet::LEN + ipv6::LEN;
const LINK: Link = Link { src: MacAddr([2, 0, 0, 0, 0, 1]), dst: MacAddr([2, 0, 0, 0, 0, 2]), vlan: None };

fn form(kind: MessageKind, frame: &[u8]) -> MessageForm {
    kind.form(&frame[..frame.len().min(256)], frame.len())
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().expect(text)
}

/// Returns a frame of IPv6 with these bytes behind its header.
fn packet_v6(next: u8, to: Ipv6Addr, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend(u16::try_from(body.len()).expect("short").to_be_bytes());
    frame.extend([next, 255]);
    frame.extend(v6("fe80::1").octets());
    frame.extend(to.octets());
    frame.extend(body);
    frame
}

/// Returns a frame of IPv4 with these bytes behind its header and the router alert.
fn packet_v4(body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x46, 0]);
    frame.extend(u16::try_from(24 + body.len()).expect("short").to_be_bytes());
    frame.extend([0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 0, 1, 224, 0, 0, 22, 148, 4, 0, 0]);
    frame.extend(body);
    frame
}

/// Returns a solicitation with these options.
fn solicited(to: &str, options: &[u8]) -> Vec<u8> {
    let target = v6("2001:db8::2").octets();
    packet_v6(58, v6(to), &[&[135, 0, 0, 0, 0, 0, 0, 0][..], &target, options].concat())
}

const LINK_ADDRESS: [u8; 8] = [1, 1, 2, 0, 0, 0, 0, 1];
const A_NONCE: [u8; 8] = [14, 1, 1, 2, 3, 4, 5, 6];

#[test]
fn messages_of_hosts_are_right() {
    let own = v6("2001:db8::1");
    let peer = v6("2001:db8::2");
    let good = |kind, message: Result<straightline_wire::messages::Message, WireError>| {
        assert_eq!(form(kind, message.expect("a message").bytes()), Right);
    };
    good(MessageKind::Arp, arp_request(LINK, Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)));
    good(MessageKind::Discovery, solicitation(LINK, own, peer, true));
    good(MessageKind::Discovery, probe(LINK, own));
    good(MessageKind::Discovery, advertisement(LINK, own, v6("fe80::2"), true));
    good(MessageKind::Discovery, advertisement(LINK, own, ALL_NODES, false));
    let one = advertisement(LINK, own, peer, true).expect("a message");
    assert_eq!(form(MessageKind::Discovery, one.bytes()), ToOne { to: peer, is_short: true });
    let asked = packet_v6(58, ALL_ROUTERS, &[&[133, 0, 0, 0, 0, 0, 0, 0][..], &LINK_ADDRESS].concat());
    assert_eq!(form(MessageKind::Discovery, &asked), Right);
}

#[test]
fn arp_is_short() {
    let request = arp_request(LINK, Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)).expect("a message");
    let padded = |len: usize| {
        let mut frame = request.bytes().to_vec();
        frame.resize(len, 0xff);
        form(MessageKind::Arp, &frame)
    };
    assert_eq!([42, 60, 61, 1514, 41].map(padded), [Right, Right, Wrong, Wrong, Wrong]);
    let tagged = [&request.bytes()[..12], &[0x81, 0, 0, 5], &request.bytes()[12..]].concat();
    assert_eq!(form(MessageKind::Arp, &tagged), Wrong);
}

#[test]
fn neighbour_discovery_carries_little() {
    let padding = |kind: u8, units: u8| {
        let mut option = vec![0; usize::from(units) * 8];
        option[..2].copy_from_slice(&[kind, units]);
        option
    };
    let both = [LINK_ADDRESS, A_NONCE].concat();
    let rows = [
        ("fe80::2", both.clone(), Right),
        ("fe80::2", padding(200, 16), Right),
        ("fe80::2", padding(200, 17), Wrong),
        ("ff02::1:ff00:2", padding(200, 16), Right),
        // With SEND, a key and a signature.
        ("ff02::1:ff00:2", [padding(11, 60), padding(12, 40)].concat(), Right),
        ("ff02::1:ff00:2", [padding(11, 121), padding(12, 40)].concat(), Wrong),
        ("ff02::1:ff00:2", [padding(200, 60), padding(12, 40)].concat(), Wrong),
        ("ff02::1:fe00:2", both.clone(), Wrong),
        ("ff02::fb", both.clone(), Wrong),
        ("ff05::2", both.clone(), Wrong),
        // An option without length, and one that is longer than the message.
        ("fe80::2", vec![1, 0, 0, 0, 0, 0, 0, 0], Wrong),
        ("fe80::2", vec![1, 2, 0, 0, 0, 0, 0, 0], Wrong),
        ("fe80::2", vec![1], Wrong),
    ];
    for (to, options, expected) in rows {
        assert_eq!(form(MessageKind::Discovery, &solicited(to, &options)), expected, "{to} {options:?}");
    }
    let to = v6("2001:db8::2");
    for (options, is_short) in [
        (vec![], true),
        (both.clone(), true),
        ([LINK_ADDRESS, LINK_ADDRESS].concat(), false),
        ([A_NONCE, A_NONCE].concat(), false),
        (padding(14, 2), false),
        (padding(200, 1), false),
    ] {
        let frame = solicited("2001:db8::2", &options);
        assert_eq!(form(MessageKind::Discovery, &frame), ToOne { to, is_short }, "{options:?}");
    }
    let mut behind = solicited("fe80::2", &both);
    behind.push(0);
    assert_eq!(form(MessageKind::Discovery, &behind), Wrong, "bytes behind the packet");
    // A header of options before the message.
    let inner = &solicited("fe80::2", &both)[BEHIND_IPV6..];
    let optional = packet_v6(60, v6("fe80::2"), &[&[58, 0, 1, 4, 0, 0, 0, 0][..], inner].concat());
    assert_eq!(form(MessageKind::Discovery, &optional), Wrong);
}

#[test]
fn messages_of_groups_are_as_long_as_they_say() {
    let report = |records: &[u8], count: u8| [&[0x22, 0, 0, 0, 0, 0, 0, count][..], records].concat();
    let record = [4, 0, 0, 0, 224, 0, 0, 251];
    let with_source = [1, 0, 0, 1, 232, 1, 1, 1, 192, 0, 2, 1];
    let auxiliary = [4, 1, 0, 0, 224, 0, 0, 251, 1, 2, 3, 4];
    let many = record.repeat(180);
    let query = |sources: u8| [&[0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, sources][..], &[0; 8]].concat();
    let rows = [
        (vec![0x16, 0, 0, 0, 224, 0, 0, 251], Right),
        (vec![0x17, 0, 0, 0, 224, 0, 0, 251], Right),
        (vec![0x12, 0, 0, 0, 224, 0, 0, 251], Right),
        (vec![0x11, 0, 0, 0, 0, 0, 0, 0], Right),
        (vec![0x16, 0, 0, 0, 224, 0, 0, 251, 1], Wrong),
        (vec![0x99, 0, 0, 0, 0, 0, 0, 0], Wrong),
        (vec![0x13, 0, 0, 0, 0, 0, 0, 0], Wrong),
        (query(2), Right),
        (query(1), Wrong),
        (query(3), Wrong),
        (report(&record, 1), Right),
        (report(&with_source, 1), Right),
        (report(&[&record[..], &with_source].concat(), 2), Right),
        (report(&record, 0), Wrong),
        (report(&record, 2), Wrong),
        (report(&auxiliary, 1), Wrong),
        (report(&many, 180), Right),
        (report(&[&many[..], &[0; 2]].concat(), 180), Wrong),
        (vec![0x30, 0, 0, 0, 0, 0, 0, 0], Right),
        (vec![0x31, 0, 0, 0], Right),
        (vec![0x32, 0, 0, 0, 0, 0, 0, 0], Wrong),
        (vec![], Wrong),
    ];
    for (message, expected) in rows {
        assert_eq!(form(MessageKind::Groups, &packet_v4(&message)), expected, "{message:?}");
    }
    let mut option = packet_v4(&[0x16, 0, 0, 0, 224, 0, 0, 251]);
    option[34] = 7;
    assert_eq!(form(MessageKind::Groups, &option), Wrong, "another option than the router alert");
    let mut fragment = packet_v4(&[0x16, 0, 0, 0, 224, 0, 0, 251]);
    fragment[20] = 0x20;
    assert_eq!(form(MessageKind::Groups, &fragment), Wrong);
}

#[test]
fn messages_of_mld_are_as_long_as_they_say() {
    let alert = [58, 0, 5, 2, 0, 0, 1, 0];
    let frame = |message: &[u8]| packet_v6(0, v6("ff02::16"), &[&alert[..], message].concat());
    let group = v6("ff02::fb").octets();
    let report = |count: u8, rest: &[u8]| [&[143, 0, 0, 0, 0, 0, 0, count][..], rest].concat();
    let record = [&[4, 0, 0, 0][..], &group].concat();
    let long = |kind: u8, len: usize| {
        let mut message = vec![0; len];
        message[0] = kind;
        message
    };
    let rows = [
        (long(131, 24), Right),
        (long(132, 24), Right),
        (long(131, 25), Wrong),
        (long(130, 24), Right),
        (long(130, 28), Right),
        (long(130, 44), Wrong),
        (report(1, &record), Right),
        (report(2, &record), Wrong),
        (report(1, &[&record[..], &[0]].concat()), Wrong),
        (report(70, &record.repeat(70)), Right),
        (long(151, 8), Right),
        (long(152, 4), Right),
        (long(153, 8), Wrong),
        (long(128, 24), Wrong),
    ];
    for (message, expected) in rows {
        assert_eq!(form(MessageKind::Groups, &frame(&message)), expected, "{message:?}");
    }
    assert_eq!(form(MessageKind::Groups, &packet_v6(58, v6("ff02::16"), &report(1, &record))), Right);
    let hidden = packet_v6(0, v6("ff02::16"), &[&[58, 0, 30, 4, 1, 2, 3, 4][..], &report(1, &record)].concat());
    assert_eq!(form(MessageKind::Groups, &hidden), Wrong, "an option that carries bytes");
}

proptest! {
    /// Whatever a port sends, a message that passes is short, or has records of groups or a signature.
    #[test]
    fn what_passes_is_bounded(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..600),
        kind in prop_oneof![Just(MessageKind::Arp), Just(MessageKind::Discovery), Just(MessageKind::Groups)],
        ether_type in prop_oneof![Just([8, 6]), Just([0x86, 0xdd]), Just([8, 0]), any::<[u8; 2]>()],
        behind in 0..1500_usize,
        message in prop_oneof![Just(135_u8), Just(136), Just(143), Just(131), Just(0x22), Just(0x16), any::<u8>()],
        is_plain: bool,
    ) {
        if let Some(place) = bytes.get_mut(12..14) {
            place.copy_from_slice(&ether_type);
        }
        if is_plain && bytes.len() > 60 {
            let len = u16::try_from(bytes.len() + behind - BEHIND_IPV6).expect("short");
            bytes[18..20].copy_from_slice(&len.to_be_bytes());
            bytes[14] = if ether_type == [8, 0] { 0x45 } else { 0x60 };
            bytes[20] = 58;
            bytes[BEHIND_IPV6] = message;
        }
        let len = bytes.len() + behind;
        let form = kind.form(&bytes, len);
        if form != Wrong {
            let most = match kind {
                MessageKind::Arp => ethernet::LEN + PADDED,
                MessageKind::Discovery => BEHIND_IPV6 + 24 + MOST_SIGNED,
                MessageKind::Groups => usize::MAX,
            };
            prop_assert!(len <= most);
        }
        if let ToOne { to, .. } = form {
            prop_assert!(!to.is_multicast() && !IpAddr::from(to).to_string().starts_with("fe80:"));
        }
    }
}

#[test]
fn a_message_asks_or_answers() {
    use MessageRole::{Answer, Other, Question};
    let own = Ipv4Addr::new(10, 0, 0, 1);
    let request = arp_request(LINK, own, own).expect("a message").bytes().to_vec();
    let with = |at: usize, byte: u8| {
        let mut frame = request.clone();
        frame[at] = byte;
        frame
    };
    for (kind, icmp_type, frame, role) in [
        (MessageKind::Arp, 0, with(21, 1), Question),
        (MessageKind::Arp, 0, with(21, 2), Answer),
        (MessageKind::Arp, 0, with(21, 3), Other),
        (MessageKind::Arp, 0, request[..41].to_vec(), Other),
        (MessageKind::Groups, 0, packet_v4(&[0x11, 0, 0, 0, 0, 0, 0, 0]), Question),
        (MessageKind::Groups, 0, packet_v4(&[0x12, 0, 0, 0, 0, 0, 0, 0]), Answer),
        (MessageKind::Groups, 0, packet_v4(&[0x16, 0, 0, 0, 0, 0, 0, 0]), Answer),
        (MessageKind::Groups, 0, packet_v4(&[0x22, 0, 0, 0, 0, 0, 0, 0]), Answer),
        (MessageKind::Groups, 0, packet_v4(&[0x17, 0, 0, 0, 0, 0, 0, 0]), Other),
        (MessageKind::Groups, 0, packet_v4(&[]), Other),
    ] {
        assert_eq!(kind.role(icmp_type, &frame), role, "{frame:?}");
        let tagged = [&frame[..12], &[0x81, 0, 0, 0].repeat(4), &frame[12..]].concat();
        assert_eq!(kind.role(icmp_type, &tagged), role, "{frame:?}");
    }
    let roles = |kind: MessageKind, types: [u8; 4]| types.map(|icmp_type| kind.role(icmp_type, &[]));
    assert_eq!(roles(MessageKind::Discovery, [133, 135, 136, 137]), [Other, Question, Answer, Other]);
    assert_eq!(roles(MessageKind::Groups, [130, 131, 132, 143]), [Question, Answer, Other, Answer]);
}

#[test]
fn priority_tags_change_no_form() {
    let own = v6("2001:db8::1");
    let frames = [
        (MessageKind::Arp, arp_request(LINK, Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST).expect("ARP").bytes().to_vec()),
        (MessageKind::Discovery, probe(LINK, own).expect("a probe").bytes().to_vec()),
        (MessageKind::Groups, packet_v4(&[0x16, 0, 0, 0, 224, 0, 0, 251])),
    ];
    for (kind, frame) in frames {
        let tagged = |tag: &[u8]| [&frame[..12], tag, &frame[12..]].concat();
        assert_eq!(form(kind, &tagged(&[0x81, 0, 0xe0, 0])), Right);
        assert_eq!(form(kind, &tagged(&[0x88, 0xa8, 0, 0].repeat(4))), Right);
        assert_eq!(form(kind, &tagged(&[0x81, 0, 0, 0].repeat(5))), Wrong);
        assert_eq!(form(kind, &tagged(&[0x81, 0, 0, 1])), Wrong, "of a VLAN");
        assert_eq!(form(kind, &tagged(&[0x81, 0, 0, 0])[..16]), Wrong);
    }
}

/// A host that hears many sources sends records that do not end in the visible bytes.
#[test]
fn records_with_sources_behind_the_visible_bytes_are_right() {
    let record_v4 = |sources: u8| [&[1, 0, 0, sources, 232, 0, 0, 1][..], &vec![1; 4 * usize::from(sources)]].concat();
    let record_v6 =
        |sources: u8| [&[1, 0, 0, sources, 0xff, 0x3e][..], &[0; 14], &vec![1; 16 * usize::from(sources)]].concat();
    for [first, second] in [[0, 200], [70, 1], [56, 3], [9, 0]] {
        let v4 = packet_v4(&[&[0x22, 0, 0, 0, 0, 0, 0, 2][..], &record_v4(first), &record_v4(second)].concat());
        assert_eq!(form(MessageKind::Groups, &v4), Right, "{first} {second}");
        let sources = [first / 4, second / 4];
        let body = [&[143, 0, 0, 0, 0, 0, 0, 2][..], &record_v6(sources[0]), &record_v6(sources[1])].concat();
        let v6 = packet_v6(58, v6("ff02::16"), &body);
        assert_eq!(form(MessageKind::Groups, &v6), Right, "{first} {second}");
    }
    // Not whole sources, and less than the records need.
    let behind = |len: usize| {
        let body = [&[0x22, 0, 0, 0, 0, 0, 0, 9][..], &record_v4(60), &vec![0; len]].concat();
        form(MessageKind::Groups, &packet_v4(&body))
    };
    assert_eq!([8 * 8, 8 * 8 + 4, 8 * 8 + 2, 8 * 8 - 4].map(behind), [Right, Right, Wrong, Wrong]);
}
