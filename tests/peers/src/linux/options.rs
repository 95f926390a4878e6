//! The command line, and the axes of a trial.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result, ensure};

use crate::measure::{self, CommonOptions, SwitchKind, list, number};

pub(crate) const USAGE: &str = "usage: cargo xtask linux --switch SWITCH... [OPTION...]

  Compare switches between two Linux guests (User Mode Linux), in rounds: one guest pings the other, then sends to it with
  iperf3. The table shows the rate, the switch's CPU time for a gigabyte received, retransmits and round trips: medians, the
  smallest and the largest, and the ratio to the first switch. Only rte needs root, and huge pages of 2 MiB
  (vm.nr_hugepages=1024). Run nothing else on the machine meanwhile.

  --switch NAME=PROGRAM      a Straightline binary; repeatable. The same argument may add keys of [switch], of
                             both ports, of one port, of the patch: 'spin=target/release/straightline
                             idle=\"spin\" patch.full=\"wait\"', 'gso=target/release/straightline b.offloads=[]'
  --switch rte               the smallest possible switch with DPDK's vhost library: two sockets, one polling thread
  --offload WHICH[/MTU],...  offloads of the guests: tso, all that are negotiated; csum, guests segment what they send and
                             leave checksums to others; none, guests segment and sum (tso,csum,none,tso/9000). The MTU is
                             1500 by default
  --pings N                  echoes before the load, 50 a second (100)
  --rounds N                 number of rounds (5)
  --secs S                   time that iperf3 sends, in whole seconds (5)
  --out DIR                  new folder for the trials, for `straightline lab report` and `compare`
  --cache FOLDER             folder for logs and the guests' file system (target/peers)";

/// Third-party switches.
const PEERS: [(&str, SwitchKind); 1] = [("rte", SwitchKind::RteVhost)];

/// Offloads that the guests use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offload {
    Tso,
    Csum,
    None,
}

const OFFLOADS: [(&str, Offload); 3] = [("tso", Offload::Tso), ("csum", Offload::Csum), ("none", Offload::None)];

impl Offload {
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

impl LinuxCell {
    fn offload(self) -> &'static str {
        OFFLOADS.iter().find(|(_, offload)| *offload == self.offload).map_or("", |(name, _)| *name)
    }
}

impl measure::Cell for LinuxCell {
    fn axes(&self) -> BTreeMap<String, String> {
        let axes = [("offload", self.offload().to_owned()), ("mtu", self.mtu.to_string())];
        axes.map(|(axis, value)| (axis.to_owned(), value)).into()
    }
}

impl fmt::Display for LinuxCell {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {}", self.offload(), self.mtu)
    }
}

#[derive(Debug)]
pub(super) struct Options {
    pub(super) common: CommonOptions,
    pub(super) cells: Vec<LinuxCell>,
    pub(super) pings: u32,
    pub(super) secs: u32,
}

/// Reads the command line, and asks each program for its version.
pub(super) fn parse(args: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = read(args)?;
    options.common.check()?;
    let bare = options.common.switches.iter().find(|switch| switch.copies_nothing);
    ensure!(
        bare.is_none(),
        "--switch {}: this build copies no packets, and Linux guests need them: use another build, or `cargo xtask compare`",
        bare.map_or("", |s| &s.name)
    );
    Ok(options)
}

fn read(mut args: impl Iterator<Item = String>) -> Result<Options> {
    let cell = |offload, mtu| LinuxCell { offload, mtu };
    let mut cells = OFFLOADS.map(|(_, offload)| cell(offload, 1500)).to_vec();
    cells.push(cell(Offload::Tso, 9000));
    let mut options = Options { common: CommonOptions::new(), cells, pings: 100, secs: 5 };
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--offload" => options.cells = value()?.split(',').map(read_cell).collect::<Result<_>>()?,
            "--pings" => options.pings = number(&arg, &value()?)?,
            "--secs" => options.secs = number(&arg, &value()?)?,
            other => options.common.take(other, value, &PEERS)?,
        }
    }
    ensure!((1..=1000).contains(&options.pings), "--pings takes 1 to 1000, not {}", options.pings);
    ensure!((1..=600).contains(&options.secs), "--secs takes 1 to 600, not {}", options.secs);
    Ok(options)
}

fn read_cell(text: &str) -> Result<LinuxCell> {
    let (offload, mtu) = text.split_once('/').unwrap_or((text, "1500"));
    let offload = *list(offload, &OFFLOADS).with_context(|| format!("--offload {text}"))?.first().context("none")?;
    // Our ports have an MTU of 9000 by default here.
    let mtu = mtu.parse().ok().filter(|mtu| (576..=9000).contains(mtu));
    Ok(LinuxCell {
        offload,
        mtu: mtu.with_context(|| format!("--offload {text}: the MTU is out of range: use 576 to 9000"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Result<Options> {
        read(line.split('|').map(str::to_owned))
    }

    #[test]
    fn command_lines() {
        let words = |options: &Options| options.cells.iter().map(ToString::to_string).collect::<Vec<_>>();
        let options = args("--switch|rte|--switch|spin=bin/s idle=\"spin\"|--rounds|15").expect("a good command line");
        assert_eq!(words(&options), ["tso 1500", "csum 1500", "none 1500", "tso 9000"]);
        assert_eq!((options.common.switches.len(), options.common.rounds, options.secs), (2, 15, 5));
        let options = args("--offload|none/9000,csum|--secs|1|--pings|20").expect("a good command line");
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
            assert!(args(bad).is_err(), "{bad}");
        }
    }
}
