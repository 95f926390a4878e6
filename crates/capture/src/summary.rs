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
        let Facts { len, macs, vlans, ether_type, addresses, protocol, ports, network, .. } = &self.0;
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
        }?;
        network.map_or(Ok(()), |(kind, vni)| write!(f, ", {kind} {vni}"))
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
    use straightline_wire::{MacAddr, vlan};

    use super::*;

    #[test]
    fn packets_have_one_line() {
        let text = |bytes: &[u8]| Summary::new(bytes, u32::try_from(bytes.len()).unwrap()).to_string();
        assert_eq!(text(&[0; 11]), "11 bytes, too short for Ethernet");
        let tag = |vid| Some(vlan::Tag { tpid: EtherType::VLAN, pcp: 0, dei: false, vid });
        let with = |tags, net| {
            let transport = Transport::Udp { src_port: 53, dst_port: 5353 };
            let src = MacAddr([2; 6]);
            let dst = MacAddr([4; 6]);
            let frame = Frame { src, dst, tags, net, transport, payload_len: 0 };
            let mut bytes = vec![0; frame.headers_len()];
            frame.emit(&mut bytes, Checksum::Zero).unwrap();
            bytes
        };
        let macs = "02:02:02:02:02:02 > 04:04:04:04:04:04";
        let v4 = Net::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let mut tagged = with([tag(7), tag(9)], v4);
        let expected = format!("50 bytes, {macs}, VLAN 7, VLAN 9, UDP 10.0.0.1:53 > 10.0.0.2:5353");
        assert_eq!(text(&tagged), expected);
        // ICMP has no ports, and a fragment has none either.
        tagged[31] = 1;
        assert!(text(&tagged).ends_with(", ICMP 10.0.0.1 > 10.0.0.2"));
        (tagged[31], tagged[28]) = (17, 1);
        assert!(text(&tagged).ends_with(", UDP 10.0.0.1 > 10.0.0.2"), "{}", text(&tagged));
        let v6 = Net::v6("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let expected = format!("62 bytes, {macs}, UDP [fd00::1]:53 > [fd00::2]:5353");
        assert_eq!(text(&with([None; 2], v6)), expected);
        let mut other = with([None; 2], v4);
        other[12..14].copy_from_slice(&[0, 38]);
        assert_eq!(text(&other), format!("42 bytes, {macs}, LLC"));
    }

    #[test]
    fn a_tunnel_has_its_network() {
        let text = |port, header: &[u8]| {
            let frame = Frame {
                src: MacAddr([2; 6]),
                dst: MacAddr([4; 6]),
                tags: [None; 2],
                net: Net::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
                transport: Transport::Udp { src_port: 50_000, dst_port: port },
                payload_len: 8,
            };
            let mut bytes = vec![0; frame.headers_len() + 8];
            frame.emit(&mut bytes, Checksum::Zero).unwrap();
            bytes.truncate(frame.headers_len());
            bytes.extend(header);
            Summary::new(&bytes, 50).to_string()
        };
        assert!(text(4789, &[8, 0, 0, 0, 0, 0x27, 0x1a, 0]).ends_with("10.0.0.2:4789, VXLAN 10010"));
        assert!(text(4790, &[0xc, 0, 0, 3, 0, 0, 7, 0]).ends_with(", VXLAN-GPE 7"));
        assert!(text(6081, &[0, 0, 0x65, 0x58, 0xff, 0xff, 0xff, 0]).ends_with(", Geneve 16777215"));
        // Without the flag there is no identifier, and a header may be cut.
        assert!(text(4789, &[0; 8]).ends_with(":4789"));
        assert!(text(4789, &[8, 0, 0, 0]).ends_with(":4789"));
        assert!(text(53, &[8, 0, 0, 0, 0, 0x27, 0x1a, 0]).ends_with(":53"));
    }

    proptest! {
        #[test]
        fn any_bytes_have_one_line(bytes in proptest::collection::vec(any::<u8>(), 0..200), len in any::<u32>()) {
            prop_assert!(!Summary::new(&bytes, len).to_string().contains('\n'));
        }
    }
}
