//! Reads rates: `rate-in`, `rate-out` and `burst` of a port, and `[rate.NAME]`, a bucket that several
//! ports share.

use az::SaturatingAs;
use straightline_graph::{Limit, RateLimits};
use straightline_wire::FrameLimit;
use toml::Spanned;
use toml::de::DeValue;

use crate::diagnostic::{Findings, Span};
use crate::key::{Absent, Key, Value};
use crate::sections::section::{Section, is_name};
use crate::{Draft, PortRate, RateConfig};

const RATE_FORM: &str = "rate in bits or packets a second such as `\"1 Gbit/s\"` or `\"100k packet/s\"`, list of both, or name of a `[rate.NAME]`";

const BURST_FORM: &str = "bytes or packets such as `\"512 KiB\"` or `\"200 packet\"`, or list of both";

/// The keys of ports, as a part of those of `[port.NAME]`.
pub(crate) const KEYS: &[Key] = &[
    Key::new(
        "rate-in",
        Value::TextOrTexts { of: RATE_FORM },
        Absent::Text("no limit"),
        "Most that comes in from the port. Packets of a vhost-user port wait in the guest's ring. Those of other kinds \
         drop as `rate`.",
        "\"1 Gbit/s\"",
    ),
    Key::new(
        "rate-out",
        Value::TextOrTexts { of: RATE_FORM },
        Absent::Text("no limit"),
        "Most that goes out to the port. Further packets drop as `rate`.",
        "[\"1 Gbit/s\", \"100k packet/s\"]",
    ),
    Key::new(
        "burst",
        Value::TextOrTexts { of: BURST_FORM },
        Absent::Text(
            "4 ms of the rate where packets wait, 100 ms where they drop; at least `\"64 KiB\"` and `\"64 packet\"`",
        ),
        "Most that passes at once after a pause, for `rate-in` and `rate-out` of this section.",
        "\"512 KiB\"",
    ),
];

/// The keys of `[rate.NAME]`.
pub(crate) const RATE_KEYS: &[Key] = &[
    Key::new(
        "rate",
        Value::TextOrTexts {
            of: "rate in bits or packets a second such as `\"1 Gbit/s\"` or `\"100k packet/s\"`, or list of both",
        },
        Absent::Required,
        "Most that passes all ports together that name this section in `rate-in` or `rate-out`. Ports that wait are \
         served in turn.",
        "\"10 Gbit/s\"",
    ),
    Key::new(
        "burst",
        Value::TextOrTexts { of: BURST_FORM },
        Absent::Text("20 ms of the rate; at least `\"64 KiB\"` and `\"64 packet\"`"),
        "Most that passes at once after a pause.",
        "\"1 MiB\"",
    ),
];

/// Least bits and packets a second: one packet of 64 KiB, as all of its segments. Linux gives up a queue
/// in which a packet waits for 5 s.
const LEAST: (u64, u64) = (600_000, 50);

/// Most bits and packets a second.
const MOST: (u64, u64) = (1_000_000_000_000, 1_000_000_000);

/// Least default of a burst.
const LEAST_BURST: (u64, u64) = (64 << 10, 64);

/// Most bytes and packets of a burst.
const MOST_BURST: (u64, u64) = (1 << 32, 1 << 24);

/// The default of a burst, as a part of a second of the rate.
const SHAPED_BURST: u64 = 250;
const POLICED_BURST: u64 = 10;
const SHARED_BURST: u64 = 50;

/// The bytes of the longest frame, for a bucket that ports of any MTU share.
const LONGEST_FRAME: u64 = 1518;

/// The rates of a port, with the places of names of sections.
#[derive(Default)]
pub(crate) struct Read {
    pub(crate) rate_in: Option<PortRate>,
    pub(crate) rate_out: Option<PortRate>,
    pub(crate) names: Vec<(String, Span)>,
}

