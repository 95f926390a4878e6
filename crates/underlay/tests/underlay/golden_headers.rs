//! The headers of the golden frames, read and built again by crate `wire`, byte for byte.

use straightline_testing::golden::{self, GoldenFrame};
use straightline_wire::gtpu::ExtensionType;
use straightline_wire::l2tpv3::{Carrier, Sublayer};
use straightline_wire::vxlan_gpe::NextProtocol;
use straightline_wire::{
    EtherType, IpProtocol, checksum, ethernet, geneve, gre, gtpu, ipv4, ipv6, l2tpv3, mpls, udp, vlan, vxlan, vxlan_gpe,
};

/// The headers of a frame up to the tunnel's own.
struct Outer {
    /// The headers, built again.
    built: Vec<u8>,
    protocol: IpProtocol,
    /// The destination port of UDP.
    port: Option<u16>,
}

/// Reads the headers of a frame up to the tunnel's own, checks lengths and checksums, and builds
/// them again.
fn read_outer(frame: &[u8]) -> Outer {
    let mut built = vec![0; ethernet::LEN + ipv6::LEN + udp::LEN];
    let link = ethernet::Repr::parse(&ethernet::Header::new_checked(frame).unwrap());
    let mut at = link.emit(&mut built).unwrap();
    let packet = &frame[at..];
    let (protocol, pseudo_sum): (_, Box<dyn Fn(u16) -> u16>) = match link.ether_type {
        EtherType::IPV4 => {
            let header = ipv4::Header::new_checked(packet).unwrap();
            let repr = ipv4::Repr::parse(&header);
            assert!(header.checksum_ok() && usize::from(header.total_len()) == packet.len());
            at += repr.emit(&mut built[at..]).unwrap();
            (repr.protocol, Box::new(move |len| header.pseudo_header_sum(len)))
        }
        EtherType::IPV6 => {
            let header = ipv6::Header::new_checked(packet).unwrap();
            let repr = ipv6::Repr::parse(&header);
            assert_eq!(usize::from(header.payload_len()) + ipv6::LEN, packet.len());
            at += repr.emit(&mut built[at..]).unwrap();
            let protocol = repr.next_header;
            (protocol, Box::new(move |len| header.pseudo_header_sum(protocol, len.into())))
        }
        other => panic!("{other:?}"),
    };
    let mut port = None;
    if protocol == IpProtocol::UDP {
        let datagram = &frame[at..];
        let header = udp::Header::new_checked(datagram).unwrap();
        assert_eq!(usize::from(header.length()), datagram.len());
        let sum = checksum::add(pseudo_sum(header.length()), checksum::sum(datagram));
        assert!(header.checksum() == 0 || sum == 0xffff);
        at += udp::Repr::parse(&header).emit(&mut built[at..]).unwrap();
        port = Some(header.dst_port());
    }
    built.truncate(at);
    Outer { built, protocol, port }
}

/// Reads the tunnel's header at the beginning of `bytes`, and builds it again. Returns also whether
/// an IP packet follows, instead of an Ethernet frame.
fn rebuild(frame: &GoldenFrame, outer: &Outer, bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut built = vec![0; 64];
    let (len, is_ip) = match (outer.protocol, outer.port) {
        (IpProtocol::GRE, None) => {
            let header = gre::Header::new_checked(bytes).unwrap();
            assert!(header.checksum().is_none() || checksum::sum(bytes) == 0xffff);
            let len = gre::Repr::parse(&header).emit(&mut built).unwrap();
            (len, header.protocol() == EtherType::IPV4)
        }
        (IpProtocol::L2TP, None) | (IpProtocol::UDP, Some(l2tpv3::PORT)) => {
            let carrier = if outer.port.is_none() { Carrier::Ip } else { Carrier::Udp };
            let header = l2tpv3::Header::new_checked(bytes, carrier).unwrap();
            // Both ends must know cookie and sublayer.
            let (cookie_len, has_sublayer) = match frame.name {
                "l2tpv3-udp" => (4, true),
                "l2tpv3-ipv4" => (0, true),
                _ => (8, false),
            };
            let repr = l2tpv3::Repr::parse(&header, cookie_len, has_sublayer).unwrap();
            (repr.emit(&mut built).unwrap(), false)
        }
        (IpProtocol::UDP, Some(vxlan::PORT)) => {
            let header = vxlan::Header::new_checked(bytes).unwrap();
            assert_eq!(header.vni(), 0x12_3456);
            (vxlan::Repr::parse(&header).emit(&mut built).unwrap(), false)
        }
        (IpProtocol::UDP, Some(vxlan_gpe::PORT)) => {
            let header = vxlan_gpe::Header::new_checked(bytes).unwrap();
            assert_eq!(header.vni(), 0x12_3456);
            let len = vxlan_gpe::Repr::parse(&header).emit(&mut built).unwrap();
            (len, header.next_protocol() == NextProtocol::IPV4)
        }
        (IpProtocol::UDP, Some(geneve::PORT)) => {
            let header = geneve::Header::new_checked(bytes).unwrap();
            assert_eq!((header.vni(), header.protocol()), (0x12_3456, EtherType::ETHERNET));
            (geneve::Repr::parse(&header).emit(&mut built).unwrap(), false)
        }
        (IpProtocol::UDP, Some(gtpu::PORT)) => {
            let header = gtpu::Header::new_checked(bytes).unwrap();
            assert_eq!(usize::from(header.length()) + gtpu::MIN_LEN, bytes.len());
            if frame.name == "gtpu-extension" {
                let extensions: Vec<_> = header.extensions().collect();
                assert_eq!(extensions, [(ExtensionType::PDU_SESSION, &[0x10, 9][..])]);
                // Only a phone network's own nodes send extensions.
                return (bytes[..header.header_len()].to_vec(), true);
            }
            (gtpu::Repr::parse(&header).emit(&mut built).unwrap(), true)
        }
        (IpProtocol::UDP, Some(mpls::PORT)) => {
            let mut len = 0;
            loop {
                let entry = mpls::Entry::parse(&bytes[len..]).unwrap();
                len += entry.emit(&mut built[len..]).unwrap();
                if entry.is_bottom {
                    break (len, true);
                }
            }
        }
        other => panic!("{other:?}"),
    };
    built.truncate(len);
    (built, is_ip)
}

