//! The command line, and the axes of a trial.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Result, ensure};
use clap::Args;

use crate::measure::{self, CommonOptions, Peers, SwitchKind};

const ABOUT: &str = "\
Measure limits of ports, in rounds. Embedded guests: the share of a rate that passes when a guest always
has packets (share), delays at 90 % of the rate (delay), the CPU time of 100 ports that wait, are idle or send as much
without limits (ports). Linux guests (User Mode Linux): one sends to the other by iperf3 (tcp), also over Open vSwitch
and Linux's tbf. Run nothing else on the machine meanwhile.";

const SWITCHES: &str = "\
Switches:
  ovs           tcp: Open vSwitch with DPDK, whose polling thread sleeps without load, and
                ingress_policing_rate at the sender's port. It needs root and huge pages
  tbf           tcp: Linux's bridge between taps, and tbf at the receiver's tap. It needs root
  NAME=PROGRAM  a Straightline binary with rate-in at the sender's port. The same argument may add keys
                as in `cargo xtask compare`: 'big=target/release/straightline a.burst=\"4MiB\"'
Default: ovs, tbf, and target/release/straightline as ours";

/// The switches of this comparison.
#[derive(Debug)]
pub(super) struct Switches;

impl Peers for Switches {
    const KNOWN: &'static [(&'static str, SwitchKind)] = &[("ovs", SwitchKind::OvsSleeping), ("tbf", SwitchKind::Tbf)];
    const DEFAULT: &'static [&'static str] = &["ours=target/release/straightline", "ovs", "tbf"];
    const ROUNDS: &'static str = "5";
}

/// A rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OneRate {
    /// The text in our configuration.
    pub(super) text: &'static str,
    /// Bits or packets a second.
    pub(super) per_second: u32,
    pub(super) in_packets: bool,
}

impl OneRate {
    pub(super) const ALL: [OneRate; 3] = [
        OneRate { text: "1 Gbit/s", per_second: 1_000_000_000, in_packets: false },
        OneRate { text: "100 Mbit/s", per_second: 100_000_000, in_packets: false },
        OneRate { text: "10k packet/s", per_second: 10_000, in_packets: true },
    ];
}

/// Lengths of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Shortest,
    Longest,
    /// TCP packets of 64 KiB that are still to be segmented.
    Segments,
}

impl Size {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Shortest => "64 B",
            Self::Longest => "1514 B",
            Self::Segments => "64 KiB",
        }
    }
}

/// Offloads that the Linux guests use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offload {
    /// All that are negotiated.
    Tso,
    /// The guests segment, and sum if they can.
    None,
}

impl Offload {
    fn name(self) -> &'static str {
        match self {
            Self::Tso => "tso",
            Self::None => "no offload",
        }
    }
}

/// The load of many ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortsLoad {
    /// Neither limits nor packets.
    Idle,
    /// Packets of each port wait for the least rate all the time. One passes in 20 ms.
    Wait,
    /// The same with packets of 64 KiB, of which one passes in a second.
    WaitLong,
    /// No limits: the guests send as many packets as pass with [`Self::Wait`].
    Paced,
    /// [`Self::Idle`], and one guest kicks without pause.
    IdleKicked,
    /// [`Self::WaitLong`], and one guest kicks without pause.
    WaitKicked,
}

impl PortsLoad {
    const ALL: [Self; 6] = [Self::Idle, Self::WaitLong, Self::Wait, Self::Paced, Self::IdleKicked, Self::WaitKicked];

    /// Returns whether packets of all ports wait.
    pub(super) fn waits(self) -> bool {
        matches!(self, Self::Wait | Self::WaitLong | Self::WaitKicked)
    }

    /// Returns whether one of the guests kicks without pause.
    pub(super) fn is_kicked(self) -> bool {
        matches!(self, Self::IdleKicked | Self::WaitKicked)
    }

    /// Returns whether packets have 64 KiB.
    pub(super) fn is_long(self) -> bool {
        matches!(self, Self::WaitLong | Self::WaitKicked)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Idle => "100 idle",
            Self::Wait => "100 wait 1514 B",
            Self::WaitLong => "100 wait 64 KiB",
            Self::Paced => "100 paced 1514 B",
            Self::IdleKicked => "100 idle, one kicks",
            Self::WaitKicked => "100 wait 64 KiB, one kicks",
        }
    }
}

/// The axes of a trial besides the switch: rows of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RateCell {
    /// A guest floods its port without pause.
    Share { rate: OneRate, packed: bool, size: Size },
    /// Both guests send at 90 % of a rate, with this limit or without one.
    Delay { rate: OneRate, limited: bool },
    /// 100 ports with this load.
    Ports { load: PortsLoad },
    /// iperf3 at an MTU of 1500.
    Tcp { rate: Option<OneRate>, offload: Offload },
}

