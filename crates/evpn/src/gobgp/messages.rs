//! Messages of GoBGP's API, written from its field numbers. Both versions number the fields of a
//! message alike. They differ in how a message of several kinds is wrapped: version 3 names the
//! kind in a `google.protobuf.Any`, version 4 has a field for each kind ([`Kind`]). So fields of
//! such a type are bytes here.

use prost::Message;

/// An address family.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Family {
    #[prost(int32, tag = "1")]
    pub(crate) afi: i32,
    #[prost(int32, tag = "2")]
    pub(crate) safi: i32,
}

/// A message without fields, and any message whose fields do not matter.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Empty {}

/// A path that is sent. GoBGP reads the bytes of BGP if they are there.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SentPath {
    #[prost(bool, tag = "5")]
    pub(crate) is_withdraw: bool,
    #[prost(message, optional, tag = "9")]
    pub(crate) family: Option<Family>,
    #[prost(bytes = "vec", tag = "20")]
    pub(crate) nlri: Vec<u8>,
    #[prost(bytes = "vec", repeated, tag = "21")]
    pub(crate) attributes: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AddPathRequest {
    #[prost(int32, tag = "1")]
    pub(crate) table: i32,
    #[prost(message, optional, tag = "3")]
    pub(crate) path: Option<SentPath>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeletePathRequest {
    #[prost(int32, tag = "1")]
    pub(crate) table: i32,
    #[prost(message, optional, tag = "3")]
    pub(crate) family: Option<Family>,
    #[prost(message, optional, tag = "4")]
    pub(crate) path: Option<SentPath>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListPathRequest {
    #[prost(int32, tag = "1")]
    pub(crate) table: i32,
    #[prost(message, optional, tag = "3")]
    pub(crate) family: Option<Family>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListPathResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) destination: Option<Destination>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Destination {
    #[prost(message, repeated, tag = "2")]
    pub(crate) paths: Vec<Path>,
}

/// A path that GoBGP tells.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Path {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) nlri: Vec<u8>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub(crate) attributes: Vec<Vec<u8>>,
    #[prost(bool, tag = "4")]
    pub(crate) best: bool,
    #[prost(bool, tag = "5")]
    pub(crate) is_withdraw: bool,
    #[prost(message, optional, tag = "9")]
    pub(crate) family: Option<Family>,
    #[prost(string, tag = "15")]
    pub(crate) neighbor: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchEventRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) peer: Option<Empty>,
    #[prost(message, optional, tag = "2")]
    pub(crate) table: Option<WatchTable>,
    /// Paths in one message, in version 4.
    #[prost(uint32, tag = "3")]
    pub(crate) batch_size: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchTable {
    #[prost(message, repeated, tag = "1")]
    pub(crate) filters: Vec<WatchFilter>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchFilter {
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchEventResponse {
    #[prost(message, optional, tag = "2")]
    pub(crate) peer: Option<PeerEvent>,
    #[prost(message, optional, tag = "3")]
    pub(crate) table: Option<TableEvent>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TableEvent {
    #[prost(message, repeated, tag = "2")]
    pub(crate) paths: Vec<Path>,
}

/// The kind of an event after the present state of all neighbours.
pub(crate) const END_OF_INIT: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PeerEvent {
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) peer: Option<Peer>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Peer {
    #[prost(message, optional, tag = "5")]
    pub(crate) state: Option<PeerState>,
}

/// The session state of an established session.
pub(crate) const ESTABLISHED: i32 = 6;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PeerState {
    #[prost(string, tag = "5")]
    pub(crate) address: String,
    #[prost(uint32, tag = "6")]
    pub(crate) asn: u32,
    #[prost(int32, tag = "13")]
    pub(crate) session: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetBgpResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) global: Option<Global>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Global {
    #[prost(uint32, tag = "1")]
    pub(crate) asn: u32,
    #[prost(string, tag = "2")]
    pub(crate) router_id: String,
}

/// A route of type 2 and, with its first fields only, one of type 1 or 5.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StationRoute {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) rd: Vec<u8>,
    #[prost(message, optional, tag = "2")]
    pub(crate) segment: Option<Segment>,
    #[prost(uint32, tag = "3")]
    pub(crate) tag: u32,
    #[prost(string, tag = "4")]
    pub(crate) mac: String,
    #[prost(string, tag = "5")]
    pub(crate) ip: String,
    #[prost(uint32, repeated, tag = "6")]
    pub(crate) labels: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Segment {
    #[prost(uint32, tag = "1")]
    pub(crate) kind: u32,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

/// A route of type 3.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FloodRoute {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) rd: Vec<u8>,
    #[prost(uint32, tag = "2")]
    pub(crate) tag: u32,
    #[prost(string, tag = "3")]
    pub(crate) origin: String,
}

/// A distinguisher whose administrator is a number.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct NumberedRd {
    #[prost(uint32, tag = "1")]
    pub(crate) admin: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) assigned: u32,
}

/// A distinguisher whose administrator is an address.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AddressRd {
    #[prost(string, tag = "1")]
    pub(crate) admin: String,
    #[prost(uint32, tag = "2")]
    pub(crate) assigned: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Reachable {
    #[prost(string, repeated, tag = "2")]
    pub(crate) next_hops: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Communities {
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub(crate) communities: Vec<Vec<u8>>,
}

/// A community whose administrator is an AS of two or four bytes.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AsCommunity {
    #[prost(bool, tag = "1")]
    pub(crate) is_transitive: bool,
    #[prost(uint32, tag = "2")]
    pub(crate) sub_type: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) asn: u32,
    #[prost(uint32, tag = "4")]
    pub(crate) local: u32,
}

/// A community whose administrator is an IPv4 address.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AddressCommunity {
    #[prost(bool, tag = "1")]
    pub(crate) is_transitive: bool,
    #[prost(uint32, tag = "2")]
    pub(crate) sub_type: u32,
    #[prost(string, tag = "3")]
    pub(crate) address: String,
    #[prost(uint32, tag = "4")]
    pub(crate) local: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EncapCommunity {
    #[prost(uint32, tag = "1")]
    pub(crate) tunnel_type: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MobilityCommunity {
    #[prost(bool, tag = "1")]
    pub(crate) is_sticky: bool,
    #[prost(uint32, tag = "2")]
    pub(crate) sequence: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PmsiTunnel {
    #[prost(uint32, tag = "2")]
    pub(crate) kind: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) label: u32,
}

/// A message of one of several kinds in version 3.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Any {
    #[prost(string, tag = "1")]
    pub(crate) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

/// The kinds that the process knows. Others have no kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A distinguisher with an AS of two bytes.
    RdAs2,
    /// A distinguisher with an address.
    RdAddress,
    /// A distinguisher with an AS of four bytes.
    RdAs4,
    /// A route of another type: 1, 4, 5 or 9.
    Other(u8),
    /// A route of type 2.
    Station,
    /// A route of type 3.
    Flood,
    Reachable,
    Communities,
    Pmsi,
    As2,
    Address,
    As4,
    Encap,
    Mobility,
}

/// A set of kinds: each with its name in version 3 and its field in version 4.
pub(crate) type Kinds = &'static [(Kind, &'static str, usize)];

