//! The kinds of tunnels, with the keys that they get here.

use std::fmt;
use std::str::FromStr;

use anyhow::Context;

/// A kind of tunnel; L2TPv3 is two of them, because it has two carriers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Encapsulation {
    /// L2TPv3 over IP, with a cookie of 8 bytes. Over IPv6 it is the keyed tunnel of RFC 8159.
    L2tpv3,
    /// VXLAN.
    Vxlan,
    /// Geneve without options.
    Geneve,
    /// GRE with a key.
    Gre,
    /// L2TPv3 over UDP, with a cookie of 8 bytes.
    L2tpv3Udp,
    /// NVGRE.
    Nvgre,
    /// VXLAN-GPE.
    VxlanGpe,
    /// GTP-U, which carries IP.
    Gtpu,
    /// MPLS in UDP, which carries IP.
    MplsUdp,
}

/// The key of the first of several tunnels. Lower numbers are reserved in some kinds.
const FIRST_KEY: u32 = 5000;

/// The cookies of the two ends of L2TPv3.
const COOKIES: [&str; 2] = ["0011223344556677", "8899aabbccddeeff"];

impl Encapsulation {
    /// All kinds.
    pub const ALL: [Encapsulation; 9] = [
        Encapsulation::L2tpv3,
        Encapsulation::Vxlan,
        Encapsulation::Geneve,
        Encapsulation::Gre,
        Encapsulation::L2tpv3Udp,
        Encapsulation::Nvgre,
        Encapsulation::VxlanGpe,
        Encapsulation::Gtpu,
        Encapsulation::MplsUdp,
    ];

    /// Returns the name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Encapsulation::L2tpv3Udp => "l2tpv3-udp",
            other => other.kind(),
        }
    }

    /// Returns the value of the key `kind` in the configuration.
    fn kind(self) -> &'static str {
        match self {
            Encapsulation::L2tpv3 | Encapsulation::L2tpv3Udp => "l2tpv3",
            Encapsulation::Vxlan => "vxlan",
            Encapsulation::Geneve => "geneve",
            Encapsulation::Gre => "gre",
            Encapsulation::Nvgre => "nvgre",
            Encapsulation::VxlanGpe => "vxlan-gpe",
            Encapsulation::Gtpu => "gtpu",
            Encapsulation::MplsUdp => "mpls-udp",
        }
    }

    /// Returns whether the tunnel carries IP packets instead of Ethernet frames.
    #[must_use]
    pub fn carries_ip(self) -> bool {
        matches!(self, Encapsulation::Gtpu | Encapsulation::MplsUdp)
    }

    /// Returns the kind and its keys as lines of a port's section, for the left end (0) or the
    /// right end (1). `nth` is the number of the tunnel if the underlay has several.
    pub(super) fn lines(self, end: usize, nth: Option<u16>, ipv4: bool) -> String {
        let key = FIRST_KEY + u32::from(nth.unwrap_or(0));
        let cookies = format!("cookie = \"{}\"\npeer-cookie = \"{}\"\n", COOKIES[end], COOKIES[1 - end]);
        let keys = match self {
            // The keyed tunnel is known by its addresses and its cookie.
            Encapsulation::L2tpv3 if nth.is_none() && !ipv4 => cookies,
            Encapsulation::L2tpv3 => format!("session = {key}\n{cookies}"),
            Encapsulation::L2tpv3Udp => format!("over = \"udp\"\nsession = {key}\n{cookies}"),
            Encapsulation::Vxlan | Encapsulation::Geneve | Encapsulation::VxlanGpe => format!("vni = {key}\n"),
            Encapsulation::Gre => format!("key = {key}\n"),
            Encapsulation::Nvgre => format!("vsid = {key}\n"),
            Encapsulation::Gtpu => format!("teid = {key}\n"),
            Encapsulation::MplsUdp => format!("label = {key}\n"),
        };
        format!("kind = \"{}\"\n{keys}", self.kind())
    }
}

impl FromStr for Encapsulation {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> anyhow::Result<Self> {
        let found = Encapsulation::ALL.into_iter().find(|one| one.name() == name);
        found.with_context(|| format!("use one of {}", Encapsulation::ALL.map(Encapsulation::name).join(", ")))
    }
}

impl fmt::Display for Encapsulation {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for one in Encapsulation::ALL {
            assert_eq!(one.to_string().parse::<Encapsulation>().expect("a kind"), one);
        }
        let error = "stt".parse::<Encapsulation>().expect_err("no kind").to_string();
        assert!(error.starts_with("use one of l2tpv3, vxlan, ") && error.ends_with(", mpls-udp"), "{error}");
    }

    #[test]
    fn each_end_expects_what_the_other_one_sends() {
        let [left, right] = [0, 1].map(|end| Encapsulation::L2tpv3.lines(end, None, false));
        let value = |text: &str, key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{key} = "))).expect("a key");
            line.to_owned()
        };
        assert_eq!(value(&left, "cookie"), value(&right, "peer-cookie"));
        assert_eq!(value(&left, "peer-cookie"), value(&right, "cookie"));
        assert_ne!(value(&left, "cookie"), value(&left, "peer-cookie"));
        assert!(!left.contains("session"), "{left}");
        assert!(Encapsulation::L2tpv3.lines(0, Some(7), false).contains("session = 5007\n"));
        assert!(Encapsulation::L2tpv3.lines(0, None, true).contains("session = 5000\n"));
    }
}
