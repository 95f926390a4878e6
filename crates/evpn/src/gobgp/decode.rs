//! Paths that GoBGP tells, as routes.

use std::net::{IpAddr, Ipv4Addr};

use prost::{DecodeError, Message, decode_length_delimiter};
use straightline_wire::MacAddr;

use super::Version;
use super::messages::{
    ATTRIBUTES, AddressCommunity, AddressRd, Any, AsCommunity, COMMUNITIES, Communities, DISTINGUISHERS,
    EncapCommunity, FloodRoute, Kind, Kinds, MobilityCommunity, NumberedRd, Path, PmsiTunnel, ROUTES, Reachable,
    StationRoute,
};
use crate::encode::{AFI, SAFI};
use crate::route::{Distinguisher, Mobility, Pmsi, Route, RouteKey, Target};

/// A path of GoBGP's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// GoBGP has this route of a neighbour now.
    Route(Route),
    /// GoBGP has this path of its own, which a client of its API has added.
    Own(Route),
    /// GoBGP has no route with this key any more.
    Withdrawn(RouteKey),
    /// A route of this type, which the process does not use.
    Unused(u8),
    /// The route has a value that cannot be read.
    Malformed(String),
    /// A route of another address family.
    OtherFamily,
}

/// The fault of a path.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("{0}")]
    Message(#[from] DecodeError),
    #[error("{0}")]
    Value(&'static str),
}

impl Version {
    /// Reads a path.
    pub(crate) fn told(self, path: &Path) -> Told {
        let family = path.family.unwrap_or_default();
        if (family.afi, family.safi) != (AFI.into(), SAFI.into()) {
            return Told::OtherFamily;
        }
        self.read(path).unwrap_or_else(|fault| Told::Malformed(fault.to_string()))
    }

    fn read(self, path: &Path) -> Result<Told, Fault> {
        let (kind, bytes) = self.unwrap(ROUTES, &path.nlri)?.ok_or(Fault::Value("the route has an unknown type"))?;
        let mut label = 0;
        let mut has_segment = false;
        let key = match kind {
            Kind::Station => {
                let station = StationRoute::decode(&*bytes)?;
                let mac = station.mac.parse().map_err(|_| Fault::Value("the station is no MAC address"))?;
                label = station.labels.first().copied().unwrap_or_default();
                has_segment =
                    station.segment.as_ref().is_some_and(|s| s.kind != 0 || s.value.iter().any(|byte| *byte != 0));
                self.station_key(&station, mac)?
            }
            Kind::Flood => {
                let flood = FloodRoute::decode(&*bytes)?;
                let origin = flood.origin.parse().map_err(|_| Fault::Value("the origin is no address"))?;
                RouteKey::Flood { rd: self.distinguisher(&flood.rd)?, tag: flood.tag, origin }
            }
            Kind::Other(number) => return Ok(Told::Unused(number)),
            _ => return Err(Fault::Value("the route has an unknown type")),
        };
        if path.is_withdraw {
            return Ok(Told::Withdrawn(key));
        }
        let mut route = Route {
            key,
            next_hop: Ipv4Addr::UNSPECIFIED.into(),
            label,
            has_segment,
            targets: Vec::new(),
            encapsulations: Vec::new(),
            mobility: Mobility::default(),
            pmsi: None,
        };
        for attribute in &path.attributes {
            self.attribute(attribute, &mut route)?;
        }
        // An own path has no neighbour: GoBGP writes "<nil>" or nothing.
        let is_own = path.neighbor.parse::<IpAddr>().is_err();
        Ok(if is_own { Told::Own(route) } else { Told::Route(route) })
    }

    fn station_key(self, station: &StationRoute, mac: MacAddr) -> Result<RouteKey, Fault> {
        // GoBGP writes "<nil>" or "invalid IP" for a route without an address.
        let ip = match station.ip.as_str() {
            "" | "<nil>" | "invalid IP" => None,
            ip => Some(ip.parse().map_err(|_| Fault::Value("the station's address is none"))?),
        };
        Ok(RouteKey::Station { rd: self.distinguisher(&station.rd)?, tag: station.tag, mac, ip })
    }

    fn attribute(self, wrapped: &[u8], route: &mut Route) -> Result<(), Fault> {
        let Some((kind, bytes)) = self.unwrap(ATTRIBUTES, wrapped)? else { return Ok(()) };
        match kind {
            Kind::Reachable => {
                if let Some(address) = Reachable::decode(&*bytes)?.next_hops.first() {
                    route.next_hop = address.parse().map_err(|_| Fault::Value("the next hop is no address"))?;
                }
            }
            Kind::Communities => {
                for community in Communities::decode(&*bytes)?.communities {
                    self.community(&community, route)?;
                }
            }
            Kind::Pmsi => {
                let PmsiTunnel { kind, label } = PmsiTunnel::decode(&*bytes)?;
                route.pmsi = Some(Pmsi { kind, label });
            }
            _ => {}
        }
        Ok(())
    }

    fn community(self, wrapped: &[u8], route: &mut Route) -> Result<(), Fault> {
        /// The sub-type of a route target (RFC 4360 section 4).
        const TARGET: u32 = 2;
        let Some((kind, bytes)) = self.unwrap(COMMUNITIES, wrapped)? else { return Ok(()) };
        match kind {
            Kind::As2 | Kind::As4 => {
                let AsCommunity { is_transitive, sub_type, asn, local } = AsCommunity::decode(&*bytes)?;
                if is_transitive && sub_type == TARGET {
                    route.targets.push(Target(value(kind == Kind::As4, 2, asn, local)));
                }
            }
            Kind::Address => {
                let AddressCommunity { is_transitive, sub_type, address, local } = AddressCommunity::decode(&*bytes)?;
                if is_transitive && sub_type == TARGET {
                    let [_, _, high, low] = local.to_be_bytes();
                    let [a, b, c, d] = ipv4(&address)?.octets();
                    route.targets.push(Target([1, 2, a, b, c, d, high, low]));
                }
            }
            Kind::Encap => route.encapsulations.push(EncapCommunity::decode(&*bytes)?.tunnel_type),
            Kind::Mobility => {
                let MobilityCommunity { is_sticky, sequence } = MobilityCommunity::decode(&*bytes)?;
                route.mobility = Mobility { sticky: is_sticky, sequence };
            }
            _ => {}
        }
        Ok(())
    }

    fn distinguisher(self, wrapped: &[u8]) -> Result<Distinguisher, Fault> {
        const WRONG: Fault = Fault::Value("the route distinguisher has an unknown type");
        let (kind, bytes) = self.unwrap(DISTINGUISHERS, wrapped)?.ok_or(WRONG)?;
        match kind {
            Kind::RdAs2 | Kind::RdAs4 => {
                let NumberedRd { admin, assigned } = NumberedRd::decode(&*bytes)?;
                let [kind, _, value @ ..] = value(kind == Kind::RdAs4, 0, admin, assigned);
                let [a, b, c, d, e, f] = value;
                Ok(Distinguisher([0, kind, a, b, c, d, e, f]))
            }
            Kind::RdAddress => {
                let AddressRd { admin, assigned } = AddressRd::decode(&*bytes)?;
                let [_, _, high, low] = assigned.to_be_bytes();
                Ok(Distinguisher::of_router(ipv4(&admin)?, u16::from_be_bytes([high, low])))
            }
            _ => Err(WRONG),
        }
    }

    /// Returns the kind of a wrapped message and its bytes, or `None` if the kind is not in `kinds`.
    fn unwrap(self, kinds: Kinds, mut wrapped: &[u8]) -> Result<Option<(Kind, Vec<u8>)>, Fault> {
        match self {
            Self::V3 => {
                let Any { type_url, value } = Any::decode(wrapped)?;
                let name = type_url.rsplit(['.', '/']).next().unwrap_or_default();
                Ok(kinds.iter().find(|kind| kind.1 == name).map(|kind| (kind.0, value)))
            }
            Self::V4 => {
                // A message with one field: its number and type, its length, its bytes.
                let field = decode_length_delimiter(&mut wrapped)?;
                if field & 7 != 2 {
                    return Err(Fault::Value("a message has a field of a wrong type"));
                }
                let length = decode_length_delimiter(&mut wrapped)?;
                let value = wrapped.get(..length).ok_or(Fault::Value("a message ends early"))?;
                Ok(kinds.iter().find(|kind| kind.2 == field >> 3).map(|kind| (kind.0, value.to_vec())))
            }
        }
    }
}

/// Returns the bytes of a distinguisher or target whose administrator is an AS.
fn value(is_long: bool, sub_type: u8, asn: u32, number: u32) -> [u8; 8] {
    let [a, b, c, d] = asn.to_be_bytes();
    let [e, f, g, h] = number.to_be_bytes();
    if is_long { [2, sub_type, a, b, c, d, g, h] } else { [0, sub_type, c, d, e, f, g, h] }
}

fn ipv4(text: &str) -> Result<Ipv4Addr, Fault> {
    text.parse().map_err(|_| Fault::Value("an administrator is no IPv4 address"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::messages::Family;
    use super::*;

    proptest! {
        /// Whatever GoBGP tells, reading it ends with an answer.
        #[test]
        fn any_bytes_are_read(
            nlri in proptest::collection::vec(any::<u8>(), 0..80),
            attributes in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..4),
        ) {
            let family = Some(Family { afi: AFI.into(), safi: SAFI.into() });
            let path = Path { nlri, attributes, family, ..Path::default() };
            for version in [Version::V3, Version::V4] {
                version.told(&path);
            }
        }
    }
}
