use etherparse::icmpv6::{NdpOptionSlice, NdpOptionsIterator};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use std::sync::Arc;
use straightline_packet::{Arena, Drops, Offload, PortIndex, Rcu, Settings};
use straightline_wire::arp::Operation;
use straightline_wire::ndp::{Kind, OptionType};

use super::*;

const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// One of the addresses of VRRP (RFC 9568, 7.3).
const VRRP: MacAddr = MacAddr([0, 0, 0x5e, 0, 1, 7]);

const SOURCE: OptionType = OptionType::SOURCE_LINK_ADDRESS;
const TARGET: OptionType = OptionType::TARGET_LINK_ADDRESS;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn v4(text: &str) -> std::net::Ipv4Addr {
    text.parse().expect("an address")
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

fn macs() -> Vec<MacPrefix> {
    let vrrp = MacPrefix::new(MacAddr([0, 0, 0x5e, 0, 1, 0]), 40).expect("a prefix");
    vec![MacPrefix::exact(OWN), vrrp]
}

fn check() -> SourceCheck {
    SourceCheck::new(&macs(), None)
}

fn with_ips() -> SourceCheck {
    let net = IpPrefix::new(ip("fd00:1::"), 32).expect("a prefix");
    SourceCheck::new(&macs(), Some(&[IpPrefix::exact(ip("10.0.0.1")), net]))
}

/// Makes a frame from `src`. The parts follow the addresses; the first begins with the type.
fn frame(src: MacAddr, parts: &[&[u8]]) -> Vec<u8> {
    [&[0xff; 6][..], &src.0, &parts.concat()].concat()
}

fn arp(operation: u16, sender_mac: MacAddr, sender_ip: &str, target_ip: &str) -> Vec<u8> {
    let operation = Operation(operation);
    let target_mac = OTHER;
    let sender_ip = v4(sender_ip);
    let target_ip = v4(target_ip);
    let mut message = vec![0; arp::LEN];
    arp::Repr { operation, sender_mac, sender_ip, target_mac, target_ip }.emit(&mut message).expect("enough space");
    message
}

fn ndp(kind: Kind, target: &str, link_address: Option<(OptionType, MacAddr)>) -> Vec<u8> {
    let mut message = vec![0; 64];
    let len = ndp::Repr { kind, flags: ndp::Flags::NONE, target: v6(target), link_address }
        .emit(&mut message)
        .expect("enough space");
    message.truncate(len);
    message
}

/// Makes an IPv6 packet with its EtherType in front.
fn packet(src: &str, next_header: u8, rest: &[&[u8]]) -> Vec<u8> {
    let rest = rest.concat();
    let repr = ipv6::Repr {
        traffic_class: 0,
        flow_label: 0,
        payload_len: u16::try_from(rest.len()).expect("short"),
        next_header: IpProtocol(next_header),
        hop_limit: 255,
        src: v6(src),
        dst: v6("ff02::1"),
    };
    let mut bytes = vec![0x86, 0xdd];
    bytes.resize(2 + ipv6::LEN, 0);
    repr.emit(&mut bytes[2..]).expect("enough space");
    bytes.extend(rest);
    bytes
}

const LINK_LOCAL: &str = "fe80::ff:fe00:1";

/// Makes the IPv6 packet of a message of neighbour discovery.
fn neighbour(message: &[u8]) -> Vec<u8> {
    packet(LINK_LOCAL, 58, &[message])
}

/// Makes a fragment header.
fn fragment(next_header: u8, offset: u16, more: bool) -> [u8; 8] {
    let [high, low] = (offset << 3 | u16::from(more)).to_be_bytes();
    [next_header, 0, high, low, 0, 0, 0, 9]
}

fn decides(check: &SourceCheck, frame: &[u8]) -> Result<usize, Fault> {
    check.decide(frame, frame.len())
}

#[track_caller]
fn passes(check: &SourceCheck, frame: &[u8]) {
    assert!(decides(check, frame).is_ok(), "{:?} of {frame:02x?}", decides(check, frame));
}

#[track_caller]
fn claims(check: &SourceCheck, frame: &[u8]) {
    assert_eq!(decides(check, frame), Err(Fault::Claim), "{frame:02x?}");
}

#[track_caller]
fn hides(check: &SourceCheck, frame: &[u8]) {
    assert!(matches!(decides(check, frame), Err(Fault::Hidden(_))), "{:?} of {frame:02x?}", decides(check, frame));
}

#[test]
fn the_source_of_every_frame() {
    let check = check();
    for (src, expected) in [
        (OWN, Ok(14)),
        (VRRP, Ok(14)),
        (OTHER, Err(Fault::Claim)),
        (MacAddr([0, 0, 0x5e, 0, 2, 7]), Err(Fault::Claim)),
        (MacAddr::BROADCAST, Err(Fault::NoStation)),
        (MacAddr([3, 0, 0, 0, 0, 1]), Err(Fault::NoStation)),
        (MacAddr([0; 6]), Err(Fault::NoStation)),
    ] {
        for ether_type in [[8, 0], [0x88, 0xb5]] {
            assert_eq!(decides(&check, &frame(src, &[&ether_type, &[0; 46]])), expected, "{src}");
        }
    }
    hides(&check, &[2; 13]);
}

#[test]
fn the_sender_of_arp_whatever_it_says() {
    let check = check();
    for ether_type in [[8, 6], [0x80, 0x35]] {
        for operation in [0, 1, 2, 3, 4, 8, 9, 0xffff] {
            let sent_by =
                |sender| frame(OWN, &[&ether_type, &arp(operation, sender, "10.0.0.9", "10.0.0.2"), &[0; 18]]);
            passes(&check, &sent_by(OWN));
            passes(&check, &sent_by(VRRP));
            claims(&check, &sent_by(OTHER));
            claims(&check, &sent_by(MacAddr([0; 6])));
        }
    }
    let mut lies = frame(OWN, &[&[8, 6], &arp(2, OWN, "10.0.0.1", "10.0.0.2")]);
    hides(&check, &lies[..lies.len() - 1]);
    lies[18] = 8;
    hides(&check, &lies);
    // Receivers take the hardware type of IEEE 802 for Ethernet.
    let mut other_type = frame(OWN, &[&[8, 6], &arp(2, OTHER, "10.0.0.1", "10.0.0.2")]);
    other_type[15] = 6;
    claims(&check, &other_type);
}

#[test]
fn claims_behind_tags_and_snap() {
    let check = check();
    let tag: &[u8] = &[0x81, 0, 0, 5];
    let snap: &[u8] = &[0, 36, 0xaa, 0xaa, 3, 0, 0, 0];
    for before in [&[][..], &[tag], &[&[0x88, 0xa8, 0, 1], tag], &[tag, tag, tag], &[snap], &[tag, snap], &[snap, tag]]
    {
        let sent_by = |sender, last: &[&[u8]]| {
            let arp = [&[8, 6][..], &arp(2, sender, "10.0.0.1", "10.0.0.2")].concat();
            let neighbour = neighbour(&ndp(Kind::NeighborAdvertisement, "fe80::1", Some((TARGET, sender))));
            [arp, neighbour].map(|payload| frame(OWN, &[before, last, &[&payload[..]]].concat()))
        };
        sent_by(OWN, &[]).iter().for_each(|frame| passes(&check, frame));
        sent_by(OTHER, &[]).iter().for_each(|frame| claims(&check, frame));
        hides(&check, &frame(OWN, &[before, &[&tag[..3]]].concat()));
    }
    passes(&check, &frame(OWN, &[&[0, 36, 0x42, 0x42, 3], &[0; 40]]));
}

#[test]
fn link_addresses_in_every_message_of_neighbour_discovery() {
    let check = check();
    let kinds = [
        Kind::RouterSolicitation,
        Kind::RouterAdvertisement,
        Kind::NeighborSolicitation,
        Kind::NeighborAdvertisement,
        Kind::Redirect,
    ];
    for kind in kinds {
        passes(&check, &frame(OWN, &[&neighbour(&ndp(kind, "fe80::9", None))]));
        for option in [SOURCE, TARGET] {
            let sent_by = |mac| ndp(kind, "fe80::9", Some((option, mac)));
            passes(&check, &frame(OWN, &[&neighbour(&sent_by(OWN))]));
            passes(&check, &frame(OWN, &[&neighbour(&sent_by(VRRP))]));
            claims(&check, &frame(OWN, &[&neighbour(&sent_by(OTHER))]));
            // The second of two options, behind prefix information.
            let prefix = [&[3, 4][..], &[0; 30]].concat();
            let second = [&sent_by(OWN)[..], &prefix, &[option.0, 1], &OTHER.0].concat();
            claims(&check, &frame(OWN, &[&neighbour(&second)]));
            // An option of length 0, and one of a length that no MAC address has.
            for units in [0, 2] {
                let mut lies = sent_by(OWN);
                lies[kind.fixed_len() + 1] = units;
                lies.extend([0; 8]);
                hides(&check, &frame(OWN, &[&neighbour(&lies)]));
            }
        }
    }
    passes(&check, &frame(OWN, &[&packet(LINK_LOCAL, 58, &[&[128, 0, 0, 0], &[1; 40]])]));
    hides(&check, &frame(OWN, &[&packet(LINK_LOCAL, 58, &[])]));
}

#[test]
fn what_stands_behind_the_packet_is_no_part_of_it() {
    let check = check();
    let good = frame(OWN, &[&neighbour(&ndp(Kind::NeighborAdvertisement, "fe80::9", Some((TARGET, OWN))))]);
    passes(&check, &[&good[..], &[0; 20]].concat());
    let bad = frame(OWN, &[&neighbour(&ndp(Kind::NeighborAdvertisement, "fe80::9", Some((TARGET, OTHER))))]);
    claims(&check, &bad);
    // If the length is 0, some receivers take all bytes.
    let mut jumbo = bad;
    jumbo[18..20].fill(0);
    claims(&check, &jumbo);
}

#[test]
fn claims_behind_extension_headers() {
    let check = check();
    let bad = ndp(Kind::NeighborAdvertisement, "fe80::9", Some((TARGET, OTHER)));
    let good = ndp(Kind::NeighborAdvertisement, "fe80::9", Some((TARGET, OWN)));
    for first in [0, 43, 60] {
        let header = [&[58, 1][..], &[0; 14]].concat();
        passes(&check, &frame(OWN, &[&packet(LINK_LOCAL, first, &[&header, &good])]));
        claims(&check, &frame(OWN, &[&packet(LINK_LOCAL, first, &[&header, &bad])]));
    }
    // More extension headers than are needed, and in an order that is not allowed.
    let many = [60, 0, 0, 0, 0, 0, 0, 0].repeat(9);
    hides(&check, &frame(OWN, &[&packet(LINK_LOCAL, 60, &[&many, &good])]));
    let late = [0, 0, 0, 0, 0, 0, 0, 0, 58, 0, 0, 0, 0, 0, 0, 0];
    hides(&check, &frame(OWN, &[&packet(LINK_LOCAL, 60, &[&late, &good])]));
}

#[test]
fn what_the_head_does_not_hold_is_asked_for() {
    let check = check();
    let long = [&[58, 26][..], &[0; 214]].concat();
    let message = ndp(Kind::NeighborAdvertisement, "fe80::9", Some((TARGET, OTHER)));
    let bad = frame(OWN, &[&packet(LINK_LOCAL, 60, &[&long, &message])]);
    for visible in 14..bad.len() {
        assert_eq!(check.decide(&bad[..visible], bad.len()), Err(Fault::Hidden(WireError::Truncated)), "{visible}");
    }
    claims(&check, &bad);
    // An option that ends with the message hides nothing.
    let message = [&ndp(Kind::Redirect, "fe80::9", Some((TARGET, OWN)))[..], &[4, 90], &[0; 718]].concat();
    let redirect = frame(OWN, &[&neighbour(&message)]);
    assert!(check.decide(&redirect[..256], redirect.len()).is_ok());
    let more = [&message[..], &[TARGET.0, 1], &OTHER.0].concat();
    let redirect = frame(OWN, &[&neighbour(&more)]);
    assert_eq!(check.decide(&redirect[..256], redirect.len()), Err(Fault::Hidden(WireError::Truncated)));
    claims(&check, &redirect);
}

#[test]
fn fragments_of_neighbour_discovery() {
    let check = check();
    let good = ndp(Kind::NeighborAdvertisement, "fe80::9", Some((TARGET, OWN)));
    let destination = [58, 0, 0, 0, 0, 0, 0, 0];
    let sent_by = |parts: &[&[u8]]| frame(OWN, &[&packet(LINK_LOCAL, 44, parts)]);
    // First fragments, atomic fragments (RFC 6946), and both with one more header.
    for more in [true, false] {
        hides(&check, &sent_by(&[&fragment(58, 0, more), &good[..24]]));
        hides(&check, &sent_by(&[&fragment(60, 0, more), &destination, &good[..24]]));
        hides(
            &check,
            &frame(OWN, &[&packet(LINK_LOCAL, 60, &[&[44, 0, 0, 0, 0, 0, 0, 0], &fragment(58, 0, more), &good])]),
        );
    }
    // Too short to have a type. The bytes behind the packet do not matter.
    hides(&check, &sent_by(&[&fragment(58, 0, true)]));
    let mut short = sent_by(&[&fragment(60, 0, true), &destination, &[128, 0, 0, 0]]);
    passes(&check, &short);
    short[19] = 16;
    hides(&check, &short);
    // A fragment of a fragment.
    hides(&check, &sent_by(&[&fragment(44, 0, false), &fragment(17, 1, false), &[0; 8]]));
    // Other fragments pass: first ones of other protocols, and later ones.
    passes(&check, &sent_by(&[&fragment(58, 0, true), &[128, 0, 0, 0, 0, 0, 0, 0]]));
    passes(&check, &sent_by(&[&fragment(17, 0, true), &[136; 16]]));
    passes(&check, &sent_by(&[&fragment(58, 3, false), &good[..8]]));
}

#[test]
fn ip_addresses_where_they_are_listed() {
    let check = with_ips();
    let v4_from = |src: &str| {
        let src = v4(src);
        let dst = v4("10.0.0.2");
        let repr = ipv4::Repr {
            tos: 0,
            payload_len: 8,
            ident: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol: IpProtocol::UDP,
            src,
            dst,
        };
        let mut header = [0; 20];
        repr.emit(&mut header).expect("enough space");
        [frame(OWN, &[&[8, 0], &header, &[0; 8]]), frame(OWN, &[&[0x81, 0, 0, 5], &[8, 0], &header, &[0; 8]])]
    };
    // A guest asks for an address from 0.0.0.0 (RFC 2131).
    for src in ["10.0.0.1", "0.0.0.0"] {
        v4_from(src).iter().for_each(|frame| passes(&check, frame));
    }
    for src in ["10.0.0.2", "127.0.0.1", "224.0.0.1"] {
        v4_from(src).iter().for_each(|frame| claims(&check, frame));
        v4_from(src).iter().for_each(|frame| passes(&self::check(), frame));
    }
    hides(&check, &frame(OWN, &[&[8, 0], &[0x45; 19]]));

    let arp_by = |sender: &str, target: &str| frame(OWN, &[&[8, 6], &arp(1, OWN, sender, target)]);
    passes(&check, &arp_by("10.0.0.1", "10.0.0.9"));
    passes(&check, &arp_by("0.0.0.0", "10.0.0.1"));
    passes(&check, &arp_by("0.0.0.0", "0.0.0.0"));
    claims(&check, &arp_by("10.0.0.9", "10.0.0.1"));
    claims(&check, &arp_by("0.0.0.0", "10.0.0.9"));

    let v6_from = |src: &str| frame(OWN, &[&packet(src, 17, &[&[0; 8]])]);
    for src in ["fd00:1::7", "::", LINK_LOCAL] {
        passes(&check, &v6_from(src));
    }
    for src in ["fd00:2::7", "fe80::ff:fe00:2", "fe80::200:5eff:fe00:107"] {
        claims(&check, &v6_from(src));
    }
    let sent_by = |src: &str, kind, target: &str| frame(OWN, &[&packet(src, 58, &[&ndp(kind, target, None)])]);
    passes(&check, &sent_by("fd00:1::7", Kind::NeighborAdvertisement, "fd00:1::8"));
    claims(&check, &sent_by("fd00:1::7", Kind::NeighborAdvertisement, "fd00:2::8"));
    passes(&check, &sent_by("fd00:1::7", Kind::NeighborSolicitation, "fd00:2::8"));
    passes(&check, &sent_by("::", Kind::NeighborSolicitation, "fd00:1::8"));
    claims(&check, &sent_by("::", Kind::NeighborSolicitation, "fd00:2::8"));
}

#[test]
fn no_checksum_is_finished_over_what_was_compared() {
    let arp = frame(OWN, &[&[8, 6], &arp(2, OWN, "10.0.0.1", "10.0.0.2"), &[0; 18]]);
    let neighbour = frame(OWN, &[&neighbour(&ndp(Kind::NeighborAdvertisement, "fe80::9", Some((TARGET, OWN))))]);
    let tcp = frame(OWN, &[&packet(LINK_LOCAL, 6, &[&[0; 20]])]);
    let echo = frame(OWN, &[&packet(LINK_LOCAL, 58, &[&[128, 0, 0, 0], &[0; 8]])]);
    let tagged = frame(OWN, &[&[0x81, 0, 0, 5, 0x88, 0xb5], &[0; 40]]);
    let llc = frame(OWN, &[&[0, 40, 0x42, 0x42, 3], &[0; 40]]);
    let v4 = frame(OWN, &[&[8, 0], &[0x45; 40]]);
    // Each frame with the first offset at which a checksum field may lie.
    let cases =
        [(&arp, None), (&neighbour, None), (&tcp, Some(54)), (&echo, Some(56)), (&tagged, Some(18)), (&llc, None)];
    for (frame, least) in cases.into_iter().chain([(&v4, Some(14))]) {
        for field in 14..frame.len() - 1 {
            let checksum = Checksum::Partial { start: 14, offset: u16::try_from(field - 14).expect("short") };
            let allowed = least.is_some_and(|least| field >= least);
            assert_eq!(verdict(&check(), frame, checksum), allowed, "{field} of {frame:02x?}");
        }
        assert!(verdict(&check(), frame, Checksum::Complete));
    }
}

/// Returns whether a packet in a turn passes, and checks that it is counted if it does not.
fn verdict(check: &SourceCheck, frame: &[u8], checksum: Checksum) -> bool {
    let rcu = Rcu::new();
    let drops = vec![Arc::new(Drops::default())];
    let mut arena = Arena::new(rcu.reader(), Settings::default(), drops.clone());
    let passes = arena.turn(|turn| {
        let id = turn.accept_owned(PortIndex(0), frame).expect("a free slot");
        turn.set_offload(id, Offload { checksum, gso: None });
        let result = check.check(turn, id);
        result.map_err(|fault| turn.discard(id, fault.reason())).is_ok()
    });
    assert_eq!(drops[0].count(Reason::Spoofed), u64::from(!passes));
    passes
}

/// The MAC addresses that `etherparse` finds claimed in a frame.
fn their_claims(frame: &[u8]) -> Vec<[u8; 6]> {
    let Ok(sliced) = SlicedPacket::from_ethernet(frame) else { return Vec::new() };
    let mut found = Vec::new();
    if let Some(NetSlice::Arp(arp)) = &sliced.net {
        found.extend(<[u8; 6]>::try_from(arp.sender_hw_addr()));
    }
    if let Some(TransportSlice::Icmpv6(icmp)) = &sliced.transport
        && let Some(kind) = Kind::of(icmp.type_u8())
    {
        let options = icmp.slice().get(kind.fixed_len()..).unwrap_or_default();
        // If `etherparse` refuses a frame, it has reported all earlier claims.
        for option in NdpOptionsIterator::from_slice(options).map_while(Result::ok) {
            found.extend(match option {
                NdpOptionSlice::SourceLinkLayerAddress(option) => option.link_layer_address().try_into().ok(),
                NdpOptionSlice::TargetLinkLayerAddress(option) => option.link_layer_address().try_into().ok(),
                _ => None::<[u8; 6]>,
            });
        }
    }
    found
}

fn attack() -> impl Strategy<Value = Vec<u8>> {
    let mac = || prop_oneof![Just(OWN), Just(VRRP), Just(OTHER)];
    let option = prop_oneof![Just(SOURCE), Just(TARGET)];
    let arp = mac().prop_map(|mac| [&[8, 6][..], &arp(2, mac, "10.0.0.1", "10.0.0.2")].concat());
    let header = (prop_oneof![Just(0_u8), Just(43), Just(60), Just(44)], 0..4_usize);
    let neighbour =
        (133..138_u8, option, mac(), mac(), prop::option::of(header)).prop_map(|(kind, option, one, two, header)| {
            let mut message = ndp(Kind::of(kind).expect("one of the five"), "fe80::9", Some((option, one)));
            message.extend([&[option.0, 1], &two.0[..]].concat());
            match header {
                None => neighbour(&message),
                Some((44, _)) => packet(LINK_LOCAL, 44, &[&fragment(58, 0, false), &message]),
                Some((first, units)) => {
                    let mut header = vec![0; 8 + units * 8];
                    header[..2].copy_from_slice(&[58, u8::try_from(units).expect("small")]);
                    packet(LINK_LOCAL, first, &[&header, &message])
                }
            }
        });
    let tags = prop::collection::vec(prop_oneof![Just([0x81, 0, 0, 5]), Just([0x88, 0xa8, 0, 6])], 0..3);
    let damage = prop::collection::vec((12..110_usize, any::<u8>()), 0..3);
    (tags, prop_oneof![arp, neighbour], damage, 0..8_usize).prop_map(|(tags, payload, damage, cut)| {
        let mut frame = frame(OWN, &[&tags.concat(), &payload]);
        for (at, byte) in damage {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        let len = frame.len();
        frame.truncate(if cut == 7 { len - 5 } else { len });
        frame
    })
}

#[test]
fn a_claim_behind_an_old_kind_of_tag_does_not_pass() {
    let arp = [0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 2, 10, 0, 0, 1, 2, 0, 0, 0, 0, 2, 10, 0, 0, 2];
    let frame = frame(OWN, &[&[0x91, 0, 0, 5, 8, 6], &arp]);
    assert_eq!(their_claims(&frame), [[2, 0, 0, 0, 0, 2]]);
    assert!(matches!(decides(&check(), &frame), Err(Fault::Hidden(_))));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 4000, ..ProptestConfig::default() })]

    /// A frame in which another parser finds a claim of a foreign address does not pass.
    #[test]
    fn no_claim_that_another_reader_finds_passes(frame in attack()) {
        let check = check();
        let claims = their_claims(&frame);
        if claims.iter().any(|&mac| !check.allows(MacAddr(mac))) {
            prop_assert!(decides(&check, &frame).is_err(), "{claims:02x?} in {frame:02x?}");
        }
    }

    /// A truncated frame is refused, or decided like the complete frame. Nothing panics.
    #[test]
    fn what_is_not_visible_changes_no_verdict(frame in attack(), visible in 0..120_usize, listed: bool) {
        let check = if listed { with_ips() } else { check() };
        let whole = decides(&check, &frame);
        let part = check.decide(&frame[..visible.min(frame.len())], frame.len());
        if part.is_ok() {
            prop_assert_eq!(part, whole);
        }
    }
}
