//! The frames of a stream, built once, and the changes of each packet.
//!
//! All changes are between the first field that varies and the end of the tag. A template keeps
//! this part of the frame as an image. Each packet's fields, checksums and tag are written into the
//! image. The image is the only patch that a port gets.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::{Context, ensure};
use straightline_report::random::Random;
use straightline_virtio::net_header::NetHeader;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use straightline_wire::{EtherType, checksum, ethernet, ipv4, ipv6, tcp, udp, vlan};

use super::spec::{Field, Protocol, StreamSpec, Sum};
use super::tag::{self, Tag};
use super::values::{Draw, Value};

/// Flags of the virtio-net header: the device completes the checksum, and segments TCP over IPv4 or
/// IPv6 (virtio 1.2, 5.1.6).
const NEEDS_CSUM: u8 = 1;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;

/// VXLAN's port and the length of its header (RFC 7348, 4.1 and 5).
const VXLAN_PORT: u16 = 4789;
const VXLAN: usize = 8;

/// The number of checksums that may change with a field: the tunnel's IP header, the IP header, and
/// the transport header.
const SUMS: usize = 3;
const TRANSPORT: usize = 2;

/// Offsets of the headers of a stream's packets.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// The inner Ethernet header: after the tunnel's headers, or at 0 without a tunnel.
    inner: usize,
    l3: usize,
    l4: usize,
    /// The end of all headers, where the tag begins.
    payload: usize,
    v6: bool,
    outer_v6: bool,
}

/// A field that changes from packet to packet.
#[derive(Clone, Debug)]
pub(super) struct Varying {
    at: usize,
    width: usize,
    /// The checksums that cover the field.
    under: [bool; SUMS],
    draw: Draw,
}

/// A frame of one length.
#[derive(Clone, Debug)]
pub(super) struct Template {
    pub(super) header: NetHeader,
    /// The frame, which never changes.
    pub(super) frame: Vec<u8>,
    /// The start of the patch.
    start: usize,
    /// The image: the part of the frame that changes, with the last packet's values.
    image: Vec<u8>,
    sums: [Option<Fix>; SUMS],
    hash: u32,
    /// The bytes before the tag, if only these and the tag change.
    before: Option<Before>,
}

/// The [`tag::BEFORE`] bytes before the tag of a template without varying fields.
#[derive(Clone, Copy, Debug)]
enum Before {
    /// These bytes, as a number of 48 bits.
    Same(u64),
    /// These bytes, of which the last two are UDP's checksum, which covers the tag. `base` is the sum
    /// of all other covered bytes.
    Sum { bytes: u64, base: u16 },
}

/// A checksum that depends on changing bytes.
#[derive(Clone, Copy, Debug)]
struct Fix {
    /// Its offset.
    at: usize,
    /// The sum of the covered bytes that do not change.
    base: u16,
    /// The form in which the checksum is written.
    form: Form,
    /// True if the checksum covers the tag and everything else after the header.
    payload: bool,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    /// The complement of the sum.
    Usual,
    /// The complement, but never 0 (RFC 768).
    Udp,
    /// The sum itself.
    Partial,
}

impl Layout {
    fn new(spec: &StreamSpec) -> Layout {
        let v6 = |field| spec.values(field).is_some_and(|values| matches!(values.first(), Value::V6(_)));
        let ip = |v6: bool| if v6 { ipv6::LEN } else { ipv4::MIN_LEN };
        let inner_v6 = v6(Field::SrcIp);
        let outer_v6 = v6(Field::OuterSrcIp);
        let tunnel = ethernet::LEN + ip(outer_v6) + udp::LEN + VXLAN;
        let inner = if spec.has(Field::Vni) { tunnel } else { 0 };
        let tags = [Field::ServiceVlan, Field::Vlan].into_iter().filter(|field| spec.has(*field)).count();
        let l3 = inner + ethernet::LEN + vlan::LEN * tags;
        let l4 = l3 + ip(inner_v6);
        let transport = match spec.protocol {
            Protocol::Udp => udp::LEN,
            Protocol::Tcp => tcp::MIN_LEN,
        };
        Layout { inner, l3, l4, payload: l4 + transport, v6: inner_v6, outer_v6 }
    }

