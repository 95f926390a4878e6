//! The description of a stream, and its text form.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use straightline_virtio::features as f;

use super::values::{Kind, Value, Values, number};
use crate::traffic::Sizes;

/// A field of a packet's headers that a stream may vary. A stream with a VNI is encapsulated in
/// VXLAN (RFC 7348). Fields whose names begin with `outer` belong to the tunnel's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Field {
    DstMac,
    SrcMac,
    ServiceVlan,
    Vlan,
    SrcIp,
    DstIp,
    SrcPort,
    DstPort,
    Vni,
    OuterDstMac,
    OuterSrcMac,
    OuterSrcIp,
    OuterDstIp,
    OuterSrcPort,
}

/// For each field: the name on the command line, the kind, and the default.
const FIELDS: [(Field, &str, Kind, Option<&str>); 14] = [
    (Field::DstMac, "dst-mac", Kind::Mac, Some("02:00:00:00:00:02")),
    (Field::SrcMac, "src-mac", Kind::Mac, Some("02:00:00:00:00:01")),
    (Field::ServiceVlan, "svlan", Kind::Number(4095), None),
    (Field::Vlan, "vlan", Kind::Number(4095), None),
    // Addresses for network tests (RFC 2544, appendix C.2.2).
    (Field::SrcIp, "src-ip", Kind::Ip, Some("198.18.0.1")),
    (Field::DstIp, "dst-ip", Kind::Ip, Some("198.18.0.2")),
    (Field::SrcPort, "src-port", Kind::Number(65_535), Some("1000")),
    (Field::DstPort, "dst-port", Kind::Number(65_535), Some("2000")),
    (Field::Vni, "vni", Kind::Number(0xff_ffff), None),
    (Field::OuterDstMac, "outer-dst-mac", Kind::Mac, Some("02:00:00:00:01:02")),
    (Field::OuterSrcMac, "outer-src-mac", Kind::Mac, Some("02:00:00:00:01:01")),
    (Field::OuterSrcIp, "outer-src-ip", Kind::Ip, Some("198.19.0.1")),
    (Field::OuterDstIp, "outer-dst-ip", Kind::Ip, Some("198.19.0.2")),
    (Field::OuterSrcPort, "outer-src-port", Kind::Number(65_535), Some("49152")),
];

impl Field {
    /// Returns all fields, in the order of the list above.
    pub(super) fn all() -> impl Iterator<Item = Field> {
        FIELDS.iter().map(|known| known.0)
    }
}

/// Pairs of fields that are swapped for the opposite direction.
const PAIRS: [(Field, Field); 5] = [
    (Field::DstMac, Field::SrcMac),
    (Field::SrcIp, Field::DstIp),
    (Field::SrcPort, Field::DstPort),
    (Field::OuterDstMac, Field::OuterSrcMac),
    (Field::OuterSrcIp, Field::OuterDstIp),
];

/// The transport protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// UDP.
    #[default]
    Udp,
    /// TCP segments without a connection.
    Tcp,
}

/// The content of the transport header's checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sum {
    /// A complete checksum.
    #[default]
    Complete,
    /// A partial checksum, which the receiver completes (virtio's `NEEDS_CSUM`).
    Partial,
    /// No checksum: possible with UDP over IPv4 only.
    Zero,
}

/// A stream of packets: frame lengths, and headers whose fields stay, step, repeat or are random.
///
/// The text form of a stream is a list of `KEY=VALUE`, separated by commas. Every key may be left
/// out: `size=64+1518,vlan=100,src-port=step:1000-1999,dst-ip=random:10.0.0.0/24`.
///
/// | key | value |
/// |---|---|
/// | `size` | [`Sizes`] with `+` in place of commas; with all headers, without the Ethernet checksum |
/// | `protocol` | `udp` or `tcp` |
/// | `checksum` | `complete`, `partial` (the switch completes it) or `zero` |
/// | `segment` | payload bytes of the segments into which the switch may segment a larger packet |
/// | `weight` | share of this stream among the port's streams |
/// | `seed` | random seed for lengths and fields |
/// | `src-mac`, `dst-mac`, `svlan`, `vlan`, `src-ip`, `dst-ip`, `src-port`, `dst-port`, `vni`, `outer-src-mac`, `outer-dst-mac`, `outer-src-ip`, `outer-dst-ip`, `outer-src-port` | a value, `step:FROM-TO`, `step:FROM-TO+BY`, `repeat:A+B+C` or `random:FROM-TO`; a range of IP addresses may be a prefix |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    /// Lengths of its frames.
    pub sizes: Sizes,
    /// The transport protocol.
    pub protocol: Protocol,
    /// The content of the transport header's checksum field.
    pub checksum: Sum,
    /// Payload bytes of a segment, if the device is to segment larger packets.
    pub segment: Option<u16>,
    /// The share of this stream in the packets of its port.
    pub weight: u32,
    /// Random seed for lengths and fields.
    pub seed: u64,
    fields: BTreeMap<Field, Values>,
}

