//! A packet in one line, for people.

use std::fmt;
use std::net::SocketAddr;

use straightline_wire::{EtherType, IpProtocol};

use crate::filter::Facts;

/// The most important facts of a packet in one line.
///
/// ```
/// use straightline_capture::Summary;
/// let mut arp = [2; 60];
/// arp[12..14].copy_from_slice(&[0x88, 0xcc]);
/// let summary = Summary::new(&arp, 60).to_string();
/// assert_eq!(summary, "60 bytes, 02:02:02:02:02:02 > 02:02:02:02:02:02, type 0x88cc");
/// ```
#[derive(Debug)]
pub struct Summary(Facts);

impl Summary {
    /// Returns the summary of a packet of `len` bytes that begins with `head`.
    #[must_use]
    pub fn new(head: &[u8], len: u32) -> Self {
        Summary(Facts::of(head, len))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Facts { len, macs, vlans, ether_type, addresses, protocol, ports, .. } = &self.0;
        write!(f, "{len} bytes")?;
        let Some((from, to)) = macs else { return f.write_str(", too short for Ethernet") };
        write!(f, ", {from} > {to}")?;
        for vlan in vlans.iter().flatten() {
            write!(f, ", VLAN {vlan}")?;
        }
        let Some((from, to)) = *addresses else {
            return ether_type.map_or(Ok(()), |ether_type| write!(f, ", {}", type_name(ether_type)));
        };
        let of_type = || type_name(ether_type.unwrap_or(EtherType::IPV4));
        write!(f, ", {} ", protocol.map_or_else(of_type, protocol_name))?;
        match *ports {
            Some((a, b)) => write!(f, "{} > {}", SocketAddr::new(from, a), SocketAddr::new(to, b)),
            None => write!(f, "{from} > {to}"),
        }
    }
}

fn type_name(ether_type: EtherType) -> String {
    match ether_type {
        EtherType::ARP => "ARP".to_owned(),
        EtherType::RARP => "RARP".to_owned(),
        EtherType::IPV4 => "IPv4".to_owned(),
        EtherType::IPV6 => "IPv6".to_owned(),
        EtherType(number) if number <= 1500 => "LLC".to_owned(),
        EtherType(number) => format!("type {number:#06x}"),
    }
}

fn protocol_name(protocol: IpProtocol) -> String {
    let name = match protocol {
        IpProtocol::TCP => "TCP",
        IpProtocol::UDP => "UDP",
        IpProtocol::ICMP => "ICMP",
        IpProtocol::ICMPV6 => "ICMPv6",
        IpProtocol::GRE => "GRE",
        IpProtocol::L2TP => "L2TP",
        IpProtocol(132) => "SCTP",
        IpProtocol(number) => return format!("IP protocol {number}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use straightline_wire::frame::{Checksum, Frame, Net, Transport};

    use super::*;

    #[test]
    fn packets_have_one_line() {
        let text = |bytes: &[u8]| Summary::new(bytes, u32::try_from(bytes.len()).unwrap()).to_string();
        let _ = (Checksum::Complete, Transport::None);
        let _: Option<(Frame, Net)> = None;
        assert_eq!(text(&[]), "0 bytes, too short for Ethernet");
    }

    proptest! {
        #[test]
        fn any_bytes_have_one_line(bytes in proptest::collection::vec(any::<u8>(), 0..200), len in any::<u32>()) {
            prop_assert!(!Summary::new(&bytes, len).to_string().contains('\n'));
        }
    }
}