    /// Returns the offset of the bytes of a field that change, their number, and the checksums that
    /// cover them.
    fn place(&self, field: Field, spec: &StreamSpec) -> (usize, usize, [bool; SUMS]) {
        let outer_l3 = ethernet::LEN;
        // Only the lower half of an IPv6 address changes.
        let address = |l3: usize, v6: bool, dst: bool| match (v6, dst) {
            (false, false) => (l3 + 12, 4),
            (false, true) => (l3 + 16, 4),
            (true, false) => (l3 + 16, 8),
            (true, true) => (l3 + 32, 8),
        };
        let transport = spec.checksum != Sum::Zero;
        // A partial checksum covers the pseudo-header only, and that has no ports.
        let ports = [false, false, spec.checksum == Sum::Complete];
        let (at, width) = match field {
            Field::DstMac => (self.inner, 6),
            Field::SrcMac => (self.inner + 6, 6),
            Field::ServiceVlan => (self.inner + vlan::OFFSET + 2, 2),
            Field::Vlan if spec.has(Field::ServiceVlan) => (self.inner + vlan::OFFSET + vlan::LEN + 2, 2),
            Field::Vlan => (self.inner + vlan::OFFSET + 2, 2),
            Field::SrcIp => address(self.l3, self.v6, false),
            Field::DstIp => address(self.l3, self.v6, true),
            Field::SrcPort => (self.l4, 2),
            Field::DstPort => (self.l4 + 2, 2),
            // VXLAN's header: flags, three reserved bytes, three bytes of VNI, one reserved byte
            // (RFC 7348, 5).
            Field::Vni => (self.inner - VXLAN + 4, 3),
            Field::OuterDstMac => (0, 6),
            Field::OuterSrcMac => (6, 6),
            Field::OuterSrcIp => address(outer_l3, self.outer_v6, false),
            Field::OuterDstIp => address(outer_l3, self.outer_v6, true),
            Field::OuterSrcPort => (self.inner - VXLAN - udp::LEN, 2),
        };
        let under = match field {
            Field::SrcIp | Field::DstIp => [false, !self.v6, transport],
            Field::SrcPort | Field::DstPort => ports,
            Field::OuterSrcIp | Field::OuterDstIp => [!self.outer_v6, false, false],
            _ => [false; SUMS],
        };
        (at, width, under)
    }
}

/// Returns the offset of tags in a stream's packets.
pub(super) fn tag_at(spec: &StreamSpec) -> usize {
    Layout::new(spec).payload
}

/// Returns the fields that change, each with its own sequence of values.
pub(super) fn varying(spec: &StreamSpec) -> Vec<Varying> {
    let layout = Layout::new(spec);
    let write_field = |(number, field): (u64, Field)| {
        let draw = spec.values(field)?.draw(spec.seed.wrapping_mul(31).wrapping_add(number))?;
        let (at, width, under) = layout.place(field, spec);
        Some(Varying { at, width, under, draw })
    };
    (0..).zip(Field::all()).filter_map(write_field).collect()
}

impl Template {
    /// Builds a frame of `len` bytes. The seed determines the payload, so that frames of one length
    /// have different payloads.
    pub(super) fn new(spec: &StreamSpec, len: usize, seed: u64, varying: &[Varying]) -> anyhow::Result<Template> {
        let layout = Layout::new(spec);
        let least = layout.payload + tag::LEN;
        ensure!(
            len >= least,
            "a frame of {len} bytes is too short: the headers take {} bytes and the tag {}: use at least {least}",
            layout.payload,
            tag::LEN
        );
        let mut frame = vec![0; len];
        let mut random = Random::new(seed);
        frame[least..].fill_with(|| random.next().to_le_bytes()[0]);
        let hash = tag::hash(&frame[least..]);
        let payload_sum = checksum::sum(&frame[least..]);
        emit(spec, &layout, &mut frame, payload_sum)
            .with_context(|| format!("a frame of {len} bytes cannot be built"))?;
        let header = net_header(spec, &layout, len)?;
        let start = varying.iter().map(|field| field.at).min().unwrap_or(layout.payload).min(layout.payload);
        let mut template = Template { header, start, image: Vec::new(), sums: [None; SUMS], hash, before: None, frame };
        template.find_sums(spec, &layout, varying);
        let first = template.sums.iter().flatten().map(|fix| fix.at).min().unwrap_or(start);
        // The image begins at most at the words of the tag. If possible it has a whole number of
        // words, because ports copy such patches word by word.
        let start = start.min(first).min(least - 8 * tag::WORDS);
        template.start = start - ((start + 8 - least % 8) % 8).min(start);
        if varying.is_empty() {
            template.before = template.before(layout.payload - tag::BEFORE);
        }
        template.image = template.frame[template.start..least].to_vec();
        Ok(template)
    }

