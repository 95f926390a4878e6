//! Keys: the facts of a packet that name its connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use straightline_wire::IpProtocol;

/// A side of a connection, as the firewalled port sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The station behind the firewalled port.
    Local,
    /// The station that it talks to.
    Remote,
}

/// The direction of a connection: of its first packet, as the firewalled port sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The station behind the port opened the connection.
    Outbound,
    /// Another station opened the connection.
    Inbound,
}

impl Direction {
    /// Returns the side that opens connections of this direction.
    #[must_use]
    pub fn opener(self) -> Side {
        match self {
            Direction::Outbound => Side::Local,
            Direction::Inbound => Side::Remote,
        }
    }
}

/// Addresses and ports of a connection. A protocol without ports has zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends<A> {
    /// Address of the station behind the firewalled port.
    pub local: A,
    /// Address of the other station.
    pub remote: A,
    /// Transport port of the station behind the firewalled port.
    pub local_port: u16,
    /// Transport port of the other station.
    pub remote_port: u16,
}

/// Number of words of a key.
pub(crate) const KEY_WORDS: usize = 5;

/// The key has IPv6 addresses. Without it, an IPv6 packet with mapped addresses would have the key of
/// an IPv4 packet.
const V6: u64 = 1 << 56;
/// The remote side asked the ICMP query, or sent the datagram, that the key identifies.
const ASKED_BY_REMOTE: u64 = 1 << 57;

/// The key of a connection at a firewalled port. Equal keys have equal words.
///
/// ```
/// use straightline_conntrack::{Ends, Key};
/// use straightline_wire::IpProtocol;
///
/// let ends = Ends { local: [10, 0, 0, 1], remote: [192, 0, 2, 1], local_port: 40_000, remote_port: 443 };
/// let key = Key::v4(3, 1, IpProtocol::TCP, ends);
/// assert_eq!((key.port(), key.remote_port()), (3, 443));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The first word is `flags: 8 | VLAN: 16 | local port: 16 | remote port: 16 | protocol: 8`, the
    /// others are the addresses.
    words: [u64; KEY_WORDS],
    port: u16,
}

impl Key {
    /// Returns the key of an IPv4 packet at a firewalled port, in a VLAN (0 if the bridge has none).
    #[inline]
    #[must_use]
    pub fn v4(port: u16, vlan: u16, protocol: IpProtocol, ends: Ends<[u8; 4]>) -> Self {
        let mapped = |address| 0xffff_0000_0000 | u64::from(u32::from_be_bytes(address));
        let first = first_word(vlan, protocol, ends.local_port, ends.remote_port);
        Key { words: [first, 0, mapped(ends.local), 0, mapped(ends.remote)], port }
    }

    /// Returns the key of an IPv6 packet. The last header names the protocol.
    #[inline]
    #[must_use]
    pub fn v6(port: u16, vlan: u16, protocol: IpProtocol, ends: Ends<[u8; 16]>) -> Self {
        let [a, b] = halves(ends.local);
        let [c, d] = halves(ends.remote);
        let first = first_word(vlan, protocol, ends.local_port, ends.remote_port) | V6;
        Key { words: [first, a, b, c, d], port }
    }

    /// Returns the key of an ICMP query with these addresses: an echo request, for example, or its
    /// answer. `asker` is the side that sent the request, `request` the type of the request.
    #[inline]
    #[must_use]
    pub fn with_query(mut self, asker: Side, request: u8, id: u16) -> Self {
        let ports = u64::from(id) << 24 | u64::from(request) << 8;
        let flag = if asker == Side::Remote { ASKED_BY_REMOTE } else { 0 };
        self.words[0] = self.words[0] & !(0xffff_ffff << 8 | ASKED_BY_REMOTE) | ports | flag;
        self
    }

