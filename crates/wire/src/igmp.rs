//! IGMP: the messages by which hosts join and leave groups of IPv4. Version 1 is RFC 1112, appendix I;
//! version 2 is RFC 2236; version 3 is RFC 3376.
//!
//! ```text
//! | type 1 | maximum response code 1 | checksum 2 | group 4 |
//! query of version 3:  ... | S and robustness 1 | query interval code 1 | number of sources 2 | sources, 4 each |
//! report of version 3: | type 1 | reserved 1 | checksum 2 | reserved 2 | number of records 2 | records |
//! ```

use std::net::Ipv4Addr;

use crate::field::{cleared, get, put, u16_at};
use crate::group_records::{GroupRecords, code8};
use crate::{WireError, checksum};

/// Length of the shortest message, in bytes.
pub const MIN_LEN: usize = 8;

/// Length of a query of version 3 without sources, in bytes.
pub const QUERY_V3_LEN: usize = 12;

/// Address of all hosts, to which general queries go.
pub const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);

/// Address of all routers, to which hosts send that they leave a group.
pub const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);

/// Address of all routers that know version 3, to which reports of that version go.
pub const ALL_V3_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);

const TYPE: usize = 0;
const RESPONSE: usize = 1;
const CHECKSUM: usize = 2;
const GROUP: usize = 4;
const RECORDS: usize = 6;
const ROBUSTNESS: usize = 8;
const INTERVAL: usize = 9;
const SOURCES: usize = 10;

const SUPPRESS: u8 = 8;
const MAX_ROBUSTNESS: u8 = 7;

/// Type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Type(pub u8);

impl Type {
    /// A router asks who listens.
    pub const QUERY: Self = Self(0x11);
    /// A host of version 1 listens to a group.
    pub const REPORT_V1: Self = Self(0x12);
    /// A host of version 2 listens to a group.
    pub const REPORT_V2: Self = Self(0x16);
    /// A host leaves a group.
    pub const LEAVE: Self = Self(0x17);
    /// Groups to which a host of version 3 listens.
    pub const REPORT_V3: Self = Self(0x22);
}

/// View of a whole message.
#[derive(Clone, Copy, Debug)]
pub struct Header<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Header<T> {
    /// Creates a view of the message in `bytes`: all of the IP payload, because its length tells the
    /// version of a query. The checksum is not verified; see [`checksum_ok`](Self::checksum_ok).
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there are fewer than 8 bytes.
    pub fn new_checked(bytes: T) -> Result<Self, WireError> {
        if bytes.as_ref().len() < MIN_LEN { Err(WireError::Truncated) } else { Ok(Self { bytes }) }
    }

    /// Returns the type.
    #[must_use]
    pub fn message_type(&self) -> Type {
        Type(self.bytes.as_ref()[TYPE])
    }

    /// Returns whether the checksum is right. It covers the whole message (RFC 3376, 4.1.2).
    #[must_use]
    pub fn checksum_ok(&self) -> bool {
        checksum::sum(self.bytes.as_ref()) == 0xffff
    }

    /// Returns the field with the group. A report of version 3 has its groups in records.
    #[must_use]
    pub fn group(&self) -> Ipv4Addr {
        Ipv4Addr::from_octets(get(self.bytes.as_ref(), GROUP))
    }
}

/// The version of a query, with the fields that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryVersion<'a> {
    /// Version 1. Hosts answer within 10 seconds.
    V1,
    /// Version 2.
    V2 {
        /// Time in which hosts answer, in tenths of a second; not 0.
        max_response: u8,
    },
    /// Version 3.
    V3 {
        /// Code of the time in which hosts answer, in tenths of a second ([`code8`]).
        max_response: u8,
        /// True if other routers keep their timers (the S flag).
        suppress: bool,
        /// The querier's robustness variable, at most 7. 0 means that it is larger than 7.
        robustness: u8,
        /// Code of the time between two general queries, in seconds ([`code8`]).
        interval: u8,
        /// Sources that the query asks for.
        sources: &'a [[u8; 4]],
    },
}

impl QueryVersion<'_> {
    /// Returns the time in which hosts answer, in tenths of a second.
    #[must_use]
    pub fn max_response(self) -> u16 {
        match self {
            Self::V1 => 100,
            Self::V2 { max_response } => max_response.into(),
            Self::V3 { max_response, .. } => code8(max_response),
        }
    }
}

