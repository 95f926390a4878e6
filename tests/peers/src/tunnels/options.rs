//! The command line, and the axes of a trial.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Result, ensure};
use clap::Args;

use crate::measure::{self, Candidate, CommonOptions, Peers, SwitchKind};

const ABOUT: &str = "\
Compare tunnels between two switches, in rounds: two Linux guests (User Mode Linux), a switch for each,
and a veth pair between them with AF_XDP at both ends. One guest sends to the other by iperf3, then the
other way round. Each switch takes part once for each path: plain, l2tpv3, vxlan. The table has medians,
the smallest and the largest, and the ratios of tunnels to plain, and to the other switch. It needs root,
and for Open vSwitch huge pages of 2 MiB (vm.nr_hugepages=1024). Run nothing else on the machine
meanwhile.";

const SWITCHES: &str = "\
Switches:
  ovs           Open vSwitch with DPDK: dpdkvhostuser and afxdp; it has no l2tpv3
  ovs-sleep     the same, whose polling threads sleep for up to 100 us without load (pmd-maxsleep)
  NAME=PROGRAM  a Straightline binary. The same argument may add keys of [switch], of the vhost-user
                ports, of the AF_XDP ports, of the tunnels, of the patches:
                'spin=target/release/straightline idle=\"spin\" tunnel.verify=false'
Default: ovs, ovs-sleep, and target/release/straightline as ours and spin";

/// The switches of this comparison.
#[derive(Debug)]
pub(super) struct Switches;

impl Peers for Switches {
    const KNOWN: &'static [(&'static str, SwitchKind)] =
        &[("ovs", SwitchKind::Ovs), ("ovs-sleep", SwitchKind::OvsSleeping)];
    const DEFAULT: &'static [&'static str] =
        &["ours=target/release/straightline", "spin=target/release/straightline idle=\"spin\"", "ovs", "ovs-sleep"];
    const ROUNDS: &'static str = "6";
}

/// The MTU of the guests.
pub(crate) const MTU: u32 = 1500;

/// The connection between the two AF_XDP ports and the guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// The AF_XDP port is joined with the guest's port.
    Plain,
    /// Keyed, over IPv6, with a cookie of 8 bytes.
    L2tpv3,
    /// Over IPv4.
    Vxlan,
}

impl Path {
    pub(super) const ALL: [Self; 3] = [Self::Plain, Self::L2tpv3, Self::Vxlan];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::L2tpv3 => "l2tpv3",
            Self::Vxlan => "vxlan",
        }
    }
}

/// A switch with a path: a column of the table.
#[derive(Clone, Debug)]
pub(super) struct Variant {
    /// The switch, whose name contains that of the path.
    pub(super) switch: Candidate,
    /// The position of the switch on the command line.
    pub(super) of: usize,
    pub(super) path: Path,
}

/// The axes of a trial besides switch and path: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TunnelCell;

impl measure::Cell for TunnelCell {
    fn axes(&self) -> BTreeMap<String, String> {
        [("mtu".to_owned(), MTU.to_string())].into()
    }
}

impl fmt::Display for TunnelCell {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "MTU {MTU}")
    }
}

#[derive(Debug, Args)]
#[command(about = "Compare tunnels between two switches (`cargo xtask compare tunnels`)", long_about = ABOUT)]
#[command(after_help = SWITCHES, args_override_self = true)]
#[command(override_usage = "cargo xtask compare tunnels [OPTION...]")]
pub(crate) struct Options {
    #[command(flatten)]
    pub(super) common: CommonOptions<Switches>,
    /// Only paths and switches whose name contains PATTERN: --only 'ours vxlan'
    #[arg(long, value_name = "PATTERN", default_value = "", hide_default_value = true)]
    only: String,
    /// Time that iperf3 sends in each direction, in whole seconds
    #[arg(long, value_name = "S", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(super) secs: u32,
}

impl Options {
    fn check(&self) -> Result<()> {
        ensure!(!self.variants().is_empty(), "--only {}: no switch with a path has this in its name", self.only);
        self.common.check()
    }

    /// Returns the columns of the table.
    pub(super) fn variants(&self) -> Vec<Variant> {
        let mut variants = Vec::new();
        for (of, switch) in self.common.switches.iter().enumerate() {
            for path in Path::ALL {
                let name = format!("{} {}", switch.name, path.name());
                let exists = matches!(switch.kind, SwitchKind::Ours(_)) || path != Path::L2tpv3;
                if exists && name.contains(&self.only) {
                    variants.push(Variant { switch: Candidate { name, ..switch.clone() }, of, path });
                }
            }
        }
        variants
    }
}

/// Checks the options, and asks each program for its version.
pub(super) fn checked(mut options: Options) -> Result<Options> {
    options.check()?;
    options.common.identify_copying("Linux guests need them")?;
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Result<Options> {
        let options: Options = measure::parsed(line)?;
        options.check()?;
        Ok(options)
    }

    #[test]
    fn command_lines() {
        let columns = |options: &Options| options.variants().into_iter().map(|v| v.switch.name).collect::<Vec<_>>();
        let all = args("").expect("a good command line");
        assert_eq!((all.common.rounds, all.secs), (6, 4));
        let ovs = ["ovs plain", "ovs vxlan", "ovs-sleep plain", "ovs-sleep vxlan"];
        let ours = ["ours plain", "ours l2tpv3", "ours vxlan", "spin plain", "spin l2tpv3", "spin vxlan"];
        assert_eq!(columns(&all), [&ours[..], &ovs].concat());
        let some = args("--switch|ovs|--switch|x=bin/s idle=\"spin\" tunnel.verify=false|--only|vxlan|--secs|1");
        let some = some.expect("a good command line");
        assert_eq!((columns(&some), some.secs), (vec!["ovs vxlan".to_owned(), "x vxlan".to_owned()], 1));
        assert_eq!(some.variants().iter().map(|variant| variant.of).collect::<Vec<_>>(), [0, 1]);
        let bad = ["--only|gre", "--switch|ovs|--only|l2tpv3", "--switch|testpmd", "--secs|0", "--secs|0.5"];
        for bad in bad.into_iter().chain(["--rounds|0", "--fast", "--only", "--switch|ovs|--switch|ovs"]) {
            assert!(args(bad).is_err(), "{bad}");
        }
    }
}
