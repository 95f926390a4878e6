//! Groups and sets that exist in each switch.

use std::sync::LazyLock;

use crate::carried::{behind, isatap};
use crate::group::{Group, Set};
use crate::pattern::Pattern;
use crate::prefix::Prefix;

/// Addresses of private networks: RFC 1918, RFC 6598 and RFC 3927, with those of the own machine.
const PRIVATE_V4: &[&str] =
    &["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "0.0.0.0/8", "127.0.0.0/8"];

/// Unique local (RFC 4193), link-local and site-local addresses, and those of the own machine: of IPv6,
/// and of IPv4 mapped to it.
const PRIVATE_V6: &[&str] = &["fc00::/7", "fe80::/10", "fec0::/10", COMPATIBLE, MAPPED];

/// Addresses at which clouds tell a VM its secrets.
///
/// All link-local addresses of IPv4 are here: clouds add others beside 169.254.169.254, such as
/// 169.254.170.2 for containers. Further ones are those of Alibaba, Azure and Oracle.
const METADATA_V4: &[&str] = &["169.254.0.0/16", "100.100.100.200", "168.63.129.16", "192.0.0.192"];

/// Those of Amazon (the second one for containers), Google, OpenStack, Oracle, Akamai and Scaleway.
const METADATA_V6: &[&str] = &[
    "fd00:ec2::254",
    "fd00:ec2::23",
    "fd20:ce::254",
    "fe80::a9fe:a9fe",
    "fd00:c1::a9fe:a9fe",
    "fd00:a9fe:a9fe::1",
    "fd00:42::42",
];

/// Prefixes in front of an IPv4 address: compatible and mapped addresses (RFC 4291, 2.5.5), those of
/// stateless translators (RFC 2765) and of NAT64 (RFC 6052), and of 6to4 (RFC 3056).
const COMPATIBLE: &str = "::/96";
const MAPPED: &str = "::ffff:0:0/96";
const STATELESS: &str = "::ffff:0:0:0/96";
const NAT64: &str = "64:ff9b::/96";
const SIX_TO_FOUR: &str = "2002::/16";

/// Prefixes of translators of a network's own (RFC 8215). Nobody knows their length but the network.
const LOCAL_NAT64: &str = "64:ff9b:1::/48";

/// Addresses of Teredo (RFC 4380). They carry an IPv4 address and a port, which the sender chooses.
const TEREDO: &str = "2001::/32";

/// The name, the rules of `in` and the rules of `out` of each profile.
const PROFILES: &[(&str, &[&str], &[&str])] = &[
    ("public", &["any from any"], &["any to any"]),
    (
        "private",
        &[],
        &[
            "deny any to set:metadata name metadata",
            "deny any to set:private name private",
            "deny any to set:tunnelled name tunnelled",
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

static SETS: LazyLock<Vec<Set>> = LazyLock::new(|| known_sets_with(&[]));

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

/// Returns the sets that exist in each switch, for a network whose translators have these prefixes, too.
///
/// `private` has addresses that are private in any case: rules may allow them. `tunnelled` has addresses
/// by which a tunnel may reach private ones: rules should only deny it.
#[must_use]
pub fn known_sets_with(nat64: &[Prefix]) -> Vec<Set> {
    let local = read(&[LOCAL_NAT64]);
    // Where the network says its own prefix, the others of that space lead nowhere.
    let is_local = |prefix: &Prefix| local.iter().any(|local| local.has(*prefix));
    let unknown = if nat64.iter().any(is_local) { &[][..] } else { &local };
    let translators = |others: &[&str]| [&read(others), nat64].concat();
    let private_v4 = read(PRIVATE_V4);
    let private = SetBuilder::new("private")
        .prefixes(&private_v4)
        .prefixes(&read(PRIVATE_V6))
        .prefixes(unknown)
        .carrying(&private_v4, &translators(&[STATELESS, NAT64, SIX_TO_FOUR]));
    let metadata_v4 = read(METADATA_V4);
    let metadata = SetBuilder::new("metadata")
        .prefixes(&metadata_v4)
        .prefixes(&read(METADATA_V6))
        .prefixes(&read(&[TEREDO]))
        .prefixes(unknown)
        .carrying(&metadata_v4, &translators(&[COMPATIBLE, MAPPED, STATELESS, NAT64, SIX_TO_FOUR]))
        .isatap(&metadata_v4);
    let tunnelled = SetBuilder::new("tunnelled").prefixes(&read(&[TEREDO])).isatap(&private_v4);
    vec![private.set, metadata.set, tunnelled.set]
}

/// A set that grows.
struct SetBuilder {
    set: Set,
}

impl SetBuilder {
    fn new(name: &str) -> Self {
        Self { set: Set { name: name.to_owned(), ..Set::default() } }
    }

    fn prefixes(mut self, prefixes: &[Prefix]) -> Self {
        self.set.prefixes.extend(prefixes);
        self
    }

    /// Adds the addresses that carry addresses of IPv4 behind prefixes.
    fn carrying(self, v4: &[Prefix], prefixes: &[Prefix]) -> Self {
        prefixes.iter().fold(self, |set, prefix| set.patterns(v4.iter().filter_map(|v4| behind(*prefix, *v4))))
    }

    /// Adds the addresses of ISATAP that carry addresses of IPv4.
    fn isatap(self, v4: &[Prefix]) -> Self {
        self.patterns(v4.iter().filter_map(|v4| isatap(*v4)).flatten())
    }

    /// Adds patterns, as prefixes where they are some.
    fn patterns(mut self, patterns: impl IntoIterator<Item = Pattern>) -> Self {
        for pattern in patterns {
            match pattern.prefix() {
                Some(prefix) => self.set.prefixes.push(prefix),
                None => self.set.patterns.push(pattern),
            }
        }
        self
    }
}

fn read(texts: &[&str]) -> Vec<Prefix> {
    texts.iter().map(|text| text.parse().expect("a valid prefix")).collect()
}
