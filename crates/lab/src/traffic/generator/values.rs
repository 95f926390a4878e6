//! The values of a header field, packet by packet.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use az::SaturatingAs;
use straightline_wire::MacAddr;

use straightline_report::random::Random;

/// The kind of a field's content. Every content is held as a number; the kind determines its text
/// form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Mac,
    Ip,
    /// A number from 0 to this number.
    Number(u32),
}

/// A value of any kind. Numbers and addresses are held as numbers in the host's byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Mac(u64),
    V4(u32),
    V6(u128),
    Number(u32),
}

/// The values of a field, packet by packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Values {
    /// Always the same.
    Fixed(Value),
    /// Values from `from` to `to` in steps of `by`, repeated.
    Step { from: Value, to: Value, by: u64 },
    /// These values, repeated.
    Repeat(Vec<Value>),
    /// Random values from `from` to `to`.
    Random { from: Value, to: Value },
}

impl Value {
    fn parse(kind: Kind, text: &str) -> anyhow::Result<Value> {
        let value = match kind {
            Kind::Mac => text.parse::<MacAddr>().ok().map(|mac| Value::Mac(mac.as_u64())),
            Kind::Ip => {
                let v4 = text.parse::<Ipv4Addr>().ok().map(|ip| Value::V4(ip.to_bits()));
                v4.or_else(|| text.parse::<Ipv6Addr>().ok().map(|ip| Value::V6(ip.to_bits())))
            }
            Kind::Number(most) => text.parse::<u32>().ok().filter(|n| *n <= most).map(Value::Number),
        };
        value.with_context(|| match kind {
            Kind::Mac => format!("`{text}` is not a MAC address such as 02:00:00:00:00:01"),
            Kind::Ip => format!("`{text}` is not an IP address such as 10.0.0.1 or fd00::1"),
            Kind::Number(most) => format!("`{text}` is not a number from 0 to {most}"),
        })
    }

    fn bits(self) -> u128 {
        match self {
            Value::Mac(mac) => mac.into(),
            Value::V4(ip) => ip.into(),
            Value::V6(ip) => ip,
            Value::Number(n) => n.into(),
        }
    }

    /// Returns the lower 64 bits: only these change from packet to packet.
    fn low(self) -> u64 {
        u64::try_from(self.bits() & u128::from(u64::MAX)).unwrap_or(0)
    }

    /// Returns the MAC address that a number of 48 bits stands for.
    pub(super) fn mac(self) -> MacAddr {
        let [_, _, a, b, c, d, e, f] = self.low().to_be_bytes();
        MacAddr([a, b, c, d, e, f])
    }

    /// Returns the lower 16 bits.
    pub(super) fn port(self) -> u16 {
        let [.., a, b] = self.low().to_be_bytes();
        u16::from_be_bytes([a, b])
    }

    /// Returns the lower 32 bits.
    pub(super) fn number(self) -> u32 {
        let [.., a, b, c, d] = self.low().to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    /// Returns both ends of a prefix such as `10.0.0.0/24`.
    fn prefix(kind: Kind, address: &str, len: &str) -> anyhow::Result<(Value, Value)> {
        let first = Value::parse(kind, address)?;
        let bits = match first {
            Value::V4(_) => 32,
            Value::V6(_) => 128,
            Value::Mac(_) | Value::Number(_) => bail!(
                "`{address}/{len}` is not possible: only IP addresses have \
             prefixes"
            ),
        };
        let len = len.parse::<u32>().ok().filter(|len| *len <= bits);
        let len = len.with_context(|| format!("`{address}`: the prefix length is out of range: use 0 to {bits}"))?;
        let hosts = 1_u128.checked_shl(bits - len).map_or(u128::MAX, |size| size - 1);
        ensure!(first.bits() & hosts == 0, "`{address}/{len}`: the address has bits beyond the prefix");
        Ok((first, first.with(first.bits() | hosts)))
    }

    /// Returns a value of the same kind with this number.
    fn with(self, bits: u128) -> Value {
        match self {
            Value::Mac(_) => Value::Mac(bits.saturating_as::<u64>()),
            Value::V4(_) => Value::V4(bits.saturating_as::<u32>()),
            Value::V6(_) => Value::V6(bits),
            Value::Number(_) => Value::Number(bits.saturating_as::<u32>()),
        }
    }

    fn is_v6(self) -> bool {
        matches!(self, Value::V6(_))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Value::Mac(_) => self.mac().fmt(to),
            Value::V4(ip) => Ipv4Addr::from_bits(ip).fmt(to),
            Value::V6(ip) => Ipv6Addr::from_bits(ip).fmt(to),
            Value::Number(n) => n.fmt(to),
        }
    }
}

