//! Any bytes: nothing panics, and each packet has exactly one end.

use proptest::prelude::*;
use straightline_packet::{Checksum, Offload};

use super::rig::{End, Kind, Rig};

fn rig() -> Rig {
    let kinds = Kind::all();
    let configs = kinds.iter().flat_map(|kind| [kind.config(true), kind.config(false)]);
    Rig::new(configs.collect())
}

/// A change of a packet.
#[derive(Clone, Debug)]
enum Change {
    Byte(usize, u8),
    Cut(usize),
    Insert(usize, Vec<u8>),
    Append(usize),
    /// Makes the checksum of an IPv4 header right, so that the headers behind it are reached.
    Checksum,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let at = prop_oneof![14..64_usize, 0..200_usize];
    let change = prop_oneof![
        6 => (at.clone(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        1 => at.clone().prop_map(Change::Cut),
        2 => (at, prop::collection::vec(any::<u8>(), 1..20)).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => (0..400_usize).prop_map(Change::Append),
        4 => Just(Change::Checksum),
    ];
    prop::collection::vec(change, 0..8)
}

fn apply(packet: &mut Vec<u8>, change: Change) {
    match change {
        Change::Byte(at, byte) => {
            if let Some(place) = packet.get_mut(at) {
                *place = byte;
            }
        }
        Change::Cut(len) => packet.truncate(len),
        Change::Insert(at, bytes) => {
            let at = at.min(packet.len());
            packet.splice(at..at, bytes);
        }
        Change::Append(len) => packet.resize(packet.len() + len, 0x55),
        Change::Checksum => {
            if packet.len() >= 14 + 60 {
                super::rig::fill_ipv4_checksum(&mut packet[14..]);
            }
        }
    }
}

/// Unfinished checksums whose fields lie in the first bytes, as ports let them through.
fn offloads() -> impl Strategy<Value = Option<(u16, u16)>> {
    prop_oneof![2 => Just(None), 1 => (14..120_u16, 0..30_u16).prop_map(Some)]
}

fn offload(partial: Option<(u16, u16)>, packet: &[u8]) -> Offload {
    match partial {
        Some((start, offset)) if usize::from(start + offset) + 2 <= packet.len() => {
            Offload { checksum: Checksum::Partial { start, offset }, gso: None }
        }
        _ => Offload::default(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn changed_packets_have_one_end(
        cases in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), changes(), offloads()), 1..40),
        leaves_unfinished: bool,
    ) {
        let kinds = Kind::all();
        let mut rig = rig();
        rig.underlay.set_leaves_unfinished(leaves_unfinished);
        for (at, v4, changes, partial) in cases {
            let kind = at.get(&kinds);
            let mut packet = kind.packet(v4, &kind.inner());
            let is_changed = !changes.is_empty();
            changes.into_iter().for_each(|change| apply(&mut packet, change));
            if packet.len() < 14 {
                continue;
            }
            let offload = offload(partial, &packet);
            let end = rig.send_unfinished(&packet, offload);
            if let End::Inside(_, bytes, left) = &end {
                assert!(bytes.len() >= 14 && bytes.len() < packet.len());
                if let Checksum::Partial { start, offset } = left.checksum {
                    assert!(usize::from(start + offset) + 2 <= bytes.len());
                }
            }
            assert!(is_changed || offload != Offload::default() || matches!(end, End::Inside(..)), "{end:?}");
        }
    }

    #[test]
    fn any_bytes_have_one_end(
        packets in prop::collection::vec((prop::collection::vec(any::<u8>(), 14..700), any::<bool>(), offloads()), 1..40),
        leaves_unfinished: bool,
    ) {
        let mut rig = rig();
        rig.underlay.set_leaves_unfinished(leaves_unfinished);
        for (mut packet, is_ours, partial) in packets {
            if is_ours {
                packet[..6].copy_from_slice(&super::rig::OWN.0);
                let ether_type = if packet[6] & 1 == 0 { [8, 0] } else { [0x86, 0xdd] };
                packet[12..14].copy_from_slice(&ether_type);
            }
            let offload = offload(partial, &packet);
            rig.send_unfinished(&packet, offload);
        }
    }

    /// A packet that resembles the one before it has the end that it would have alone.
    #[test]
    fn the_packet_before_decides_nothing(
        at in any::<prop::sample::Index>(), v4: bool, before in changes(), changes in changes(), partial in offloads(),
    ) {
        let kinds = Kind::all();
        let kind = at.get(&kinds);
        let configs = || vec![kind.config(v4), Kind::gre(0x20, false, 0x6558, &[0x12, 0x34, 0x56, 0x70]).config(v4)];
        let mut first = kind.packet(v4, &kind.inner());
        before.into_iter().for_each(|change| apply(&mut first, change));
        let mut packet = first.clone();
        changes.into_iter().for_each(|change| apply(&mut packet, change));
        packet.resize(packet.len().max(14), 0);
        first.resize(first.len().max(14), 0);
        let offload = offload(partial, &packet);
        let alone = Rig::new(configs()).send_unfinished(&packet, offload);
        let mut rig = Rig::new(configs());
        // A template is made of the second packet.
        rig.send(&first);
        rig.send(&first);
        assert_eq!(rig.send_unfinished(&packet, offload), alone);
    }

    /// A batch of many packets has the ends of its packets.
    #[test]
    fn a_batch_loses_nothing(
        cases in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), changes()), 1..100),
    ) {
        let kinds = Kind::all();
        let packets: Vec<_> = cases.into_iter().map(|(at, v4, changes)| {
            let kind = at.get(&kinds);
            let mut packet = kind.packet(v4, &kind.inner());
            changes.into_iter().for_each(|change| apply(&mut packet, change));
            packet.resize(packet.len().max(14), 0);
            (packet, Offload::default())
        }).collect();
        let mut one = rig();
        let ends = packets.iter().map(|(packet, _)| one.send(packet)).filter(|end| *end != End::Used);
        let one_by_one: Vec<_> = ends.collect();
        let mut together = rig().send_all(packets);
        for end in one_by_one {
            let at = together.iter().position(|other| *other == end).expect("the same end");
            together.swap_remove(at);
        }
        assert!(together.is_empty(), "{together:?}");
    }
}
