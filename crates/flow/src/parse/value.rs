//! Values of fields.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::error::FlowError;
use super::words::Word;
use crate::action::PortNumber;
use crate::field::{Field, Format};
use crate::numbers::{CT_STATES, FRAGMENTS, TCP_FLAGS};
use crate::ports::{PortNames, unquote};

/// A value, and a mask if text has one.
pub(super) type Value = (u128, Option<u128>);

/// Reads a number: decimal, or hexadecimal with `0x`.
pub(super) fn number(text: &str) -> Option<u128> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = hexadecimal.map_or((text, 10), |digits| (digits, 16));
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| char::from(byte).is_digit(radix));
    // A leading zero means octal to OvS, and decimal to people.
    let is_octal = radix == 10 && digits.len() > 1 && digits.starts_with('0');
    if is_number && !is_octal { u128::from_str_radix(digits, radix).ok() } else { None }
}

/// Reads a number of at most `greatest`.
pub(crate) fn limited(word: Word<'_>, text: &str, greatest: u128) -> Result<u128, FlowError> {
    match number(text) {
        Some(value) if value <= greatest => Ok(value),
        Some(_) => Err(word.wrong(format!("is out of range: use 0 to {greatest}"))),
        None => Err(word.wrong(format!("has no number: use 0 to {greatest}, or hexadecimal digits after `0x`"))),
    }
}

/// Reads the value of a field, with its mask.
pub(super) fn field(word: Word<'_>, field: Field, text: &str, ports: &dyn PortNames) -> Result<Value, FlowError> {
    match field.format() {
        Format::Port => Ok((u128::from(port(word, text, ports)?.0), None)),
        Format::Fragment => fragment(word, text),
        Format::TcpFlags if !is_number(text) => flags(word, text, &TCP_FLAGS),
        Format::ConnectionState if !is_number(text) => flags(word, text, &CT_STATES),
        _ => {
            let (value, mask) = text.split_once('/').map_or((text, None), |(value, mask)| (value, Some(mask)));
            let value = plain(word, field, value)?;
            let mask = mask.map(|mask| mask_of(word, field, mask)).transpose()?;
            Ok((value, mask))
        }
    }
}

fn is_number(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit())
}

/// Reads a value without mask.
fn plain(word: Word<'_>, field: Field, text: &str) -> Result<u128, FlowError> {
    match field.format() {
        Format::Ethernet => {
            ethernet(text).ok_or_else(|| word.wrong("has no MAC address: write it as `02:00:00:00:00:01`"))
        }
        Format::Ipv4 => match text.parse::<Ipv4Addr>() {
            Ok(address) => Ok(address.to_bits().into()),
            Err(_) => Err(word.wrong("has no IPv4 address: write it as `10.0.0.1`")),
        },
        Format::Ipv6 => match text.parse::<Ipv6Addr>() {
            Ok(address) => Ok(address.to_bits()),
            Err(_) => Err(word.wrong("has no IPv6 address: write it as `2001:db8::1`")),
        },
        _ => limited(word, text, field.greatest()),
    }
}

fn mask_of(word: Word<'_>, field: Field, text: &str) -> Result<u128, FlowError> {
    let is_address = matches!(field.format(), Format::Ipv4 | Format::Ipv6);
    if is_address && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return match number(text) {
            Some(0) => Ok(0),
            Some(bits) if bits <= field.bits().into() => Ok(prefix(field, bits)),
            _ => Err(word.wrong(format!("has no prefix: use 0 to {} bits", field.bits()))),
        };
    }
    plain(word, field, text)
}

/// Returns the mask of the first bits of a field, at least one.
fn prefix(field: Field, bits: u128) -> u128 {
    let rest = u128::from(field.bits()) - bits;
    (field.greatest() >> rest) << rest
}

/// Reads a MAC address; digits may be missing.
pub(super) fn ethernet(text: &str) -> Option<u128> {
    let mut address = 0;
    let mut count = 0;
    for part in text.split(':') {
        let is_octet = matches!(part.len(), 1 | 2) && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        let octet = is_octet.then(|| u8::from_str_radix(part, 16).ok()).flatten()?;
        address = (address << 8) | u128::from(octet);
        count += 1;
    }
    (count == 6).then_some(address)
}

fn fragment(word: Word<'_>, text: &str) -> Result<Value, FlowError> {
    let found = FRAGMENTS.iter().find(|(name, ..)| *name == text);
    let (_, value, mask) =
        found.ok_or_else(|| word.wrong("is no kind of fragment: use `no`, `yes`, `first`, `later` or `not_later`"))?;
    Ok((u128::from(*value), Some(u128::from(*mask))))
}

/// Reads `+syn-ack`, or `syn|ack` for exactly these flags.
fn flags(word: Word<'_>, text: &str, all: &[&str]) -> Result<Value, FlowError> {
    let unknown =
        |name: &str| word.wrong(format!("has the unknown flag `{}`: use {}", name.escape_debug(), all.join(", ")));
    let bit = |name: &str| all.iter().position(|known| *known == name).map(|at| 1_u128 << at);
    if !text.starts_with(['+', '-']) {
        let mut value = 0;
        for name in text.split('|') {
            value |= bit(name).ok_or_else(|| unknown(name))?;
        }
        return Ok((value, None));
    }
    let mut value = 0;
    let mut mask = 0;
    let mut rest = text;
    while let Some(sign) = rest.chars().next() {
        let end = rest[1..].find(['+', '-']).map_or(rest.len(), |at| at + 1);
        let name = &rest[1..end];
        let flag = bit(name).ok_or_else(|| unknown(name))?;
        if mask & flag != 0 {
            return Err(word.wrong(format!("has the flag `{name}` twice: write it once")));
        }
        mask |= flag;
        value |= if sign == '+' { flag } else { 0 };
        rest = &rest[end..];
    }
    Ok((value, Some(mask)))
}

/// Reads the name or number of a port.
pub(super) fn port(word: Word<'_>, text: &str, ports: &dyn PortNames) -> Result<PortNumber, FlowError> {
    if let Some(number) = number(text) {
        let known = u16::try_from(number).ok().map(PortNumber);
        return known.filter(|port| (1..=PortNumber::MAX.0).contains(&port.0)).ok_or_else(|| {
            word.wrong(format!("is no number of a port: use 1 to {}, or a port's name", PortNumber::MAX.0))
        });
    }
    let name = unquote(text);
    if let Some(number) = ports.number(&name) {
        return Ok(number);
    }
    if ["local", "controller", "any", "none", "table"].iter().any(|special| special.eq_ignore_ascii_case(text)) {
        return Err(word.wrong("is a port that this switch does not have: use a port of the bridge"));
    }
    Err(word.wrong(format!("names no port of the bridge: `{}` is neither a name nor a number", name.escape_debug())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!(number("65535"), Some(65535));
        assert_eq!(number("0x001f"), Some(31));
        assert_eq!(number("0"), Some(0));
        for text in ["", "0x", "010", "-1", "+1", "1a", "0x1g", "0xfffffffffffffffffffffffffffffffff", "1 "] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn mac_addresses_may_be_short() {
        assert_eq!(ethernet("1:2:3:4:5:f"), Some(0x0102_0304_050f));
        for text in ["1:2:3:4:5", "1:2:3:4:5:6:7", "1:2:3:4:5:", "1:2:3:4:5:fff", "1:2:3:4:5:+f"] {
            assert_eq!(ethernet(text), None, "{text}");
        }
    }
}
