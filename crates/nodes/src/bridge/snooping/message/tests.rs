//! Messages that are used, and all the ways in which they must not be.

use proptest::collection::vec;
use proptest::prelude::*;
use straightline_wire::group_records::GroupRecord;

use super::super::frames::*;
use super::*;

const GROUP_V4: Ipv4Addr = Ipv4Addr::new(239, 129, 2, 3);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 1, 2);

fn whole(frame: &[u8]) -> Visible<'_> {
    Visible { head: frame, len: frame.len(), is_unsummed: false }
}

fn meaning(frame: &[u8]) -> Meaning<'_> {
    whole(frame).meaning()
}

/// Returns the records of a report as bytes.
fn records<const N: usize>(records: &[(RecordType, [u8; N], usize)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &(record_type, group, sources) in records {
        let sources = vec![[9; N]; sources];
        let record = GroupRecord { record_type, group, sources: &sources };
        let mut buffer = vec![0; record.record_len()];
        record.emit(&mut buffer).unwrap();
        bytes.extend(buffer);
    }
    bytes
}

fn changes(frame: &[u8]) -> Vec<(IpAddr, Change)> {
    match meaning(frame) {
        Meaning::Report(report) => report.changes().collect(),
        other => panic!("{other:?}"),
    }
}

/// All kinds of messages that are used.
fn messages() -> Vec<Vec<u8>> {
    let v4 = records(&[(RecordType::TO_EXCLUDE, GROUP_V4.octets(), 0), (RecordType::ALLOW, [224, 1, 1, 1], 2)]);
    let v6 = records(&[(RecordType::TO_INCLUDE, GROUP_V6.octets(), 0)]);
    vec![
        igmp(GROUP_V4, igmp::Repr::ReportV1(GROUP_V4)),
        igmp(GROUP_V4, igmp::Repr::ReportV2(GROUP_V4)),
        igmp(igmp::ALL_ROUTERS, igmp::Repr::Leave(GROUP_V4)),
        igmp(igmp::ALL_V3_ROUTERS, igmp::Repr::ReportV3 { count: 2, records: &v4 }),
        query(100),
        mld(GROUP_V6, mld::Repr::Report(GROUP_V6)),
        mld(mld::ALL_ROUTERS, mld::Repr::Done(GROUP_V6)),
        mld(mld::ALL_V2_ROUTERS, mld::Repr::ReportV2 { count: 1, records: &v6 }),
        query_v6(10_000),
    ]
}

#[test]
fn reports_join_and_leave() {
    let v4 = IpAddr::from(GROUP_V4);
    let v6 = IpAddr::from(GROUP_V6);
    let all: Vec<_> = messages();
    assert_eq!(changes(&all[0]), [(v4, Change::JoinV1)]);
    assert_eq!(changes(&all[1]), [(v4, Change::Join)]);
    assert_eq!(changes(&all[2]), [(v4, Change::Leave)]);
    assert_eq!(changes(&all[3]), [(v4, Change::Join), (Ipv4Addr::new(224, 1, 1, 1).into(), Change::Join)]);
    assert_eq!(changes(&all[5]), [(v6, Change::Join)]);
    assert_eq!(changes(&all[6]), [(v6, Change::Leave)]);
    assert_eq!(changes(&all[7]), [(v6, Change::Leave)]);
    let unspecified = mld_from(Ipv6Addr::UNSPECIFIED, GROUP_V6, mld::Repr::Report(GROUP_V6));
    assert_eq!(changes(&unspecified), [(v6, Change::Join)], "RFC 3590");
}

#[test]
fn a_message_behind_priority_tags_means_the_same() {
    for frame in messages() {
        let tagged = |tags: &[u8]| [&frame[..12], tags, &frame[12..]].concat();
        for count in 1..=4 {
            let tags = [0x81, 0, 0xe0, 0, 0x88, 0xa8, 0, 0].repeat(2);
            assert_eq!(meaning(&tagged(&tags[..4 * count])), meaning(&frame), "{count} tags");
        }
        assert_eq!(meaning(&tagged(&[0x81, 0, 0, 5])), Meaning::Other);
        assert_eq!(meaning(&tagged(&[0x81, 0, 0, 0, 0x81, 0, 0, 5])), Meaning::Other);
        assert_eq!(meaning(&tagged(&[0x81, 0, 0, 0].repeat(5))), Meaning::Hidden);
    }
}

#[test]
fn each_type_of_record_has_its_change() {
    let join = Some(Change::Join);
    let leave = Some(Change::Leave);
    let expected = [(0, None, None), (1, leave, join), (2, join, join), (3, leave, join), (4, join, join)];
    for (number, without, with) in expected.into_iter().chain([(5, None, join), (6, None, None), (7, None, None)]) {
        for (sources, change) in [(0, without), (2, with)] {
            let bytes = records(&[(RecordType(number), GROUP_V4.octets(), sources)]);
            let report = igmp(igmp::ALL_V3_ROUTERS, igmp::Repr::ReportV3 { count: 1, records: &bytes });
            let expected: Vec<_> = change.map(|change| (GROUP_V4.into(), change)).into_iter().collect();
            assert_eq!(changes(&report), expected, "type {number}, {sources} sources");
        }
    }
}

#[test]
fn groups_of_a_link_are_not_noted() {
    let mdns = Ipv4Addr::new(224, 0, 0, 251);
    assert_eq!(changes(&igmp(mdns, igmp::Repr::ReportV2(mdns))), []);
    let solicited = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff12, 0x3456);
    assert_eq!(changes(&mld(solicited, mld::Repr::Report(solicited))), []);
    let unicast = records(&[(RecordType::TO_EXCLUDE, [10, 0, 0, 7], 0)]);
    assert_eq!(changes(&igmp(igmp::ALL_V3_ROUTERS, igmp::Repr::ReportV3 { count: 1, records: &unicast })), []);
}

