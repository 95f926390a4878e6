//! MLD: the messages of ICMPv6 by which hosts join and leave groups of IPv6. Version 1 is RFC 2710;
//! version 2 is RFC 3810.
//!
//! ```text
//! | type 1 | code 1 | checksum 2 | maximum response code 2 | reserved 2 | group 16 |
//! query of version 2:  ... | S and robustness 1 | query interval code 1 | number of sources 2 | sources, 16 each |
//! report of version 2: | type 1 | reserved 1 | checksum 2 | reserved 2 | number of records 2 | records |
//! ```
//!
//! Each message is sent with a hop limit of 1, and with a router alert option
//! ([`has_router_alert`]) in front of it.

use std::net::Ipv6Addr;

use crate::field::{cleared, get, put, u16_at};
use crate::group_records::{GroupRecords, code16};
use crate::{IpProtocol, WireError, checksum, icmpv6};

/// Length of a message of version 1, in bytes.
pub const V1_LEN: usize = 24;

/// Length of a query of version 2 without sources, in bytes.
pub const QUERY_V2_LEN: usize = 28;

/// Length of a report of version 2 without records, in bytes.
pub const REPORT_LEN: usize = 8;

/// Address of all nodes, to which general queries go.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Address of all routers, to which hosts send that they leave a group.
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// Address of all routers that know version 2, to which reports of that version go.
pub const ALL_V2_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

/// Hop-by-hop options in front of a message: ICMPv6 follows, a router alert for MLD (RFC 2711, value
/// 0), and padding of two bytes.
pub const ROUTER_ALERT: [u8; 8] = [IpProtocol::ICMPV6.0, 0, ALERT, 2, 0, 0, PADDING_N, 0];

const PADDING_1: u8 = 0;
const PADDING_N: u8 = 1;
const ALERT: u8 = 5;

const TYPE: usize = 0;
const RESPONSE: usize = 4;
const RECORDS: usize = 6;
const GROUP: usize = 8;
const ROBUSTNESS: usize = 24;
const INTERVAL: usize = 25;
const SOURCES: usize = 26;

const SUPPRESS: u8 = 8;
const MAX_ROBUSTNESS: u8 = 7;

/// Messages of MLD. The number of each is its ICMPv6 type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A router asks who listens.
    Query = 130,
    /// A host of version 1 listens to a group.
    Report = 131,
    /// A host leaves a group.
    Done = 132,
    /// Groups to which a host of version 2 listens.
    ReportV2 = 143,
}

impl Kind {
    /// Returns the message of an ICMPv6 type; `None` if the type is not one of MLD.
    #[must_use]
    pub fn of(icmp_type: u8) -> Option<Self> {
        Some(match icmp_type {
            130 => Self::Query,
            131 => Self::Report,
            132 => Self::Done,
            143 => Self::ReportV2,
            _ => return None,
        })
    }
}

/// Returns whether hop-by-hop options have a router alert for MLD (RFC 2711, 2.1). `header` is the
/// extension header. Options behind its end do not count.
#[must_use]
pub fn has_router_alert(header: &[u8]) -> bool {
    let Some((&[_, units], options)) = header.split_first_chunk() else { return false };
    let len = usize::from(units) * 8 + 6;
    let mut rest = options.get(..len).unwrap_or(options);
    loop {
        rest = match *rest {
            [] => return false,
            [PADDING_1, ref behind @ ..] => behind,
            [ALERT, 2, 0, 0, ..] => return true,
            [_, len, ref behind @ ..] => behind.get(usize::from(len)..).unwrap_or_default(),
            [_] => return false,
        };
    }
}

/// Returns whether the checksum of the whole message in `bytes` is right.
#[must_use]
pub fn checksum_ok(bytes: &[u8], src: Ipv6Addr, dst: Ipv6Addr) -> bool {
    let Ok(len) = u32::try_from(bytes.len()) else { return false };
    let pseudo = checksum::pseudo_header_v6(src, dst, IpProtocol::ICMPV6, len);
    checksum::add(pseudo, checksum::sum(bytes)) == 0xffff
}

/// The version of a query, with the fields that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryVersion<'a> {
    /// Version 1.
    V1 {
        /// Time in which hosts answer, in milliseconds.
        max_response: u16,
    },
    /// Version 2.
    V2 {
        /// Code of the time in which hosts answer, in milliseconds ([`code16`]).
        max_response: u16,
        /// True if other routers keep their timers (the S flag).
        suppress: bool,
        /// The querier's robustness variable, at most 7. 0 means that it is larger than 7.
        robustness: u8,
        /// Code of the time between two general queries, in seconds
        /// ([`code8`](crate::group_records::code8)).
        interval: u8,
        /// Sources that the query asks for.
        sources: &'a [[u8; 16]],
    },
}

impl QueryVersion<'_> {
    /// Returns the time in which hosts answer, in milliseconds.
    #[must_use]
    pub fn max_response(self) -> u32 {
        match self {
            Self::V1 { max_response } => max_response.into(),
            Self::V2 { max_response, .. } => code16(max_response),
        }
    }
}

