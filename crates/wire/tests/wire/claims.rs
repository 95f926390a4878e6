//! Messages that claim addresses (ARP, neighbour discovery), parsed by this crate and by
//! `etherparse`.

use etherparse::ArpPacketSlice;
use etherparse::icmpv6::{NdpOptionSlice, NdpOptionsIterator};
use proptest::prelude::*;
use straightline_wire::{EtherType, MacAddr, WireError, arp, ndp, payload, vlan};

/// Returns the addresses in the options of a message of `len` bytes. `visible` is its beginning.
fn addresses(visible: &[u8], len: usize) -> Result<Vec<MacAddr>, WireError> {
    let header = ndp::Header::new_checked(visible)?;
    let found = header.options(len).map(|option| option?.link_address()).collect::<Result<Vec<_>, _>>()?;
    Ok(found.into_iter().flatten().collect())
}

/// Returns the addresses that `etherparse` finds. `None` if it refuses the options, or if an
/// address is not six bytes long.
fn their_addresses(options: &[u8]) -> Option<Vec<MacAddr>> {
    let mut found = Vec::new();
    for option in NdpOptionsIterator::from_slice(options) {
        let address = match option.ok()? {
            NdpOptionSlice::SourceLinkLayerAddress(option) => option.link_layer_address(),
            NdpOptionSlice::TargetLinkLayerAddress(option) => option.link_layer_address(),
            _ => continue,
        };
        found.push(MacAddr(address.try_into().ok()?));
    }
    Some(found)
}

/// Strategy for a message: mostly whole options, with existing and other types. A length field is
/// sometimes wrong.
fn message() -> impl Strategy<Value = Vec<u8>> {
    // Types 3 to 5 are left out: `etherparse` checks their lengths, and this crate does not read
    // them.
    let option_type = prop_oneof![Just(1_u8), Just(2), 6..=255_u8];
    let option =
        (option_type, 1..4_usize, any::<[u8; 22]>(), prop_oneof![9 => Just(None), 1 => any::<u8>().prop_map(Some)])
            .prop_map(|(option_type, units, data, wrong)| {
                let length = wrong.unwrap_or_else(|| u8::try_from(units).expect("below 4"));
                [&[option_type, length], &data[..units * 8 - 2]].concat()
            });
    (133..=137_u8, prop::collection::vec(option, 0..5), 0..8_usize).prop_map(|(icmp_type, options, cut)| {
        let fixed = ndp::Kind::of(icmp_type).expect("one of the five").fixed_len();
        let mut message = vec![0; fixed];
        message[0] = icmp_type;
        message.extend(options.concat());
        let len = message.len();
        // Once in eight messages the last option is truncated.
        message.truncate(if cut == 7 { len.saturating_sub(3).max(fixed) } else { len });
        message
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn arp_is_read_as_they_read_it(mut bytes in prop::collection::vec(any::<u8>(), 28..40), is_ethernet in prop::bool::weighted(0.9)) {
        if is_ethernet {
            bytes[4..6].copy_from_slice(&[6, 4]);
        }
        let Ok(ours) = arp::Header::new_checked(&bytes) else {
            prop_assert_ne!(&bytes[4..6], &[6, 4]);
            return Ok(());
        };
        let theirs = ArpPacketSlice::from_slice(&bytes).unwrap();
        prop_assert_eq!((theirs.hw_addr_type().0, theirs.proto_addr_type().0), (ours.hardware_type(), ours.protocol_type().0));
        prop_assert_eq!(theirs.operation().0, ours.operation().0);
        prop_assert_eq!(theirs.sender_hw_addr(), &ours.sender_mac().0);
        prop_assert_eq!(theirs.sender_protocol_addr(), &ours.sender_ip().octets());
        prop_assert_eq!(theirs.target_hw_addr(), &ours.target_mac().0);
        prop_assert_eq!(theirs.target_protocol_addr(), &ours.target_ip().octets());
        let mut again = [0; arp::LEN];
        arp::Repr::parse(&ours).emit(&mut again).unwrap();
        prop_assert_eq!(&again[6..], &bytes[6..28]);
    }

    #[test]
    fn neighbour_options_are_read_as_they_read_them(message in message()) {
        let fixed = ndp::Kind::of(message[0]).unwrap().fixed_len();
        prop_assert_eq!(addresses(&message, message.len()).ok(), their_addresses(&message[fixed..]));
    }

    /// A part of a message never yields other addresses than the whole message.
    #[test]
    fn what_is_not_visible_is_refused_or_hides_no_address(message in message(), visible in 0..140_usize) {
        let visible = &message[..visible.min(message.len())];
        if let Ok(found) = addresses(visible, message.len()) {
            prop_assert_eq!(Ok(found), addresses(&message, message.len()));
        }
    }

    #[test]
    fn tags_are_stepped_over_as_by_the_walk_that_knows_two(bytes in prop::collection::vec(any::<u8>(), 0..40), types in any::<[u8; 3]>()) {
        let mut bytes = bytes;
        for (at, which) in [12, 16, 20].into_iter().zip(types) {
            if let (Some(field), 0..3) = (bytes.get_mut(at..at + 2), which % 4) {
                field.copy_from_slice(&[[0x81, 0], [0x88, 0xa8], [8, 6]][usize::from(which % 4)]);
            }
        }
        let Ok(tags) = vlan::skip(&bytes) else {
            prop_assert_eq!(payload(&bytes), Err(WireError::Truncated));
            return Ok(());
        };
        if tags.ether_type.0 >= 0x600 && !tags.ether_type.is_vlan() {
            prop_assert_eq!(payload(&bytes), Ok((tags.ether_type, tags.payload)));
        } else if let Ok((_, at)) = payload(&bytes) {
            prop_assert!(at >= tags.payload && at <= bytes.len());
        }
    }

    #[test]
    fn no_bytes_make_them_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), len in 0..200_usize, icmp_type in 130..140_u8) {
        if let Ok((ether_type, at)) = payload(&bytes) {
            prop_assert!(at <= bytes.len() && ether_type != EtherType::VLAN);
        }
        let _ = arp::Header::new_checked(&bytes).map(|header| arp::Repr::parse(&header));
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = icmp_type;
        }
        if let Ok(header) = ndp::Header::new_checked(&bytes) {
            prop_assert!(header.options(len).count() <= len / 8 + 1);
            let _ = header.target();
        }
    }
}