    /// Returns the bytes at `at` before the tag, if no checksum before them changes.
    fn before(&self, at: usize) -> Option<Before> {
        let mut changing = self.sums.iter().flatten();
        let number_of = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let bytes = number_of(&self.frame[at..at + tag::BEFORE]);
        let checksum = at + tag::BEFORE - 2;
        match (changing.next(), changing.next()) {
            (None, _) => Some(Before::Same(bytes)),
            (Some(fix), None) if fix.at == checksum && matches!(fix.form, Form::Udp) => {
                Some(Before::Sum { bytes: bytes & !0xffff, base: fix.base })
            }
            _ => None,
        }
    }

    /// Finds the checksums that change from packet to packet, and their sums over the bytes that do
    /// not change.
    fn find_sums(&mut self, spec: &StreamSpec, layout: &Layout, varying: &[Varying]) {
        let payload = spec.checksum == Sum::Complete;
        let transport = layout.l4
            + match spec.protocol {
                Protocol::Udp => udp::CHECKSUM,
                Protocol::Tcp => tcp::CHECKSUM,
            };
        let places = [ethernet::LEN + 10, layout.l3 + 10, transport];
        for (which, at) in places.into_iter().enumerate() {
            let covered = varying.iter().filter(|field| field.under[which]);
            if covered.clone().next().is_none() && !(which == TRANSPORT && payload) {
                continue;
            }
            let field = u16::from_be_bytes([self.frame[at], self.frame[at + 1]]);
            let form = match (which, spec.checksum, spec.protocol) {
                (TRANSPORT, Sum::Partial, _) => Form::Partial,
                (TRANSPORT, _, Protocol::Udp) => Form::Udp,
                _ => Form::Usual,
            };
            let sum = if matches!(form, Form::Partial) { field } else { !field };
            // RFC 1624, equation 3: `~m` of the current bytes is added here, and `m'` of the new
            // bytes for each packet. The bytes of the tag are still zero.
            let base = covered.fold(sum, |sum, field| {
                checksum::add(sum, !checksum::sum(&self.frame[field.at..field.at + field.width]))
            });
            self.sums[which] = Some(Fix { at, base, form, payload: which == TRANSPORT && payload });
        }
    }

    /// Returns the image: the part of the frame that changes, as in the last packet made.
    #[inline]
    pub(super) fn patch(&self) -> (usize, &[u8]) {
        (self.start, &self.image)
    }

    /// Writes the next packet's fields, checksums and tag into the image.
    #[inline]
    pub(super) fn make(&mut self, varying: &mut [Varying], stream: u16, sequence: u64, time: u64) {
        let mut words = Tag { stream, sequence, time, hash: self.hash }.to_words();
        let before = match self.before {
            Some(Before::Same(bytes)) => bytes,
            Some(Before::Sum { bytes, base }) => {
                bytes | u64::from(udp::checksum_of(fold(sum(words) + u64::from(base))))
            }
            None => return self.make_all(varying, words),
        };
        words[0] |= before << 16;
        put_words(&mut self.image, words);
    }

    /// Writes all fields and checksums, and a tag.
    fn make_all(&mut self, varying: &mut [Varying], mut words: [u64; tag::WORDS]) {
        let mut sums = [0_u64; SUMS];
        for field in varying {
            let value = field.draw.next();
            let at = field.at - self.start;
            put(&mut self.image, at, field.width, value);
            let words = (value & 0xffff) + (value >> 16 & 0xffff) + (value >> 32 & 0xffff) + (value >> 48);
            for (sum, under) in sums.iter_mut().zip(field.under) {
                *sum += if under { words } else { 0 };
            }
        }
        let payload = sum(words);
        if let Some((before, _)) =
            self.image.last_chunk::<{ 8 * tag::WORDS }>().and_then(|words| words.split_first_chunk())
        {
            words[0] |= u64::from_be_bytes(*before) & !0xffff;
        }
        put_words(&mut self.image, words);
        for (fix, mut sum) in self.sums.iter().zip(sums) {
            let Some(fix) = fix else { continue };
            if fix.payload {
                sum += payload;
            }
            let sum = fold(sum + u64::from(fix.base));
            let field = match fix.form {
                Form::Usual => !sum,
                Form::Udp => udp::checksum_of(sum),
                Form::Partial => sum,
            };
            self.image[fix.at - self.start..][..2].copy_from_slice(&field.to_be_bytes());
        }
    }
}

