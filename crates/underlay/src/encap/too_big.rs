//! Errors to senders inside a tunnel whose packets do not fit it.
//!
//! The underlay has no address inside the tunnel. So the error comes from the address that the
//! packet was sent to, as if the other end had sent it: senders look at the quoted packet only. Its
//! Ethernet source is the underlay's MAC address. It is not the packet's destination: a bridge would
//! learn that this station is behind the tunnel, although it may be elsewhere.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering;

use straightline_packet::{PacketVlan, PortIndex};
use straightline_wire::{
    EtherType, IpProtocol, Layout, MacAddr, WireError, checksum, ethernet, icmpv4, icmpv6, ipv4, ipv6,
};

use crate::Tunnel;
use straightline_wire::messages::{self, Message};

/// Types of ICMP for IPv4 about which no error is sent, because they are errors (RFC 1122, 3.2.2).
const ERRORS_V4: [u8; 5] = [3, 4, 5, 11, 12];

/// The place in the tunnel's bridge or patch that a frame came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) port: PortIndex,
    /// The VLAN of the network, if the tunnel has several.
    pub(crate) vlan: Option<PacketVlan>,
}

impl Tunnel {
    /// Tells the sender of an inner frame from `source` that the frame is too long for the
    /// tunnel: an ICMP error with `mtu`, the bytes of the longest inner IP packet, enters the
    /// tunnel's patch or bridge, in the frame's VLAN. `frame` is the head of the inner frame, which has this layout. The
    /// stations behind a port get at most 10 errors in a second, and those of all ports 100.
    ///
    /// Returns `false` if no error is sent: for a frame that is no IP packet, for a packet about
    /// which no error may be sent (RFC 1122, 3.2.2; RFC 4443, 2.4), while the underlay's MAC address
    /// is not known, and beyond a limit. Only errors beyond a limit are counted as refused, and only
    /// those that may be sent count for it.
    pub(crate) fn too_big(&self, frame: &[u8], layout: &Layout, source: Source, mtu: u16, now: u32) -> bool {
        let Some(mac) = self.underlay.mac() else { return false };
        let Ok(Some(subject)) = Subject::of(frame, layout) else { return false };
        let is_sent = self.errors.take(source.port.0.into(), now)
            && subject
                .error(frame, mtu, mac)
                .is_ok_and(|message| self.underlay.outbox.push_for(&self.places, message.bytes(), source.vlan));
        if !is_sent {
            self.errors_refused.fetch_add(1, Ordering::Relaxed);
        }
        is_sent
    }
}

/// A packet about which an error may be sent: the addresses of its IP header.
#[derive(Clone, Copy, Debug)]
enum Subject {
    V4 { l3: usize, src: Ipv4Addr, dst: Ipv4Addr, len: usize },
    V6 { l3: usize, src: Ipv6Addr, dst: Ipv6Addr, len: usize },
}

impl Subject {
    /// Reads the packet in a frame. `None` if no error may be sent about it.
    fn of(frame: &[u8], layout: &Layout) -> Result<Option<Self>, WireError> {
        let header = ethernet::Header::new_checked(frame)?;
        if header.dst().is_multicast() || header.src().is_multicast() {
            return Ok(None);
        }
        let l3 = usize::from(layout.payload);
        let packet = frame.get(l3..).ok_or(WireError::Truncated)?;
        match layout.ether_type {
            EtherType::IPV4 => {
                let header = ipv4::Header::new_checked(packet)?;
                let src = header.src();
                let dst = header.dst();
                let header_len = header.header_len();
                let inner_type = packet.get(header_len).filter(|_| header.protocol() == IpProtocol::ICMP);
                let is_error = inner_type.is_some_and(|inner_type| ERRORS_V4.contains(inner_type));
                let may_be_told = is_host(src) && is_host(dst) && header.fragment_offset() == 0 && !is_error;
                let len = header.total_len().into();
                Ok(may_be_told.then_some(Subject::V4 { l3, src, dst, len }))
            }
            EtherType::IPV6 => {
                let header = ipv6::Header::new_checked(packet)?;
                let src = header.src();
                let dst = header.dst();
                let behind = &packet[ipv6::LEN..];
                let extensions = ipv6::skip_extensions(behind, header.next_header())?;
                let inner_type = behind.get(extensions.len).filter(|_| extensions.protocol == IpProtocol::ICMPV6);
                let is_error = inner_type.is_some_and(|&inner_type| icmpv6::Type(inner_type).is_error());
                let is_host = !src.is_unspecified() && !src.is_multicast() && !dst.is_multicast();
                let len = ipv6::LEN + usize::from(header.payload_len());
                Ok((is_host && !extensions.fragment && !is_error).then_some(Subject::V6 { l3, src, dst, len }))
            }
            _ => Ok(None),
        }
    }

