//! Fuzz target: a packet that comes to an underlay with tunnels of every kind.
//!
//! Invariants:
//! - The packet has one end: it goes inside by one tunnel, goes back as an answer, is used, or is
//!   dropped once. Only packets for the underlay itself are answered or used.
//! - What goes inside is the end of what came, but for the congestion mark and the Ethernet header
//!   that kinds with IP get.
//! - An answer is not longer than its question, unless it is an announcement of our address.

use std::cell::RefCell;

use crate::packets::LONGEST;
use crate::reached;
use crate::underlay::{Left, OWN_MAC, REMOTE_V4, REMOTE_V6, Rig};
use arbitrary::{Result, Unstructured};
use straightline_underlay::{Cookie, L2tpOver, TunnelKind};
use straightline_virtio::net_header::NetHeader;
use straightline_wire::{EtherType, ipv4, payload};

/// Bytes of the longest announcement of an address: Ethernet, IPv6, the message and its option.
const ADVERTISEMENT: usize = 14 + 40 + 24 + 8;

thread_local!(static RIG: RefCell<Rig> = RefCell::new(rig()));

/// The keys are those of the seeds.
fn rig() -> Rig {
    let cookie = |bytes: &[u8]| Cookie::new(bytes).expect("a right length");
    let l2tpv3 = |over, session, bytes: &[u8], l2spec| TunnelKind::L2tpv3 {
        over,
        session,
        peer_session: session,
        cookie: cookie(bytes),
        previous_cookie: None,
        peer_cookie: cookie(bytes),
        l2spec,
    };
    let gre = |key, ip| TunnelKind::Gre { key, checksum: false, ip };
    let long = [0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77];
    let udp = L2tpOver::Udp { port: 1701 };
    let vni = 0x12_3456;
    let v4 = [
        TunnelKind::Vxlan { vni },
        TunnelKind::VxlanGpe { vni, ip: false },
        TunnelKind::Geneve { vni, options: Vec::new() },
        gre(None, false),
        gre(Some(0xcafe_0001), false),
        TunnelKind::Nvgre { vsid: vni },
        TunnelKind::Gtpu { teid: 0x1122_3344, peer_teid: 1 },
        TunnelKind::MplsUdp { label: 0x1_2345, peer_label: 16 },
        l2tpv3(udp, 0x0102_0304, &[0x88, 0x99, 0xaa, 0xbb], true),
        l2tpv3(L2tpOver::Ip, 0x0102_0304, &[], true),
    ];
    let v6 = [
        l2tpv3(L2tpOver::Ip, u32::MAX, &long, false),
        l2tpv3(udp, 0x0102_0304, &long, false),
        TunnelKind::Vxlan { vni },
        TunnelKind::VxlanGpe { vni, ip: true },
        TunnelKind::Geneve { vni, options: Vec::new() },
        gre(Some(0xcafe_0001), false),
    ];
    let v4 = v4.into_iter().map(|kind| (kind, REMOTE_V4.into()));
    let v6 = v6.into_iter().map(|kind| (kind, REMOTE_V6.into()));
    Rig::new(&v4.chain(v6).collect::<Vec<_>>())
}

/// Runs one input.
pub(crate) fn fuzz(data: &[u8]) {
    let _ = RIG.with_borrow_mut(|rig| run(rig, &mut Unstructured::new(data)));
}

fn run(rig: &mut Rig, u: &mut Unstructured<'_>) -> Result<()> {
    let header = if u.ratio(1, 4)? { NetHeader::parse(&u.arbitrary()?) } else { NetHeader::default() };
    let splits: [u16; 3] = if u.ratio(1, 4)? { u.arbitrary()? } else { [u16::MAX; 3] };
    let repair: bool = u.arbitrary()?;
    let padding = if u.ratio(1, 8)? { u.int_in_range(0..=100_usize)? } else { 0 };
    let mut packet = u.bytes(u.len())?.to_vec();
    packet.resize(packet.len() + padding, 0xee);
    packet.truncate(LONGEST);
    if packet.len() < 14 {
        return Ok(());
    }
    if repair && let Some(Ok(mut header)) = packet.get_mut(14..).map(ipv4::Header::new_checked) {
        header.fill_checksum();
    }
    // Answers are limited for each second.
    rig.next_second();
    let ends = rig.receive(&packet, splits, header);
    let outside: Vec<&Left> = ends.outside.iter().collect();
    assert!(ends.inside.len() + outside.len() + ends.drops as usize <= 1, "one end: {ends:?}");
    if let [inside] = &ends.inside[..] {
        check_inside(rig, &packet, inside);
    } else if let [answer] = &outside[..] {
        assert!(answer.len as usize <= packet.len().max(ADVERTISEMENT), "{answer:?}");
        assert_eq!(answer.head[6..12], OWN_MAC.0);
        reached("an answer");
    } else if ends.drops == 0 {
        let ether_type = payload(&packet).expect("a packet for the underlay").0;
        assert!([EtherType::ARP, EtherType::IPV4, EtherType::IPV6].contains(&ether_type), "{ether_type:?}");
        reached("a packet that is used");
    } else {
        reached("a packet that is dropped");
    }
    Ok(())
}

fn check_inside(rig: &Rig, packet: &[u8], inside: &Left) {
    let tunnel = rig.tunnels.iter().find(|tunnel| tunnel.port() == inside.port).expect("the port of a tunnel");
    let kind = &tunnel.config().kind;
    // The head may be a part of the inner packet; all of it was in the packet that came.
    let (inner, len) = if kind.carries_ip() {
        (&inside.head[14..], inside.len as usize - 14)
    } else {
        (&inside.head[..], inside.len as usize)
    };
    assert!(len <= packet.len() && inside.len <= 1400 + 18, "{len}");
    let is_same = |candidate: &[u8]| {
        // A mark of congestion changes two bits, and the checksum of IPv4.
        let different = candidate.iter().zip(inner).filter(|(a, b)| a != b).count();
        different <= 3
    };
    assert!(packet.windows(inner.len()).any(is_same), "the inner packet was in the outer one");
    match kind.as_str() {
        "l2tpv3" => reached("l2tpv3"),
        "vxlan" => reached("vxlan"),
        "geneve" => reached("geneve"),
        "gre" => reached("gre"),
        "nvgre" => reached("nvgre"),
        "vxlan-gpe" => reached("vxlan-gpe"),
        "gtpu" => reached("gtpu"),
        "mpls-udp" => reached("mpls-udp"),
        other => panic!("{other}"),
    }
}
