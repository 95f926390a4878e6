//! The command line, and the axes of a trial.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;

use crate::measure::{self, Candidate, CommonOptions, Peers, SwitchKind, SwitchPort, secs};

const ABOUT: &str = "\
Compare switches at device ports, in rounds: a tap, and AF_XDP at one end of a veth pair. One CPU has
the switch, the other one the load. Packets: an embedded guest sends frames out, receives them, or sends
them out and receives them back (loop). Linux: a guest exchanges data with a namespace by iperf3. The
tables have medians, the smallest and the largest, and the ratios of each binary of ours to the others.
It needs root, and huge pages of 2 MiB (vm.nr_hugepages=1024). Run nothing else on the machine
meanwhile.";

const SWITCHES: &str = "\
Switches:
  bound         packets: the kernel's side alone, without a switch: writev and readv, or AF_XDP rings
  testpmd       packets: DPDK's testpmd between net_vhost and net_tap or net_af_xdp
  ovs           packets in a loop, AF_XDP: Open vSwitch with DPDK, between dpdkvhostuser and afxdp
  own           Linux, tap: no switch, the guest opens the tap itself (UML: with gro=1)
  rte           Linux, AF_XDP: the smallest possible switch between DPDK's vhost library and
                net_af_xdp
  NAME=PROGRAM  a Straightline binary. The same argument may add keys of [switch], of the vhost-user
                ports, of the device ports, of the patches: 'two=target/release/straightline copies=2
                port.packed=false device.offloads=false'
                One that sets idle takes part in the rows with Linux guests only
Default: bound, testpmd, ovs, own, rte, and target/release/straightline as ours and spin";

/// The switches of this comparison, and what stands in a switch's place.
#[derive(Debug)]
pub(super) struct Switches;

impl Peers for Switches {
    const KNOWN: &'static [(&'static str, SwitchKind)] = &[
        ("bound", SwitchKind::Kernel),
        ("testpmd", SwitchKind::Testpmd),
        ("ovs", SwitchKind::Ovs),
        ("own", SwitchKind::OwnDevice),
        ("rte", SwitchKind::RteVhost),
    ];
    const DEFAULT: &'static [&'static str] = &[
        "bound",
        "testpmd",
        "ovs",
        "own",
        "rte",
        "ours=target/release/straightline",
        "spin=target/release/straightline idle=\"spin\"",
    ];
    const ROUNDS: &'static str = "6";
}

/// The kind of device port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interface {
    Tap,
    AfXdp,
}

impl Interface {
    fn name(self) -> &'static str {
        match self {
            Self::Tap => "tap",
            Self::AfXdp => "af-xdp",
        }
    }

    /// Returns the port of a switch at the interface with this name.
    pub(super) fn port(self, device: &'static str) -> SwitchPort {
        if self == Self::Tap { SwitchPort::Tap(device) } else { SwitchPort::AfXdp(device) }
    }
}

/// The load of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// Packets from the guest to the interface, which drops them.
    Out,
    /// Packets from the interface to the guest.
    In,
    /// Packets from one port of the guest to an interface, back by another interface to the guest's
    /// other port, and the same in the other direction.
    Loop,
    /// TCP between a Linux guest and the interface's namespace, in both directions.
    Iperf(Guest),
}

/// A Linux guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guest {
    Uml,
    Qemu,
}

/// Length of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Bytes(u32),
    /// TCP packets of 64 KiB that are still to be segmented.
    Segments,
    /// Lengths that the guests choose.
    Any,
}

impl fmt::Display for Size {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(len) => write!(to, "{len}"),
            Self::Segments => to.write_str("segments"),
            Self::Any => to.write_str("any"),
        }
    }
}

/// The axes of a trial besides the switch: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceCell {
    pub(super) interface: Interface,
    pub(super) load: Load,
    pub(super) size: Size,
}

impl DeviceCell {
    fn load(&self) -> &'static str {
        match self.load {
            Load::Out => "out",
            Load::In => "in",
            Load::Loop => "loop",
            Load::Iperf(Guest::Uml) => "uml",
            Load::Iperf(Guest::Qemu) => "qemu",
        }
    }

    /// Returns whether this switch can be measured here.
    pub(super) fn takes(&self, switch: &Candidate) -> bool {
        match (&switch.kind, self.load) {
            (SwitchKind::Ours(_), Load::Iperf(_)) => true,
            // Packets are always polled for.
            (SwitchKind::Ours(ours), _) => !ours.sets("idle"),
            (SwitchKind::Kernel, Load::Iperf(_)) => false,
            (SwitchKind::Kernel, _) => true,
            // net_tap has no segmentation offload with net_vhost.
            (SwitchKind::Testpmd, Load::Out | Load::In | Load::Loop) => self.size != Size::Segments,
            // One row for each length suffices, and it takes long to start.
            (SwitchKind::Ovs, Load::Loop) => self.interface == Interface::AfXdp,
            (SwitchKind::OwnDevice, Load::Iperf(_)) => self.interface == Interface::Tap,
            (SwitchKind::RteVhost, Load::Iperf(_)) => self.interface == Interface::AfXdp,
            _ => false,
        }
    }
}