impl Values {
    /// Parses one value, `step:FROM-TO`, `step:FROM-TO+BY`, `repeat:A+B+C` or `random:FROM-TO`; a
    /// range of IP addresses may be a prefix.
    pub(super) fn parse(kind: Kind, text: &str) -> anyhow::Result<Values> {
        let values = if let Some(range) = text.strip_prefix("step:") {
            let (range, by) = range.split_once('+').unwrap_or((range, "1"));
            let by = by.parse::<u64>().ok().filter(|by| *by > 0);
            let by = by.with_context(|| format!("`{text}` has an invalid step: use a whole number, 1 or more"))?;
            let (from, to) = Self::range(kind, range)?;
            Values::Step { from, to, by }
        } else if let Some(range) = text.strip_prefix("random:") {
            let (from, to) = Self::range(kind, range)?;
            Values::Random { from, to }
        } else if let Some(list) = text.strip_prefix("repeat:") {
            let all = list.split('+').map(|one| Value::parse(kind, one)).collect::<anyhow::Result<Vec<_>>>()?;
            let high = |value: &Value| (value.is_v6(), value.bits() >> 64);
            let alike = all.windows(2).all(|pair| high(&pair[0]) == high(&pair[1]));
            ensure!(alike, "`{text}`: use addresses of one IP version, and of IPv6 within one /64");
            Values::Repeat(all)
        } else {
            let value = Value::parse(kind, text);
            Values::Fixed(value.context("use one value, step:FROM-TO, step:FROM-TO+BY, repeat:A+B or random:FROM-TO")?)
        };
        Ok(values)
    }

    fn range(kind: Kind, text: &str) -> anyhow::Result<(Value, Value)> {
        let (from, to) = if let Some((address, len)) = text.split_once('/') {
            Value::prefix(kind, address, len)?
        } else {
            let ends = text.split_once('-').with_context(|| format!("`{text}` is not a range such as FROM-TO"))?;
            (Value::parse(kind, ends.0)?, Value::parse(kind, ends.1)?)
        };
        ensure!(from.is_v6() == to.is_v6(), "`{text}`: use one IP version for both ends");
        ensure!(from.bits() <= to.bits(), "`{text}`: write the lower end first");
        ensure!(from.bits() >> 64 == to.bits() >> 64, "`{text}`: use a range of IPv6 addresses within one /64");
        Ok((from, to))
    }

    /// Returns the value with which frames are built: the first one, or the lowest one of random
    /// values.
    pub(super) fn first(&self) -> Value {
        match self {
            Values::Fixed(value) | Values::Step { from: value, .. } | Values::Random { from: value, .. } => *value,
            Values::Repeat(all) => all.first().copied().unwrap_or(Value::Number(0)),
        }
    }

    /// Makes the sequence of the values; `None` if there is only one value.
    pub(super) fn draw(&self, seed: u64) -> Option<Draw> {
        match self {
            Values::Fixed(_) => None,
            Values::Step { from, to, by } => {
                let from = from.low();
                let to = to.low();
                (to - from >= *by).then_some(Draw::Step { from, to, by: *by, next: from })
            }
            Values::Repeat(all) => {
                let all: Box<[u64]> = all.iter().map(|value| value.low()).collect();
                (all.len() > 1).then_some(Draw::Repeat { all, at: 0 })
            }
            Values::Random { from, to } => {
                // For a range of all 2^64 values, the last value never comes. That does not matter.
                let count = (to.low() - from.low()).saturating_add(1);
                (count > 1).then(|| Draw::Random { from: from.low(), count, random: Random::new(seed) })
            }
        }
    }
}

impl fmt::Display for Values {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Values::Fixed(value) => write!(to, "{value}"),
            Values::Step { from, to: last, by: 1 } => write!(to, "step:{from}-{last}"),
            Values::Step { from, to: last, by } => write!(to, "step:{from}-{last}+{by}"),
            Values::Random { from, to: last } => write!(to, "random:{from}-{last}"),
            Values::Repeat(all) => {
                for (at, value) in all.iter().enumerate() {
                    write!(to, "{}{value}", if at == 0 { "repeat:" } else { "+" })?;
                }
                Ok(())
            }
        }
    }
}

