//! Meters: rates that flows share.

use std::fmt;

use crate::numbers::MAX_METER;
use crate::parse::{FlowError, Word, limited, words};

/// Unit of a meter's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MeterUnit {
    /// 1000 bits a second.
    Kilobits,
    /// Packets a second.
    Packets,
}

/// A meter: the rate beyond which it drops packets. Its number is beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Meter {
    /// Unit.
    pub unit: MeterUnit,
    /// Rate, at least 1.
    pub rate: u32,
    /// Most that passes at once, in 1000 bits or packets. Without it, it is a second of the rate.
    pub burst: Option<u32>,
}

/// Reads a meter as `ovs-ofctl add-meter` has it, such as
/// `meter=1,kbps,burst,band=type=drop,rate=1000,burst_size=200`.
///
/// ```
/// use straightline_flow::{Meter, MeterUnit, parse_meter};
///
/// let meter = Meter { unit: MeterUnit::Packets, rate: 1000, burst: None };
/// assert_eq!(parse_meter("meter=7 pktps bands=type=drop rate=1000"), Ok((7, meter)));
/// ```
///
/// # Errors
/// The word that is wrong, with a remedy.
pub fn parse_meter(text: &str) -> Result<(u32, Meter), FlowError> {
    let mut reader = MeterReader::default();
    for word in words(text)? {
        reader.read(word)?;
    }
    let MeterReader { number, unit, has_burst, has_band, rate, burst } = reader;
    let missing = |problem: &str| Err(FlowError::new("", problem));
    let Some(number) = number else {
        return missing("the meter has no number: begin with `meter=1`");
    };
    let Some(unit) = unit else {
        return missing("the meter has no unit: write `kbps` or `pktps`");
    };
    let Some(rate) = rate.filter(|_| has_band) else {
        return missing("the meter has no rate: write `band=type=drop,rate=1000`");
    };
    if has_burst != burst.is_some() {
        return missing("`burst` and `burst_size` belong together: write both, or none");
    }
    Ok((number, Meter { unit, rate, burst }))
}

#[derive(Default)]
struct MeterReader {
    number: Option<u32>,
    unit: Option<MeterUnit>,
    has_burst: bool,
    has_band: bool,
    rate: Option<u32>,
    burst: Option<u32>,
}

impl MeterReader {
    fn read(&mut self, word: Word<'_>) -> Result<(), FlowError> {
        match word.key {
            "meter" => self.number = Some(positive(word, word.needed()?, MAX_METER)?),
            "kbps" => self.unit = Some(MeterUnit::Kilobits),
            "pktps" => self.unit = Some(MeterUnit::Packets),
            "burst" => self.has_burst = true,
            // Ours always count.
            "stats" => {}
            // `band=type=drop`, or `bands=` and `type=drop` in the next line of a dump.
            "band" | "bands" if word.value == Some("") => {}
            "band" | "bands" | "type" => {
                let is_drop = matches!(word.value, Some("drop" | "type=drop"));
                if self.has_band || !is_drop {
                    return Err(word.wrong("is no band of this switch: write `band=type=drop`, once"));
                }
                self.has_band = true;
            }
            "rate" => self.rate = Some(positive(word, word.needed()?, u32::MAX)?),
            "burst_size" => self.burst = Some(positive(word, word.needed()?, u32::MAX)?),
            _ => return Err(word.wrong("belongs to no meter: use meter, kbps, pktps, burst, band, rate, burst_size")),
        }
        Ok(())
    }
}

fn positive(word: Word<'_>, text: &str, greatest: u32) -> Result<u32, FlowError> {
    match u32::try_from(limited(word, text, greatest.into())?) {
        Ok(number @ 1..) => Ok(number),
        _ => Err(word.wrong(format!("is out of range: use 1 to {greatest}"))),
    }
}

/// Reads the number of a meter: `meter=1`, or `1`.
///
/// # Errors
/// The text is no such number.
pub fn parse_meter_number(text: &str) -> Result<u32, FlowError> {
    let number = text.strip_prefix("meter=").unwrap_or(text);
    let wrong = || FlowError::new(text, format!("is no meter: write `meter=1`, up to `meter={MAX_METER}`"));
    number.parse().ok().filter(|number| (1..=MAX_METER).contains(number)).ok_or_else(wrong)
}

impl fmt::Display for Meter {
    /// Writes the meter as `ovs-ofctl dump-meters` does, without its number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = if self.unit == MeterUnit::Kilobits { "kbps" } else { "pktps" };
        let rate = self.rate;
        match self.burst {
            None => write!(f, "{unit} bands=\ntype=drop rate={rate}"),
            Some(burst) => write!(f, "{unit} burst bands=\ntype=drop rate={rate} burst_size={burst}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meters_read_back_equal() {
        for (text, dumped) in [
            (
                "meter=1,kbps,burst,band=type=drop,rate=1000,burst_size=200",
                "kbps burst bands=\ntype=drop rate=1000 burst_size=200",
            ),
            ("meter=2,pktps,stats,bands=type=drop,rate=1000", "pktps bands=\ntype=drop rate=1000"),
        ] {
            let (number, meter) = parse_meter(text).expect("a meter");
            assert_eq!(meter.to_string(), dumped);
            assert_eq!(parse_meter(&format!("meter={number} {meter}")), Ok((number, meter)));
        }
    }

    #[test]
    fn mistakes_have_a_remedy() {
        for (text, part) in [
            ("kbps,band=type=drop,rate=1", "meter=1"),
            ("meter=1,band=type=drop,rate=1", "`kbps`"),
            ("meter=1,kbps", "rate=1000"),
            ("meter=1,kbps,rate=5", "rate=1000"),
            ("meter=0,kbps", "1 to 65535"),
            ("meter=70000,kbps", "65535"),
            ("meter=1,kbps,band=type=dscp_remark,rate=5", "type=drop"),
            ("meter=1,kbps,band=type=drop,rate=0", "1 to 4294967295"),
            ("meter=1,kbps,band=type=drop,rate=5,type=drop,rate=7", "once"),
            ("meter=1,kbps,band=type=drop,rate=5,band=type=drop,rate=7", "once"),
            ("meter=1,kbps,band=type=drop,rate=5,burst_size=7", "both"),
            ("meter=1,kbps,burst,band=type=drop,rate=5", "both"),
            ("meter=1,speed=5", "no meter"),
        ] {
            let error = parse_meter(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(parse_meter_number("meter=7"), Ok(7));
        assert_eq!(parse_meter_number("7"), Ok(7));
        assert!(parse_meter_number("0").is_err() && parse_meter_number("meter=").is_err());
    }
}