impl measure::Cell for DeviceCell {
    fn axes(&self) -> BTreeMap<String, String> {
        let axes = [("interface", self.interface.name()), ("load", self.load()), ("size", &self.size.to_string())];
        axes.map(|(axis, value)| (axis.to_owned(), value.to_owned())).into()
    }
}

impl fmt::Display for DeviceCell {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {}", self.interface.name(), self.load())?;
        match self.size {
            Size::Any => Ok(()),
            Size::Segments => to.write_str(" 64 KiB"),
            Size::Bytes(len) => write!(to, " {len} B"),
        }
    }
}

#[derive(Debug, Args)]
#[command(about = "Compare switches at device ports (`cargo xtask compare devices`)", long_about = ABOUT)]
#[command(after_help = SWITCHES, args_override_self = true)]
#[command(override_usage = "cargo xtask compare devices [OPTION...]")]
pub(crate) struct Options {
    #[command(flatten)]
    pub(super) common: CommonOptions<Switches>,
    /// Only the rows of the tables whose name contains PATTERN: --only 'tap loop'
    #[arg(long, value_name = "PATTERN", default_value = "", hide_default_value = true)]
    only: String,
    /// Add a guest in QEMU under software emulation, on a tap
    #[arg(long)]
    qemu: bool,
    /// In place of all rows: loops of a node that swaps the addresses of packets of AF_XDP where the
    /// kernel has put them (docs/experiments/prefetch.md). No switch takes part
    #[arg(long)]
    pub(super) nodes: bool,
    /// Time of a trial, after half a second of warm-up; iperf3 sends twice as long, at least 1 s
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = |text: &str| secs(text, 600.0))]
    pub(super) secs: f64,
}

impl Options {
    fn check(&self) -> Result<()> {
        ensure!(!self.cells().is_empty(), "--only {}: no row of the tables has this in its name", self.only);
        self.common.check()
    }

    /// Returns the measured time of a trial.
    pub(super) fn time(&self) -> Duration {
        Duration::from_secs_f64(self.secs)
    }

    /// Returns the rows of the tables.
    pub(super) fn cells(&self) -> Vec<DeviceCell> {
        let mut cells = Vec::new();
        for interface in [Interface::Tap, Interface::AfXdp] {
            // A loop has a tap's other direction, and the source of packets for AF_XDP would be slower
            // than a tap.
            let loads = [Load::Out, Load::In, Load::Loop];
            let loads = loads.into_iter().filter(|&load| interface == Interface::AfXdp || load != Load::In);
            for load in loads {
                cells.extend([64, 1500].map(|len| DeviceCell { interface, load, size: Size::Bytes(len) }));
            }
            if interface == Interface::Tap {
                cells.push(DeviceCell { interface, load: Load::Loop, size: Size::Segments });
            }
            cells.push(DeviceCell { interface, load: Load::Iperf(Guest::Uml), size: Size::Any });
            if self.qemu && interface == Interface::Tap {
                cells.push(DeviceCell { interface, load: Load::Iperf(Guest::Qemu), size: Size::Any });
            }
        }
        cells.retain(|cell| cell.to_string().contains(&self.only));
        cells
    }
}

/// Checks the options, and asks each program for its version.
pub(super) fn checked(mut options: Options) -> Result<Options> {
    options.check()?;
    if !options.nodes {
        options.common.identify_copying("the kernel reads them")?;
    }
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
        assert_eq!((all.common.rounds, all.common.switches.len(), rows(&all).len()), (6, 7, 13));
        let some = args("--only|tap loop|--switch|bound|--switch|x=bin/s device.offloads=false|--secs|0.5");
        let some = some.expect("a good command line");
        assert_eq!(rows(&some), ["tap loop 64 B", "tap loop 1500 B", "tap loop 64 KiB"]);
        assert_eq!((some.common.switches.len(), some.time()), (2, Duration::from_millis(500)));
        assert_eq!(rows(&args("--qemu|--only|qemu").expect("good")), ["tap qemu"]);
        for bad in ["--only|nothing", "--only|qemu", "--switch|passt", "--secs|0", "--rounds|0", "--fast", "--only"] {
            assert!(args(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn each_row_has_what_can_be_measured_there() {
        let options = args("").expect("a good command line");
        let cells_of = |row: &str| -> Vec<String> {
            let cells = options.cells();
            let cell = cells.iter().find(|cell| cell.to_string() == row).expect("a row");
            let takes = options.common.switches.iter().filter(|switch| cell.takes(switch));
            takes.map(|switch| switch.name.clone()).collect()
        };
        assert_eq!(cells_of("tap out 64 B"), ["bound", "testpmd", "ours"]);
        assert_eq!(cells_of("tap loop 64 KiB"), ["bound", "ours"]);
        assert_eq!(cells_of("af-xdp loop 64 B"), ["bound", "testpmd", "ovs", "ours"]);
        assert_eq!(cells_of("tap uml"), ["own", "ours", "spin"]);
        assert_eq!(cells_of("af-xdp uml"), ["rte", "ours", "spin"]);
    }
}