#[test]
fn general_queries_and_hellos_tell_of_routers() {
    assert_eq!(meaning(&query(50)), Meaning::GeneralQuery(IpVersion::V4, Timing::new(5000, None)));
    assert_eq!(meaning(&query_v6(1500)), Meaning::GeneralQuery(IpVersion::V6, Timing::new(1500, None)));
    let version =
        igmp::QueryVersion::V3 { max_response: 100, suppress: false, robustness: 3, interval: 0x91, sources: &[] };
    let v3 = igmp(igmp::ALL_HOSTS, igmp::Repr::Query { group: Ipv4Addr::UNSPECIFIED, version });
    assert_eq!(meaning(&v3), Meaning::GeneralQuery(IpVersion::V4, Timing::new(10_000, Some((3, 272)))));
    let version =
        mld::QueryVersion::V2 { max_response: 0x8000, suppress: false, robustness: 7, interval: 200, sources: &[] };
    let v2 = mld(mld::ALL_NODES, mld::Repr::Query { group: Ipv6Addr::UNSPECIFIED, version });
    assert_eq!(meaning(&v2), Meaning::GeneralQuery(IpVersion::V6, Timing::new(32_768, Some((7, code8(200))))));
    assert_eq!(meaning(&hello()), Meaning::Hello(IpVersion::V4));
    assert_eq!(meaning(&hello_v6()), Meaning::Hello(IpVersion::V6));
    // A query for one group, one of a switch without an address, and a damaged hello.
    let version = igmp::QueryVersion::V2 { max_response: 10 };
    assert_eq!(meaning(&igmp(GROUP_V4, igmp::Repr::Query { group: GROUP_V4, version })), Meaning::Other);
    let mut of_switch = vec![0; 8];
    igmp::Repr::Query { group: Ipv4Addr::UNSPECIFIED, version }.emit(&mut of_switch).unwrap();
    let of_switch = v4(Ipv4Addr::UNSPECIFIED, igmp::ALL_HOSTS, IpProtocol::IGMP, &of_switch);
    assert_eq!(meaning(&of_switch), Meaning::Other);
    let mut damaged = hello();
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(meaning(&damaged), Meaning::Other);
}