    /// Returns the error about the packet in this frame, from this MAC address.
    fn error(self, frame: &[u8], mtu: u16, mac: MacAddr) -> Result<Message, WireError> {
        let (Subject::V4 { l3, .. } | Subject::V6 { l3, .. }) = self;
        let packet = frame.get(l3..).ok_or(WireError::Truncated)?;
        let mut message = answer_to(frame, l3, mac)?;
        let space = message.space();
        match self {
            Subject::V4 { src, dst, len, .. } => {
                let quoted = quote(packet, len, space, ipv4::MIN_LEN + icmpv4::LEN);
                let ip = messages::v4(dst, src, IpProtocol::ICMP, icmpv4::LEN + quoted.len())?;
                message.append(|bytes| ip.emit(bytes))?;
                let repr = icmpv4::Repr::FragmentationNeeded { mtu };
                message.append(|bytes| repr.emit(bytes, checksum::sum(quoted)))?;
                message.append_bytes(quoted)?;
            }
            Subject::V6 { src, dst, len, .. } => {
                let quoted = quote(packet, len, space, ipv6::LEN + icmpv6::LEN);
                let len = icmpv6::LEN + quoted.len();
                let pseudo_len = u32::try_from(len).map_err(|_| WireError::BadLength)?;
                let pseudo = checksum::pseudo_header_v6(dst, src, IpProtocol::ICMPV6, pseudo_len);
                let ip = messages::v6(dst, src, IpProtocol::ICMPV6, len)?;
                message.append(|bytes| ip.emit(bytes))?;
                let repr = icmpv6::Repr::TooBig { mtu: mtu.into() };
                message.append(|bytes| repr.emit(bytes, checksum::add(pseudo, checksum::sum(quoted))))?;
                message.append_bytes(quoted)?;
            }
        }
        Ok(message)
    }
}

/// Returns the part of a packet of `len` bytes that is quoted, behind `headers` bytes in a message
/// with space for `space`.
fn quote(packet: &[u8], len: usize, space: usize, headers: usize) -> &[u8] {
    &packet[..packet.len().min(len).min(space.saturating_sub(headers))]
}

fn is_host(ip: Ipv4Addr) -> bool {
    !(ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast())
}

