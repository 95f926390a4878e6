//! Routes as bytes of BGP. GoBGP takes them in both of its versions, so a sent route needs no
//! message of its own for each version.

use std::net::IpAddr;

use az::CheckedCast;

use crate::route::{Pmsi, Route, RouteKey};

/// Flags of an attribute (RFC 4271 section 4.3).
const OPTIONAL: u8 = 0x80;
const TRANSITIVE: u8 = 0x40;
const LONG: u8 = 0x10;

/// Attribute types (RFC 4271, 4360, 4760, 6514).
const ORIGIN: u8 = 1;
const MP_REACH: u8 = 14;
const COMMUNITIES: u8 = 16;
const PMSI: u8 = 22;

/// The address family of EVPN: AFI 25, SAFI 70 (RFC 7432 section 7).
pub(crate) const AFI: u16 = 25;
pub(crate) const SAFI: u8 = 70;

/// Returns the bytes of a route's identity and label (RFC 7432 sections 7.2 and 7.3).
pub(crate) fn nlri(key: &RouteKey, label: u32) -> Vec<u8> {
    let mut value = Vec::with_capacity(64);
    let kind = match key {
        RouteKey::Station { rd, tag, mac, ip } => {
            value.extend(rd.0);
            // An Ethernet segment of zero: one host only has the station.
            value.extend([0; 10]);
            value.extend(tag.to_be_bytes());
            value.push(48);
            value.extend(mac.0);
            match ip {
                Some(ip) => address(&mut value, *ip),
                None => value.push(0),
            }
            value.extend(label24(label));
            2
        }
        RouteKey::Flood { rd, tag, origin } => {
            value.extend(rd.0);
            value.extend(tag.to_be_bytes());
            address(&mut value, *origin);
            3
        }
    };
    // The longest value has 52 bytes.
    let length = value.len().checked_cast().unwrap_or(u8::MAX);
    [&[kind, length], value.as_slice()].concat()
}

/// Returns the attributes of a route, each as its bytes.
pub(crate) fn attributes(route: &Route) -> Vec<Vec<u8>> {
    let mut communities: Vec<[u8; 8]> = route.targets.iter().map(|target| target.0).collect();
    for kind in &route.encapsulations {
        let [_, _, high, low] = kind.to_be_bytes();
        // RFC 9012 section 4.1.
        communities.push([3, 0x0c, 0, 0, 0, 0, high, low]);
    }
    let mobility = route.mobility;
    if mobility.sticky || mobility.sequence > 0 {
        let [a, b, c, d] = mobility.sequence.to_be_bytes();
        // RFC 7432 section 7.7.
        communities.push([6, 0, u8::from(mobility.sticky), 0, a, b, c, d]);
    }
    let mut attributes = vec![
        // IGP.
        attribute(TRANSITIVE, ORIGIN, &[0]),
        attribute(OPTIONAL, MP_REACH, &reachable(route)),
        attribute(OPTIONAL | TRANSITIVE, COMMUNITIES, &communities.concat()),
    ];
    if let Some(pmsi) = route.pmsi {
        attributes.push(attribute(OPTIONAL | TRANSITIVE, PMSI, &tunnel(pmsi, route.next_hop)));
    }
    attributes
}

/// Returns the PMSI tunnel of ingress replication (RFC 8365 section 5.1.3: the whole label is the VNI).
fn tunnel(pmsi: Pmsi, host: IpAddr) -> Vec<u8> {
    // Attributes of other types are not sent.
    let mut value = vec![0, pmsi.kind.checked_cast().unwrap_or(u8::MAX)];
    value.extend(label24(pmsi.label));
    octets(&mut value, host);
    value
}

fn reachable(route: &Route) -> Vec<u8> {
    let mut value = AFI.to_be_bytes().to_vec();
    value.push(SAFI);
    value.push(if route.next_hop.is_ipv4() { 4 } else { 16 });
    octets(&mut value, route.next_hop);
    value.push(0);
    value.extend(nlri(&route.key, route.label));
    value
}

/// Adds an address behind its length in bits.
fn address(value: &mut Vec<u8>, ip: IpAddr) {
    value.push(if ip.is_ipv4() { 32 } else { 128 });
    octets(value, ip);
}

fn octets(value: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => value.extend(ip.octets()),
        IpAddr::V6(ip) => value.extend(ip.octets()),
    }
}

fn label24(label: u32) -> [u8; 3] {
    let [_, a, b, c] = label.to_be_bytes();
    [a, b, c]
}

fn attribute(flags: u8, kind: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = match u8::try_from(value.len()) {
        Ok(length) => vec![flags, kind, length],
        Err(_) => {
            // The length of the targets of a configuration is checked.
            let [high, low] = u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes();
            vec![flags | LONG, kind, high, low]
        }
    };
    bytes.extend(value);
    bytes
}

#[cfg(test)]
mod tests {
    use straightline_wire::MacAddr;

    use super::*;
    use crate::route::{Distinguisher, INGRESS_REPLICATION, Mobility, Target, VXLAN};

    /// The bytes of RFC 7432's figures, written by hand.
    #[test]
    fn routes_have_the_bytes_of_the_standard() {
        let rd = Distinguisher([0, 1, 192, 0, 2, 1, 0, 5]);
        let key = RouteKey::Station {
            rd,
            tag: 0,
            mac: MacAddr([2, 0, 0, 0, 0, 7]),
            ip: Some("10.0.0.7".parse().expect("an address")),
        };
        let mut wanted = vec![2, 37, 0, 1, 192, 0, 2, 1, 0, 5];
        wanted.extend([0; 10]);
        wanted.extend([0, 0, 0, 0, 48, 2, 0, 0, 0, 0, 7, 32, 10, 0, 0, 7, 0, 0x27, 0x1a]);
        assert_eq!(nlri(&key, 10010), wanted);
        let flood = RouteKey::Flood { rd, tag: 9, origin: "192.0.2.1".parse().expect("an address") };
        assert_eq!(nlri(&flood, 1), [3, 17, 0, 1, 192, 0, 2, 1, 0, 5, 0, 0, 0, 9, 32, 192, 0, 2, 1]);
        let route = Route {
            key: flood,
            next_hop: "192.0.2.1".parse().expect("an address"),
            label: 0,
            has_segment: false,
            targets: vec![Target::of_vni(65000, 10010)],
            encapsulations: vec![VXLAN],
            mobility: Mobility { sticky: true, sequence: 3 },
            pmsi: Some(Pmsi { kind: INGRESS_REPLICATION, label: 0x0001_0203 }),
        };
        let attributes = attributes(&route);
        assert_eq!(attributes[0], [0x40, 1, 1, 0]);
        assert_eq!(attributes[1][..9], [0x80, 14, 28, 0, 25, 70, 4, 192, 0]);
        let communities = [0, 2, 0xfd, 0xe8, 0, 0, 0x27, 0x1a, 3, 12, 0, 0, 0, 0, 0, 8, 6, 0, 1, 0, 0, 0, 0, 3];
        assert_eq!(attributes[2], [&[0xc0, 16, 24], communities.as_slice()].concat());
        assert_eq!(attributes[3], [0xc0, 22, 9, 0, 6, 1, 2, 3, 192, 0, 2, 1]);
    }
}