/// Values of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repr<'a> {
    /// A router asks who listens.
    Query {
        /// The group asked for; unspecified in a general query.
        group: Ipv6Addr,
        /// The version, with its fields.
        version: QueryVersion<'a>,
    },
    /// A host of version 1 listens to this group.
    Report(Ipv6Addr),
    /// A host leaves this group.
    Done(Ipv6Addr),
    /// Groups of a host of version 2.
    ReportV2 {
        /// The number of records.
        count: u16,
        /// The records, which may be followed by other bytes. [`GroupRecords`] reads them.
        records: &'a [u8],
    },
}

impl<'a> Repr<'a> {
    /// Reads the values of the message in `bytes`: a whole message of ICMPv6, because its length tells
    /// the version of a query. `None` for messages of other types, and for queries with a length that no
    /// version has (RFC 3810, 8.1). The lengths of records are not checked.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the message ends before its fields do; [`WireError::BadLength`] if a
    /// query has more sources than bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Self>, WireError> {
        let Some(kind) = Kind::of(*bytes.get(TYPE).ok_or(WireError::Truncated)?) else { return Ok(None) };
        let fixed = if kind == Kind::ReportV2 { REPORT_LEN } else { V1_LEN };
        if bytes.len() < fixed {
            return Err(WireError::Truncated);
        }
        let group = || Ipv6Addr::from_octets(get(bytes, GROUP));
        Ok(Some(match kind {
            Kind::Query => {
                let max_response = u16_at(bytes, RESPONSE);
                let version = match bytes.len() {
                    V1_LEN => QueryVersion::V1 { max_response },
                    ..QUERY_V2_LEN => return Ok(None),
                    _ => {
                        let count = usize::from(u16_at(bytes, SOURCES));
                        let sources = bytes[QUERY_V2_LEN..].as_chunks().0.get(..count).ok_or(WireError::BadLength)?;
                        let suppress = bytes[ROBUSTNESS] & SUPPRESS != 0;
                        let robustness = bytes[ROBUSTNESS] & MAX_ROBUSTNESS;
                        QueryVersion::V2 { max_response, suppress, robustness, interval: bytes[INTERVAL], sources }
                    }
                };
                Self::Query { group: group(), version }
            }
            Kind::Report => Self::Report(group()),
            Kind::Done => Self::Done(group()),
            Kind::ReportV2 => Self::ReportV2 { count: u16_at(bytes, RECORDS), records: &bytes[REPORT_LEN..] },
        }))
    }

    /// Returns the records of a report of version 2; none for other messages.
    #[must_use]
    pub fn records(&self) -> GroupRecords<'a, 16> {
        match *self {
            Self::ReportV2 { count, records } => GroupRecords::new(records, count),
            _ => GroupRecords::new(&[], 0),
        }
    }

    /// Returns the length of the message.
    #[must_use]
    pub fn message_len(&self) -> usize {
        match self {
            Self::Query { version: QueryVersion::V2 { sources, .. }, .. } => QUERY_V2_LEN + sources.len() * 16,
            Self::ReportV2 { records, .. } => REPORT_LEN + records.len(),
            _ => V1_LEN,
        }
    }

    /// Writes the message, checksum included, to the beginning of `buffer` and returns its length. The
    /// checksum covers the addresses of the IPv6 header.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] if `buffer` is shorter than the message; [`WireError::BadValue`] if
    /// the robustness is out of range, or there are more than 65 535 sources.
    pub fn emit(&self, buffer: &mut [u8], src: Ipv6Addr, dst: Ipv6Addr) -> Result<usize, WireError> {
        let len = self.message_len();
        let bytes = cleared(buffer, len)?;
        let mut with_group = |kind: Kind, group: Ipv6Addr| {
            bytes[TYPE] = kind as u8;
            put(bytes, GROUP, &group.octets());
        };
        match *self {
            Self::Query { group, version } => {
                with_group(Kind::Query, group);
                emit_version(bytes, version)?;
            }
            Self::Report(group) => with_group(Kind::Report, group),
            Self::Done(group) => with_group(Kind::Done, group),
            Self::ReportV2 { count, records } => {
                bytes[TYPE] = Kind::ReportV2 as u8;
                put(bytes, RECORDS, &count.to_be_bytes());
                put(bytes, REPORT_LEN, records);
            }
        }
        icmpv6::fill_checksum(bytes, src, dst)?;
        Ok(len)
    }
}

