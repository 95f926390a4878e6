//! IGMP, MLD and PIM: beside `etherparse` where it knows the message, what is built is read back, and no
//! bytes make a parser panic.

use etherparse::igmp::ReportGroupRecordV3SliceIter;
use etherparse::{IgmpSlice, IgmpType};
use proptest::collection::vec;
use proptest::prelude::*;
use straightline_wire::group_records::{GroupRecord, GroupRecords, RecordType};
use straightline_wire::{WireError, igmp, mld, pim};

/// Strategy for a message of IGMP: mostly of a known type, with lengths and counts that often fit.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![8 => prop::sample::select(vec![0x11, 0x12, 0x16, 0x17, 0x22]), 1 => any::<u8>()];
    (kind, vec(any::<u8>(), 7..80), 0..4_u8, 0..4_u8).prop_map(|(kind, rest, records, sources)| {
        let mut bytes = [&[kind][..], &rest].concat();
        for (at, byte) in [(6, 0), (7, records), (8, 5), (9, 0), (10, 0), (11, sources)] {
            if let Some(field) = bytes.get_mut(at).filter(|_| kind == 0x22 || (kind == 0x11 && at > 9)) {
                *field = byte;
            }
        }
        bytes
    })
}

/// A record as the other parser reads it.
type TheirRecord = (u8, [u8; 4], Vec<[u8; 4]>);

fn theirs(records: &[u8], count: u16) -> Vec<Option<TheirRecord>> {
    let records = ReportGroupRecordV3SliceIter::new(records, count);
    let read = records.map(|record| {
        let record = record.ok()?;
        Some((record.record_type().0, record.multicast_address(), record.source_addresses().collect()))
    });
    read.collect()
}

fn ours(records: GroupRecords<'_, 4>) -> Vec<Option<TheirRecord>> {
    let read = records.map(|record| {
        let record = record.ok()?;
        Some((record.record_type.0, record.group, record.sources.to_vec()))
    });
    read.collect()
}

