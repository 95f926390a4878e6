//! The command line, and the axes of a trial.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::measure::{self, CommonOptions, Peers, SwitchKind};

const ABOUT: &str = "\
Compare switches between two Linux guests (User Mode Linux), in rounds: one guest pings the other, then
sends to it with iperf3. The table shows the rate, the switch's CPU time for a gigabyte received,
retransmits and round trips: medians, the smallest and the largest, and the ratio to the first switch.
Only rte needs root, and huge pages of 2 MiB (vm.nr_hugepages=1024). Run nothing else on the machine
meanwhile.";

const SWITCHES: &str = "\
Switches:
  NAME=PROGRAM  a Straightline binary. The same argument may add keys of [switch], of both ports, of
                one port, of the patch: 'spin=target/release/straightline idle=\"spin\"
                patch.full=\"wait\"', 'gso=target/release/straightline b.offloads=[]'
  rte           the smallest possible switch with DPDK's vhost library: two sockets, one polling
                thread
Offloads:
  tso   all that are negotiated
  csum  guests segment what they send and leave checksums to others
  none  guests segment and sum";

/// The switches of this comparison.
#[derive(Debug)]
pub(super) struct Switches;

impl Peers for Switches {
    const KNOWN: &'static [(&'static str, SwitchKind)] = &[("rte", SwitchKind::RteVhost)];
    const DEFAULT: &'static [&'static str] = &[];
    const ROUNDS: &'static str = "5";
}

/// Offloads that the guests use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Offload {
    Tso,
    Csum,
    None,
}

impl Offload {
    fn name(self) -> &'static str {
        match self {
            Self::Tso => "tso",
            Self::Csum => "csum",
            Self::None => "none",
        }
    }

    /// Returns the features that both guests turn off.
    pub(super) fn off(self) -> &'static [&'static str] {
        match self {
            Self::Tso => &[],
            Self::Csum => &["tso", "gso"],
            Self::None => &["tso", "gso", "gro", "tx", "rx"],
        }
    }
}

/// The axes of a trial besides the switch: rows of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinuxCell {
    pub(super) offload: Offload,
    pub(super) mtu: u32,
}

impl measure::Cell for LinuxCell {
    fn axes(&self) -> BTreeMap<String, String> {
        let axes = [("offload", self.offload.name().to_owned()), ("mtu", self.mtu.to_string())];
        axes.map(|(axis, value)| (axis.to_owned(), value)).into()
    }
}

impl fmt::Display for LinuxCell {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {}", self.offload.name(), self.mtu)
    }
}

#[derive(Debug, Args)]
#[command(about = "Compare switches between two Linux guests (`cargo xtask linux`)", long_about = ABOUT)]
#[command(after_help = SWITCHES, args_override_self = true)]
#[command(override_usage = "cargo xtask linux --switch SWITCH... [OPTION...]")]
pub(crate) struct Options {
    #[command(flatten)]
    pub(super) common: CommonOptions<Switches>,
    /// Offloads of the guests, from the list below, with an MTU of 1500 by default
    #[arg(
        long = "offload",
        value_name = "WHICH[/MTU],...",
        value_parser = cell,
        value_delimiter = ',',
        default_value = "tso,csum,none,tso/9000"
    )]
    pub(super) cells: Vec<LinuxCell>,
    /// Echoes before the load, 50 a second
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) pings: u32,
    /// Time that iperf3 sends, in whole seconds
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(super) secs: u32,
}

/// Checks the options, and asks each program for its version.
pub(super) fn checked(mut options: Options) -> Result<Options> {
    options.common.check()?;
    options.common.identify_copying("Linux guests need them")?;
    Ok(options)
}

fn cell(text: &str) -> Result<LinuxCell, String> {
    let (offload, mtu) = text.split_once('/').unwrap_or((text, "1500"));
    let offload = Offload::from_str(offload, false).map_err(|_| "use tso, csum or none".to_owned())?;
    // Our ports have an MTU of 9000 by default here.
    let mtu = mtu.parse().ok().filter(|mtu| (576..=9000).contains(mtu));
    Ok(LinuxCell { offload, mtu: mtu.ok_or("the MTU is out of range: use 576 to 9000")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Result<Options> {
        let options: Options = measure::parsed(line)?;
        options.common.check()?;
        Ok(options)
    }

    #[test]
    fn command_lines() {
        let words = |options: &Options| options.cells.iter().map(ToString::to_string).collect::<Vec<_>>();
        let options = args("--switch|rte|--switch|spin=bin/s idle=\"spin\"|--rounds|15").expect("a good command line");
        assert_eq!(words(&options), ["tso 1500", "csum 1500", "none 1500", "tso 9000"]);
        assert_eq!((options.common.switches.len(), options.common.rounds, options.secs), (2, 15, 5));
        let options = args("--switch|rte|--offload|none/9000,csum|--secs|1|--pings|20").expect("a good command line");
        assert_eq!((words(&options), options.pings), (vec!["none 9000".to_owned(), "csum 1500".to_owned()], 20));
        for bad in [
            "--switch|testpmd",
            "--switch|rte=x",
            "--offload|uso",
            "--offload|tso/",
            "--offload|tso/9001",
            "--offload|",
            "--secs|0",
            "--secs|0.5",
            "--pings|0",
            "--rounds|0",
            "--pings",
            "--fast",
        ] {
            assert!(args(&format!("--switch|x=bin/s|{bad}")).is_err(), "{bad}");
        }
        assert!(args("--switch|x=bin/s").is_ok() && args("").is_err());
    }
}