#[test]
fn packets_are_those_of_groups_that_may_be_pruned() {
    for group in [IpAddr::from(GROUP_V4), GROUP_V6.into()] {
        let frame = udp(group);
        assert_eq!(meaning(&frame), Meaning::Packet(group));
        let mut elsewhere = frame.clone();
        elsewhere[5] ^= 1;
        assert_eq!(meaning(&elsewhere), Meaning::Other, "the Ethernet address of another group");
        let tagged = [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
        assert_eq!(meaning(&tagged), Meaning::Other);
        assert_eq!(meaning(&frame[..20]), Meaning::Other, "no whole header");
    }
    // The highest bit of the lower 24 is not in the Ethernet address.
    assert_eq!(meaning(&udp(Ipv4Addr::new(239, 1, 2, 3).into())), Meaning::Packet(Ipv4Addr::new(239, 1, 2, 3).into()));
    for group in ["224.0.0.9", "ff02::fb", "ff02::1:ff00:1", "ff02::1"] {
        assert_eq!(meaning(&udp(group.parse().unwrap())), Meaning::Other, "{group}");
    }
    let extension = v6(HOST_V6, GROUP_V6, IpProtocol::DESTINATION_OPTIONS, &[17, 0, 1, 4, 0, 0, 0, 0], &[0; 20]);
    assert_eq!(meaning(&extension), Meaning::Packet(GROUP_V6.into()));
    let echo = v6(HOST_V6, GROUP_V6, IpProtocol::ICMPV6, &[], &[128, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(meaning(&echo), Meaning::Packet(GROUP_V6.into()));
}

#[test]
fn damaged_and_forged_messages_are_not_used() {
    for frame in messages() {
        let is_v4 = frame[12] == 8;
        assert!(matches!(meaning(&frame), Meaning::Report(_) | Meaning::GeneralQuery(..)), "{frame:x?}");
        let mut damaged = frame.clone();
        damaged[if is_v4 { 40 } else { 64 }] ^= 1;
        assert_eq!(meaning(&damaged), Meaning::Invalid, "a checksum");
        let unsummed = Visible { is_unsummed: true, ..whole(&damaged) }.meaning();
        assert_eq!(unsummed == Meaning::Invalid, is_v4, "a checksum that is left to others");
        let short = Visible { len: frame.len() - 1, ..whole(&frame) };
        assert_eq!(short.meaning(), Meaning::Invalid, "a frame that ends before its packet");
        let padded = [&frame[..], &[0xee; 9]].concat();
        assert_eq!(meaning(&padded), meaning(&frame), "padding is not summed");
        if is_v4 {
            let mut fragment = frame.clone();
            fragment[20] |= 0x20;
            ipv4::Header::new_checked(&mut fragment[14..]).unwrap().fill_checksum();
            assert_eq!(meaning(&fragment), Meaning::Invalid, "a fragment");
            let mut header = frame.clone();
            header[22] = 7;
            assert_eq!(meaning(&header), Meaning::Invalid, "the checksum of the header");
            continue;
        }
        let mut routed = frame.clone();
        routed[21] = 2;
        assert_eq!(meaning(&routed), Meaning::Invalid, "a hop limit of 2");
        let mut without_alert = frame.clone();
        without_alert[56] = 0x1e;
        assert_eq!(meaning(&without_alert), Meaning::Invalid, "another option");
    }
    let global = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    assert_eq!(meaning(&mld_from(global, GROUP_V6, mld::Repr::Report(GROUP_V6))), Meaning::Invalid);
    let version = mld::QueryVersion::V1 { max_response: 1 };
    let query = mld::Repr::Query { group: Ipv6Addr::UNSPECIFIED, version };
    assert_eq!(meaning(&mld_from(Ipv6Addr::UNSPECIFIED, mld::ALL_NODES, query)), Meaning::Invalid);
    // Reports of other groups than those they are sent to.
    assert_eq!(meaning(&igmp(GROUP_V4, igmp::Repr::ReportV2(HOST_V4))), Meaning::Invalid);
    assert_eq!(meaning(&mld(mld::ALL_NODES, mld::Repr::Report(GROUP_V6))), Meaning::Invalid);
    // More records than bytes.
    let report = igmp::Repr::ReportV3 { count: 2, records: &[4, 0, 0, 0, 239, 1, 1, 1] };
    assert_eq!(meaning(&igmp(igmp::ALL_V3_ROUTERS, report)), Meaning::Invalid);
    let unknown = v4(HOST_V4, igmp::ALL_HOSTS, IpProtocol::IGMP, &[0x30, 0, 0xcf, 0xff, 0, 0, 0, 0]);
    assert_eq!(meaning(&unknown), Meaning::Other, "a type that nobody knows");
}

#[test]
fn a_message_that_ends_behind_the_head_is_long() {
    for frame in messages() {
        let is_report = matches!(frame[38], 0x22) || frame.get(62) == Some(&143);
        for visible in 0..frame.len() {
            match (Visible { head: &frame[..visible], ..whole(&frame) }).meaning() {
                Meaning::Long(end, kind) => {
                    assert_eq!(end, frame.len());
                    let type_at = if frame[12] == 8 { 38 } else { 62 };
                    assert_eq!(kind == LongMessage::Report, is_report && visible > type_at, "{visible}");
                }
                // Headers that are not visible say nothing.
                Meaning::Other | Meaning::Packet(_) => assert!(visible < 63),
                other => panic!("{visible}: {other:?}"),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..120), len in 0..2000_usize, is_unsummed: bool) {
        let meaning = Visible { head: &bytes, len, is_unsummed }.meaning();
        if let Meaning::Report(report) = meaning {
            prop_assert!(report.changes().count() <= bytes.len() / 8);
        }
    }

    /// A few bytes of a good message are changed. What is still used has right checksums, so the bytes
    /// that they cover are other ones only if two changes cancel each other out.
    #[test]
    fn a_changed_byte_makes_no_other_message(
        which in 0..9_usize, at: prop::sample::Index, byte: u8, cut: prop::sample::Index,
    ) {
        let frame = messages().swap_remove(which);
        let mut changed = frame.clone();
        // Behind the Ethernet addresses, the type and the fields of IPv6 that no checksum covers.
        let at = if frame[12] == 8 { 14 + at.index(frame.len() - 14) } else { 62 + at.index(frame.len() - 62) };
        changed[at] = byte;
        let now = meaning(&changed);
        let is_used = matches!(now, Meaning::Report(_) | Meaning::GeneralQuery(..));
        prop_assert!(!is_used || changed == frame, "{at}: {now:?}");
        let cut = cut.index(frame.len());
        let _ = Visible { head: &changed[..cut], len: frame.len(), is_unsummed: true }.meaning();
    }
}