/// Reads the rates of a port. `shapes`: its packets can wait in their ring. `frame`: bytes of its longest
/// frame.
pub(crate) fn read(section: &Section<'_>, shapes: bool, frame: u64, report: &mut Findings<'_>) -> Read {
    let mut read = Read::default();
    let bursts = read_bursts(section, frame, report);
    let mut of = |key: &'static str, part: u64, report: &mut Findings<'_>| -> Option<PortRate> {
        let texts = texts(section, key, "\"1 Gbit/s\"", report)?;
        if let [name] = &texts[..]
            && is_name(name.get_ref())
        {
            let name = Spanned::new(name.span(), (*name.get_ref()).to_owned());
            read.names.push((name.get_ref().clone(), name.span()));
            return Some(PortRate::Shared(name.into_inner()));
        }
        Some(PortRate::Own(limits(section, key, &texts, &bursts, part, report)?))
    };
    let rate_in = of("rate-in", if shapes { SHAPED_BURST } else { POLICED_BURST }, report);
    let rate_out = of("rate-out", POLICED_BURST, report);
    (read.rate_in, read.rate_out) = (rate_in, rate_out);
    let own: Vec<_> = [&read.rate_in, &read.rate_out]
        .into_iter()
        .flatten()
        .filter_map(|rate| if let PortRate::Own(limits) = rate { Some(*limits) } else { None })
        .collect();
    let is_shared = |rate: &Option<PortRate>| matches!(rate, Some(PortRate::Shared(_)));
    let keys = [("rate-in", is_shared(&read.rate_in)), ("rate-out", is_shared(&read.rate_out))];
    let has_own = keys.iter().any(|(key, is_shared)| section.place(key, report).is_some() && !is_shared);
    check_bursts(section, &bursts, &own, has_own, "rate-in or rate-out with a rate of its own", report);
    read
}

/// Reads `[rate.NAME]`.
pub(crate) fn read_section(name: &str, section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) {
    section.only(RATE_KEYS, report);
    let bursts = read_bursts(section, LONGEST_FRAME, report);
    if section.get("rate").is_none() {
        section.missing("rate", "rate = \"10 Gbit/s\"", report);
    }
    let texts = texts(section, "rate", "\"10 Gbit/s\"", report);
    let limits = texts.and_then(|texts| limits(section, "rate", &texts, &bursts, SHARED_BURST, report));
    let own: Vec<_> = limits.into_iter().collect();
    let has_rate = section.place("rate", report).is_some();
    check_bursts(section, &bursts, &own, has_rate, "rate", report);
    // A section with a mistake is known by its name.
    let rate = RateConfig { name: name.to_owned(), limits: limits.unwrap_or_default() };
    draft.rates.push((rate, section.span().clone()));
}

/// A value of a key, as bytes (or bits) and packets, each with its place.
#[derive(Default)]
struct Amounts {
    bytes: Option<Spanned<u64>>,
    packets: Option<Spanned<u64>>,
}

/// Returns the limits that the values of a rate and of `burst` give.
fn limits(
    section: &Section<'_>,
    key: &str,
    texts: &[Spanned<&str>],
    bursts: &Amounts,
    part: u64,
    report: &mut Findings<'_>,
) -> Option<RateLimits> {
    let amounts = amounts(section, key, texts, parse_rate, report)?;
    let limit = |rate: &Option<Spanned<u64>>, burst: &Option<Spanned<u64>>, least: u64| {
        let per_second = *rate.as_ref()?.get_ref();
        let burst = burst.as_ref().map_or((per_second / part).max(least), |burst| *burst.get_ref());
        Some(Limit { per_second, burst })
    };
    Some(RateLimits {
        bytes: limit(&amounts.bytes, &bursts.bytes, LEAST_BURST.0),
        packets: limit(&amounts.packets, &bursts.packets, LEAST_BURST.1),
    })
}

/// Reads `burst`.
fn read_bursts(section: &Section<'_>, frame: u64, report: &mut Findings<'_>) -> Amounts {
    let Some(texts) = texts(section, "burst", "\"512 KiB\"", report) else { return Amounts::default() };
    let mut bursts = amounts(section, "burst", &texts, parse_burst, report).unwrap_or_default();
    if let Some(bytes) = bursts.bytes.take_if(|bytes| *bytes.get_ref() < frame) {
        let message = format!(
            "burst of {} bytes in {}: the longest frame has {frame} bytes, and must fit; write for example \"64 KiB\"",
            bytes.get_ref(),
            section.title()
        );
        report.error(&bytes.span(), message);
    }
    bursts
}