/// Writes all headers. The payload is already written; its first [`tag::LEN`] bytes are zero.
fn emit(spec: &StreamSpec, layout: &Layout, frame: &mut [u8], payload_sum: u16) -> anyhow::Result<()> {
    let value = |field| spec.values(field).map_or(Value::Number(0), |values| values.first());
    let tag = |field, tpid| spec.has(field).then(|| vlan::Tag { tpid, pcp: 0, dei: false, vid: value(field).port() });
    let src_port = value(Field::SrcPort).port();
    let dst_port = value(Field::DstPort).port();
    let headers = Frame {
        src: value(Field::SrcMac).mac(),
        dst: value(Field::DstMac).mac(),
        tags: [tag(Field::ServiceVlan, EtherType::SERVICE_VLAN), tag(Field::Vlan, EtherType::VLAN)],
        net: net(value(Field::SrcIp), value(Field::DstIp)),
        transport: match spec.protocol {
            Protocol::Udp => Transport::Udp { src_port, dst_port },
            Protocol::Tcp => {
                Transport::Tcp { src_port, dst_port, seq: 1, ack: 1, flags: tcp::Flags::ACK, window: 1000 }
            }
        },
        payload_len: u16::try_from(frame.len() - layout.payload)?,
    };
    let checksum = match spec.checksum {
        Sum::Complete => Checksum::Complete { payload_sum },
        Sum::Partial => Checksum::Partial,
        Sum::Zero => Checksum::Zero,
    };
    headers.emit(&mut frame[layout.inner..], checksum)?;
    if layout.inner > 0 {
        let tunnel = Frame {
            src: value(Field::OuterSrcMac).mac(),
            dst: value(Field::OuterDstMac).mac(),
            tags: [None, None],
            net: net(value(Field::OuterSrcIp), value(Field::OuterDstIp)),
            transport: Transport::Udp { src_port: value(Field::OuterSrcPort).port(), dst_port: VXLAN_PORT },
            payload_len: u16::try_from(frame.len() - layout.inner + VXLAN)?,
        };
        // RFC 7348, 5: the outer UDP checksum is sent as zero (over IPv6: RFC 6935).
        let vxlan = tunnel.emit(frame, Checksum::Zero)?;
        // The flag I, and the VNI in front of a reserved byte.
        frame[vxlan..vxlan + 4].copy_from_slice(&[0x08, 0, 0, 0]);
        frame[vxlan + 4..vxlan + VXLAN].copy_from_slice(&(value(Field::Vni).number() << 8).to_be_bytes());
    }
    Ok(())
}

fn net(src: Value, dst: Value) -> Net {
    match (src, dst) {
        (Value::V6(src), Value::V6(dst)) => Net::v6(Ipv6Addr::from_bits(src), Ipv6Addr::from_bits(dst)),
        (src, dst) => Net::v4(Ipv4Addr::from_bits(src.number()), Ipv4Addr::from_bits(dst.number())),
    }
}

/// Returns the virtio-net header, with the requests to the device (virtio 1.2, 5.1.6.2).
fn net_header(spec: &StreamSpec, layout: &Layout, len: usize) -> anyhow::Result<NetHeader> {
    let mut header = NetHeader::default();
    if spec.checksum == Sum::Partial {
        header.flags = NEEDS_CSUM;
        header.csum_start = u16::try_from(layout.l4)?;
        header.csum_offset = u16::try_from(match spec.protocol {
            Protocol::Udp => udp::CHECKSUM,
            Protocol::Tcp => tcp::CHECKSUM,
        })?;
    }
    if let Some(size) = spec.segment.filter(|size| len - layout.payload > usize::from(*size)) {
        header.gso_type = if layout.v6 { GSO_TCPV6 } else { GSO_TCPV4 };
        (header.gso_size, header.hdr_len) = (size, u16::try_from(layout.payload)?);
    }
    Ok(header)
}

