//! The command line, and the axes of a trial.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use super::DpdkCopy;
use crate::measure::{self, CommonOptions, Peers, SwitchKind, secs};

const ABOUT: &str = "\
Compare copies in DPDK's vhost library: its own rte_memcpy, memcpy of the C library, and a loop. The
source comes by `apt-get source`, of the installed version. Each library is built as Debian builds it,
and loaded into Debian's testpmd and Open vSwitch. A disassembly shows that a library has the copy; the
command fails otherwise. Building takes some minutes; needs meson, ninja-build, python3-pyelftools,
libnuma-dev, dpkg-dev, root, and huge pages of 2 MiB.";

const COPIES: &str = "\
Copies (--switch), by default all that the processor has; ratios are to the first:
  glibc   memcpy of the C library
  sse     rte_memcpy as Debian ships it
  avx2    rte_memcpy, compiled for AVX2
  avx512  rte_memcpy, compiled for AVX-512
  loop    a loop over bytes, as the compiler makes it";

/// The copies of this comparison.
#[derive(Debug)]
pub(super) struct Copies;

impl Peers for Copies {
    const KNOWN: &'static [(&'static str, SwitchKind)] = &[
        ("glibc", SwitchKind::Copy(DpdkCopy::Glibc)),
        ("sse", SwitchKind::Copy(DpdkCopy::Sse)),
        ("avx2", SwitchKind::Copy(DpdkCopy::Avx2)),
        ("avx512", SwitchKind::Copy(DpdkCopy::Avx512)),
        ("loop", SwitchKind::Copy(DpdkCopy::Loop)),
    ];
    const DEFAULT: &'static [&'static str] = &["glibc", "sse", "avx2", "avx512", "loop"];
    const ROUNDS: &'static str = "6";
}

/// The switch that loads the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Host {
    Testpmd,
    Ovs,
}

/// The path of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Path {
    /// Bursts bounce between the two ports of our guest
    Loop,
    /// Our generator, the switch, our guest that forwards as testpmd's `mac` does, the switch, our
    /// generator
    Pvp,
}

impl Path {
    /// Returns the switch's ports, by the names of their sockets. It joins each two.
    pub(super) fn ports(self) -> &'static [&'static str] {
        match self {
            Path::Loop => &["a", "b"],
            Path::Pvp => &["a", "b", "c", "d"],
        }
    }

    /// Returns the laboratory's command.
    pub(super) fn command(self) -> &'static str {
        match self {
            Path::Loop => "loop",
            Path::Pvp => "pvp",
        }
    }
}

/// The axes of a trial besides the copy: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemcpyCell {
    pub(super) host: Host,
    pub(super) path: Path,
    pub(super) size: u32,
}

impl measure::Cell for MemcpyCell {
    fn axes(&self) -> BTreeMap<String, String> {
        let axes = [("host", name(&self.host)), ("path", name(&self.path)), ("size", self.size.to_string())];
        axes.map(|(axis, value)| (axis.to_owned(), value)).into()
    }
}

impl fmt::Display for MemcpyCell {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {} {} B", name(&self.host), name(&self.path), self.size)
    }
}

#[derive(Debug, Args)]
#[command(about = "Compare copies in DPDK's vhost library (`cargo xtask compare memcpy`)", long_about = ABOUT)]
#[command(after_help = COPIES, args_override_self = true)]
#[command(override_usage = "cargo xtask compare memcpy [OPTION...]")]
pub(crate) struct Options {
    #[command(flatten)]
    pub(super) common: CommonOptions<Copies>,
    /// Switches that load the library
    #[arg(long = "host", value_name = "HOST,...", value_enum, value_delimiter = ',', default_value = "testpmd,ovs")]
    hosts: Vec<Host>,
    /// Paths of packets
    #[arg(long = "path", value_name = "PATH,...", value_enum, value_delimiter = ',', default_value = "loop,pvp")]
    paths: Vec<Path>,
    /// Frame lengths without frame check sequence
    #[arg(
        long = "size",
        value_name = "SIZE,...",
        value_parser = clap::value_parser!(u32).range(60..=1518),
        value_delimiter = ',',
        default_value = "64,512,1514"
    )]
    sizes: Vec<u32>,
    /// Length of a trial in seconds, after a second of warm-up
    #[arg(long, value_name = "S", default_value = "1", value_parser = |text: &str| secs(text, 3600.0))]
    pub(super) secs: f64,
    /// Straightline binary that contains our generator and guest
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/straightline")]
    pub(super) program: PathBuf,
    /// Only build the libraries and check their copies
    #[arg(long)]
    pub(super) build: bool,
}

impl Options {
    /// Returns all combinations.
    pub(super) fn cells(&self) -> Vec<MemcpyCell> {
        let mut cells = Vec::new();
        for &host in &self.hosts {
            for &path in &self.paths {
                cells.extend(self.sizes.iter().map(|&size| MemcpyCell { host, path, size }));
            }
        }
        cells
    }

    /// Returns the copies.
    ///
    /// # Errors
    /// A switch is no copy.
    pub(super) fn copies(&self) -> Result<Vec<DpdkCopy>> {
        let copy = |switch: &measure::Candidate| match switch.kind {
            SwitchKind::Copy(copy) => Some(copy),
            _ => None,
        };
        let copies: Option<Vec<_>> = self.common.switches.iter().map(copy).collect();
        copies.context("only copies can be compared: see `--help` for their names")
    }
}

/// Checks the options. Leaves out copies that the processor does not have.
pub(super) fn checked(mut options: Options) -> Result<Options> {
    options.common.check()?;
    options.copies()?;
    options.common.switches.retain(|switch| {
        let is_here = !matches!(switch.kind, SwitchKind::Copy(copy) if !copy.is_here());
        if !is_here {
            eprintln!("skipped {}: this processor does not have it", switch.name);
        }
        is_here
    });
    ensure!(!options.common.switches.is_empty(), "this processor has none of these copies");
    options.common.identify()?;
    if !options.build {
        let program = options.program.canonicalize();
        options.program = program.with_context(|| {
            format!("no program for our guest at {}: build it, or use --program", options.program.display())
        })?;
    }
    Ok(options)
}

/// Returns the name of a value on the command line.
fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let options: Options = measure::parsed("").expect("all by default");
        assert_eq!(options.copies().expect("copies"), DpdkCopy::ALL);
        assert_eq!(options.cells().len(), 12);
        let options: Options =
            measure::parsed("--switch|glibc|--host|ovs|--path|pvp|--size|64,1514|--build").expect("good");
        let cells: Vec<String> = options.cells().iter().map(ToString::to_string).collect();
        assert_eq!(cells, ["ovs pvp 64 B", "ovs pvp 1514 B"]);
        assert!(options.build && options.copies().expect("one") == [DpdkCopy::Glibc]);
        for bad in ["--size|59", "--host|rte", "--path|flood", "--secs|0", "--switch|avx"] {
            assert!(measure::parsed::<Options>(bad).is_err(), "{bad}");
        }
        let ours: Options = measure::parsed("--switch|ours=bin/s").expect("a switch");
        assert!(ours.copies().expect_err("no copy").to_string().contains("only copies"));
    }
}
