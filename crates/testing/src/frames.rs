//! Frames of all kinds for flow tables: Ethernet, VLAN tags, SNAP, ARP, IPv4 and IPv6 with options,
//! extension headers and fragments, TCP, UDP, SCTP, ICMP and neighbour discovery.

use straightline_wire::checksum::{add, sum};
use straightline_wire::crc32c::crc32c;

/// The IPv4 addresses of frames.
pub const ADDRESSES: [[u8; 4]; 3] = [[10, 0, 0, 1], [10, 0, 255, 254], [192, 168, 1, 1]];

/// Returns an IPv6 address of frames: `fd07::` with this last byte.
#[must_use]
pub fn address6(last: u8) -> [u8; 16] {
    let mut address = [0; 16];
    (address[0], address[1], address[15]) = (0xfd, 7, last);
    address
}

/// Returns the transport part of a packet, with its protocol.
fn transport(kind: u8, ports: [u16; 2], body: &[u8], is_v4: bool, addresses: &[u8]) -> (u8, Vec<u8>) {
    let [src, dst] = ports.map(u16::to_be_bytes);
    let ports = [src, dst].concat();
    let mut bytes;
    let (protocol, field, has_pseudo) = match kind {
        0 | 1 => {
            bytes = [&ports[..], &[0, 0, 0, 7, 0, 0, 0, 9, 0x51, 0x12, 1, 0, 0, 0, 0, 0], body].concat();
            (6, Some(16), true)
        }
        2 | 3 => {
            let len = u16::try_from(8 + body.len()).unwrap_or_default().to_be_bytes();
            bytes = [&ports[..], &len, &[0, 0], body].concat();
            (17, (kind == 2).then_some(6), true)
        }
        4 => {
            bytes = [&ports[..], &[0; 8], body].concat();
            let checksum = crc32c(&bytes);
            bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
            (132, None, false)
        }
        5 => {
            bytes = [&[8, 0, 0, 0, 1, 2, 3, 4], body].concat();
            bytes[0] = dst[1] % 3 * 4;
            (if is_v4 { 1 } else { 58 }, Some(2), !is_v4)
        }
        6 if !is_v4 => {
            bytes =
                [&[135, 0, 0, 0, 0, 0, 0, 0][..], &address6(dst[1] % 3), &[1, 1, 2, 0, 0, 0, 0, dst[1] % 3]].concat();
            if src[1] % 2 == 1 {
                bytes.extend([2, 1, 2, 0, 0, 0, 0, 5]);
            }
            if src[1].is_multiple_of(4) {
                bytes[0] = 136;
                bytes.extend([1, 1, 2, 0, 0, 0, 0, 6]);
            }
            (58, Some(2), true)
        }
        _ => {
            bytes = body.to_vec();
            (47, None, false)
        }
    };
    if let Some(field) = field {
        let len = u16::try_from(bytes.len()).unwrap_or_default();
        let pseudo = if has_pseudo { add(add(sum(addresses), len), u16::from(protocol)) } else { 0 };
        let checksum = match !add(pseudo, sum(&bytes)) {
            0 if protocol == 17 => 0xffff,
            checksum => checksum,
        };
        bytes[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    }
    (protocol, bytes)
}

/// A frame, described by a few small numbers.
#[derive(Clone, Debug)]
pub struct FrameDraft {
    /// Last bytes of the destination and the source MAC address, which begin with `02:00:00:00:00`.
    pub macs: [u8; 2],
    /// VLAN tags: the first has the type 0x8100, others 0x88a8.
    pub tags: Vec<u16>,
    /// 0 to 3: IPv4; 4 to 6: IPv6; 7: ARP; 8: SNAP; others: an EtherType for experiments.
    pub network: u8,
    /// 0 and 1: TCP; 2: UDP; 3: UDP without a checksum; 4: SCTP; 5: ICMP; 6: neighbour discovery; others: GRE.
    pub transport: u8,
    /// Places of the addresses in [`ADDRESSES`], and last bytes of IPv6 addresses.
    pub addresses: [usize; 2],
    /// Ports of the transport header.
    pub ports: [u16; 2],
    /// Time to live, and the operation of ARP.
    pub ttl: u8,
    /// Type of service.
    pub tos: u8,
    /// 0 to 5: whole; others: kinds of fragments.
    pub fragment: u8,
    /// Options of IPv4 and bytes behind the packet, or a kind of IPv6's extension headers.
    pub options: u8,
    /// Bytes behind the headers.
    pub body: Vec<u8>,
    /// Bytes that are missing at the end.
    pub cut: usize,
}

impl FrameDraft {
    /// Returns the frame. Its checksums are right, unless it is cut.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, self.macs[0], 2, 0, 0, 0, 0, self.macs[1]];
        for (at, tci) in self.tags.iter().enumerate() {
            frame.extend(if at == 0 { [0x81, 0] } else { [0x88, 0xa8] });
            frame.extend(tci.to_be_bytes());
        }
        let [src, dst] = self.addresses;
        match self.network {
            0..=3 => self.ipv4(&mut frame),
            4..=6 => self.ipv6(&mut frame),
            7 => {
                frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, self.ttl % 3, 2, 0, 0, 0, 0, self.macs[1]]);
                frame.extend(ADDRESSES[src]);
                frame.extend([0, 0, 0, 0, 0, self.macs[0]]);
                frame.extend(ADDRESSES[dst]);
            }
            8 => {
                let snap = [0, 60, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
                frame.extend(snap);
                frame.extend(&self.body);
            }
            _ => {
                frame.extend([0x88, 0xb5]);
                frame.extend(&self.body);
            }
        }
        if self.cut > 0 {
            let len = frame.len();
            frame.truncate(len.saturating_sub(self.cut).max(14));
        }
        frame
    }

    fn ipv4(&self, frame: &mut Vec<u8>) {
        let addresses = [ADDRESSES[self.addresses[0]], ADDRESSES[self.addresses[1]]].concat();
        let (protocol, mut payload) = transport(self.transport, self.ports, &self.body, true, &addresses);
        let options = usize::from(self.options % 3) * 4;
        let place: u16 = match self.fragment {
            6 => 0x2000,
            7 => 0x2003,
            8 => 5,
            9 => {
                payload.truncate(8);
                0x2000
            }
            _ => 0x4000,
        };
        let total = u16::try_from(20 + options + payload.len()).unwrap_or_default().to_be_bytes();
        let [place_high, place_low] = place.to_be_bytes();
        let mut header = vec![0x45 + self.options % 3, self.tos, total[0], total[1], 0, 1, place_high, place_low];
        header.extend([self.ttl, protocol, 0, 0]);
        header.extend(addresses);
        header.resize(20 + options, 1);
        let checksum = !sum(&header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        frame.extend([8, 0]);
        frame.extend(header);
        frame.extend(payload);
        // Padding belongs to no packet.
        frame.extend(vec![0xee; usize::from(self.options)]);
    }

    fn ipv6(&self, frame: &mut Vec<u8>) {
        let addresses = self.addresses.map(|last| address6(u8::try_from(last).unwrap_or_default()));
        let (protocol, mut payload) = transport(self.transport, self.ports, &self.body, false, &addresses.concat());
        let mut next = protocol;
        let mut extensions = Vec::new();
        let fragment = match self.fragment {
            6 => Some(1),
            7 => Some(0x19),
            8 => Some(0),
            9 => {
                payload.truncate(8);
                Some(1)
            }
            _ => None,
        };
        if let Some(place) = fragment {
            let [high, low] = u16::to_be_bytes(place);
            extensions = vec![next, 0, high, low, 0, 0, 0, 1];
            next = 44;
        }
        match self.options {
            1 => {
                extensions.splice(0..0, [next, 0, 1, 4, 0, 0, 0, 0]);
                next = 0;
            }
            2 => {
                extensions.splice(0..0, [&[next, 2, 0, 1][..], &[0; 20]].concat());
                next = 43;
            }
            3 => {
                extensions.splice(0..0, [next, 9, 1, 4, 0, 0, 0, 0]);
                next = 60;
            }
            _ => {}
        }
        let len = u16::try_from(extensions.len() + payload.len()).unwrap_or_default().to_be_bytes();
        frame.extend([0x86, 0xdd, 0x60 | self.tos >> 4, self.tos << 4 | 3, 0, 7, len[0], len[1], next, self.ttl]);
        frame.extend(addresses.concat());
        frame.extend(extensions);
        frame.extend(payload);
    }
}
