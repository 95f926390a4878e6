//! What a stream is, and its form as text.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};

use super::values::{Kind, Value, Values, number};
use crate::sizes::Sizes;

/// A field of a packet's headers that a stream may vary. With a VNI the packet is one in VXLAN (RFC 7348), and the fields
/// whose names begin with `outer` are those of the tunnel.
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

/// Names on the command line, kinds, and what stands there where nothing else was asked for.
const FIELDS: [(Field, &str, Kind, Option<&str>); 14] = [
    (Field::DstMac, "dst-mac", Kind::Mac, Some("02:00:00:00:00:02")),
    (Field::SrcMac, "src-mac", Kind::Mac, Some("02:00:00:00:00:01")),
    (Field::ServiceVlan, "svlan", Kind::Number(4095), None),
    (Field::Vlan, "vlan", Kind::Number(4095), None),
    // Addresses for tests of networks (RFC 2544, appendix C.2.2).
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
    /// All, in the order of their names above.
    pub(super) fn all() -> impl Iterator<Item = Field> {
        FIELDS.iter().map(|known| known.0)
    }
}

/// Fields that change places where a stream goes the other way.
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
    /// TCP: segments without a connection.
    Tcp,
}

/// What stands in the transport header's checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sum {
    /// The checksum of all.
    #[default]
    Complete,
    /// What virtio's `NEEDS_CSUM` leaves to the other side.
    Partial,
    /// None: UDP over IPv4 only.
    Zero,
}

/// A stream of packets: their lengths, and headers whose fields stay, step, repeat or are drawn.
///
/// Its text form is a list of `KEY=VALUE` with commas, all of which may be left out:
/// `size=imix,vlan=100,src-port=step:1000-1999,dst-ip=random:10.0.0.0/24`.
///
/// | key | value |
/// |---|---|
/// | `size` | a [`Sizes`], with `+` where that has commas; without Ethernet checksum, with all headers |
/// | `protocol` | `udp` or `tcp` |
/// | `checksum` | `complete`, `partial` (the switch finishes it) or `zero` |
/// | `segment` | payload bytes of the segments into which the switch may cut a larger packet |
/// | `weight` | how often it comes beside the port's other streams |
/// | `seed` | what is drawn by |
/// | `src-mac`, `dst-mac`, `svlan`, `vlan`, `src-ip`, `dst-ip`, `src-port`, `dst-port`, `vni`, `outer-src-mac`, `outer-dst-mac`, `outer-src-ip`, `outer-dst-ip`, `outer-src-port` | a value, `step:FROM-TO`, `step:FROM-TO+BY`, `repeat:A+B+C` or `random:FROM-TO`; of IP addresses a range may be a prefix |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    /// Lengths of its frames.
    pub sizes: Sizes,
    /// The transport protocol.
    pub protocol: Protocol,
    /// What stands in its checksum.
    pub checksum: Sum,
    /// Payload bytes of segments, where larger packets are to be cut by the device.
    pub segment: Option<u16>,
    /// How often it comes beside others.
    pub weight: u32,
    /// What is drawn by.
    pub seed: u64,
    fields: BTreeMap<Field, Values>,
}

impl StreamSpec {
    /// UDP over IPv4 between two stations, in frames of these lengths.
    #[must_use]
    pub fn new(sizes: Sizes) -> StreamSpec {
        let (protocol, checksum) = (Protocol::default(), Sum::default());
        StreamSpec { sizes, protocol, checksum, segment: None, weight: 1, seed: 1, fields: BTreeMap::new() }
    }

    /// The same the other way: what was said of a source is said of the destination.
    #[must_use]
    pub fn reversed(&self) -> StreamSpec {
        let mut reversed = self.clone();
        for (a, b) in PAIRS {
            let (of_a, of_b) = (self.values(a), self.values(b));
            reversed.fields.extend(of_b.map(|values| (a, values)));
            reversed.fields.extend(of_a.map(|values| (b, values)));
        }
        reversed
    }

    /// A field's values; nothing where the packet does not have it.
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

    /// Whether it was said what the field holds.
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
                    _ => bail!("`protocol={value}`: udp or tcp"),
                }
            }
            "checksum" => {
                self.checksum = match value {
                    "complete" => Sum::Complete,
                    "partial" => Sum::Partial,
                    "zero" => Sum::Zero,
                    _ => bail!("`checksum={value}`: complete, partial or zero"),
                }
            }
            "segment" => self.segment = Some(number(key, value, "payload bytes of a segment, such as 1448")?),
            "weight" => self.weight = number(key, value, "how often it comes beside others, from 1 to 1000")?,
            "seed" => self.seed = number(key, value, "a number")?,
            _ => {
                let Some((field, _, kind, _)) = FIELDS.iter().find(|known| known.1 == key) else {
                    let fields: Vec<_> = FIELDS.iter().map(|known| known.1).collect();
                    bail!(
                        "`{key}`: no such key; there are size, protocol, checksum, segment, weight, seed, {}",
                        fields.join(", ")
                    );
                };
                let values = Values::parse(*kind, value).with_context(|| format!("`{key}={value}`"))?;
                self.fields.insert(*field, values);
            }
        }
        Ok(())
    }

    /// What no frame can be built of, in words.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!((1..=1000).contains(&self.weight), "`weight={}`: from 1 to 1000", self.weight);
        let v6 = |field: Field| self.values(field).map(|values| matches!(values.first(), Value::V6(_)));
        for (a, b) in [(Field::SrcIp, Field::DstIp), (Field::OuterSrcIp, Field::OuterDstIp)] {
            ensure!(
                v6(a) == v6(b),
                "source and destination have addresses of different IP versions: give both, src-ip and dst-ip"
            );
        }
        let zero_allowed = self.protocol == Protocol::Udp && v6(Field::SrcIp) != Some(true);
        // RFC 8200, 8.1: over IPv6 UDP has a checksum.
        ensure!(
            self.checksum != Sum::Zero || zero_allowed,
            "`checksum=zero`: only UDP over IPv4 does without: complete or partial"
        );
        if let Some(size) = self.segment {
            ensure!(size > 0, "`segment=0`: payload bytes of a segment, such as 1448");
            ensure!(
                self.protocol == Protocol::Tcp && self.checksum == Sum::Partial && !self.has(Field::Vni),
                "`segment={size}` needs protocol=tcp and checksum=partial, and no vni"
            );
        }
        ensure!(
            self.checksum != Sum::Partial || !self.has(Field::Vni),
            "`checksum=partial`: not within a tunnel: complete or zero"
        );
        for field in FIELDS.iter().filter(|known| known.1.starts_with("outer") && self.has(known.0)) {
            ensure!(self.has(Field::Vni), "`{}`: only packets with a vni have it", field.1);
        }
        Ok(())
    }
}

impl FromStr for StreamSpec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<StreamSpec> {
        let mut spec = StreamSpec::new(Sizes::one(64));
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) =
                part.split_once('=').with_context(|| format!("`{part}`: expected KEY=VALUE, such as size=imix"))?;
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
        assert_eq!("size=imix".parse::<StreamSpec>().expect("a mix").to_string(), "size=64:7+570:4+1518:1");
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
