//! The command line, and the axes of a trial.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Result, ensure};
use clap::Args;

use crate::measure::{self, CommonOptions, Peers, SwitchKind};

const ABOUT: &str = "\
Compare flow tables, in rounds. An embedded guest sends UDP frames of 64 bytes through both ports of a switch and drops
what it receives: one rule; 1000 rules with 20 masks and 10 000 flows; 1000 connections that `ct` follows; flows of
which each needs another mask in a table of tuples (explosion), from the first port only. Run nothing else on the
machine meanwhile.";

const SWITCHES: &str = "\
Switches:
  ovs           Open vSwitch with DPDK. It needs root and huge pages
  NAME=PROGRAM  a Straightline binary. The same argument may add keys as in `cargo xtask compare`
Default: ovs, and target/release/straightline as ours";

/// The switches of this comparison.
#[derive(Debug)]
pub(super) struct Switches;

impl Peers for Switches {
    const KNOWN: &'static [(&'static str, SwitchKind)] = &[("ovs", SwitchKind::Ovs)];
    const DEFAULT: &'static [&'static str] = &["ovs", "ours=target/release/straightline"];
    const ROUNDS: &'static str = "3";
}

/// The rules and flows of a trial: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowsCell {
    /// A rule for each port, and one flow.
    One,
    /// 1000 rules with 20 masks, and 10 000 flows.
    Many,
    /// Rules with `ct`, and 1000 connections of UDP.
    Connections,
    /// Three rules, and one flow from each port.
    Calm,
    /// The same rules. The first port sends 16 384 flows.
    Explosion,
}

impl FlowsCell {
    const ALL: [Self; 5] = [Self::One, Self::Many, Self::Connections, Self::Calm, Self::Explosion];

    fn name(self) -> &'static str {
        match self {
            Self::One => "1 rule",
            Self::Many => "1000 rules, 10 000 flows",
            Self::Connections => "ct, 1000 connections",
            Self::Calm => "3 rules, 1 flow",
            Self::Explosion => "3 rules, explosion",
        }
    }
}

impl measure::Cell for FlowsCell {
    fn axes(&self) -> BTreeMap<String, String> {
        [("flows".to_owned(), self.name().to_owned())].into()
    }
}

impl fmt::Display for FlowsCell {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

#[derive(Debug, Args)]
#[command(about = "Compare flow tables with Open vSwitch's (`cargo xtask compare flows`)", long_about = ABOUT)]
#[command(after_help = SWITCHES, args_override_self = true)]
#[command(override_usage = "cargo xtask compare flows [OPTION...]")]
pub(crate) struct Options {
    #[command(flatten)]
    pub(super) common: CommonOptions<Switches>,
    /// Only the rows of the table whose name contains PATTERN
    #[arg(long, value_name = "PATTERN", default_value = "", hide_default_value = true)]
    only: String,
    /// Leave out OvS's cache of exact matches (emc-insert-inv-prob = 0)
    #[arg(long)]
    pub(super) no_emc: bool,
    /// Measured time of a trial, in whole seconds
    #[arg(long, value_name = "S", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(super) secs: u32,
}

impl Options {
    fn check(&self) -> Result<()> {
        ensure!(!self.cells().is_empty(), "--only {}: no row of the table has this in its name", self.only);
        self.common.check()
    }

    /// Returns the rows of the table.
    pub(super) fn cells(&self) -> Vec<FlowsCell> {
        FlowsCell::ALL.into_iter().filter(|cell| cell.to_string().contains(&self.only)).collect()
    }
}

/// Checks the options, and asks each program for its version.
pub(super) fn checked(mut options: Options) -> Result<Options> {
    options.check()?;
    options.common.identify()?;
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let args = |line: &str| -> Result<Options> {
            let options: Options = measure::parsed(line)?;
            options.check()?;
            Ok(options)
        };
        let all = args("").expect("a good command line");
        assert_eq!((all.common.rounds, all.common.switches.len(), all.cells().len(), all.no_emc), (3, 2, 5, false));
        let some = args("--only|3 rules|--no-emc|--secs|1").expect("a good command line");
        assert_eq!((some.cells(), some.no_emc, some.secs), (vec![FlowsCell::Calm, FlowsCell::Explosion], true, 1));
        for bad in ["--only|nothing", "--switch|testpmd", "--secs|0"] {
            assert!(args(bad).is_err(), "{bad}");
        }
    }
}