impl StreamSpec {
    /// UDP over IPv4 between two stations, in frames of these lengths.
    #[must_use]
    pub fn new(sizes: Sizes) -> StreamSpec {
        let protocol = Protocol::default();
        let checksum = Sum::default();
        StreamSpec { sizes, protocol, checksum, segment: None, weight: 1, seed: 1, fields: BTreeMap::new() }
    }

    /// Returns the stream of the opposite direction: source and destination are swapped.
    #[must_use]
    pub fn reversed(&self) -> StreamSpec {
        let mut reversed = self.clone();
        for (a, b) in PAIRS {
            let of_a = self.values(a);
            let of_b = self.values(b);
            reversed.fields.extend(of_b.map(|values| (a, values)));
            reversed.fields.extend(of_a.map(|values| (b, values)));
        }
        reversed
    }

    /// Returns the features of virtio-net (virtio 1.2, 5.1.3) that leave to the device what this stream
    /// leaves to it, in both directions.
    #[must_use]
    pub fn offloads(&self) -> u64 {
        let when = |wanted: bool, features| if wanted { features } else { 0 };
        let is_segmented = self.segment.is_some();
        let is_v6 = matches!(self.values(Field::SrcIp).map(|values| values.first()), Some(Value::V6(_)));
        when(self.checksum == Sum::Partial, f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_GUEST_CSUM)
            | when(is_segmented && !is_v6, f::VIRTIO_NET_F_HOST_TSO4 | f::VIRTIO_NET_F_GUEST_TSO4)
            | when(is_segmented && is_v6, f::VIRTIO_NET_F_HOST_TSO6 | f::VIRTIO_NET_F_GUEST_TSO6)
    }

    /// Returns the MTU that an interface needs for the frames of this stream. Returns `None` if the
    /// device segments them.
    #[must_use]
    pub fn mtu(&self) -> Option<u32> {
        // The tags of a packet in a tunnel are behind the tunnel's headers.
        let tags = [Field::ServiceVlan, Field::Vlan].into_iter().filter(|&tag| self.has(tag) && !self.has(Field::Vni));
        let header = 14 + 4 * u32::try_from(tags.count()).unwrap_or(0);
        self.segment.is_none().then(|| self.sizes.longest().saturating_sub(header))
    }

    /// Returns the values of a field; `None` if packets of this stream do not have the field.
    pub(super) fn values(&self, field: Field) -> Option<Values> {
        if let Some(values) = self.fields.get(&field) {
            return Some(values.clone());
        }
        let (.., kind, usual) = FIELDS.iter().find(|known| known.0 == field)?;
        let outer = matches!(
            field,
            Field::OuterDstMac | Field::OuterSrcMac | Field::OuterSrcIp | Field::OuterDstIp | Field::OuterSrcPort
        );
        if outer && !self.has(Field::Vni) {
            return None;
        }
        (*usual).and_then(|text| Values::parse(*kind, text).ok())
    }

    /// Returns whether the specification sets this field.
    pub(super) fn has(&self, field: Field) -> bool {
        self.fields.contains_key(&field)
    }

