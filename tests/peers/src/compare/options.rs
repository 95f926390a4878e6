//! The command line, and the axes of a trial.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::measure::{self, CommonOptions, SwitchKind, list, number};

pub(crate) const USAGE: &str = "usage: cargo xtask compare --switch SWITCH... [OPTION...]

  Compare switches side by side: in each round every switch gets the same guest. The table shows the median, the smallest and
  the largest rate that the guest receives by both ports together, the ratio to the first switch, and the cycles per packet
  that the switch reports. testpmd and OvS need root and huge pages of 2 MiB (vm.nr_hugepages=1024). Run nothing else on the
  machine meanwhile.

  --switch testpmd           DPDK's testpmd between two net_vhost ports
  --switch ovs               Open vSwitch with DPDK between two vhost-user ports
  --switch NAME=PROGRAM      a Straightline binary; repeatable. The same argument may add keys of [switch], of
                             both ports, of one port, of the patch: 'two=target/release/straightline copies=2
                             port.packed=false b.mtu=1500 patch.full=\"wait\"'
  --guest GUEST,...          source of the load: own, `straightline lab loop`; generator, `straightline lab patch-external`,
                             which floods or searches; testpmd, with two virtio-user ports (own)
  --ring RING,...            split, split-nomrg, split-inorder, packed, packed-nomrg, packed-vec (split,packed)
  --size SIZE,...            frame lengths without frame check sequence; also imix for own and generator, and segments for own
                             (64,512,1518)
  --load LOAD,...            kind of load: loop, bounce bursts for ever; flood, send without pause and drop; search (generator
                             only), find the highest rate without loss and with 0.5 %, and latencies at fractions of that (loop)
  --bursts N                 bursts of 32 packets into each port, for loop (16)
  --rounds N                 number of rounds (5)
  --secs S                   length of a trial in seconds, after a second of warm-up (2; a search chooses its own)
  --program PROGRAM          Straightline binary that contains our own guest (target/release/straightline)
  --small-pages              use pages of 4 KiB for the memory of own and generator
  --out DIR                  new folder for the trials, for `straightline lab report` and `compare`
  --cache FOLDER             folder for logs (target/peers)";

/// Third-party switches.
const PEERS: [(&str, SwitchKind); 2] = [("testpmd", SwitchKind::Testpmd), ("ovs", SwitchKind::Ovs)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrafficSource {
    Own,
    Generator,
    Testpmd,
}

const GUESTS: [(&str, TrafficSource); 3] =
    [("own", TrafficSource::Own), ("generator", TrafficSource::Generator), ("testpmd", TrafficSource::Testpmd)];

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    Loop,
    Flood,
    Search,
}

const LOADS: [(&str, Load); 3] = [("loop", Load::Loop), ("flood", Load::Flood), ("search", Load::Search)];

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

impl CompareCell {
    fn guest(&self) -> &'static str {
        GUESTS.iter().find(|(_, guest)| *guest == self.guest).map_or("", |(name, _)| name)
    }

    fn load(&self) -> &'static str {
        LOADS.iter().find(|(_, load)| *load == self.load).map_or("", |(name, _)| name)
    }
}

impl measure::Cell for CompareCell {
    fn axes(&self) -> BTreeMap<String, String> {
        let axes = [
            ("guest", self.guest()),
            ("load", self.load()),
            ("ring", self.ring.name),
            ("size", &self.size.to_string()),
        ];
        axes.map(|(axis, value)| (axis.to_owned(), value.to_owned())).into()
    }
}

impl fmt::Display for CompareCell {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {} {} {} B", self.guest(), self.load(), self.ring.name, self.size)
    }
}

#[derive(Debug)]
pub(super) struct Options {
    pub(super) common: CommonOptions,
    guests: Vec<TrafficSource>,
    rings: Vec<Ring>,
    sizes: Vec<Size>,
    loads: Vec<Load>,
    pub(super) bursts: u16,
    pub(super) secs: Option<f64>,
    pub(super) program: PathBuf,
    pub(super) huge_pages: bool,
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

/// Reads the command line, and asks each program for its version.
pub(super) fn parse(args: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = read(args)?;
    options.common.check()?;
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

fn read(mut args: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options {
        common: CommonOptions::new(),
        guests: vec![TrafficSource::Own],
        rings: vec![RINGS[0], RINGS[3]],
        sizes: [64, 512, 1518].map(Size::Bytes).to_vec(),
        loads: vec![Load::Loop],
        bursts: 16,
        secs: None,
        program: "target/release/straightline".into(),
        huge_pages: true,
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--guest" => options.guests = list(&value()?, &GUESTS)?,
            "--ring" => options.rings = list(&value()?, &RINGS.map(|ring| (ring.name, ring)))?,
            "--load" => options.loads = list(&value()?, &LOADS)?,
            "--size" => options.sizes = value()?.split(',').map(read_size).collect::<Result<_>>()?,
            "--bursts" => options.bursts = number(&arg, &value()?)?,
            "--secs" => options.secs = Some(number(&arg, &value()?)?),
            "--program" => options.program = value()?.into(),
            "--small-pages" => options.huge_pages = false,
            other => options.common.take(other, value, &PEERS)?,
        }
    }
    if let Some(secs) = options.secs {
        ensure!((0.1..=3600.0).contains(&secs), "--secs takes 0.1 to 3600, not {secs}");
    }
    ensure!((1..=32).contains(&options.bursts), "--bursts takes 1 to 32, not {}", options.bursts);
    Ok(options)
}

fn read_size(text: &str) -> Result<Size> {
    match text {
        "imix" => Ok(Size::Imix),
        "segments" => Ok(Size::Segments),
        _ => {
            let len = text.parse().ok().filter(|len| (60..=9018).contains(len));
            len.map(Size::Bytes).with_context(|| format!("--size {text}: 60 to 9018, imix or segments"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Result<Options> {
        read(line.split('|').map(str::to_owned))
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
            assert!(args(bad).is_err(), "{bad}");
        }
    }
}
