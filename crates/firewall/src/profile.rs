//! Groups and sets that exist in each switch.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::LazyLock;

use crate::group::{Group, Set};
use crate::prefix::Prefix;

/// Addresses of private networks: RFC 1918, RFC 6598 and RFC 3927, with those of the own machine.
const PRIVATE_V4: &[&str] =
    &["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "0.0.0.0/8", "127.0.0.0/8"];

/// Unique local (RFC 4193), link-local and site-local addresses, and those of the own machine: of IPv6,
/// and of IPv4 mapped to it or translated by a network's own prefix (RFC 8215).
const PRIVATE_V6: &[&str] = &["fc00::/7", "fe80::/10", "fec0::/10", "::/96", "::ffff:0:0/96", "64:ff9b:1::/48"];

/// Addresses at which clouds tell a VM its secrets.
const METADATA: &[&str] = &["169.254.169.254", "fd00:ec2::254"];

/// The name, the rules of `in` and the rules of `out` of each profile.
const PROFILES: &[(&str, &[&str], &[&str])] = &[
    ("public", &["any from any"], &["any to any"]),
    (
        "private",
        &[],
        &[
            "deny any to set:metadata name metadata",
            "deny any to set:private name private",
            "deny any to 224.0.0.0/3,ff00::/8 name multicast",
            "any to any",
        ],
    ),
    ("host-only", &["any from set:private"], &["deny any to set:metadata name metadata", "any to set:private"]),
];

static GROUPS: LazyLock<Vec<Group>> = LazyLock::new(|| {
    let group = |&(name, inbound, outbound): &(&str, &[&str], &[&str])| Group::parse(name, inbound, outbound);
    PROFILES.iter().map(|profile| group(profile).expect("profiles have valid rules")).collect()
});

static SETS: LazyLock<Vec<Set>> = LazyLock::new(|| {
    let read = |text: &&str| text.parse().expect("a valid prefix");
    let v4: Vec<Prefix> = PRIVATE_V4.iter().map(read).collect();
    let mut private = v4.clone();
    private.extend(PRIVATE_V6.iter().map(read));
    private.extend(v4.iter().flat_map(|prefix| in_ipv6(*prefix)));
    let metadata = METADATA.iter().map(read).collect();
    vec![Set { name: "private".to_owned(), prefixes: private }, Set { name: "metadata".to_owned(), prefixes: metadata }]
});

/// Returns the prefixes of IPv6 by which translators (RFC 6052) and relays of 6to4 (RFC 3056) reach
/// addresses of IPv4.
fn in_ipv6(prefix: Prefix) -> Vec<Prefix> {
    let IpAddr::V4(address) = prefix.address() else { return Vec::new() };
    let address = u128::from(address.to_bits());
    let translated = (0x0064_ff9b << 96) | address;
    let relayed = (0x2002 << 112) | address << 80;
    let of = |bits: u128, len: u8| Prefix::around(Ipv6Addr::from_bits(bits).into(), len + prefix.len());
    vec![of(translated, 96), of(relayed, 16)]
}

/// Returns the groups that exist in each switch.
#[must_use]
pub fn profiles() -> &'static [Group] {
    &GROUPS
}

/// Returns the sets that exist in each switch.
#[must_use]
pub fn known_sets() -> &'static [Set] {
    &SETS
}
