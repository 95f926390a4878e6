//! Packets whose checksum is to be finished later, and packets that are still to be segmented.

use proptest::prelude::*;
use straightline_packet::{Checksum, Gso, GsoKind, Offload};
use straightline_wire::checksum::{add, sum};
use straightline_wire::{IpProtocol, IpVersion, locate};

use super::generate::{flows, frame};
use super::*;

/// Returns a packet with the sum of the pseudo header in place of its checksum; `None` if it has none.
pub(super) fn partial(port: u16, bytes: &[u8]) -> Option<Carried> {
    let layers = locate(bytes).ok().filter(|layers| !layers.fragment)?;
    let field = usize::from(layers.checksum()?);
    if bytes[field..field + 2] == [0, 0] {
        return None;
    }
    let l3 = usize::from(layers.l3);
    let end = match layers.version {
        IpVersion::V4 => l3 + usize::from(u16::from_be_bytes([bytes[l3 + 2], bytes[l3 + 3]])),
        IpVersion::V6 => l3 + 40 + usize::from(u16::from_be_bytes([bytes[l3 + 4], bytes[l3 + 5]])),
    };
    let l4 = usize::from(layers.l4);
    // Padding would be summed.
    let mut bytes = bytes.get(..end)?.to_vec();
    let old = u16::from_be_bytes([bytes[field], bytes[field + 1]]);
    bytes[field..field + 2].fill(0);
    let pseudo = add(!old, !sum(&bytes[l4..]));
    bytes[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
    let checksum = Checksum::Partial { start: layers.l4, offset: u16::try_from(field - l4).unwrap() };
    let kind = match (layers.protocol, layers.version) {
        (IpProtocol::TCP, IpVersion::V4) => GsoKind::Tcp4,
        (IpProtocol::TCP, _) => GsoKind::Tcp6,
        (_, IpVersion::V4) => GsoKind::Udp4,
        (..) => GsoKind::Udp6,
    };
    let gso =
        Gso { kind, ecn: false, size: 4, l3: layers.l3, l4: layers.l4, header_len: layers.headers_len(), outer: None };
    let gso = (end % 2 == 1).then_some(gso);
    Some(Carried { port, bytes, offload: Offload { checksum, gso } })
}

/// Returns the packet with its finished checksum.
pub(super) fn finish(mut packet: Carried) -> Vec<u8> {
    let Checksum::Partial { start, offset } = packet.offload.checksum else { return packet.bytes };
    let start = usize::from(start);
    let field = start + usize::from(offset);
    let checksum = match !sum(&packet.bytes[start..]) {
        0 if offset == 6 => 0xffff,
        checksum => checksum,
    };
    packet.bytes[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    // It does not find headers behind three tags.
    if let (Some(gso), Ok(layers)) = (packet.offload.gso, locate(&packet.bytes)) {
        assert_eq!((gso.l3, gso.l4, gso.header_len), (layers.l3, layers.l4, layers.headers_len()));
    }
    packet.bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A packet whose checksum is finished last is the same as one whose checksum was there first.
    #[test]
    fn partial_checksums_follow_changes(
        flows in flows(),
        frames in proptest::collection::vec((0..PORTS, frame()), 1..24),
    ) {
        let partial: Vec<_> = frames.iter().filter_map(|(port, bytes)| partial(*port, bytes)).collect();
        let complete: Vec<_> = partial.iter().map(|packet| Carried::plain(packet.port, finish(packet.clone()))).collect();
        let mut rigs = [Rig::new(), Rig::new()];
        let [of_partial, of_complete] = [partial, complete].map(|packets| {
            let [first, second] = &mut rigs;
            let rig = if packets.iter().any(|packet| packet.offload != Offload::default()) { first } else { second };
            rig.publish(&flows);
            rig.send(packets)
        });
        for (of_partial, of_complete) in of_partial.into_iter().zip(of_complete) {
            let finished: Vec<_> = of_partial.into_iter().map(finish).collect();
            let complete: Vec<_> = of_complete.into_iter().map(|packet| packet.bytes).collect();
            prop_assert_eq!(finished, complete);
        }
        prop_assert_eq!(rigs[0].dropped(), rigs[1].dropped());
    }
}