/// Writes the lower bytes of a value into `to`.
#[inline]
fn put(bytes: &mut [u8], at: usize, width: usize, value: u64) {
    let all = value.to_be_bytes();
    match width {
        2 => bytes[at..at + 2].copy_from_slice(&all[6..]),
        4 => bytes[at..at + 4].copy_from_slice(&all[4..]),
        6 => bytes[at..at + 6].copy_from_slice(&all[2..]),
        _ => bytes[at..at + width].copy_from_slice(&all[8 - width..]),
    }
}

/// Writes a tag, with the bytes before it, to the end of an image. Each word is stored at once.
#[inline]
fn put_words(image: &mut [u8], words: [u64; tag::WORDS]) {
    let Some(end) = image.last_chunk_mut::<{ 8 * tag::WORDS }>() else { return };
    let (places, _) = end.as_chunks_mut::<8>();
    for (place, word) in places.iter_mut().zip(words) {
        *place = word.to_be_bytes();
    }
}

/// Returns a sum of the 16-bit words of a tag, not folded to 16 bits. The bytes before the tag are
/// zero.
#[inline]
fn sum([first, second, third]: [u64; tag::WORDS]) -> u64 {
    let halves = |word: u64| (word >> 32) + (word & 0xffff_ffff);
    halves(first) + halves(second) + halves(third)
}