/// Reports a burst that nothing uses, and warns of one that is so small that the rate cannot be reached.
fn check_bursts(
    section: &Section<'_>,
    bursts: &Amounts,
    rates: &[RateLimits],
    has_rates: bool,
    keys: &str,
    report: &mut Findings<'_>,
) {
    let Some(value) = section.get("burst") else { return };
    let title = section.title();
    if !has_rates {
        return report.error(&value.span(), format!("burst in {title} needs {keys} in this section"));
    }
    let bytes: Vec<_> = rates.iter().filter_map(|limits| limits.bytes).collect();
    let packets: Vec<_> = rates.iter().filter_map(|limits| limits.packets).collect();
    for (unit, burst, limits) in [("bytes", &bursts.bytes, bytes), ("packets", &bursts.packets, packets)] {
        let Some(burst) = burst else { continue };
        if limits.is_empty() && !rates.is_empty() {
            let message = format!("burst in {title}: no rate of this section is in {unit}; remove it, or limit {unit}");
            report.error(&burst.span(), message);
        }
        let most = limits.iter().map(|limit| limit.per_second / 1000).max().unwrap_or(0);
        if *burst.get_ref() < most {
            let message = format!(
                "burst of {} {unit} in {title}: the rate brings {most} {unit} in a millisecond, so it may not be reached; \
                 raise burst to {most} {unit} or more",
                burst.get_ref()
            );
            report.warn(&burst.span(), message);
        }
    }
}

/// Returns the text of a key, or the texts of its list.
fn texts<'t>(
    section: &Section<'t>,
    key: &str,
    example: &str,
    report: &mut Findings<'_>,
) -> Option<Vec<Spanned<&'t str>>> {
    let value = section.get(key)?;
    if let DeValue::Array(_) = value.get_ref() {
        let texts = section.texts(key, &format!("{key} = [{example}]"), report)?;
        if texts.get_ref().is_empty() {
            report.error(
                &texts.span(),
                format!("{key} in {}: the list is empty; write for example {key} = {example}", section.title()),
            );
            return None;
        }
        return Some(texts.into_inner());
    }
    Some(vec![section.text(key, &format!("{key} = {example}"), report)?])
}

/// A number of bytes or of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    Bytes(u64),
    Packets(u64),
}

/// Reads the values of a key, at most one of bytes and one of packets.
fn amounts(
    section: &Section<'_>,
    key: &str,
    texts: &[Spanned<&str>],
    parse: fn(&str) -> Result<Amount, String>,
    report: &mut Findings<'_>,
) -> Option<Amounts> {
    let mut amounts = Amounts::default();
    let mut is_whole = true;
    for text in texts {
        let title = section.title();
        let (slot, amount) = match parse(text.get_ref()) {
            Ok(Amount::Bytes(bytes)) => (&mut amounts.bytes, bytes),
            Ok(Amount::Packets(packets)) => (&mut amounts.packets, packets),
            Err(why) => {
                report.error(&text.span(), format!("{key} {:?} in {title}: {why}", text.get_ref()));
                is_whole = false;
                continue;
            }
        };
        if slot.replace(Spanned::new(text.span(), amount)).is_some() {
            let message =
                format!("{key} {:?} in {title}: a second value of this unit; name each unit once", text.get_ref());
            report.error(&text.span(), message);
            is_whole = false;
        }
    }
    is_whole.then_some(amounts)
}

