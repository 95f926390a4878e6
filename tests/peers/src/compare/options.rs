//! The command line, and the axes of a trial.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};

use crate::measure::{self, CommonOptions, Peers, SwitchKind, secs};

const ABOUT: &str = "\
Compare switches side by side: in each round every switch gets the same guest. The table shows the
median, the smallest and the largest rate that the guest receives by both ports together, the ratio to
the first switch, and the cycles per packet that the switch reports. testpmd and OvS need root and huge
pages of 2 MiB (vm.nr_hugepages=1024). Run nothing else on the machine meanwhile.";

const SWITCHES: &str = "\
Switches:
  testpmd       DPDK's testpmd between two net_vhost ports
  ovs           Open vSwitch with DPDK between two vhost-user ports
  NAME=PROGRAM  a Straightline binary. The same argument may add keys of [switch], of both ports, of
                one port, of the patch: 'two=target/release/straightline copies=2 port.packed=false
                b.mtu=1500 patch.full=\"wait\"'";

/// The switches of this comparison.
#[derive(Debug)]
pub(super) struct Switches;

impl Peers for Switches {
    const KNOWN: &'static [(&'static str, SwitchKind)] = &[("testpmd", SwitchKind::Testpmd), ("ovs", SwitchKind::Ovs)];
    const DEFAULT: &'static [&'static str] = &[];
    const ROUNDS: &'static str = "5";
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum TrafficSource {
    /// `straightline lab loop`
    Own,
    /// `straightline lab patch-external`, which floods or searches
    Generator,
    /// testpmd with two virtio-user ports
    Testpmd,
}

impl TrafficSource {
    /// Returns whether the source can send this load in this size.
    fn takes(self, load: Load, size: Size) -> bool {
        match self {
            TrafficSource::Own => load != Load::Search,
            TrafficSource::Generator => load != Load::Loop && size != Size::Segments,
            TrafficSource::Testpmd => load != Load::Search && matches!(size, Size::Bytes(_)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Load {
    /// Bounce bursts for ever
    Loop,
    /// Send without pause and drop
    Flood,
    /// Generator only: find the highest rate without loss and with 0.5 %, and latencies at
    /// fractions of that
    Search,
}

/// The layout of the guest's rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ring {
    pub(super) name: &'static str,
    pub(super) packed: bool,
    pub(super) mergeable: bool,
    pub(super) in_order: bool,
    /// Selects testpmd's vectorized receive path.
    pub(super) vectorized: bool,
}

const fn ring(name: &'static str, packed: bool, mergeable: bool, in_order: bool, vectorized: bool) -> Ring {
    Ring { name, packed, mergeable, in_order, vectorized }
}

const RINGS: [Ring; 6] = [
    ring("split", false, true, false, false),
    ring("split-nomrg", false, false, false, false),
    ring("split-inorder", false, true, true, false),
    ring("packed", true, true, false, false),
    ring("packed-nomrg", true, false, false, false),
    ring("packed-vec", true, false, true, true),
];

impl ValueEnum for Ring {
    fn value_variants<'a>() -> &'a [Self] {
        &RINGS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Bytes(u32),
    Imix,
    Segments,
}

impl fmt::Display for Size {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Bytes(len) => write!(to, "{len}"),
            Size::Imix => to.write_str("imix"),
            Size::Segments => to.write_str("segments"),
        }
    }
}

/// The axes of a trial besides the switch: a row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CompareCell {
    pub(super) guest: TrafficSource,
    pub(super) load: Load,
    pub(super) ring: Ring,
    pub(super) size: Size,
}

impl measure::Cell for CompareCell {
    fn axes(&self) -> BTreeMap<String, String> {
        let axes = [
            ("guest", name(&self.guest)),
            ("load", name(&self.load)),
            ("ring", self.ring.name.to_owned()),
            ("size", self.size.to_string()),
        ];
        axes.map(|(axis, value)| (axis.to_owned(), value)).into()
    }
}

impl fmt::Display for CompareCell {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {} {} {} B", name(&self.guest), name(&self.load), self.ring.name, self.size)
    }
}