#[inline]
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use etherparse::{SlicedPacket, TransportSlice};

    use super::*;

    /// Returns a packet as a port sends it.
    fn packet(template: &mut Template, varying: &mut [Varying], sequence: u64) -> Vec<u8> {
        template.make(varying, 3, sequence, 1000 + sequence);
        let (start, image) = template.patch();
        let mut frame = template.frame.clone();
        frame[start..start + image.len()].copy_from_slice(image);
        frame
    }

    /// Returns the headers that a third-party parser finds in a frame, after checking the frame's
    /// checksums.
    fn strange(bytes: &[u8]) -> (Vec<u8>, String) {
        let packet = SlicedPacket::from_ethernet(bytes).expect("a packet");
        let net = packet.net.expect("IP");
        let transport = packet.transport.expect("a transport");
        let payload = transport_payload(&transport);
        let words = match &net {
            etherparse::NetSlice::Ipv4(ip) => {
                let header = ip.header().to_header();
                assert_eq!(header.header_checksum, header.calc_header_checksum());
                let (wanted, found) = match &transport {
                    TransportSlice::Udp(udp) => (udp.to_header().calc_checksum_ipv4(&header, payload), udp.checksum()),
                    TransportSlice::Tcp(tcp) => (tcp.to_header().calc_checksum_ipv4(&header, payload), tcp.checksum()),
                    _ => panic!("neither UDP nor TCP"),
                };
                if found != 0 {
                    assert_eq!(wanted.expect("a checksum"), found);
                }
                format!("{} {}", header.source[3], header.destination[3])
            }
            etherparse::NetSlice::Ipv6(ip) => {
                let header = ip.header().to_header();
                let TransportSlice::Udp(udp) = &transport else { panic!("UDP is sent over IPv6 here") };
                let wanted = udp.to_header().calc_checksum_ipv6(&header, payload);
                assert_eq!(wanted.expect("a checksum"), udp.checksum());
                format!("{} {}", header.source[15], header.destination[15])
            }
            other => panic!("{other:?}"),
        };
        (payload.to_vec(), words)
    }

    fn transport_payload<'a>(transport: &TransportSlice<'a>) -> &'a [u8] {
        match transport {
            TransportSlice::Udp(udp) => udp.payload(),
            TransportSlice::Tcp(tcp) => tcp.payload(),
            _ => panic!("neither UDP nor TCP"),
        }
    }

    fn made(text: &str, len: usize) -> (StreamSpec, Template, Vec<Varying>) {
        let spec: StreamSpec = text.parse().expect(text);
        let varying = varying(&spec);
        let template = Template::new(&spec, len, 7, &varying).expect(text);
        (spec, template, varying)
    }

    #[test]
    fn strangers_find_what_was_asked_for() {
        for (text, len) in [
            ("", 64),
            ("", 65),
            ("", 1518),
            ("checksum=zero,src-ip=step:10.0.0.1-10.0.0.9", 64),
            ("src-ip=step:10.0.0.1-10.0.0.9,dst-ip=random:10.0.0.0/24,src-port=step:1-9,dst-port=random:0-65535", 99),
            ("svlan=step:1-9,vlan=random:1-4095,src-mac=step:02:00:00:00:00:01-02:00:00:00:00:09", 200),
            ("src-ip=step:fd00::1-fd00::9,dst-ip=random:fd00::/64,src-port=step:1-9", 301),
            ("protocol=tcp,src-ip=repeat:10.0.0.7+10.0.0.3,dst-port=random:1-65535", 1500),
        ] {
            let (spec, mut template, mut varying) = made(text, len);
            let mut seen = std::collections::BTreeSet::new();
            for sequence in 0..50 {
                let bytes = packet(&mut template, &mut varying, sequence);
                assert_eq!(bytes.len(), len);
                let (payload, words) = strange(&bytes);
                let found = Tag::parse(payload[..tag::LEN].try_into().expect("long enough")).expect("a tag");
                assert_eq!((found.stream, found.sequence, found.time), (3, sequence, 1000 + sequence));
                assert_eq!(found.hash, tag::hash(&payload[tag::LEN..]));
                assert_eq!(bytes.len() - payload.len(), tag_at(&spec));
                seen.insert(words);
            }
            assert_eq!(seen.len() > 1, text.contains("-ip="), "{text}: {seen:?}");
        }
    }

    #[test]
    fn each_checksum_that_comes_about_is_right() {
        // The range has enough ports for sums that fold to zero and to all ones.
        let (_, mut template, mut varying) = made("src-port=step:0-65535,dst-port=0", 64);
        for sequence in 0..65_536 {
            strange(&packet(&mut template, &mut varying, sequence));
        }
    }

    #[test]
    fn a_packet_in_a_tunnel_is_two() {
        let text = "vni=step:70000-70009,outer-src-port=step:50000-50009,outer-dst-ip=step:10.9.0.1-10.9.0.9,src-port=step:1-9";
        let (spec, mut template, mut varying) = made(text, 200);
        for sequence in 0..9_u8 {
            let bytes = packet(&mut template, &mut varying, sequence.into());
            let (outer, words) = strange(&bytes);
            assert_eq!(words, format!("1 {}", 1 + sequence));
            assert_eq!(outer[..8], [8, 0, 0, 0, 1, 0x11, 0x70 + sequence, 0]);
            let (inner, _) = strange(&outer[8..]);
            assert_eq!(bytes.len() - inner.len(), tag_at(&spec));
            assert!(Tag::parse(inner[..tag::LEN].try_into().expect("long enough")).is_some());
        }
        assert_eq!(tag_at(&spec), 50 + 42);
        let (_, mut template, mut varying) = made("vni=5,outer-src-ip=fd00::1,outer-dst-ip=fd00::2", 200);
        let bytes = packet(&mut template, &mut varying, 1);
        assert_eq!(bytes[14 + 40 + 8..][..8], [8, 0, 0, 0, 0, 0, 5, 0]);
    }

    #[test]
    fn what_the_device_is_to_do_is_in_the_header() {
        let (_, mut template, mut varying) =
            made("protocol=tcp,checksum=partial,segment=1448,src-ip=step:10.0.0.1-10.0.0.9", 65_214);
        let wanted = NetHeader {
            flags: 1,
            gso_type: 1,
            hdr_len: 54,
            gso_size: 1448,
            csum_start: 34,
            csum_offset: 16,
            num_buffers: 0,
        };
        assert_eq!(template.header, wanted);
        for sequence in 0..9 {
            let bytes = packet(&mut template, &mut varying, sequence);
            let src = &bytes[26..30];
            let dst = &bytes[30..34];
            let pseudo = checksum::add(checksum::add(checksum::sum(src), checksum::sum(dst)), 6);
            let sum = checksum::add(pseudo, u16::try_from(bytes.len() - 34).expect("16 bits"));
            assert_eq!(bytes[50..52], sum.to_be_bytes());
        }
        let (_, template, _) = made("protocol=tcp,checksum=partial,segment=1448", 1000);
        assert_eq!((template.header.flags, template.header.gso_type), (1, 0));
    }

    #[test]
    fn lengths_that_cannot_be_are_named() {
        let spec: StreamSpec = "vlan=1".parse().expect("a stream");
        let fault = |len| format!("{:#}", Template::new(&spec, len, 1, &[]).expect_err("it cannot be"));
        assert!(fault(63).contains("63 bytes is too short") && fault(63).contains("use at least 64"), "{}", fault(63));
        assert!(Template::new(&spec, 64, 1, &[]).is_ok());
        assert!(fault(70_000).contains("70000 bytes cannot be built"), "{}", fault(70_000));
    }
}
