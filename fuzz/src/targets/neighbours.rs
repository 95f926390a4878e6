//! Fuzz target: messages that claim addresses (ARP, neighbour discovery) and ICMP, from many
//! stations over many seconds, to an underlay with two next hops.
//!
//! Invariants:
//! - The table has the next hops of the tunnels and the fixed one, whatever strangers say.
//! - The fixed next hop keeps its address.
//! - A next hop gets an address only by an answer to a recent question. It gets another one only
//!   after the known one was asked three times.
//! - The underlay sends few packets: a turn without a message sends at most one for each next hop.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::reached;
use crate::underlay::{Ends, FIXED, Left, OWN_MAC, OWN_V4, OWN_V6, REMOTE_V4, REMOTE_V6, Rig};
use arbitrary::{Result, Unstructured};
use straightline_underlay::{Cookie, L2tpOver, NeighbourState, TunnelKind};
use straightline_virtio::net_header::NetHeader;
use straightline_wire::{EtherType, IpProtocol, MacAddr, arp, checksum, ethernet, icmpv4, icmpv6, ipv4, ipv6, ndp};

/// Messages and seconds of one input.
const MOST_EVENTS: usize = 200;
/// Seconds after a question in which an answer counts.
const RECENT: u32 = 4;

/// A next hop, as the messages so far let it be.
#[derive(Debug, Default)]
struct Model {
    mac: Option<MacAddr>,
    asked_at: Option<u32>,
    /// Questions since the last answer.
    questions: u32,
}

/// A claim of a message that was sent to us: this IP address has this MAC address.
type Claim = Option<(IpAddr, MacAddr)>;

/// Runs one input.
pub(crate) fn fuzz(data: &[u8]) {
    let _ = run(&mut Unstructured::new(data));
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let keyed = TunnelKind::L2tpv3 {
        over: L2tpOver::Ip,
        session: u32::MAX,
        peer_session: u32::MAX,
        cookie: Cookie::default(),
        previous_cookie: None,
        peer_cookie: Cookie::default(),
        l2spec: false,
    };
    let mut rig = Rig::new(&[(TunnelKind::Vxlan { vni: 1 }, REMOTE_V4.into()), (keyed, REMOTE_V6.into())]);
    let mut models: BTreeMap<IpAddr, Model> = BTreeMap::new();
    let mut second = 1;
    check_questions(&rig.next_second(), second, &mut models);
    for _ in 0..MOST_EVENTS {
        if u.is_empty() {
            break;
        }
        let claim = if u.ratio(1, 3)? {
            second += 1;
            let ends = rig.next_second();
            check_questions(&ends, second, &mut models);
            None
        } else {
            let (packet, claim) = message(u)?;
            let ends = rig.receive(&packet, [u16::MAX; 3], NetHeader::default());
            assert!(ends.outside.len() + ends.drops as usize <= 1 && ends.inside.is_empty(), "{ends:?}");
            check_answer(&ends);
            claim
        };
        check_table(&rig, claim, second, &mut models);
    }
    Ok(())
}

/// Notes the questions of a second.
fn check_questions(ends: &Ends, second: u32, models: &mut BTreeMap<IpAddr, Model>) {
    assert!(ends.inside.is_empty() && ends.outside.len() <= 2, "{ends:?}");
    for Left { head, .. } in &ends.outside {
        let ip = match ethernet::Header::new_checked(head).expect("Ethernet").ether_type() {
            EtherType::ARP => {
                let message = arp::Repr::parse(&arp::Header::new_checked(&head[14..]).expect("ARP"));
                assert_eq!((message.operation, message.sender_ip), (arp::Operation::REQUEST, OWN_V4));
                message.target_ip.into()
            }
            EtherType::IPV6 => {
                let header = ipv6::Header::new_checked(&head[14..]).expect("IPv6");
                let sum = header.pseudo_header_sum(IpProtocol::ICMPV6, header.payload_len().into());
                assert_eq!(checksum::add(sum, checksum::sum(&head[54..])), 0xffff);
                ndp::Header::new_checked(&head[54..]).expect("a message").target().expect("a target").into()
            }
            other => panic!("{other:?}"),
        };
        let model = models.entry(ip).or_default();
        model.asked_at = Some(second);
        model.questions += 1;
        reached("a question");
    }
}