/// The state of a field. It yields the lower 64 bits of each next value.
#[derive(Clone, Debug)]
pub(super) enum Draw {
    Step { from: u64, to: u64, by: u64, next: u64 },
    Repeat { all: Box<[u64]>, at: usize },
    Random { from: u64, count: u64, random: Random },
}

impl Draw {
    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        match self {
            Draw::Step { from, to, by, next } => {
                let value = *next;
                *next = if *to - value >= *by { value + *by } else { *from };
                value
            }
            Draw::Repeat { all, at } => {
                let value = all.get(*at).copied().unwrap_or(0);
                *at = if *at + 1 < all.len() { *at + 1 } else { 0 };
                value
            }
            Draw::Random { from, count, random } => *from + random.below(*count),
        }
    }
}

/// Parses the number of a key. `right` describes the possible values, for the error.
pub(super) fn number<T: FromStr>(key: &str, text: &str, right: &str) -> anyhow::Result<T> {
    text.parse().ok().with_context(|| format!("`{key}={text}`: {right}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: Kind = Kind::Number(65_535);

    fn drawn(kind: Kind, text: &str, count: usize) -> Vec<u64> {
        let values = Values::parse(kind, text).expect(text);
        assert_eq!(Values::parse(kind, &values.to_string()).expect("as shown"), values);
        let mut draw = values.draw(1).expect("several values");
        (0..count).map(|_| draw.next()).collect()
    }

    #[test]
    fn values_step_repeat_and_are_drawn() {
        assert_eq!(drawn(PORT, "step:7-9", 5), [7, 8, 9, 7, 8]);
        assert_eq!(drawn(PORT, "step:7-12+3", 4), [7, 10, 7, 10]);
        assert_eq!(drawn(PORT, "repeat:9+2+2", 4), [9, 2, 2, 9]);
        assert_eq!(drawn(Kind::Ip, "step:10.0.0.254-10.0.1.1", 5)[3], 0x0a00_0101);
        assert_eq!(drawn(Kind::Ip, "step:fd00::ffff-fd00::1:1", 3), [0xffff, 0x1_0000, 0x1_0001]);
        assert_eq!(drawn(Kind::Mac, "step:02:00:00:00:00:ff-02:00:00:00:01:01", 2)[1], 0x0200_0000_0100);
        let random = drawn(Kind::Ip, "random:10.0.0.0/30", 1000);
        assert!((0..4).all(|host| random.contains(&(0x0a00_0000 + host))));
        assert!(random.iter().all(|ip| (0x0a00_0000..0x0a00_0004).contains(ip)));
        assert_eq!(drawn(Kind::Ip, "random:fd00::/64", 3).len(), 3);
        for one in ["7", "step:7-7", "step:7-9+3", "repeat:7", "random:7-7"] {
            let values = Values::parse(PORT, one).expect(one);
            assert!(values.draw(1).is_none() && values.first() == Value::Number(7), "{one}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let fault = |kind, text| format!("{:#}", Values::parse(kind, text).expect_err(text));
        for (kind, text, culprit, right) in [
            (PORT, "65536", "65536", "0 to 65535"),
            (PORT, "stop:1-2", "stop:1-2", "step:FROM-TO"),
            (PORT, "step:1-x", "`x`", "0 to 65535"),
            (PORT, "step:5", "`5`", "FROM-TO"),
            (PORT, "step:9-5", "9-5", "lower end first"),
            (PORT, "step:1-9+0", "1-9+0", "1 or more"),
            (PORT, "random:1/8", "1/8", "only IP"),
            (Kind::Mac, "02:00", "02:00", "02:00:00:00:00:01"),
            (Kind::Ip, "10.0.0", "10.0.0", "10.0.0.1"),
            (Kind::Ip, "random:10.0.0.1/24", "10.0.0.1/24", "beyond the prefix"),
            (Kind::Ip, "random:10.0.0.0/33", "10.0.0.0", "0 to 32"),
            (Kind::Ip, "random:fd00::/48", "fd00::/48", "within one /64"),
            (Kind::Ip, "step:10.0.0.1-fd00::1", "10.0.0.1-fd00::1", "one IP version"),
            (Kind::Ip, "repeat:10.0.0.1+fd00::1", "10.0.0.1+fd00::1", "one IP version"),
        ] {
            let fault = fault(kind, text);
            assert!(fault.contains(culprit) && fault.contains(right), "{text}: {fault}");
        }
    }
}
