//! Fuzz target: messages of IGMP, MLD and PIM: all of the input is one message.
//!
//! Invariants:
//! - The values of a message that is accepted build a message that has the same values.
//! - Records lie in the message, one behind the other.
//! - A message that is built has the right checksum.

use std::net::Ipv6Addr;

use crate::reached;
use straightline_wire::group_records::GroupRecords;
use straightline_wire::{WireError, igmp, mld, pim};

const SRC: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// Runs one input.
pub(crate) fn fuzz(data: &[u8]) {
    igmp_message(data);
    mld_message(data);
    options(data);
    if pim::is_hello(data, 0) {
        reached("a hello of PIM");
    }
}

fn igmp_message(data: &[u8]) {
    let parsed = igmp::Repr::parse(data);
    if parsed == Err(WireError::BadLength) {
        reached("a query of IGMP with too many sources");
    }
    let Ok(Some(message)) = parsed else { return };
    let mut built = vec![0; message.message_len()];
    assert_eq!(message.emit(&mut built), Ok(built.len()));
    assert_eq!(igmp::Repr::parse(&built), Ok(Some(message)));
    assert!(igmp::Header::new_checked(&built).expect("built").checksum_ok());
    match message {
        igmp::Repr::Query { version: igmp::QueryVersion::V3 { .. }, .. } => reached("a query of IGMPv3"),
        igmp::Repr::Query { .. } => reached("a query of IGMP"),
        igmp::Repr::ReportV3 { records, .. } => {
            if walk(message.records(), records) {
                reached("a report of IGMPv3");
            }
        }
        igmp::Repr::ReportV1(_) | igmp::Repr::ReportV2(_) => reached("a report of IGMP"),
        igmp::Repr::Leave(_) => reached("a leave of IGMP"),
    }
}

fn mld_message(data: &[u8]) {
    let Ok(Some(message)) = mld::Repr::parse(data) else { return };
    let mut built = vec![0; message.message_len()];
    assert_eq!(message.emit(&mut built, SRC, mld::ALL_NODES), Ok(built.len()));
    assert_eq!(mld::Repr::parse(&built), Ok(Some(message)));
    assert!(mld::checksum_ok(&built, SRC, mld::ALL_NODES));
    match message {
        mld::Repr::Query { version: mld::QueryVersion::V2 { .. }, .. } => reached("a query of MLDv2"),
        mld::Repr::Query { .. } => reached("a query of MLD"),
        mld::Repr::ReportV2 { records, .. } => {
            if walk(message.records(), records) {
                reached("a report of MLDv2");
            }
        }
        mld::Repr::Report(_) => reached("a report of MLD"),
        mld::Repr::Done(_) => reached("a leave of MLD"),
    }
}

/// Walks through records, and checks that they lie in `bytes` one behind the other. Returns whether there
/// was a whole one, and none that is not whole.
fn walk<const N: usize>(records: GroupRecords<'_, N>, bytes: &[u8]) -> bool {
    let mut at = 0;
    let mut count = 0;
    for record in records {
        let Ok(record) = record else {
            reached("a record that is too long");
            return false;
        };
        let auxiliary = usize::from(bytes[at + 1]) * 4;
        assert_eq!(record.record_type.0, bytes[at]);
        assert_eq!(record.group, bytes[at + 4..at + 4 + N]);
        at += record.record_len() + auxiliary;
        assert!(at <= bytes.len());
        count += 1;
    }
    count > 0
}

/// An option is found only if its four bytes are there.
fn options(data: &[u8]) {
    if mld::has_router_alert(data) {
        assert!(data[2..].windows(4).any(|option| option == [5, 2, 0, 0]));
        reached("a router alert");
    }
}