/// Checks the headers and the checksums of an answer.
fn check_answer(ends: &Ends) {
    let Some(Left { head, .. }) = ends.outside.first() else { return };
    let link = ethernet::Header::new_checked(head).expect("Ethernet");
    assert_eq!(link.src(), OWN_MAC);
    match link.ether_type() {
        EtherType::ARP => {
            let message = arp::Repr::parse(&arp::Header::new_checked(&head[14..]).expect("ARP"));
            assert_eq!((message.operation, message.sender_mac), (arp::Operation::REPLY, OWN_MAC));
            reached("an answer of ARP");
        }
        EtherType::IPV4 => {
            let header = ipv4::Header::new_checked(&head[14..]).expect("IPv4");
            assert!(header.checksum_ok() && header.src() == OWN_V4);
            let message = &head[34..14 + usize::from(header.total_len())];
            assert_eq!(checksum::sum(message), 0xffff);
            reached("an echo over IPv4");
        }
        EtherType::IPV6 => {
            let header = ipv6::Header::new_checked(&head[14..]).expect("IPv6");
            let message = &head[54..54 + usize::from(header.payload_len())];
            let pseudo = header.pseudo_header_sum(IpProtocol::ICMPV6, message.len() as u32);
            assert_eq!(checksum::add(pseudo, checksum::sum(message)), 0xffff);
            assert_eq!(header.src(), OWN_V6);
            match message[0] {
                129 => reached("an echo over IPv6"),
                _ => reached("an advertisement"),
            }
        }
        other => panic!("{other:?}"),
    }
}

fn check_table(rig: &Rig, claim: Claim, second: u32, models: &mut BTreeMap<IpAddr, Model>) {
    let neighbours = rig.neighbours();
    let mut known: Vec<IpAddr> = vec![REMOTE_V4.into(), FIXED.0.into(), REMOTE_V6.into()];
    known.sort();
    assert_eq!(neighbours.iter().map(|neighbour| neighbour.ip).collect::<Vec<_>>(), known);
    for neighbour in neighbours {
        if neighbour.ip == IpAddr::from(FIXED.0) {
            assert_eq!((neighbour.mac, neighbour.state), (Some(FIXED.1), NeighbourState::Static));
            continue;
        }
        let model = models.entry(neighbour.ip).or_default();
        let answers = neighbour.age_s == Some(0)
            && claim.is_some_and(|(ip, mac)| ip == neighbour.ip && neighbour.mac == Some(mac));
        if neighbour.mac != model.mac
            && let Some(mac) = neighbour.mac
        {
            assert_eq!(claim, Some((neighbour.ip, mac)), "an address by an answer");
            let asked_at = model.asked_at.expect("an answer needs a question");
            assert!(second - asked_at <= RECENT, "{asked_at}, {second}");
            assert!(model.mac.is_none() || model.questions > 3, "{model:?}");
            match model.mac {
                None => reached("an answer"),
                Some(_) => reached("another address"),
            }
        }
        if neighbour.mac.is_none() && model.mac.is_some() {
            reached("a next hop that is gone");
        }
        if answers {
            model.questions = 0;
        }
        model.mac = neighbour.mac;
    }
}