    fn set(&mut self, key: &str, value: &str) -> anyhow::Result<()> {
        match key {
            "size" => self.sizes = value.parse().with_context(|| format!("`size={value}`"))?,
            "protocol" => {
                self.protocol = match value {
                    "udp" => Protocol::Udp,
                    "tcp" => Protocol::Tcp,
                    _ => bail!("`protocol={value}` is not possible: use udp or tcp"),
                }
            }
            "checksum" => {
                self.checksum = match value {
                    "complete" => Sum::Complete,
                    "partial" => Sum::Partial,
                    "zero" => Sum::Zero,
                    _ => bail!("`checksum={value}` is not possible: use complete, partial or zero"),
                }
            }
            "segment" => self.segment = Some(number(key, value, "use the payload bytes of a segment, such as 1448")?),
            "weight" => self.weight = number(key, value, "use a weight from 1 to 1000")?,
            "seed" => self.seed = number(key, value, "a number")?,
            _ => {
                let Some((field, _, kind, _)) = FIELDS.iter().find(|known| known.1 == key) else {
                    let fields: Vec<_> = FIELDS.iter().map(|known| known.1).collect();
                    bail!(
                        "there is no key `{key}`; the keys are size, protocol, checksum, segment, weight, seed, {}",
                        fields.join(", ")
                    );
                };
                let values = Values::parse(*kind, value).with_context(|| format!("`{key}={value}`"))?;
                self.fields.insert(*field, values);
            }
        }
        Ok(())
    }

    /// Checks that frames of this stream can be built.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!((1..=1000).contains(&self.weight), "`weight={}` is out of range: use 1 to 1000", self.weight);
        let v6 = |field: Field| self.values(field).map(|values| matches!(values.first(), Value::V6(_)));
        for (a, b) in [(Field::SrcIp, Field::DstIp), (Field::OuterSrcIp, Field::OuterDstIp)] {
            ensure!(v6(a) == v6(b), "source and destination have different IP versions: set both src-ip and dst-ip");
        }
        let zero_allowed = self.protocol == Protocol::Udp && v6(Field::SrcIp) != Some(true);
        // RFC 8200, 8.1: UDP over IPv6 has a checksum.
        ensure!(
            self.checksum != Sum::Zero || zero_allowed,
            "`checksum=zero` is possible with UDP over IPv4 only: use complete or partial"
        );
        if let Some(size) = self.segment {
            ensure!(size > 0, "`segment=0` is not possible: use the payload bytes of a segment, such as 1448");
            ensure!(
                self.protocol == Protocol::Tcp && self.checksum == Sum::Partial && !self.has(Field::Vni),
                "`segment={size}` needs protocol=tcp and checksum=partial, and no vni"
            );
        }
        ensure!(
            self.checksum != Sum::Partial || !self.has(Field::Vni),
            "`checksum=partial` is not possible in a tunnel: use complete or zero"
        );
        for field in FIELDS.iter().filter(|known| known.1.starts_with("outer") && self.has(known.0)) {
            ensure!(self.has(Field::Vni), "`{}` needs a vni", field.1);
        }
        Ok(())
    }
}

impl FromStr for StreamSpec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<StreamSpec> {
        let mut spec = StreamSpec::new(Sizes::one(64));
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').with_context(|| {
                format!(
                    "`{part}` is not a field: use KEY=VALUE, such as \
                 size=imix"
                )
            })?;
            spec.set(key, value)?;
        }
        spec.check()?;
        Ok(spec)
    }
}