    /// Returns the key of a datagram that comes in fragments: addresses, protocol, sender, and the
    /// identification of the IP header (16 bits) or of the fragment header (32 bits).
    #[inline]
    #[must_use]
    pub fn with_fragments(mut self, sender: Side, id: u32) -> Self {
        let flag = if sender == Side::Remote { ASKED_BY_REMOTE } else { 0 };
        self.words[0] = self.words[0] & !(0xffff_ffff << 8 | ASKED_BY_REMOTE) | u64::from(id) << 8 | flag;
        self
    }

    /// Returns the key of the same connection at another firewalled port: its local side is this
    /// one's remote side.
    #[must_use]
    pub fn at_other_end(self, port: u16) -> Self {
        let [first, a, b, c, d] = self.words;
        let is_query = matches!(self.protocol(), IpProtocol::ICMP | IpProtocol::ICMPV6);
        let first = if is_query {
            first ^ ASKED_BY_REMOTE
        } else {
            first & !(0xffff_ffff << 8) | (first >> 24 & 0xffff) << 8 | (first >> 8 & 0xffff) << 24
        };
        Key { words: [first, c, d, a, b], port }
    }

    #[inline]
    pub(crate) fn words(&self) -> &[u64; KEY_WORDS] {
        &self.words
    }

    pub(crate) fn from_words(words: [u64; KEY_WORDS], port: u16) -> Self {
        Key { words, port }
    }

    /// Returns the firewalled port.
    #[inline]
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the VLAN; 0 for none.
    #[must_use]
    pub fn vlan(&self) -> u16 {
        self.sixteen(40)
    }

    /// Returns the protocol.
    #[inline]
    #[must_use]
    pub fn protocol(&self) -> IpProtocol {
        protocol_of(self.words[0])
    }

    /// Returns the transport port of the station behind the firewalled port; of an ICMP query, its
    /// identifier.
    #[must_use]
    pub fn local_port(&self) -> u16 {
        self.sixteen(24)
    }

    /// Returns the transport port of the other station; of an ICMP query, the type of its request.
    #[must_use]
    pub fn remote_port(&self) -> u16 {
        self.sixteen(8)
    }

    /// Returns the address of the station behind the firewalled port.
    #[must_use]
    pub fn local(&self) -> IpAddr {
        self.address(1)
    }

    /// Returns the address of the other station.
    #[must_use]
    pub fn remote(&self) -> IpAddr {
        self.address(3)
    }

    fn address(&self, at: usize) -> IpAddr {
        let bits = u128::from(self.words[at]) << 64 | u128::from(self.words[at + 1]);
        if self.words[0] & V6 != 0 {
            return Ipv6Addr::from_bits(bits).into();
        }
        let [.., a, b, c, d] = bits.to_be_bytes();
        Ipv4Addr::new(a, b, c, d).into()
    }

    fn sixteen(&self, shift: u32) -> u16 {
        u16::try_from(self.words[0] >> shift & 0xffff).unwrap_or(0)
    }
}

#[inline]
fn first_word(vlan: u16, protocol: IpProtocol, local_port: u16, remote_port: u16) -> u64 {
    u64::from(vlan) << 40 | u64::from(local_port) << 24 | u64::from(remote_port) << 8 | u64::from(protocol.0)
}

/// Returns words that are equal for all keys with the same remote prefix: /24, or /48 of IPv6. One owner
/// mostly has all of a /48.
pub(crate) fn prefix_of(words: &[u64; KEY_WORDS]) -> [u64; KEY_WORDS] {
    let version = words[0] & V6;
    if version == 0 { [version, 0, 0, 0, words[4] & !0xff] } else { [version, 0, 0, words[3] & !0xffff, 0] }
}

/// Returns the port of the side that did not open the connection. In most cases a service has it.
#[inline]
pub(crate) fn service_of(first: u64, direction: Direction) -> u64 {
    let shift = match direction {
        Direction::Outbound => 8,
        Direction::Inbound => 24,
    };
    first >> shift & 0xffff
}

/// Returns the protocol of a key with this first word.
#[inline]
pub(crate) fn protocol_of(first: u64) -> IpProtocol {
    let [.., protocol] = first.to_be_bytes();
    IpProtocol(protocol)
}