/// Makes a message, and returns its claim if it is an answer for us.
fn message(u: &mut Unstructured<'_>) -> Result<(Vec<u8>, Claim)> {
    let src = station(u)?;
    let (packet, claim) = match u.int_in_range(0..=5_u8)? {
        0 | 1 => arp_message(u, src)?,
        2 | 3 => discovery(u, src)?,
        4 => (icmp(u, src)?, None),
        _ => {
            let mut bytes = u.bytes(u.len().min(100))?.to_vec();
            bytes.resize(bytes.len().max(14), 0);
            let claim = replied(&bytes);
            (bytes, claim)
        }
    };
    Ok((packet, claim))
}

fn station(u: &mut Unstructured<'_>) -> Result<MacAddr> {
    let last = u.int_in_range(0..=7_u8)?;
    Ok(match last {
        0 => MacAddr(u.arbitrary()?),
        last => MacAddr([2, 0, 0, 0, 0, last]),
    })
}

fn destination(u: &mut Unstructured<'_>) -> Result<MacAddr> {
    Ok(*u.choose(&[OWN_MAC, OWN_MAC, OWN_MAC, MacAddr::BROADCAST, MacAddr([0x33, 0x33, 0xff, 0, 0, 2])])?)
}

fn v4(u: &mut Unstructured<'_>) -> Result<Ipv4Addr> {
    Ok(*u.choose(&[REMOTE_V4, OWN_V4, FIXED.0, Ipv4Addr::new(10, 0, 0, 77), Ipv4Addr::UNSPECIFIED])?)
}

fn v6(u: &mut Unstructured<'_>) -> Result<Ipv6Addr> {
    let solicited = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 2);
    Ok(*u.choose(&[
        REMOTE_V6,
        OWN_V6,
        solicited,
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x77),
        Ipv6Addr::UNSPECIFIED,
    ])?)
}

fn begin(dst: MacAddr, src: MacAddr, ether_type: EtherType) -> Vec<u8> {
    let mut bytes = vec![0; ethernet::LEN];
    ethernet::Repr { dst, src, ether_type }.emit(&mut bytes).expect("space");
    bytes
}

fn arp_message(u: &mut Unstructured<'_>, src: MacAddr) -> Result<(Vec<u8>, Claim)> {
    let dst = destination(u)?;
    let repr = arp::Repr {
        operation: arp::Operation(u.int_in_range(1..=3)?),
        sender_mac: if u.ratio(7, 8)? { src } else { station(u)? },
        sender_ip: v4(u)?,
        target_mac: if u.ratio(7, 8)? { OWN_MAC } else { station(u)? },
        target_ip: v4(u)?,
    };
    let mut bytes = begin(dst, src, EtherType::ARP);
    let mut message = [0; arp::LEN];
    repr.emit(&mut message).expect("space");
    bytes.extend(message);
    let claim = replied(&bytes);
    Ok((bytes, claim))
}

/// Returns the claim of a frame if it is an ARP reply to us.
fn replied(frame: &[u8]) -> Claim {
    let link = ethernet::Header::new_checked(frame).ok()?;
    if (link.dst(), link.ether_type()) != (OWN_MAC, EtherType::ARP) {
        return None;
    }
    let message = arp::Repr::parse(&arp::Header::new_checked(&frame[ethernet::LEN..]).ok()?);
    let is_reply = message.operation == arp::Operation::REPLY && message.target_ip == OWN_V4;
    is_reply.then_some((message.sender_ip.into(), message.sender_mac))
}

