//! The command line, and what a trial is.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::proc;

pub(crate) const USAGE: &str = "usage: cargo xtask compare --switch SWITCH... [OPTION...]

  Each switch gets the same guest, round by round; the table has the median, the smallest and the largest rate that the guest
  receives by both ports together, the ratio to the first switch, and the cycles that the switch itself says it takes for a
  packet. testpmd and OvS need root and huge pages of 2 MiB (vm.nr_hugepages=1024). Nothing else may run meanwhile.

  --switch testpmd           DPDK's testpmd between two net_vhost ports
  --switch ovs               Open vSwitch with DPDK between two vhost-user ports
  --switch NAME=PROGRAM      a Straightline binary, as often as you like; after it, in the same argument, keys of
                             [switch] and of both ports: 'two=target/release/straightline copies=2 port.packed=false'
  --guest own,testpmd        who loads it: `straightline lab loop`, or testpmd with two virtio-user ports (own)
  --ring RING,...            split, split-nomrg, split-inorder, packed, packed-nomrg, packed-vec (split,packed)
  --size SIZE,...            frame lengths without Ethernet checksum; for our own guest also imix and segments (64,512,1518)
  --load loop,flood          what the guest does: bounce bursts for ever, or send without pause and drop (loop)
  --bursts N                 for loop: bursts of 32 packets into each port (16)
  --rounds N                 how often all of it (5)
  --secs S                   how long a trial is measured, after a second of warm-up (2)
  --program PROGRAM          where our own guest is (target/release/straightline)
  --small-pages              our own guest lives in pages of 4 KiB
  --out DIR                  a folder for every trial, not used before, that `straightline lab report` and `compare` read
  --cache FOLDER             where logs lie (target/peers)";

/// What is compared.
#[derive(Clone, Debug)]
pub(super) struct Switch {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// What the program says of itself.
    pub(super) version: String,
    /// A build that moves packets and none of their bytes.
    pub(super) copies_nothing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Testpmd,
    Ovs,
    /// A Straightline binary, with further lines for `[switch]` and for both ports.
    Ours {
        program: PathBuf,
        switch: Vec<String>,
        port: Vec<String>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guest {
    Own,
    Testpmd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    Loop,
    Flood,
}

/// How the guest's rings are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ring {
    pub(super) name: &'static str,
    pub(super) packed: bool,
    pub(super) mergeable: bool,
    pub(super) in_order: bool,
    /// testpmd's receive path.
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

/// What is the same for all switches: a row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) guest: Guest,
    pub(super) load: Load,
    pub(super) ring: Ring,
    pub(super) size: Size,
}

impl Cell {
    fn guest(&self) -> &'static str {
        if self.guest == Guest::Own { "own" } else { "testpmd" }
    }

    fn load(&self) -> &'static str {
        if self.load == Load::Loop { "loop" } else { "flood" }
    }

    /// As a sample has them.
    pub(super) fn axes(&self) -> BTreeMap<String, String> {
        let axes = [
            ("guest", self.guest()),
            ("load", self.load()),
            ("ring", self.ring.name),
            ("size", &self.size.to_string()),
        ];
        axes.map(|(axis, value)| (axis.to_owned(), value.to_owned())).into()
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {} {} {} B", self.guest(), self.load(), self.ring.name, self.size)
    }
}

#[derive(Debug)]
pub(super) struct Options {
    pub(super) switches: Vec<Switch>,
    guests: Vec<Guest>,
    rings: Vec<Ring>,
    sizes: Vec<Size>,
    loads: Vec<Load>,
    pub(super) bursts: u16,
    pub(super) rounds: u32,
    pub(super) secs: f64,
    pub(super) program: PathBuf,
    pub(super) huge_pages: bool,
    pub(super) out: Option<PathBuf>,
    pub(super) cache: PathBuf,
}

impl Options {
    /// All rows; a mix of sizes and segments are for our own guest alone.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &guest in &self.guests {
            for &load in &self.loads {
                for &ring in &self.rings {
                    let sizes = self.sizes.iter().filter(|s| guest == Guest::Own || matches!(s, Size::Bytes(_)));
                    cells.extend(sizes.map(|&size| Cell { guest, load, ring, size }));
                }
            }
        }
        cells
    }
}

/// Reads the command line, and asks each program for its version.
pub(super) fn parse(args: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = read(args)?;
    ensure!(!options.switches.is_empty(), "--switch is missing: what is to be compared?");
    ensure!(!options.cells().is_empty(), "testpmd as a guest sends neither imix nor segments");
    for switch in &mut options.switches {
        let mut ask = match &mut switch.kind {
            Kind::Ours { program, .. } => {
                let found = program.canonicalize();
                *program = found.with_context(|| format!("--switch {}: {}", switch.name, program.display()))?;
                Command::new(&*program)
            }
            Kind::Testpmd | Kind::Ovs => Command::new("dpkg-query"),
        };
        match switch.kind {
            Kind::Ours { .. } => ask.arg("--version"),
            Kind::Testpmd => ask.args(["-W", "dpdk"]),
            Kind::Ovs => ask.args(["-W", "openvswitch-switch-dpdk"]),
        };
        // A peer that came by another way has a version that nobody tells us.
        let (_, version, _) = proc::run(&mut ask, Duration::from_secs(5)).unwrap_or_default();
        version.trim().clone_into(&mut switch.version);
        switch.copies_nothing = version.contains("bench-no-copies");
    }
    if options.guests.contains(&Guest::Own) {
        let program = options.program.canonicalize();
        options.program =
            program.with_context(|| format!("no program for our own guest: {}", options.program.display()))?;
    }
    options.cache = std::path::absolute(&options.cache)?;
    Ok(options)
}

