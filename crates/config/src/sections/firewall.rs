//! Reads `[firewall]`.

use std::net::IpAddr;
use std::time::Duration;

use straightline_firewall::{NAT64_LENGTHS, Prefix, PrefixError};

use crate::diagnostic::Findings;
use crate::key::{Absent, Key, Value};
use crate::sections::section::{Section, hint};
use crate::{Draft, Windows};

/// The keys of `[firewall]`.
pub(crate) const KEYS: &[Key] = &[
    Key::new(
        "pickup",
        Value::Text("time such as `\"60s\"`"),
        Absent::Text("off"),
        "Time after a start in which TCP connections of before go on, if the groups would allow them as new ones. \
         Without it they end.",
        "\"60s\"",
    ),
    Key::new(
        "timeouts",
        Value::Table { of: "times such as `\"5d\"` by states of connections" },
        Absent::Text("those of Linux"),
        "Times after which a connection without packets is forgotten.",
        "{ tcp-established = \"2h\", udp-stream = \"3m\" }",
    ),
    Key::new(
        "windows",
        Value::Choice(&["strict", "liberal"]),
        Absent::Value("\"strict\""),
        "Treatment of TCP segments outside of the window. `\"strict\"`: they drop. `\"liberal\"`: only those drop that \
         would reset the connection.",
        "\"liberal\"",
    ),
    Key::new(
        "nat64",
        Value::Texts { of: "IPv6 prefixes of 32, 40, 48, 56, 64 or 96 bits", min: 0, max: MOST_NAT64 },
        Absent::Text("none"),
        "Prefixes by which translators of the network reach IPv4 addresses, beside `64:ff9b::/96`. The sets \
         `private` and `metadata` have their addresses behind these prefixes, too.",
        "[\"2001:db8:64::/96\"]",
    ),
];

/// The most prefixes of translators.
const MOST_NAT64: usize = 16;

/// The names of timeouts: those of `nf_conntrack` without prefix.
pub const TIMEOUTS: &[&str] = &[
    "tcp-syn-sent",
    "tcp-syn-recv",
    "tcp-established",
    "tcp-fin-wait",
    "tcp-close-wait",
    "tcp-last-ack",
    "tcp-time-wait",
    "tcp-close",
    "tcp-max-retrans",
    "tcp-unacknowledged",
    "udp",
    "udp-stream",
    "icmp",
    "icmpv6",
    "generic",
    "fragments",
];

const SECOND: Duration = Duration::from_secs(1);

/// The longest timeout.
const LONGEST: Duration = Duration::from_hours(24 * 24);

/// The longest time in which connections of before go on.
const LONGEST_PICKUP: Duration = Duration::from_hours(1);

/// Reads the section.
pub(crate) fn read(section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) {
    section.only(KEYS, report);
    if let Some(text) = section.text("pickup", "pickup = \"60s\"", report) {
        match parse_time(text.get_ref(), LONGEST_PICKUP) {
            Ok(time) => draft.firewall.pickup = Some(time),
            Err(why) => {
                report.error(&text.span(), format!("pickup {:?} in {}: {why}", text.get_ref(), section.title()));
            }
        }
    }
    for (key, value) in section.table("timeouts", "timeouts = { tcp-established = \"2h\" }", report) {
        let name = key.get_ref().as_ref();
        let Some(known) = TIMEOUTS.iter().find(|known| **known == name) else {
            let hint = hint(name, TIMEOUTS, "timeouts");
            report.error(&key.span(), format!("{name:?} in timeouts of {}: unknown; {hint}", section.title()));
            continue;
        };
        let time = value.get_ref().as_str().map_or(Err(NO_TIME.to_owned()), |text| parse_time(text, LONGEST));
        match time {
            Ok(time) => draft.firewall.timeouts.push((*known, time)),
            Err(why) => report.error(&value.span(), format!("{name} in timeouts of {}: {why}", section.title())),
        }
    }
    let choices = [("strict", Windows::Strict), ("liberal", Windows::Liberal)];
    if let Some(windows) = section.choice("windows", &choices, report) {
        draft.firewall.windows = windows.into_inner();
    }
    let prefixes = section.texts("nat64", "nat64 = [\"2001:db8:64::/96\"]", report);
    if let Some(prefixes) = prefixes {
        if prefixes.get_ref().len() > MOST_NAT64 {
            let message = format!("nat64 in {} has too many prefixes: use at most {MOST_NAT64}", section.title());
            report.error(&prefixes.span(), message);
            return;
        }
        for text in prefixes.get_ref() {
            match nat64(text.get_ref()) {
                Ok(prefix) => draft.firewall.nat64.push(prefix),
                Err(why) => {
                    let message = format!("{:?} in nat64 of {} {why}", text.get_ref(), section.title());
                    report.error(&text.span(), message);
                }
            }
        }
    }
}

/// Reads the prefix of a translator (RFC 6052, 2.2).
fn nat64(text: &str) -> Result<Prefix, String> {
    let prefix: Prefix = text.parse().map_err(|error: PrefixError| error.to_string())?;
    let IpAddr::V6(address) = prefix.address() else {
        return Err("is of IPv4: write a prefix of IPv6, such as 2001:db8:64::/96".to_owned());
    };
    if !NAT64_LENGTHS.contains(&prefix.len()) {
        return Err("has no length of a translator: use 32, 40, 48, 56, 64 or 96".to_owned());
    }
    if address.octets()[8] != 0 {
        return Err("has other values than 0 in bits 64 to 71, which no translator has (RFC 6052)".to_owned());
    }
    Ok(prefix)
}

const NO_TIME: &str = "it must be a time in a text, such as \"90s\", \"5m\", \"2h\" or \"5d\"";

fn parse_time(text: &str, most: Duration) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|_| NO_TIME.to_owned())?;
    if (SECOND..=most).contains(&time) {
        return Ok(time);
    }
    Err(format!("too short or too long; it must be 1s to {}", humantime::format_duration(most)))
}