/// Values of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repr<'a> {
    /// A router asks who listens.
    Query {
        /// The group asked for; unspecified in a general query.
        group: Ipv4Addr,
        /// The version, with its fields.
        version: QueryVersion<'a>,
    },
    /// A host of version 1 listens to this group.
    ReportV1(Ipv4Addr),
    /// A host of version 2 listens to this group.
    ReportV2(Ipv4Addr),
    /// A host leaves this group.
    Leave(Ipv4Addr),
    /// Groups of a host of version 3.
    ReportV3 {
        /// The number of records.
        count: u16,
        /// The records, which may be followed by other bytes. [`GroupRecords`] reads them.
        records: &'a [u8],
    },
}

impl<'a> Repr<'a> {
    /// Reads the values of the message in `bytes`: all of the IP payload. `None` for messages of other
    /// types, and for queries with a length that no version has (RFC 3376, 7.1). The lengths of records
    /// are not checked.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there are fewer than 8 bytes; [`WireError::BadLength`] if a query has
    /// more sources than bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Self>, WireError> {
        let header = Header::new_checked(bytes)?;
        let group = header.group();
        Ok(Some(match header.message_type() {
            Type::QUERY => {
                let version = match (bytes.len(), bytes[RESPONSE]) {
                    (MIN_LEN, 0) => QueryVersion::V1,
                    (MIN_LEN, max_response) => QueryVersion::V2 { max_response },
                    (..QUERY_V3_LEN, _) => return Ok(None),
                    (_, max_response) => {
                        let count = usize::from(u16_at(bytes, SOURCES));
                        let sources = bytes[QUERY_V3_LEN..].as_chunks().0.get(..count).ok_or(WireError::BadLength)?;
                        let suppress = bytes[ROBUSTNESS] & SUPPRESS != 0;
                        let robustness = bytes[ROBUSTNESS] & MAX_ROBUSTNESS;
                        QueryVersion::V3 { max_response, suppress, robustness, interval: bytes[INTERVAL], sources }
                    }
                };
                Self::Query { group, version }
            }
            Type::REPORT_V1 => Self::ReportV1(group),
            Type::REPORT_V2 => Self::ReportV2(group),
            Type::LEAVE => Self::Leave(group),
            Type::REPORT_V3 => Self::ReportV3 { count: u16_at(bytes, RECORDS), records: &bytes[MIN_LEN..] },
            _ => return Ok(None),
        }))
    }

    /// Returns the records of a report of version 3; none for other messages.
    #[must_use]
    pub fn records(&self) -> GroupRecords<'a, 4> {
        match *self {
            Self::ReportV3 { count, records } => GroupRecords::new(records, count),
            _ => GroupRecords::new(&[], 0),
        }
    }

    /// Returns the length of the message.
    #[must_use]
    pub fn message_len(&self) -> usize {
        match self {
            Self::Query { version: QueryVersion::V3 { sources, .. }, .. } => QUERY_V3_LEN + sources.len() * 4,
            Self::ReportV3 { records, .. } => MIN_LEN + records.len(),
            _ => MIN_LEN,
        }
    }

    /// Writes the message, checksum included, to the beginning of `buffer` and returns its length.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] if `buffer` is shorter than the message; [`WireError::BadValue`] if
    /// the response time of a query of version 2 is 0, the robustness is out of range, or there are more
    /// than 65 535 sources.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let len = self.message_len();
        let bytes = cleared(buffer, len)?;
        let mut with_group = |message_type: Type, group: Ipv4Addr| {
            bytes[TYPE] = message_type.0;
            put(bytes, GROUP, &group.octets());
        };
        match *self {
            Self::Query { group, version } => {
                with_group(Type::QUERY, group);
                emit_version(bytes, version)?;
            }
            Self::ReportV1(group) => with_group(Type::REPORT_V1, group),
            Self::ReportV2(group) => with_group(Type::REPORT_V2, group),
            Self::Leave(group) => with_group(Type::LEAVE, group),
            Self::ReportV3 { count, records } => {
                bytes[TYPE] = Type::REPORT_V3.0;
                put(bytes, RECORDS, &count.to_be_bytes());
                put(bytes, MIN_LEN, records);
            }
        }
        let checksum = !checksum::sum(bytes);
        put(bytes, CHECKSUM, &checksum.to_be_bytes());
        Ok(len)
    }
}