fn discovery(u: &mut Unstructured<'_>, from: MacAddr) -> Result<(Vec<u8>, Claim)> {
    let dst_mac = destination(u)?;
    let src = v6(u)?;
    let dst = v6(u)?;
    let target = v6(u)?;
    let kind = *u.choose(&[ndp::Kind::NeighborSolicitation, ndp::Kind::NeighborAdvertisement])?;
    let (option_type, named) = match kind {
        ndp::Kind::NeighborAdvertisement => (ndp::OptionType::TARGET_LINK_ADDRESS, station(u)?),
        _ => (ndp::OptionType::SOURCE_LINK_ADDRESS, station(u)?),
    };
    let link_address = u.ratio(3, 4)?.then_some((option_type, named));
    let repr = ndp::Repr { kind, flags: ndp::Flags(u.arbitrary()?), target, link_address };
    let mut message = vec![0; 32];
    let len = repr.emit(&mut message).expect("space");
    message.truncate(len);
    if u.ratio(1, 16)?
        && let Some(byte) = message.get_mut(u.int_in_range(0..=31_usize)?)
    {
        *byte = u.arbitrary()?;
    }
    icmpv6::fill_checksum(&mut message, src, dst).expect("a checksum field");
    let hop_limit = if u.ratio(15, 16)? { 255 } else { 64 };
    let bytes = ip6(begin(dst_mac, from, EtherType::IPV6), src, dst, hop_limit, &message);
    let claim = if dst_mac == OWN_MAC && dst == OWN_V6 { advertised(&message, from) } else { None };
    Ok((bytes, claim))
}

/// Returns the claim of an advertisement: the last address that an option names, else the sender's.
fn advertised(message: &[u8], from: MacAddr) -> Claim {
    let header = ndp::Header::new_checked(message).ok()?;
    let target = header.target().filter(|_| header.kind() == ndp::Kind::NeighborAdvertisement)?;
    let mut mac = from;
    for option in header.options(message.len()).flatten() {
        if option.option_type == ndp::OptionType::TARGET_LINK_ADDRESS {
            mac = option.link_address().ok().flatten()?;
        }
    }
    Some((target.into(), mac))
}

fn ip6(mut bytes: Vec<u8>, src: Ipv6Addr, dst: Ipv6Addr, hop_limit: u8, message: &[u8]) -> Vec<u8> {
    let payload_len = message.len() as u16;
    let next_header = IpProtocol::ICMPV6;
    let mut header = [0; ipv6::LEN];
    let repr = ipv6::Repr { traffic_class: 0, flow_label: 0, payload_len, next_header, hop_limit, src, dst };
    repr.emit(&mut header).expect("space");
    bytes.extend(header);
    bytes.extend(message);
    bytes
}

/// Makes an echo request, or an error about a packet of ours.
fn icmp(u: &mut Unstructured<'_>, from: MacAddr) -> Result<Vec<u8>> {
    let body: Vec<u8> = u.bytes(u.len().min(64))?.to_vec();
    let ident = 7;
    let sequence = 1;
    let is_echo = u.arbitrary::<bool>()?;
    if u.arbitrary()? {
        let src = v4(u)?;
        let dst = v4(u)?;
        let repr = if is_echo {
            icmpv4::Repr::EchoRequest { ident, sequence }
        } else {
            icmpv4::Repr::FragmentationNeeded { mtu: u.arbitrary()? }
        };
        let mut message = vec![0; icmpv4::LEN];
        repr.emit(&mut message, checksum::sum(&body)).expect("space");
        message.extend(&body);
        let mut header = [0; ipv4::MIN_LEN];
        let repr = ipv4::Repr {
            tos: 0,
            payload_len: message.len() as u16,
            ident: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol: IpProtocol::ICMP,
            src,
            dst,
        };
        repr.emit(&mut header).expect("space");
        return Ok([begin(destination(u)?, from, EtherType::IPV4), header.to_vec(), message].concat());
    }
    let src = v6(u)?;
    let dst = v6(u)?;
    let repr = if is_echo {
        icmpv6::Repr::EchoRequest { ident, sequence }
    } else {
        icmpv6::Repr::TooBig { mtu: u.arbitrary()? }
    };
    let mut message = vec![0; icmpv6::LEN];
    repr.emit(&mut message, 0).expect("space");
    message.extend(&body);
    icmpv6::fill_checksum(&mut message, src, dst).expect("a checksum field");
    Ok(ip6(begin(destination(u)?, from, EtherType::IPV6), src, dst, 64, &message))
}