#[test]
fn the_headers_of_each_frame_are_read_and_built_again() {
    for frame in golden::frames().iter().filter(|frame| !["vlan", "qinq"].contains(&frame.name)) {
        let outer = read_outer(frame.bytes);
        assert_eq!(outer.built, frame.bytes[..frame.header], "{}", frame.name);
        let (header, is_ip) = rebuild(frame, &outer, &frame.bytes[frame.header..]);
        assert_eq!(header, frame.bytes[frame.header..frame.inner], "{}", frame.name);
        let inner = match frame.name {
            "gtpu-echo" => &[],
            _ if is_ip => golden::inner_ip(),
            _ => golden::inner_frame(),
        };
        assert_eq!(frame.inner(), inner, "{}", frame.name);
    }
}

#[test]
fn the_fields_of_the_frames_are_those_of_the_description() {
    let header = |name| {
        let frame = golden::frame(name);
        &frame.bytes[frame.header..]
    };
    let geneve = geneve::Header::new_checked(header("geneve-critical-ipv6")).unwrap();
    let options: Vec<_> = geneve.options().map(Result::unwrap).collect();
    assert!(geneve.has_critical() && options.len() == 1 && options[0].is_critical());
    let geneve = geneve::Header::new_checked(header("geneve-option")).unwrap();
    assert!(!geneve.has_critical() && geneve.options().next().unwrap().unwrap().class == 0x0102);

    let gre = gre::Repr::parse(&gre::Header::new_checked(header("gre-full-ipv6")).unwrap());
    assert_eq!((gre.key, gre.sequence), (Some(0xcafe_0001), Some(9)));
    let nvgre = gre::Header::new_checked(header("nvgre")).unwrap();
    let key = gre::NvgreKey::from_key(nvgre.key().unwrap());
    assert_eq!(key, gre::NvgreKey { vsid: 0x12_3456, flow: 0x7f });

    let keyed = l2tpv3::Header::new_checked(header("l2tpv3-ipv6"), Carrier::Ip).unwrap();
    assert_eq!(keyed.session(), l2tpv3::KEYED_SESSION);
    assert_eq!(keyed.cookie(8), Ok(&[0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77][..]));
    let numbered = l2tpv3::Header::new_checked(header("l2tpv3-ipv4"), Carrier::Ip).unwrap();
    assert_eq!(numbered.sublayer(0), Ok(Sublayer { sequence: Some(5) }));

    let gtpu = gtpu::Repr::parse(&gtpu::Header::new_checked(header("gtpu-sequence")).unwrap());
    assert_eq!((gtpu.teid, gtpu.sequence), (0x1122_3344, Some(7)));
    let echo = gtpu::Header::new_checked(header("gtpu-echo")).unwrap();
    assert_eq!((echo.message_type(), echo.teid()), (gtpu::Type::ECHO_REQUEST, 0));
}

#[test]
fn tags_are_read_and_built_again() {
    for (name, vids) in [("vlan", &[100][..]), ("qinq", &[200, 100])] {
        let frame = golden::frame(name);
        let tags: Vec<_> = vlan::skip(frame.bytes).unwrap().tags.into_iter().flatten().collect();
        assert_eq!(tags.iter().map(|tag| tag.vid).collect::<Vec<_>>(), vids);
        let mut built = vec![0; vlan::LEN * tags.len()];
        let mut at = 0;
        for tag in tags {
            at += tag.emit(&mut built[at..]).unwrap();
        }
        assert_eq!(built, frame.bytes[vlan::OFFSET..frame.inner]);
        assert_eq!(frame.inner(), &golden::inner_frame()[vlan::OFFSET..]);
    }
}
