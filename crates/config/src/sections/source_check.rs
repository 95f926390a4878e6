//! Reads `source-check`, `allowed-macs` and `allowed-ips` of a port.

use std::net::IpAddr;

use straightline_nodes::{IpPrefix, MacPrefix};
use straightline_wire::MacAddr;
use toml::Spanned;

use crate::diagnostic::Findings;
use crate::sections::section::Section;
use crate::{Mac, SourceCheckConfig};

/// The maximum number of entries: each packet is compared with one entry after the other.
const MAX_ENTRIES: usize = 256;

/// The shortest prefix of MAC addresses. It includes the first byte, which tells group addresses.
const MIN_MAC_PREFIX: u8 = 8;

/// Reads the source check of a port. Returns `None` if it is off.
pub(crate) fn read(section: &Section<'_>, report: &mut Findings<'_>) -> Option<SourceCheckConfig> {
    let choice = section.choice("source-check", &[("off", false), ("mac", true)], report);
    let macs = entries(section, "allowed-macs", "00:00:5e:00:01:00/40", parse_mac, report);
    let ips = entries(section, "allowed-ips", "10.0.0.5", parse_ip, report);
    if let Some(ips) = section.get("allowed-ips")
        && ips.get_ref().as_array().is_some_and(|array| array.is_empty())
    {
        let message = format!(
            "allowed-ips in {}: none named, so all IP packets would drop; leave it out, or name at least one",
            section.title()
        );
        report.error(&ips.span(), message);
    }
    let Some(choice) = choice.filter(|choice| *choice.get_ref()) else {
        // An unknown word has an error of its own.
        let is_off = !section.has_misspelled("source-check", report)
            && section.get("source-check").is_none_or(|word| word.get_ref().as_str() == Some("off"));
        for key in ["allowed-macs", "allowed-ips"] {
            if let Some(value) = section.get(key).filter(|_| is_off) {
                let title = section.title();
                report.error(&value.span(), format!("{key} in {title} needs source-check = \"mac\" in this section"));
            }
        }
        return None;
    };
    let is_empty = |array: &Spanned<_>| matches!(array.get_ref(), toml::de::DeValue::Array(array) if array.is_empty());
    let is_misspelled = ["mac", "allowed-macs"].iter().any(|key| section.has_misspelled(key, report));
    if !is_misspelled && section.get("mac").is_none() && section.get("allowed-macs").is_none_or(is_empty) {
        let message = format!(
            "source-check \"mac\" in {}: no address is allowed, so all its packets would drop; add for example \
             mac = \"52:54:00:00:00:01\"",
            section.title()
        );
        report.error(&choice.span(), message);
    }
    Some(SourceCheckConfig { macs: macs.unwrap_or_default(), ips })
}

/// Returns the valid entries of an array.
fn entries<T: PartialEq>(
    section: &Section<'_>,
    key: &str,
    example: &str,
    parse: fn(&str) -> Result<T, String>,
    report: &mut Findings<'_>,
) -> Option<Vec<T>> {
    let texts = section.texts(key, &format!("{key} = [{example:?}]"), report)?;
    let title = section.title();
    if texts.get_ref().len() > MAX_ENTRIES {
        let count = texts.get_ref().len();
        let message = format!("{key} in {title}: {count} entries; at most {MAX_ENTRIES} are compared with each packet");
        report.error(&texts.span(), message);
    }
    let mut entries = Vec::new();
    for text in texts.get_ref() {
        let why = match parse(text.get_ref()) {
            Ok(entry) if entries.contains(&entry) => "named twice; name it once".to_owned(),
            Ok(entry) => {
                entries.push(entry);
                continue;
            }
            Err(why) => why,
        };
        report.error(&text.span(), format!("{:?} in {key} of {title}: {why}", text.get_ref()));
    }
    Some(entries)
}

fn parse_mac(text: &str) -> Result<MacPrefix, String> {
    let (address, len) = split(text, MIN_MAC_PREFIX, |_| MacPrefix::BITS)?;
    let address = address.parse::<Mac>().map_err(|why| why.to_string())?;
    MacPrefix::new(MacAddr(address.octets()), len).ok_or_else(|| bits_behind(len))
}

fn parse_ip(text: &str) -> Result<IpPrefix, String> {
    let bits = |address: &str| if address.contains(':') { 128 } else { 32 };
    let (address, len) = split(text, 0, bits)?;
    let address: IpAddr = address
        .parse()
        .map_err(|_| "not an IP address; write for example 10.0.0.5, 10.0.0.0/24 or fd00::/64".to_owned())?;
    IpPrefix::new(address, len).ok_or_else(|| bits_behind(len))
}

/// Splits an entry into the address and the length of its prefix. Without a length, the prefix is
/// the whole address.
fn split(text: &str, least: u8, bits: impl Fn(&str) -> u8) -> Result<(&str, u8), String> {
    let Some((address, len)) = text.split_once('/') else { return Ok((text, bits(text))) };
    let most = bits(address);
    let is_number = !len.is_empty() && len.bytes().all(|digit| digit.is_ascii_digit());
    let len = len.parse::<u8>().ok().filter(|len| is_number && (least..=most).contains(len));
    let len = len.ok_or_else(|| format!("not a valid prefix length; it must be {least} to {most}"))?;
    Ok((address, len))
}

fn bits_behind(len: u8) -> String {
    format!("bits are set behind the first {len}; clear them or write a longer prefix")
}
