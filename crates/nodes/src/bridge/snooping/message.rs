//! The meaning of a frame for snooping: a packet to a group, or a message about groups.
//!
//! Frames without tags are read, and those with priority tags. What is damaged, forged or too long to be
//! seen whole is no message.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use straightline_wire::group_records::{GroupRecords, RecordType, code8};
use straightline_wire::{EtherType, IpProtocol, IpVersion, WireError, igmp, ipv4, ipv6, mld, pim, vlan};

use super::groups::Change;
use super::key::is_tracked;
use super::timing::Timing;

/// The part of a frame that can be seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visible<'a> {
    /// The first bytes of the frame.
    pub(super) head: &'a [u8],
    /// The length of the frame.
    pub(super) len: usize,
    /// The checksum of the transport header is not in its field: it is left to others.
    pub(super) is_unsummed: bool,
}

/// The meaning of a frame.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Meaning<'a> {
    /// It goes to all ports, and says nothing.
    Other,
    /// Its meaning lies behind too many priority tags.
    Hidden,
    /// A packet to a group that the table may know.
    Packet(IpAddr),
    /// Hosts join and leave groups.
    Report(Report<'a>),
    /// A querier asks all hosts.
    GeneralQuery(IpVersion, Timing),
    /// A router announces itself.
    Hello(IpVersion),
    /// A message that must not be used.
    Invalid,
    /// A message that ends behind the head, at this offset in the frame.
    Long(usize, LongMessage),
}

/// A message that is longer than the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LongMessage {
    /// A report.
    Report,
    /// Another one.
    Other,
}

/// A report: one change, or records of changes that were found to be whole.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Report<'a> {
    One(IpAddr, Change),
    Igmp(igmp::Repr<'a>),
    Mld(mld::Repr<'a>),
}

impl Report<'_> {
    /// Returns the protocol: IPv4 for IGMP, IPv6 for MLD.
    pub(super) fn version(&self) -> IpVersion {
        match self {
            Self::One(IpAddr::V4(_), _) | Self::Igmp(_) => IpVersion::V4,
            Self::One(IpAddr::V6(_), _) | Self::Mld(_) => IpVersion::V6,
        }
    }

    /// Returns the changes to groups that the table may know.
    pub(super) fn changes(&self) -> impl Iterator<Item = (IpAddr, Change)> {
        let one = match *self {
            Self::One(group, change) => Some((group, change)),
            _ => None,
        };
        let v4 = match self {
            Self::Igmp(report) => report.records(),
            _ => GroupRecords::new(&[], 0),
        };
        let v6 = match self {
            Self::Mld(report) => report.records(),
            _ => GroupRecords::new(&[], 0),
        };
        let v4 = v4.flatten().filter_map(|record| {
            Some((Ipv4Addr::from_octets(record.group).into(), change(record.record_type, record.sources.len())?))
        });
        let v6 = v6.flatten().filter_map(|record| {
            Some((Ipv6Addr::from_octets(record.group).into(), change(record.record_type, record.sources.len())?))
        });
        one.into_iter().chain(v4).chain(v6).filter(|(group, _)| is_tracked(*group))
    }
}

/// Returns the change of a record with this number of sources. Packets are not filtered by their sources:
/// who wants any source joins the group. To block sources is no leave, because others may be wanted.
fn change(record_type: RecordType, sources: usize) -> Option<Change> {
    match (record_type, sources) {
        (RecordType::IS_INCLUDE | RecordType::TO_INCLUDE, 0) => Some(Change::Leave),
        (RecordType::ALLOW, 0) => None,
        (RecordType::IS_INCLUDE | RecordType::TO_INCLUDE | RecordType::ALLOW, _)
        | (RecordType::IS_EXCLUDE | RecordType::TO_EXCLUDE, _) => Some(Change::Join),
        _ => None,
    }
}