/// Writes the fields of a query that depend on its version.
fn emit_version(bytes: &mut [u8], version: QueryVersion<'_>) -> Result<(), WireError> {
    match version {
        QueryVersion::V1 => {}
        QueryVersion::V2 { max_response: 0 } => return Err(WireError::BadValue),
        QueryVersion::V2 { max_response } => bytes[RESPONSE] = max_response,
        QueryVersion::V3 { max_response, suppress, robustness, interval, sources } => {
            if robustness > MAX_ROBUSTNESS {
                return Err(WireError::BadValue);
            }
            let count = u16::try_from(sources.len()).map_err(|_| WireError::BadValue)?;
            bytes[RESPONSE] = max_response;
            bytes[ROBUSTNESS] = if suppress { SUPPRESS } else { 0 } | robustness;
            bytes[INTERVAL] = interval;
            put(bytes, SOURCES, &count.to_be_bytes());
            put(bytes, QUERY_V3_LEN, sources.as_flattened());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP_IP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

    fn built(repr: Repr<'_>) -> Vec<u8> {
        let mut bytes = vec![0xee; 64];
        let len = repr.emit(&mut bytes).unwrap();
        assert_eq!((len, bytes[len]), (repr.message_len(), 0xee));
        assert_eq!(repr.emit(&mut bytes[..len - 1]), Err(WireError::BufferTooSmall));
        bytes.truncate(len);
        assert_eq!(Repr::parse(&bytes), Ok(Some(repr)));
        assert!(Header::new_checked(&bytes).unwrap().checksum_ok());
        bytes
    }

    #[test]
    fn fields_stand_where_they_should() {
        // The checksum is computed by hand.
        assert_eq!(built(Repr::ReportV2(GROUP_IP)), [0x16, 0, 0xf8, 0xfa, 239, 1, 2, 3]);
        assert_eq!(built(Repr::ReportV1(GROUP_IP))[0], 0x12);
        assert_eq!(built(Repr::Leave(GROUP_IP))[0], 0x17);
        let sources = [[10, 0, 0, 1]];
        let version =
            QueryVersion::V3 { max_response: 0x64, suppress: true, robustness: 2, interval: 125, sources: &sources };
        let query = built(Repr::Query { group: GROUP_IP, version });
        assert_eq!((&query[..2], &query[4..]), (&[0x11, 0x64][..], &[239, 1, 2, 3, 10, 125, 0, 1, 10, 0, 0, 1][..]));
        let report = built(Repr::ReportV3 { count: 1, records: &[4, 0, 0, 0, 239, 1, 2, 3] });
        assert_eq!((report[0], &report[4..8]), (0x22, &[0, 0, 0, 1][..]));
        let records = Repr::parse(&report).unwrap().unwrap().records();
        assert_eq!(records.map(|record| record.unwrap().group).collect::<Vec<_>>(), [[239, 1, 2, 3]]);
        assert_eq!(Repr::Leave(GROUP_IP).records().count(), 0);
    }

    #[test]
    fn the_length_tells_the_version_of_a_query() {
        let general = Ipv4Addr::UNSPECIFIED;
        let query = |version| built(Repr::Query { group: general, version });
        let v1 = query(QueryVersion::V1);
        let v2 = query(QueryVersion::V2 { max_response: 1 });
        let v3 =
            query(QueryVersion::V3 { max_response: 0xff, suppress: false, robustness: 0, interval: 0, sources: &[] });
        let response = |bytes: &[u8]| match Repr::parse(bytes) {
            Ok(Some(Repr::Query { version, .. })) => version.max_response(),
            other => panic!("{other:?}"),
        };
        assert_eq!([response(&v1), response(&v2), response(&v3)], [100, 1, 31_744]);
        for len in 9..12 {
            assert_eq!(Repr::parse(&v3[..len]), Ok(None), "{len}");
        }
        let mut lie = v3;
        lie[11] = 1;
        assert_eq!(Repr::parse(&lie), Err(WireError::BadLength));
    }

    #[test]
    fn others_are_refused() {
        let bytes = built(Repr::Leave(GROUP_IP));
        assert_eq!(Repr::parse(&bytes[..7]), Err(WireError::Truncated));
        let mut wrong = bytes.clone();
        wrong[7] ^= 1;
        assert!(!Header::new_checked(&wrong).unwrap().checksum_ok());
        // DVMRP and router discovery.
        for other in [0x13, 0x30] {
            wrong[0] = other;
            assert_eq!(Repr::parse(&wrong), Ok(None));
        }
        let emit = |version| Repr::Query { group: GROUP_IP, version }.emit(&mut [0; 12]);
        assert_eq!(emit(QueryVersion::V2 { max_response: 0 }), Err(WireError::BadValue));
        let version = QueryVersion::V3 { max_response: 0, suppress: false, robustness: 8, interval: 0, sources: &[] };
        assert_eq!(emit(version), Err(WireError::BadValue));
    }
}
