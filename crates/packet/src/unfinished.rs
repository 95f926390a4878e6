//! Checksums that their sender has left to be finished, although nothing says so.
//!
//! A sender on this machine fills the field of a checksum with the sum of the pseudo-header, and
//! notes beside the packet that the rest is still to be added. The note is lost on some ways, for
//! example behind a veth interface with AF_XDP, and inside a tunnel.

use straightline_wire::{IpVersion, Layers, ipv4, ipv6, locate, locate_ip};

use crate::Checksum;

/// Returns what is left to do for a TCP or UDP checksum that equals the sum of its pseudo-header.
/// `head` is the beginning of a frame of `len` bytes.
///
/// A finished checksum may have the same value by chance. Finishing it again yields that value
/// again if it was right.
#[must_use]
pub fn unfinished(head: &[u8], len: u32) -> Option<Checksum> {
    of_layers(&locate(head).ok()?, head, len)
}

/// Returns what [`unfinished`] does, for an IP packet without an Ethernet header.
#[must_use]
pub fn unfinished_ip(head: &[u8], len: u32) -> Option<Checksum> {
    of_layers(&locate_ip(head).ok()?, head, len)
}

fn of_layers(layers: &Layers, head: &[u8], len: u32) -> Option<Checksum> {
    let at = usize::from(layers.checksum()?);
    let field = u16::from_be_bytes([*head.get(at)?, *head.get(at + 1)?]);
    let packet = head.get(usize::from(layers.l3)..)?;
    // Bytes behind the IP packet would be summed, too. A sender that leaves the checksum to be
    // finished adds none.
    let l4_len = len.checked_sub(layers.l4.into())?;
    let pseudo = match layers.version {
        IpVersion::V4 => {
            let header = ipv4::Header::new_checked(packet).ok()?;
            let own = u32::from(header.total_len()) == len - u32::from(layers.l3);
            own.then(|| u16::try_from(l4_len).ok()).flatten().map(|len| header.pseudo_header_sum(len))?
        }
        IpVersion::V6 => {
            let header = ipv6::Header::new_checked(packet).ok()?;
            let own = u32::from(header.payload_len()) + 40 == len - u32::from(layers.l3);
            own.then(|| header.pseudo_header_sum(layers.protocol, l4_len))?
        }
    };
    let offset = u16::try_from(at).ok()? - layers.l4;
    (field == pseudo).then_some(Checksum::Partial { start: layers.l4, offset })
}

#[cfg(test)]
mod tests {
    use super::*;
    use straightline_wire::frame::{self, Frame, Net, Transport};
    use straightline_wire::{MacAddr, tcp};

    fn frame(net: Net, transport: Transport, checksum: frame::Checksum) -> Vec<u8> {
        let frame = Frame {
            src: "02:00:00:00:00:01".parse().expect("an address"),
            dst: MacAddr::BROADCAST,
            tags: [None, None],
            net,
            transport,
            payload_len: 11,
        };
        let mut bytes = vec![0; frame.headers_len() + 11];
        frame.emit(&mut bytes, checksum).expect("space");
        bytes
    }

    #[test]
    fn unfinished_checksums_are_recognised() {
        let nets = [
            Net::v4("10.0.0.1".parse().expect("v4"), "10.0.0.2".parse().expect("v4")),
            Net::v6("fd00::1".parse().expect("v6"), "fd00::2".parse().expect("v6")),
        ];
        let flags = tcp::Flags::ACK;
        let transports = [
            (Transport::Udp { src_port: 1, dst_port: 2 }, 6),
            (Transport::Tcp { src_port: 1, dst_port: 2, seq: 3, ack: 4, flags, window: 5 }, 16),
        ];
        for net in nets {
            for (transport, offset) in transports {
                let l4 = if matches!(net, Net::V4 { .. }) { 34 } else { 54 };
                let bytes = frame(net, transport, frame::Checksum::Partial);
                let len = u32::try_from(bytes.len()).expect("short");
                let expected = Some(Checksum::Partial { start: l4, offset });
                assert_eq!(unfinished(&bytes, len), expected);
                // The same without the Ethernet header.
                let inside = Some(Checksum::Partial { start: l4 - 14, offset });
                assert_eq!(unfinished_ip(&bytes[14..], len - 14), inside);
                assert_eq!(unfinished_ip(&bytes, len), None);
                for short in 0..usize::from(l4 - 14 + offset + 2) {
                    assert_eq!(unfinished_ip(&bytes[14..][..short], len - 14), None, "{short} bytes of the head");
                }
                assert_eq!(
                    unfinished(&bytes[..usize::from(l4) + 20.min(bytes.len() - usize::from(l4))], len),
                    expected
                );
                let finished = frame(net, transport, frame::Checksum::Complete { payload_sum: 0 });
                assert_eq!((unfinished(&finished, len), unfinished_ip(&finished[14..], len - 14)), (None, None));
                assert_eq!(unfinished(&frame(net, transport, frame::Checksum::Zero), len), None);
                // Bytes behind the IP packet.
                assert_eq!(unfinished(&[&bytes[..], &[0; 4]].concat(), len + 4), None);
                for short in 0..usize::from(l4 + offset + 2) {
                    assert_eq!(unfinished(&bytes[..short], len), None, "{short} bytes of the head");
                }
            }
        }
    }
}