/// Builds records of these types, groups and numbers of sources.
fn built<const N: usize>(records: &[(u8, [u8; N], u8)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &(record_type, group, sources) in records {
        let sources: Vec<[u8; N]> = (0..sources).map(|last| [last; N]).collect();
        let record = GroupRecord { record_type: RecordType(record_type), group, sources: &sources };
        let mut buffer = vec![0; record.record_len()];
        assert_eq!(record.emit(&mut buffer), Ok(record.record_len()));
        bytes.extend(buffer);
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn messages_of_igmp_are_read_as_they_read_them(bytes in message()) {
        let theirs_of = IgmpSlice::from_slice(&bytes);
        let parsed = igmp::Repr::parse(&bytes);
        let Ok(other) = theirs_of else {
            let is_v3 = matches!(parsed, Ok(Some(igmp::Repr::Query { version: igmp::QueryVersion::V3 { .. }, .. })));
            prop_assert!(!is_v3);
            return Ok(());
        };
        prop_assert_eq!(igmp::Header::new_checked(&bytes).unwrap().checksum_ok(), other.is_checksum_valid());
        match (parsed, other.igmp_type()) {
            (Ok(Some(igmp::Repr::Query { group, version })), IgmpType::MembershipQuery(query)) => {
                prop_assert_eq!(group.octets(), query.group_address.octets);
                let response = if query.max_response_time == 0 { 100 } else { query.max_response_time.into() };
                prop_assert_eq!(version.max_response(), response);
            }
            (Ok(Some(igmp::Repr::Query { group, version })), IgmpType::MembershipQueryWithSources(query)) => {
                prop_assert_eq!(group.octets(), query.group_address.octets);
                prop_assert_eq!(version.max_response(), query.max_response_code.as_10th_secs());
                let igmp::QueryVersion::V3 { robustness, interval, sources, suppress, .. } = version else {
                    panic!("{version:?}");
                };
                let read = (robustness, interval, suppress, sources.len());
                let expected = (query.qrv().value(), query.qqic, query.s_flag(), usize::from(query.num_of_sources));
                prop_assert_eq!(read, expected);
            }
            (Err(WireError::BadLength), IgmpType::MembershipQueryWithSources(query)) => {
                prop_assert!(usize::from(query.num_of_sources) * 4 > bytes.len() - igmp::QUERY_V3_LEN);
            }
            (Ok(Some(igmp::Repr::ReportV1(group))), IgmpType::MembershipReportV1(report)) => {
                prop_assert_eq!(group.octets(), report.group_address.octets);
            }
            (Ok(Some(igmp::Repr::ReportV2(group))), IgmpType::MembershipReportV2(report)) => {
                prop_assert_eq!(group.octets(), report.group_address.octets);
            }
            (Ok(Some(igmp::Repr::Leave(group))), IgmpType::LeaveGroup(leave)) => {
                prop_assert_eq!(group.octets(), leave.group_address.octets);
            }
            (Ok(Some(report @ igmp::Repr::ReportV3 { count, records })), IgmpType::MembershipReportV3(header)) => {
                prop_assert_eq!(count, header.num_of_records);
                prop_assert_eq!(ours(report.records()), theirs(records, count));
            }
            (Ok(None), _) => prop_assert!(bytes[0] == 0x11 || ![0x12, 0x16, 0x17, 0x22].contains(&bytes[0])),
            (ours, theirs) => prop_assert!(false, "{ours:?} {theirs:?}"),
        }
    }

    #[test]
    fn what_is_accepted_is_built_again(bytes in message(), kind in prop::sample::select(vec![130_u8, 131, 132, 143])) {
        if let Ok(Some(repr)) = igmp::Repr::parse(&bytes) {
            let mut again = vec![0; repr.message_len()];
            repr.emit(&mut again).unwrap();
            let built = igmp::Repr::parse(&again);
            prop_assert_eq!(built, Ok(Some(repr)));
            prop_assert!(igmp::Header::new_checked(&again).unwrap().checksum_ok());
        }
        let bytes = [&[kind][..], &bytes[1..]].concat();
        if let Ok(Some(repr)) = mld::Repr::parse(&bytes) {
            let mut again = vec![0; repr.message_len()];
            repr.emit(&mut again, mld::ALL_NODES, mld::ALL_ROUTERS).unwrap();
            prop_assert_eq!(mld::Repr::parse(&again), Ok(Some(repr)));
            prop_assert!(mld::checksum_ok(&again, mld::ALL_NODES, mld::ALL_ROUTERS));
        }
    }

    #[test]
    fn records_are_read_back(
        v4 in vec(any::<(u8, [u8; 4], u8)>(), 0..6), v6 in vec(any::<(u8, [u8; 16], u8)>(), 0..6), cut: prop::sample::Index,
    ) {
        let short = |sources: u8| sources % 4;
        let v4: Vec<_> = v4.into_iter().map(|(kind, group, sources)| (kind, group, short(sources))).collect();
        let bytes = built(&v4);
        let read = GroupRecords::<4>::new(&bytes, u16::try_from(v4.len()).unwrap()).map(|record| record.unwrap());
        let read: Vec<_> = read.map(|record| (record.record_type.0, record.group, u8::try_from(record.sources.len()).unwrap())).collect();
        prop_assert_eq!(&read, &v4);

        let v6: Vec<_> = v6.into_iter().map(|(kind, group, sources)| (kind, group, short(sources))).collect();
        let bytes = built(&v6);
        let read = |bytes| GroupRecords::<16>::new(bytes, u16::try_from(v6.len()).unwrap());
        prop_assert_eq!(read(&bytes).filter_map(Result::ok).count(), v6.len());
        // A part of a report never yields other records than the whole report.
        let cut = cut.index(bytes.len() + 1);
        let part: Vec<_> = read(&bytes[..cut]).map_while(Result::ok).collect();
        let whole: Vec<_> = read(&bytes).map_while(Result::ok).take(part.len()).collect();
        prop_assert_eq!(part, whole);
        prop_assert_eq!(read(&bytes[..cut]).any(|record| record.is_err()), cut < bytes.len());
    }

    #[test]
    fn no_bytes_make_them_panic(bytes in vec(any::<u8>(), 0..80), kind in 125..145_u8) {
        let _ = igmp::Repr::parse(&bytes).map(|repr| repr.map(|repr| repr.records().count()));
        let _ = (mld::has_router_alert(&bytes), pim::is_hello(&bytes, 0));
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        let _ = mld::Repr::parse(&bytes).map(|repr| repr.map(|repr| repr.records().count()));
    }
}