impl PortRate {
    /// Reads limits that a client of the API sets for a port. `shapes` says whether its packets wait.
    ///
    /// # Errors
    /// The text is no rate, or one out of bounds. The error says what would be right.
    pub fn live(rates: &[String], bursts: &[String], shapes: bool, mtu: u16) -> Result<Self, String> {
        let read = |texts: &[String], what: &str, parse: fn(&str) -> Result<Amount, String>| {
            let mut amounts = [None, None];
            for text in texts {
                let amount = parse(text).map_err(|why| format!("{what} {text:?}: {why}"))?;
                let (slot, amount) = match amount {
                    Amount::Bytes(bytes) => (0, bytes),
                    Amount::Packets(packets) => (1, packets),
                };
                if amounts[slot].replace(amount).is_some() {
                    return Err(format!("{what} {text:?}: a second value of this unit; name each unit once"));
                }
            }
            Ok(amounts)
        };
        let rates = read(rates, "rate", parse_rate)?;
        let bursts = read(bursts, "burst", parse_burst)?;
        let frame = u64::from(FrameLimit::new(mtu).bytes());
        if let [Some(bytes), _] = bursts
            && bytes < frame
        {
            return Err(format!("burst of {bytes} bytes: the longest frame has {frame} bytes, and must fit"));
        }
        let part = if shapes { SHAPED_BURST } else { POLICED_BURST };
        let limit = |unit: usize, least: u64| {
            let per_second = rates[unit]?;
            Some(Limit { per_second, burst: bursts[unit].unwrap_or((per_second / part).max(least)) })
        };
        let limits = RateLimits { bytes: limit(0, LEAST_BURST.0), packets: limit(1, LEAST_BURST.1) };
        let unused = [("bytes", limits.bytes.is_none()), ("packets", limits.packets.is_none())];
        if let Some((_, (unit, _))) = bursts.iter().zip(unused).find(|(burst, (_, unused))| burst.is_some() && *unused)
        {
            return Err(format!("burst: no rate is in {unit}; remove it, or limit {unit}"));
        }
        Ok(PortRate::Live(limits))
    }
}

/// Returns limits as the file would have them, such as `1 Gbit/s, 100k packet/s`.
#[must_use]
pub fn rate_text(limits: &RateLimits) -> String {
    let bytes = limits.bytes.map(|limit| in_units(limit.per_second * 8, "bit/s"));
    let packets = limits.packets.map(|limit| in_units(limit.per_second, "packet/s"));
    let texts: Vec<_> = bytes.into_iter().chain(packets).collect();
    texts.join(", ")
}

/// Reads a rate such as `1 Gbit/s`, as bytes or packets a second.
///
/// # Errors
/// The text is no rate, or one out of bounds. The error says what would be right.
pub(crate) fn parse_rate(text: &str) -> Result<Amount, String> {
    const EXAMPLES: &str = "write a rate such as \"1 Gbit/s\", \"2.5 Gbit/s\", \"100 Mbit/s\" or \"100k packet/s\"";
    let units = [("bit/s", LEAST.0, MOST.0), ("packets/s", LEAST.1, MOST.1), ("packet/s", LEAST.1, MOST.1)];
    let found =
        units.into_iter().find_map(|(unit, least, most)| Some((text.trim().strip_suffix(unit)?, unit, least, most)));
    let (number, unit, least, most) = found.ok_or_else(|| format!("not a rate; {EXAMPLES}"))?;
    let factors = [("k", 1000), ("M", 1_000_000), ("G", 1_000_000_000), ("T", 1_000_000_000_000)];
    let rate = parse_number(number, &factors).ok_or_else(|| format!("not a rate; {EXAMPLES}"))?;
    let range = || format!("it must be {} to {}", in_units(least, unit), in_units(most, unit));
    if rate < least.into() {
        return Err(format!("too low; {}: a packet of 64 KiB must pass in a second", range()));
    }
    if rate > most.into() {
        return Err(format!("too high; {}", range()));
    }
    let rate = rate.saturating_as::<u64>();
    Ok(if unit == "bit/s" { Amount::Bytes(rate / 8) } else { Amount::Packets(rate) })
}

