//! The kernel: a namespace that routes between two taps, with nftables and nf_conntrack.

use std::fmt::Write as _;

use anyhow::Result;
use straightline_guest::endpoints::InterfaceKind;

use super::policy::Policy;
use super::sequence::{IN, OUT};
use crate::cases::ends::{Device, End};
use crate::net::Namespace;

/// The taps, by side.
const TAPS: [&str; 2] = ["inside", "outside"];

/// A namespace with its rules in force.
pub(super) struct Kernel {
    namespace: Namespace,
}

impl Kernel {
    /// Makes the namespace, with rules and timeouts.
    pub(super) fn start(policy: &Policy, timeouts: &[(&str, u32)]) -> Result<Self> {
        let namespace = Namespace::new("nftables")?;
        let mut script = "for all in all default; do echo 0 > /proc/sys/net/ipv4/conf/$all/rp_filter; done\n\
                          echo 1 > /proc/sys/net/ipv4/ip_forward\n\
                          echo 1 > /proc/sys/net/ipv6/conf/all/forwarding\n"
            .to_owned();
        for tap in TAPS {
            write!(
                script,
                "ip tuntap add dev {tap} mode tap vnet_hdr\nip link set {tap} address 02:00:00:00:00:0a up\n"
            )?;
            for (gateway, family) in [("169.254.0.1", "-4"), ("fe80::1", "-6")] {
                let neighbour = "lladdr 02:00:00:00:00:0b nud permanent";
                writeln!(script, "ip {family} neigh add {gateway} {neighbour} dev {tap}")?;
            }
        }
        for (tap, v4, v6) in [(TAPS[IN], "10.0.0.0/8", "fd00::/16"), (TAPS[OUT], "0.0.0.0/0", "2000::/3")] {
            writeln!(script, "ip route add {v4} via 169.254.0.1 dev {tap} onlink")?;
            writeln!(script, "ip -6 route add {v6} via fe80::1 dev {tap} onlink")?;
        }
        writeln!(script, "nft '{}'", rules(policy))?;
        // A connection that was not seen from its first SYN is not taken up: neither do we.
        writeln!(script, "cd /proc/sys/net/netfilter; echo 0 > nf_conntrack_tcp_loose")?;
        for (name, seconds) in timeouts {
            let (protocol, state) = name.split_once('-').map_or((*name, String::new()), |(protocol, state)| {
                (protocol, format!("_{}", state.replace('-', "_")))
            });
            writeln!(script, "echo {seconds} > nf_conntrack_{protocol}_timeout{state}")?;
        }
        namespace.sh(&script)?;
        Ok(Kernel { namespace })
    }

    /// Opens the program's sides of both taps. A packet that is written comes out of the other one
    /// before the write has ended, or never.
    pub(super) fn ends(&self) -> Result<Vec<Box<dyn End>>> {
        let mut ends: Vec<Box<dyn End>> = Vec::new();
        for tap in TAPS {
            ends.push(Box::new(self.namespace.run(|| Device::open(InterfaceKind::Tap, tap))??));
        }
        Ok(ends)
    }
}

fn rules(policy: &Policy) -> String {
    let [outbound, inbound] = [IN, OUT].map(|side| policy.of_chain(side));
    let [inside, outside] = TAPS;
    format!(
        "table inet oracle {{\n\
         chain outbound {{\n{outbound}}}\n\
         chain inbound {{\n{inbound}}}\n\
         chain forward {{\n\
         type filter hook forward priority 0; policy drop;\n\
         ct state established,related accept\n\
         ct state invalid drop\n\
         iifname {inside} jump outbound\n\
         iifname {outside} jump inbound\n\
         }}\n}}\n"
    )
}