impl RateCell {
    fn all() -> Vec<Self> {
        let [gbit, mbit, packets] = OneRate::ALL;
        let mut cells = Vec::new();
        for packed in [false, true] {
            let sizes = [
                (gbit, Size::Longest),
                (gbit, Size::Segments),
                (gbit, Size::Shortest),
                (mbit, Size::Longest),
                (packets, Size::Shortest),
            ];
            cells.extend(sizes.map(|(rate, size)| Self::Share { rate, packed, size }));
        }
        for rate in [gbit, mbit] {
            cells.extend([false, true].map(|limited| Self::Delay { rate, limited }));
        }
        cells.extend(PortsLoad::ALL.map(|load| Self::Ports { load }));
        for offload in [Offload::Tso, Offload::None] {
            cells.extend([None, Some(gbit), Some(mbit)].map(|rate| Self::Tcp { rate, offload }));
        }
        cells
    }

    /// Returns the load, and what distinguishes its cells.
    fn words(&self) -> (&'static str, String) {
        let rate_text = |rate: &Option<OneRate>| rate.map_or("no limit", |rate| rate.text);
        match self {
            Self::Share { rate, packed, size } => {
                let ring = if *packed { "packed" } else { "split" };
                ("share", format!("{} {ring} {}", rate.text, size.name()))
            }
            Self::Delay { rate, limited } => {
                let limit = if *limited { "limited" } else { "no limit" };
                ("delay", format!("90 % of {}, {limit}", rate.text))
            }
            Self::Ports { load } => ("ports", load.name().to_owned()),
            Self::Tcp { rate, offload } => ("tcp", format!("{} {}", rate_text(rate), offload.name())),
        }
    }
}

impl measure::Cell for RateCell {
    fn axes(&self) -> BTreeMap<String, String> {
        let (load, with) = self.words();
        [("load".to_owned(), load.to_owned()), ("with".to_owned(), with)].into()
    }
}

impl fmt::Display for RateCell {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (load, with) = self.words();
        write!(to, "{load} {with}")
    }
}

#[derive(Debug, Args)]
#[command(about = "Measure limits of ports beside those of others (`cargo xtask compare rates`)", long_about = ABOUT)]
#[command(after_help = SWITCHES, args_override_self = true)]
#[command(override_usage = "cargo xtask compare rates [OPTION...]")]
pub(crate) struct Options {
    #[command(flatten)]
    pub(super) common: CommonOptions<Switches>,
    /// Only the rows of the tables whose name contains PATTERN: --only 'share 1 Gbit/s'
    #[arg(long, value_name = "PATTERN", default_value = "", hide_default_value = true)]
    only: String,
    /// Measured time of a trial, in whole seconds
    #[arg(long, value_name = "S", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(super) secs: u32,
}

impl Options {
    fn check(&self) -> Result<()> {
        ensure!(!self.cells().is_empty(), "--only {}: no row of the tables has this in its name", self.only);
        self.common.check()
    }

    /// Returns the rows of the tables.
    pub(super) fn cells(&self) -> Vec<RateCell> {
        let mut cells = RateCell::all();
        cells.retain(|cell| cell.to_string().contains(&self.only));
        cells
    }
}

/// Checks the options, and asks each program for its version.
pub(super) fn checked(mut options: Options) -> Result<Options> {
    options.check()?;
    options.common.identify_copying("guests read them")?;
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
        let rows = |options: &Options| options.cells().iter().map(ToString::to_string).collect::<Vec<_>>();
        let all = args("").expect("a good command line");
        assert_eq!((all.common.rounds, all.common.switches.len(), rows(&all).len(), all.secs), (5, 3, 26, 4));
        let some = args("--only|share 10|--switch|x=bin/s a.burst=\"1MiB\"|--secs|1").expect("a good command line");
        let wanted = ["100 Mbit/s split 1514 B", "10k packet/s split 64 B", "100 Mbit/s packed 1514 B"];
        assert_eq!(rows(&some)[..3], wanted.map(|cell| format!("share {cell}")));
        assert_eq!(rows(&args("--only|tcp no limit").expect("good")), ["tcp no limit tso", "tcp no limit no offload"]);
        for bad in ["--only|nothing", "--switch|testpmd", "--secs|0", "--secs|0.5", "--rounds|0", "--fast", "--only"] {
            assert!(args(bad).is_err(), "{bad}");
        }
    }
}