#[derive(Debug, Args)]
#[command(about = "Compare switches side by side (`cargo xtask compare`)", long_about = ABOUT)]
#[command(after_help = SWITCHES, args_override_self = true)]
#[command(override_usage = "cargo xtask compare --switch SWITCH... [OPTION...]")]
pub(crate) struct Options {
    #[command(flatten)]
    pub(super) common: CommonOptions<Switches>,
    /// Sources of the load
    #[arg(long = "guest", value_name = "GUEST,...", value_enum, value_delimiter = ',', default_value = "own")]
    guests: Vec<TrafficSource>,
    /// Ring layouts of the guest
    #[arg(long = "ring", value_name = "RING,...", value_enum, value_delimiter = ',', default_value = "split,packed")]
    rings: Vec<Ring>,
    /// Frame lengths without frame check sequence; also `imix` for own and generator, and `segments`
    /// for own
    #[arg(
        long = "size",
        value_name = "SIZE,...",
        value_parser = size,
        value_delimiter = ',',
        default_value = "64,512,1518"
    )]
    sizes: Vec<Size>,
    /// Kinds of load
    #[arg(long = "load", value_name = "LOAD,...", value_enum, value_delimiter = ',', default_value = "loop")]
    loads: Vec<Load>,
    /// Bursts of 32 packets into each port, for loop
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=32))]
    pub(super) bursts: u16,
    /// Length of a trial in seconds, after a second of warm-up; default: 2, but a search chooses its
    /// own
    #[arg(long, value_name = "S", value_parser = |text: &str| secs(text, 3600.0))]
    pub(super) secs: Option<f64>,
    /// Straightline binary that contains our own guest
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/straightline")]
    pub(super) program: PathBuf,
    /// Use pages of 4 KiB for the memory of own and generator
    #[arg(long)]
    pub(super) small_pages: bool,
}

impl Options {
    /// Returns the length of a single trial.
    pub(super) fn time(&self) -> Duration {
        Duration::from_secs_f64(self.secs.unwrap_or(2.0))
    }

    /// Returns all combinations that are possible.
    pub(super) fn cells(&self) -> Vec<CompareCell> {
        let mut cells = Vec::new();
        for &guest in &self.guests {
            for &load in &self.loads {
                for &ring in &self.rings {
                    let sizes = self.sizes.iter().filter(|&&size| guest.takes(load, size));
                    cells.extend(sizes.map(|&size| CompareCell { guest, load, ring, size }));
                }
            }
        }
        cells
    }
}

/// Checks the options, and asks each program for its version.
pub(super) fn checked(mut options: Options) -> Result<Options> {
    options.common.check()?;
    options.common.identify()?;
    ensure!(
        !options.cells().is_empty(),
        "no combination of --guest, --load and --size is possible: own and testpmd loop and flood, generator floods and \
         searches; testpmd sends single lengths, generator also imix, own also imix and segments"
    );
    if options.guests.iter().any(|&guest| guest != TrafficSource::Testpmd) {
        let program = options.program.canonicalize();
        options.program = program.with_context(|| {
            format!("no program for our own guest at {}: build it, or use --program", options.program.display())
        })?;
    }
    Ok(options)
}

/// Returns the name of a value on the command line.
pub(super) fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Parses a frame length.
pub(super) fn size(text: &str) -> Result<Size, String> {
    match text {
        "imix" => Ok(Size::Imix),
        "segments" => Ok(Size::Segments),
        _ => {
            let len = text.parse().ok().filter(|len| (60..=9018).contains(len));
            len.map(Size::Bytes).ok_or_else(|| "use 60 to 9018, imix or segments".to_owned())
        }
    }
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
        let line = "--switch|testpmd|--switch|two=bin/s copies=2 port.packed=false|--guest|own,testpmd|--size|64,imix|--load|flood";
        let options = args(line).expect("a good command line");
        let names: Vec<&str> = options.common.switches.iter().map(|switch| switch.name.as_str()).collect();
        assert_eq!(names, ["testpmd", "two"]);
        let cells: Vec<String> = options.cells().iter().map(ToString::to_string).collect();
        let own =
            ["own flood split 64 B", "own flood split imix B", "own flood packed 64 B", "own flood packed imix B"];
        assert_eq!(cells, [&own[..], &["testpmd flood split 64 B", "testpmd flood packed 64 B"]].concat());
        let line = "--switch|testpmd|--guest|generator|--size|64,imix,segments|--load|loop,flood,search|--ring|split";
        let cells: Vec<String> = args(line).expect("good").cells().iter().map(ToString::to_string).collect();
        let wanted = ["flood split 64 B", "flood split imix B", "search split 64 B", "search split imix B"];
        assert_eq!(cells, wanted.map(|cell| format!("generator {cell}")));
        assert!(args("--switch|testpmd|--guest|own,testpmd|--load|search").expect("good").cells().is_empty());
        for bad in [
            "--switch|rte",
            "--switch|ovs|--switch|ovs",
            "--ring|round",
            "--size|59",
            "--size|x",
            "--secs|0",
            "--rounds|0",
            "--bursts|33",
            "--load",
            "--fast",
        ] {
            assert!(args(&format!("--switch|x=bin/s|{bad}")).is_err(), "{bad}");
        }
        assert!(args("--switch|x=bin/s").is_ok() && args("").is_err());
    }
}