/// Begins an answer to the sender of a frame, from this MAC address: with the frame's tags and its
/// type. The IP header of the frame is at `l3`.
fn answer_to(frame: &[u8], l3: usize, MacAddr(mac): MacAddr) -> Result<Message, WireError> {
    let MacAddr(sender) = ethernet::Header::new_checked(frame)?.src();
    let mut message = Message::empty();
    message.append_bytes(&sender)?;
    message.append_bytes(&mac)?;
    message.append_bytes(frame.get(12..l3).ok_or(WireError::Truncated)?)?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use std::sync::Arc;

    use crate::headers::reference;
    use crate::testing::MAC;
    use crate::{TunnelKind, Underlay, UnderlayConfig};

    fn error_about(frame: &[u8], mtu: u16, mac: MacAddr) -> Result<Option<Message>, WireError> {
        Subject::of(frame, &Layout::parse(frame)?)?.map(|subject| subject.error(frame, mtu, mac)).transpose()
    }

    fn too_big(tunnel: &Tunnel, frame: &[u8], from: u16, now: u32) -> bool {
        let source = Source { port: PortIndex(from), vlan: None };
        tunnel.too_big(frame, &Layout::parse(frame).unwrap(), source, 1400, now)
    }

    fn tunnel(underlay: &Arc<Underlay>, port: u16) -> Arc<Tunnel> {
        let config = reference::tunnel(TunnelKind::Vxlan { vni: 1 }, true);
        Tunnel::new(config, Arc::clone(underlay), PortIndex(port), Arc::default())
    }

    fn v4_frame(total_len: u16, protocol: IpProtocol, dst: [u8; 4]) -> Vec<u8> {
        let repr = messages::v4([10, 0, 0, 1].into(), dst.into(), protocol, usize::from(total_len) - 20).unwrap();
        let mut frame = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]].concat();
        frame.extend([0x81, 0, 0, 5, 8, 0]);
        frame.resize(256, 0xab);
        repr.emit(&mut frame[18..]).unwrap();
        frame
    }

    fn v6_frame(src: &str, next: u8, inner_type: u8) -> Vec<u8> {
        let dst = "fd00::2".parse().unwrap();
        let repr = messages::v6(src.parse().unwrap(), dst, IpProtocol(next), 1460).unwrap();
        let mut frame = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]].concat();
        frame.extend([0x86, 0xdd]);
        frame.resize(256, 0xcd);
        repr.emit(&mut frame[14..]).unwrap();
        frame[54] = inner_type;
        frame
    }

    #[test]
    fn a_sender_is_told_in_its_vlan() {
        let frame = v4_frame(1500, IpProtocol::UDP, [10, 0, 0, 2]);
        let message = error_about(&frame, 1400, MAC).unwrap().expect("an error");
        let bytes = message.bytes();
        assert_eq!((&bytes[..6], &bytes[6..12], &bytes[12..18]), (&frame[6..12], &MAC.0[..], &frame[12..18]));
        let ip = ipv4::Header::new_checked(&bytes[18..]).unwrap();
        assert_eq!((ip.src(), ip.dst()), ([10, 0, 0, 2].into(), [10, 0, 0, 1].into()));
        assert!(ip.checksum_ok() && usize::from(ip.total_len()) == bytes.len() - 18);
        assert_eq!(checksum::sum(&bytes[38..]), 0xffff);
        let icmp = icmpv4::Header::new_checked(&bytes[38..]).unwrap();
        assert_eq!(icmpv4::Repr::parse(&icmp), Some(icmpv4::Repr::FragmentationNeeded { mtu: 1400 }));
        let quoted = &bytes[46..];
        assert!(quoted.len() >= 28 && quoted == &frame[18..][..quoted.len()]);
    }

    #[test]
    fn a_sender_of_ipv6_is_told() {
        let frame = v6_frame("fd00::1", 6, 0);
        let message = error_about(&frame, 1400, MAC).unwrap().expect("an error");
        let ip = ipv6::Header::new_checked(&message.bytes()[14..]).unwrap();
        assert_eq!((ip.src().to_string(), ip.dst().to_string()), ("fd00::2".to_owned(), "fd00::1".to_owned()));
        let icmp = &message.bytes()[54..];
        assert_eq!(usize::from(ip.payload_len()), icmp.len());
        let pseudo = ip.pseudo_header_sum(IpProtocol::ICMPV6, ip.payload_len().into());
        assert_eq!(checksum::add(pseudo, checksum::sum(icmp)), 0xffff);
        let header = icmpv6::Header::new_checked(icmp).unwrap();
        assert_eq!(icmpv6::Repr::parse(&header), Some(icmpv6::Repr::TooBig { mtu: 1400 }));
    }

    #[test]
    fn no_error_is_sent_about_errors_groups_and_fragments() {
        let none = |frame: &[u8]| assert!(matches!(error_about(frame, 1400, MAC), Ok(None)));
        none(&v4_frame(1500, IpProtocol::UDP, [224, 0, 0, 1]));
        none(&v4_frame(1500, IpProtocol::UDP, [255; 4]));
        let mut frame = v4_frame(1500, IpProtocol::ICMP, [10, 0, 0, 2]);
        frame[38] = 3;
        none(&frame);
        frame[38] = 8;
        assert!(error_about(&frame, 1400, MAC).unwrap().is_some(), "a long ping is told");
        frame[24..26].copy_from_slice(&[0x20, 1]);
        none(&frame);
        frame[24..26].copy_from_slice(&[0x40, 0]);
        frame[0] = 0xff;
        none(&frame);
        none(&v6_frame("::", 17, 0));
        none(&v6_frame("ff02::1", 17, 0));
        none(&v6_frame("fd00::1", 58, 2));
        none(&v6_frame("fd00::1", 44, 2));
        assert!(error_about(&v6_frame("fd00::1", 58, 128), 1400, MAC).unwrap().is_some());
        none(&[&[2; 12][..], &[8, 6], &[0; 28]].concat());
    }

    #[test]
    fn no_port_takes_the_errors_of_another() {
        let underlay = Underlay::new(reference::underlay(None), PortIndex(0));
        let one = tunnel(&underlay, 1);
        let other = tunnel(&underlay, 2);
        let frame = v6_frame("fd00::1", 6, 0);
        let told = |tunnel: &Tunnel, from, now| {
            let is_told = |_: &_| {
                // The agent sends what waits.
                tunnel.places.clear();
                too_big(tunnel, &frame, from, now)
            };
            (0..20).filter(is_told).count()
        };
        assert_eq!((told(&one, 7, 0), told(&one, 7, 0), told(&one, 8, 0), told(&other, 7, 0)), (10, 0, 10, 10));
        assert_eq!(one.errors_refused.load(Ordering::Relaxed), 10 + 20 + 10);
        let all: usize = (20..40).map(|from| told(&one, from, 1)).sum();
        assert_eq!((all, told(&one, 7, 2)), (100, 10), "all ports together");
    }

    #[test]
    fn frames_about_which_no_error_is_sent_take_nothing() {
        let underlay = Underlay::new(reference::underlay(None), PortIndex(0));
        let tunnel = tunnel(&underlay, 1);
        let no_ip = [&[2; 12][..], &[0x88, 0xb5], &[0; 242]].concat();
        let group = v6_frame("fd00::1", 58, 2);
        for frame in [&no_ip, &group, &v4_frame(1500, IpProtocol::UDP, [224, 0, 0, 1])] {
            assert!((0..100).all(|_| !too_big(&tunnel, frame, 7, 0)));
        }
        assert_eq!(tunnel.errors_refused.load(Ordering::Relaxed), 0);
        assert!(too_big(&tunnel, &v6_frame("fd00::1", 6, 0), 7, 0));
    }

    #[test]
    fn no_station_is_named_as_the_sender() {
        let frame = v6_frame("fd00::1", 6, 0);
        let message = error_about(&frame, 1400, MAC).unwrap().expect("an error");
        let header = ethernet::Header::new_checked(message.bytes()).unwrap();
        assert!(header.src() == MAC && header.dst() == MacAddr([2, 0, 0, 0, 0, 1]));
        // Nothing is sent while the address is not known.
        let underlay = Underlay::new(UnderlayConfig { mac: None, ..reference::underlay(None) }, PortIndex(0));
        let tunnel = tunnel(&underlay, 1);
        assert!(!too_big(&tunnel, &frame, 7, 0));
        underlay.set_mac(MAC);
        assert!(too_big(&tunnel, &frame, 7, 0));
    }

    proptest! {
        #[test]
        fn no_frame_is_too_odd(
            dst in any::<bool>(), start in prop::sample::select(vec![0_usize, 1, 2]),
            at in 0_usize..80, bytes in prop::collection::vec(any::<u8>(), 0..8), cut in 0_usize..300, mtu: u16,
        ) {
            let mut frame = match start {
                0 => v4_frame(1500, IpProtocol::UDP, [10, 0, 0, 2]),
                1 => v6_frame("fd00::1", 6, 0),
                _ => vec![if dst { 2 } else { 3 }; 200],
            };
            for (to, from) in frame.iter_mut().skip(at).zip(&bytes) {
                *to = *from;
            }
            frame.truncate(cut);
            if let Ok(Some(message)) = error_about(&frame, mtu, MAC) {
                prop_assert!(message.bytes().len() <= 256 && message.bytes()[..12] == [&frame[6..12], &MAC.0].concat());
            }
        }
    }
}