pub(crate) const DISTINGUISHERS: Kinds = &[
    (Kind::RdAs2, "RouteDistinguisherTwoOctetASN", 1),
    (Kind::RdAddress, "RouteDistinguisherIPAddress", 2),
    (Kind::RdAs4, "RouteDistinguisherFourOctetASN", 3),
];

pub(crate) const ROUTES: Kinds = &[
    (Kind::Other(1), "EVPNEthernetAutoDiscoveryRoute", 5),
    (Kind::Station, "EVPNMACIPAdvertisementRoute", 6),
    (Kind::Flood, "EVPNInclusiveMulticastEthernetTagRoute", 7),
    (Kind::Other(4), "EVPNEthernetSegmentRoute", 8),
    (Kind::Other(5), "EVPNIPPrefixRoute", 9),
    (Kind::Other(9), "EVPNIPMSIRoute", 10),
];

pub(crate) const ATTRIBUTES: Kinds = &[
    (Kind::Reachable, "MpReachNLRIAttribute", 12),
    (Kind::Communities, "ExtendedCommunitiesAttribute", 14),
    (Kind::Pmsi, "PmsiTunnelAttribute", 17),
];

pub(crate) const COMMUNITIES: Kinds = &[
    (Kind::As2, "TwoOctetAsSpecificExtended", 2),
    (Kind::Address, "IPv4AddressSpecificExtended", 3),
    (Kind::As4, "FourOctetAsSpecificExtended", 4),
    (Kind::Encap, "EncapExtended", 8),
    (Kind::Mobility, "MacMobilityExtended", 13),
];
