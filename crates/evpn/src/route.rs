//! EVPN routes as the process knows them: RFC 7432 section 7, with the VNI as label (RFC 8365
//! section 5.1.3).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use straightline_wire::MacAddr;

/// The largest VNI: 24 bits.
pub const MAX_VNI: u32 = (1 << 24) - 1;

/// The tunnel type of VXLAN in the encapsulation community (RFC 8365 section 11).
pub const VXLAN: u32 = 8;

/// The tunnel type of ingress replication in a PMSI attribute (RFC 6514 section 5).
pub const INGRESS_REPLICATION: u32 = 6;

/// A route distinguisher: eight bytes, as on the wire (RFC 4364 section 4.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Distinguisher(pub [u8; 8]);

impl Distinguisher {
    /// Returns the distinguisher of type 1: an IPv4 address and a number.
    #[must_use]
    pub fn of_router(router: Ipv4Addr, number: u16) -> Self {
        let [a, b, c, d] = router.octets();
        let [high, low] = number.to_be_bytes();
        Self([0, 1, a, b, c, d, high, low])
    }
}

impl fmt::Display for Distinguisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [_, kind, value @ ..] = self.0;
        write_value(f, kind, value)
    }
}

impl fmt::Debug for Distinguisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Error of parsing a route distinguisher or a route target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no such value: use AS:NUMBER (\"65000:10010\"), AS:NUMBER below 65536 for an AS of four bytes, or \
     ADDRESS:NUMBER below 65536 (\"192.0.2.1:10\")"
)]
pub struct ParseValueError(String);

impl FromStr for Distinguisher {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, [a, b, c, d, e, f]) = parse_value(text)?;
        Ok(Self([0, kind, a, b, c, d, e, f]))
    }
}

/// A route target: an extended community of eight bytes, as on the wire (RFC 4360 section 4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target(pub [u8; 8]);

impl Target {
    /// Returns the target AS:VNI, as FRR derives it: of an AS of four bytes the lower two count.
    #[must_use]
    pub fn of_vni(asn: u32, vni: u32) -> Self {
        let [_, _, high, low] = asn.to_be_bytes();
        let [a, b, c, d] = vni.to_be_bytes();
        Self([0, 2, high, low, a, b, c, d])
    }

    /// Returns the target of RFC 8365 section 5.1.2.1: automatic, of type VXLAN, domain 0.
    #[must_use]
    pub fn of_rfc8365(asn: u32, vni: u32) -> Self {
        Self::of_vni(asn, 0x1000_0000 | vni)
    }

    /// Returns the target with AS 0, which stands for any AS. Targets without an AS stay.
    #[must_use]
    pub fn without_as(self) -> Self {
        let [kind, sub, a, b, c, d, e, f] = self.0;
        match kind {
            0 => Self([kind, sub, 0, 0, c, d, e, f]),
            2 => Self([kind, sub, 0, 0, 0, 0, e, f]),
            _ => Self([kind, sub, a, b, c, d, e, f]),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [kind, _, value @ ..] = self.0;
        write_value(f, kind, value)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Target {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, [a, b, c, d, e, f]) = parse_value(text)?;
        Ok(Self([kind, 2, a, b, c, d, e, f]))
    }
}

/// Writes the value of a distinguisher or target of type `kind`.
fn write_value(f: &mut fmt::Formatter<'_>, kind: u8, value: [u8; 6]) -> fmt::Result {
    let [a, b, c, d, e, g] = value;
    match kind {
        0 => write!(f, "{}:{}", u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, g])),
        1 => write!(f, "{}:{}", Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([e, g])),
        2 => write!(f, "{}:{}", u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, g])),
        _ => write!(f, "type {kind} {a:02x}{b:02x}{c:02x}{d:02x}{e:02x}{g:02x}"),
    }
}

/// Parses the value of a distinguisher or target. Returns its type and its six bytes.
fn parse_value(text: &str) -> Result<(u8, [u8; 6]), ParseValueError> {
    let wrong = || ParseValueError(text.to_owned());
    let (admin, number) = text.rsplit_once(':').ok_or_else(wrong)?;
    let number: u32 = number.parse().map_err(|_| wrong())?;
    if let Ok(address) = admin.parse::<Ipv4Addr>() {
        let [a, b, c, d] = address.octets();
        let [e, f] = u16::try_from(number).map_err(|_| wrong())?.to_be_bytes();
        return Ok((1, [a, b, c, d, e, f]));
    }
    let admin: u32 = admin.parse().map_err(|_| wrong())?;
    if let Ok(admin) = u16::try_from(admin) {
        let [a, b] = admin.to_be_bytes();
        let [c, d, e, f] = number.to_be_bytes();
        return Ok((0, [a, b, c, d, e, f]));
    }
    let [a, b, c, d] = admin.to_be_bytes();
    let [e, f] = u16::try_from(number).map_err(|_| wrong())?.to_be_bytes();
    Ok((2, [a, b, c, d, e, f]))
}