impl fmt::Display for StreamSpec {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "size={}", self.sizes.to_string().replace(',', "+"))?;
        if self.protocol == Protocol::Tcp {
            write!(to, ",protocol=tcp")?;
        }
        match self.checksum {
            Sum::Complete => {}
            Sum::Partial => write!(to, ",checksum=partial")?,
            Sum::Zero => write!(to, ",checksum=zero")?,
        }
        if let Some(size) = self.segment {
            write!(to, ",segment={size}")?;
        }
        if self.weight != 1 {
            write!(to, ",weight={}", self.weight)?;
        }
        if self.seed != 1 {
            write!(to, ",seed={}", self.seed)?;
        }
        for (field, name, ..) in FIELDS {
            if let Some(values) = self.fields.get(&field) {
                write!(to, ",{name}={values}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_read_and_shown() {
        for text in [
            "size=64",
            "size=64:7+570:4+1518:1,vlan=100,dst-ip=random:10.0.0.0-10.0.0.255,src-port=step:1000-1999",
            "size=uniform:128-1518,checksum=zero,weight=3,seed=9,dst-mac=repeat:02:00:00:00:00:07+02:00:00:00:00:08",
            "size=65214,protocol=tcp,checksum=partial,segment=1448",
            "size=200,src-ip=fd00::1,dst-ip=step:fd00::2-fd00::ff+5,vni=step:1-100,outer-src-port=random:49152-65535",
        ] {
            let spec: StreamSpec = text.parse().expect(text);
            let shown = spec.to_string();
            assert_eq!(shown.parse::<StreamSpec>().expect(&shown), spec, "{text}");
            assert_eq!(shown.split(',').count(), text.split(',').count(), "{shown}");
            let both = spec.reversed().reversed();
            assert_eq!(both.values(Field::DstIp), spec.values(Field::DstIp));
            assert_eq!(spec.reversed().values(Field::SrcIp), spec.values(Field::DstIp));
        }
        assert_eq!("".parse::<StreamSpec>().expect("the usual"), StreamSpec::new(Sizes::one(64)));
        assert_eq!("size=imix".parse::<StreamSpec>().expect("a mix").to_string(), "size=60:7+566:4+1514:1");
    }

    #[test]
    fn a_stream_asks_a_device_for_what_it_leaves_to_it_and_no_more() {
        let of = |text: &str| text.parse::<StreamSpec>().unwrap().offloads();
        let checksum = f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_GUEST_CSUM;
        assert_eq!(of("size=64"), 0);
        assert_eq!(of("size=64,checksum=partial"), checksum);
        let v4 = f::VIRTIO_NET_F_HOST_TSO4 | f::VIRTIO_NET_F_GUEST_TSO4;
        let v6 = f::VIRTIO_NET_F_HOST_TSO6 | f::VIRTIO_NET_F_GUEST_TSO6;
        let segmented = "size=9000,protocol=tcp,checksum=partial,segment=1448";
        assert_eq!(of(segmented), checksum | v4);
        assert_eq!(of(&format!("{segmented},src-ip=fd00::1,dst-ip=fd00::2")), checksum | v6);
    }

    #[test]
    fn an_interface_needs_an_mtu_for_frames_that_nobody_segments() {
        for (text, mtu) in [
            ("size=1514", Some(1500)),
            ("size=64+9018,vlan=7", Some(9000)),
            ("size=1522,svlan=1,vlan=7", Some(1500)),
            ("size=1564,vlan=7,vni=1", Some(1550)),
            ("size=65214,protocol=tcp,checksum=partial,segment=1448", None),
        ] {
            assert_eq!(text.parse::<StreamSpec>().expect(text).mtu(), mtu, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, culprit, right) in [
            ("size", "`size`", "KEY=VALUE"),
            ("size=x", "size=x", "imix"),
            ("colour=red", "`colour`", "src-mac"),
            ("vlan=4096", "`vlan=4096`", "0 to 4095"),
            ("vni=16777216", "`vni=16777216`", "0 to 16777215"),
            ("protocol=sctp", "protocol=sctp", "udp or tcp"),
            ("checksum=none", "checksum=none", "zero"),
            ("weight=0", "weight=0", "1 to 1000"),
            ("weight=x", "weight=x", "1 to 1000"),
            ("segment=1448", "segment=1448", "protocol=tcp"),
            ("segment=99999", "segment=99999", "1448"),
            ("protocol=tcp,checksum=zero", "checksum=zero", "partial"),
            ("src-ip=fd00::1,dst-ip=fd00::2,checksum=zero", "checksum=zero", "partial"),
            ("src-ip=fd00::1", "different IP versions", "dst-ip"),
            ("vni=1,checksum=partial", "checksum=partial", "zero"),
            ("outer-src-port=5", "outer-src-port", "vni"),
        ] {
            let fault = format!("{:#}", text.parse::<StreamSpec>().expect_err(text));
            assert!(fault.contains(culprit) && fault.contains(right), "{text}: {fault}");
        }
    }
}