fn read(mut args: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options {
        switches: Vec::new(),
        guests: vec![Guest::Own],
        rings: vec![RINGS[0], RINGS[3]],
        sizes: [64, 512, 1518].map(Size::Bytes).to_vec(),
        loads: vec![Load::Loop],
        bursts: 16,
        rounds: 5,
        secs: 2.0,
        program: "target/release/straightline".into(),
        huge_pages: true,
        out: None,
        cache: "target/peers".into(),
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--switch" => {
                let switch = read_switch(&value()?)?;
                ensure!(options.switches.iter().all(|s| s.name != switch.name), "--switch {} twice", switch.name);
                options.switches.push(switch);
            }
            "--guest" => options.guests = list(&value()?, &[("own", Guest::Own), ("testpmd", Guest::Testpmd)])?,
            "--ring" => options.rings = list(&value()?, &RINGS.map(|ring| (ring.name, ring)))?,
            "--load" => options.loads = list(&value()?, &[("loop", Load::Loop), ("flood", Load::Flood)])?,
            "--size" => options.sizes = value()?.split(',').map(read_size).collect::<Result<_>>()?,
            "--bursts" => options.bursts = number(&arg, &value()?)?,
            "--rounds" => options.rounds = number(&arg, &value()?)?,
            "--secs" => options.secs = number(&arg, &value()?)?,
            "--program" => options.program = value()?.into(),
            "--small-pages" => options.huge_pages = false,
            "--out" => options.out = Some(value()?.into()),
            "--cache" => options.cache = value()?.into(),
            other => bail!("unknown argument {other}"),
        }
    }
    ensure!((0.1..=3600.0).contains(&options.secs), "--secs takes 0.1 to 3600, not {}", options.secs);
    ensure!((1..=1000).contains(&options.rounds), "--rounds takes 1 to 1000, not {}", options.rounds);
    ensure!((1..=32).contains(&options.bursts), "--bursts takes 1 to 32, not {}", options.bursts);
    Ok(options)
}

fn read_switch(text: &str) -> Result<Switch> {
    let kind = match text {
        "testpmd" => Kind::Testpmd,
        "ovs" => Kind::Ovs,
        _ => {
            let (_, ours) =
                text.split_once('=').with_context(|| format!("--switch {text}: testpmd, ovs or NAME=PROGRAM"))?;
            let mut words = ours.split_whitespace();
            let program = words.next().with_context(|| format!("--switch {text}: no program"))?;
            let (mut switch, mut port) = (Vec::new(), Vec::new());
            for word in words {
                ensure!(word.contains('='), "--switch {text}: {word}: KEY=VALUE");
                match word.strip_prefix("port.") {
                    Some(word) => port.push(word.to_owned()),
                    None => switch.push(word.to_owned()),
                }
            }
            Kind::Ours { program: program.into(), switch, port }
        }
    };
    let name = text.split_once('=').map_or(text, |(name, _)| name).trim();
    ensure!(
        !name.is_empty() && (kind == Kind::Testpmd || kind == Kind::Ovs || !["testpmd", "ovs"].contains(&name)),
        "--switch {text}: no name"
    );
    Ok(Switch { name: name.to_owned(), kind, version: text.to_owned(), copies_nothing: false })
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

fn list<T: Copy>(text: &str, known: &[(&str, T)]) -> Result<Vec<T>> {
    let one = |name| {
        let found = known.iter().find(|(known, _)| *known == name);
        let names = || known.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        found.map(|(_, value)| *value).with_context(|| format!("{name}: one of {}", names()))
    };
    text.split(',').map(one).collect()
}

fn number<T: std::str::FromStr>(arg: &str, text: &str) -> Result<T> {
    text.parse().ok().with_context(|| format!("{arg} {text}: not a number"))
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
        let Kind::Ours { program, switch, port } = &options.switches[1].kind else { panic!("a binary of ours") };
        assert_eq!((program.to_str(), &switch[0][..], &port[0][..]), (Some("bin/s"), "copies=2", "packed=false"));
        let cells: Vec<String> = options.cells().iter().map(ToString::to_string).collect();
        let own =
            ["own flood split 64 B", "own flood split imix B", "own flood packed 64 B", "own flood packed imix B"];
        assert_eq!(cells, [&own[..], &["testpmd flood split 64 B", "testpmd flood packed 64 B"]].concat());
        for bad in [
            "--switch|x",
            "--switch|x=",
            "--switch|=x",
            "--switch|testpmd=x",
            "--switch|x=y z",
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