/// Writes the fields of a query that depend on its version.
fn emit_version(bytes: &mut [u8], version: QueryVersion<'_>) -> Result<(), WireError> {
    match version {
        QueryVersion::V1 { max_response } => put(bytes, RESPONSE, &max_response.to_be_bytes()),
        QueryVersion::V2 { max_response, suppress, robustness, interval, sources } => {
            if robustness > MAX_ROBUSTNESS {
                return Err(WireError::BadValue);
            }
            let count = u16::try_from(sources.len()).map_err(|_| WireError::BadValue)?;
            put(bytes, RESPONSE, &max_response.to_be_bytes());
            bytes[ROBUSTNESS] = if suppress { SUPPRESS } else { 0 } | robustness;
            bytes[INTERVAL] = interval;
            put(bytes, SOURCES, &count.to_be_bytes());
            put(bytes, QUERY_V2_LEN, sources.as_flattened());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    const GROUP_IP: Ipv6Addr = Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0x0102, 0x0304);

    fn built(repr: Repr<'_>) -> Vec<u8> {
        let mut bytes = vec![0xee; 80];
        let len = repr.emit(&mut bytes, HOST, ALL_NODES).unwrap();
        assert_eq!((len, bytes[len]), (repr.message_len(), 0xee));
        assert_eq!(repr.emit(&mut bytes[..len - 1], HOST, ALL_NODES), Err(WireError::BufferTooSmall));
        bytes.truncate(len);
        assert_eq!(Repr::parse(&bytes), Ok(Some(repr)));
        assert!(checksum_ok(&bytes, HOST, ALL_NODES) && !checksum_ok(&bytes, HOST, ALL_ROUTERS));
        bytes
    }

    #[test]
    fn fields_stand_where_they_should() {
        let report = built(Repr::Report(GROUP_IP));
        assert_eq!((report[0], &report[8..10], &report[20..]), (131, &[0xff, 0x0e][..], &[1, 2, 3, 4][..]));
        assert_eq!(built(Repr::Done(GROUP_IP))[0], 132);
        let v1 = built(Repr::Query { group: GROUP_IP, version: QueryVersion::V1 { max_response: 0x0102 } });
        assert_eq!((v1[0], &v1[4..6]), (130, &[1, 2][..]));
        let sources = [[7; 16]];
        let version =
            QueryVersion::V2 { max_response: 0x8000, suppress: true, robustness: 2, interval: 125, sources: &sources };
        let v2 = built(Repr::Query { group: Ipv6Addr::UNSPECIFIED, version });
        assert_eq!((&v2[4..6], &v2[24..29]), (&[0x80, 0][..], &[10, 125, 0, 1, 7][..]));
        assert_eq!(version.max_response(), 0x8000);
        let record = [&[4, 0, 0, 0][..], &GROUP_IP.octets()].concat();
        let report = built(Repr::ReportV2 { count: 1, records: &record });
        assert_eq!((report[0], &report[4..8]), (143, &[0, 0, 0, 1][..]));
        let records = Repr::parse(&report).unwrap().unwrap().records();
        assert_eq!(records.map(|record| record.unwrap().group).collect::<Vec<_>>(), [GROUP_IP.octets()]);
        assert_eq!(Repr::Done(GROUP_IP).records().count(), 0);
    }

    #[test]
    fn lengths_that_no_version_has_are_refused() {
        let version = QueryVersion::V2 { max_response: 0, suppress: false, robustness: 0, interval: 0, sources: &[] };
        let query = built(Repr::Query { group: GROUP_IP, version });
        for len in 0..24 {
            assert_eq!(Repr::parse(&query[..len]), Err(WireError::Truncated), "{len}");
        }
        for len in 25..28 {
            assert_eq!(Repr::parse(&query[..len]), Ok(None), "{len}");
        }
        let mut lie = query;
        lie[27] = 1;
        assert_eq!(Repr::parse(&lie), Err(WireError::BadLength));
        let report = built(Repr::ReportV2 { count: 0, records: &[] });
        assert_eq!(Repr::parse(&report[..7]), Err(WireError::Truncated));
        lie[0] = 128;
        assert_eq!(Repr::parse(&lie), Ok(None));
        let version = QueryVersion::V2 { max_response: 0, suppress: false, robustness: 8, interval: 0, sources: &[] };
        let query = Repr::Query { group: GROUP_IP, version };
        assert_eq!(query.emit(&mut [0; 28], HOST, ALL_NODES), Err(WireError::BadValue));
    }

    #[test]
    fn a_router_alert_is_found_behind_other_options() {
        assert!(has_router_alert(&ROUTER_ALERT));
        assert!(has_router_alert(&[58, 0, 0, 0, 5, 2, 0, 0]));
        assert!(has_router_alert(&[58, 1, 1, 0, 0x1e, 4, 1, 2, 3, 4, 5, 2, 0, 0, 1, 0]));
        let without: [&[u8]; 7] = [
            &[],
            &[58],
            &[58, 0, 1, 4, 0, 0, 0, 0],
            // An alert of RSVP.
            &[58, 0, 5, 2, 0, 1, 1, 0],
            // An option that ends behind the header.
            &[58, 0, 0x1e, 9, 5, 2, 0, 0],
            &[58, 0, 0, 0, 0, 0, 0, 5, 2, 0, 0, 0],
            // An alert behind the header.
            &[58, 0, 1, 4, 0, 0, 0, 0, 5, 2, 0, 0],
        ];
        for header in without {
            assert!(!has_router_alert(header), "{header:x?}");
        }
    }
}