impl<'a> Visible<'a> {
    /// Returns the meaning of the frame.
    pub(super) fn meaning(self) -> Meaning<'a> {
        match vlan::skip_priority(self.head) {
            Ok((EtherType::IPV4, l3)) => self.v4(l3),
            Ok((EtherType::IPV6, l3)) => self.v6(l3),
            Err(WireError::TooManyTags) => Meaning::Hidden,
            Ok(_) | Err(_) => Meaning::Other,
        }
    }

    /// Returns the bytes of the frame from `start` to `end`, or the meaning of a message that is not
    /// wholly visible.
    fn message(self, start: usize, end: usize, long: LongMessage) -> Result<&'a [u8], Meaning<'a>> {
        if end > self.len || start > end {
            return Err(Meaning::Invalid);
        }
        self.head.get(start..end).ok_or(Meaning::Long(end, long))
    }

    fn v4(self, l3: usize) -> Meaning<'a> {
        let Ok(header) = ipv4::Header::new_checked(&self.head[l3..]) else { return Meaning::Other };
        let group = header.dst();
        if !group.is_multicast() || !is_mapped_v4(self.head, group) {
            return Meaning::Other;
        }
        let start = l3 + header.header_len();
        let end = l3 + usize::from(header.total_len());
        match header.protocol() {
            IpProtocol::IGMP if header.is_fragment() || !header.checksum_ok() => Meaning::Invalid,
            IpProtocol::IGMP => self.igmp(&header, start, end).unwrap_or_else(|meaning| meaning),
            IpProtocol::PIM if group == pim::ALL_ROUTERS_V4 && !header.is_fragment() => {
                self.hello(start, end, 0, IpVersion::V4)
            }
            _ => packet(group.into()),
        }
    }

    fn igmp(self, header: &ipv4::Header<&[u8]>, start: usize, end: usize) -> Result<Meaning<'a>, Meaning<'a>> {
        let is_report = self.head.get(start) == Some(&igmp::Type::REPORT_V3.0);
        let long = if is_report { LongMessage::Report } else { LongMessage::Other };
        let bytes = self.message(start, end, long)?;
        let view = igmp::Header::new_checked(bytes).map_err(|_| Meaning::Invalid)?;
        // RFC 4541, 2.1.1, 4: a message with a wrong checksum must not be used.
        if !view.checksum_ok() {
            return Err(Meaning::Invalid);
        }
        // RFC 4541, 2.1.1, 3: messages of other types go to all ports.
        let Some(message) = igmp::Repr::parse(bytes).map_err(|_| Meaning::Invalid)? else { return Ok(Meaning::Other) };
        Ok(match message {
            igmp::Repr::ReportV1(group) => one(group.into(), header.dst().into(), Change::JoinV1),
            igmp::Repr::ReportV2(group) => one(group.into(), header.dst().into(), Change::Join),
            igmp::Repr::Leave(group) => Meaning::Report(Report::One(group.into(), Change::Leave)),
            igmp::Repr::ReportV3 { .. } if message.records().any(|record| record.is_err()) => Meaning::Invalid,
            igmp::Repr::ReportV3 { .. } => Meaning::Report(Report::Igmp(message)),
            igmp::Repr::Query { group, version } => {
                // RFC 4541, 2.1.1, 1: a switch sends with the source 0.0.0.0, so no router is there.
                let is_general = group.is_unspecified() && header.dst() == igmp::ALL_HOSTS;
                if !is_general || header.src().is_unspecified() {
                    return Ok(Meaning::Other);
                }
                let named = match version {
                    igmp::QueryVersion::V3 { robustness, interval, .. } => Some((robustness, code8(interval))),
                    _ => None,
                };
                let response_ms = u32::from(version.max_response()) * 100;
                Meaning::GeneralQuery(IpVersion::V4, Timing::new(response_ms, named))
            }
        })
    }

    fn v6(self, l3: usize) -> Meaning<'a> {
        let payload = l3 + ipv6::LEN;
        let Ok(header) = ipv6::Header::new_checked(&self.head[l3..]) else { return Meaning::Other };
        let group = header.dst();
        if !group.is_multicast() || !is_mapped_v6(self.head, group) {
            return Meaning::Other;
        }
        let end = payload + usize::from(header.payload_len());
        if header.next_header() == IpProtocol::PIM && group == pim::ALL_ROUTERS_V6 {
            let len = u32::from(header.payload_len());
            return self.hello(payload, end, header.pseudo_header_sum(IpProtocol::PIM, len), IpVersion::V6);
        }
        // A message about groups has an alert in hop-by-hop options, and no other extension header.
        let is_icmp = matches!(header.next_header(), IpProtocol::HOP_BY_HOP | IpProtocol::ICMPV6);
        let options = &self.head[payload..];
        let message = is_icmp.then(|| ipv6::skip_extensions(options, header.next_header()).ok()).flatten();
        let message = message.filter(|walked| walked.protocol == IpProtocol::ICMPV6 && !walked.fragment);
        let kind = message.and_then(|walked| Some((walked.len, mld::Kind::of(*options.get(walked.len)?)?)));
        match kind {
            Some((len, kind)) => {
                let has_alert =
                    header.next_header() == IpProtocol::HOP_BY_HOP && mld::has_router_alert(&options[..len]);
                // RFC 3810, 5: a message has a hop limit of 1 and a router alert. RFC 2710, 3: the same.
                if !has_alert || header.hop_limit() != 1 {
                    return Meaning::Invalid;
                }
                self.mld(kind, &header, payload + len, end).unwrap_or_else(|meaning| meaning)
            }
            None => packet(group.into()),
        }
    }

    fn mld(
        self,
        kind: mld::Kind,
        header: &ipv6::Header<&[u8]>,
        start: usize,
        end: usize,
    ) -> Result<Meaning<'a>, Meaning<'a>> {
        let src = header.src();
        // Reports of a host that has no address yet have no source. RFC 3590, 4: switches use them.
        let may_send = src.is_unicast_link_local() || (kind != mld::Kind::Query && src.is_unspecified());
        if !may_send {
            return Err(Meaning::Invalid);
        }
        let long = if kind == mld::Kind::ReportV2 { LongMessage::Report } else { LongMessage::Other };
        let bytes = self.message(start, end, long)?;
        if !self.is_unsummed && !mld::checksum_ok(bytes, src, header.dst()) {
            return Err(Meaning::Invalid);
        }
        let Some(message) = mld::Repr::parse(bytes).map_err(|_| Meaning::Invalid)? else { return Ok(Meaning::Other) };
        Ok(match message {
            mld::Repr::Report(group) => one(group.into(), header.dst().into(), Change::Join),
            mld::Repr::Done(group) => Meaning::Report(Report::One(group.into(), Change::Leave)),
            mld::Repr::ReportV2 { .. } if message.records().any(|record| record.is_err()) => Meaning::Invalid,
            mld::Repr::ReportV2 { .. } => Meaning::Report(Report::Mld(message)),
            mld::Repr::Query { group, version } => {
                if !group.is_unspecified() || header.dst() != mld::ALL_NODES {
                    return Ok(Meaning::Other);
                }
                let named = match version {
                    mld::QueryVersion::V2 { robustness, interval, .. } => Some((robustness, code8(interval))),
                    mld::QueryVersion::V1 { .. } => None,
                };
                Meaning::GeneralQuery(IpVersion::V6, Timing::new(version.max_response(), named))
            }
        })
    }

    /// Returns the meaning of a PIM message. Other messages than a hello, and damaged ones, say nothing.
    fn hello(self, start: usize, end: usize, pseudo: u16, version: IpVersion) -> Meaning<'a> {
        let bytes = self.message(start, end, LongMessage::Other);
        if bytes.is_ok_and(|bytes| pim::is_hello(bytes, pseudo)) { Meaning::Hello(version) } else { Meaning::Other }
    }
}

fn packet<'a>(group: IpAddr) -> Meaning<'a> {
    if is_tracked(group) { Meaning::Packet(group) } else { Meaning::Other }
}

/// Returns the meaning of a report of one group, which is sent to that group (RFC 2236, 3; RFC 2710, 4).
fn one<'a>(group: IpAddr, sent_to: IpAddr, change: Change) -> Meaning<'a> {
    if group == sent_to { Meaning::Report(Report::One(group, change)) } else { Meaning::Invalid }
}

/// Returns whether the frame goes to the Ethernet address of this group (RFC 1112, 6.4). Otherwise
/// stations take it that have not joined the group.
fn is_mapped_v4(head: &[u8], group: Ipv4Addr) -> bool {
    let [_, b, c, d] = group.octets();
    head.starts_with(&[1, 0, 0x5e, b & 0x7f, c, d])
}

/// Returns whether the frame goes to the Ethernet address of this group (RFC 2464, 7).
fn is_mapped_v6(head: &[u8], group: Ipv6Addr) -> bool {
    let [.., a, b, c, d] = group.octets();
    head.starts_with(&[0x33, 0x33, a, b, c, d])
}

#[cfg(test)]
mod tests;