/// The identity of a route: equal keys replace each other (RFC 7432 sections 7.2 and 7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteKey {
    /// Type 2: a station, with an address of it or without.
    Station {
        /// The route distinguisher.
        rd: Distinguisher,
        /// The Ethernet tag.
        tag: u32,
        /// The station.
        mac: MacAddr,
        /// An address of the station.
        ip: Option<IpAddr>,
    },
    /// Type 3: a host that wants floods.
    Flood {
        /// The route distinguisher.
        rd: Distinguisher,
        /// The Ethernet tag.
        tag: u32,
        /// The originating router's address.
        origin: IpAddr,
    },
}

impl RouteKey {
    /// Returns the route distinguisher.
    #[must_use]
    pub fn rd(&self) -> Distinguisher {
        match self {
            Self::Station { rd, .. } | Self::Flood { rd, .. } => *rd,
        }
    }

    /// Returns the Ethernet tag.
    #[must_use]
    pub fn tag(&self) -> u32 {
        match self {
            Self::Station { tag, .. } | Self::Flood { tag, .. } => *tag,
        }
    }
}

impl fmt::Display for RouteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Station { rd, tag, mac, ip: None } => write!(f, "station {mac} tag {tag} rd {rd}"),
            Self::Station { rd, tag, mac, ip: Some(ip) } => write!(f, "station {mac} {ip} tag {tag} rd {rd}"),
            Self::Flood { rd, tag, origin } => write!(f, "flood {origin} tag {tag} rd {rd}"),
        }
    }
}

/// The mobility of a station (RFC 7432 section 7.7). Without the community the sequence number is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mobility {
    /// The station may not move.
    pub sticky: bool,
    /// The number of moves.
    pub sequence: u32,
}

/// A PMSI tunnel attribute (RFC 6514 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pmsi {
    /// The tunnel type.
    pub kind: u32,
    /// The label: the VNI.
    pub label: u32,
}

/// A route, sent or received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The route's identity.
    pub key: RouteKey,
    /// The host behind which the station is, or that wants floods.
    pub next_hop: IpAddr,
    /// The label of a station's route: the VNI.
    pub label: u32,
    /// The Ethernet segment of a station is not zero.
    pub has_segment: bool,
    /// The route targets.
    pub targets: Vec<Target>,
    /// The tunnel types of encapsulation communities.
    pub encapsulations: Vec<u32>,
    /// The mobility community.
    pub mobility: Mobility,
    /// The PMSI tunnel of a route of type 3.
    pub pmsi: Option<Pmsi>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_the_bytes_of_the_wire() {
        let bytes = |text: &str| text.parse::<Target>().expect("a target").0;
        assert_eq!(bytes("65000:10010"), [0, 2, 0xfd, 0xe8, 0, 0, 0x27, 0x1a]);
        assert_eq!(bytes("4200000000:100"), [2, 2, 0xfa, 0x56, 0xea, 0, 0, 100]);
        assert_eq!(bytes("192.0.2.1:7"), [1, 2, 192, 0, 2, 1, 0, 7]);
        assert_eq!(Target::of_vni(65000, 10010).to_string(), "65000:10010");
        // FRR keeps the lower half of an AS of four bytes.
        assert_eq!(Target::of_vni(4_200_000_000, 10010).to_string(), "59904:10010");
        // RFC 8365: A = 0, type 1 (VXLAN), domain 0.
        assert_eq!(Target::of_rfc8365(65000, 10010).0, [0, 2, 0xfd, 0xe8, 0x10, 0, 0x27, 0x1a]);
        assert_eq!(Target::of_vni(65000, 10010).without_as(), Target::of_vni(1, 10010).without_as());
    }

    #[test]
    fn values_are_read_as_they_are_written() {
        for text in ["0:1", "65535:4294967295", "65536:65535", "10.0.0.1:0"] {
            assert_eq!(text.parse::<Target>().expect(text).to_string(), text);
            assert_eq!(text.parse::<Distinguisher>().expect(text).to_string(), text);
        }
        for text in ["", "1", "a:b", "65536:65536", "10.0.0.1:65536", "4294967296:1", "1:4294967296", "1:2:3"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
