//! `kind = "l2tpv3"` (RFC 3931, RFC 4719; keyed over IPv6: RFC 8159).

use std::net::IpAddr;

use straightline_underlay::{Cookie, L2tpOver, TunnelKind};
use toml::Spanned;

use super::bytes;
use crate::Draft;
use crate::diagnostic::Findings;
use crate::key::{Absent, Key, Value};
use crate::sections::kind::PortKind;
use crate::sections::section::Section;

/// A cookie in the file.
const COOKIE: Value = Value::Text("0, 4 or 8 bytes in hexadecimal digits");
/// The keys that only this kind has.
pub(super) const KEYS: &[Key] = &[
    Key::new(
        "over",
        Value::Choice(&["ip", "udp"]),
        Absent::Value("\"ip\""),
        "What carries the packets: IP protocol 115, or UDP port 1701.",
        "\"udp\"",
    ),
    Key::new(
        "session",
        Value::integer(1, 4_294_967_295),
        Absent::Text("over IP version 6: 4294967295 (RFC 8159); else required"),
        "Session of packets from the remote.",
        "7",
    ),
    Key::new(
        "peer-session",
        Value::integer(1, 4_294_967_295),
        Absent::Text("`session`"),
        "Session of packets to the remote.",
        "8",
    ),
    Key::new(
        "cookie",
        COOKIE,
        Absent::Text("none"),
        "Cookie of packets from the remote. A packet with another one drops as `tunnel-cookie`.",
        "\"0011223344556677\"",
    ),
    Key::new(
        "peer-cookie",
        COOKIE,
        Absent::Text("`cookie`"),
        "Cookie of packets to the remote.",
        "\"8899aabbccddeeff\"",
    ),
    Key::new(
        "previous-cookie",
        COOKIE,
        Absent::Text("none"),
        "A second cookie that packets from the remote may have, of the length of `cookie`.",
        "\"0123456789abcdef\"",
    ),
    Key::new(
        "l2spec",
        Value::Boolean,
        Absent::Value("false"),
        "`true`: the default sublayer (4 bytes) is in front of each frame. Linux has it unless its tunnel is made with `l2spec_type none`.",
        "true",
    ),
    Key::new(
        "peer-port",
        Value::integer(1, 65535),
        Absent::Value("1701"),
        "UDP port of the remote, with `over = \"udp\"`.",
        "1702",
    ),
];

/// The session of a keyed tunnel, which its addresses and cookies alone tell from others
/// (RFC 8159, 3).
const KEYED: u32 = u32::MAX;
/// The port of L2TP (RFC 3931, 4.1.2).
const PORT: u16 = 1701;

/// Reads the keys of an L2TPv3 tunnel.
pub(super) fn read(section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) -> PortKind {
    super::read(section, "session", report, draft, read_kind)
}

fn read_kind(section: &Section<'_>, remote: Option<IpAddr>, report: &mut Findings<'_>) -> TunnelKind {
    let title = section.title();
    let is_udp = section.choice("over", &[("ip", false), ("udp", true)], report).is_some_and(Spanned::into_inner);
    let port = section.integer("peer-port", 1..=u16::MAX, report).map_or(PORT, Spanned::into_inner);
    if let Some(value) = section.get("source-port") {
        // RFC 3931, 4.1.2.1: both ports of a session are fixed.
        report.error(&value.span(), format!("source-port in {title}: l2tpv3 always sends from {PORT}; leave it out"));
    }
    for key in ["peer-port", "verify", "zero-checksum"] {
        if let Some(value) = section.get(key).filter(|_| !is_udp && !section.is_wrong("over", report)) {
            report.error(&value.span(), format!("{key} in {title} needs over = \"udp\" in this section"));
        }
    }
    // Session 0 is for messages of control.
    let session = section.integer("session", 1..=u32::MAX, report);
    let is_keyed = !is_udp && remote.is_none_or(|remote| remote.is_ipv6());
    if section.get("session").is_none() && !is_keyed {
        section.missing("session", "session = 1", report);
    }
    let session = session.map_or(KEYED, Spanned::into_inner);
    let peer_session = section.integer("peer-session", 1..=u32::MAX, report).map_or(session, Spanned::into_inner);
    let cookie = read_cookie(section, "cookie", report).map(Spanned::into_inner).unwrap_or_default();
    let peer_cookie = read_cookie(section, "peer-cookie", report).map_or(cookie, Spanned::into_inner);
    let previous = read_cookie(section, "previous-cookie", report);
    if let Some(previous) = &previous
        && previous.get_ref().as_bytes().len() != cookie.as_bytes().len()
        && !section.is_wrong("cookie", report)
    {
        let message = format!(
            "previous-cookie in {title}: {} bytes, but cookie has {}; both must have the same length",
            previous.get_ref().as_bytes().len(),
            cookie.as_bytes().len()
        );
        report.error(&previous.span(), message);
    }
    if is_keyed && session == KEYED && remote.is_some() {
        warn_without_cookie(section, cookie, report);
    }
    TunnelKind::L2tpv3 {
        over: if is_udp { L2tpOver::Udp { port } } else { L2tpOver::Ip },
        session,
        peer_session,
        cookie,
        previous_cookie: previous.map(Spanned::into_inner),
        peer_cookie,
        l2spec: section.boolean("l2spec", report).is_some_and(Spanned::into_inner),
    }
}

/// Warns of a keyed tunnel without a cookie of 8 bytes, which is all that names the remote (RFC 8159,
/// 3).
fn warn_without_cookie(section: &Section<'_>, cookie: Cookie, report: &mut Findings<'_>) {
    let title = section.title();
    let len = cookie.as_bytes().len();
    let has = match len {
        0 => "no cookie".to_owned(),
        8 => return,
        _ => format!("a cookie of {len} bytes"),
    };
    let message = format!(
        "{title} is a keyed tunnel and has {has}, so that stations which forge the remote's address can put frames \
         into it; RFC 8159 wants 8 random bytes at both ends, for example cookie = \"0011223344556677\""
    );
    report.warn(&section.get("cookie").map_or(section.span().clone(), Spanned::span), message);
}

fn read_cookie(section: &Section<'_>, key: &str, report: &mut Findings<'_>) -> Option<Spanned<Cookie>> {
    let bytes = bytes(section, key, "0011223344556677", report)?;
    let cookie = Cookie::new(bytes.get_ref());
    if cookie.is_none() {
        let message = format!(
            "{key} in {}: {} bytes; a cookie has 0, 4 or 8, for example {key} = \"0011223344556677\"",
            section.title(),
            bytes.get_ref().len()
        );
        report.error(&bytes.span(), message);
    }
    cookie.map(|cookie| Spanned::new(bytes.span(), cookie))
}
