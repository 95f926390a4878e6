//! Rates of packets.

use std::fmt;
use std::str::FromStr;

use anyhow::bail;

/// The rate of all ports together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// As many packets as the ports take.
    Max,
    /// Packets per second.
    Pps(f64),
    /// Bits of frames per second, without Ethernet checksums and the gaps between frames on a wire.
    Bits(f64),
}

impl Rate {
    /// Returns the rate in packets per second for this mean frame length; `None` at maximum rate.
    #[must_use]
    pub fn pps(self, mean_len: f64) -> Option<f64> {
        match self {
            Rate::Max => None,
            Rate::Pps(pps) => Some(pps),
            Rate::Bits(bits) => Some(bits / 8.0 / mean_len),
        }
    }
}

impl FromStr for Rate {
    type Err = anyhow::Error;

    /// Parses `max`, `500kpps`, `1.5mpps`, `10gbit`.
    fn from_str(text: &str) -> anyhow::Result<Rate> {
        let lower = text.to_ascii_lowercase();
        if lower == "max" {
            return Ok(Rate::Max);
        }
        let lower = lower.strip_suffix("/s").unwrap_or(&lower);
        let rate = |unit: &str, rate: fn(f64) -> Rate| {
            let number = lower.strip_suffix(unit)?;
            let (number, factor) = match number.as_bytes().last()? {
                b'k' => (&number[..number.len() - 1], 1e3),
                b'm' => (&number[..number.len() - 1], 1e6),
                b'g' => (&number[..number.len() - 1], 1e9),
                _ => (number, 1.0),
            };
            let number = number.trim().parse::<f64>().ok()? * factor;
            (1.0..=1e12).contains(&number).then(|| rate(number))
        };
        let Some(rate) = rate("pps", Rate::Pps).or_else(|| rate("bit", Rate::Bits)) else {
            bail!("`{text}` is not a rate: use max, or a rate of at least 1, such as 500kpps, 1.5mpps or 10gbit");
        };
        Ok(rate)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = match *self {
            Rate::Max => return write!(to, "max"),
            Rate::Pps(pps) => (pps, "pps"),
            Rate::Bits(bits) => (bits, "bit"),
        };
        let (factor, prefix) = match number {
            1e9.. => (1e9, "g"),
            1e6.. => (1e6, "m"),
            1e3.. => (1e3, "k"),
            _ => (1.0, ""),
        };
        write!(to, "{}{prefix}{unit}", number / factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_shown() {
        for (text, rate, shown) in [
            ("max", Rate::Max, "max"),
            ("500kpps", Rate::Pps(5e5), "500kpps"),
            ("1.5Mpps", Rate::Pps(1.5e6), "1.5mpps"),
            ("7pps", Rate::Pps(7.0), "7pps"),
            ("10Gbit/s", Rate::Bits(1e10), "10gbit"),
        ] {
            assert_eq!(text.parse::<Rate>().expect(text), rate);
            assert_eq!((rate.to_string().as_str(), shown.parse::<Rate>().expect(shown)), (shown, rate));
        }
        for bad in ["", "fast", "0pps", "-1pps", "5", "kpps", "nanpps", "infbit", "1e300gbit", "5 packets"] {
            let fault = bad.parse::<Rate>().expect_err(bad).to_string();
            assert!(fault.contains(bad) && fault.contains("500kpps"), "{fault}");
        }
        assert_eq!(Rate::Bits(8e6).pps(100.0), Some(1e4));
        assert_eq!(Rate::Max.pps(100.0), None);
    }
}