/// Reads a burst such as `512 KiB` or `200 packet`.
fn parse_burst(text: &str) -> Result<Amount, String> {
    const EXAMPLES: &str = "write a burst such as \"512 KiB\", \"1 MB\" or \"200 packet\"";
    let text = text.trim();
    let wrong = || format!("not a burst; {EXAMPLES}");
    if let Some(number) = text.strip_suffix("packets").or_else(|| text.strip_suffix("packet")) {
        let packets = parse_number(number, &[("k", 1000), ("M", 1_000_000)]).ok_or_else(wrong)?;
        let is_in_range = (1..=MOST_BURST.1.into()).contains(&packets);
        return if is_in_range {
            Ok(Amount::Packets(packets.saturating_as::<u64>()))
        } else {
            Err(format!("not possible; it must be 1 to {} packet", MOST_BURST.1))
        };
    }
    let number = text.strip_suffix("bytes").or_else(|| text.strip_suffix('B')).ok_or_else(wrong)?;
    let factors =
        [("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30), ("k", 1000), ("M", 1_000_000), ("G", 1_000_000_000)];
    let bytes = parse_number(number, &factors).ok_or_else(wrong)?;
    if bytes == 0 || bytes > MOST_BURST.0.into() {
        return Err("not possible; it must be one frame to 4 GiB".to_owned());
    }
    Ok(Amount::Bytes(bytes.saturating_as::<u64>()))
}

/// Reads a number with a decimal fraction and a factor behind it. Parts of one are cut off.
fn parse_number(text: &str, factors: &[(&str, u64)]) -> Option<u128> {
    /// Digits that cannot overflow with the largest factor.
    const MOST_DIGITS: usize = 20;
    let text = text.trim();
    let with_factor = factors.iter().find_map(|&(unit, factor)| Some((text.strip_suffix(unit)?.trim_end(), factor)));
    let (digits, factor) = with_factor.unwrap_or((text, 1));
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_valid = !whole.is_empty() && is_number(whole) && is_number(part) && !digits.ends_with('.');
    if !is_valid || whole.len() > MOST_DIGITS || part.len() > 9 {
        return None;
    }
    let scale = 10_u128.pow(part.len().try_into().ok()?);
    let number = format!("{whole}{part}").parse::<u128>().ok()?;
    Some(number * u128::from(factor) / scale)
}

/// Returns a number with the largest factor that leaves it whole.
fn in_units(number: u64, unit: &str) -> String {
    let factors = [("T", 1_000_000_000_000), ("G", 1_000_000_000), ("M", 1_000_000), ("k", 1000)];
    let factor = factors.into_iter().find(|(_, factor)| number >= *factor && number.is_multiple_of(*factor));
    let (prefix, factor) = factor.unwrap_or(("", 1));
    // As in "1 Gbit/s" and "100k packet/s".
    if unit == "bit/s" {
        format!("{} {prefix}{unit}", number / factor)
    } else {
        format!("{}{prefix} {unit}", number / factor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rates_have_a_unit_and_a_range() {
        let good = ["1 Gbit/s", "2.5Gbit/s", " 600 kbit/s ", "100k packet/s", "50 packets/s", "1 Tbit/s"];
        let expected = [
            Amount::Bytes(125_000_000),
            Amount::Bytes(312_500_000),
            Amount::Bytes(75_000),
            Amount::Packets(100_000),
            Amount::Packets(50),
            Amount::Bytes(125_000_000_000),
        ];
        assert_eq!(good.map(|text| parse_rate(text).unwrap()), expected);
        for bad in
            ["", "1", "1 Gbit", "1 GB/s", "bit/s", "1. Gbit/s", ".5 Gbit/s", "-1 Gbit/s", "1e9 bit/s", "1 kk packet/s"]
        {
            assert!(parse_rate(bad).unwrap_err().starts_with("not a rate"), "{bad}");
        }
        for bad in ["0 bit/s", "599 kbit/s", "2 Tbit/s", "49 packet/s", "99999999999999999999 Tbit/s", "2G packet/s"] {
            assert!(parse_rate(bad).unwrap_err().starts_with("too "), "{bad}");
        }
    }

    #[test]
    fn bursts_are_bytes_or_packets() {
        let good = ["512 KiB", "1 MB", "1518 bytes", "2kB", "200 packet", "1k packets"];
        let expected = [
            Amount::Bytes(512 << 10),
            Amount::Bytes(1_000_000),
            Amount::Bytes(1518),
            Amount::Bytes(2000),
            Amount::Packets(200),
            Amount::Packets(1000),
        ];
        assert_eq!(good.map(|text| parse_burst(text).unwrap()), expected);
        for bad in ["", "1", "1 Mbit", "0 B", "5 GiB", "0 packet", "99 Mpacket", "KiB"] {
            parse_burst(bad).unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9. kMGTibp]{0,24}(bit/s|packet/s|B|packet|)") {
            let _ = (parse_rate(&text), parse_burst(&text));
        }
    }
}
