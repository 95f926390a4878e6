use super::*;
use proptest::prelude::*;

// Cites vhost-user-header-1, vhost-user-header-2.
#[test]
fn a_message_is_header_then_payload() {
    let message = Message::request(Request::SetVringNum, VringState { index: 1, num: 256 }.encode()).with_need_reply();
    let bytes = message.to_bytes();
    let expected: Vec<u8> = [8_u32, 0b1001, 8, 1, 256].iter().flat_map(|n| n.to_ne_bytes()).collect();
    assert_eq!(bytes, expected);
    let header = Header::decode(bytes.first_chunk().unwrap());
    assert_eq!(header, Header { request: 8, flags: 0b1001, size: 8 });
    assert!(message.needs_reply() && !message.is_reply() && message.version() == 1);
}

#[test]
fn payloads_of_every_other_length_are_refused() {
    for len in 0..200 {
        let bytes = vec![0; len];
        assert_eq!(decode_u64(&bytes).is_some(), len == 8);
        assert_eq!(VringState::decode(&bytes).is_some(), len == VringState::LEN);
        assert_eq!(VringAddr::decode(&bytes).is_some(), len == VringAddr::LEN);
        assert_eq!(LogSpec::decode(&bytes).is_some(), len == LogSpec::LEN);
        assert_eq!(RegionSpec::decode_single(&bytes).is_some(), len == RegionSpec::SINGLE_LEN);
        // No region at all, possibly with space for some.
        assert_eq!(RegionSpec::decode_table(&bytes).is_some(), len >= 8 && (len - 8) % RegionSpec::LEN == 0);
        assert_eq!(TransferSpec::decode(&bytes).is_some(), len == 8);
        assert_eq!(ConfigAccess::decode(&bytes).is_some(), len == ConfigAccess::HEADER_LEN);
        assert_eq!(InflightSpec::decode(&bytes).is_some(), len == 20 || len == 24);
    }
}

#[test]
fn a_table_s_count_must_agree_with_its_length() {
    let regions = [RegionSpec { guest_addr: 1, size: 2, user_addr: 3, mmap_offset: 4 }; 3];
    let good = RegionSpec::encode_table(&regions);
    assert_eq!(RegionSpec::decode_table(&good).as_deref(), Some(&regions[..]));
    let counted = |count: u32| {
        let mut bytes = good.clone();
        bytes[..4].copy_from_slice(&count.to_ne_bytes());
        RegionSpec::decode_table(&bytes)
    };
    for count in [4, 1 << 27, u32::MAX] {
        assert_eq!(counted(count), None);
    }
    for count in 0..=3 {
        assert_eq!(counted(count).as_deref(), Some(&regions[..count as usize]));
    }
    assert_eq!(RegionSpec::decode_table(&good[..good.len() - 1]), None);
    assert_eq!(RegionSpec::decode_table(&[&good[..], &[0]].concat()), None);
}

#[test]
fn a_read_of_the_configuration_may_come_without_contents() {
    let mut access = ConfigAccess { offset: 6, size: 4, flags: 1, bytes: vec![1, 2, 3, 4] };
    assert_eq!(ConfigAccess::decode(&access.encode()), Some(access.clone()));
    access.bytes.pop();
    assert_eq!(ConfigAccess::decode(&access.encode()), None);
    access.bytes.clear();
    assert_eq!(ConfigAccess::decode(&access.encode()), Some(access));
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(index: u32, flags: u32, a: u64, b: u64, c: u64, d: u64) {
        let state = VringState { index, num: flags };
        prop_assert_eq!(VringState::decode(&state.encode()), Some(state));
        let addr = VringAddr { index, flags, desc: a, used: b, avail: c, log: d };
        prop_assert_eq!(VringAddr::decode(&addr.encode()), Some(addr));
        let log = LogSpec { size: a, offset: b };
        prop_assert_eq!(LogSpec::decode(&log.encode()), Some(log));
        let region = RegionSpec { guest_addr: a, size: b, user_addr: c, mmap_offset: d };
        prop_assert_eq!(RegionSpec::decode_single(&region.encode_single()), Some(region));
        let [queues, queue_size] = [index, flags].map(|n| u16::try_from(n >> 16).unwrap());
        let inflight = InflightSpec { mmap_size: a, mmap_offset: b, queues, queue_size };
        prop_assert_eq!(InflightSpec::decode(&inflight.encode()), Some(inflight));
        prop_assert_eq!(InflightSpec::decode(&inflight.encode()[..InflightSpec::LEN]), Some(inflight));
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = (VringState::decode(&bytes), VringAddr::decode(&bytes), RegionSpec::decode_single(&bytes));
        if let Some(regions) = RegionSpec::decode_table(&bytes) {
            prop_assert!(8 + regions.len() * RegionSpec::LEN <= bytes.len());
        }
        if let Some(access) = ConfigAccess::decode(&bytes) {
            prop_assert!(access.bytes.len() + ConfigAccess::HEADER_LEN == bytes.len());
        }
    }
}
