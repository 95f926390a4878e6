//! The command line, and the axes of a trial.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Result;
use clap::Args;

use crate::measure::{self, CommonOptions, Peers, SwitchKind};

const ABOUT: &str = "\
Measure what the kernel's nf_conntrack costs a packet behind a policy of 100 rules of nftables, in rounds. A namespace
forwards what this program writes into a tap, and the write ends when the packet has left. The packets are those of
`cargo bench -p straightline-nodes --bench firewall`, which measures our groups. It needs root and nft. Run nothing
else on the machine meanwhile.";

const SWITCHES: &str = "\
Switches:
  kernel        nf_conntrack and nftables
Default: kernel";

/// The switches of this comparison.
#[derive(Debug)]
pub(super) struct Switches;

impl Peers for Switches {
    const KNOWN: &'static [(&'static str, SwitchKind)] = &[("kernel", SwitchKind::Kernel)];
    const DEFAULT: &'static [&'static str] = &["kernel"];
    const ROUNDS: &'static str = "10";
}

/// The packets of a trial: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConntrackCell {
    /// A namespace without rules: the cost of the tap and of forwarding, which all others have too.
    Forward,
    /// Segments of connections that are established.
    Known,
    /// Each packet begins a connection of TCP.
    New,
}

impl ConntrackCell {
    pub(super) const ALL: [Self; 3] = [Self::Forward, Self::Known, Self::New];

    fn name(self) -> &'static str {
        match self {
            Self::Forward => "forwarded without rules",
            Self::Known => "of 1000 known connections, TCP",
            Self::New => "the first of a connection, 100 rules",
        }
    }
}

impl measure::Cell for ConntrackCell {
    fn axes(&self) -> BTreeMap<String, String> {
        [("packets".to_owned(), self.name().to_owned())].into()
    }
}

impl fmt::Display for ConntrackCell {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

#[derive(Debug, Args)]
#[command(about = "Measure the kernel's nf_conntrack (`cargo xtask compare conntrack`)", long_about = ABOUT)]
#[command(after_help = SWITCHES, args_override_self = true)]
#[command(override_usage = "cargo xtask compare conntrack [OPTION...]")]
pub(crate) struct Options {
    #[command(flatten)]
    pub(super) common: CommonOptions<Switches>,
    /// Packets of a trial. The kernel follows 262 144 connections by default
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1000..=200_000))]
    pub(super) packets: u32,
}

/// Checks the options, and asks for the version of the kernel.
pub(super) fn checked(mut options: Options) -> Result<Options> {
    options.common.check()?;
    options.common.identify()?;
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let all: Options = measure::parsed("").expect("a good command line");
        assert_eq!((all.common.rounds, all.common.switches.len(), all.packets), (10, 1, 100_000));
        for bad in ["--packets|10", "--packets|300000", "--switch|ovs"] {
            assert!(measure::parsed::<Options>(bad).is_err(), "{bad}");
        }
    }
}