#[inline]
fn halves(address: [u8; 16]) -> [u64; 2] {
    let bits = u128::from_be_bytes(address);
    [high(bits), high(bits << 64)]
}

#[inline]
fn high(bits: u128) -> u64 {
    (bits >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: Ends<[u8; 4]> =
        Ends { local: [10, 0, 0, 1], remote: [192, 0, 2, 9], local_port: 4711, remote_port: 53 };

    #[test]
    fn a_key_gives_back_its_parts() {
        let key = Key::v4(7, 4094, IpProtocol::UDP, ENDS);
        assert_eq!((key.port(), key.vlan(), key.protocol()), (7, 4094, IpProtocol::UDP));
        assert_eq!((key.local_port(), key.remote_port()), (4711, 53));
        assert_eq!(key.local(), IpAddr::from([10, 0, 0, 1]));
        assert_eq!(key.remote(), IpAddr::from([192, 0, 2, 9]));
        let other = key.at_other_end(9);
        assert_eq!((other.port(), other.local(), other.local_port()), (9, key.remote(), 53));
        assert_eq!(other.at_other_end(7), key);
        let v6 = Ends { local: [0xfd; 16], remote: [0x20; 16], local_port: 1, remote_port: 2 };
        let v6 = Key::v6(7, 1, IpProtocol::TCP, v6);
        assert_eq!((v6.local(), v6.remote()), ([0xfd; 16].into(), [0x20; 16].into()));
    }

    #[test]
    fn mapped_addresses_of_ipv6_are_others_than_those_of_ipv4() {
        let mapped = |a: [u8; 4]| Ipv4Addr::from(a).to_ipv6_mapped().octets();
        let ends = Ends { local: mapped(ENDS.local), remote: mapped(ENDS.remote), local_port: 4711, remote_port: 53 };
        let v6 = Key::v6(7, 1, IpProtocol::UDP, ends);
        let v4 = Key::v4(7, 1, IpProtocol::UDP, ENDS);
        assert_ne!(v4, v6);
        assert_eq!(v4.words()[1..], v6.words()[1..]);
    }

    #[test]
    fn stations_of_a_network_have_one_prefix() {
        let v4 = |remote| prefix_of(Key::v4(7, 1, IpProtocol::TCP, Ends { remote, ..ENDS }).words());
        assert_eq!(v4([192, 0, 2, 9]), v4([192, 0, 2, 255]));
        assert_ne!(v4([192, 0, 2, 9]), v4([192, 0, 3, 9]));
        let v6 = |remote: Ipv6Addr| {
            let ends = Ends { local: [0xfd; 16], remote: remote.octets(), local_port: 1, remote_port: 2 };
            prefix_of(Key::v6(7, 1, IpProtocol::TCP, ends).words())
        };
        let of = |third: u16, fourth, last| v6(Ipv6Addr::new(0x2001, 0xdb8, third, fourth, 0, 0, 0, last));
        assert_eq!(of(0x12ff, 0x12ff, 1), of(0x12ff, 0, 2));
        assert_ne!(of(0x12ff, 0, 1), of(0x12fe, 0, 1));
    }

    #[test]
    fn the_service_is_the_port_of_the_other_side() {
        let [first, ..] = *Key::v4(7, 1, IpProtocol::UDP, ENDS).words();
        assert_eq!(service_of(first, Direction::Outbound), 53);
        assert_eq!(service_of(first, Direction::Inbound), 4711);
    }

    #[test]
    fn a_query_is_that_of_its_asker() {
        let key = Key::v4(7, 1, IpProtocol::ICMP, Ends { local_port: 0, remote_port: 0, ..ENDS });
        let mine = key.with_query(Side::Local, 8, 8);
        let yours = key.with_query(Side::Remote, 8, 8);
        assert_ne!(mine, yours);
        assert_eq!((mine.local_port(), mine.remote_port()), (8, 8));
        assert_eq!(mine.at_other_end(2).at_other_end(7), mine);
        assert_eq!(mine.at_other_end(7).with_query(Side::Local, 8, 8).at_other_end(7), yours);
    }
}
